"""The address of the repository: written everywhere at once, and compared."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from bs4 import BeautifulSoup
from site_tools import ROOT, add_both_editions, build, copy_project

from tools import publish, save
from tools.notebooks import SETUP_ID, editions, notebooks, read
from tools.run import stamp

REPOSITORY, SITE = "https://github.com/someone/book", "https://someone.example/book/"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
TAG = f"v{VERSION}"
ARGUMENTS = ["someone/book", TAG, "--site", SITE.rstrip("/")]
# they must name the placeholder
EXEMPT = {"tools/publish.py", "tests/test_publish.py"}


def texts(folder):
    """The files of the project that are text, by name."""
    found = {}
    for name in (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()):
        content = (folder / name).read_bytes()
        if b"\0" not in content and "__pycache__" not in name.parts:
            found[name.as_posix()] = content.decode("utf-8")
    return found


@pytest.fixture
def book(tmp_path):
    """A copy of the files that belong to the project, whatever else lies in the checkout."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, encoding="utf-8")
    for name in listed.stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_this_book_agrees(capsys):
    assert publish.main(["--check"]) == 0, capsys.readouterr()


def test_every_address_is_written(book, capsys):
    before, old = texts(book), publish.current(book)
    name = publish.short(old["repository"])
    places = [file for file in before if name in before[file] and file not in EXEMPT]
    assert len(places) >= 8 and publish.main(ARGUMENTS, book) == 0
    assert f"{REPOSITORY} at {TAG}" in capsys.readouterr().out
    assert publish.current(book) == {"repository": REPOSITORY, "ref": TAG, "site": SITE}
    after = texts(book)
    assert [file for file in after if name in after[file] and file not in EXEMPT] == []
    assert all("someone/book" in after[file] for file in places)
    assert publish.main(["--check"], book) == 0
    assert publish.main(["--check", *ARGUMENTS], book) == 0

    assert publish.main(ARGUMENTS, book) == 0
    assert texts(book) == after, "a second time must change nothing"
    back = [name, old["ref"], *(["--site", old["site"]] if old["site"] else [])]
    assert publish.main(back, book) == 0
    assert texts(book) == before


def test_only_the_set_up_cell_of_a_notebook_changes(book):
    pages = [page for edition in editions(book) for page in notebooks(edition, book)]
    before = {page: (read(page), stamp(page, book)) for page in pages}
    assert len(pages) >= 2 and publish.main(ARGUMENTS, book) == 0
    for page in pages:
        old, old_stamp = before[page]
        new = read(page)
        (old_cell,) = (cell for cell in old.cells if cell.id == SETUP_ID)
        (new_cell,) = (cell for cell in new.cells if cell.id == SETUP_ID)
        assert f'REPOSITORY, REF = "{REPOSITORY}", "{TAG}"\n' in new_cell.source
        old_cell.source = new_cell.source
        assert new == old and stamp(page, book) == old_stamp
    assert save.main(["--check"], book) == 0  # the package does not depend on it


def test_values_are_read_as_written(book):
    """YAML and TOML must see the same as the patterns do, a tag such as 1.0 as a text."""
    address = "https://github.com/Some-one/d2l.book_2"
    assert publish.main([f"{address}.git", "1.0", "--site", SITE], book) == 0
    config = yaml.safe_load((book / "_config.yml").read_text(encoding="utf-8"))
    assert config["repository"] == {"url": address, "branch": "1.0"}
    assert config["sphinx"]["config"]["site"] == SITE
    citation = yaml.safe_load((book / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["repository-code"], citation["url"]) == (address, SITE)
    start = (book / "tools" / "site" / "editions.html").read_text(encoding="utf-8")
    links = BeautifulSoup(start, "html.parser").find_all("link", rel="alternate")
    assert [link["href"] for link in links] == [f"{SITE}en/index.html", f"{SITE}zh/index.html"]
    readme = (book / "README.md").read_text(encoding="utf-8")
    assert f"<{address}>" in readme and f"<{SITE}>" in readme

    assert publish.main(["someone/book"], book) == 0
    config = yaml.safe_load((book / "_config.yml").read_text(encoding="utf-8"))
    assert config["repository"] == {"url": REPOSITORY, "branch": "main"}
    assert [file for file, text in texts(book).items() if SITE in text and file not in EXEMPT] == []


def every_place(book):
    """A file and a piece of it for each occurrence of what `publish` writes."""
    for path, pattern, times in publish.places(book):
        name = path.relative_to(book).as_posix()
        found = publish.spans(publish.read(path), pattern, times, name)
        yield from ((name, *span) for span in found)


def test_each_difference_is_named(book, capsys):
    assert publish.main(ARGUMENTS, book) == 0
    places = list(every_place(book))
    assert {group for *_, group in places} == {
        *("repository", "ref", "site", "version", "date", "url", "sentence"),
    }  # fmt: skip
    for name, _, end, _ in places:
        path, text = book / name, publish.read(book / name)
        path.write_bytes(f"{text[: end - 1]}x{text[end - 1 :]}".encode())
        capsys.readouterr()
        assert publish.main(["--check"], book) == 1, (name, text[end - 20 : end])
        printed = "".join(capsys.readouterr())
        assert name in printed, printed
        path.write_bytes(text.encode())
    assert publish.main(["--check"], book) == 0


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("CHANGELOG.md", f"## [{VERSION}]", "## [999.0]", "CHANGELOG.md: the newest entry"),
        ("CHANGELOG.md", f"## [{VERSION}] - 2", f"## [{VERSION}], 2", "CHANGELOG.md: the newest"),
        ("pyproject.toml", f'version = "{VERSION}"', 'version = "999.0"', "CHANGELOG.md: the new"),
        ("README.md", "The address of the repo", "The repo", "README.md: found 0 times instead"),
        ("chapters/zh/_config.yml", "sphinx:", "repository:", "chapters/zh/_config.yml: found 1"),
        ("chapters/en/toolbox.ipynb", "REPOSITORY, REF", "A, B", "chapters/en/toolbox.ipynb: fo"),
        ("CITATION.cff", "version: ", "# version: ", "CITATION.cff: found 0 times"),
    ],
)
def test_missing_place_is_named_and_nothing_written(book, capsys, file, old, new, message):
    text = publish.read(book / file)
    assert old in text
    (book / file).write_bytes(text.replace(old, new).encode())
    before = texts(book)
    for arguments in (["--check"], ["someone/book"]):
        assert publish.main(arguments, book) == 1
        (line,) = "".join(capsys.readouterr()).splitlines()
        assert line.startswith(message)
    assert texts(book) == before


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["book"],
        ["https://gitlab.com/someone/book"],
        ["http://github.com/someone/book"],
        ["git@github.com:someone/book.git"],
        ["some_one/book"],
        ["someone/书"],
        ["someone-/book"],
        ["someone/.."],
        ["someone/book/tree/main"],
        ['someone/bo"ok'],
        ["someone/book", "a b"],
        ["someone/book", ""],
        ["someone/book", "a..b"],
        ["someone/book", "a/"],
        ["someone/book", "a.lock"],
        ["someone/book", 'a"b'],
        ["someone/book", "refs/heads/main"],
        ["someone/book", "0123456789abcdef0123456789abcdef01234567"],
        ["someone/book", "v999.0"],
        ["--check", "someone/book", "v999.0"],
        ["someone/book", "--site", "http://someone.example"],
        ["someone/book", "--site", "someone.example"],
        ["someone/book", "--site", "https://someone.example/?page=1"],
        ["someone/book", "--site", 'https://someone.example/"'],
    ],
)
def test_bad_arguments_are_refused(book, capsys, arguments):
    before = texts(book)
    assert publish.main(arguments, book) == 1
    (line,) = "".join(capsys.readouterr()).splitlines()
    assert not arguments or any(part in line for part in arguments)
    assert texts(book) == before


def test_leading_hyphen_is_refused(book):
    before = texts(book)
    for arguments in (["someone/book", "-branch"], ["-someone/book"]):
        with pytest.raises(SystemExit):  # taken for an option
            publish.main(arguments, book)
        assert publish.main(["--", *arguments], book) == 1
    assert texts(book) == before


def test_check_compares_with_what_is_named(book, capsys):
    """As a release does: the tag that is pushed must be the one that the files name."""
    assert publish.main(ARGUMENTS, book) == 0
    capsys.readouterr()
    assert publish.main(["--check", "someone/book", "main"], book) == 1
    printed = capsys.readouterr().out
    assert f"_config.yml: ref is '{TAG}', but the command line has 'main'" in printed
    assert publish.main(["--check", "other/book", TAG], book) == 1
    assert "chapters/en/toolbox.ipynb: repository is" in capsys.readouterr().out


@pytest.mark.parametrize("ref", ["main", "v0.1.0", "1.0", "feature/x-1", "_a", "v1-draft"])
def test_git_accepts_what_is_accepted(ref):
    assert publish.branch_or_tag(ref) == ref
    subprocess.run(["git", "check-ref-format", f"refs/heads/{ref}"], check=True)


def test_published_notebook_fetches_its_own_tag(book, tmp_path_factory):
    """From a repository on this disk that stands in for the one on GitHub."""
    folder = tmp_path_factory.mktemp("github")
    source, empty = folder / "source", folder / "empty"
    (source / "d2l_local").mkdir(parents=True)
    empty.mkdir()
    settings = folder / "gitconfig"
    settings.write_text(
        f'[url "{source.as_uri()}"]\n\tinsteadOf = {REPOSITORY}\n'
        "[user]\n\tname = a\n\temail = a@example.org\n[uploadpack]\n\tallowFilter = true\n",
        encoding="utf-8",
    )
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": str(settings), "GIT_CONFIG_NOSYSTEM": "1"}

    def run(*command, cwd):
        options = {"capture_output": True, "encoding": "utf-8", "env": environment}
        result = subprocess.run(command, cwd=cwd, **options)
        assert result.returncode == 0, result.stderr

    run("git", "init", "-q", cwd=source)
    for value in ("released", "later"):
        (source / "d2l_local" / "torch.py").write_text(f"{value = }\n", encoding="utf-8")
        run("git", "add", ".", cwd=source)
        run("git", "commit", "-q", "-m", value, cwd=source)
        if value == "released":
            run("git", "tag", TAG, cwd=source)

    assert publish.main(ARGUMENTS, book) == 0
    (setup,) = (
        cell for cell in read(book / "chapters/en/toolbox.ipynb").cells if cell.id == SETUP_ID
    )
    run(sys.executable, "-I", "-S", "-c", setup.source, cwd=empty)  # without installed packages
    (fetched,) = empty.rglob("torch.py")
    assert fetched.read_text(encoding="utf-8") == "value = 'released'\n"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    project = copy_project(tmp_path_factory.mktemp("published"), chapters=False)
    add_both_editions(project)
    (project / "chapters" / "en" / "only.md").write_text("# Only here\n", encoding="utf-8")
    contents = json.loads((project / "_toc.yml").read_text(encoding="utf-8"))
    contents["chapters"].append({"file": "chapters/en/only"})
    (project / "_toc.yml").write_text(json.dumps(contents), encoding="utf-8")
    config = project / "_config.yml"
    text = re.sub('site: "[^"]*"', f'site: "{SITE}"', config.read_text(encoding="utf-8"))
    config.write_text(text, encoding="utf-8")
    result = build(project)
    assert result.returncode == 0, result.stderr
    return project / "_build" / "site"


def head_links(site, page):
    html = BeautifulSoup((site / page).read_text(encoding="utf-8"), "html.parser")
    found = html.head.find_all("link", rel=["canonical", "alternate"])
    return [(link["rel"], link.get("hreflang"), link["href"]) for link in found]


def test_published_pages_name_their_addresses(site):
    for page in ("index", "page"):
        twins = {
            (("alternate",), "en", f"{SITE}en/{page}.html"),
            (("alternate",), "zh-CN", f"{SITE}zh/{page}.html"),
        }
        for edition in ("en", "zh"):
            links = head_links(site, f"{edition}/{page}.html")
            canonical = (("canonical",), None, f"{SITE}{edition}/{page}.html")
            assert {(tuple(rel), *rest) for rel, *rest in links} == twins | {canonical}
            assert len(links) == 3
    assert head_links(site, "en/only.html") == [(["canonical"], None, f"{SITE}en/only.html")]


def test_footer_shows_version_licence_and_credit(site):
    for edition, words in {
        "en": [
            f"Version {VERSION}",
            "MIT",
            "CC BY 4.0",
            "In the tradition of Dive into Deep Learning",
        ],
        "zh": [f"版本 {VERSION}", "MIT", "CC BY 4.0", "写法沿袭《动手学深度学习》"],
    }.items():
        html = BeautifulSoup((site / edition / "page.html").read_text("utf-8"), "html.parser")
        footer = html.find(class_="book-footer")
        assert all(word in footer.text for word in words), footer.text
        assert footer.find("a", href=re.compile(r"d2l\.ai$"))


def test_citation_has_what_the_format_requires():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0" and citation["license"] == ["CC-BY-4.0", "MIT"]
    assert citation["title"] and citation["message"] and citation["authors"]
    assert all(isinstance(citation[key], str) for key in ("version", "date-released"))


def test_release_workflow_publishes_the_site():
    text = Path(ROOT, ".github", "workflows", "pages.yml").read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    steps = [step.get("run") or step["uses"] for step in jobs["build"]["steps"]]
    order = ["requirements.txt", "tools.publish --check", "tools.build", "CNAME", "upload-pages"]
    positions = [next(i for i, step in enumerate(steps) if word in step) for word in order]
    assert positions == sorted(positions)
    assert jobs["build"]["steps"][-1]["with"] == {"path": "_build/site"}
    assert jobs["deploy"]["permissions"] == {"pages": "write", "id-token": "write"}
