"""The files of the built site: complete, self-contained, with links that lead somewhere."""

import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from bs4 import BeautifulSoup
from site_tools import REF, ROOT, build, copy_project, html_name, run

from tools import notebooks

EDITIONS = notebooks.editions()
LANGUAGES = {"en": "en", "zh": "zh-CN"}
PAGES = [html_name(page) for edition in EDITIONS for page in notebooks.pages(edition)]
NOT_RAW_MARKDOWN = re.compile(r"\*\*|\$\$|\{eq\}|\{ref\}|:::|```|^#{1,6} ", re.MULTILINE)
OUTSIDE = re.compile(r"(https?:)?//")
# an address in url(…), @import or an imported script
LOADED_BY_TEXT = re.compile(
    r"""(?:url\(\s*|@import\s+|\bimport\s*\(?\s*|\bfrom\s*)["']?((?:https?:)?//[^"')\s]+)"""
)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return copy_project(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="module")
def site(project):
    result = build(project)
    assert result.returncode == 0, result.stdout + result.stderr
    return project / "_build" / "site"


@cache
def parse(path):
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


@cache
def ids(path):
    return Counter(tag["id"] for tag in parse(path).find_all(id=True))


def loaded(html):
    """What the browser asks for without a click."""
    addresses = [tag["src"] for tag in html.find_all(src=True)]
    addresses += [tag["srcset"] for tag in html.find_all(srcset=True)]
    addresses += [tag["data"] for tag in html.find_all("object", data=True)]
    links = html.find_all("link", href=True)
    named = (["alternate"], ["canonical"])  # these only say where a page is published
    return addresses + [link["href"] for link in links if link.get("rel") not in named]


def broken_links(path, html):
    """Addresses of this site that name no file, or no place in it."""
    addresses = loaded(html) + [link["href"] for link in html.find_all("a", href=True)]
    for address in addresses:
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            continue
        target = path.parent / unquote(parts.path) if parts.path else path
        if not target.is_file() or (parts.fragment and unquote(parts.fragment) not in ids(target)):
            yield f"leads nowhere: {address}"


def prose(html):
    """The text that a reader sees outside code and formulas."""
    article = BeautifulSoup(str(html.article), "html.parser")
    for tag in article.select("pre, code, script, style, .math"):
        tag.decompose()
    return article.get_text()


def faults(path, language):
    """What is wrong with one page of the book."""
    html = parse(path)
    yield from broken_links(path, html)
    yield from (f"loads {address}" for address in loaded(html) if OUTSIDE.match(address))
    embedded = [tag.text for tag in html.find_all(["script", "style"])]
    embedded += [tag["style"] for tag in html.find_all(style=True)]
    yield from (f"loads {address}" for address in LOADED_BY_TEXT.findall("\n".join(embedded)))
    yield from (f"raw Markdown: {mark}" for mark in NOT_RAW_MARKDOWN.findall(prose(html)))
    if html.select(".stderr"):
        yield "shows stderr"
    for image in html.select(".cell_output img"):
        alt = image.get("alt", "")
        if len(alt) < (10 if language.startswith("zh") else 20) or alt.endswith((".svg", ".png")):
            yield f"figure without a description: {alt}"
    if html.html.get("lang") != language:
        yield f"language {html.html.get('lang')}"
    yield from (f"id twice: {name}" for name, times in ids(path).items() if times > 1)


@pytest.mark.parametrize("page", [*PAGES, *(f"{edition}/search.html" for edition in EDITIONS)])
def test_page(site, page):
    assert len(PAGES) >= 4 * len(EDITIONS)
    assert list(faults(site / page, LANGUAGES[page[:2]])) == []


def test_start_pages(site):
    for name in ("index.html", "404.html"):
        assert list(broken_links(site / name, parse(site / name))) == []
    offered = [link["href"] for link in parse(site / "index.html").find_all("a")]
    assert offered == [f"{edition}/index.html" for edition in EDITIONS]


def test_nothing_else_is_published(site):
    published = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    assert {name for name in published if name.endswith(".html") and "/_static/" not in name} == {
        *PAGES,
        *(f"{edition}/search.html" for edition in EDITIONS),
        "index.html",
        "404.html",
    }
    sources = (".ipynb", ".md", ".py", ".bib", ".yml", ".toml")
    assert [name for name in published if name.endswith(sources)] == []
    assert [name for name in published if "_sources" in name or "assignments" in name] == []


def test_each_figure_is_shown(site):
    """As many pictures as the notebooks have: none dropped, none taken for another's output."""
    for edition in EDITIONS:
        for path in notebooks.notebooks(edition):
            cells = [
                cell
                for cell in notebooks.code_cells(notebooks.read(path))
                if "remove-cell" not in cell.metadata.get("tags", [])
            ]
            outputs = [output.get("data", {}) for cell in cells for output in cell.outputs]
            expected = sum(any(kind.startswith("image/") for kind in data) for data in outputs)
            shown = parse(site / html_name(path)).select(".cell_output img")
            assert len(shown) == expected, path.name


def test_styles_and_scripts_load_nothing_from_outside(site):
    files = [path for path in site.rglob("*") if path.suffix in (".css", ".js", ".mjs")]
    assert len(files) >= 10
    for path in files:
        text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert LOADED_BY_TEXT.findall(text) == [], path.name


def test_search_index_has_words_of_each_page(site):
    for edition in EDITIONS:
        text = (site / edition / "searchindex.js").read_text(encoding="utf-8")
        index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
        found = index["terms"].values()
        pages = [page for hits in found for page in (hits if isinstance(hits, list) else [hits])]
        for number, name in enumerate(index["docnames"]):
            assert pages.count(number) >= 10, name
        assert "mask" in index["terms"] if edition == "en" else "掩蔽" in index["terms"]


def test_each_notebook_opens_in_colab(site):
    for edition in EDITIONS:
        for path in notebooks.notebooks(edition):
            html = parse(site / html_name(path))
            (link,) = html.select('a[href^="https://colab.research.google.com/github/"]')
            assert link["href"].endswith(f"/blob/{REF}/{path.relative_to(ROOT).as_posix()}")


def test_each_linked_paper_is_listed(site):
    papers = re.compile(r"https://(?:arxiv\.org/abs|doi\.org)/")
    for edition in EDITIONS:
        linked, listed = set(), set()
        for page in PAGES:
            found = {link["href"] for link in parse(site / page).find_all("a", href=papers)}
            (listed if page == f"{edition}/references.html" else linked).update(found)
        assert len(linked) >= 3 and linked == listed, linked ^ listed


FAULTY = {
    "leads nowhere: gone.html": '<a href="gone.html">x</a>',
    "leads nowhere: #gone": '<a href="#gone">x</a>',
    "leads nowhere: other.html#gone": '<a href="other.html#gone">x</a>',
    "leads nowhere: gone.svg": '<img src="gone.svg" alt="a picture that is not there">',
    "loads https://a.org/x.png": '<img src="https://a.org/x.png" alt="">',
    "loads //a.org/x.js": '<script src="//a.org/x.js"></script>',
    "loads https://a.org/x.css": '<link rel="stylesheet" href="https://a.org/x.css">',
    "loads https://a.org/y.png": "<p style='background: url(https://a.org/y.png)'>x</p>",
    "loads https://a.org/y.js": '<script type="module">import "https://a.org/y.js"</script>',
    "raw Markdown: **": "<p>**位置编码：**它</p><pre>2 ** 3</pre>",
    "raw Markdown: $$": "<p>$$x$$</p>",
    "raw Markdown: {eq}": "<p>see {eq}<code>eq-one</code></p>",
    "shows stderr": '<div class="output stderr"><pre>warning</pre></div>',
    "figure without a description: Weights.": (
        '<div class="cell_output"><img alt="Weights." src="data:,"></div>'
    ),
    "figure without a description: jupyter_execute/0123456789.svg": (
        '<div class="cell_output"><img alt="jupyter_execute/0123456789.svg" src="data:,"></div>'
    ),
    "id twice: a": '<p id="a"></p><p id="a"></p>',
    "language de": "",
}


@pytest.mark.parametrize("fault", FAULTY)
def test_wrong_page_is_caught(tmp_path, fault):
    language = "de" if fault.startswith("language") else "en"
    html = '<html lang="{}"><article><a href="#b">x</a><p id="b"></p>{}</article></html>'
    page = tmp_path / "page.html"
    page.write_text(html.format(language, FAULTY[fault]), encoding="utf-8")
    (tmp_path / "other.html").write_text("<p>Other</p>", encoding="utf-8")
    assert set(faults(page, "en")) == {fault}


def test_plain_jupyter_book_builds_the_english_edition(project):
    command = "from jupyter_book.cli.main import main; main()"
    result = run(project, "-c", command, "build", ".", "-W", "--keep-going")
    assert result.returncode == 0, result.stdout + result.stderr
    html = Path(project, "_build", "html")
    assert (html / "index.html").is_file()
    pages = [page.relative_to(ROOT).with_suffix(".html") for page in notebooks.pages("en")]
    assert pages and all((html / page).is_file() for page in pages)
