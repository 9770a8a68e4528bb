"""The extractor: what it saves, byte for byte, and what it refuses."""

import ast
import os
import shutil
import subprocess
import sys

import nbformat
import pytest

from tools import measure, run, save
from tools.notebooks import ROOT, BookError, package_aliases, package_uses

MODULE = "d2l_local/torch.py"


def make_book(root, pages):
    """A book of notebooks: {page: {cell id: source}}, in the order of its contents."""
    entries = [f"      - file: chapters/en/{name}" for name in pages]
    toc = ["root: chapters/en/index", "parts:", "  - chapters:", *entries]
    (root / "_toc.yml").write_text("\n".join(toc), encoding="utf-8")
    for name, sources in pages.items():
        cells = [nbformat.v4.new_code_cell(text, id=id) for id, text in sources.items()]
        path = root / "chapters" / "en" / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    (root / "chapters" / "en" / "index.md").write_text("# Book\n", encoding="utf-8")
    return root


def generate(root, *sources):
    """The module that one notebook saves, whose cells are named a, b, c …"""
    make_book(root, {"page": dict(zip("abcdef", sources, strict=False))})
    return save.generate(root)[MODULE]


def body(module):
    """The statements of a module below its docstring and `__all__`."""
    return ast.parse(module).body[2:]


def dumps(statements):
    return [ast.dump(statement) for statement in statements]


# One cell each; d2lbook's line-based extractor loses or breaks every one of the first six.
SAVABLE = {
    "two functions": "#@save\ndef f():\n    return 1\n\ndef g():\n    return f()",
    "import and function": "#@save\nimport math\n\ndef f(x):\n    return math.sqrt(x)",
    "parenthesis in column 0": "#@save\ndef f(\n    x,\n    y=1,\n):\n    return x + y",
    "comment in column 0": "#@save\ndef f():\n    x = 1\n# half way\n    return x",
    "text in column 0": (
        '#@save\ndef f():\n    """One\n\ntwo  \n\n\n    """\n    return """\n#@save"""'
    ),
    "dictionary": '#@save\nNAMES = {\n    "a": 1,\n\n    "b": 2,\n}',
    "decorator": "#@save\nimport functools\n\n@functools.cache\ndef f():\n    return 1",
    "decorator's call": "#@save\nimport functools as f\n\n@f.lru_cache(9)\ndef g():\n    return 1",
    "later call": "#@save\nF = lambda: print(1)",
    "class": "#@save\nclass A(Exception):\n    B = 3\n\n    def f(self):\n        return self.B",
    "coroutine": "#@save\nasync def f():\n    return 1",
    "annotated": "#@save\n_LIMIT: int = 3\nX_2 = Y = _LIMIT + 1",
    "shadows": "#@save\ndef f(a, f=1):\n    def g(x):\n        return [a for y in x]\n    return g",
    "own class": "#@save\nclass A:\n    def f(self):\n        return super().f(), __class__, A",
}


@pytest.mark.parametrize("cell", SAVABLE.values(), ids=SAVABLE)
def test_a_saved_cell_is_saved_whole(cell, tmp_path):
    module = generate(tmp_path, cell)
    assert dumps(body(module)) == dumps(ast.parse(cell).body)
    assert module.endswith(f"# %% chapters/en/page.ipynb#a\n{cell.removeprefix('#@save')[1:]}\n")


def test_the_mark_in_a_string_saves_nothing_and_harms_nothing(tmp_path):
    module = generate(tmp_path, "x = '# @save'\ny = '''\n#@save\n'''", "#@save\ndef f():\n    pass")
    assert dumps(body(module)) == dumps(ast.parse("def f():\n    pass").body)


def test_comments_below_the_mark_are_kept(tmp_path):
    cell = "#@save\n# (b, n, d)，批量在前\ndef f():\n    '''位置编码'''\n    0  # 暂退法\n# last"
    assert cell.removeprefix("#@save\n") in generate(tmp_path, cell)


DEF_F = "#@save\ndef f():\n    pass"
REFUSED = {
    "mark above nothing": (["#@save"], "nothing to save"),
    "only a comment": (["#@save\n# later"], "nothing to save"),
    "only a docstring": (['#@save\n"""text"""'], "only imports"),
    "if and else": (["#@save\nif 1:\n    X = 1\nelse:\n    X = 2"], "line 2: only imports"),
    "call": (["#@save\nimport math\nmath.sqrt(2)"], "line 3: only imports"),
    "small letters": (["#@save\nlimit = 3"], "only imports"),
    "part of a list": (["#@save\nX = [1]\nX[0] = 2"], "line 3: only imports"),
    "unpacking": (["#@save\nA, B = 1, 2"], "only imports"),
    "star import": (["#@save\nfrom math import *"], "only imports (but no `*`)"),
    "declared only": (["#@save\nX: int"], "only imports"),
    "one line": (["#@save\nimport math; import json"], "one statement on a line"),
    "mark behind def": (["@property\ndef f(self): #@save\n    pass"], "'#@save' saves nothing"),
    "mark behind code": (["def f(): pass  #@save"], "line 1: '#@save' saves nothing"),
    "mark on line 2": (["import math\n#@save\ndef f():\n    pass"], "line 2: '#@save' saves"),
    "mark after a blank line": (["\n" + DEF_F], "line 2: '#@save' saves nothing"),
    "mark twice": ([DEF_F + "\n#@save\ndef g():\n    pass"], "line 4: '#@save' saves nothing"),
    "spelling: # @save": (["# @save\ndef f():\n    pass"], "the mark is #@save and is the whole"),
    "spelling: #@ save": (["#@ save\ndef f():\n    pass"], "the mark is #@save"),
    "spelling: #@Save": (["#@Save\ndef f():\n    pass"], "the mark is #@save"),
    "words behind the mark": (["#@save this\ndef f():\n    pass"], "the mark is #@save"),
    "mark in a body": (["def f():\n    return 1  # see #@save"], "line 2: '# see #@save'"),
    "magic": (["#@save\n%matplotlib inline\ndef f():\n    pass"], "line 2: not Python"),
    "shell": (["#@save\ndef f():\n    pass\n!ls"], "line 4: not Python"),
    "cell magic": (["%%time\n#@save\ndef f():\n    pass"], "line 1: not Python"),
    "syntax": (["#@save\ndef f(:\n    pass"], "line 2: not Python"),
    "stray return": (["#@save\ndef f():\n    pass\nreturn"], "line 4: not Python"),
    "call in a constant": (["#@save\nX = [\n  len('')]"], "line 3: a call outside of a function"),
    "call in a default": (["#@save\ndef f(x=dict()):\n    pass"], "line 2: a call outside"),
    "call in a lambda's": (["#@save\nF = lambda x=dict(): x"], "line 2: a call outside"),
    "call in a class": (["#@save\nclass A:\n    b = dict()"], "line 3: a call outside"),
    "call in a base": (["#@save\nclass A(type('B', (), {})):\n    pass"], "a call outside"),
    "call in a method's": (
        ["#@save\nclass A:\n    def f(self, x=dict()):\n        pass"],
        "line 3: a call outside",
    ),
    "relative": (["#@save\nfrom . import x"], "line 2: a relative import cannot be saved"),
    "relative deep down": (["#@save\ndef f():\n    from .x import y"], "line 3: a relative"),
    "other d2l": (["#@save\nfrom d2l import torch"], "line 2: an import of the package d2l"),
    "other d2l deep down": (["#@save\ndef f():\n    import d2l.torch"], "line 3: an import of"),
    "saved twice": ([DEF_F] * 2, "cell b: f is saved already by chapters/en/page.ipynb, cell a"),
    "twice in a cell": (["#@save\nX = 1\nX = 2"], "X is saved already"),
    "import, then def": (["#@save\nimport f", DEF_F], "f is saved already"),
    "two imports": (["#@save\nimport math as m\nimport json as m"], "m is saved already"),
    "unknown name": (["import math", "#@save\ndef f():\n    return math.pi"], "math is used but"),
    "unknown base": (["#@save\nclass A(Base):\n    pass"], "Base is used but neither"),
    "unknown default": (["#@save\ndef f(x=size):\n    pass"], "size is used but neither"),
    "unknown deep down": (["#@save\ndef f():\n    return lambda: [y for _ in '']"], "y is used"),
    "later name": (["#@save\ndef f():\n    return g()", "#@save\ndef g():\n    0"], "g is used"),
    "class scope": (["#@save\nclass A:\n    B = 1\n    def f(self):\n        B"], "B is used but"),
    "notebook's display": (["#@save\ndef f():\n    display(1)"], "display is used but neither"),
    "its own module": (
        ["#@save\ndef f():\n    from d2l_local.torch import g\n    return g"],
        "a saved cell cannot import d2l_local.torch",
    ),
    "nobody saves it": ([DEF_F, "from d2l_local.torch import g"], "cell b: d2l_local.torch.g is"),
    "star": ([DEF_F, "from d2l_local.torch import *"], "d2l_local.torch.* is used, but no"),
    "no such module": ([DEF_F, "from d2l_local import jax"], "d2l_local.jax, which no notebook"),
    "saved here": ([DEF_F, "from d2l_local.torch import f"], "in the notebook that saves it"),
    "attribute": ([DEF_F, "from d2l_local import torch as d\nd.f()"], "torch.f is used in the"),
    "alias": ([DEF_F, "import d2l_local.torch as d", "d.g.h"], "cell c: d2l_local.torch.g is"),
    "whole path": ([DEF_F, "import d2l_local.torch\nd2l_local.torch.g"], "torch.g is used, but"),
    "nothing saved": (["x = 1"], "nothing to save"),
}


@pytest.mark.parametrize("cells, message", REFUSED.values(), ids=REFUSED)
def test_refused_in_one_sentence_that_names_notebook_and_cell(cells, message, tmp_path, capsys):
    make_book(tmp_path, {"page": dict(zip("abc", cells, strict=False))})
    assert save.main([], tmp_path) == 1
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    assert message in printed.err
    if message != "nothing to save":
        assert printed.err.startswith("chapters/en/page.ipynb, cell ")
    assert not (tmp_path / "d2l_local").exists()


def test_a_name_belongs_to_one_notebook(tmp_path):
    make_book(tmp_path, {"one": {"a": DEF_F}, "two": {"b": DEF_F}})
    with pytest.raises(BookError, match="two.ipynb, cell b: f is saved already by .*one.ipynb"):
        save.generate(tmp_path)


USE_F = "from d2l_local import torch as d2l\nd2l.f()"


def test_notebooks_use_what_earlier_ones_save_and_the_toolbox_comes_first(tmp_path):
    second = {"b": USE_F, "c": "#@save\ndef g():\n    return f()"}
    make_book(tmp_path, {"one": {"a": DEF_F}, "two": second})
    assert "def g" in save.generate(tmp_path)[MODULE]
    make_book(tmp_path, {"two": second, "toolbox": {"a": DEF_F}})
    module = save.generate(tmp_path)[MODULE]
    assert module.index("def f") < module.index("def g")
    make_book(tmp_path, {"two": {"b": USE_F}, "one": {"a": DEF_F}})
    with pytest.raises(BookError, match="two.ipynb, cell b: .*torch.f is used before .*cell a"):
        save.generate(tmp_path)


def test_names_that_the_module_computes_count_as_saved(tmp_path):
    getattr_cell = "#@save\ndef __getattr__(name):\n    if name == 'plt':\n        return 1"
    use = "import d2l_local.torch as d2l\nd2l.plt.show(d2l.__name__)"
    make_book(tmp_path, {"one": {"a": getattr_cell}, "two": {"b": use}})
    assert "__all__ = [\n]" in save.generate(tmp_path)[MODULE]
    use = use.replace("plt", "pit")
    make_book(tmp_path, {"one": {"a": getattr_cell}, "two": {"b": use}})
    with pytest.raises(BookError, match="torch.pit is used, but no notebook saves it"):
        save.generate(tmp_path)


@pytest.mark.parametrize(
    "code, uses",
    [
        ("import d2l_local.torch as t\nt.a.b", {("torch", None), ("torch", "a")}),
        ("from d2l_local.torch import a as b, c", {("torch", "a"), ("torch", "c")}),
        ("import d2l_local as d\nd.torch.a, d.__file__", {("torch", None), ("torch", "a")}),
        ("from d2l_local import torch\nf(torch).a; x.torch.b", {("torch", None)}),
        ("import d2l_local_2.torch as d\nd.a\nfrom d2l import torch as e\ne.b", set()),
    ],
)
def test_uses_of_the_package(code, uses):
    tree = ast.parse(code)
    assert package_uses(tree, package_aliases(tree)) == uses


def test_layout_of_the_module(tmp_path):
    module = generate(
        tmp_path,
        "#@save\nfrom __future__ import annotations\nimport math\nfrom torch import ones as ones",
        "x = 1",
        "#@save\n\n\ndef b():\n    return math.pi\n\n",
        "#@save\nimport math\nfrom torch import (\n ones as ones\n)\nimport json  # read\n\nA = 1",
        "#@save\nimport math\n",
        "#@save\ndef _hidden():\n    return json",
    )
    assert module == (
        '"""Functions of the chapter on self-attention and positional encoding, for PyTorch."""\n\n'
        "# Generated from the notebooks' #@save cells by `python -m tools.save`: edit the"
        " notebooks, not this file.\n# ruff: noqa: E402, I001\n\n"
        "from __future__ import annotations\n\n"
        '__all__ = [\n    "A",\n    "b",\n    "ones",\n]\n\n\n'
        "# %% chapters/en/page.ipynb#a\nimport math\nfrom torch import ones as ones\n\n\n"
        "# %% chapters/en/page.ipynb#c\ndef b():\n    return math.pi\n\n\n"
        "# %% chapters/en/page.ipynb#d\nimport json  # read\n\nA = 1\n\n\n"
        "# %% chapters/en/page.ipynb#f\ndef _hidden():\n    return json\n"
    )


def test_importing_a_name_again_from_the_same_place_is_allowed(tmp_path):
    cells = ["#@save\nfrom math import pi, e", "#@save\nfrom math import pi, sin"]
    assert body(generate(tmp_path, *cells))[-1].names[1].name == "sin"


def test_one_module_for_each_framework(tmp_path):
    pages = {"one": {"a": DEF_F}, "frameworks/jax": {"b": DEF_F, "c": USE_F}}
    files = save.generate(make_book(tmp_path, pages))
    assert set(files) == {"d2l_local/__init__.py", MODULE, "d2l_local/jax.py"}
    assert "for JAX" in files["d2l_local/jax.py"]
    make_book(tmp_path, {"frameworks/keras": {"b": DEF_F}})
    with pytest.raises(BookError, match="keras.ipynb, cell b: there is no framework keras"):
        save.generate(tmp_path)


PREPARED = {
    "a": "#@save\nimport numpy\n\nnumpy.bool = numpy.bool_  # gone from NumPy",
    "b": "#@save\nfrom mxnet import np, npx\n\nnpx.set_np()",
}


def test_mxnet_may_prepare_its_import(tmp_path):
    files = save.generate(make_book(tmp_path, {"frameworks/mxnet": PREPARED}))
    lines = [ast.unparse(statement) for statement in body(files["d2l_local/mxnet.py"])]
    prepared = ["import numpy", "numpy.bool = numpy.bool_"]
    assert lines == [*prepared, "from mxnet import np, npx", "npx.set_np()"]


@pytest.mark.parametrize("name", ["page", "frameworks/jax", "frameworks/mxnet"])
@pytest.mark.parametrize(
    "source, message",
    [
        ("import numpy\nnumpy.int = numpy.int_", "line 3: only imports"),
        ("from mxnet import npx\nnpx.reset_np()", "line 3: only imports"),
        ("import numpy; numpy.bool = numpy.bool_", "line 2: "),
        ("numpy.bool = numpy.bool_", "only imports|numpy is used but neither"),
    ],
)
def test_no_other_preparation_is_saved(name, source, message, tmp_path):
    make_book(tmp_path, {name: {"a": f"#@save\n{source}"}})
    with pytest.raises(BookError, match=message):
        save.generate(tmp_path)


@pytest.mark.parametrize("name", ["page", "frameworks/jax"])
def test_no_other_framework_prepares_its_import(name, tmp_path):
    for source in PREPARED.values():
        make_book(tmp_path, {name: {"a": source}})
        with pytest.raises(BookError, match="only imports"):
            save.generate(tmp_path)


def test_missing_or_broken_notebooks(tmp_path, capsys):
    make_book(tmp_path, {"page": {"a": DEF_F}})
    notebook = tmp_path / "chapters" / "en" / "page.ipynb"
    text = notebook.read_text(encoding="utf-8")
    broken = {
        "not a readable notebook": text[:-10],
        "have no ids": '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}',
        "'id' is a required property": text.replace('"id": "a",', ""),
    }
    for message, content in broken.items():
        notebook.write_text(content, encoding="utf-8")
        assert save.main([], tmp_path) == 1
        error = capsys.readouterr().err
        assert error.startswith("chapters/en/page.ipynb: ") and error.count("\n") == 1
        assert message in error or "missing an id" in error
    notebook.unlink()
    assert save.main([], tmp_path) == 1
    assert capsys.readouterr().err == "_toc.yml names chapters/en/page: 0 files\n"


@pytest.mark.parametrize("text", ["", "- a", "root: [", "root: a\nparts: 3", "parts: []"])
def test_broken_contents_are_named(text, tmp_path, capsys):
    make_book(tmp_path, {"page": {"a": DEF_F}})
    (tmp_path / "_toc.yml").write_text(text, encoding="utf-8")
    for main in (save.main, run.main):
        assert main([], tmp_path) == 1
        error = capsys.readouterr().err
        assert error.startswith("_toc.yml: ") and error.count("\n") == 1


@pytest.fixture
def book(tmp_path):
    """A book whose package is written."""
    make_book(tmp_path, {"page": {"a": '#@save\ndef f():\n    """位置编码"""\n    return 0.5'}})
    for name, text in {"figures/turn.js": "// 旋转\n", "data/times.json": '{"n": 1}\n'}.items():
        path = tmp_path / "chapters" / name
        path.parent.mkdir()
        path.write_text(text, encoding="utf-8")
    assert save.main([], tmp_path) == 0
    return tmp_path


def test_saving_again_writes_nothing(book, capsys):
    files = {path: path.stat().st_mtime_ns for path in (book / "d2l_local").rglob("*")}
    assert len(files) == 5
    capsys.readouterr()
    assert save.main([], book) == 0 and save.main(["--check"], book) == 0
    assert files == {path: path.stat().st_mtime_ns for path in (book / "d2l_local").rglob("*")}
    assert capsys.readouterr().out == ""
    assert (book / MODULE).read_bytes() == (book / MODULE).read_bytes().replace(b"\r", b"")
    assert (book / "d2l_local/data/turn.js").read_text(encoding="utf-8") == "// 旋转\n"


def edit(book, name, old, new):
    path = book / name
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))


DRIFT = {
    "literal in a notebook": lambda b: edit(b, "chapters/en/page.ipynb", b"0.5", b"0.25"),
    "module by hand": lambda b: edit(b, MODULE, b"0.5", b"0.25"),
    "line ends": lambda b: edit(b, MODULE, b"\n", b"\r\n"),
    "figure": lambda b: edit(b, "chapters/figures/turn.js", b"//", b"/*"),
    "stored data": lambda b: edit(b, "chapters/data/times.json", b"1", b"2"),
    "missing file": lambda b: (b / "d2l_local" / "__init__.py").unlink(),
    "extra file": lambda b: (b / "d2l_local" / "data" / "old.json").write_bytes(b"{}"),
    "empty extra file": lambda b: (b / "d2l_local" / "extra.py").touch(),
}


@pytest.mark.parametrize("drift", DRIFT.values(), ids=DRIFT)
def test_check_finds_each_drift_and_saving_mends_it(drift, book, capsys):
    drift(book)
    before = {path: path.read_bytes() for path in (book / "d2l_local").rglob("*.*")}
    assert save.main(["--check"], book) == 1
    printed = capsys.readouterr()
    assert "run python -m tools.save" in printed.err
    assert printed.out.startswith("d2l_local/") and printed.out.count("\n") >= 1
    assert before == {path: path.read_bytes() for path in (book / "d2l_local").rglob("*.*")}
    assert save.main([], book) == 0 and save.main(["--check"], book) == 0


def test_what_cannot_be_written_is_told_in_one_sentence(book, capsys):
    shutil.rmtree(book / "d2l_local")
    (book / "d2l_local").touch()
    assert save.main([], book) == 1
    error = capsys.readouterr().err
    assert "d2l_local" in error and error.count("\n") == 1


@pytest.mark.parametrize("name", ["chapters/data/times.json", "chapters/en/page.ipynb"])
def test_a_file_that_is_not_utf_8_is_named(name, book, capsys):
    (book / name).write_bytes(b"\xff")
    assert save.main([], book) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"{name}: ") and error.count("\n") == 1


def test_measuring_begins_only_if_its_file_can_be_written(tmp_path, monkeypatch, capsys):
    (tmp_path / "chapters" / "data" / "architectures.json").mkdir(parents=True)
    monkeypatch.setattr(measure, "ROOT", tmp_path)
    monkeypatch.setitem(measure.STORED, "attention", lambda: pytest.fail("measured"))
    assert measure.main([]) == 1
    error = capsys.readouterr().err
    assert "architectures.json" in error and error.count("\n") == 1
    assert not (tmp_path / "chapters" / "data" / "attention.json").exists()


def test_check_shows_a_unified_diff(book, capsys):
    edit(book, MODULE, b"0.5", b"0.25")
    save.main(["--check"], book)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [f"{MODULE}: stale", f"--- {MODULE}", f"+++ {MODULE}"]
    assert "-    return 0.25" in lines and "+    return 0.5" in lines


def test_check_ignores_caches(book):
    cache = book / "d2l_local" / "__pycache__"
    cache.mkdir()
    (cache / "torch.cpython-311.pyc").write_bytes(b"\xff")
    assert save.main(["--check"], book) == 0


def test_works_where_the_locale_knows_no_chinese(book):
    """As on Windows: opening a file without naming the encoding is an error here."""
    shutil.copytree(ROOT / "tools", book / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(book / "d2l_local")
    strict = [sys.executable, "-X", "warn_default_encoding", "-W", "error::EncodingWarning"]
    environment = {**os.environ, "PYTHONUTF8": "0", "LC_ALL": "C"}
    environment.pop("PYTHONIOENCODING", None)

    def python(*arguments):
        command = [*strict, *arguments]
        return subprocess.run(command, cwd=book, env=environment, capture_output=True, text=True)

    assert python("-m", "tools.save").stderr == ""
    edit(book, MODULE, "位置编码".encode(), "编码".encode())
    check = python("-m", "tools.save", "--check")
    assert check.returncode == 1 and "\\u4f4d" in check.stdout and "Traceback" not in check.stderr
    assert python("-m", "tools.save").stderr == ""
    imported = python("-c", "from d2l_local import torch as d; print(ascii(d.f.__doc__), d.f())")
    assert ascii("位置编码") in imported.stdout and imported.stderr == ""


# The package of this book


def test_the_package_is_what_the_notebooks_save(capsys):
    assert save.main(["--check"]) == 0, capsys.readouterr().out


def test_the_linter_finds_no_unknown_or_doubled_name_in_the_package():
    assert len(list((ROOT / "d2l_local").glob("*.py"))) >= 2
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--select=F", "d2l_local"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout


def test_importing_the_package_loads_no_framework_and_every_public_name_is_there():
    code = (
        "import sys, d2l_local; assert 'torch' not in sys.modules;"
        "from d2l_local import torch as d2l; print(sum(hasattr(d2l, n) for n in d2l.__all__));"
        "assert 'matplotlib' not in sys.modules; print(len(d2l.__all__))"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    there, public = map(int, run.stdout.split())
    assert there == public >= 10


def isinstance_of_own_classes(module):
    """Where a module asks for a class of its own. A notebook that defines the class again
    has another one, for which the answer is no."""
    tree = ast.parse(module)
    own = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass")
        if own & {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
    ]


def test_the_package_asks_for_no_class_that_a_notebook_defines():
    wrong = "class A:\n    pass\ndef f(x):\n    return isinstance(x, (int, A))"
    assert isinstance_of_own_classes(wrong) == ["isinstance(x, (int, A))"]
    modules = list((ROOT / "d2l_local").glob("*.py"))
    assert len(modules) >= 2
    for path in modules:
        assert isinstance_of_own_classes(path.read_text(encoding="utf-8")) == []
