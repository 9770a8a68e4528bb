"""Run notebooks in place and store what they print and draw:  python -m tools.run [NOTEBOOK ...]

Each is run as "restart and run all", cleaned of what differs between machines, and stamped:
a test recomputes the stamp, so that code without its outputs is found. Without arguments, all
notebooks of all editions are run but those of other frameworks than PyTorch; name these, one
framework at a time, to the Python of their environment (see .ci/frameworks).

`--compare OLD NEW` compares the notebooks below two folders, for a run on another machine:
texts must be equal, the numbers in figures may differ by 0.1 pt.
"""

import argparse
import ast
import hashlib
import importlib.util
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from ipykernel.kernelspec import get_kernel_dict
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from tools.compare import compare
from tools.notebooks import (
    FRAMEWORKS,
    PACKAGE,
    ROOT,
    SETUP_ID,
    BookError,
    code_cells,
    editions,
    framework,
    label,
    notebooks,
    package_aliases,
    package_uses,
    parse,
    read,
)

TIMEOUT = 600  # seconds for one cell
ADDRESS = re.compile(r" at 0x[0-9a-f]+>")
KERNEL = {"name": "python3", "display_name": "Python 3"}


class ThisPython(AsyncKernelManager):
    """A kernel of the interpreter that runs this program, whatever `python3` is elsewhere."""

    @property
    def kernel_spec(self):
        return KernelSpec(**get_kernel_dict())


def environment(root, settings):
    """What makes two runs on one machine equal; `settings` is an empty folder."""
    path = [os.fspath(root), os.environ.get("PYTHONPATH")]  # this checkout's package comes first
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "IPYTHONDIR": settings,  # no start-up files and settings of this user
    }


def execute(notebook, path, root):
    """Run all cells in a new kernel; the first error, or text on stderr, raises BookError."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as settings:
        client = NotebookClient(
            notebook,
            timeout=TIMEOUT,
            kernel_manager_class=ThisPython,
            record_timing=False,
            force_raise_errors=True,  # with the tag `raises-exception` too
            skip_cells_with_tag="",
            extra_arguments=["--log-level=ERROR"],
            resources={"metadata": {"path": str(path.parent)}},
        )
        with client.setup_kernel(env=environment(root, settings)):
            for index, cell in enumerate(notebook.cells):
                problem = execute_cell(client, cell, index)
                if problem:
                    raise BookError(f"{label(path, root)}, cell {cell.id}: {problem}")


def execute_cell(client, cell, index):
    """Run one cell; the problem with it, or None."""
    try:
        client.execute_cell(cell, index)
    except CellExecutionError as error:
        return f"{error.ename}: {error.evalue}".strip().splitlines()[-1]
    except CellTimeoutError:
        return f"not done after {TIMEOUT} seconds"
    except DeadKernelError:
        return "the kernel died"
    for output in cell.get("outputs", []):
        text = output.get("text") or output.get("data", {}).get("text/plain", "")
        if output.get("name") == "stderr":
            return f"it wrote to stderr: {' '.join(text.split())}"
        if ADDRESS.search(text):
            return f"it shows an address, another one in each run: {' '.join(text.split())}"
    return None


def clean(notebook):
    """Keep only what is the same after every run, on every machine."""
    for cell in notebook.cells:
        tags = cell.metadata.get("tags")
        cell.metadata = {"tags": tags} if tags else {}
    for cell in code_cells(notebook):
        cell.outputs = merge_streams(cell.outputs)
        for output in cell.outputs:
            if "metadata" in output:
                output.metadata = {}
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}


def merge_streams(outputs):
    """Join printed texts that follow each other: where the kernel cuts them is chance."""
    merged = []
    for output in outputs:
        last = merged[-1] if merged else {}
        if output.output_type == "stream" and last.get("name") == output.name:
            last.text += output.text
        else:
            merged.append(output)
    return merged


def stamp(path, root=ROOT):
    """A hash of everything the stored outputs of a notebook come from: its code, but for the
    set-up cell, and of the package the modules it imports and the data these two name."""
    name = label(path, root)
    cells = [cell for cell in code_cells(read(path, root)) if cell.id != SETUP_ID]
    trees = [parse(cell.source, f"{name}, cell {cell.id}") for cell in cells]
    tree = ast.Module([statement for tree in trees for statement in tree.body], [])
    modules = sorted({module for module, _ in package_uses(tree, package_aliases(tree))})
    files = [root / PACKAGE / f"{module}.py" for module in modules]
    for file in files:
        if not file.is_file():
            raise BookError(f"{name} imports {label(file, root)}, which is not there")
    trees = [tree, *(ast.parse(file.read_text(encoding="utf-8")) for file in files)]
    texts = {node.value for tree in trees for node in ast.walk(tree) if is_text(node)}
    data = sorted((root / PACKAGE / "data").glob("*"))
    files += [file for file in data if texts & {file.name, file.stem}]
    parts = [cell.source.encode() for cell in cells]
    parts += [file.read_bytes().replace(b"\r\n", b"\n") for file in files]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def is_text(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def run(path, root=ROOT):
    """Run a notebook and store it if anything has changed: (seconds, changed or not)."""
    start = time.perf_counter()
    if importlib.util.find_spec(framework(path)) is None:
        raise BookError(
            f"{label(path, root)}: {FRAMEWORKS[framework(path)]} is not installed here;"
            " .ci/frameworks makes an environment that has it"
        )
    notebook = read(path, root)
    before = path.read_bytes()
    execute(notebook, path, root)
    clean(notebook)
    notebook.metadata["d2l_stamp"] = stamp(path, root)
    after = (nbformat.writes(notebook) + "\n").encode()
    if path.read_bytes() != before:
        raise BookError(f"{label(path, root)}: the file was changed while it was run; run it again")
    if after != before:
        path.write_bytes(after)
    return time.perf_counter() - start, after != before


def run_all(paths, root):
    every = paths or [path for edition in editions(root) for path in notebooks(edition, root)]
    left_out = [] if paths else [path for path in every if framework(path) != "torch"]
    for path in every:
        if path not in left_out:
            seconds, changed = run(path, root)
            state = "changed" if changed else "unchanged"
            print(f"{label(path, root)}: {seconds:.1f} s, {state}", flush=True)
    for path in left_out:
        name = FRAMEWORKS[framework(path)]
        print(f"{label(path, root)}: left out, for {name} has an environment of its own")


def main(argv=None, root=ROOT):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path, metavar="NOTEBOOK")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("OLD", "NEW"))
    arguments = parser.parse_args(argv)
    try:
        if arguments.compare:
            problems = list(compare(*arguments.compare))
            print("".join(f"{problem}\n" for problem in problems), end="")
            return 1 if problems else 0
        run_all(arguments.notebooks, root)
    except (BookError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may not know Chinese
    sys.exit(main())
