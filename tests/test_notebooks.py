"""What a notebook must be beyond what nbval compares: fresh, short, and readable everywhere.

Each check takes a notebook or a text and returns a list of problems. The first part of the
tests applies the checks to the book; the rest proves each of them on a wrong example.
"""

import ast
import io
import re
import statistics
import subprocess
import sys
import tokenize
from collections import Counter
from urllib.parse import unquote

import nbformat
import pytest
from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode
from mdit_py_plugins.dollarmath import dollarmath_plugin
from myst_parser.mdit_to_docutils.base import compute_unique_slug

from tools.notebooks import (
    EDITIONS,
    ROOT,
    SETUP_ID,
    code_cells,
    editions,
    framework,
    label,
    notebooks,
    read,
)
from tools.run import ADDRESS, KERNEL, stamp

NOTEBOOKS = [path for edition in editions() for path in notebooks(edition)]
# Tags that change what is run or compared
FORBIDDEN_TAGS = {"skip-execution", "raises-exception", "nbval-skip", "nbval-raises-exception"}
EXEMPT = {"toolbox"}  # an appendix of helpers
CORE_CELLS = {"self-attention": 24}  # it covers the larger part of the source text
MARKDOWN = MarkdownIt("commonmark").enable("table").use(dollarmath_plugin)


def edition_of(path):
    return path.relative_to(ROOT / "chapters").parts[0]


# Is it fresh?


def check_counts(notebook):
    counts = [cell.execution_count for cell in code_cells(notebook)]
    right = list(range(1, len(counts) + 1))
    return [] if counts == right else [f"execution counts are {counts}: run python -m tools.run"]


def check_stamp(path, root=ROOT):
    stored, now = read(path, root).metadata.get("d2l_stamp"), stamp(path, root)
    return [] if stored == now else [f"stamp {stored} is not {now}: run python -m tools.run"]


def check_outputs(notebook):
    problems = []
    for cell in code_cells(notebook):
        for output in cell.outputs:
            text = output.get("text") or str(output.get("data", {}).get("text/plain", ""))
            if output.output_type == "error" or output.get("name") == "stderr":
                problems.append(f"{cell.id}: an error or text on stderr is stored")
            if ADDRESS.search(text):
                problems.append(f"{cell.id}: an address in memory is stored")
            if output.get("metadata"):
                problems.append(f"{cell.id}: the output has metadata")
    return problems


def check_metadata(notebook):
    """Only what `tools.run` leaves: nothing of the machine or the editor."""
    problems = []
    found = dict(notebook.metadata) | {"d2l_stamp": ""}
    if found != {"kernelspec": KERNEL, "language_info": {"name": "python"}, "d2l_stamp": ""}:
        problems.append(f"metadata of the notebook: {sorted(found)}, {found.get('kernelspec')}")
    for cell in notebook.cells:
        if set(cell.metadata) - {"tags"} or FORBIDDEN_TAGS & {*cell.metadata.get("tags", [])}:
            problems.append(f"{cell.id}: metadata {dict(cell.metadata)}")
    return problems


def check_size(path):
    size = path.stat().st_size
    return [] if size < 1_000_000 else [f"{size} bytes, but a notebook has less than 1 MB"]


# Is the code well placed?


def check_setup(notebook):
    cells = code_cells(notebook)
    if not cells or cells[0].id != SETUP_ID or cells[0].metadata.get("tags") != ["remove-cell"]:
        return [f"the first code cell must have the id {SETUP_ID} and the tag remove-cell"]
    return []


def check_semicolons(notebook):
    """nbval shows, with its address, the value that a `;` at the end hides."""
    ends = {cell.id: cell.source.rstrip().endswith(";") for cell in code_cells(notebook)}
    return [f"{id}: it ends in `;`; write `_ = …`" for id, wrong in ends.items() if wrong]


def check_alternation(notebook):
    problems = []
    last = None
    for cell in notebook.cells:
        if cell.cell_type == "code":
            if last is not None and last != SETUP_ID:
                problems.append(f"{cell.id}: no text between it and the code cell {last}")
            last = cell.id
        elif cell.cell_type == "markdown" and cell.source.strip():
            last = None
    return problems


def asserts(source):
    """Whether code asserts anything, by `assert` or a function like `assert_close`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            if ast.unparse(node.func).rpartition(".")[2].startswith("assert"):
                return True
    return False


def check_figures(notebook):
    problems = []
    following = dict(zip(map(id, notebook.cells), notebook.cells[1:], strict=False))
    code = code_cells(notebook)
    for number, cell in enumerate(code):
        pictures = [
            {kind for kind in output.get("data", {}) if kind.startswith("image/")}
            for output in cell.outputs
        ]
        if not any(pictures):
            continue
        if any(kinds and kinds != {"image/svg+xml", "image/png"} for kinds in pictures):
            problems.append(f"{cell.id}: a figure needs SVG and PNG")
        if getattr(following.get(id(cell)), "cell_type", None) != "markdown":
            problems.append(f"{cell.id}: the text after a figure describes it")
        if not any(asserts(near.source) for near in code[number : number + 2]):
            problems.append(f"{cell.id}: nothing asserts what is drawn")
    return problems


# Is it short?


def parts(notebook):
    """The cells of the core path, the part that can be skipped, and the exercises."""
    found = {"core": [], "deeper": [], "exercises": []}
    part = "core"
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            if re.search(r"^## (Deeper|进阶)$", cell.source, re.M):
                part = "deeper"
            elif re.search(r"^## (Exercises|练习)$", cell.source, re.M):
                part = "exercises"
        found[part].append(cell)
    return found


def code_in(cells):
    return [cell for cell in cells if cell.cell_type == "code" and cell.id != SETUP_ID]


def length(cell):
    return sum(bool(line.strip()) for line in cell.source.splitlines())


def is_saved_class(cell):
    first, _, code = cell.source.partition("\n")
    return first == "#@save" and any(isinstance(n, ast.ClassDef) for n in ast.parse(code).body)


def is_saved(cell):
    return cell.source.startswith("#@save\n")


def words(cells, edition):
    """Words of English text, or Han characters, without code and formulas."""
    text = "\n".join(prose(cell.source) for cell in cells if cell.cell_type == "markdown")
    pattern = r"[\u4e00-\u9fff]" if edition == "zh" else r"[^\W\d_][\w'’-]*"
    return len(re.findall(pattern, text))


def check_lengths(notebook, edition, core_cells=15, median=6, whole=is_saved_class):
    """The set-up cell and the exercises do not count, nor cells that must stay `whole`."""
    part = parts(notebook)
    if not part["deeper"]:
        return ["there is no part headed Deeper, 进阶"]
    problems = []
    code = [cell for cell in code_in(part["core"] + part["deeper"]) if not whole(cell)]
    lines = [length(cell) for cell in code]
    if lines and statistics.median(lines) > median:
        found = statistics.median(lines)
        problems.append(f"code cells have {found} lines in the median, not {median}")
    long = [f"{cell.id} {length(cell)}" for cell in code if length(cell) > 15]
    if len(long) > len(lines) / 10:
        problems.append(f"{len(long)} of {len(lines)} code cells have over 15 lines: {long}")
    problems += [f"{c.id}: {length(c)} lines, not 25" for c in code if length(c) > 25]
    if len(code_in(part["core"])) > core_cells:
        problems.append(f"{len(code_in(part['core']))} code cells in the core, not {core_cells}")
    limit = {"en": 2000, "zh": 3500}[edition]
    if words(part["core"], edition) > limit:
        problems.append(f"{words(part['core'], edition)} words in the core, not {limit}")
    return problems


# Does the book show it as Jupyter and Colab do?

FENCED = re.compile(r"^([ >]*)(`{3,}|~{3,}).*?(?:^\1\2[`~]*\s*$|\Z)", re.M | re.S)
CODE = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)", re.S)
FORMULA = re.compile(r"\$\$.*?\$\$|(?<![\\$])\$[^$]+\$", re.S)
FORBIDDEN = {
    "a directive": r"^[ >]*:::",
    "a role": r"\{[\w:+-]+\}`",
    "a label": r"^\([\w-]+\)=\s*$|\\label\b|\\eqref\b|\\ref\b",
    "a footnote": r"\[\^\w+\]",
    "a GitHub note": r"^ *> *\[!",
    "an image": r"!\[|<img\b",
    "a mark of d2lbook": r"\[\*\*|:(begin_tab|end_tab|label|eqlabel|width):|:\w+:`|%%tab",
}


def without_code(text):
    """A markdown text in which a backtick stands for code between backticks."""
    return CODE.sub("`", FENCED.sub("", text))


def prose(text):
    """What is left to read: no code, formulas, addresses and HTML tags."""
    return re.sub(r"\]\([^)]*\)|<[^>]+>", " ", FORMULA.sub("$", without_code(text)))


def tokens(text):
    """All tokens of a markdown text, the inner ones too."""
    for token in MARKDOWN.parse(text):
        yield token
        yield from token.children or []


def check_token(token):
    if token.type == "fence" and token.info.startswith("{"):
        yield f"a directive: {token.info}"
    if token.type == "math_block_label":
        yield f"a label: {token.info}"
    if token.type in ("text", "html_block", "html_inline"):
        if "**" in token.content:
            yield f"asterisks that no viewer makes bold: {token.content.strip()}"
        if "$" in token.content:
            yield f"a $ that is not everywhere a formula: {token.content.strip()}"


def check_details(text):
    if text.count("<details") != text.count("</details>"):
        yield "<details> without its end"
    if re.search(r"</summary>(?![ \t]*\n[ \t]*\n)", text):
        yield "no blank line after </summary>"
    if re.search(r"</details>[ \t]*\n?[ \t]*[^\s<]", text):
        yield "no blank line after </details>"


def check_text(text):
    plain = without_code(text)
    problems = [
        f"{what}: {match[0].strip()}"
        for what, pattern in FORBIDDEN.items()
        for match in re.finditer(pattern, plain, re.M)
    ]
    problems += [problem for token in tokens(text) for problem in check_token(token)]
    return problems + list(check_details(plain))


def markdown_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "markdown"]


def check_markdown(notebook):
    problems = [f"{cell.id}: an attachment" for cell in notebook.cells if "attachments" in cell]
    for cell in markdown_cells(notebook):
        problems += [f"{cell.id}: {problem}" for problem in check_text(cell.source)]
    return problems


# Do equations and links lead somewhere?

NUMBER = r"\d+\.\d+"
CITATION = re.compile(rf"[(（]({NUMBER}(?:(?:, ?|、|，|–|-){NUMBER})*)[)）]")


def tags(notebook):
    """The numbers of the equations of a notebook."""
    texts = [without_code(cell.source) for cell in markdown_cells(notebook)]
    return re.findall(r"\\tag\{([^}]*)\}", "\n".join(texts))


def check_tags(notebook):
    wrong = [tag for tag in tags(notebook) if not re.fullmatch(NUMBER, tag)]
    problems = [f"\\tag{{{tag}}} is no number such as 2.3" for tag in wrong]
    for cell in markdown_cells(notebook):
        blocks = [token.content for token in tokens(cell.source) if token.type == "math_block"]
        counts = [block.count("\\tag") for block in blocks]
        if max(counts, default=0) > 1:
            problems.append(f"{cell.id}: two numbers in one formula")
        if sum(counts) != without_code(cell.source).count("\\tag"):
            problems.append(f"{cell.id}: a \\tag outside of a $$ block")
    return problems


def check_unique(tags_of_pages):
    found = Counter(tag for page in tags_of_pages for tag in page)
    return [f"equation ({tag}) stands {n} times" for tag, n in found.items() if n > 1]


def remarks(source):
    """Comments and docstrings of a code cell."""
    readline = io.StringIO(source).readline
    found = [t.string for t in tokenize.generate_tokens(readline) if t.type == tokenize.COMMENT]
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]
    return "\n".join(found + [ast.get_docstring(node) or "" for node in nodes])


def citations(cell):
    """The numbers of the equations that a cell refers to, as plain (2.3) or （2.3）."""
    text = remarks(cell.source) if cell.cell_type == "code" else prose(cell.source)
    return {number for found in CITATION.findall(text) for number in re.findall(NUMBER, found)}


def links(text):
    return [unquote(t.attrGet("href")) for t in tokens(text) if t.type == "link_open"]


def check_citations(notebook, path):
    """Each cited equation stands here, or on a page that the same text links to."""
    problems = []
    own = set(tags(notebook))
    for cell in notebook.cells:
        targets = links(cell.source) if cell.cell_type == "markdown" else []
        pages = {path.parent / target.partition("#")[0] for target in targets}
        there = [tags(read(page)) for page in pages if page.suffix == ".ipynb" and page.is_file()]
        for number in sorted(citations(cell) - own.union(*there)):
            problems.append(f"{cell.id}: ({number}) is not here and on no page linked beside it")
    return problems


def slugs(path):
    """The names of the headings of a page: in every edition those of the English page."""
    path = path.resolve()
    edition = next((folder for folder in path.parents if folder.name in EDITIONS), path.parent)
    english = edition.parent / "en" / path.relative_to(edition)
    page = english if english.is_file() else path
    if page.suffix == ".ipynb":
        texts = [cell.source for cell in markdown_cells(read(page))]
    else:
        texts = [page.read_text(encoding="utf-8")]
    found = []
    for text in texts:
        for node in SyntaxTreeNode(MARKDOWN.parse(text)).children:
            if node.type == "heading":
                found.append(compute_unique_slug(node, found))
    return found


def check_links(notebook, path):
    problems = []
    for cell in markdown_cells(notebook):
        for link in links(cell.source):
            target, _, slug = link.partition("#")
            if target.startswith(("https://", "http://")):
                continue
            page = path.parent / target if target else path
            if not page.is_file():
                problems.append(f"{cell.id}: there is no {target}")
            elif slug and slug not in slugs(page):
                problems.append(f"{cell.id}: there is no #{slug} in {page.name}")
    return problems


# The book


def lengths_of(notebook, path):
    if path.stem in EXEMPT:
        return []
    if framework(path) != "torch":  # for readers who know the layers: fewer and larger steps
        return check_lengths(notebook, edition_of(path), 16, median=8, whole=is_saved)
    return check_lengths(notebook, edition_of(path), CORE_CELLS.get(path.stem, 15))


CHECKS = {
    "counts": lambda notebook, path: check_counts(notebook),
    "stamp": lambda notebook, path: check_stamp(path),
    "outputs": lambda notebook, path: check_outputs(notebook),
    "metadata": lambda notebook, path: check_metadata(notebook),
    "size": lambda notebook, path: check_size(path),
    "setup": lambda notebook, path: check_setup(notebook),
    "semicolons": lambda notebook, path: check_semicolons(notebook),
    "alternation": lambda notebook, path: check_alternation(notebook),
    "figures": lambda notebook, path: check_figures(notebook),
    "lengths": lengths_of,
    "markdown": lambda notebook, path: check_markdown(notebook),
    "tags": lambda notebook, path: check_tags(notebook),
    "citations": check_citations,
    "links": check_links,
}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=label)
def test_notebook(path, check):
    problems = check(read(path), path)
    assert problems == [], "\n".join(problems)


def test_every_notebook_is_a_page_of_its_edition():
    folder = ROOT / "chapters"
    there = {path for path in folder.rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts}
    assert there == set(NOTEBOOKS)
    assert all(len(notebooks(edition)) >= 2 for edition in editions())


def test_the_set_up_cell_is_the_same_everywhere():
    assert len({code_cells(read(path))[0].source for path in NOTEBOOKS}) == 1


@pytest.mark.parametrize("edition", editions())
def test_an_equation_number_is_used_once(edition):
    pages = [tags(read(path)) for path in notebooks(edition)]
    assert sum(map(len, pages)) >= 5
    assert check_unique(pages) == []


@pytest.mark.parametrize("edition", editions())
def test_the_mark_is_explained_where_readers_first_meet_it(edition):
    pages = [read(path) for path in notebooks(edition)]
    first = next(p for p in pages if any(c.source.startswith("#@save") for c in code_cells(p)))
    texts = [cell.source for cell in markdown_cells(first) if "`#@save`" in cell.source]
    assert any("d2l_local" in text for text in texts)


# Each check on wrong examples


def md(text, id="text"):
    return nbformat.v4.new_markdown_cell(text, id=id)


def code(source, id="code", count=1, data=None, tags=None, **stream):
    cell = nbformat.v4.new_code_cell(source, id=id, execution_count=count)
    if data is not None:
        cell.outputs.append(nbformat.v4.new_output("display_data", data=data))
    if stream:
        cell.outputs.append(nbformat.v4.new_output("stream", **stream))
    if tags is not None:
        cell.metadata["tags"] = tags
    return cell


def book_page(*cells):
    metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}, "d2l_stamp": "0"}
    content = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return nbformat.from_dict(content)


def assert_found(problems, message):
    """One problem, and it is the right one; no message: no problem."""
    assert len(problems) == bool(message) and message in "".join(problems), problems


SETUP = code("1", id="setup", tags=["remove-cell"])
BOTH = {"image/svg+xml": "<svg/>", "image/png": "AAAA"}
LINE = {"text/plain": "[<matplotlib.lines.Line2D at 0x7f12>]"}


@pytest.mark.parametrize(
    "check, cells, message",
    [
        (check_counts, [code("1"), md("text"), code("2", count=2)], ""),
        (check_counts, [code("1", count=None)], "execution counts are [None]"),
        (check_counts, [code("1"), code("2", count=3)], "execution counts are [1, 3]"),
        (check_outputs, [code("1", name="stdout", text="1\n", data=BOTH)], ""),
        (check_outputs, [code("1", name="stderr", text="old")], "code: an error or text on stderr"),
        (check_outputs, [code("1", data=LINE)], "code: an address in memory is stored"),
        (check_metadata, [code("1", tags=["hide-input"])], ""),
        (check_metadata, [code("1", tags=["skip-execution"])], "code: metadata {'tags'"),
        (check_metadata, [code("1", tags=["raises-exception"])], "code: metadata {'tags'"),
        (check_setup, [md("# Title"), SETUP, code("2")], ""),
        (check_setup, [code("2"), SETUP], "the first code cell must have the id setup"),
        (check_setup, [code("1", id="setup")], "and the tag remove-cell"),
        (check_setup, [md("# Title")], "the first code cell"),
        (check_semicolons, [code("f(1); g(2)\n_ = 3")], ""),
        (check_semicolons, [code("x = 1\nplt.plot(x); \n")], "code: it ends in `;`"),
        (check_alternation, [SETUP, code("1"), md("text", "a"), code("2", "b")], ""),
        (check_alternation, [code("1", "a"), code("2", "b")], "b: no text between it and the code"),
        (check_alternation, [code("1", "a"), md(" ", "t"), code("2", "b")], "b: no text between"),
        (check_figures, [code("assert 1", data=BOTH), md("We see")], ""),
        (check_figures, [code("1", data=BOTH), md("a"), code("t.assert_close(1, 1)", "b")], ""),
        (check_figures, [code("1", data=BOTH), md("We see")], "code: nothing asserts what is"),
        (check_figures, [code("assert 1", data=BOTH)], "code: the text after a figure describes"),
        (
            check_figures,
            [code("assert 1", data={"image/png": "AAAA"}), md("We see")],
            "code: a figure needs SVG and PNG",
        ),
        (
            check_figures,
            [code("assert 1", data={"image/svg+xml": "<svg/>"}), md("We see")],
            "code: a figure needs SVG and PNG",
        ),
        (check_tags, [md("$$\nx \\tag{2.3}\n$$\n\n$$\ny \\tag{2.4}\n$$")], ""),
        (check_tags, [md("$$\nx \\tag{a}\n$$")], "\\tag{a} is no number such as 2.3"),
        (check_tags, [md("$x \\tag{2.3}$")], "text: a \\tag outside of a $$ block"),
        (check_tags, [md("$$\nx \\tag{1.1} y \\tag{1.2}\n$$")], "text: two numbers in one formula"),
    ],
)
def test_checks_of_a_notebook(check, cells, message):
    assert_found(check(book_page(*cells)), message)


def test_stored_errors_and_output_metadata_are_found():
    page = book_page(code("1", data=BOTH))
    page.cells[0].outputs[0].metadata["needs_background"] = "light"
    assert_found(check_outputs(page), "code: the output has metadata")
    page.cells[0].outputs = [nbformat.v4.new_output("error", ename="E", evalue="", traceback=[])]
    assert_found(check_outputs(page), "code: an error or text on stderr is stored")


@pytest.mark.parametrize(
    "metadata",
    [
        {"kernelspec": {"name": "conda-env-foo-py", "display_name": "Python 3"}},
        {"language_info": {"name": "python", "version": "3.11.2"}},
        {"widgets": {}},
    ],
)
def test_metadata_of_a_machine_is_found(metadata):
    page = book_page(md("# Title"))
    assert check_metadata(page) == []
    page.metadata |= metadata
    assert_found(check_metadata(page), "metadata of the notebook")


def test_metadata_of_an_editor_is_found():
    page = book_page(md("# Title"))
    page.cells[0].metadata["collapsed"] = True
    assert_found(check_metadata(page), "text: metadata {'collapsed': True}")


def test_a_stale_notebook_and_a_large_one_are_found(tmp_path):
    path = tmp_path / "page.ipynb"
    page = book_page(code("x = 1"))
    nbformat.write(page, path)
    page.metadata["d2l_stamp"] = stamp(path)
    nbformat.write(page, path)
    assert check_stamp(path) == [] and check_size(path) == []
    page.cells[0].source = "x = 2"
    page.cells[0].outputs = [nbformat.v4.new_output("stream", text="1" * 1_000_000)]
    nbformat.write(page, path)
    assert_found(check_stamp(path), "run python -m tools.run")
    assert_found(check_size(path), "but a notebook has less than 1 MB")


def lines(number, first="x = 1"):
    return code("\n\n".join([first, *["x = 1"] * (number - 1)]))


CORE, DEEPER, EXERCISES = md("# Title"), md("## Deeper"), md("Text.\n\n## 练习")
CLASS = "#@save\nclass A:\n" + "\n".join(f"    a{i} = {i}" for i in range(30))


@pytest.mark.parametrize(
    "cells, message",
    [
        ([CORE, *[lines(6)] * 9, lines(25), DEEPER, lines(6)], ""),
        ([CORE, lines(6)], "there is no part headed Deeper"),
        ([CORE, *[lines(7)] * 2, lines(1), DEEPER], "code cells have 7 lines in the median, not 6"),
        ([CORE, *[lines(6)] * 8, DEEPER, lines(16)], "1 of 9 code cells have over 15 lines: ["),
        ([CORE, *[lines(6)] * 9, DEEPER, lines(26)], "code: 26 lines, not 25"),
        ([CORE, *[lines(6)] * 9, code(CLASS), DEEPER], ""),
        ([CORE, *[lines(6)] * 9, code(CLASS.replace("#@save", "#")), DEEPER], "code: 32 lines"),
        ([CORE, *[lines(6)] * 16, DEEPER], "16 code cells in the core, not 15"),
        ([CORE, SETUP, *[lines(6)] * 15, DEEPER, *[lines(6)] * 9, EXERCISES, lines(40)], ""),
        ([CORE, md("word " * 2000), DEEPER], "2001 words in the core, not 2000"),
        ([CORE, md("word `word` $word$ [w](word.ipynb) <b>" * 900), DEEPER, md("word " * 999)], ""),
        ([CORE, md("## 进阶"), EXERCISES, md("word " * 3000)], ""),
    ],
)
def test_lengths(cells, message):
    assert_found(check_lengths(book_page(*cells), "en"), message)


@pytest.mark.parametrize(
    "cells, message",
    [
        ([*[lines(8)] * 8, *[lines(25, "#@save")] * 8, DEEPER], ""),
        ([*[lines(9)] * 8, *[lines(2, "#@save")] * 8, DEEPER], "9.0 lines in the median, not 8"),
        ([*[lines(8)] * 9, *[lines(2, "#@save")] * 8, DEEPER], "17 code cells in the core, not 16"),
    ],
)
def test_lengths_of_a_page_of_another_framework(cells, message):
    path = ROOT / "chapters" / "en" / "frameworks" / "jax.ipynb"
    assert_found(lengths_of(book_page(CORE, *cells), path), message)


def test_lengths_in_chinese():
    assert_found(check_lengths(book_page(md("位" * 3501), DEEPER), "zh"), "3501 words in the core")
    assert_found(check_lengths(book_page(md("位，word " * 3500), DEEPER), "zh"), "")


READABLE = [
    "**位置编码**：它，**位置编码**（词）, **编码：** 它, **bold**, 2*3*4, `**` and `$`",
    "$$\nx_{[\\top]} \\tag{2.3}\n$$\n\nby (2.3), `[**`, `{eq}` and `(label)=`",
    "```python\n# {eq}`x` ![](y) **：**a\n```\n\n> **Note.** text\n\n~~~\n:::\n~~~",
    "<details><summary>Hint</summary>\n\nText.\n\n```python\nx\n```\n\n</details>\n\nText.",
    "a: b `c` and {d} `e`; [text](other.ipynb#slug), [1] and 1.2",
    "- item\n\n  ```python\n  {x}\n  ```\n\n| $n$ | `x` |\n|---|---|\n| $d$ | 2 |",
]
UNREADABLE = {
    "**位置编码：**它": "asterisks that no viewer makes bold",
    "**位置编码（词）**是": "asterisks that no viewer makes bold",
    "这是**“编码”**的": "asterisks that no viewer makes bold",
    "<details><summary>**Hint**</summary>\n\nx\n\n</details>": "asterisks that no viewer",
    "by {eq}`2.3`": "a role: {eq}`",
    "by {numref}`fig`": "a role: {numref}`",
    "```{note}\ntext\n```": "a directive: {note}",
    "> ```{note}\n> text\n> ```": "a directive: {note}",
    ":::{note}\ntext\n:::\n": "a directive: :::",
    "(sec-a)=\n# A": "a label: (sec-a)=",
    "$$\nx\n$$ (eq-x)\n": "a label: eq-x",
    "$$\nx \\label{a}\n$$": "a label: \\label",
    "by $\\eqref{a}$": "a label: \\eqref",
    "text[^1]": "a footnote: [^1]",
    "> [!NOTE]\n> text": "a GitHub note: > [!",
    "![a](figure.png)": "an image: ![",
    "![a](https://example.org/a.png)": "an image: ![",
    '<img src="a.png">': "an image: <img",
    "[**self-attention**]": "a mark of d2lbook: [**",
    "see :numref:`sec_a`": "a mark of d2lbook: :numref:`",
    ":begin_tab:`mxnet`": "a mark of d2lbook: :begin_tab:",
    ":label:`sec_a`": "a mark of d2lbook: :label:",
    "%%tab pytorch": "a mark of d2lbook: %%tab",
    "5 $ each": "a $ that is not everywhere a formula",
    "text $$x$$ text": "a $ that is not everywhere a formula",
    "<details><summary>$x$</summary>\n\nx\n\n</details>": "a $ that is not everywhere a formula",
    "<details><summary>Hint</summary>\n\nText.\n": "<details> without its end",
    "<details><summary>Hint</summary>\nText.\n\n</details>": "no blank line after </summary>",
    "<details><summary>Hint</summary> Text.\n\n</details>": "no blank line after </summary>",
    "<details><summary>a</summary>\n\nb\n\n</details>\n**c**": "no blank line after </details>",
}


@pytest.mark.parametrize("text", READABLE)
def test_what_every_viewer_shows_passes(text):
    assert check_text(text) == []


@pytest.mark.parametrize("text, message", UNREADABLE.items())
def test_what_some_viewer_does_not_show_is_found(text, message):
    assert message in " ".join(check_text(text))
    assert check_markdown(book_page(md(text, "a")))[0].startswith("a: ")


def test_an_attachment_is_found():
    page = book_page(md("text"))
    page.cells[0]["attachments"] = {"a.png": {"image/png": "AAAA"}}
    assert_found(check_markdown(page), "text: an attachment")


def test_a_number_used_twice_is_found():
    page = book_page(md("$$\nx \\tag{1.1}\n$$\n\n`\\tag{9.9}`"))
    assert tags(page) == ["1.1"]
    assert check_unique([["1.1"], ["1.2"]]) == []
    assert check_unique([["1.1"], ["1.2", "1.1"]]) == ["equation (1.1) stands 2 times"]


@pytest.fixture
def pages(tmp_path):
    """A small book with one page in two languages, and one for both to point at."""
    for edition, heading in {"en": "Two heads, `x`", "zh": "两个头"}.items():
        folder = tmp_path / "chapters" / edition
        folder.mkdir(parents=True)
        page = book_page(md(f"# A\n\n## {heading}\n\n## {heading}\n\n$$\nx \\tag{{1.1}}\n$$"))
        nbformat.write(page, folder / "other.ipynb")
        (folder / "index.md").write_text(f"# {heading}\n", encoding="utf-8")
    return tmp_path / "chapters"


@pytest.mark.parametrize(
    "cell, message",
    [
        (md("[(1.1)](other.ipynb#a) and (2.1), (2.1)–(2.2), （2.1）"), ""),
        (md("(1.1)"), "text: (1.1) is not here and on no page linked beside it"),
        (md("（1.1）"), "text: (1.1) is not here"),
        (md("(2.1, 2.4)"), "text: (2.4) is not here"),
        (md("[(1.2)](other.ipynb)"), "text: (1.2) is not here"),
        (md("`f(1.1)` and $g(1.1)$, version 1.1, (1.10.2)"), ""),
        (code('def f():\n    """By (2.1)."""\n    return g(1.1)  # (2.2)'), ""),
        (code('def f():\n    """By (1.1)."""'), "code: (1.1) is not here"),
        (code("x = 1  # (1.1)"), "code: (1.1) is not here"),
    ],
)
def test_citations(cell, message, pages):
    equations = md("$$\nx \\tag{2.1}\n$$\n\n$$\nx \\tag{2.2}\n$$", "equations")
    page = book_page(equations, cell)
    assert_found(check_citations(page, pages / "en" / "page.ipynb"), message)


@pytest.mark.parametrize("edition", ["en", "zh"])
@pytest.mark.parametrize(
    "link, message",
    [
        ("other.ipynb", ""),
        ("other.ipynb#two-heads-x", ""),
        ("other.ipynb#two-heads-x-1", ""),
        ("index.md#two-heads-x", ""),
        ("https://example.org/#x", ""),
        ("nosuch.ipynb#a", "text: there is no nosuch.ipynb"),
        ("other.ipynb#two-heads", "text: there is no #two-heads in other.ipynb"),
        ("other.ipynb#两个头", "text: there is no #两个头 in other.ipynb"),
        ("index.md#a", "text: there is no #a in index.md"),
        ("#two-heads", "text: there is no #two-heads in other.ipynb"),
    ],
)
def test_links(link, message, edition, pages):
    page = book_page(md(f"[text]({link})"))
    assert_found(check_links(page, pages / edition / "other.ipynb"), message)


@pytest.mark.parametrize("edition", ["en", "zh"])
def test_links_from_a_folder_within(edition, pages):
    path = pages / edition / "frameworks" / "jax.ipynb"
    path.parent.mkdir()
    link = "[text](../other.ipynb#{})"
    assert_found(check_links(book_page(md(link.format("two-heads-x"))), path), "")
    assert_found(check_links(book_page(md(link.format("two"))), path), "there is no #two in other")


COMPARED = {
    "figure": (
        "from IPython.display import display\n"
        'svg = "<?xml version=1?>\\n<svg>1.0</svg>\\n"\n'
        'size = "<Figure size 252x180 with 1 Axes>"\n'
        'display({"image/svg+xml": svg, "text/plain": size}, raw=True)'
    ),
    "number": "print('loss 0.12')",
    "warning": "import warnings\nwarnings.warn('new')",
    "address": "print(object())",
}


def test_nbval_forgives_the_digits_of_figures_and_nothing_else(tmp_path):
    """With the settings in nbval_sanitize.cfg; each stored output below is another one."""
    figure = {
        "image/svg+xml": "<?xml version=1?>\n<svg>1.1</svg>\n",
        "text/plain": "<Figure size 640x480 with 2 Axes>",
    }
    page = book_page(
        code(COMPARED["figure"], "figure", 1, data=figure),
        code(COMPARED["number"], "number", 2, name="stdout", text="loss 0.13\n"),
        code(COMPARED["warning"], "warning", 3),
        code(COMPARED["address"], "address", 4, name="stdout", text="<object object at 0x7f12>\n"),
    )
    nbformat.write(page, tmp_path / "page.ipynb")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    settings = f"--nbval-sanitize-with={ROOT / 'tests' / 'nbval_sanitize.cfg'}"
    options = ["-rA", "-p", "no:xdist", "--nbval", "--nbval-current-env", settings]
    command = [sys.executable, "-m", "pytest", *options, "page.ipynb"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    results = re.findall(r"^([A-Z]+) page.ipynb::Cell (\d)", run.stdout, re.M)
    assert results == [("PASSED", "0"), ("FAILED", "1"), ("FAILED", "2"), ("FAILED", "3")]
