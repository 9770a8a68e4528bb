"""The built site in a browser: typeset formulas, no request outside, nothing too wide."""

import functools
import http.server
import re
import threading
from contextlib import contextmanager

import pytest
from site_tools import (
    add_both_editions,
    build,
    chromium,
    copy_project,
    find_chromium,
    html_name,
)

from tools import notebooks

EXECUTABLE = find_chromium()
EDITIONS = notebooks.editions()
PAGES = [html_name(page) for edition in EDITIONS for page in notebooks.pages(edition)]
if not EXECUTABLE:
    pytest.skip(
        "no Chromium: `apt-get install chromium`, or name one in the variable CHROMIUM",
        allow_module_level=True,
    )

# Details are opened first, so that solutions are looked at too.
LOOK = r"""
async () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
  await window.MathJax?.startup?.promise;
  const article = document.querySelector("article");
  const found = [];
  for (const box of [document.documentElement, article.parentElement])
    if (box.scrollWidth > box.clientWidth + 1)
      found.push(`${box.className || "page"} is ${box.scrollWidth - box.clientWidth} px too wide`);

  const words = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
  while (words.nextNode()) {
    const text = words.currentNode;
    if (text.parentElement.closest("pre, code, script, style, mjx-container")) continue;
    const raw = text.data.match(/\*\*|\$|\\[a-zA-Z]+|\\[[(]|\{eq\}|:::/);
    if (raw) found.push(`raw text: ${raw[0]}`);
  }

  const formulas = article.querySelectorAll(".math");
  const typeset = article.querySelectorAll(".math mjx-container");
  if (formulas.length != typeset.length)
    found.push(`${typeset.length} of ${formulas.length} formulas are typeset`);
  for (const error of article.querySelectorAll("mjx-merror, [data-mml-node='merror']"))
    found.push(`formula in error: ${error.textContent.trim()}`);
  const tags = [...article.querySelectorAll("mjx-labels")].filter(
    (tag) => tag.getBoundingClientRect().width > 0);
  return {found, formulas: formulas.length, tags: tags.length};
}
"""
COLOURS = """
() => {
  const colour = (element, name) =>
    getComputedStyle(element)[name].match(/[0-9.]+/g).slice(0, 3).map(Number);
  const brightness = ([red, green, blue]) => (0.3 * red + 0.6 * green + 0.1 * blue) / 255;
  const code = document.querySelector("article pre") || document.body;
  return {
    page: brightness(colour(document.body, "backgroundColor")),
    text: brightness(colour(document.querySelector("article"), "color")),
    code: brightness(colour(code, "color")),
    figures: [...document.querySelectorAll(".cell_output img")].map(
      (image) => brightness(colour(image, "backgroundColor"))),
  };
}
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    project = copy_project(tmp_path_factory.mktemp("project"))
    result = build(project)
    assert result.returncode == 0, result.stdout + result.stderr
    return project / "_build" / "site"


@pytest.fixture(scope="module")
def two_editions(tmp_path_factory):
    project = copy_project(tmp_path_factory.mktemp("editions"), chapters=False)
    add_both_editions(project)
    assert build(project).returncode == 0
    return project / "_build" / "site"


@pytest.fixture(scope="module")
def browser():
    # closed with this file: a running loop would disturb the notebooks' tests
    with chromium(EXECUTABLE) as started:
        yield started


@contextmanager
def served(folder):
    """The address at which the parent of `folder` is served, so that the site has a sub-path."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Handler, directory=folder.parent)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/{folder.name}"
        finally:
            server.shutdown()


@contextmanager
def opened(browser, base, width=1280, scheme="light"):
    """A tab, and a list to which everything is added that should not happen in it."""
    faults = []
    size = {"width": width, "height": 900}
    with browser.new_context(viewport=size, color_scheme=scheme) as context:

        def answer(route):
            if route.request.url.startswith((base, "data:")):
                route.continue_()
            else:
                faults.append(f"asks for {route.request.url}")
                route.abort()

        context.route("**/*", answer)
        tab = context.new_page()
        tab.on("pageerror", lambda error: faults.append(f"script error: {error}"))
        tab.on(
            "console",
            lambda message: message.type in ("error", "warning") and faults.append(message.text),
        )
        yield tab, faults


def look(browser, base, page, **kind):
    """All that is wrong with a page, and how many formulas and equation numbers it shows."""
    with opened(browser, base, **kind) as (tab, faults):
        tab.goto(f"{base}/{page}")
        seen = tab.evaluate(LOOK)
        seen["colours"] = tab.evaluate(COLOURS)
        seen["found"] += faults
    return seen


@pytest.mark.parametrize("page", PAGES)
def test_page(browser, site, page):
    assert len(PAGES) >= 4 * len(EDITIONS)
    source = (site / page).read_text(encoding="utf-8")
    formulas = len(re.findall(r'class="math ', source))
    for kind in ({"width": 1280}, {"width": 360, "scheme": "dark"}):
        seen = look(browser, site.as_uri(), page, **kind)
        assert seen["found"] == [], kind
        assert seen["formulas"] == formulas
        assert seen["tags"] == source.count(r"\tag{")
    colours = seen["colours"]
    assert colours["page"] < 0.2 and colours["text"] > 0.6 and colours["code"] > 0.6
    assert all(card > 0.9 for card in colours["figures"])


def test_formulas_are_found(site):
    assert sum((site / page).read_text(encoding="utf-8").count(r"\tag{") for page in PAGES) >= 5


def test_served_below_a_sub_path(browser, site):
    kinds = ("index", "self-attention", "frameworks", "frameworks/jax", "references")
    with served(site) as base:
        for page in PAGES:  # one of each kind: links are the same wherever the site stands
            if page.split("/", 1)[1].removesuffix(".html") in kinds:
                assert look(browser, base, page)["found"] == [], page
        assert search(browser, base, "en", "masked softmax")
        assert not search(browser, base, "en", "zebra")


@pytest.mark.parametrize("width", [1280, 360])
def test_an_address_opens_at_its_section(browser, site, width):
    """Though formulas above it grow after the browser has gone there."""
    page = f"{site.as_uri()}/en/self-attention.html"
    top = """async (id) => {
      await MathJax.startup.promise;
      await new Promise((done) => setTimeout(done, 500));
      return document.getElementById(id).getBoundingClientRect().top;
    }"""
    with opened(browser, site.as_uri(), width) as (tab, faults):
        for section in ("several-heads", "exercise-14-code-20-minutes"):
            tab.goto("about:blank")
            tab.goto(f"{page}#{section}")
            assert 0 <= tab.evaluate(top, section) < 120, section
        assert faults == []


@pytest.mark.parametrize("edition", EDITIONS)
def test_a_framework_is_chosen_for_both_classes(browser, site, edition):
    with opened(browser, site.as_uri()) as (tab, faults):
        tab.goto(f"{site.as_uri()}/{edition}/frameworks.html")
        for name, base in {
            "Paddle": "nn.Layer",
            "MXNet": "nn.Block",
            "PyTorch": "nn.Module",
        }.items():
            tab.locator(".sd-tab-set").first.get_by_text(name, exact=True).click()
            shown = [code.inner_text() for code in tab.locator(".sd-tab-set pre:visible").all()]
            heads = [text.partition("\n")[0] for text in shown]
            assert heads == [
                f"class {c}({base}):" for c in ("PositionalEncoding", "MultiHeadAttention")
            ]
        assert faults == []


def search(browser, base, edition, words):
    """The addresses of the pages that a search finds."""
    with opened(browser, base) as (tab, faults):
        tab.goto(f"{base}/{edition}/search.html?q={words}")
        tab.wait_for_function(
            "document.querySelector('#search-results p:not(:empty)')"
            " && !document.querySelector('#search-results h2').textContent.includes('...')"
        )
        assert faults == []
        links = tab.locator("#search-results ul.search li > a").all()
        return [link.get_attribute("href") for link in links]


BROKEN = {
    "formula in error": r'<div class="math">\[\begin{split} a \\ b \tag{1} \end{split}\]</div>',
    "1 of 2 formulas": '<div class="math">a formula without its delimiters</div>',
    "raw text: $": "<p>costs $n^2$ steps</p>",
    "raw text: **": "<p>**位置编码：**它</p>",
    r"raw text: \alpha": r"<details><p>see \alpha</p></details>",
    "asks for https://example.org": '<img src="https://example.org/x.png" alt="">',
    "px too wide": '<p style="width: 2000px">wide</p>',
    "an error": '<script>console.error("an error")</script>',
    "script error": "<script>undefinedName.x</script>",
}


def test_each_fault_of_a_page_is_caught(browser, site):
    source = (site / "en" / "index.html").read_text(encoding="utf-8")
    start, end = source.index("<article"), source.index("</article>")
    page = site / "en" / "broken.html"
    page.write_text(f"{source[:start]}<article>{''.join(BROKEN.values())}{source[end:]}", "utf-8")
    found = look(browser, site.as_uri(), "en/broken.html", width=360)["found"]
    for fault in BROKEN:
        assert any(fault in message for message in found), fault


def test_the_other_edition_opens_at_the_same_section(browser, two_editions):
    base = two_editions.as_uri()
    with opened(browser, base) as (tab, faults):
        tab.goto(f"{base}/index.html")
        assert tab.url == f"{base}/index.html"
        tab.goto(f"{base}/en/page.html")
        tab.set_viewport_size({"width": 1280, "height": 300})
        scroll = "section => section.scrollIntoView({behavior: 'instant'})"
        tab.locator("#equations").evaluate(scroll)
        # not tab.click(), which first scrolls to where a sticky header began
        tab.locator("a.edition-link").evaluate("link => link.click()")
        tab.wait_for_url(f"{base}/zh/page.html#equations")
        tab.goto(f"{base}/index.html")
        tab.wait_for_url(f"{base}/zh/index.html")
        assert faults == []


def test_chinese_search(browser, two_editions):
    with served(two_editions) as base:
        for words in ("掩码", "代码与输出", "键"):
            assert "page.html" in "".join(search(browser, base, "zh", words)), words
        assert search(browser, base, "zh", "卷积") == []
