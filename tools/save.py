"""Write the package d2l_local from the notebooks' `#@save` cells:  python -m tools.save [--check]

A code cell whose first line is `#@save` is saved whole. Such a cell holds only imports,
functions, classes and UPPER_CASE constants; what cannot be saved exactly as it stands is
refused. Only MXNet has two statements more (PREPARATIONS). The notebooks are those of the
English edition.
"""

import argparse
import ast
import builtins
import difflib
import io
import re
import symtable
import sys
import tokenize
from dataclasses import dataclass, field
from pathlib import Path

from tools.notebooks import (
    FRAMEWORKS,
    PACKAGE,
    ROOT,
    BookError,
    code_cells,
    framework,
    label,
    notebooks,
    package_aliases,
    package_uses,
    parse,
    read,
    read_text,
)

FIRST = "toolbox"  # an appendix whose helpers the other notebooks use
MARK = "#@save"
LIKE_THE_MARK = re.compile(r"#\s*@\s*save", re.IGNORECASE)
CONSTANT = re.compile(r"_*[A-Z][A-Z0-9_]*")
# What a framework needs at its import and a saved cell may hold, word for word: MXNet asks NumPy
# for a name that NumPy 1.24 dropped, and has arrays like NumPy's only after `set_np`.
PREPARATIONS = {"mxnet": {"numpy.bool = numpy.bool_", "npx.set_np()"}}
# What a module has without defining it
GIVEN = {*dir(builtins), "__name__", "__doc__", "__file__", "__package__", "__spec__"}

GENERATED = (
    "# Generated from the notebooks' #@save cells by `python -m tools.save`:"
    " edit the notebooks, not this file."
)
PACKAGE_TEXT = f'''"""The chapter on self-attention and positional encoding as a package.

Usage: `from {PACKAGE} import torch as d2l`
"""

{GENERATED}
'''


@dataclass
class Cell:
    path: Path
    where: str  # how a message names the cell
    origin: str  # how the module names it
    source: str
    tree: ast.Module
    saved: bool


def load(path, root):
    """The code cells of a notebook."""
    name = label(path, root)
    cells = []
    for cell in code_cells(read(path, root)):
        where = f"{name}, cell {cell.id}"
        source = cell.source.replace("\r\n", "\n")
        tree = parse(source, where)
        cells.append(Cell(path, where, f"{name}#{cell.id}", source, tree, marked(source, where)))
    return cells


def marked(source, where):
    """Whether the first line is the mark; a mark anywhere else, or a similar one, is refused."""
    saved = False
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if token.start == (1, 0) and token.string == MARK:
            saved = True
        elif LIKE_THE_MARK.search(token.string):
            raise BookError(
                f"{where}, line {token.start[0]}: {token.string!r} saves nothing;"
                f" the mark is {MARK} and is the whole first line of the cell"
            )
    return saved


@dataclass
class Module:
    """What is saved into one module: cells are added in the order of the pages."""

    name: str
    names: dict = field(default_factory=dict)  # name: (the cell that saves it, what it imports)
    public: set = field(default_factory=set)
    imports: set = field(default_factory=set)
    future: set = field(default_factory=set)
    blocks: list = field(default_factory=list)
    computed: set = field(default_factory=set)  # what its function __getattr__ knows

    def add(self, cell):
        others = [statement for statement in cell.tree.body if not self.prepares(statement)]
        check_statements(cell, others)
        check_imports(cell)
        check_calls(cell, others)
        for statement in others:
            self.define(statement, cell)
        self.check_names(cell)
        text = self.text(cell)
        if text:
            self.blocks.append(f"# %% {cell.origin}\n{text}\n")

    def prepares(self, statement):
        return ast.unparse(statement) in PREPARATIONS.get(self.name, ())

    def define(self, statement, cell):
        for name, imported, public in definitions(statement):
            if name in self.names:
                owner, earlier = self.names[name]
                if imported is None or imported != earlier:
                    raise BookError(f"{cell.where}: {name} is saved already by {owner.where}")
            else:
                self.names[name] = (cell, imported)
            if public:
                self.public.add(name)
            if name == "__getattr__":
                self.computed = {
                    node.value for node in ast.walk(statement) if isinstance(node, ast.Constant)
                }

    def check_names(self, cell):
        """Refuse names that importing the module, or calling its functions, would not find."""
        used = used_names(symtable.symtable(cell.source, cell.where, "exec"))
        for name in sorted(used - GIVEN - self.names.keys()):
            raise BookError(f"{cell.where}: {name} is used but neither imported nor saved before")
        for module, _ in package_uses(cell.tree, package_aliases(cell.tree)):
            if module == self.name:
                raise BookError(
                    f"{cell.where}: a saved cell cannot import {PACKAGE}.{module}, its own module"
                )

    def text(self, cell):
        """The source below the mark, without imports that the module has already."""
        lines = cell.source.split("\n")
        for statement in cell.tree.body:
            if not isinstance(statement, (ast.Import, ast.ImportFrom)):
                continue
            code = ast.unparse(statement)
            if code.startswith("from __future__"):
                self.future.add(code)
            elif code not in self.imports:
                self.imports.add(code)
                continue
            for number in range(statement.lineno, statement.end_lineno + 1):
                lines[number - 1] = None
        return "\n".join(line for line in lines[1:] if line is not None).strip("\n")

    def render(self):
        """The text of the module."""
        head = [
            '"""Functions of the chapter on self-attention and positional encoding,'
            f' for {FRAMEWORKS[self.name]}."""',
            "",
            GENERATED,
            "# ruff: noqa: E402, I001",  # each cell keeps its own imports
            "",
        ]
        if self.future:
            head += [*sorted(self.future), ""]
        names = [f'    "{name}",' for name in sorted(self.public)]
        head += ["__all__ = [", *names, "]", ""]
        return "\n\n".join(["\n".join(head), *self.blocks])


def check_statements(cell, others):
    """Refuse a saved cell in which `others`, all but preparations, are anything but definitions,
    or which has two statements on a line."""
    if not cell.tree.body:
        raise BookError(f"{cell.where}: there is nothing to save below {MARK}")
    end_of_last = 0
    for statement in cell.tree.body:
        if statement in others and not is_definition(statement):
            raise BookError(
                f"{cell.where}, line {statement.lineno}: only imports (but no `*`), functions,"
                " classes and UPPER_CASE constants can be saved"
            )
        if statement.lineno == end_of_last:
            raise BookError(f"{cell.where}, line {end_of_last}: write one statement on a line")
        end_of_last = statement.end_lineno


def check_imports(cell):
    """Refuse imports of what is not where the package is: a neighbour file, another `d2l`."""
    for node in ast.walk(cell.tree):
        where = f"{cell.where}, line {getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.ImportFrom) and node.level:
            raise BookError(f"{where}: a relative import cannot be saved")
        if isinstance(node, ast.ImportFrom):
            modules = [node.module]
        else:
            modules = [name.name for name in node.names] if isinstance(node, ast.Import) else []
        if any(module.partition(".")[0] == "d2l" for module in modules):
            raise BookError(f"{where}: an import of the package d2l cannot be saved")


def check_calls(cell, statements):
    """Refuse what importing the module would call, except decorators."""
    for node in run_on_import(ast.Module(statements, [])):
        if isinstance(node, ast.Call):
            raise BookError(
                f"{cell.where}, line {node.lineno}: a call outside of a function cannot be saved"
            )


def run_on_import(node):
    """The parts of the code that importing it runs: no bodies of functions, no decorators."""
    yield node
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            parts = [node.args, *filter(None, [node.returns])]
        case ast.Lambda():
            parts = [node.args]
        case ast.ClassDef():
            parts = [*node.bases, *node.keywords, *node.body]
        case _:
            parts = ast.iter_child_nodes(node)
    for part in parts:
        yield from run_on_import(part)


def is_definition(statement):
    match statement:
        case ast.Import() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return True
        case ast.ImportFrom():
            return statement.names[0].name != "*"
        case ast.Assign() | ast.AnnAssign(value=ast.expr()):
            return all(
                isinstance(target, ast.Name) and CONSTANT.fullmatch(target.id)
                for target in targets(statement)
            )
    return False


def targets(assignment):
    return getattr(assignment, "targets", None) or [assignment.target]


def definitions(statement):
    """The names that a statement defines: (name, what it imports or None, public or not)."""
    match statement:
        case ast.Import():
            for name in statement.names:
                package = name.name.partition(".")[0]
                yield name.asname or package, name.name if name.asname else package, False
        case ast.ImportFrom():
            for name in statement.names:
                source = (statement.level, statement.module, name.name)
                yield name.asname or name.name, source, name.asname == name.name
        case ast.Assign() | ast.AnnAssign():
            for target in targets(statement):
                yield target.id, None, not target.id.startswith("_")
        case _:
            yield statement.name, None, not statement.name.startswith("_")


def used_names(table):
    """The names that code looks up in its module or in builtins, in functions too."""
    symbols = [symbol for symbol in table.get_symbols() if symbol.is_referenced()]
    names = {symbol.get_name() for symbol in symbols if symbol.is_global()}
    return names.union(*map(used_names, table.get_children()))


def check_uses(cells, modules, order):
    """Refuse that a notebook takes from the package what an earlier one has not saved."""
    tree = ast.Module([statement for cell in cells for statement in cell.tree.body], [])
    aliases = package_aliases(tree)
    for cell in cells:
        for module, name in sorted(package_uses(cell.tree, aliases), key=str):
            problem = wrong_use(cell.path, module, name, modules, order)
            if problem:
                raise BookError(f"{cell.where}: {PACKAGE}.{module}{problem}")


def wrong_use(path, module, name, modules, order):
    """Why the notebook `path` cannot use `name` of a module; None if it can."""
    if module not in modules:
        return ", which no notebook saves, is imported"
    if name is None or name.startswith("__") or name in modules[module].computed:
        return None
    owner, _ = modules[module].names.get(name, (None, None))
    if owner is None:
        return f".{name} is used, but no notebook saves it"
    if owner.path == path:
        return f".{name} is used in the notebook that saves it; use {name} alone"
    if order.index(owner.path) > order.index(path):
        return f".{name} is used before {owner.where} saves it"
    return None


def generate(root=ROOT):
    """The files of the package: {path from the root on, with forward slashes: text}."""
    order = sorted(notebooks("en", root), key=lambda path: path.stem != FIRST)
    cells = {path: load(path, root) for path in order}
    modules = {}
    for path in order:
        for cell in cells[path]:
            if cell.saved:
                name = framework(path)
                if name not in FRAMEWORKS:
                    raise BookError(f"{cell.where}: there is no framework {name}")
                modules.setdefault(name, Module(name)).add(cell)
    if not modules:
        raise BookError(f"no code cell begins with {MARK}, so there is nothing to save")
    for path in order:
        check_uses(cells[path], modules, order)
    files = {f"{PACKAGE}/__init__.py": PACKAGE_TEXT}
    files |= {f"{PACKAGE}/{name}.py": module.render() for name, module in modules.items()}
    for source in ("figures/*.js", "data/*.json"):
        for path in sorted((root / "chapters").glob(source)):
            files[f"{PACKAGE}/data/{path.name}"] = read_text(path, root)
    return files


def on_disk(root):
    """The files of the package as they are; `\r\n` is kept, for it would be wrong."""
    return {
        label(path, root): path.read_bytes().decode("utf-8", "replace")
        for path in sorted((root / PACKAGE).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def differences(found, wanted):
    """What to change in the files found, file by file, as a unified diff."""
    for name in sorted(found.keys() | wanted.keys()):
        if found.get(name) != wanted.get(name):
            state = "missing" if name not in found else "stale" if name in wanted else "extra"
            yield f"{name}: {state}"
            old, new = (files.get(name, "").split("\n") for files in (found, wanted))
            yield from difflib.unified_diff(old, new, name, name, lineterm="")


def write(found, wanted, root):
    """Make the package on disk the one wanted, and say what changed."""
    for name in sorted(found.keys() - wanted.keys()):
        (root / name).unlink()
        print(f"removed {name}")
    for name in sorted(wanted):
        if found.get(name) != wanted[name]:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(wanted[name], encoding="utf-8", newline="\n")
            print(f"wrote {name}")


def main(argv=None, root=ROOT):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only compare, and show the diff")
    check = parser.parse_args(argv).check
    try:
        wanted, found = generate(root), on_disk(root)
        if not check:
            write(found, wanted, root)
    except (BookError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    if check and found != wanted:
        print(*differences(found, wanted), sep="\n")
        print(f"{PACKAGE} is not up to date: run python -m tools.save", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may not know Chinese
    sys.exit(main())
