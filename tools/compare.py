"""Compare the notebooks of two runs on different machines (`python -m tools.run --compare`).

Sources and texts must be equal. Figures may differ where another processor rounds otherwise:
their SVG must have the same elements, at the same places within 0.1 pt.
"""

import base64
import io
import re
from xml.etree import ElementTree

import numpy as np
from PIL import Image

from tools.notebooks import BookError, read

NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
PLACE = 0.1  # pt
COLOR = 8  # of 255, three steps of a colour map: a number on the edge of a step may cross it
GEOMETRY = {"d", "height", "points", "transform", "viewBox", "width", "x", "y"}
GEOMETRY |= {"x1", "x2", "y1", "y2", "cx", "cy", "r"}
PICTURE = "data:image/png;base64,"


def compare(old, new):
    """What differs between the notebooks below two folders, each in one sentence."""
    trees = [
        {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.ipynb")}
        for folder in (old, new)
    ]
    if not trees[0]:
        raise BookError(f"{old.as_posix()} holds no notebook to compare")
    for name in sorted(trees[0].keys() | trees[1].keys()):
        for folder, tree in zip((old, new), trees, strict=True):
            if name not in tree:
                yield f"{name} is missing below {folder.as_posix()}"
        if name in trees[0] and name in trees[1]:
            problems = compare_notebooks(read(trees[0][name]), read(trees[1][name]))
            yield from (f"{name}{problem}" for problem in problems)


def compare_notebooks(old, new):
    cells = [[(cell.cell_type, cell.id) for cell in notebook.cells] for notebook in (old, new)]
    if cells[0] != cells[1]:
        yield ": the cells are not the same"
        return
    for one, other in zip(old.cells, new.cells, strict=True):
        problems = compare_outputs(outputs(one), outputs(other))
        if one.source != other.source:
            problems = ["the source differs"]
        yield from (f", cell {one.id}: {problem}" for problem in problems)


def outputs(cell):
    """What a cell shows: pairs of a kind and a text. A PNG only repeats the SVG beside it."""
    found = []
    for output in cell.get("outputs", []):
        if output.output_type == "stream":
            found.append((output.name, output.text))
        elif output.output_type == "error":
            found.append(("error", f"{output.ename}: {output.evalue}"))
        else:
            found += [
                (kind, "" if kind == "image/png" else data)
                for kind, data in sorted(output.data.items())
            ]
    return found


def compare_outputs(old, new):
    kinds = [", ".join(kind for kind, _ in output) or "nothing" for output in (old, new)]
    if kinds[0] != kinds[1]:
        yield f"it shows {kinds[1]}, not {kinds[0]}"
        return
    for (kind, one), (_, other) in zip(old, new, strict=True):
        if kind == "image/svg+xml":
            problem = compare_svg(one, other)
        else:
            problem = change(one, other) if one != other else None
        if problem:
            yield f"{kind}: {problem}"


def change(old, new):
    """Two texts from where they differ, shortened."""
    old, new = str(old), str(new)
    same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), 0)
    start = max(0, same - 10)
    return f"{old[start : start + 40]!r} became {new[start : start + 40]!r}"


def compare_svg(old, new):
    """The first difference that rounding does not explain, or None."""
    trees = [list(ElementTree.fromstring(number_ids(svg)).iter()) for svg in (old, new)]
    shapes = [[(element.tag, len(element)) for element in tree] for tree in trees]
    if shapes[0] != shapes[1]:
        return f"other elements ({len(shapes[0])} became {len(shapes[1])})"
    for one, other in zip(*trees, strict=True):
        tag = one.tag.rpartition("}")[2]
        if one.text != other.text:
            return f"text of <{tag}>: {change(one.text, other.text)}"
        if one.attrib.keys() != other.attrib.keys():
            return f"<{tag}> has other attributes"
        for name, value in one.attrib.items():
            if not same_value(name, value, other.attrib[name]):
                what = change(value, other.attrib[name])
                return f"{name.rpartition('}')[2]} of <{tag}>: {what}"
    return None


def number_ids(svg):
    """Name the ids in their order: matplotlib makes some from the last digits of a drawing."""
    names = re.findall(r'\bid="([^"]+)"', svg)
    numbers = {name: f"id{number}" for number, name in enumerate(names)}
    return re.sub(r'(\bid="|#)([\w.-]+)', lambda m: m[1] + numbers.get(m[2], m[2]), svg)


def same_value(name, old, new):
    """Whether two values of an attribute are equal but for rounding."""
    if old == new:
        return True
    if name in GEOMETRY:
        numbers = [np.array(NUMBER.findall(value), dtype=float) for value in (old, new)]
        between = [NUMBER.split(value) for value in (old, new)]
        return between[0] == between[1] and np.allclose(*numbers, rtol=0, atol=PLACE)
    if old.startswith(PICTURE) and new.startswith(PICTURE):
        pixels = [decode(value) for value in (old, new)]
        shapes = [picture.shape for picture in pixels]
        return shapes[0] == shapes[1] and bool(np.all(abs(pixels[0] - pixels[1]) <= COLOR))
    return False


def decode(picture):
    data = base64.b64decode(picture.removeprefix(PICTURE))
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGBA"), dtype=int)
