"""Make the students' notebooks from the instructor sources:  python -m assignments.release

Each `assignments/NAME/source/LANGUAGE/NAME.ipynb` becomes `release/LANGUAGE/NAME.ipynb`: nbgrader's
own steps take the solutions and outputs out and lock what is not an answer. `--check` writes
nothing and names each file that differs.
"""

import argparse
import sys
from pathlib import Path

import nbformat
from nbgrader.preprocessors import (
    CheckCellMetadata,
    ClearOutput,
    ClearSolutions,
    ComputeChecksums,
    LockCells,
)

HERE = Path(__file__).resolve().parent
CODE_STUB = "raise NotImplementedError"
TEXT_STUB = {"en": "*Write your answer here.*", "zh": "*在此作答。*"}
MARKS = ("BEGIN SOLUTION", "END SOLUTION")


def sources(here=HERE):
    return sorted(here.glob("*/source/*/*.ipynb"))


def release_path(source):
    """Where the release of a source belongs: the same path, with `release` for `source`."""
    language, name = source.parts[-2:]
    return source.parents[2] / "release" / language / name


def released(source):
    """The released notebook of an instructor source, as the bytes of its file.

    Raises ValueError, with the cell, where a solution cell has no solution marks.
    """
    language = source.parent.name
    notebook = nbformat.read(source, as_version=4)
    for cell in notebook.cells:
        marked = all(mark in cell.source for mark in MARKS)
        if cell.metadata.get("nbgrader", {}).get("solution") and not marked:
            raise ValueError(f"{source}, cell {cell.id}: needs {MARKS[0]} and {MARKS[1]}")
    steps = [
        CheckCellMetadata(),
        ClearSolutions(code_stub={"python": CODE_STUB}, text_stub=TEXT_STUB[language]),
        ClearOutput(),
        LockCells(),
        ComputeChecksums(),
    ]
    resources = {}
    for step in steps:
        notebook, resources = step.preprocess(notebook, resources)
    nbformat.validate(notebook)
    return (nbformat.writes(notebook) + "\n").encode()


def main(arguments=None, here=HERE):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, name what differs")
    check = parser.parse_args(arguments).check
    differ = False
    for source in sources(here):
        wanted, path = released(source), release_path(source)
        same = path.is_file() and path.read_bytes() == wanted
        differ |= not same
        if not same and not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(wanted)
        state = "as before" if same else "differs" if check else "written"
        print(f"{path.relative_to(here).as_posix()}: {state}")
    return int(check and differ)


if __name__ == "__main__":
    sys.exit(main())
