"""The editions say the same: pages, cells, code, equations, headings, exercises, links.

A check takes a cell of the English edition and the one of the Chinese edition, and yields
problems; a page in Markdown counts as one cell. The checks are applied to the book first, and
then each to wrong examples.
"""

import ast
import re
from collections import Counter
from functools import cache

import nbformat
import pytest
from test_notebooks import FORMULA, MARKDOWN, links, remarks, tokens, without_code

from tools.notebooks import pages, parse, read
from tools.sphinx_ext.headings import texts

HAN = "\u3400-\u4dbf\u4e00-\u9fff"
SAVED = "#@save\n"
KINDS = {"预测": "predict", "证明": "prove", "编程": "code", "测量": "measure"}
EXERCISE = re.compile(
    r"(?:Exercise|练习) (?P<number>\d+\.\d+)(?: \(|（)(?P<kind>\w+)(?:, |，)"
    r"(?P<minutes>\d+) (?:minutes\)|分钟）)"
)
# Addresses outside the book that are another one in Chinese
SAME_SITE = {"https://zh.d2l.ai": "https://d2l.ai"}
# Words with the same meaning as one that the book uses
OTHER_WORDS = {
    "掩码": "掩蔽",
    "池化": "汇聚",
    "令牌": "词元",
    "丢弃法": "暂退法",
    "随机失活": "暂退法",
    "热力图": "热图",
    "层归一化": "层规范化",
    "隐藏状态": "隐状态",
}
MARKS = "，。；：？！、（）《》“”"
PUNCTUATION = {
    "a half-width mark": rf"[{HAN}][,.;:?!][{HAN}]",
    "a space at a full-width mark": rf"[{HAN}{MARKS}] +[{MARKS}]|[{MARKS}] +[{HAN}]",
    "a straight quote": rf"[{HAN}{MARKS}][\"']|[\"'][{HAN}]",
    "not ……": r"(?<!…)…(?!…)|…{3,}|。。|\.\.\.|等……|……[，。、；：]",
}


# --- What is in a cell ---


def load(path):
    if path.suffix == ".ipynb":
        return read(path).cells
    return [nbformat.v4.new_markdown_cell(text, id=path.stem) for text in texts(path)]


def headings(text):
    """The headings of a text: (level, words)."""
    found = list(tokens(text))
    return [
        (token.tag, following.content)
        for token, following in zip(found, found[1:], strict=False)
        if token.type == "heading_open"
    ]


def exercises(text):
    found = [EXERCISE.fullmatch(words) for _, words in headings(text)]
    return [
        (match["number"], KINDS.get(match["kind"], match["kind"]), match["minutes"])
        for match in found
        if match
    ]


def equations(text):
    """The formulas between $$, without line ends, and without words in \\text."""
    found = [token.content for token in tokens(text) if token.type == "math_block"]
    return [" ".join(re.sub(r"\\text\{[^{}]*\}", r"\\text{}", body).split()) for body in found]


def targets(text):
    found = Counter()
    for link in links(text):
        for here, there in SAME_SITE.items():
            if link.startswith(here):
                link = there + link.removeprefix(here)
        found[link] += 1
    return found


def tables(text):
    """The rows of all tables, each a list of cells."""
    rows = []
    for token in MARKDOWN.parse(text):
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and rows and token.level == 4:  # table, part, row, cell
            rows[-1].append(token.content)
    return rows


def minutes(row):
    return [match[1] for cell in row if (match := re.fullmatch(r"(\d+) (?:min|分钟)", cell))]


def fences(text):
    return [token for token in tokens(text) if token.type == "fence"]


# --- Is the code the same? ---


def without_docstrings(source, where):
    tree = parse(source, where)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            if ast.get_docstring(node) is not None:
                node.body = node.body[1:]
    return tree


def is_text(node):
    is_string = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return is_string or isinstance(node, ast.JoinedStr)


def parts(node):
    """The constant parts of a string or f-string, one a line, and its sorted {fields}."""
    nodes = node.values if isinstance(node, ast.JoinedStr) else [node]
    constant = "\n".join(part.value for part in nodes if is_text(part))
    fields = [ast.unparse(part) for part in nodes if not is_text(part)]
    return constant, sorted(fields + re.findall(r"\{[^{}]*\}", constant))


def differences(english, chinese):
    """Where two syntax trees differ in more than words."""
    if is_text(english) and is_text(chinese):
        words, fields = parts(chinese)
        translated = re.search(f"[{HAN}]", words) and fields == parts(english)[1]
        if ast.dump(english) != ast.dump(chinese) and not translated:
            yield f"{ast.unparse(chinese)} stands for {ast.unparse(english)}"
    elif type(english) is not type(chinese):
        yield f"{described(chinese)} stands for {described(english)}"
    elif isinstance(english, ast.AST):
        for field in english._fields:
            yield from differences(getattr(english, field, None), getattr(chinese, field, None))
    elif isinstance(english, list):
        if len(english) != len(chinese):
            yield f"{described(chinese)} stands for {described(english)}"
        for one, other in zip(english, chinese, strict=False):
            yield from differences(one, other)
    elif english != chinese:
        yield f"{chinese!r} stands for {english!r}"


def described(node):
    if isinstance(node, list):
        return " | ".join(map(described, node)) or "nothing"
    return ast.unparse(node) if isinstance(node, ast.AST) else repr(node)


def check_same_code(english, chinese, where):
    yield from differences(
        without_docstrings(english, where), without_docstrings(chinese, where)
    )


def check_code(english, chinese):
    if english.cell_type != "code":
        return
    saved = [cell.source.startswith(SAVED) for cell in (english, chinese)]
    if saved[0] != saved[1]:
        yield "only one of the two is saved"
    elif not saved[0]:
        yield from check_same_code(english.source, chinese.source, english.id)
    else:
        trees = [without_docstrings(cell.source, cell.id) for cell in (english, chinese)]
        if ast.dump(trees[0]) != ast.dump(trees[1]):
            yield "saved code differs in more than comments and docstrings"


# --- Is the text the same? ---


def check_fences(english, chinese):
    pair = fences(english.source), fences(chinese.source)
    if len(pair[0]) != len(pair[1]):
        yield f"{len(pair[1])} blocks of code stand for {len(pair[0])}"
    for one, other in zip(*pair, strict=False):
        if one.info == other.info == "python":
            yield from check_same_code(one.content, other.content, english.id)
        elif one.content != other.content or "python" in (one.info, other.info):
            yield f"the block {other.content!r} stands for {one.content!r}"


def check_tables(english, chinese):
    pair = tables(english.source), tables(chinese.source)
    if [len(row) for row in pair[0]] != [len(row) for row in pair[1]]:
        yield "the tables have other rows or columns"
    for one, other in zip(*pair, strict=False):
        if minutes(one) != minutes(other):
            yield f"the table says {minutes(other)} for {minutes(one)} minutes: {other[0]}"


def compare(what, find):
    """A check that `find` finds the same in both texts."""

    def check(english, chinese):
        found = [find(cell.source) for cell in (english, chinese)]
        if english.cell_type == "markdown" and found[0] != found[1]:
            yield f"the {what} {found[1]} stand for {found[0]}"

    return check


def spoken(cell):
    """The text of a cell that is read: prose, or comments, docstrings and Chinese strings."""
    if cell.cell_type == "markdown":
        text = FORMULA.sub("$", without_code(cell.source))
        return re.sub(r"\]\([^)]*\)|<[^>]+>", "]", text)  # no addresses and tags
    nodes = filter(is_text, ast.walk(parse(cell.source, cell.id)))
    strings = [parts(node)[0] for node in nodes]
    return "\n".join([remarks(cell.source), *filter(re.compile(f"[{HAN}]").search, strings)])


def check_punctuation(_, chinese):
    text = spoken(chinese)
    for what, pattern in PUNCTUATION.items():
        for match in re.finditer(pattern, text):
            near = text[max(match.start() - 5, 0) : match.end() + 5]
            yield f"{what}: {near.strip()}"


def check_words(_, chinese):
    for word, ours in OTHER_WORDS.items():
        if word in chinese.source:
            yield f"{word} is called {ours} in this book"


CHECKS = {
    "code": check_code,
    "fences": check_fences,
    "equations": compare("equations", equations),
    "headings": compare("levels of headings", lambda text: [tag for tag, _ in headings(text)]),
    "exercises": compare("exercises", exercises),
    "links": compare("links", targets),
    "details": compare("numbers of <details>", lambda text: text.count("<details")),
    "tables": check_tables,
    "punctuation": check_punctuation,
    "words": check_words,
}


# --- The book ---

cells_of = cache(load)


def names(edition):
    """The pages of an edition as they are named in both."""
    found = pages(edition)
    return [path.relative_to(found[0].parent).as_posix() for path in found]


def outline(cells):
    return [(cell.id, cell.cell_type, cell.metadata.get("tags", [])) for cell in cells]


CHINESE = dict(zip(names("zh"), pages("zh"), strict=True))
PAIRS = {
    name: (path, CHINESE[name])
    for name, path in zip(names("en"), pages("en"), strict=True)
    if name in CHINESE
}


def test_the_pages_are_the_same_in_the_same_order():
    assert len(PAIRS) >= 4 and names("en") == names("zh")


@pytest.mark.parametrize("page", PAIRS)
def test_the_cells_are_the_same(page):
    english, chinese = (outline(cells_of(path)) for path in PAIRS[page])
    assert english == chinese


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("page", PAIRS)
def test_page(page, check):
    english, chinese = map(cells_of, PAIRS[page])
    problems = [
        f"{page}, {one.id}: {problem}"
        for one, other in zip(english, chinese, strict=True)
        for problem in CHECKS[check](one, other)
    ]
    assert problems == [], "\n".join(problems)


def test_enough_is_compared():
    cells = [cell for path, _ in PAIRS.values() for cell in cells_of(path)]
    text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    assert sum(cell.cell_type == "code" for cell in cells) >= 50
    found = [equations, headings, exercises, targets, tables, fences]
    least = [8, 30, 4, 12, 25, 6]
    counts = [len(find(text)) for find in found]
    assert all(n >= least for n, least in zip(counts, least, strict=True)), counts
    assert sum(bool(minutes(row)) for row in tables(text)) >= 2


def terms(text):
    """The rows of the table of terms: both words, and the formulas of the third column."""
    rows = [row for row in tables(text) if len(row) == 3]
    symbols = re.compile(rf"{FORMULA.pattern}|`[^`]+`")
    return [(english, chinese, sorted(symbols.findall(rest))) for english, chinese, rest in rows]


def test_the_terms_are_the_same():
    english, chinese = (terms(cells_of(path)[0].source) for path in PAIRS["index.md"])
    assert len(english) >= 15 and english == chinese


# --- Each check on wrong examples ---


def cell(source, kind="markdown"):
    make = nbformat.v4.new_markdown_cell if kind == "markdown" else nbformat.v4.new_code_cell
    return make(source, id="a")


PYTHON = "```python\n{}\n```"
TABLE = "| a | b |\n|---|---|\n| c | {} |"


@pytest.mark.parametrize(
    "check, english, chinese, message",
    [
        ("equations", "$$\nx \\tag{1.1}\n$$", "$$\nx\n\\tag{1.1}\n$$", ""),
        ("equations", "$$\na \\text{if} b\n$$", "$$\na \\text{如果} b\n$$", ""),
        ("equations", "$$\nx \\tag{1.1}\n$$", "$$\nx \\tag{1.2}\n$$", "the equations ['x \\\\tag{1"),
        ("equations", "$$\nx\n$$", "$$\ny\n$$", "the equations ['y']"),
        ("equations", "$$\nx\n$$", "文字", "the equations [] stand for ['x']"),
        ("equations", "$$\nx\n$$\n\n$$\ny\n$$", "$$\ny\n$$\n\n$$\nx\n$$", "the equations ['y', 'x']"),
        ("headings", "# A\n\n## B", "# 甲\n\n## 乙", ""),
        ("headings", "# A\n\n## B", "# 甲\n\n### 乙", "['h1', 'h3'] stand for ['h1', 'h2']"),
        ("headings", "# A\n\n## B", "# 甲\n\n```\n## 乙\n```", "['h1'] stand for ['h1', 'h2']"),
        ("exercises", "### Exercise 1.2 (code, 5 minutes)", "### 练习 1.2（编程，5 分钟）", ""),
        ("exercises", "### Exercise 1.2 (code, 5 minutes)", "### 练习 1.2（证明，5 分钟）", "prove"),
        ("exercises", "### Exercise 1.2 (code, 5 minutes)", "### 练习 1.3（编程，5 分钟）", "1.3"),
        ("exercises", "### Exercise 1.2 (code, 5 minutes)", "### 练习 1.2（编程，9 分钟）", "'9'"),
        ("exercises", "### Exercise 1.2 (code, 5 minutes)", "### 练习 1.2", "exercises [] stand"),
        ("links", "[a](b.md#c) [d](https://d2l.ai/x)", "[丁](https://zh.d2l.ai/x)[甲](b.md#c)", ""),
        ("links", "[a](b.md#c)", "[甲](b.md#d)", "b.md#d"),
        ("links", "[a](b.md#c)", "[甲](b.md)", "b.md"),
        ("links", "[a](b.md) [b](b.md)", "[甲](b.md)", "Counter({'b.md': 1}) stand for"),
        ("links", "[a](https://a.org)", "[甲](https://zh.a.org)", "https://zh.a.org"),
        ("links", "[a](https://a.org)", "甲", "links Counter() stand for"),
        ("details", "<details>\n", "<details>\n\n<details>\n", "<details> 2 stand for 1"),
        ("tables", TABLE.format("5 min"), TABLE.format("5 分钟"), ""),
        ("tables", TABLE.format("5 min"), TABLE.format("6 分钟"), "says ['6'] for ['5'] minutes"),
        ("tables", TABLE.format("d"), TABLE.format("d") + "\n| e | f |", "other rows or columns"),
        ("tables", "| a | b |\n|---|---|", "| a |\n|---|", "other rows or columns"),
        ("fences", PYTHON.format("x = 1  # one"), PYTHON.format("x = 1  # 一"), ""),
        ("fences", PYTHON.format("x = 'one'"), PYTHON.format("x = '一'"), ""),
        ("fences", PYTHON.format("x = 1"), PYTHON.format("x = 2"), "2 stands for 1"),
        ("fences", PYTHON.format("x = 1"), "文字", "0 blocks of code stand for 1"),
        ("fences", "```shell\na\n```", "```bash\na\n```", ""),
        ("fences", "```shell\na\n```", "```bash\nb\n```", "the block 'b\\n' stands for 'a\\n'"),
        ("fences", PYTHON.format("x"), "```\nx\n```", "the block 'x\\n' stands for 'x\\n'"),
        ("punctuation", "", "甲，乙。“丙”（丁）：1.5, `甲,乙` $n$, (B, n) 甲……乙 [甲](a.md)。", ""),
        ("punctuation", "", "> **注意。** 甲\n\n| 甲 | ，乙 |", ""),
        ("punctuation", "", "甲,乙", "a half-width mark: 甲,乙"),
        ("punctuation", "", "甲.乙", "a half-width mark: 甲.乙"),
        ("punctuation", "", "甲 ，乙", "a space at a full-width mark: 甲 ，乙"),
        ("punctuation", "", "甲， 乙", "a space at a full-width mark: 甲， 乙"),
        ("punctuation", "", "甲（ 乙", "a space at a full-width mark: 甲（ 乙"),
        ("punctuation", "", "甲：“ 乙”", "a space at a full-width mark"),
        ("punctuation", "", '甲"乙', "a straight quote"),
        ("punctuation", "", "甲…", "not ……: 甲…"),
        ("punctuation", "", "甲...", "not ……: 甲..."),
        ("punctuation", "", "甲。。。", "not ……: 甲。。。"),
        ("punctuation", "", "甲等……", "not ……: 甲等……"),
        ("punctuation", "", "甲………", "not ……: 甲………"),
        ("words", "", "掩蔽、注意力汇聚、词元、暂退法", ""),
        *[("words", "", f"甲{word}", f"{word} is called") for word in OTHER_WORDS],
        ("words", "", "注意力池化", "池化 is called 汇聚"),
    ],
)
def test_checks_of_a_text(check, english, chinese, message):
    problems = list(CHECKS[check](cell(english), cell(chinese)))
    assert len(problems) == bool(message) and message in "".join(problems), problems


@pytest.mark.parametrize(
    "english, chinese, message",
    [
        ("x = 1  # one", "x = 1  # 一", ""),
        ("def f():\n    'Do.'\n    g()", "def f():\n    '做。'\n    g()", ""),
        ("def f():\n    'Do.'\n    g()", "def f():\n    g()", ""),
        ("words = ['I', 'love']", "words = ['我', '爱']", ""),
        ("print(f'{x:.2f} of {n}')", "print(f'{n} 的 {x:.2f}')", ""),
        ("hint = 'a {n}, '\\\n 'b'", "hint = '甲 {n}'", ""),
        ("x = 1", "x = 2", "2 stands for 1"),
        ("x = a", "x = b", "'b' stands for 'a'"),
        ("x = 1", "y = 1", "'y' stands for 'x'"),
        ("f(1)", "f(1, 2)", "1 | 2 stands for 1"),
        ("x = a < b", "x = a <= b", "stands for"),
        ("x = 'one'", "x = 'two'", "'two' stands for 'one'"),
        ("x = 'one'", "x = 1", "1 stands for 'one'"),
        ("x = '{n} one'", "x = '{m} 一'", "'{m} 一' stands for '{n} one'"),
        ("x = f'{n} one'", "x = f'{m} 一'", "f'{m} 一' stands for f'{n} one'"),
        ("x = f'{n:.2f} one'", "x = f'{n:.3f} 一'", "f'{n:.3f} 一' stands for"),
        ("x = f'{n} one'", "x = '一'", "'一' stands for f'{n} one'"),
        ("d['one']", "d['two']", "'two' stands for 'one'"),
        ("print(1)\nprint(2)", "print(1)", "print(1) stands for print(1) | print(2)"),
        (SAVED + "X = 1  # one", SAVED + "X = 1  # 一", ""),
        (SAVED + "def f():\n    'Do.'", SAVED + "def f():\n    '做。'", ""),
        (SAVED + "X = 'one'", SAVED + "X = '一'", "saved code differs"),
        (SAVED + "X = f'{y} one'", SAVED + "X = f'{y} 一'", "saved code differs"),
        (SAVED + "X = 1", "X = 1", "only one of the two is saved"),
    ],
)
def test_checks_of_code(english, chinese, message):
    problems = list(check_code(cell(english, "code"), cell(chinese, "code")))
    assert len(problems) == bool(message) and message in "".join(problems), problems


@pytest.mark.parametrize(
    "source, message",
    [
        ("x = 1  # 甲，乙", ""),
        ("d = {'a': 1, 'b': '甲，乙'}  # (甲, n)", ""),
        ("x = 1  # 甲,乙", "a half-width mark: # 甲,乙"),
        ("x = '甲.乙'", "a half-width mark: 甲.乙"),
        ("x = f'{n} 甲 {n}，乙'", ""),
        ("x = f'甲 ，{n}'", "a space at a full-width mark: 甲 ，"),
        ("def f():\n    '甲， 乙'", "a space at a full-width mark: 甲， 乙"),
    ],
)
def test_checks_of_chinese_in_code(source, message):
    problems = list(check_punctuation(None, cell(source, "code")))
    assert bool(problems) == bool(message) and message in "".join(problems), problems


def test_another_order_of_cells_is_seen():
    one, other = cell("a"), cell("b", "code")
    assert outline([one, other]) == outline([cell("甲"), cell("b", "code")])
    assert outline([one, other]) != outline([other, one])
    tagged = cell("b", "code")
    tagged.metadata["tags"] = ["hide-input"]
    assert outline([one, other]) != outline([one, tagged])


@pytest.mark.parametrize("row", ["| a | 乙 | $n$ |", "| b | 甲 | $n$ |", "| a | 甲 | $m$ |"])
def test_another_term_is_seen(row):
    table = "| English | 中文 | {} |\n|---|---|---|\n{}"
    english = terms(table.format("Symbol", "| a | 甲 | $n$ and `b` |"))
    assert english == terms(table.format("符号", "| a | 甲 | $n$ 和 `b` |"))
    assert english != terms(table.format("符号", row.replace("$ |", "$ 和 `b` |")))
