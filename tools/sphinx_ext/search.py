"""Chinese full-text search without a dictionary.

Sphinx's own Chinese index needs a segmenter and does not segment the query. Here both
sides cut a run of Han characters into overlapping pairs, so that every part of two or more
characters is found; single characters are indexed too.
"""

import json
import re

from sphinx.search.en import SearchEnglish

HAN = r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
TOKEN = re.compile(rf"[{HAN}]+|[^\W{HAN}]+")
SYNONYMS = {"掩码": "掩蔽", "池化": "汇聚"}  # found under either word

SPLIT_QUERY = """
function splitQuery(query) {
  for (const [word, synonym] of Object.entries(SYNONYMS))
    query = query.replaceAll(word, synonym);
  const pairs = (run) => Array.from({length: run.length - 1}, (_, i) => run.slice(i, i + 2));
  return (query.match(/[HAN]+|[^\\s\\p{P}\\p{S}HAN]+/gu) || []).flatMap(
    (token) => /^[HAN]{2}/.test(token) ? pairs(token) : [token]);
}
"""


def is_han(word):
    return re.match(f"[{HAN}]", word) is not None


class SearchChinese(SearchEnglish):
    lang = "zh"
    language_name = "Chinese"
    js_splitter_code = SPLIT_QUERY.replace("HAN", HAN).replace(
        "SYNONYMS", json.dumps(SYNONYMS, ensure_ascii=False)
    )

    def split(self, text):
        for word, synonym in SYNONYMS.items():
            text = text.replace(word, synonym)
        words = []
        for token in TOKEN.findall(text):
            pairs = map("".join, zip(token, token[1:], strict=False))
            words += [*token, *pairs] if is_han(token) else [token]
        return words

    def stem(self, word):
        return word if is_han(word) else super().stem(word)


def setup(app):
    app.add_search_language(SearchChinese)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
