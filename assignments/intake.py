"""What students handed in: found, kept for ever, and rebuilt on the released notebook.

Everything handed in is copied to `collected/STUDENT/TIME-HASH/NAME` and never written again.
From the newest readable notebooks a fresh `submitted/STUDENT/attention/attention.ipynb` is made:
the released cells with this student's answers and own cells in their places. So nothing that
happens to metadata, file names, languages or the cells with checks stops the grading.
"""

import copy
import hashlib
import io
import json
import math
import os
import re
import unicodedata
import zipfile
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import nbformat

from assignments import course as courses
from assignments.course import ASSIGNMENT
from tools.notebooks import BookError

LARGEST = 50 * 10**6  # bytes of one file that we read
MOST = 20_000  # files in one zip
DEEPEST = 3  # zips within zips
SWELL, SLACK = 50, 5 * 10**6  # a zip, with all zips in it, unpacks to so many times its size, and
# so many bytes more: so a small file fills no disk, and costs the others in its zip no room
JUNK = re.compile(r"__MACOSX|\.DS_Store|\._.*|\.ipynb_checkpoints|Thumbs\.db|desktop\.ini", re.I)
MARK = re.compile(r"^[ \t]*(?:#|<!--)[ \t]*exercise:[ \t]*([\w-]+)[^\n]*$", re.M)
INFO = "intake.json"  # beside the rebuilt notebook: what the intake says of it
NOTES = {  # to the teacher in English, in the feedback in the language of the work
    "{}: its cell is missing": "{}：没有找到它的单元",
    "{}: {} cells, the last counts": "{}：有 {} 个单元，以最后一个为准",
    "{}: code in a text cell": "{}：代码写在文本单元里",
    "{}: from the notebook in the other language": "{}：取自另一种语言的笔记本",
    "{} is empty": "{} 是空文件",
    "{} is not text": "{} 不是文本文件",
    "{} is not a notebook (not JSON)": "{} 不是笔记本（不是 JSON）",
    "{} is not a notebook": "{} 不是笔记本",
    "{} holds no cells": "{} 中没有单元",
}


def note(text, *values):
    return {"en": text.format(*values), "zh": NOTES[text].format(*values)}


@dataclass
class File:
    """One file that was handed in; `problem` says why its content could not be had."""

    path: str  # as found, with forward slashes; names in it are only looked at, never opened
    time: float
    content: bytes = b""
    problem: str = ""

    @property
    def name(self):
        return printable(self.path.rsplit("/", 1)[-1])


def printable(name):
    """A name that can be shown and written anywhere: no control characters, no broken letters."""
    return "".join(letter if letter.isprintable() else "_" for letter in name)


def find_files(source):
    """Yield the files below a folder, or in a zip, or the one file."""
    if source.is_dir():
        for folder, folders, names in os.walk(source):
            folders[:] = sorted(name for name in folders if not JUNK.fullmatch(name))
            for name in sorted(names):
                path = Path(folder, name)
                yield from read_file(path, path.relative_to(source).as_posix())
    elif source.is_file():
        yield from read_file(source, source.name)
    else:
        raise BookError(f"{source}: there is no such file or folder")


def read_file(path, label):
    if JUNK.fullmatch(path.name):
        return
    if path.is_symlink():
        yield File(label, 0, problem="a link, which we do not follow")
        return
    try:
        time, size = path.stat().st_mtime, path.stat().st_size
        if size > LARGEST and path.suffix.lower() != ".zip":
            yield File(label, time, problem=f"larger than {LARGEST // 10**6} MB")
            return
        yield from open_zips(File(label, time, path.read_bytes()))
    except OSError as error:
        yield File(label, 0, problem=f"cannot be read ({error.strerror})")


def open_zips(file, depth=0, room=math.inf):
    """The file itself, or the files in it if it is a zip, and in the zips in it.

    Not more than `room` bytes are unpacked; returns how many were.
    """
    if not file.path.lower().endswith(".zip"):
        yield file
        return 0
    if depth == DEEPEST:
        yield File(file.path, file.time, problem=f"a zip in {DEEPEST} others")
        return 0
    room = min(room, SWELL * len(file.content) + SLACK)
    folder, used = file.path + "/", 0
    try:
        archive = zipfile.ZipFile(io.BytesIO(file.content))
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        yield File(file.path, file.time, problem="not a readable zip")
        return 0
    for entry in archive.infolist()[:MOST]:
        name = member_name(entry)
        if entry.is_dir() or any(JUNK.fullmatch(part) for part in name.split("/")):
            continue
        if used + entry.file_size > room:  # no more than it says comes out of it
            yield File(file.path, file.time, problem="unpacks to far more than its size")
            return used
        time = member_time(entry) or file.time
        try:
            with archive.open(entry) as member:
                content = member.read(LARGEST + 1)
        except Exception as error:  # encrypted, damaged, an unknown method
            yield File(folder + name, time, problem=f"not readable in its zip ({error})")
            continue
        used += len(content)
        if len(content) > LARGEST:
            yield File(folder + name, time, problem=f"larger than {LARGEST // 10**6} MB")
            continue
        used += yield from open_zips(File(folder + name, time, content), depth + 1, room - used)
    return used


def member_time(entry):
    """When a file in a zip was changed, in seconds; None if the zip does not say."""
    if entry.date_time[0] <= 1980:  # what stands there where no time is known
        return None
    try:
        return datetime(*entry.date_time).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def member_name(entry):
    """A name in a zip; zips made by Windows in China hold GBK without saying so."""
    name = entry.filename
    if not entry.flag_bits & 0x800:
        for encoding in ("utf-8", "gb18030"):
            try:
                name = name.encode("cp437").decode(encoding)
                break
            except UnicodeError:
                continue
    return name.replace("\\", "/")


def student_of(path, roster):
    """The student whose id stands in a path as a whole word; the outermost part decides.

    Returns None if there is none, or if one part names two students.
    """
    for part in unicodedata.normalize("NFC", path).split("/"):
        found = [name for name in roster if re.search(id_pattern(name), part, re.I)]
        found = [name for name in found if not any(name != o and name in o for o in found)]
        if len(found) == 1:
            return found[0]
        if found:
            return None
    return None


def id_pattern(name):
    name = unicodedata.normalize("NFC", name)
    return rf"(?<![^\W_]){re.escape(name)}(?![^\W_])"


# --- Reading one notebook, however it was saved


@dataclass
class Cell:
    kind: str
    source: str
    grade_id: str = ""
    attachments: dict = field(default_factory=dict)


def read_cells(content):
    """The cells of a notebook of any version; raises ValueError with a few words why not."""
    text = courses.decode(content)
    try:
        held = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("is not a notebook (not JSON)") from None
    if not isinstance(held, dict):
        raise ValueError("is not a notebook")
    sheets = held.get("worksheets") if isinstance(held.get("worksheets"), list) else [held]
    lists = [sheet.get("cells") for sheet in sheets if isinstance(sheet, dict)]
    raw = [cell for cells in lists if isinstance(cells, list) for cell in cells]
    cells = [read_cell(cell) for cell in raw if isinstance(cell, dict)]
    if not cells:
        raise ValueError("holds no cells")
    return cells


def read_cell(cell):
    source = cell.get("source", cell.get("input", ""))
    if isinstance(source, list):
        source = "".join(line for line in source if isinstance(line, str))
    metadata = cell.get("metadata") if isinstance(cell.get("metadata"), dict) else {}
    graded = metadata.get("nbgrader") if isinstance(metadata.get("nbgrader"), dict) else {}
    attachments = cell.get("attachments")
    return Cell(
        kind="code" if cell.get("cell_type") == "code" else "markdown",
        source=re.sub(r"\r\n?", "\n", source) if isinstance(source, str) else "",
        grade_id=str(graded.get("grade_id", "")),
        attachments=attachments if isinstance(attachments, dict) else {},
    )


def join_halves(cells, known):
    """Put together what was split in the middle of a function: a cell that begins indented
    goes to the one before, unless that is as it was released (`known`)."""
    joined = []
    for cell in cells:
        first = next((line for line in cell.source.split("\n") if line.strip()), "")
        halves = joined and cell.kind == joined[-1].kind == "code" and first[:1] in (" ", "\t")
        if halves and squeeze(joined[-1].source) not in known:
            joined[-1].source = f"{joined[-1].source}\n{cell.source}"
        else:
            joined.append(copy.copy(cell))
    return joined


# --- Rebuilding


def squeeze(source):
    return " ".join(source.split())


@dataclass
class Skeleton:
    """The released notebooks of all editions, whose cells differ in Markdown and comments only."""

    notebooks: dict
    names: dict  # {question: the function or class it asks for}

    def __post_init__(self):
        first, *others = self.notebooks.values()
        for other in others:
            if [shape(cell) for cell in other.cells] != [shape(cell) for cell in first.cells]:
                raise BookError(
                    "the released notebooks do not have the same cells in each language"
                )
        self.ids = [grade_id(cell) for cell in first.cells]
        self.slots = {
            grade_id(cell): place
            for place, cell in enumerate(first.cells)
            if cell.metadata.get("nbgrader", {}).get("solution")
        }
        self.code = {name for name, at in self.slots.items() if first.cells[at].cell_type == "code"}
        self.places = {
            squeeze(cell.source): place
            for notebook in self.notebooks.values()
            for place, cell in enumerate(notebook.cells)
        }

    def is_stub(self, question, source):
        """Whether a cell of this question is as it was released, in any language."""
        place = self.slots[question]
        stubs = [notebook.cells[place].source for notebook in self.notebooks.values()]
        plain = [squeeze(MARK.sub("", text)) for text in [source, *stubs]]
        return plain[0] in ("", *plain[1:])

    def edition(self, cells):
        """The language of a notebook: that with which it shares most cells, or letters."""
        sources = {squeeze(cell.source) for cell in cells}
        shared = {
            edition: sum(squeeze(cell.source) in sources for cell in notebook.cells)
            for edition, notebook in self.notebooks.items()
        }
        if len(set(shared.values())) > 1:
            return max(shared, key=shared.get)
        letters = "".join(cell.source for cell in cells if cell.kind == "markdown")
        chinese = sum("\u4e00" <= letter <= "\u9fff" for letter in letters) > 50
        return "zh" if chinese and "zh" in shared else next(iter(shared))


def shape(cell):
    return cell.cell_type, grade_id(cell)


def grade_id(cell):
    return cell.metadata.get("nbgrader", {}).get("grade_id", "")


def skeleton():
    """The skeleton of the assignment of this repository."""
    found = {name: nbformat.read(path, 4) for name, path in courses.releases().items()}
    if not found:
        raise BookError("there is no released notebook; run python -m assignments.release")
    return Skeleton(found, {question.id: question.name for question in courses.checks().QUESTIONS})


@dataclass
class Work:
    """One notebook of a student, sorted: answers and own cells, by places of the skeleton."""

    edition: str
    answers: dict = field(default_factory=dict)  # {question: Cell}, only what differs from the stub
    own: dict = field(default_factory=dict)  # {place: [Cell]}, in front of the cell at that place
    notes: list = field(default_factory=list)


def marks(cell):
    return MARK.findall(cell.source)


def defines(cell, name):
    pattern = rf"^(?:async\s+)?(?:def|class)\s+{name}\b|^{name}\s*(?::[^=\n]+)?="
    return bool(re.search(pattern, cell.source, re.M))


def sort(cells, skeleton):
    """Find the answers and the student's own cells in the cells of one notebook."""
    cells = join_halves(cells, skeleton.places)
    work = Work(skeleton.edition(cells))
    taken, drop = {}, set()  # cell index -> its questions; copies that count no more
    for question in skeleton.slots:
        coded = question in skeleton.code
        found = code_cells(cells, question, skeleton) if coded else text_cells(cells, question)
        changed = [i for i in found if not skeleton.is_stub(question, cells[i].source)]
        if not changed and not coded:
            changed = by_place(cells, question, skeleton)
            found = found + changed
        if not found:
            work.notes.append(note("{}: its cell is missing", question))
        if not changed:
            drop.update(found)
            continue
        if coded:  # rather a cell that defines the name than one that only bears the mark
            name = skeleton.names.get(question, question)
            last = ([i for i in changed if defines(cells[i], name)] or changed)[-1]
            drop.update(i for i in found if i not in changed)  # a stub must not hide the answer
        else:
            last = changed[-1]
            drop.update(i for i in found if i != last)
        if len(changed) > 1:
            work.notes.append(note("{}: {} cells, the last counts", question, len(changed)))
        if coded and cells[last].kind != "code":
            work.notes.append(note("{}: code in a text cell", question))
        taken.setdefault(last, []).append(question)
    place_cells(cells, skeleton, work, taken, drop - set(taken))
    return work


def code_cells(cells, question, skeleton):
    """The cells that may answer a coded question: by mark, metadata or the name they define."""
    name = skeleton.names.get(question, question)
    return [
        i
        for i, cell in enumerate(cells)
        if question in marks(cell)
        or (cell.grade_id == question and not set(marks(cell)) - {question})
        or defines(cell, name)
        and (cell.kind == "code" or not marks(cell))
        and squeeze(cell.source) not in skeleton.places
    ]


def text_cells(cells, question):
    marked = [i for i, cell in enumerate(cells) if question in marks(cell)]
    named = [i for i, cell in enumerate(cells) if cell.grade_id == question and not marks(cell)]
    return sorted({*marked, *named})


def by_place(cells, question, skeleton):
    """A text without mark and metadata, or beside the cell that is meant for it: the first text
    of the student's own between the question and the next released cell."""
    before = skeleton.slots[question] - 1
    places = [skeleton.places.get(squeeze(cell.source)) for cell in cells]
    at = [i for i, place in enumerate(places) if place == before]
    for i in range(at[-1] + 1 if at else len(cells), len(cells)):
        if places[i] not in (None, skeleton.slots[question]):
            break
        if cells[i].kind == "markdown" and not skeleton.is_stub(question, cells[i].source):
            return [i]
    return []


def place_cells(cells, skeleton, work, taken, drop):
    """Fill `work`: each answer once, and the other cells in front of the next known one."""
    waiting, text_answer = [], None
    for i, cell in enumerate(cells):
        place = skeleton.places.get(squeeze(cell.source))
        if place is None and cell.grade_id in skeleton.ids and cell.grade_id not in skeleton.slots:
            place = skeleton.ids.index(cell.grade_id)
            if not cell.grade_id.endswith("-check"):  # an edited set-up cell stays, as their own
                waiting.append(cell)
        if i in taken:
            coded = [question for question in taken[i] if question in skeleton.code]
            for question in taken[i]:
                work.answers[question] = part(cell, question, coded)
            place = min(skeleton.slots[question] for question in taken[i])
            text_answer = None if coded else work.answers[taken[i][-1]]
        elif i in drop:
            continue
        elif place is not None:
            text_answer = None
        elif cell.kind == "code" and cell.source.strip():
            waiting.append(cell)
        elif text_answer is not None and cell.source.strip():  # a text answer in several cells
            text_answer.source += "\n\n" + cell.source
            text_answer.attachments = {**cell.attachments, **text_answer.attachments}
        if place is not None and waiting:
            work.own.setdefault(place, []).extend(waiting)
            waiting = []
    if waiting:
        work.own.setdefault(len(skeleton.ids), []).extend(waiting)


def part(cell, question, coded):
    """What a cell says to one question, if it answers several at once."""
    if question in coded:
        first = question == coded[0]
        pointer = f"# exercise: {question}\n# answered in the cell of {coded[0]}"
        return Cell("code", cell.source if first else pointer)
    pieces = list(MARK.finditer(cell.source))
    for number, piece in enumerate(pieces):
        if piece[1] == question and len(pieces) > 1:
            ends = [*(following.start() for following in pieces[number + 1 :]), None]
            text = cell.source[piece.start() : ends[0]].strip()
            return Cell("markdown", text, question, cell.attachments)
    return Cell("markdown", cell.source, question, cell.attachments)


def merge(works, skeleton):
    """One work of those in several languages, the newest first: it counts, and an older one
    gives the answers that it lacks."""
    base = works[0]
    for older in works[1:]:
        for question in sorted(set(older.answers) - set(base.answers)):
            base.answers[question] = older.answers[question]
            place = skeleton.slots[question]
            base.own[place] = older.own.get(place, []) + base.own.get(place, [])
            base.notes = [said for said in base.notes if not said["en"].startswith(f"{question}:")]
            base.notes.append(note("{}: from the notebook in the other language", question))
    return base


def rebuild(work, skeleton):
    """The released notebook of the work's language, with the student's answers and cells."""
    notebook = copy.deepcopy(skeleton.notebooks[work.edition])
    slots = {place: question for question, place in skeleton.slots.items()}
    cells = []
    for place, cell in enumerate(notebook.cells):
        cells += [own_cell(cell) for cell in work.own.get(place, [])]
        answer = work.answers.get(slots.get(place))
        if answer:
            cell.source = answer.source
            attachments = keep_pictures(answer.attachments)
            if attachments and cell.cell_type == "markdown":
                cell.attachments = attachments
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        cells.append(cell)
    cells += [own_cell(cell) for cell in work.own.get(len(notebook.cells), [])]
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    notebook.cells = cells
    return notebook


def own_cell(cell):
    return nbformat.v4.new_code_cell(cell.source)


def keep_pictures(attachments):
    """Pictures pasted into a text, and nothing else that stands where they do."""
    kept = {}
    for name, forms in attachments.items():
        if isinstance(name, str) and isinstance(forms, dict):
            pictures = {
                kind: data
                for kind, data in forms.items()
                if kind in ("image/png", "image/jpeg") and isinstance(data, str)
            }
            kept |= {name: pictures} if pictures else {}
    return kept


# --- A whole class


def keep(course, student, file):
    """Copy a file into the archive of the student, unless just this is there already."""
    stamp = datetime.fromtimestamp(file.time).strftime("%Y%m%d-%H%M%S")
    digest = hashlib.sha256(file.content).hexdigest()[:12]
    name = "".join("_" if letter in courses.FORBIDDEN else letter for letter in file.name)
    name = name[-100:].strip(". ")
    path = course.path("collected", student, f"{stamp}-{digest}", name or "file")
    if not path.exists():
        path.write_bytes(file.content)
        os.utime(path, (file.time, file.time))
    return path


def attempts(course, student):
    """All that a student ever handed in, the newest first."""
    paths = course.folder.joinpath("collected", student).glob("*/*")
    return sorted(paths, key=lambda path: (path.stat().st_mtime, path.name), reverse=True)


def assemble(course, student, skeleton):
    """Rebuild a student's newest work; its information, or None if nothing is readable."""
    works, notes, times = {}, [], []
    for path in attempts(course, student):
        try:
            cells = read_cells(path.read_bytes())
        except ValueError as error:
            notes.append(note(f"{{}} {error}", path.name))
            continue
        work = sort(cells, skeleton)
        if work.edition not in works:
            works[work.edition] = work
            times.append(path.stat().st_mtime)
    if not works:
        return None, [said["en"] for said in notes]
    work = merge(list(works.values()), skeleton)
    info = {
        "edition": work.edition,
        "time": max(times),
        "answered": [name for name in skeleton.slots if name in work.answers],
        "notes": notes + work.notes,
    }
    path = course.path("submitted", student, ASSIGNMENT, f"{ASSIGNMENT}.ipynb")
    nbformat.write(rebuild(work, skeleton), path)
    path.with_name(INFO).write_text(json.dumps(info, ensure_ascii=False, indent=1), "utf-8")
    return info, [said["en"] for said in info["notes"]]


def collect(course, sources, say=print):
    """Take in folders, zips or files; one line for each student and each stray file."""
    bones = skeleton()
    problems, strays = {}, []
    for source in map(Path, sources):
        for file in find_files(source.expanduser()):
            label = file.path
            student = student_of(label, course.roster) or student_of(source.name, course.roster)
            if student is None:
                strays.append(f"{printable(label)}: names no student of the roster (or several)")
            elif file.problem:
                problems.setdefault(student, []).append(f"{file.name} {file.problem}")
            else:
                keep(course, student, file)
    lines = {}
    for student in course.roster:
        try:
            info, notes = assemble(course, student, bones)
        except Exception as error:  # one student's file must never stop the class
            info, notes = None, [f"cannot be rebuilt ({type(error).__name__}: {error})"]
        notes = problems.get(student, []) + notes
        lines[student] = line(info, notes, bones, course)
        say(f"{student}: {lines[student]}")
    for stray in strays:
        say(stray)
    return lines, strays


def line(info, notes, skeleton, course):
    """What is said of one student."""
    said = []
    if info:
        said.append(f"{len(info['answered'])} of {len(skeleton.slots)} answers, {info['edition']}")
        if course.due and info["time"] > course.due.timestamp():
            said.append("late")
    return printable("; ".join(said + notes)) or "nothing handed in"
