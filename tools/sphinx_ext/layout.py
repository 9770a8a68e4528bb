"""What stands around a page: style sheet, icon, addresses, link to the other edition, footer."""

import tomllib
from pathlib import Path
from urllib.parse import urlencode

from pydata_sphinx_theme.utils import get_theme_options_dict

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LANGUAGES = {"en": "en", "zh": "zh-CN"}
TEXTS = {
    "en": {
        "edition": "English",
        "archive": "Download all notebooks, to run them without a network",
        "code": "Code: MIT",
        "text": "Text:",
        "version": "Version",
        "credit": "In the tradition of ",
        "original": "Dive into Deep Learning",
        "home": "https://d2l.ai",
        "report": "Report an error on this page",
        "title": "Error on the page",
        "body": "Page: {page}\nVersion: {version}\n\nWhat is wrong, and how it should read:\n",
    },
    "zh": {
        "edition": "中文",
        "archive": "下载全部笔记本，不联网也能运行",
        "code": "代码 MIT",
        "text": "文字",
        "version": "版本",
        "credit": "写法沿袭",
        "original": "《动手学深度学习》",
        "home": "https://zh.d2l.ai",
        "report": "报告本页的错误",
        "title": "页面有误",
        "body": "页面：{page}\n版本：{version}\n\n哪里有误，应该怎样改：\n",
    },
}


def add_files(app, config):
    config.html_static_path.append(str(HERE / "static"))
    config.templates_path.append(str(HERE / "templates"))
    config.html_favicon = str(HERE / "static" / "favicon.svg")


def version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return project["project"]["version"]


def report_link(repository, texts, page):
    """The address of a new issue that names page and version."""
    query = {
        "title": f"{texts['title']} {page}",
        "body": texts["body"].format(page=page, version=version()),
    }
    return f"{repository}/issues/new?{urlencode(query)}"


def add_footer(app, pagename, templatename, context, doctree):
    texts = TEXTS[app.config.language[:2]]
    page = pagename
    if doctree:  # the search page has no source
        page = Path(app.env.doc2path(pagename)).relative_to(ROOT).as_posix()
    repository = get_theme_options_dict(app)["repository_url"]
    context["footer"] = {
        **texts,
        "number": version(),
        "link": report_link(repository, texts, page),
    }


def has_source(edition, pagename):
    sources = [ROOT / "chapters" / edition / f"{pagename}{suffix}" for suffix in (".ipynb", ".md")]
    return any(map(Path.is_file, sources))


def add_addresses(app, pagename, templatename, context, doctree):
    """Tell search engines where a page and its twin are published, which must be absolute."""
    site, edition = app.config.site, Path(app.srcdir).name
    if not site or not doctree or edition not in LANGUAGES:  # a plain build has no editions
        return
    context["pageurl"] = f"{site}{edition}/{pagename}.html"
    other = app.config.other_edition
    if other and has_source(other, pagename):
        for name in (edition, other):
            address = f"{site}{name}/{pagename}.html"
            context["metatags"] += (
                f'<link rel="alternate" hreflang="{LANGUAGES[name]}" href="{address}">\n'
            )


def add_edition_link(app, pagename, templatename, context, doctree):
    """Link to the same page of the other edition, which stands beside this one in the site."""
    other = app.config.other_edition
    if not other:
        return
    generated = doctree is None  # the search page, which every edition has
    page = pagename if generated or has_source(other, pagename) else "index"
    context["edition_link"] = {
        "href": f"{'../' * (pagename.count('/') + 1)}{other}/{page}.html",
        "edition": other,
        "language": LANGUAGES[other],
        "label": TEXTS[other]["edition"],
    }


def add_archive_link(app, pagename, templatename, context, doctree):
    """Link to the zip of this edition, which stands beside its pages in the site."""
    if app.config.archive:
        context["archive_link"] = {
            "href": "../" * pagename.count("/") + app.config.archive,
            "title": TEXTS[app.config.language[:2]]["archive"],
        }


def setup(app):
    app.add_config_value("other_edition", "", "html")
    app.add_config_value("archive", "", "html")
    app.add_config_value("site", "", "html")
    app.add_css_file("book.css")
    app.add_js_file("edition.js", defer="defer")
    app.connect("config-inited", add_files)
    app.connect("html-page-context", add_footer)
    app.connect("html-page-context", add_addresses)
    app.connect("html-page-context", add_edition_link)
    app.connect("html-page-context", add_archive_link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
