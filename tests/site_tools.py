"""What the tests of the book share: copies of the project, a small book, a browser."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tools import publish

ROOT = Path(__file__).resolve().parents[1]
REF = publish.current(ROOT)["ref"]  # the branch or tag that launch links name
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><rect width="9" height="9"/></svg>'
FIGURE = new_output("display_data", data={"image/svg+xml": SVG, "text/plain": "<Figure>"})
# the two pages of a small book, and what the Chinese edition changes in _config.yml
ENGLISH = (
    "# A page\n\nText, see [the end](#code--output).",
    "## Equations\n\n$$\n\\begin{aligned} a &= b \\\\ c &= d \\end{aligned}\n\\tag{1.1}\n$$",
    [FIGURE],
    "Each query ($\\mathbf{q}$), e.g. the first, meets a key. More text.",
    "## Code & output\n\nThe end.",
)
CHINESE = (
    "# 一页\n\n掩码与池化，见[结尾](#code--output)，键。",
    "## 公式\n\n$$\n\\begin{aligned} a &= b \\\\ c &= d \\end{aligned}\n\\tag{1.1}\n$$",
    [FIGURE],
    "每个查询\n都遇到一个键。还有文字。",
    "## 代码与输出\n\n结尾。",
)
CHANGES = {"title": "一本书", "sphinx": {"config": {"language": "zh_CN"}}}
STDERR = new_output("stream", name="stderr", text="a warning")


def html_name(page):
    """Where the site has a page of the book: `en/toolbox.html`."""
    return page.relative_to(ROOT / "chapters").with_suffix(".html").as_posix()


def copy_project(folder, chapters=True):
    """A copy of what a build reads, so that tests leave the checkout's `_build` alone."""
    for name in ("LICENSE", "NOTICE", "README.md", "_config.yml", "_toc.yml", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    ignore = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
    for name in ("d2l_local", "tools", "chapters") if chapters else ("d2l_local", "tools"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    return folder


def run(project, *command):
    environment = {**os.environ, "PYTHONUTF8": "1"}
    return subprocess.run(
        [sys.executable, *command],
        cwd=project,
        env=environment,
        capture_output=True,
        encoding="utf-8",
    )


def build(project):
    return run(project, "-m", "tools.build")


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")


def write_notebook(path, *cells):
    """A notebook of texts and of lists of outputs, each of which becomes a code cell."""
    made = [
        new_markdown_cell(cell)
        if isinstance(cell, str)
        else new_code_cell("draw()", outputs=cell, execution_count=1)
        for cell in cells
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = new_notebook(cells=made, metadata={"kernelspec": kernel})
    write(path, nbformat.writes(notebook) + "\n")


def add_edition(project, edition, index, *cells, config=None):
    """A book of two pages: a start page and a notebook."""
    contents = {
        "format": "jb-book",
        "root": f"chapters/{edition}/index",
        "chapters": [{"file": f"chapters/{edition}/page"}],
    }
    chapters = project / "chapters"
    folder = chapters / edition
    write(chapters / "references.bib", "")
    write(folder / "index.md", index)
    write_notebook(folder / "page.ipynb", *cells)
    # JSON is YAML
    toc = project / "_toc.yml" if edition == "en" else folder / "_toc.yml"
    write(toc, json.dumps(contents))
    if config:
        write(folder / "_config.yml", json.dumps(config))


def add_both_editions(project):
    start = "# {}\n\n[{}](page.ipynb#equations)\n"
    add_edition(project, "en", start.format("A book", "A page"), *ENGLISH)
    add_edition(project, "zh", start.format("一本书", "一页"), *CHINESE, config=CHANGES)


def find_chromium():
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


@contextmanager
def chromium(executable):
    from playwright.sync_api import sync_playwright

    quiet = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run"
        " --disable-background-networking --disable-component-update --disable-sync"
    )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=quiet.split())
        yield browser
        browser.close()
