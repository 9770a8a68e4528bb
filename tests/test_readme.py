"""README: its commands, its example, and the pages it names."""

import contextlib
import io
import re

from tools.notebooks import ROOT, editions, label, notebooks

README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.M | re.S)


def test_one_block_of_two_commands():
    (commands,) = blocks("bash")
    install = "python -m pip install -r requirements.txt"
    assert commands.splitlines() == [
        f"{install} && python -m tools.build",
        f"{install} && python -m pytest",
    ]


def test_example_prints_what_its_comments_say():
    (example,) = blocks("python")
    said = re.findall(r"print\(.*\)\s*# (.*)", example)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(example, {})
    assert len(said) >= 2 and printed.getvalue().splitlines() == said


def test_links_within_the_repository_lead_somewhere():
    links = [link for link in re.findall(r"\]\(([^)#]+)", README) if "://" not in link]
    assert len(links) >= 6
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_notebook_is_named():
    assert len(editions()) == 2
    named = [path for path in notebooks("en") if f"({label(path)})" in README]
    assert len(named) >= 2 and named == notebooks("en")
