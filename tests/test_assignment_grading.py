"""Grading behind walls: what students' code can reach, and what each trick earns."""

import json
import math
import os
import subprocess
import sys
import textwrap
import types
from dataclasses import dataclass

import numpy as np
import pytest

from assignments import course as courses
from assignments import grade, sandbox
from assignments.grade import Result, grade_cells
from assignments.sandbox import Bubblewrap, Container, Limits, NoWalls, walls
from assignments.student import DTYPES, decode, encode
from tools.notebooks import ROOT, BookError

LIMITS = Limits(call_seconds=3)
unix = pytest.mark.skipif(os.name == "nt", reason="stands in for a program with a script of Unix")


@pytest.fixture(scope="module")
def behind(tmp_path_factory):
    """Walls of bubblewrap, around a course with a secret that must not be found."""
    problem = Bubblewrap.problem()
    if problem:
        pytest.skip(problem)
    return walls("bubblewrap", LIMITS, [ROOT])


@pytest.fixture
def light(monkeypatch):
    """Processes that start at once, without torch."""
    monkeypatch.setattr(sandbox, "PRELOAD", ())


# --- Tiny questions: double a number, twice


@dataclass(frozen=True)
class Verdict:
    points: int
    sentence: dict


@dataclass(frozen=True)
class Case:
    inputs: dict
    points: int


DRIVER = """
def drive(answer, inputs):
    return answer(inputs["x"])
"""
WRONG = {"en": "Not twice as much.", "zh": "不是两倍。"}


def judge(case, outputs):
    right = type(outputs) is float and abs(outputs - 2 * case.inputs["x"]) < 1e-6
    return Verdict(case.points, {}) if right else Verdict(0, WRONG)


def question(name):
    return types.SimpleNamespace(id=name, name=f"f_{name}", points=5, driver=DRIVER, judge=judge)


class Questions(dict):
    """{Question: [Case]}, as `grade_cells` takes it, for questions that cannot be hashed."""

    def __init__(self, names):
        cases = [Case({"x": 1.5}, 2), Case({"x": -4.25}, 3)]
        self.pairs = [(question(name), cases) for name in names]

    def items(self):
        return self.pairs


def run(answers, walls):
    """{question: (points, English sentence)}, from {question: body of its cell}."""
    cells = [([name], textwrap.dedent(source)) for name, source in answers.items()]
    results = grade_cells(cells, Questions(answers), walls)
    return {name: (r.points, r.sentence.get("en", "")) for name, r in results.items()}


RIGHT = "def f_{}(x): return 2 * x"
# question: (cell, points, a part of the sentence); all in one submission, in this order
TRICKS = {
    "stub": ("def f_stub(x): raise NotImplementedError", 0, "Not attempted yet."),
    "gone": ("pass", 0, "There is no `f_gone` in the notebook."),
    "broken": ("1 / 0\ndef f_broken(x): return 2 * x", 0, "ZeroDivisionError: division by zero"),
    "syntax": ("def f_syntax(x: return", 0, "its cell raises SyntaxError"),
    "raises": ("def f_raises(x): raise ValueError('a\\nb')", 0, "ValueError in the line `def f_raises(x)"),
    "long": ("def f_long(x): raise KeyError('y' * 10**6)", 0, "raises KeyError in the line"),
    "told": ("raise ValueError('because')", 0, "its cell raises ValueError: because."),
    "leaks": ("def f_leaks(x): raise type(f'Leak{x}', (Exception,), {})", 0, "raises Exception in"),
    "half": ("def f_half(x): return max(2 * x, 0.0)", 2, "Not twice as much."),
    "nan": ("def f_nan(x): return float('nan')", 0, "Not twice"),
    "equal": (
        """
        class Equal(float):
            def __eq__(self, other): return True
            def __sub__(self, other): return 0.0
            __rsub__ = __sub__
        def f_equal(x): return Equal(1)
        """,
        0,
        "returns something other than numbers",
    ),
    "rebound": (
        """
        import math, builtins
        math.isclose = lambda *a, **k: True
        builtins.abs = lambda x: 0
        def f_rebound(x): return x
        """,
        0,
        "Not twice",
    ),
    "silent": (
        """
        from IPython.core.interactiveshell import InteractiveShell
        InteractiveShell.showtraceback = lambda *a, **k: None
        get_ipython().set_custom_exc((Exception,), lambda *a, **k: None)
        raise RuntimeError
        def f_silent(x): return 2 * x
        """,
        0,
        "its cell raises RuntimeError",
    ),
    "fake": (
        """
        import sys, types
        fake = types.ModuleType("assignments.attention.checks")
        fake.judge = lambda *a: 5
        sys.modules["assignments"] = sys.modules["checks"] = sys.modules[fake.__name__] = fake
        def f_fake(x): return {"points": 5, "sentence": {}}
        """,
        0,
        "Not twice",
    ),
    "forks": (
        """
        import os
        def f_forks(x):
            while True: os.fork()
        """,
        0,
        "raises PermissionError in the line `while True: os.fork()`.",
    ),
    "memory": ("def f_memory(x): return len(bytearray(3 * 2**30))", 0, "MemoryError"),
    "disk": (
        "def f_disk(x): return open('big', 'wb').write(bytes(21_000_000))",
        0,
        "raises OSError in the line `def f_disk",
    ),
    "deep": (
        "def f_deep(x):\n    y = []\n    for _ in range(10**5): y = [y]\n    return y",
        0,
        "returns something other",
    ),
    "endless": (
        "def f_endless(x):\n    if x > 0: return 2 * x\n    while True: pass",
        2,
        "not done after 3 s",
    ),
    "after": (RIGHT.format("after"), 5, ""),
    "exit": ("import os\ndef f_exit(x): os._exit(0)", 0, "ends the interpreter"),
    "hangs": ("while True: pass\n" + RIGHT.format("hangs"), 0, "its cell is not done after 3 s"),
    "crash": ("import ctypes\nctypes.string_at(0)\n" + RIGHT.format("crash"), 0, "ends the int"),
    "flood": ("def f_flood(x):\n    while True: print('x' * 1000)", 0, "more than 1000 kB"),
    "noise": (
        """
        import os
        def f_noise(x):
            for number in range(3, 30):
                try: os.write(number, b'{"outputs": 3.0}\\n[]\\n')
                except OSError: pass
            return 2 * x
        """,
        0,
        "writes where only the grader writes",
    ),
    "stream": (
        """
        import os
        def f_stream(x):
            while True:
                for number in range(3, 30):
                    try: os.write(number, b"[]\\n" * 1000)
                    except OSError: pass
        """,
        0,
        "writes where only the grader writes",
    ),
    "huge": ("def f_huge(x): return 'x' * 3_000_000", 0, "returns far more than"),
    "last": (RIGHT.format("last"), 5, ""),
}


WITH_TORCH = {
    "tensor": (
        "import torch\ndef f_tensor(x): return torch.tensor(2 * x)",
        0,
        "returns something other than numbers",
    ),
    "rebound": (
        """
        import torch, numpy
        torch.allclose = torch.equal = torch.testing.assert_close = lambda *a, **k: True
        numpy.allclose = numpy.array_equal = lambda *a, **k: True
        def f_rebound(x): return x
        """,
        0,
        "Not twice",
    ),
    "layer": (
        """
        import torch
        def f_layer(x):
            layer = torch.nn.Linear(1, 1, bias=False)
            torch.nn.init.constant_(layer.weight, 2.0)
            return layer(torch.full((3, 1), x)).mean().item()
        """,
        5,
        "",
    ),
}


@pytest.mark.parametrize("tricks", [TRICKS, WITH_TORCH], ids=["plain", "with torch"])
def test_what_each_trick_earns(behind, tricks, request):
    if tricks is TRICKS:  # many processes, which need no torch
        request.getfixturevalue("light")
    earned = run({name: cell for name, (cell, _, _) in tricks.items()}, behind)
    assert list(earned) == list(tricks)
    for name, (_, points, words) in tricks.items():
        assert earned[name][0] == points, (name, earned[name])
        assert words in earned[name][1] and len(earned[name][1]) < 300, (name, earned[name])
        assert earned[name][1].isprintable()


LOOK = """
import ctypes, importlib.util, os, pathlib, pkgutil, socket, subprocess, sys, threading

def attempt(action):
    try: return repr(action())
    except BaseException as error: return type(error).__name__

def everything():
    "All that can be read: sources of importable modules, environment, processes, small files."
    seen = [repr(dict(os.environ)), repr(sys.argv)]
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        for name in ("environ", "cmdline", "mountinfo", "status"):
            seen.append(attempt((process / name).read_text))
    for module in pkgutil.iter_modules():
        spec = importlib.util.find_spec(module.name)
        if spec and spec.origin and spec.origin.endswith(".py"):
            seen.append(pathlib.Path(spec.origin).read_text(errors="replace"))
    skip = {"proc", "dev", "sys", "usr", "lib", "lib64", "bin"}
    for top in set(os.listdir("/")) - skip:
        for folder, folders, files in os.walk("/" + top):
            folders[:] = [f for f in folders if f not in ("site-packages", "lib", "include")]
            for file in files:
                path = pathlib.Path(folder, file)
                if path.is_file() and path.stat().st_size < 10**6:
                    seen.append(attempt(path.read_bytes))
    return "\\n".join(seen)

def f_look(inputs):
    processes = [name for name in os.listdir("/proc") if name.isdigit()]
    return {
        "everything": everything(),
        "processes": len(processes),
        "network": attempt(lambda: socket.create_connection(("127.0.0.1", inputs["port"]), 2)),
        "abroad": attempt(lambda: socket.create_connection(("192.0.2.1", 80), 2)),
        "fork": attempt(os.fork),
        "memfd": attempt(lambda: os.memfd_create("x")),
        "unshare": ctypes.CDLL(None).unshare(0x10000000),
        "shmget": ctypes.CDLL(None).shmget(0, 4096, 0o1600),
        "trace": ctypes.CDLL(None).ptrace(0, 0, 0, 0),
        "interfaces": pathlib.Path("/proc/net/dev").read_text().count(":"),
        "spawn": attempt(lambda: subprocess.run(["true"])),
        "book": attempt(lambda: __import__("d2l_local")),
        "checks": attempt(lambda: __import__("assignments.attention.checks")),
        "paths": {path: os.path.exists(path) for path in inputs["paths"]},
        "write": {p: attempt(lambda: open(p + "/x", "w")) for p in inputs["write"]},
        "own": attempt(lambda: open("x", "w").write("abc")),
        "thread": attempt(lambda: threading.Thread(target=print).start()),
        "files": attempt(lambda: [open("/dev/null") for _ in range(1000)]),
    }
"""


def test_what_students_code_can_reach(behind, tmp_path, monkeypatch):
    import socket

    canary = "canary-of-the-course"
    monkeypatch.setenv("COURSE_SECRET", canary)
    monkeypatch.setattr(sandbox, "REPLY", 2**26)  # it tells all that it saw
    (tmp_path / "secret.txt").write_text(canary)
    checks = courses.checks().__file__
    with socket.create_server(("127.0.0.1", 0)) as server:
        inputs = {
            "port": server.getsockname()[1],
            "paths": [os.fspath(ROOT / "README.md"), checks, os.fspath(tmp_path), "/etc/passwd"],
            "write": ["/", "/grader", "/usr", "/dev/shm", sys.prefix],
        }
        student = sandbox.Student(behind)
        try:
            assert student.request({"cell": LOOK}, 30) == {"error": None}
            drive = "def drive(answer, inputs): return answer(inputs)"
            message = {"name": "f_look", "driver": drive, "inputs": encode(inputs)}
            found = decode(student.request(message, 120)["outputs"])
        finally:
            student.close()
    seen = found["everything"]
    assert "def set_limits" in seen and len(seen) > 1_000_000  # it did look
    assert canary not in seen
    for private in ("Private checks of the assignment", "Grading: a student's process is asked"):
        assert private not in seen
    assert found["processes"] == 1 and found["interfaces"] == 1  # itself, and loopback
    for name in ("network", "abroad", "fork", "spawn", "memfd"):
        assert found[name] == "PermissionError", name
    assert found["unshare"] == found["shmget"] == found["trace"] == -1
    assert found["book"] == found["checks"] == "ModuleNotFoundError"
    assert not any(found["paths"].values())
    assert set(found["write"].values()) == {"OSError"}
    assert (found["own"], found["thread"], found["files"]) == ("3", "None", "OSError")


def test_the_time_of_a_submission_is_limited(behind, light):
    tight = type(behind)(Limits(seconds=2, call_seconds=1))
    loops = {name: f"def f_{name}(x):\n    while True: pass" for name in "ab"}
    earned = run({**loops, "d": RIGHT.format("d")}, tight)
    assert earned["a"] == (0, "`f_a` or its cell is not done after 1 s.")
    assert earned["d"] == (0, "The 2 s of this submission were used up before `f_d`.")


def test_visible_checks_are_not_run():
    import nbformat

    from assignments.intake import skeleton

    for path in courses.releases().values():
        cells = grade.cells_to_run(nbformat.read(path, 4), skeleton())
        names = [name for names, _ in cells for name in names]
        assert names == ["setup", *(question.id for question in courses.checks().QUESTIONS)]


def test_magics_and_shell_lines_cost_nothing(behind, light):
    import nbformat

    from assignments.intake import skeleton

    source = "!pip install x\n%matplotlib inline\n%pip install y\n" + RIGHT.format("q1")
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [
        nbformat.v4.new_code_cell("%%time\nhelper = 2"),
        nbformat.v4.new_code_cell("# exercise: q1\n" + source.replace("2 * x", "helper * x")),
    ]
    cells = grade.cells_to_run(notebook, skeleton())
    assert [names for names, _ in cells] == [[""], ["q1"]]
    assert grade_cells(cells, Questions(["q1"]), behind)["q1"] == Result(5, {})


def test_a_judge_that_fails_is_told_and_stops_nobody():
    def broken(case, outputs):
        raise KeyError("secret value 42")

    asked = question("q1")
    asked.judge = broken
    session = types.SimpleNamespace(limits=LIMITS, errors={})
    points, said = grade.judge(asked, Case({}, 2), {"outputs": 1.0}, session)
    assert points == 0 and "42" not in said["en"] and "could not be judged" in said["en"]
    asked.judge = lambda case, outputs: Verdict(99, {})
    assert grade.judge(asked, Case({}, 2), {"outputs": 1.0}, session) == (2, {})


FORGED = [
    {},
    {"outputs": {"a": 1}},
    {"outputs": {"array": ["object", [1], "AAAA"]}},
    {"error": [1, 2]},
    {"error": "text"},
    {"error": ["A\x1b[31m\n", "b" * 10**6, ""]},
    {"error": ["ValueError", "1.0", "hidden 1.0"]},
    {"error": ["hidden1", "", "x = 1"]},
    {"error": ["__name__", "", "x = 1"]},
]


@pytest.mark.parametrize("reply", FORGED)
def test_forged_replies_earn_nothing_and_one_line(reply):
    session = types.SimpleNamespace(limits=LIMITS, errors={}, lines={"x = 1"})
    points, said = grade.judge(question("q1"), Case({"x": 1.0}, 2), reply, session)
    assert points == 0 and set(said) == {"en", "zh"}
    for text in said.values():
        assert text.isprintable() and 0 < len(text) < 300
        assert "1.0" not in text and "hidden" not in text and "__name__" not in text


def test_sentences_exist_in_both_languages():
    for key in grade.SENTENCES:
        said = grade.sentence(key, question("q1"), LIMITS, "ValueError: told", "x = 1")
        assert set(said) == {"en", "zh"} and "{" not in "".join(said.values())
        assert said["en"].endswith(".") and not said["en"].endswith("..")
        assert said["zh"].endswith("。")


# --- Plain data


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_arrays_cross_unchanged(dtype, shape):
    array = (np.random.default_rng(3).standard_normal(shape) * 50).astype(dtype)
    there = decode(json.loads(json.dumps(encode(array))))
    assert there.dtype == array.dtype and there.shape == shape and there.flags.writeable
    assert there.tobytes() == array.tobytes()


def test_plain_values_cross_unchanged():
    value = {"a": [1, -2.5, None, True, "文"], "b": {"dict": {}, "array": [1, 2, 3]}, "c": math.inf}
    assert decode(json.loads(json.dumps(encode(value)))) == value
    assert math.isnan(decode(json.loads(json.dumps(encode(math.nan)))))
    assert decode(encode((1, (2,)))) == [1, [2]]
    assert decode(encode(np.arange(6).reshape(2, 3).T)).tolist() == [[0, 3], [1, 4], [2, 5]]


class Sneaky(list):
    pass


REFUSED = [Sneaky(), object(), {1: 2}, b"x", 1j, np.array([object()]), np.zeros(1, complex), {1}]


@pytest.mark.parametrize("value", REFUSED, ids=lambda value: type(value).__name__)
def test_other_values_are_refused(value):
    with pytest.raises(TypeError, match="returned a"):
        encode(value)
    with pytest.raises(TypeError, match="returned a"):
        encode({"a": [value]})


NOT_PLAIN = [
    {"a": 1},
    {"dict": {}, "array": []},
    {"array": ["float64", [2], "AAAA"]},
    {"array": ["float64", [-1], ""]},
    {"array": ["uint8", [2.0], "AAA="]},
    {"array": ["uint8", [2], "AA A="]},
    {"array": ["object", [0], ""]},
    {"dict": []},
]


@pytest.mark.parametrize("value", NOT_PLAIN, ids=repr)
def test_what_encode_never_writes_is_refused(value):
    with pytest.raises(ValueError):
        decode([value])


# --- Which walls


def test_without_isolation_nothing_starts_unless_told(monkeypatch):
    monkeypatch.setattr(sandbox.shutil, "which", lambda program: None)
    with pytest.raises(BookError) as caught:
        walls("auto", LIMITS)
    said = str(caught.value)
    assert "no bubblewrap" in said and "no docker" in said and "--no-isolation" in said
    assert isinstance(walls("none", LIMITS), NoWalls) and "NO ISOLATION" in NoWalls.told


def test_walls_around_the_private_files(tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox, "python_folders", lambda: [tmp_path / "python"])
    with pytest.raises(BookError, match="students' code can read"):
        Bubblewrap(LIMITS, [tmp_path / "python" / "course"])


@unix
def test_a_bubblewrap_that_fails_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox.platform, "machine", lambda: "x86_64")
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'no namespaces for you' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", os.fspath(tmp_path), prepend=os.pathsep)
    with pytest.raises(BookError, match="no namespaces for you"):
        walls("bubblewrap", LIMITS)


CLIENT = """#!{python}
import json, os, subprocess, sys
with open({log!r}, "a") as log:
    print(json.dumps(sys.argv[1:]), file=log)
if sys.argv[1] == "run":
    rest = sys.argv[sys.argv.index("/grader/student.py") + 1:]
    os.execv({python!r}, [{python!r}, "-I", "-B", {program!r}, *rest])
"""


@unix
def test_a_container_runs_and_is_ended(tmp_path, monkeypatch, light):
    """A stand-in for docker writes down what it is told, and starts the program."""
    log = tmp_path / "log"
    fake = tmp_path / "docker"
    program = os.fspath(sandbox.PROGRAM)
    fake.write_text(CLIENT.format(python=sys.executable, log=os.fspath(log), program=program))
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", os.fspath(tmp_path), prepend=os.pathsep)
    container = walls("docker", LIMITS)
    assert isinstance(container, Container) and "no network" in container.told
    assert run({"a": RIGHT.format("a")}, container) == {"a": (5, "")}
    looked, started, ended = map(json.loads, log.read_text().splitlines())
    for pair in ("--network none", "--memory 2048m", "--cap-drop ALL", "--user 65534:65534"):
        assert pair in " ".join(started)
    assert "--read-only" in started and "--volume" not in started and "-v" not in started
    assert looked[:2] == ["image", "inspect"]
    assert ended == ["kill", started[started.index("--name") + 1]]


def test_the_container_holds_nothing_private():
    recipe = (ROOT / "assignments" / "container" / "Dockerfile").read_text("utf-8")
    copied = [line for line in recipe.splitlines() if line.startswith(("COPY", "ADD"))]
    assert copied == ["COPY student.py /grader/student.py"]
    pinned = (ROOT / "requirements.txt").read_text("utf-8").split()
    for package in ("torch", "numpy", "matplotlib"):
        (pin,) = [line for line in pinned if line.startswith(f"{package}==")]
        assert pin in recipe


MAPPED = """
import mmap, sys
sys.path.insert(0, sys.argv[1])
import student
big = mmap.mmap(-1, 3 * 2**30, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
student.set_limits(2**29, 10**6, 60)
bytearray(2**28)
try:
    bytearray(2**30)
except MemoryError:
    print("limited")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a limit on memory")
def test_what_is_loaded_does_not_count_as_memory():
    """PyTorch for CUDA maps more than 2 GiB: a limit on all of it would let nothing start."""
    command = [sys.executable, "-c", MAPPED, os.fspath(sandbox.PROGRAM.parent)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "limited\n", done.stderr


def test_without_walls_the_limits_still_hold(light):
    earned = run(
        {"a": RIGHT.format("a"), "b": "import os\ndef f_b(x): os._exit(1)"}, NoWalls(LIMITS)
    )
    assert earned == {"a": (5, ""), "b": (0, "`f_b` or its cell ends the interpreter.")}
