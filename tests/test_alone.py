"""Any notebook, alone: fetched into an empty folder, or out of the zip without a network.

The set-up cells run as they stand. Each runs in a process that does not see the package
installed here; a package `google.colab` stands in for Colab, and a repository on this machine
for the address in the cell.
"""

import ast
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import nbformat
import pytest
from nbclient import NotebookClient

from tools import archive
from tools.notebooks import (
    PACKAGE,
    ROOT,
    SETUP_ID,
    code_cells,
    editions,
    framework,
    label,
    notebooks,
    read,
)
from tools.run import ThisPython

EVERY = [path for edition in editions() for path in notebooks(edition)]
NOTEBOOKS = [path for path in EVERY if framework(path) == "torch"]  # the others have other packages
SETUP = next(cell.source for cell in code_cells(read(NOTEBOOKS[0])) if cell.id == SETUP_ID)
ADDRESS, REF = re.search(r'^REPOSITORY, REF = "(.+)", "(.+)"$', SETUP, re.M).groups()
FETCHED = f".d2l_local_src/{REF}"
UNNEEDED = {"torchvision", "pandas", "requests", "d2l", "pip"}

# On Colab, google.colab is imported before the first cell. What finds the package installed
# here is taken away: an editable install has a finder of its own, or a path to the checkout.
SITECUSTOMIZE = """
import os
import sys
from importlib.machinery import PathFinder

import google.colab

sys.meta_path[:] = [finder for finder in sys.meta_path
                    if finder is PathFinder or not finder.find_spec("d2l_local", None)]
sys.path[:] = [place for place in sys.path if not os.path.isdir(os.path.join(place, "d2l_local"))]
"""
# Runs cells one after the other in this process, whose commands it writes down and which it
# keeps from the network (git, another process, is free to use it). Instead of a cell there may
# be "probe", or a folder to begin anew in, without programs and the package.
RUNNER = """
import importlib.util
import json
import os
import sys

job = json.load(sys.stdin)
report = {"commands": [], "probes": []}
names = {"__name__": "__main__"}
path = list(sys.path)


def watch(event, arguments):
    if event == "subprocess.Popen":
        report["commands"].append(list(map(os.fspath, arguments[1])))
    elif event in ("socket.connect", "socket.getaddrinfo"):
        raise OSError(f"a cell asked for the network: {event}")


def probe():
    import d2l_local

    report["probes"].append({
        "package": os.path.dirname(d2l_local.__file__),
        "folder": os.getcwd(),
        "path": list(sys.path),
        "commands": len(report["commands"]),
        "defined_here": sorted(name for name, value in names.items()
                               if getattr(value, "__module__", None) == "__main__"),
    })


def begin_anew(folder):
    for module in [name for name in sys.modules if name.partition(".")[0] == "d2l_local"]:
        del sys.modules[module]
    os.environ["PATH"] = ""
    os.chdir(folder)
    sys.path[:] = path
    names.clear()
    names["__name__"] = "__main__"


sys.addaudithook(watch)
assert importlib.util.find_spec("d2l_local") is None, "the package is still to be seen"
try:
    exec(job["before"], {"job": job})
    for number, cell in enumerate(job["cells"]):
        if cell == "probe":
            probe()
        elif isinstance(cell, dict):
            begin_anew(**cell)
        else:
            exec(compile(cell, f"<cell {number}>", "exec"), names)
finally:
    report["modules"] = sorted({name.partition(".")[0] for name in sys.modules})
    with open(job["report"], "w", encoding="utf-8") as file:
        json.dump(report, file)
"""
PROBE = "probe"


def write(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")


def files(folder):
    """All files below a folder: {path: bytes}."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def package_files():
    found = files(ROOT / PACKAGE)
    return {name: found[name] for name in found if "__pycache__" not in name}


# --- The repository, and rooms in which nothing is known of it ---


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    """A repository with the package and a large file that is gone: to fetch that file fails."""
    folder = tmp_path_factory.mktemp("origin")
    tree, bare = folder / "tree", folder / "bare.git"
    for name, content in package_files().items():
        (tree / PACKAGE / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / PACKAGE / name).write_bytes(content)
    write(tree / "README.md", "# The book\n")
    write(tree / "chapters" / "large.txt", "not wanted\n" * 10_000)
    write(folder / "config", "[user]\nname = A\nemail = a@example.org\n[core]\nautocrlf = false\n")
    settings = {"GIT_CONFIG_GLOBAL": str(folder / "config"), "GIT_CONFIG_NOSYSTEM": "1"}

    def git(*arguments):
        command = ["git", "-C", str(tree), *arguments]
        environment = {**outside_git(), **settings}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "The book")
    git("branch", "-M", REF)
    git("clone", "-q", "--bare", ".", str(bare))
    for name in ("allowFilter", "allowAnySHA1InWant"):
        git("-C", str(bare), "config", f"uploadpack.{name}", "true")
    large = git("rev-parse", "HEAD:chapters/large.txt")
    gone = bare / "objects" / large[:2] / large[2:]
    gone.chmod(0o600)  # Windows removes no read-only file
    gone.unlink()
    return bare.as_uri()


def outside_git():
    """The environment without git's variables, which a hook that runs the tests would set."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}


@dataclass
class Run:
    status: int
    output: str
    errors: str
    report: dict

    @property
    def probes(self):
        assert self.status == 0, self.errors
        return self.report["probes"]


class Room:
    """A folder to work in, with nothing in it, and all that cells could reach around it."""

    def __init__(self, folder, origin):
        self.folder, self.origin = folder, origin
        self.work = folder / "my notes 笔记"
        for path in (self.work, folder / "home", folder / "tmp", folder / "no programs"):
            path.mkdir()
        write(folder / "fake" / "google" / "__init__.py")
        write(folder / "fake" / "google" / "colab" / "__init__.py")
        write(folder / "fake" / "sitecustomize.py", SITECUSTOMIZE)
        write(folder / "fake" / "runner.py", RUNNER)

    def environment(self, route, git=True):
        """`route` is where git finds the repository; None: nowhere."""
        route = route or (self.folder / "nowhere").as_uri()
        write(self.folder / "gitconfig", f'[url "{route}"]\ninsteadOf = {ADDRESS}\n')
        return {
            **outside_git(),
            **({} if git else {"PATH": str(self.folder / "no programs")}),
            **dict.fromkeys(("HOME", "USERPROFILE"), str(self.folder / "home")),
            **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(self.folder / "tmp")),
            "GIT_CONFIG_GLOBAL": str(self.folder / "gitconfig"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "IPYTHONDIR": str(self.folder / "home" / "ipython"),
            "MPLBACKEND": "agg",
            "MPLCONFIGDIR": matplotlib.get_cachedir(),  # has the list of fonts
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(self.folder / "fake"),
            "PYTHONUTF8": "1",
        }

    def run(self, *cells, online=True, route=None, git=True, folder=None, before=""):
        """Run cells in a new process; `before` is what a test does in it before the first."""
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        job = {"cells": cells, "report": str(report), "before": before}
        done = subprocess.run(
            [sys.executable, str(self.folder / "fake" / "runner.py")],
            cwd=folder or self.work,
            env=self.environment(route or (self.origin if online else None), git),
            input=json.dumps(job),
            capture_output=True,
            encoding="utf-8",
        )
        written = json.loads(report.read_text(encoding="utf-8")) if report.is_file() else {}
        return Run(done.returncode, done.stdout, done.stderr, written)

    def outside(self):
        """The names of all files around the folder."""
        ours = {"report.json", "gitconfig"}
        return {name for name in files(self.folder) if not name.startswith(self.work.name)} - ours


@pytest.fixture
def room(tmp_path, origin):
    return Room(tmp_path, origin)


# --- What must hold for the text of a set-up cell ---


def fetches_the_package_once(room, text, cells=()):
    """And nothing else; what the cells after it do needs no network."""
    before = room.outside()
    run = room.run(text, PROBE, text, PROBE, *cells)
    first, second, *_ = run.probes
    assert run.output.startswith("Colab: File > Save a copy in Drive")
    assert first == second, "the second run changed something"
    assert first["folder"] == str(room.work)
    assert [command[0] for command in run.report["commands"]][: first["commands"]] == ["git"] * 2
    assert files(room.work) == {f"{FETCHED}/{PACKAGE}/{k}": v for k, v in package_files().items()}
    assert Path(first["package"]) == room.work / FETCHED / PACKAGE
    assert room.outside() == before
    assert not UNNEEDED & {*run.report["modules"]}
    return run


def finds_it_after_a_restart(room, text):
    (fetched,) = room.run(text, PROBE).probes
    before = files(room.work)
    below = room.work / "below"
    below.mkdir()
    for folder in (room.work, below):
        (probe,) = room.run(text, PROBE, online=False, folder=folder).probes
        assert probe["package"] == fetched["package"] and probe["commands"] == 0
    assert files(room.work) == before


def finds_it_in_a_checkout(room, text):
    """And outside Colab it prints nothing."""
    shutil.copytree(ROOT / PACKAGE, room.work / PACKAGE)
    folder = room.work / "chapters" / "en"
    folder.mkdir(parents=True)
    before = "import sys\ndel sys.modules['google.colab']"
    run = room.run(text, PROBE, online=False, folder=folder, before=before)
    assert [Path(probe["package"]) for probe in run.probes] == [room.work / PACKAGE]
    assert run.report["commands"] == [] and run.output == "" and not any(folder.iterdir())


def leaves_an_installed_package_alone(room, text):
    installed = room.folder / "site-packages"
    write(installed / PACKAGE / "__init__.py", "VERSION = 'another'\n")
    before = f"import sys\nsys.path.append({str(installed)!r})"
    run = room.run(PROBE, text, PROBE, before=before)
    first, second = run.probes
    assert first.pop("defined_here") == [] and second.pop("defined_here") == ["fetch_package"]
    assert first == second and Path(first["package"]) == installed / PACKAGE
    assert run.report["commands"] == [] and not any(room.work.iterdir())


def takes_its_own_version(room, text):
    other = room.work / ".d2l_local_src" / "of another release"
    shutil.copytree(ROOT / PACKAGE, other / PACKAGE)
    (probe,) = room.run(text, PROBE).probes
    assert Path(probe["package"]) == room.work / FETCHED / PACKAGE


def check_refusal(run, room):
    """One sentence in each language that says what is missing and what to do."""
    assert run.status == 1 and run.errors.count("Traceback") == 1, run.errors
    *_, sentence = run.errors.strip().splitlines()
    assert sentence.startswith("ModuleNotFoundError: d2l_local is not here"), run.errors
    english, _, chinese = sentence.partition(" 找不到 d2l_local")
    for words in (ADDRESS, str(room.work), "network", "write", "run this cell again", "zip"):
        assert words in english
    for words in ("联网", "写入", "重新运行本单元", "zip"):
        assert words in chinese


def check_recovery(room, text):
    """Once the cause is gone, the cell works."""
    (probe,) = room.run(text, PROBE).probes
    assert Path(probe["package"]) == room.work / FETCHED / PACKAGE
    assert files(Path(probe["package"])) == package_files()


def refuses_without_network(room, text):
    check_refusal(room.run(text, online=False), room)
    assert not files(room.work)
    check_recovery(room, text)


def refuses_without_git(room, text):
    check_refusal(room.run(text, git=False), room)
    assert not files(room.work)
    check_recovery(room, text)


def refuses_in_a_read_only_folder(room, text):
    room.work.chmod(0o555)
    blocked = room.work / ".d2l_local_src"
    if os.access(room.work, os.W_OK):  # the administrator, and Windows, may write all the same
        write(blocked)
    check_refusal(room.run(text), room)
    room.work.chmod(0o755)
    blocked.unlink(missing_ok=True)
    check_recovery(room, text)


# `subprocess.run` with shorter times, all of which the cell must limit
HURRIED = """
import subprocess

run = subprocess.run


def hurried(*command, **kind):
    return run(*command, **{**kind, "timeout": kind["timeout"] / 200})


subprocess.run = hurried
"""


def gives_up_when_no_answer_comes(room, text):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        route = f"git://127.0.0.1:{silent.getsockname()[1]}/book"
        check_refusal(room.run(text, route=route, before=HURRIED), room)
    check_recovery(room, text)


def repairs_what_is_broken(room, text):
    (room.work / FETCHED / PACKAGE).mkdir(parents=True)
    shutil.copy(ROOT / PACKAGE / "__init__.py", room.work / FETCHED / PACKAGE)
    write(room.work / ".d2l_local_src" / ".git" / "HEAD", "ref: refs/heads/main\n")
    write(room.work / FETCHED / "half" / ".git" / "HEAD", "ref: refs/heads/main\n")
    check_refusal(room.run(text, online=False), room)
    check_recovery(room, text)


# What happens at the end of the second command of git
MEANWHILE = """
import os
import subprocess

run, commands = subprocess.run, []

def interrupted(*command, **kind):
    done = run(*command, **kind)
    commands.append(command)
    if len(commands) == 2:
        WHAT
    return done

subprocess.run = interrupted
"""


def survives_an_interruption(room, text):
    run = room.run(text, before=MEANWHILE.replace("WHAT", "raise KeyboardInterrupt"))
    assert run.status != 0 and not files(room.work)
    check_recovery(room, text)
    shutil.rmtree(room.work / ".d2l_local_src")
    assert room.run(text, before=MEANWHILE.replace("WHAT", "os._exit(3)")).status == 3
    check_recovery(room, text)


def shares_the_folder_with_another_notebook(room, text):
    """Which fetches the package at the same time, is faster and imports it already."""
    ready, faster = room.folder / "ready", room.work / FETCHED / PACKAGE
    shutil.copytree(ROOT / PACKAGE, ready)
    write(ready / "of_the_other_notebook.py")
    what = f"os.rename({str(ready)!r}, {str(faster)!r})"
    (probe,) = room.run(text, PROBE, before=MEANWHILE.replace("WHAT", what)).probes
    assert Path(probe["package"]) == faster
    assert (faster / "of_the_other_notebook.py").is_file()


SCENARIOS = [
    fetches_the_package_once,
    finds_it_after_a_restart,
    finds_it_in_a_checkout,
    leaves_an_installed_package_alone,
    takes_its_own_version,
    refuses_without_network,
    refuses_without_git,
    refuses_in_a_read_only_folder,
    gives_up_when_no_answer_comes,
    repairs_what_is_broken,
    survives_an_interruption,
    shares_the_folder_with_another_notebook,
]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_set_up(scenario, room):
    scenario(room, SETUP)


# --- The notebooks ---


def saved_names(cells):
    """The functions and classes that a notebook saves into the package."""
    trees = [ast.parse(cell) for cell in cells if cell.startswith("#@save")]
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name for tree in trees for node in tree.body if isinstance(node, kinds)}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The folders of the unpacked zips: {edition: folder}."""
    folder = tmp_path_factory.mktemp("zip")
    place = folder / "下载 of mine"
    for edition in editions():
        archive.write(edition, folder / archive.name(edition))
        with zipfile.ZipFile(folder / archive.name(edition)) as held:
            held.extractall(place)
    return {edition: place / f"d2l-attention-{edition}" for edition in editions()}


def fetched_or_zipped():
    """Which notebooks run to their end beside the fetched package; the others do in the zip.

    Its code is the same in each edition (test_editions), so the code of each page runs both
    ways, each notebook once; of the page that trains for half a minute, in the zip only what
    imports and defines.
    """
    for edition in editions():
        pages = [path for path in notebooks(edition) if path in NOTEBOOKS]
        for number, path in enumerate(pages):
            yield pytest.param(path, (number + (edition == "zh")) % 2 == 0, id=label(path))


RUNS = list(fetched_or_zipped())


@pytest.mark.parametrize("path, runs_fetched", RUNS)
def test_notebook(path, runs_fetched, room, unpacked):
    """Alone with the package fetched, and out of the zip without git; from start to end."""
    edition, *name = path.relative_to(ROOT / "chapters").parts
    zipped = unpacked[edition].joinpath(*name)
    before = files(unpacked[edition])
    setup, *cells = (cell.source for cell in code_cells(read(zipped)))
    assert len(cells) >= 5 and read(zipped) == read(path)
    again = {"folder": str(zipped.parent)}
    if path.stem == "transformer-encoder" and not runs_fetched:
        cells = [cell for cell in cells if cell.startswith("#@save") or "\nimport " in cell]
    here, there = (cells, []) if runs_fetched else ([], cells)
    visits = [*here, PROBE, again, setup, PROBE, *there, PROBE]
    run = fetches_the_package_once(room, setup, visits)
    packages = [Path(probe["package"]) for probe in run.probes]
    assert packages == [room.work / FETCHED / PACKAGE] * 3 + [unpacked[edition] / PACKAGE] * 2
    assert run.probes[3]["commands"] == run.probes[2]["commands"]
    assert files(unpacked[edition]) == before
    own, end = saved_names(cells), run.probes[2 if runs_fetched else 4]
    assert own and own <= set(end["defined_here"])


def test_each_page_runs_to_its_end_fetched_and_zipped():
    runs = {(path.name, fetched) for path, fetched in (run.values for run in RUNS)}
    pages = {path.name for path in NOTEBOOKS}
    assert runs == {(page, fetched) for page in pages for fetched in (True, False)}


@pytest.mark.parametrize("edition", editions())
def test_lone_notebook_in_a_kernel(edition, room):
    chapters = ROOT / "chapters" / edition
    path = min((p for p in NOTEBOOKS if chapters in p.parents), key=lambda p: p.stat().st_size)
    notebook = read(path)
    hidden = "import importlib.util\nassert importlib.util.find_spec('d2l_local') is None"
    which = "import d2l_local\nprint(d2l_local.__path__[0])"
    notebook.cells.insert(0, nbformat.v4.new_code_cell(hidden))
    notebook.cells.append(nbformat.v4.new_code_cell(which))
    resources = {"metadata": {"path": str(room.work)}}
    client = NotebookClient(
        notebook, timeout=120, kernel_manager_class=ThisPython, resources=resources
    )
    client.execute(env=room.environment(room.origin))
    assert notebook.cells[-1].outputs[0].text.strip() == str(room.work / FETCHED / PACKAGE)
    assert set(files(room.work)) == {f"{FETCHED}/{PACKAGE}/{name}" for name in package_files()}


# --- The zip ---


@pytest.mark.parametrize("edition", editions())
def test_zip_holds_the_notebooks_and_what_they_need(edition, unpacked):
    held = files(unpacked[edition])
    chapters = ROOT / "chapters" / edition
    pages = {path.relative_to(chapters).as_posix() for path in notebooks(edition)}
    package = {f"{PACKAGE}/{name}" for name in package_files()}
    assert {f"{PACKAGE}/torch.py", f"{PACKAGE}/data/attention.json"} < package and len(pages) >= 2
    assert set(held) == pages | package | {"LICENSE", "NOTICE", "README.txt"}
    for path in notebooks(edition):
        assert held[path.relative_to(chapters).as_posix()] == path.read_bytes()
    lines = held["README.txt"].decode().splitlines()
    assert len(lines) == 7 and all(len(line) <= 100 for line in lines)
    assert any(page.startswith("frameworks/") for page in pages) and "frameworks" in lines[-2]
    assert [line.split()[0] for line in lines if line.startswith(" ")] == ["python", "jupyter"]
    assert ("笔记本" in lines[0]) == (edition == "zh") and "https://" in lines[-1]


def test_zip_has_the_same_bytes_each_time(tmp_path):
    copy = tmp_path / "copy"
    for name in ("_config.yml", "_toc.yml", "LICENSE", "NOTICE"):
        write(copy / name, (ROOT / name).read_text(encoding="utf-8"))
    for name in ("chapters", PACKAGE):
        shutil.copytree(ROOT / name, copy / name, copy_function=shutil.copyfile)
    write(copy / PACKAGE / "__pycache__" / "torch.pyc")
    made = []
    for number, root in enumerate((ROOT, copy)):
        path = tmp_path / str(number) / archive.name("en")
        path.parent.mkdir()
        archive.write("en", path, root)
        made.append(path.read_bytes())
    assert made[0] == made[1]


# --- Each check on wrong texts ---

WHOLE_CLONE = f"""
import subprocess, sys
print("Colab: File > Save a copy in Drive")
subprocess.run(["git", "clone", "-q", "{ADDRESS}", ".d2l_local_src"], check=True)
sys.path.insert(0, ".d2l_local_src")
"""
IN_PLACE = """
    part = folder
    if part:"""
TEMPORARY = """
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as part:"""
INSIDE = "os.path.isfile(folder / \"d2l_local\" / \"torch.py\")"
WRONG = [
    (SETUP, WHOLE_CLONE, fetches_the_package_once),
    (' "--filter=blob:none",', "", fetches_the_package_once),
    ("part, \"sparse-checkout\"", "part, \"status\"", fetches_the_package_once),
    ("import sys\n", "import sys\nos.chdir('..')\n", fetches_the_package_once),
    ("import sys\n", "import sys\nopen('../left', 'w').close()\n", fetches_the_package_once),
    ("import sys\n", "import sys\nimport pip\n", fetches_the_package_once),
    ("import sys\n", "import sys\nsubprocess.run([sys.executable, '-c', ''])\n",
     fetches_the_package_once),
    ("if importlib.util.find_spec(\"d2l_local\") is None:", "if True:", fetches_the_package_once),
    ("if importlib.util.find_spec(\"d2l_local\") is None:", "if True:",
     leaves_an_installed_package_alone),
    ("(here, *here.parents)", "(here,)", finds_it_after_a_restart),
    ("(here, *here.parents)", "(here,)", finds_it_in_a_checkout),
    ("if \"google.colab\" in sys.modules:", "if True:", finds_it_in_a_checkout),
    ("(base, base / fetched)", "(base / fetched,)", finds_it_in_a_checkout),
    ("(\".d2l_local_src\", REF)", "(\".d2l_local_src\")", takes_its_own_version),
    ("timeout=120, ", "", gives_up_when_no_answer_comes),
    ("(OSError, subprocess.SubprocessError)", "OSError", refuses_without_network),
    ("(OSError, subprocess.SubprocessError)", "subprocess.SubprocessError", refuses_without_git),
    ("(OSError, subprocess.SubprocessError)", "subprocess.CalledProcessError",
     gives_up_when_no_answer_comes),
    ("(OSError, subprocess.SubprocessError)", "subprocess.SubprocessError",
     refuses_in_a_read_only_folder),
    (") from None", ")", refuses_without_network),
    ("zip", "package", refuses_without_network),
    ("d2l_local is not here", "d2l_local is not here\\n", refuses_without_network),
    ("            shutil.rmtree", "            pass  #", repairs_what_is_broken),
    (TEMPORARY, IN_PLACE, repairs_what_is_broken),
    (TEMPORARY, IN_PLACE, survives_an_interruption),
    (f"if not {INSIDE}:", "if True:", shares_the_folder_with_another_notebook),
]  # fmt: skip


@pytest.mark.parametrize("old, new, scenario", WRONG)
def test_wrong_text_is_caught(old, new, scenario, room):
    assert old in SETUP
    with pytest.raises(AssertionError):
        scenario(room, SETUP.replace(old, new))
