"""Describe each figure by the sentence that follows it in the notebook.

That sentence is the caption for every reader; here it also becomes the picture's
alternative text.
"""

import re

from docutils import nodes
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

logger = logging.getLogger(__name__)

FONTS = re.compile(r"\\(?:mathbf|mathrm|mathbb|mathcal|operatorname|text)\b\s*")
# a line break between Chinese characters stands for no space
CHINESE_BREAK = re.compile(r"(?<=[\u3000-\u9fff\uff00-\uffef])\n(?=[\u3000-\u9fff\uff00-\uffef])")
# "e.g. this" does not end a sentence, so a capital (or no more letter case) must follow
END_OF_SENTENCE = re.compile(r"(?<=[.!?])\s+(?![a-z0-9])|(?<=[。！？])")


def plain(node):
    """The text of a node, formulas without their TeX marks."""
    if isinstance(node, nodes.math):
        return re.sub(r"[\\{}]", "", FONTS.sub("", node.astext()).replace(r"\top", "T"))
    if isinstance(node, nodes.Text):
        return str(node)
    return "".join(map(plain, node.children))


def first_sentence(paragraph):
    text = CHINESE_BREAK.sub("", plain(paragraph).strip()).replace("\n", " ")
    return END_OF_SENTENCE.split(text)[0]


class FigureAlt(SphinxTransform):
    default_priority = 500

    def apply(self):
        for cell in self.document.findall(nodes.container):
            images = list(cell.findall(nodes.image))
            if cell.get("nb_element") != "cell_code" or not images:
                continue
            following = cell.next_node(descend=False, siblings=True)
            if isinstance(following, nodes.paragraph):
                for image in images:
                    image["alt"] = first_sentence(following)
            else:
                logger.warning(
                    "the text after this cell must begin with a sentence that describes its figure",
                    location=cell,
                )


def setup(app):
    app.add_transform(FigureAlt)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
