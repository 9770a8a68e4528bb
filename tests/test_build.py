"""The build program and the Sphinx extensions, on books of two pages."""

import json
from urllib.parse import parse_qs, urlsplit

import pytest
from bs4 import BeautifulSoup
from docutils import nodes
from site_tools import (
    CHANGES,
    FIGURE,
    REF,
    STDERR,
    add_both_editions,
    add_edition,
    build,
    copy_project,
    run,
    write,
)

from tools.build import merge
from tools.sphinx_ext.figures import first_sentence
from tools.sphinx_ext.search import SearchChinese


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    project = copy_project(tmp_path_factory.mktemp("editions"), chapters=False)
    add_both_editions(project)
    result = build(project)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "Open _build/site/index.html\n"
    return project / "_build" / "site"


def page(site, name):
    return BeautifulSoup((site / name).read_text(encoding="utf-8"), "html.parser")


def test_site_has_both_editions_and_nothing_else(site):
    names = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    names = {name for name in names if "/_static/" not in name}
    pages = {f"{edition}/{name}.html" for edition in ("en", "zh") for name in ("index", "page")}
    assert names == pages | {"index.html", "404.html", "en/search.html", "zh/search.html"}
    assert (site / ".nojekyll").is_file()
    assert not list(site.rglob("*.ipynb")) and not list(site.rglob("_sources"))
    offered = [link["href"] for link in page(site, "index.html").find_all("a")]
    assert offered == ["en/index.html", "zh/index.html"]


def test_headings_have_the_english_ids(site):
    for edition in ("en", "zh"):
        sections = page(site, f"{edition}/page.html").article.find_all("section")
        assert [s["id"] for s in sections] == ["a-page", "equations", "code--output"]
        link = page(site, f"{edition}/index.html").article.find("a", class_="reference")
        assert link["href"] == "page.html#equations"


def test_formula_reaches_mathjax_as_written(site):
    formula = page(site, "en/page.html").find("div", class_="math").text.strip()
    assert formula.startswith(r"\[") and formula.endswith(r"\]")
    assert r"\begin{aligned} a &= b \\ c &= d \end{aligned}" in formula
    assert "split" not in formula


def test_punctuation_stays_with_its_formula(site):
    (together,) = page(site, "en/page.html").select(".unbroken")
    assert together.text == r"(\(\mathbf{q}\)),"


def test_figure_is_described_by_the_next_sentence(site):
    described = {
        "en": "Each query (q), e.g. the first, meets a key.",
        "zh": "每个查询都遇到一个键。",
    }
    for edition, text in described.items():
        (image,) = page(site, f"{edition}/page.html").article.select(".cell_output img")
        assert image["alt"] == text


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("One. Two.", "One."),
        ("It is 0.5, see (2.3). Two.", "It is 0.5, see (2.3)."),
        ("As in Fig. 3 it falls! Two.", "As in Fig. 3 it falls!"),
        ("No full stop", "No full stop"),
        ("第一句，有逗号。第二句。", "第一句，有逗号。"),
    ],
)
def test_first_sentence(text, first):
    assert first_sentence(nodes.paragraph("", text)) == first


def test_each_page_links_to_its_twin(site):
    for edition, other, language in (("en", "zh", "zh-CN"), ("zh", "en", "en")):
        for name in ("index", "page", "search"):
            (link,) = page(site, f"{edition}/{name}.html").select("a.edition-link")
            assert link["href"] == f"../{other}/{name}.html"
            assert link["hreflang"] == link["lang"] == language


def test_each_page_links_to_the_zip_of_its_edition(site):
    for edition in ("en", "zh"):
        for name in ("index", "page", "search"):
            (link,) = page(site, f"{edition}/{name}.html").select("a.archive-link")
            assert link["href"] == f"d2l-attention-{edition}.zip" and link["title"]
            assert (site / edition / link["href"]).is_file()


def test_language_colab_and_footer_name_the_edition(site):
    for edition, language in (("en", "en"), ("zh", "zh-CN")):
        html = page(site, f"{edition}/page.html")
        assert html.html["lang"] == language
        (colab,) = html.select('a[href^="https://colab"]')
        assert colab["href"].endswith(f"/blob/{REF}/chapters/{edition}/page.ipynb")
        footer = html.find(class_="book-footer")
        (report,) = footer.select('a[href*="/issues/new"]')
        query = parse_qs(urlsplit(report["href"]).query)
        assert f"chapters/{edition}/page.ipynb" in query["title"][0]
        assert "MIT" in footer.text and "CC BY 4.0" in footer.text


def search_terms(site, edition):
    index = (site / edition / "searchindex.js").read_text(encoding="utf-8")
    return set(json.loads(index.removeprefix("Search.setIndex(").removesuffix(")"))["terms"])


def test_search_index(site):
    assert {"queri", "meet"} <= search_terms(site, "en")
    chinese = search_terms(site, "zh")
    assert {"掩蔽", "汇聚", "查询", "键"} <= chinese  # the page says 掩码 and 池化
    assert not {"掩码", "池化"} & chinese
    code = (site / "zh" / "_static" / "language_data.js").read_text(encoding="utf-8")
    assert '"掩码": "掩蔽"' in code and "function splitQuery" in code


def test_chinese_words():
    language = SearchChinese({})
    assert language.split("自注意力 layer_norm, d=4") == [
        *"自注意力", "自注", "注意", "意力", "layer_norm", "d", "4",
    ]  # fmt: skip
    assert language.stem("注意") == "注意" and language.stem("Queries") == "queri"


def test_merge_changes_only_what_is_named():
    settings = {"a": {"b": 1, "c": 2}, "d": [1]}
    merge(settings, {"a": {"b": 3}, "d": [2], "e": {"f": 4}})
    assert settings == {"a": {"b": 3, "c": 2}, "d": [2], "e": {"f": 4}}


def test_each_warning_is_shown_and_fails_the_build(tmp_path):
    project = copy_project(tmp_path, chapters=False)
    faulty = "# A page\n\n[x](index.md#nowhere)", [FIGURE], "## No sentence", [STDERR]
    add_edition(project, "en", "# A book\n\n[x](missing.ipynb)\n", *faulty)
    add_edition(project, "zh", "# 一本书\n\n", "# 一页", config=CHANGES)
    result = build(project)
    assert result.returncode == 1
    for message in (
        "local id not found in doc 'index': 'nowhere'",
        "the text after this cell must begin with a sentence that describes its figure",
        "stderr was found in the cell outputs",
        "cross-reference target not found: 'missing.ipynb'",
        "1 headings here, but 2 in the English page",
    ):
        assert message in result.stderr
    assert "The site was not built" in result.stderr and "Traceback" not in result.stderr
    assert not (project / "_build" / "site").exists()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("page.ipynb", '{"cells": [', "chapters/en/page.ipynb: not a"),
        ("page.md", "# Twice", "names chapters/en/page: 2 files"),
        ("../../_toc.yml", "root: [", "built: _toc.yml: not YAML"),
        ("../../_toc.yml", "", "built: _toc.yml: holds no names"),
        ("../../_config.yml", "- a", "built: _config.yml: holds no names"),
        ("_config.yml", "- a", "en/_config.yml: holds no names"),
    ],
)
def test_unreadable_source_is_named(tmp_path, name, text, message):
    project = copy_project(tmp_path, chapters=False)
    add_edition(project, "en", "# A book\n", "# A page")
    write(project / "chapters" / "en" / name, text)
    result = build(project)
    assert result.returncode == 1
    assert message in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize("name", ["d2l_local/torch.py", "LICENSE", "_toc.yml"])
def test_missing_file_is_named_before_anything_is_built(tmp_path, name):
    project = copy_project(tmp_path, chapters=False)
    add_edition(project, "en", "# A book\n", "# A page")
    (project / name).unlink()
    result = build(project)
    assert result.returncode == 1 and result.stderr.count("\n") == 1
    assert name in result.stderr and result.stderr.startswith("The site was not built: ")
    assert not list(project.glob("_build/*/html")) and not list(project.rglob("*.zip"))


def test_asking_for_help_builds_nothing(tmp_path):
    project = copy_project(tmp_path, chapters=False)
    write(project / "_build" / "site" / "index.html", "old")
    result = run(project, "-m", "tools.build", "--help")
    assert result.returncode == 0 and "usage" in result.stdout
    assert (project / "_build" / "site" / "index.html").is_file()
