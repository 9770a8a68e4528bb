"""What students hand in, in all the states in which it arrives: kept, found, rebuilt."""

import copy
import io
import json
import os
import zipfile
from random import Random

import nbformat
import pytest

from assignments import course as courses
from assignments import grade, intake
from tools.notebooks import BookError

NAMES = {question.id: question.name for question in courses.checks().QUESTIONS}
TEXTS = list(courses.checks().FREE_TEXT)
PATHS = courses.releases()


@pytest.fixture(scope="module")
def bones():
    return intake.skeleton()


def released(edition="en"):
    return json.loads(PATHS[edition].read_text(encoding="utf-8"))


def find(notebook, name):
    """The cell of a released notebook with this grade id."""
    named = ((c["metadata"].get("nbgrader", {}).get("grade_id"), c) for c in notebook["cells"])
    return next(c for grade_id, c in named if grade_id == name)


def answer(name, value="1"):
    """An answer that can be told from others by `value`."""
    if name in NAMES:
        return f"# exercise: {name}\ndef {NAMES[name]}(*arguments):\n    return {value}"
    return f"<!-- exercise: {name} -->\nThe text {value}."


def answered(edition="en", value="1", names=(*NAMES, *TEXTS)):
    notebook = released(edition)
    for name in names:
        find(notebook, name)["source"] = answer(name, value)
    return notebook


def dump(notebook):
    return json.dumps(notebook, ensure_ascii=False).encode()


def rebuilt(content, bones):
    """(notebook, what was noticed) from the bytes of one file."""
    work = intake.sort(intake.read_cells(content), bones)
    notebook = intake.rebuild(work, bones)
    nbformat.validate(notebook)
    return notebook, work


def answers(notebook):
    held = {intake.grade_id(cell): cell for cell in notebook.cells}
    return {name: held[name].source for name in (*NAMES, *TEXTS)}


def run(notebook, bones):
    """What the names are bound to after the cells ran as they do for grading."""
    space = {}
    for _, source in grade.cells_to_run(notebook, bones):
        if "# setup" not in source:
            exec(source, space)
    return {name: space[function]() for name, function in NAMES.items()}


EXPECTED = {name: answer(name) for name in (*NAMES, *TEXTS)}


@pytest.mark.parametrize("edition", PATHS)
def test_an_ordinary_notebook(bones, edition):
    notebook, work = rebuilt(dump(answered(edition)), bones)
    assert (answers(notebook), work.notes, work.edition) == (EXPECTED, [], edition)
    assert len(PATHS) == 2 and run(notebook, bones) == dict.fromkeys(NAMES, 1)


def test_the_release_itself_is_answered_nowhere(bones):
    for edition in PATHS:
        notebook, work = rebuilt(dump(released(edition)), bones)
        assert work.answers == {} and work.notes == [] and work.own == {}
        assert [c.source for c in notebook.cells] == [
            "".join(c["source"]) for c in released(edition)["cells"]
        ]


def strip_metadata(notebook):
    for cell in notebook["cells"]:
        cell["metadata"] = {}
        cell.pop("id")


def strip_all(notebook):
    """No metadata, no marks: what remains is names, and the place of the texts."""
    strip_metadata(notebook)
    for cell in notebook["cells"]:
        if cell["source"] in EXPECTED.values():
            cell["source"] = cell["source"].split("\n", 1)[1]


def as_lines(notebook):
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        cell["source"] = source.replace("\n", "\r\n").splitlines(keepends=True)


def to_markdown(notebook):
    cell = find(notebook, "q2")
    cell["cell_type"] = "markdown"
    for key in ("outputs", "execution_count"):
        cell.pop(key)
    strip_metadata(notebook)


def text_in_code(notebook):
    find(notebook, "q6").update(cell_type="code", outputs=[], execution_count=3)


def without_checks(notebook):
    notebook["cells"] = [c for c in notebook["cells"] if "# check:" not in "".join(c["source"])]


def edited_checks(notebook):
    for cell in notebook["cells"]:
        if "# check:" in "".join(cell["source"]):
            cell["source"] = "raise SystemExit"


def stub_below(notebook):
    """A copy of the released stub after the answer, which would hide it."""
    stub = copy.deepcopy(find(released(), "q1"))
    notebook["cells"].insert(notebook["cells"].index(find(notebook, "q2")), stub)


def bare_stub_below(notebook):
    stub_below(notebook)
    stub = notebook["cells"][notebook["cells"].index(find(notebook, "q2")) - 1]
    stub.update(source="".join(stub["source"]).split("\n", 1)[1], metadata={})


def draft_above(notebook):
    draft = copy.deepcopy(find(notebook, "q1"))
    draft["source"] = answer("q1", "'draft'")
    notebook["cells"].insert(1, draft)


def draft_of_a_text(notebook):
    """A draft of q7 stands right below q6, and is no part of it."""
    draft = copy.deepcopy(find(notebook, "q7"))
    draft["source"] = answer("q7", "'draft'")
    notebook["cells"].insert(notebook["cells"].index(find(notebook, "q6")) + 1, draft)


def trial_below(notebook):
    """A scratch cell that bears the mark, but does not define the answer."""
    trial = copy.deepcopy(find(notebook, "q1"))
    trial["source"] = f"# exercise: q1\nprint({NAMES['q1']}())"
    notebook["cells"].append(trial)


def all_in_one(notebook):
    both = "\n\n".join(answer(name) for name in ("q1", "q3"))
    find(notebook, "q1")["source"] = both
    find(notebook, "q3")["source"] = find(released(), "q3")["source"]


def split_in_function(notebook):
    cell = find(notebook, "q4")
    head, tail = cell["source"].rsplit("\n", 1)
    cell["source"] = head
    rest = {"cell_type": "code", "metadata": {}, "source": tail, "outputs": []}
    notebook["cells"].insert(notebook["cells"].index(cell) + 1, rest)


def split_after_helper(notebook):
    cell = find(notebook, "q4")
    main = copy.deepcopy(cell)
    cell["source"] = "# exercise: q4\ndef helper():\n    return 1"
    main["source"] = f"def {NAMES['q4']}():\n    return helper()"
    main["metadata"] = {}
    notebook["cells"].insert(notebook["cells"].index(cell) + 1, main)


def answer_elsewhere(notebook):
    """The stub stays as it is, and the answer stands in a new cell in front of it."""
    cell = find(notebook, "q5")
    new = {"cell_type": "code", "metadata": {}, "outputs": [], "source": answer("q5")[15:]}
    cell["source"] = find(released(), "q5")["source"]
    notebook["cells"].insert(notebook["cells"].index(cell), new)


def text_beside_its_cell(notebook):
    """The cells for the texts stay as they are; the answers stand above and below them."""
    for name, below in (("q6", 0), ("q7", 1)):
        cell = find(notebook, name)
        new = {"cell_type": "markdown", "metadata": {}, "source": cell["source"].split("\n")[1]}
        cell["source"] = find(released(), name)["source"]
        notebook["cells"].insert(notebook["cells"].index(cell) + below, new)


def reordered(notebook):
    notebook["cells"].reverse()


def installs(notebook):
    cell = find(notebook, "q1")
    cell["source"] = "!pip install something\n%matplotlib inline\n" + cell["source"]


def version_3(notebook):
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["input"] = cell.pop("source")
    notebook["worksheets"] = [{"cells": notebook.pop("cells"), "metadata": {}}]
    notebook["nbformat"] = 3


def strange_values(notebook):
    notebook["cells"][1:1] = [None, 3, {"cell_type": 5, "source": {"a": 1}, "metadata": []}]
    find_first = next(c for c in notebook["cells"] if c)
    find_first["attachments"] = 7


HARMLESS = [
    strip_metadata,
    strip_all,
    as_lines,
    to_markdown,
    text_in_code,
    without_checks,
    edited_checks,
    stub_below,
    bare_stub_below,
    draft_above,
    draft_of_a_text,
    trial_below,
    all_in_one,
    split_in_function,
    split_after_helper,
    answer_elsewhere,
    text_beside_its_cell,
    reordered,
    installs,
    version_3,
    strange_values,
]


@pytest.mark.parametrize("damage", HARMLESS, ids=lambda damage: damage.__name__)
def test_what_happens_to_notebooks_costs_no_answer(bones, damage):
    notebook = answered()
    damage(notebook)
    assert notebook != answered()
    made, work = rebuilt(dump(notebook), bones)
    assert run(made, bones) == dict.fromkeys(NAMES, 1)
    assert set(work.answers) == {*NAMES, *TEXTS}
    for name in TEXTS:
        assert "The text 1." in answers(made)[name] and "draft" not in answers(made)[name]
    ids = [intake.grade_id(cell) for cell in made.cells if intake.grade_id(cell)]
    assert ids == bones.ids  # each released cell is there, once, in order
    sources = {intake.grade_id(cell): cell.source for cell in made.cells}
    for name in NAMES:
        assert sources[f"{name}-check"] == "".join(find(released(), f"{name}-check")["source"])


def garble(notebook, random):
    """Do some of what people and programs do to cells, at random."""
    cells = notebook["cells"]
    for _ in range(random.randrange(1, 30)):
        i, j = random.randrange(len(cells)), random.randrange(len(cells))
        cell, source = cells[i], "".join(cells[i]["source"])
        at = random.randrange(len(source) + 1)
        do = random.randrange(7)
        if do == 0 and len(cells) > 1:
            del cells[i]
        elif do == 1:
            cells.insert(j, copy.deepcopy(cell))
        elif do == 2:
            cells[i], cells[j] = cells[j], cells[i]
        elif do == 3:
            cell["cell_type"] = random.choice(["code", "markdown", "raw", "none"])
        elif do == 4:
            cell["metadata"] = random.choice([{}, [], cells[j]["metadata"]])
        elif do == 5:
            cell["source"] = source[:at]
            cells.insert(i + 1, copy.deepcopy(cell) | {"source": source[at:]})
        else:
            cell["source"] = random.choice([source[at:], source + source, "", [source]])


@pytest.mark.parametrize("seed", range(5))
def test_whatever_happens_the_skeleton_stands(bones, seed):
    random = Random(seed)
    for _ in range(40):
        notebook = answered(random.choice(["en", "zh"]))
        garble(notebook, random)
        made, work = rebuilt(dump(notebook), bones)
        ids = [intake.grade_id(cell) for cell in made.cells if intake.grade_id(cell)]
        assert ids == bones.ids and set(work.answers) <= set(bones.slots)
        checks = [c.source for c in made.cells if intake.grade_id(c).endswith("-check")]
        assert checks == [
            c.source
            for c in bones.notebooks[work.edition].cells
            if intake.grade_id(c).endswith("-check")
        ]


ENCODINGS = ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "gb18030"]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_encodings(bones, encoding):
    notebook = answered("zh", "'答案'")
    made, work = rebuilt(dump(notebook).decode().encode(encoding), bones)
    assert run(made, bones) == dict.fromkeys(NAMES, "答案") and work.edition == "zh"


def test_a_deleted_answer_is_told_and_the_others_count(bones):
    notebook = answered()
    notebook["cells"].remove(find(notebook, "q2"))
    made, work = rebuilt(dump(notebook), bones)
    assert [said["en"] for said in work.notes] == ["q2: its cell is missing"] and "q2" not in work.answers
    assert answers(made)["q2"] == "".join(find(released(), "q2")["source"])
    assert answers(made)["q3"] == EXPECTED["q3"]


def test_own_cells_keep_their_place(bones):
    notebook = answered()
    helper = {"cell_type": "code", "metadata": {}, "source": "helper = 5", "outputs": []}
    notebook["cells"].insert(notebook["cells"].index(find(notebook, "q3")), helper)
    find(notebook, "setup")["source"] = "import cmath"
    indented = {"cell_type": "code", "metadata": {}, "source": "    shown = 6", "outputs": []}
    notebook["cells"].insert(notebook["cells"].index(find(notebook, "q1-check")) + 1, indented)
    made, _ = rebuilt(dump(notebook), bones)
    sources = [cell.source for cell in made.cells]
    assert sources.index("helper = 5") == sources.index(EXPECTED["q3"]) - 1
    assert "    shown = 6" in sources and len(sources) == len(released()["cells"]) + 3
    assert sources.index("import cmath") < sources.index(EXPECTED["q1"])


def test_a_text_in_several_cells_with_a_picture(bones):
    notebook = answered()
    first = find(notebook, "q6")
    more = {
        "cell_type": "markdown",
        "metadata": {},
        "source": "More of it.",
        "attachments": {"a.png": {"image/png": "AAAA", "text/html": "<b>"}},
    }
    notebook["cells"].insert(notebook["cells"].index(first) + 1, more)
    made, _ = rebuilt(dump(notebook), bones)
    cell = next(cell for cell in made.cells if intake.grade_id(cell) == "q6")
    assert cell.source.endswith("The text 1.\n\nMore of it.")
    assert cell.attachments == {"a.png": {"image/png": "AAAA"}}


def test_two_texts_in_one_cell_are_told_apart(bones):
    notebook = answered()
    find(notebook, "q6")["source"] = answer("q6", "A") + "\n\n" + answer("q7", "B")
    notebook["cells"].remove(find(notebook, "q7"))
    made, _ = rebuilt(dump(notebook), bones)
    assert answers(made)["q6"] == answer("q6", "A") and answers(made)["q7"] == answer("q7", "B")


BROKEN = {
    "empty.ipynb": (b"", "is empty"),
    "zeros.ipynb": (b"\0\0\0\0", "is empty"),
    "text.ipynb": (b"my answers", "is not a notebook (not JSON)"),
    "half.ipynb": (dump(answered())[:3000], "is not a notebook (not JSON)"),
    "deep.ipynb": (b"[" * 100_000, "is not a notebook (not JSON)"),
    "list.ipynb": (b"[1, 2]", "is not a notebook"),
    "cells.ipynb": (b'{"cells": []}', "holds no cells"),
    "picture.ipynb": (b"\x89PNG\r\n\x1a\n\xff\xff\xfe\x81\xff", "is not text"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_notebook_is_named(name):
    content, said = BROKEN[name]
    with pytest.raises(ValueError) as caught:
        intake.read_cells(content)
    assert str(caught.value) == said


# --- A whole class


@pytest.fixture
def course(tmp_path):
    roster = tmp_path / "roster.csv"
    roster.write_text("id,last_name\nann,A\nbob,B\nli.na,李\n张三,张\nann-2,A\n", encoding="utf-8")
    return courses.new(tmp_path / "course", roster)


def write(path, content, time=1_700_000_000):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (time, time))


def collect(course, *sources):
    said = []
    lines, strays = intake.collect(course, sources, say=said.append)
    assert len(said) == len(course.roster) + len(strays)  # one line each
    return lines, strays


def submitted(course, student):
    path = course.folder / "submitted" / student / "attention" / "attention.ipynb"
    return answers(nbformat.read(path, 4))


ALL_EN = "7 of 7 answers, en"


def test_a_folder_as_it_arrives(course, tmp_path):
    box = tmp_path / "box"
    write(box / "ann" / "attention (1).ipynb", dump(answered()))
    write(box / "BOB_12345_homework final.ipynb", dump(answered("zh")))
    write(box / "张三_作业.ipynb", dump(answered("zh", names=["q1"])))
    write(box / "li.na" / "attention.ipynb", b"")
    write(box / "li.na" / "report.pdf", b"%PDF")
    write(box / "joanne.ipynb", dump(answered()))
    write(box / "ann-2" / "x.ipynb", dump(answered(names=["q2", "q6"])))
    write(box / "ann" / ".ipynb_checkpoints" / "attention.ipynb", b"junk")
    write(box / "ann" / ".DS_Store", b"junk")
    lines, strays = collect(course, box)
    assert lines == {
        "ann": ALL_EN,
        "bob": "7 of 7 answers, zh",
        "li.na": "report.pdf is not a notebook (not JSON); attention.ipynb is empty",
        "张三": "1 of 7 answers, zh",
        "ann-2": "2 of 7 answers, en",
    }
    assert strays == ["joanne.ipynb: names no student of the roster (or several)"]


@pytest.mark.skipif(os.name == "nt", reason="Windows makes no links for ordinary users")
def test_links_are_not_followed(course, tmp_path):
    write(tmp_path / "hidden.ipynb", dump(answered()))
    write(tmp_path / "elsewhere" / "bob.ipynb", dump(answered()))
    box = tmp_path / "box"
    box.mkdir()
    (box / "ann.ipynb").symlink_to(tmp_path / "hidden.ipynb")
    (box / "bob").symlink_to(tmp_path / "elsewhere")
    lines, _ = collect(course, box)
    assert lines["ann"] == "ann.ipynb a link, which we do not follow"
    assert lines["bob"] == "nothing handed in"


def make_zip(entries):
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, content in entries:
            archive.writestr(zipfile.ZipInfo(name, (2024, 3, 1, 12, 0, 0)), content)
    return held.getvalue()


def test_zips_of_all_kinds(course, tmp_path):
    inner = make_zip([("a folder/attention.ipynb", dump(answered()))])
    bomb = make_zip([("attention.ipynb", inner)])
    for _ in range(5):
        bomb = make_zip([("again.zip", bomb)])
    outer = make_zip(
        [
            ("class/ann/work.zip", inner),
            ("class/__MACOSX/ann/._attention.ipynb", b"junk"),
            ("class/bob/../../../../escaped.ipynb", dump(answered("zh"))),
            ("/class/li.na/broken.zip", b"PK no zip"),
            ("class/ann-2/bomb.zip", bomb),
        ]
    )
    write(tmp_path / "in" / "class.zip", outer)
    write(tmp_path / "in" / "张三.zip", inner)
    lines, strays = collect(course, tmp_path / "in")
    assert lines == {
        "ann": ALL_EN,
        "bob": "7 of 7 answers, zh",
        "li.na": "broken.zip not a readable zip",
        "张三": ALL_EN,
        "ann-2": "again.zip a zip in 3 others",
    }
    assert strays == [] and not list(tmp_path.parent.glob("escaped*"))
    assert {path.name for path in tmp_path.iterdir()} == {"course", "in", "roster.csv"}


def test_a_zip_that_swells_costs_no_disk_and_nobody_else(course, tmp_path):
    inner, outer, around = io.BytesIO(), io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(9):
            archive.writestr(f"{number}.ipynb", bytes([number]) * 900_000)
    with zipfile.ZipFile(outer, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(9):
            archive.writestr(f"{number}.zip", inner.getvalue() + bytes([number]))
    with zipfile.ZipFile(around, "w") as archive:
        archive.writestr("ann.zip", outer.getvalue())
        archive.writestr("bob.zip", make_zip([("attention.ipynb", dump(answered()))]))
    write(tmp_path / "class.zip", around.getvalue())
    lines, _ = collect(course, tmp_path / "class.zip")
    assert "unpacks to far more than its size" in lines["ann"] and lines["bob"] == ALL_EN
    kept = [path.stat().st_size for path in course.folder.glob("collected/ann/*/*")]
    assert sum(kept) <= intake.SWELL * len(outer.getvalue()) + intake.SLACK


def test_names_cannot_write_lines_of_the_report(course, tmp_path):
    names = ["ann/a\x1b[2K\nbob: 7 of 7.pdf", "who\nnobody: 7 of 7.ipynb", "bob/\x07.ipynb"]
    content = make_zip([(name, dump(answered())) for name in names])
    write(tmp_path / "work.zip", content)
    lines, strays = collect(course, tmp_path / "work.zip")
    assert lines["ann"] == lines["bob"] == ALL_EN and len(strays) == 1
    assert all(line.isprintable() for line in [*lines.values(), *strays])
    assert all(path.name.isprintable() for path in course.folder.glob("collected/*/*/*"))


def test_names_in_a_zip_made_in_china(course, tmp_path):
    name = "张三/作业.ipynb".encode("gb18030").decode("cp437")
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        entry = zipfile.ZipInfo("x")
        entry.filename = "x" * len(name)
        archive.writestr(entry, dump(answered("zh")))
    content = held.getvalue().replace(b"x" * len(name), name.encode("cp437"))
    write(tmp_path / "work.zip", content)
    lines, _ = collect(course, tmp_path / "work.zip")
    assert lines["张三"] == "7 of 7 answers, zh"


def test_the_newest_by_time_counts_and_earlier_attempts_stay(course, tmp_path):
    box = tmp_path / "box"
    write(box / "ann" / "a.ipynb", dump(answered(value="'new'")), 1_700_000_500)
    write(box / "ann" / "z final.ipynb", dump(answered(value="'old'")), 1_700_000_000)
    collect(course, box)
    assert submitted(course, "ann")["q1"] == answer("q1", "'new'")
    kept = {path: path.read_bytes() for path in course.folder.glob("collected/*/*/*")}
    assert len(kept) == 2

    write(box / "ann" / "a.ipynb", dump(answered(value="'late'")), 1_700_000_900)
    lines, _ = collect(course, box)
    assert submitted(course, "ann")["q1"] == answer("q1", "'late'")
    after = {path: path.read_bytes() for path in course.folder.glob("collected/*/*/*")}
    assert len(after) == 3 and after.items() > kept.items()

    write(box / "ann" / "a.ipynb", b"{", 1_700_001_900)  # newer, but broken
    lines, _ = collect(course, box)
    assert lines["ann"] == f"{ALL_EN}; a.ipynb is not a notebook (not JSON)"
    assert submitted(course, "ann")["q1"] == answer("q1", "'late'")
    assert collect(course, box)[0] == lines  # once more: nothing new
    assert len(list(course.folder.glob("collected/*/*/*"))) == 4


def test_times_within_zips_count_where_they_are_known(course, tmp_path):
    def zipped(time, value):
        held = io.BytesIO()
        with zipfile.ZipFile(held, "w") as archive:
            entry = zipfile.ZipInfo("ann/a.ipynb", time)
            archive.writestr(entry, dump(answered(value=value)))
        return held.getvalue()

    box = tmp_path / "box"  # the first zip was written last
    write(box / "1.zip", zipped((2024, 3, 1, 12, 0, 0), "'old'"), 1_900_000_000)
    write(box / "2.zip", zipped((2024, 3, 2, 12, 0, 0), "'new'"), 1_800_000_000)
    collect(course, box)
    assert submitted(course, "ann")["q1"] == answer("q1", "'new'")
    write(box / "3.zip", zipped((1980, 1, 1, 0, 0, 0), "'undated'"), 1_900_000_000)
    collect(course, box)
    assert submitted(course, "ann")["q1"] == answer("q1", "'undated'")


def test_two_languages_make_one_work(course, tmp_path):
    box = tmp_path / "box"
    older = answered("zh", "'zh'", names=["q1", "q2", "q6"])
    helper = {"cell_type": "code", "metadata": {}, "source": "helper = 5", "outputs": []}
    older["cells"].insert(older["cells"].index(find(older, "q2")), helper)
    write(box / "ann" / "zh.ipynb", dump(older), 1_700_000_000)
    write(box / "ann" / "en.ipynb", dump(answered("en", "'en'", ["q1", "q3"])), 1_700_000_009)
    lines, _ = collect(course, box)
    assert lines["ann"] == "; ".join(
        ["4 of 7 answers, en"]
        + [f"{name}: from the notebook in the other language" for name in ("q2", "q6")]
    )
    found = submitted(course, "ann")
    assert found["q1"] == answer("q1", "'en'") and found["q2"] == answer("q2", "'zh'")
    assert found["q6"] == answer("q6", "'zh'")
    path = course.folder / "submitted" / "ann" / "attention" / "attention.ipynb"
    assert "helper = 5" in [cell.source for cell in nbformat.read(path, 4).cells]


def test_one_students_file_never_stops_the_class(course, tmp_path, monkeypatch):
    box = tmp_path / "box"
    for student in ("ann", "bob"):
        write(box / student / "a.ipynb", dump(answered()))
    sort = intake.sort

    def fails_for_ann(cells, bones, seen=[]):  # noqa: B006
        seen.append(1)
        if len(seen) == 1:
            raise KeyError("unforeseen")
        return sort(cells, bones)

    monkeypatch.setattr(intake, "sort", fails_for_ann)
    lines, _ = collect(course, box)
    assert lines["ann"] == "cannot be rebuilt (KeyError: 'unforeseen')"
    assert lines["bob"] == ALL_EN


def test_late_work_is_told(course, tmp_path):
    settings = course.folder / "course.toml"
    due = "due = 2023-11-14T22:13:20+00:00\n"  # the second 1_700_000_000
    settings.write_text(due + settings.read_text("utf-8"), "utf-8")
    late = courses.load(course.folder)
    write(tmp_path / "box" / "ann.ipynb", dump(answered()), 1_700_000_001)
    write(tmp_path / "box" / "bob.ipynb", dump(answered()), 1_700_000_000)
    lines, _ = collect(late, tmp_path / "box")
    assert lines["ann"] == f"{ALL_EN}; late" and lines["bob"] == ALL_EN


def test_a_source_that_is_not_there(course, tmp_path):
    with pytest.raises(BookError, match="no-such: there is no such file or folder"):
        collect(course, tmp_path / "no-such")


WHOSE = {
    "ann.ipynb": "ann",
    "ANN_attention.ipynb": "ann",
    "smith_ann_123_attention.ipynb": "ann",
    "ann-2.ipynb": "ann-2",
    "bob/ann.ipynb": "bob",  # the outermost folder is not the student's to choose
    "hannah.ipynb": None,
    "annex/attention.ipynb": None,
    "ann and bob.ipynb": None,
    "class/li.na_张.ipynb": "li.na",
    "linna.ipynb": None,
    "作业-张三.ipynb": "张三",
}


@pytest.mark.parametrize("path", WHOSE)
def test_whose_a_file_is(course, path):
    assert intake.student_of(path, course.roster) == WHOSE[path]


def test_languages_must_have_the_same_cells():
    notebooks = {edition: nbformat.read(path, 4) for edition, path in PATHS.items()}
    del notebooks["zh"].cells[3]
    with pytest.raises(BookError, match="same cells in each language"):
        intake.Skeleton(notebooks, NAMES)
