"""Which pages the book has, in which order, and what stands in a notebook."""

import ast
import warnings
from pathlib import Path

import nbformat
import yaml

ROOT = Path(__file__).resolve().parents[1]
EDITIONS = {"en": ROOT / "_toc.yml", "zh": ROOT / "chapters" / "zh" / "_toc.yml"}
SETUP_ID = "setup"  # the id of the set-up cell, the same in every notebook
PACKAGE = "d2l_local"
FRAMEWORKS = {
    "torch": "PyTorch",
    "tensorflow": "TensorFlow",
    "paddle": "Paddle",
    "mxnet": "MXNet",
    "jax": "JAX",
}


class BookError(ValueError):
    """A mistake in the files of the book, told in one sentence."""


def contents_file(edition, root=ROOT):
    return root / EDITIONS[edition].relative_to(ROOT)


def editions(root=ROOT):
    """The editions of this checkout: English always, and Chinese once it is there."""
    found = [edition for edition in EDITIONS if contents_file(edition, root).is_file()]
    return ["en", *(edition for edition in found if edition != "en")]


def pages(edition, root=ROOT):
    """The source files of an edition's pages, in the order of its table of contents."""
    toc = contents_file(edition, root)
    contents = read_yaml(toc, root)
    try:
        names = [contents["root"]]
        for part in contents.get("parts", [contents]):
            names += [chapter["file"] for chapter in part.get("chapters", [])]
    except (AttributeError, KeyError, TypeError):
        raise BookError(
            f"{label(toc, root)}: needs a `root`, and `chapters` that each name a `file`"
        ) from None
    found = []
    for name in names:
        files = [root / f"{name}{suffix}" for suffix in (".ipynb", ".md")]
        existing = [file for file in files if file.is_file()]
        if len(existing) != 1:
            raise FileNotFoundError(f"{label(toc, root)} names {name}: {len(existing)} files")
        found += existing
    return found


def notebooks(edition, root=ROOT):
    """The notebooks among the pages of an edition, in the same order."""
    return [page for page in pages(edition, root) if page.suffix == ".ipynb"]


def label(path, root=ROOT):
    """How a message or a generated file names `path`: from the root on, with forward slashes."""
    path, root = Path(path).resolve(), root.resolve()
    return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()


def read_text(path, root=ROOT):
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BookError(f"{label(path, root)}: not UTF-8 ({error.reason})") from None


def read_yaml(path, root=ROOT):
    """The settings or the contents that a YAML file holds."""
    try:
        held = yaml.safe_load(read_text(path, root))
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise BookError(f"{label(path, root)}: not YAML ({reason})") from None
    if not isinstance(held, dict):
        raise BookError(f"{label(path, root)}: holds no names with values")
    return held


def framework(path):
    """PyTorch's `torch`, or the name of a notebook in the folder `frameworks`."""
    return path.stem if path.parent.name == "frameworks" else "torch"


def read(path, root=ROOT):
    """A notebook whose cells all have an id of their own; a broken one raises BookError."""
    if not path.is_file():
        raise BookError(f"{label(path, root)}: there is no such file")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # nbformat only warns of missing or repeated ids
            notebook = nbformat.read(path, as_version=4)
            nbformat.validate(notebook)
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise BookError(f"{label(path, root)}: not a readable notebook ({reason})") from None
    if notebook.nbformat_minor < 5:
        raise BookError(f"{label(path, root)}: the cells have no ids; save it as nbformat 4.5")
    return notebook


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def parse(source, where):
    """The syntax tree of a code cell, which must be plain Python."""
    try:
        compile(source, where, "exec", dont_inherit=True)  # also finds a stray `return`
    except SyntaxError as error:
        line = (error.text or "").strip()
        raise BookError(
            f"{where}, line {error.lineno}: not Python ({error.msg}): {line}"
            " (magics and shell lines are no Python either)"
        ) from None
    return ast.parse(source)


def package_aliases(tree):
    """What local names stand for: () is the package, ("torch",) its module `torch`."""
    aliases = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                package, *module = name.name.split(".")
                if package == PACKAGE:
                    aliases[name.asname or package] = tuple(module) if name.asname else ()
        elif isinstance(node, ast.ImportFrom) and node.module == PACKAGE:
            aliases |= {name.asname or name.name: (name.name,) for name in node.names}
    return aliases


def package_uses(tree, aliases):
    """What code takes from the package: pairs of a module and a name in it, or None where
    the code takes the module itself."""
    uses = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            paths = [name.name.split(".") for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            paths = [[*node.module.split("."), name.name] for name in node.names]
        elif isinstance(node, ast.Attribute) and dotted(node)[0] in aliases:
            base, *names = dotted(node)
            paths = [[PACKAGE, *aliases[base], *names]]
        else:
            continue
        for package, module, name, *_ in ([*path, None, None] for path in paths):
            if package == PACKAGE and module is not None and not module.startswith("__"):
                uses.add((module, name))
    return uses


def dotted(node):
    """The parts of `a.b.c`; the first is "" where it is not a plain name."""
    if isinstance(node, ast.Attribute):
        return [*dotted(node.value), node.attr]
    return [node.id] if isinstance(node, ast.Name) else [""]
