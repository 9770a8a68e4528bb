"""Running notebooks: what is stored, what stops a run, and how two runs are compared."""

import json
import re
import sys
from io import StringIO

import matplotlib
import nbformat
import numpy as np
import pytest

from tools import compare, run
from tools.notebooks import BookError

matplotlib.use("agg")


def write(root, name="chapters/en/page.ipynb", **sources):
    """A notebook with a markdown cell and code cells {id: source}."""
    cells = [nbformat.v4.new_markdown_cell("# 标题", id="title")]
    cells += [nbformat.v4.new_code_cell(text, id=id) for id, text in sources.items()]
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


def write_package(root, line_end="\n", **texts):
    """Files of the package; `data__x__json` is data/x.json."""
    for name, text in texts.items():
        path = root / "d2l_local" / name.replace("__", ".").replace("data.", "data/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline=line_end)


FIGURE = """
import matplotlib.pyplot as plt
from matplotlib_inline.backend_inline import set_matplotlib_formats

plt.rcParams["svg.hashsalt"] = "salt"
set_matplotlib_formats("svg", "png", metadata={"Date": None})
ax = plt.subplots()[1]
_ = ax.plot([0, 0.5, 3])
"""
FACTS = """
import os, sys
from d2l_local import torch as d2l

print(sys.executable, d2l.ANSWER)
print(os.environ["OMP_NUM_THREADS"], hash("a"), "位置")
"""


def test_run_stores_the_same_bytes_every_time(tmp_path, capsys):
    write_package(tmp_path, torch__py="ANSWER = 42\n")
    path = write(tmp_path, setup="1 + 1", facts=FACTS, figure=FIGURE.strip())
    notebook = json.loads(path.read_text(encoding="utf-8"))
    notebook["metadata"] = {"kernelspec": {"name": "conda-env-foo-py", "display_name": "x"}}
    notebook["cells"][1]["metadata"] = {"tags": ["remove-cell"], "collapsed": True}
    notebook["cells"][2] |= {"execution_count": 7, "metadata": {"execution": {"a": "12:00"}}}
    path.write_text(json.dumps(notebook), encoding="utf-8")
    assert run.main([str(path)], tmp_path) == 0
    first = path.read_bytes()
    assert run.main([str(path)], tmp_path) == 0
    assert path.read_bytes() == first
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"chapters/en/page.ipynb: \d+\.\d s, changed", lines[0])
    assert re.fullmatch(r"chapters/en/page.ipynb: \d+\.\d s, unchanged", lines[1])

    text = first.decode("utf-8")
    stored = json.loads(text)
    assert text == json.dumps(stored, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
    assert stored["metadata"] == {
        "kernelspec": {"name": "python3", "display_name": "Python 3"},
        "language_info": {"name": "python"},
        "d2l_stamp": run.stamp(path, tmp_path),
    }
    assert [cell["id"] for cell in stored["cells"]] == ["title", "setup", "facts", "figure"]
    assert [cell["metadata"] for cell in stored["cells"]] == [{}, {"tags": ["remove-cell"]}, {}, {}]
    setup, facts, figure = stored["cells"][1:]
    assert [cell["execution_count"] for cell in (setup, facts, figure)] == [1, 2, 3]
    assert setup["outputs"][0]["execution_count"] == 1
    (printed,) = facts["outputs"]  # one text, however the kernel sent it
    where, what = printed["text"]
    assert where == f"{sys.executable} 42\n" and what.startswith("1 ") and what.endswith("位置\n")
    assert all(output.get("metadata", {}) == {} for output in figure["outputs"])
    assert {"image/svg+xml", "image/png"} <= figure["outputs"][-1]["data"].keys()


STOPS = {
    "error": ("print(1)\n1 / 0", "ZeroDivisionError: division by zero"),
    "error of two lines": ("raise ValueError('first\\nlast line')", "last line"),
    "warning": ("import warnings\nwarnings.warn('old')", "UserWarning: old warnings.warn('old')"),
    "address": ("object()", "address, another one in each run: <object at 0x"),
    "death": ("import os\nos._exit(1)", "the kernel died"),
}


@pytest.mark.parametrize("source, message", STOPS.values(), ids=STOPS)
def test_what_stops_a_run_leaves_the_file_alone(source, message, tmp_path, capsys):
    path = write(tmp_path, good="x = 1", bad=source, unseen="open('ran', 'w')")
    notebook = nbformat.read(path, 4)
    notebook.cells[2].metadata["tags"] = ["raises-exception"]
    nbformat.write(notebook, path)
    before = path.read_bytes()
    assert run.main([str(path)], tmp_path) == 1
    printed = capsys.readouterr()
    assert printed.err.startswith("chapters/en/page.ipynb, cell bad: ")
    assert message in printed.err and printed.err.count("\n") == 1
    assert printed.out == ""
    assert path.read_bytes() == before and not (path.parent / "ran").exists()


def test_an_endless_cell_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "TIMEOUT", 1)
    with pytest.raises(BookError, match="cell a: not done after 1 seconds"):
        run.run(write(tmp_path, a="while True:\n    pass"), tmp_path)


def test_a_cell_that_hides_from_the_run_is_run(tmp_path):
    path = write(tmp_path, tagged="1 + 1")
    notebook = nbformat.read(path, 4)
    notebook.cells[1].metadata["tags"] = ["skip-execution"]
    nbformat.write(notebook, path)
    run.run(path, tmp_path)
    assert nbformat.read(path, 4).cells[1].outputs[0].data["text/plain"] == "2"


def test_printed_texts_are_joined_up_to_the_next_figure():
    new = nbformat.v4.new_output
    outputs = [new("stream", text="a"), new("stream", text="b"), new("display_data")]
    outputs += [new("stream", text="c")]
    merged = run.merge_streams(outputs)
    assert [output.get("text") for output in merged] == ["ab", None, "c"]


def test_a_file_changed_during_its_run_is_not_overwritten(tmp_path, monkeypatch):
    path = write(tmp_path, a="1")
    monkeypatch.setattr(run, "execute", lambda *_: path.write_bytes(path.read_bytes() + b"\n"))
    with pytest.raises(BookError, match="page.ipynb: the file was changed while it was run"):
        run.run(path, tmp_path)


def test_all_notebooks_are_run_but_those_of_other_frameworks(tmp_path, capsys, monkeypatch):
    for edition, toc in {"en": "_toc.yml", "zh": "chapters/zh/_toc.yml"}.items():
        names = [f"chapters/{edition}/{name}" for name in ("page", "frameworks/jax")]
        for name in names:
            write(tmp_path, f"{name}.ipynb", a="1")
        text = json.dumps({"root": names[0], "chapters": [{"file": names[1]}]})
        (tmp_path / toc).write_text(text, encoding="utf-8")
    monkeypatch.setattr(run, "run", lambda path, root: (0.04, True))
    assert run.main([], tmp_path) == 0
    left_out = "left out, for JAX has an environment of its own"
    assert capsys.readouterr().out.splitlines() == [
        "chapters/en/page.ipynb: 0.0 s, changed",
        "chapters/zh/page.ipynb: 0.0 s, changed",
        f"chapters/en/frameworks/jax.ipynb: {left_out}",
        f"chapters/zh/frameworks/jax.ipynb: {left_out}",
    ]
    jax = tmp_path / "chapters" / "en" / "frameworks" / "jax.ipynb"
    assert run.main([str(jax)], tmp_path) == 0
    assert capsys.readouterr().out == "chapters/en/frameworks/jax.ipynb: 0.0 s, changed\n"


def test_a_notebook_without_its_framework_is_refused(tmp_path, capsys, monkeypatch):
    path = write(tmp_path, "chapters/en/frameworks/mxnet.ipynb", a="1")
    before = path.read_bytes()
    find = run.importlib.util.find_spec
    there = {"mxnet": None}
    monkeypatch.setattr(run.importlib.util, "find_spec", lambda name: there.get(name, find("sys")))
    assert run.main([str(path)], tmp_path) == 1
    error = capsys.readouterr().err
    assert error.startswith("chapters/en/frameworks/mxnet.ipynb: MXNet is not installed here")
    assert error.count("\n") == 1 and path.read_bytes() == before
    there["mxnet"] = find("sys")
    assert run.main([str(path)], tmp_path) == 0


def test_a_missing_notebook_is_named(tmp_path, capsys):
    assert run.main([str(tmp_path / "nosuch.ipynb")], tmp_path) == 1
    assert capsys.readouterr().err == "nosuch.ipynb: there is no such file\n"


MODULE = "def f(x): return 'turn.js'\n"
CODE = "from d2l_local.torch import f\nf('times')"


@pytest.fixture
def stamped(tmp_path):
    """A notebook and the package it uses."""
    write_package(tmp_path, torch__py=MODULE, jax__py="", data__turn__js="1")
    write_package(tmp_path, data__times__json="{}", data__other__json="{}")
    return write(tmp_path, setup="import d2l_local", code=CODE)


@pytest.mark.parametrize(
    "change, differs",
    [
        (lambda root: write(root, setup="import d2l_local", code=CODE + "  "), True),
        (lambda root: write(root, setup="import d2l_local", code=CODE, more=""), True),
        (lambda root: write(root, setup="REPOSITORY = 'elsewhere'", code=CODE), False),
        (lambda root: write_package(root, torch__py=MODULE + "\n"), True),
        (lambda root: write_package(root, jax__py="x = 1"), False),
        (lambda root: write_package(root, data__times__json="[]"), True),
        (lambda root: write_package(root, data__turn__js="2"), True),
        (lambda root: write_package(root, data__other__json="[]"), False),
        (lambda root: write_package(root, torch__py=MODULE, line_end="\r\n"), False),
    ],
)
def test_the_stamp_changes_with_what_the_outputs_come_from(change, differs, stamped, tmp_path):
    before = run.stamp(stamped, tmp_path)
    assert re.fullmatch("[0-9a-f]{16}", before) and run.stamp(stamped, tmp_path) == before
    change(tmp_path)
    assert (run.stamp(stamped, tmp_path) != before) == differs


def test_the_stamp_of_a_notebook_without_its_module_is_refused(stamped, tmp_path):
    (tmp_path / "d2l_local" / "torch.py").unlink()
    with pytest.raises(BookError, match="page.ipynb imports d2l_local/torch.py, which is not"):
        run.stamp(stamped, tmp_path)


# Comparing two runs


def draw(values, title="a title", image=None):
    """The SVG of a figure with a curve and an image."""
    from matplotlib.figure import Figure

    ax = Figure(figsize=(3, 2)).subplots()
    ax.plot(values, "o-")
    ax.imshow(np.eye(4) if image is None else image, extent=(0, 1, 0, 1))
    ax.set(title=title, xlim=(0, 3), ylim=(0, 2))
    svg = StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "salt"}):
        ax.figure.savefig(svg, format="svg", metadata={"Date": None})
    return svg.getvalue()


VALUES = np.array([0.2, 1.1, 0.7, 1.9])
ID = re.compile(' id="(.*?)"')


def test_noise_in_the_last_digits_of_a_figure_passes():
    old, new = draw(VALUES), draw(VALUES + 1e-5)
    assert old != new and compare.compare_svg(old, new) is None


def test_a_number_at_the_edge_of_a_colour_passes():
    old, new = (draw(VALUES, image=[[0, 1], [0.25 + e] * 2]) for e in (1e-9, -1e-9))
    assert ID.findall(old) != ID.findall(new)  # matplotlib makes an image's id from its bytes
    assert compare.compare_svg(old, new) is None


CHANGES = {
    "a value": (lambda: draw(VALUES * [1, 1, 1.01, 1]), "d of <path>: "),
    "a value less": (lambda: draw(VALUES[:3]), "other elements ("),
    "a longer title": (lambda: draw(VALUES, title="another title"), "other elements ("),
    "another title": (lambda: draw(VALUES, title="a tilte"), "of <"),
    "image": (lambda: draw(VALUES, image=np.eye(4)[::-1]), "href of <image>: "),
    "colour": (lambda: draw(VALUES).replace("#1f77b4", "#1f77b5"), "style of <path>: "),
    "attribute": (lambda: draw(VALUES).replace("<defs>", '<defs a="">'), "other attributes"),
    "text": (lambda: draw(VALUES).replace("image/svg+xml", "image/svg"), "text of <format>: "),
}


@pytest.mark.parametrize("other, message", CHANGES.values(), ids=CHANGES)
def test_a_changed_figure_is_found(other, message):
    assert message in (compare.compare_svg(draw(VALUES), other()) or "")


def notebook_of(**outputs):
    """A notebook with one code cell that shows these outputs."""
    cell = nbformat.v4.new_code_cell("print(1)", id="a")
    cell.outputs = [
        nbformat.v4.new_output("stream", text=text)
        if kind == "stdout"
        else nbformat.v4.new_output("display_data", data={kind: text})
        for kind, text in outputs.items()
    ]
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("t", id="t"), cell])


def test_texts_and_sources_must_be_equal():
    old = notebook_of(stdout="0.12\n", **{"text/html": "<b>1</b>", "image/png": "AAAA"})

    def problems(**outputs):
        return list(compare.compare_notebooks(old, notebook_of(**outputs)))

    same = {"stdout": "0.12\n", "text/html": "<b>1</b>", "image/png": "BBBB"}
    assert problems(**same) == []
    assert problems(**same | {"stdout": "0.13\n"}) == [
        ", cell a: stdout: '0.12\\n' became '0.13\\n'"
    ]
    assert "text/html: " in problems(**same | {"text/html": "<b>2</b>"})[0]
    assert "it shows stdout, not stdout, text/html" in problems(stdout="0.12\n")[0]
    for place in (0, 1):
        new = notebook_of(**same)
        new.cells[place].source += "  "
        assert list(compare.compare_notebooks(old, new)) == [
            f", cell {new.cells[place].id}: the source differs"
        ]
    new = notebook_of(**same)
    new.cells[0].id = "other"
    assert list(compare.compare_notebooks(old, new)) == [": the cells are not the same"]


def test_compare_prints_a_line_for_each_difference(tmp_path, capsys):
    old, new = tmp_path / "old", tmp_path / "new"
    svg = "image/svg+xml"
    for folder, value in ((old, 1.0), (new, 1.00001)):
        (folder / "en").mkdir(parents=True)
        nbformat.write(notebook_of(**{svg: draw(VALUES * value)}), folder / "en" / "a.ipynb")
    assert run.main(["--compare", str(old), str(new)]) == 0
    assert capsys.readouterr().out == ""
    nbformat.write(notebook_of(**{svg: draw(VALUES * 1.5)}), new / "en" / "a.ipynb")
    nbformat.write(notebook_of(stdout="1"), new / "en" / "b.ipynb")
    assert run.main(["--compare", str(old), str(new)]) == 1
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("en/a.ipynb, cell a: image/svg+xml: d of <path>: ")
    assert second == f"en/b.ipynb is missing below {old.as_posix()}"
    assert run.main(["--compare", str(tmp_path / "none"), str(new)]) == 1
    assert "holds no notebook to compare" in capsys.readouterr().err


def test_missing_contents_are_named_not_taken_for_no_pages(tmp_path, capsys):
    (tmp_path / "chapters" / "zh").mkdir(parents=True)
    (tmp_path / "chapters" / "zh" / "_toc.yml").write_text("root: chapters/zh/index\n")
    assert run.main([], tmp_path) == 1
    error = capsys.readouterr().err
    assert str(tmp_path / "_toc.yml") in error and error.count("\n") == 1
