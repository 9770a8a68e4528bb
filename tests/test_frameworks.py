"""The frameworks beside PyTorch, as far as the book's own environment can test them.

What their modules compute is tested in `tests/frameworks`, one framework in each run.
"""

import ast
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
import yaml
from oracles import attend_heads

from d2l_local import torch as d2l
from tools.notebooks import (
    EDITIONS,
    FRAMEWORKS,
    PACKAGE,
    ROOT,
    SETUP_ID,
    code_cells,
    framework,
    notebooks,
    read,
)

FOLDER = ROOT / "tests" / "frameworks"
sys.path.append(str(FOLDER))  # its files import each other like this
from cases import LAYERS, LENGTHS, MEASURED, PYTORCH, layer_case  # noqa: E402
from mistakes import MISTAKES  # noqa: E402

OTHERS = [name for name in FRAMEWORKS if name != "torch"]


# --- What all frameworks must agree with ---


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("name", LAYERS)
def test_the_stored_arrays_are_right(name, lengths):
    """Query by query and head by head in float64, where gradients come from autograd."""
    weights, num_heads, inputs = layer_case(name)
    layer = d2l.MultiHeadAttention(9, 9, 9, weights["W_o"].shape[0], num_heads, 0.0)
    leaves = {
        part: torch.tensor(array).double().requires_grad_() for part, array in weights.items()
    }
    for W in ("W_q", "W_k", "W_v", "W_o"):
        projection = getattr(layer, W)
        del projection.weight, projection.bias
        projection.weight, projection.bias = leaves[W].T, leaves.get(f"b{W[1:]}")
    leaves |= {
        part: torch.tensor(array).double().requires_grad_()
        for part, array in zip(("queries", "keys", "values"), inputs, strict=True)
    }
    tensors = [leaves[part] for part in ("queries", "keys", "values")]
    output, attention = attend_heads(layer, *tensors, LENGTHS[lengths])
    (output**2).sum().backward()
    right = {"output": output.detach(), "weights": attention.detach()}
    right |= {part: X.grad for part, X in leaves.items()}
    with np.load(PYTORCH) as file:
        for part, array in right.items():
            limit = 2e-6 if part in ("output", "weights") else 3e-5
            assert abs(file[f"{name}/{lengths}/{part}"] - array.numpy()).max() < limit, part


# --- What the page shows ---


def digits(number):
    if number is None:  # PyTorch is not compared with itself
        return "–"
    mantissa, _, exponent = f"{number:.0e}".partition("e")
    power = f"10^{{{int(exponent)}}}"
    return f"${power}$" if mantissa == "1" else rf"${mantissa}\cdot{power}$"


def shown(name, row):
    """The cells of the page's table that come from a run: versions, and differences."""
    versions = " ".join(row["versions"].values())
    kinds = ("outputs", "golden", "gradients", "encoding")
    differences = [digits(row["differences"].get(kind)) for kind in kinds]
    return FRAMEWORKS[name], versions, differences


def table_rows(text):
    """Of the table of agreement: the framework, all numbers of versions, the differences."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    for first, versions, numpy, _, *differences in (row for row in rows if len(row) == 8):
        if first in FRAMEWORKS.values():
            found = re.findall(r"\d+\.\d[\d.]*", f"{versions} {numpy}")
            yield first, " ".join(found), differences


@pytest.mark.parametrize("edition", EDITIONS)
def test_the_table_shows_what_the_runs_found(edition):
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    assert set(measured) == set(FRAMEWORKS)
    text = (ROOT / "chapters" / edition / "frameworks.md").read_text(encoding="utf-8")
    assert list(table_rows(text)) == [shown(name, measured[name]) for name in FRAMEWORKS]


@pytest.mark.parametrize(
    "number, text", [(None, "–"), (3e-7, r"$3\cdot10^{-7}$"), (1e-6, "$10^{-6}$")]
)
def test_digits(number, text):
    assert digits(number) == text


def test_the_page_counts_the_wrong_versions():
    assert len(MISTAKES) == 12
    for edition, words in {"en": "twelve wrong versions", "zh": "改错十二次"}.items():
        text = (ROOT / "chapters" / edition / "frameworks.md").read_text(encoding="utf-8")
        assert words in text


@pytest.mark.parametrize("edition", EDITIONS)
def test_both_classes_of_each_module_are_shown(edition):
    text = (ROOT / "chapters" / edition / "frameworks.md").read_text(encoding="utf-8")
    pattern = r"\{tab-item\} (.+)\n:sync: (.+)\n\n~~~\{literalinclude\} (.+)\n:pyobject: (.+)\n"
    found = re.findall(pattern, text)
    assert found == [
        (title, name, f"../../{PACKAGE}/{name}.py", shown)
        for shown in ("PositionalEncoding", "MultiHeadAttention")
        for name, title in FRAMEWORKS.items()
    ]


# --- What a run covers ---


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_a_run_collects_its_own_framework_and_says_so(name):
    command = [sys.executable, "-m", "pytest", "-n", "0", "-qq", "--collect-only"]
    command += ["--framework", name, "tests/frameworks", "chapters"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    *counts, line = filter(None, run.stdout.splitlines())
    collected = {re.split(r"[:,]", count)[0] for count in counts}
    pages = {path for edition in EDITIONS for path in notebooks(edition)}
    own = {path.relative_to(ROOT).as_posix() for path in pages if framework(path) == name}
    assert len(own) >= 2 and collected == own | {"tests/frameworks/test_agreement.py"}
    assert line.startswith(f"Frameworks: {FRAMEWORKS[name]}; not ") and ".ci/frameworks" in line
    assert all(other in line for other in FRAMEWORKS.values())


def test_every_framework_has_its_notebook_in_each_edition():
    for edition in EDITIONS:
        names = [framework(path) for path in notebooks(edition)]
        assert [name for name in names if name != "torch"] == OTHERS


def imported(source):
    """The top-level modules that code imports anywhere."""
    nodes = list(ast.walk(ast.parse(source)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_module_imports_no_other_framework(name):
    found = imported((ROOT / PACKAGE / f"{name}.py").read_text(encoding="utf-8"))
    assert found & {*FRAMEWORKS, PACKAGE} == {name}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("edition", EDITIONS)
def test_a_notebook_of_another_framework_needs_no_package(edition, name):
    """Neither this book's, so that it runs wherever it is put, nor PyTorch."""
    cells = code_cells(read(ROOT / "chapters" / edition / "frameworks" / f"{name}.ipynb"))
    assert cells[0].id == SETUP_ID and len(cells) >= 10
    found = imported("\n".join(cell.source for cell in cells[1:]))
    assert found & {*FRAMEWORKS, PACKAGE, "d2l"} == {name}


# --- The environments ---


def pins(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))


def test_the_environments_pin_what_the_book_pins():
    """But NumPy, which MXNet needs older."""
    book = pins(ROOT / "requirements.txt")
    four, jax = (pins(path) for path in sorted(FOLDER.glob("requirements*.txt"), reverse=True))
    assert {"torch", "tensorflow-cpu", "paddlepaddle", "mxnet"} < set(four)
    assert {"jax", "flax"} < set(jax) and four["numpy"] < "2" < jax["numpy"]
    assert (four["torch"], jax["numpy"]) == (book["torch"], book["numpy"])
    common = {"matplotlib", "ipykernel", "nbclient", "nbformat", "nbval", "pytest", "pytest-xdist"}
    for found in (four, jax):
        assert {name: found[name] for name in common} == {name: book[name] for name in common}


def test_the_runs_found_the_pinned_versions():
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    for name in OTHERS:
        file = "requirements-jax.txt" if name == "jax" else "requirements.txt"
        pinned, versions = pins(FOLDER / file), measured[name]["versions"]
        assert {package: versions[package] for package in versions if package in pinned} == {
            package: pinned[package] for package in versions if package in pinned
        }
        assert len(set(versions) & set(pinned)) >= 2


def test_the_workflow_runs_the_frameworks_once():
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]
    runs = {job: [step.get("run") for step in jobs[job]["steps"]] for job in jobs}
    assert "bash .ci/frameworks" in runs["frameworks"]
    assert "bash .ci/run" in runs["linux"] and jobs["linux"]["env"]["PYTHON311"] == "none"
    assert ".ci/frameworks\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.mark.skipif(os.name == "nt", reason=".ci/run needs Linux")
def test_the_whole_run_asks_for_python_3_11_before_it_begins():
    result = subprocess.run(
        ["bash", ".ci/run"],
        cwd=ROOT,
        env={**os.environ, "PYTHON311": "no-such-python"},
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert result.returncode == 1 and "== " not in result.stdout
    assert "there is no no-such-python" in result.stdout
