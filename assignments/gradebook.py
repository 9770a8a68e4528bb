"""The grade book of nbgrader: scores go in, feedback and a table come out.

nbgrader's own `autograde` is never run, as it would trust what happens in a student's kernel.
The notebooks in `autograded/` are what its form for grading by hand shows.
"""

import csv
import html
import json
import os
import re
import sys
import warnings
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import nbformat
from nbgrader.api import Gradebook, MissingEntry
from sqlalchemy.exc import SAWarning

from assignments import course as courses
from assignments.course import ASSIGNMENT
from assignments.intake import INFO, grade_id
from tools.notebooks import BookError

WORDS = {
    "en": {
        "title": "Feedback",
        "question": "Question",
        "points": "Points",
        "remark": "Remark",
        "total": "Together",
        "right": "Right.",
        "waiting": "Not graded yet.",
        "none": "Not attempted.",
        "intake": "What we noticed when we read your notebook",
    },
    "zh": {
        "title": "反馈",
        "question": "题目",
        "points": "得分",
        "remark": "说明",
        "total": "合计",
        "right": "正确。",
        "waiting": "尚未评阅。",
        "none": "未作答。",
        "intake": "读取笔记本时的记录",
    },
}
PAGE = """<!doctype html>
<html lang="{edition}"><meta charset="utf-8"><title>{title}</title>
<style>body {{ font-family: sans-serif; max-width: 50em; margin: 2em auto }}
td, th {{ text-align: left; vertical-align: top; padding: .3em 1em .3em 0 }}</style>
<h1>{title}</h1>
<table><tr><th>{question}</th><th>{points}</th><th>{remark}</th></tr>
{rows}
</table>
{notes}
</html>
"""


@contextmanager
def opened(course, create=False):
    """The grade book of a course, which knows the assignment, its questions and the roster.

    Raises BookError if there is none and it is not to be made.
    """
    # a new book asks the program alembic, which stands beside this Python
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    path = course.folder / "gradebook.db"
    new = not path.exists()
    if new and not create:
        raise BookError("nothing is graded yet; run python -m assignments grade first")
    with Gradebook(f"sqlite:///{path.as_posix()}", "course") as book:
        due = {"duedate": naive(course.due)} if course.due else {}
        if new:
            path.chmod(0o600)
        book.update_or_create_assignment(ASSIGNMENT, **due)
        define(book)
        for student in course.roster.values():
            names = {"first_name": student.first_name, "last_name": student.last_name}
            book.update_or_create_student(student.id, email=student.email or None, **names)
        yield book


def naive(time):
    """A time as nbgrader keeps it: of UTC, without saying so."""
    return time.astimezone(UTC).replace(tzinfo=None)


def define(book):
    """The one notebook with its graded cells, which both languages share."""
    checks, where = courses.checks(), (ASSIGNMENT, ASSIGNMENT)
    book.update_or_create_notebook(ASSIGNMENT, ASSIGNMENT)
    for question in checks.QUESTIONS:
        settings = {"max_score": question.points, "cell_type": "code"}
        book.update_or_create_grade_cell(cell_name(question.id), *where, **settings)
        book.update_or_create_solution_cell(question.id, *where)
    for name, points in checks.FREE_TEXT.items():
        settings = {"max_score": points, "cell_type": "markdown"}
        book.update_or_create_grade_cell(name, *where, **settings)
        book.update_or_create_solution_cell(name, *where)


def cell_name(question):
    """The graded cell of a question: its visible check, or the text itself."""
    return question if question in courses.checks().FREE_TEXT else f"{question}-check"


def information(course, student):
    """What the intake says of a student's work."""
    path = course.folder / "submitted" / student / ASSIGNMENT / INFO
    return json.loads(path.read_text(encoding="utf-8"))


def store(course, results):
    """Write {student: {question: Result}}; marks and comments given by hand stay."""
    with opened(course, create=True) as book:
        for student, its_results in results.items():
            info = information(course, student)
            texts = write_autograded(course, student, its_results, info["edition"])
            enter(book, student, datetime.fromtimestamp(info["time"]))
            where = (ASSIGNMENT, ASSIGNMENT, student)
            for question, result in its_results.items():
                grade = book.find_grade(cell_name(question), *where)
                grade.auto_score, grade.needs_manual_grade = result.points, False
            for question, changed in texts.items():
                grade = book.find_grade(question, *where)
                if question not in info["answered"]:
                    grade.auto_score, grade.needs_manual_grade = 0, False
                elif changed or grade.manual_score is None:
                    grade.auto_score, grade.needs_manual_grade = None, True
            book.db.commit()


def enter(book, student, time):
    """The submission of a student, as handed in at `time`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SAWarning)  # nbgrader queries what it is about to add
        book.update_or_create_submission(ASSIGNMENT, student, timestamp=naive(time))


def write_autograded(course, student, results, edition):
    """The notebook that the form shows; returns {text question: has it changed since?}."""
    submitted = course.folder / "submitted" / student / ASSIGNMENT / f"{ASSIGNMENT}.ipynb"
    target = course.path("autograded", student, ASSIGNMENT, f"{ASSIGNMENT}.ipynb")
    before = texts(nbformat.read(target, 4)) if target.exists() else {}
    notebook = nbformat.read(submitted, 4)
    by_hand = tuple(courses.checks().FREE_TEXT)  # first in the form, lest each needs scrolling
    notebook.cells.sort(key=lambda cell: not grade_id(cell).startswith(by_hand))
    said = {cell_name(name): result for name, result in results.items()}
    for cell in notebook.cells:
        result = said.get(grade_id(cell))
        if result and cell.cell_type == "code":
            words = result.sentence.get(edition) or WORDS[edition]["right"]
            cell.outputs = [nbformat.v4.new_output("stream", text=f"{result.points}: {words}\n")]
    nbformat.write(notebook, target)
    return {name: before.get(name) != text for name, text in texts(notebook).items()}


def texts(notebook):
    names = courses.checks().FREE_TEXT
    found = {grade_id(cell): cell for cell in notebook.cells}
    return {name: found[name].source for name in names if name in found}


def marks(book, student):
    """{question: (score, maximum, waits for a hand, comment)} of one student."""
    held = {}
    checks = courses.checks()
    for question in [*(question.id for question in checks.QUESTIONS), *checks.FREE_TEXT]:
        where = (ASSIGNMENT, ASSIGNMENT, student)
        grade = book.find_grade(cell_name(question), *where)
        comment = book.find_comment(question, *where).comment or ""
        held[question] = (grade.score, grade.max_score, grade.needs_manual_grade, comment)
    return held


def graded_students(course, book):
    """The students of the roster who have a result in the book: {student: time of the work}."""
    found = {}
    for student in course.roster:
        try:
            found[student] = book.find_submission(ASSIGNMENT, student).timestamp
        except MissingEntry:
            continue
    return found


def number(score):
    return f"{score:g}"


def feedback(course, say=print):
    """One page of HTML for each student, in the language of the work: scores and sentences."""
    with opened(course) as book:
        for student in graded_students(course, book):
            path = course.path("feedback", student, f"{ASSIGNMENT}.html")
            path.write_text(page(course, student, marks(book, student)), encoding="utf-8")
            say(f"{student}: {path.relative_to(course.folder).as_posix()}")


def page(course, student, held):
    info = information(course, student)
    words = WORDS[info["edition"]]
    kept = json.loads((course.folder / "graded" / f"{student}.json").read_text(encoding="utf-8"))
    rows = []
    for question, (score, most, waits, comment) in held.items():
        result = kept["results"].get(question)
        if result:
            remark = result["sentence"].get(info["edition"]) or words["right"]
        elif question not in info["answered"]:
            remark = words["none"]
        else:
            remark = words["waiting"] if waits else ""
        rows.append((question, f"{number(score)} / {number(most)}", f"{remark} {comment}".strip()))
    total, most = sum(mark[0] for mark in held.values()), sum(mark[1] for mark in held.values())
    rows.append((words["total"], f"{number(total)} / {number(most)}", ""))
    notes = "".join(f"<li>{html.escape(note[info['edition']])}</li>" for note in info["notes"])
    student = course.roster[student]
    names = [student.first_name, student.last_name]
    if any("\u4e00" <= letter <= "\u9fff" for letter in "".join(names)):
        name = "".join(reversed(names))
    else:
        name = " ".join(names).strip()
    name = name or student.id
    return PAGE.format(
        **words | {"title": html.escape(f"{course.name} · {words['title']} · {name}")},
        edition={"zh": "zh-CN"}.get(info["edition"], info["edition"]),
        rows="\n".join(map(row, rows)),
        notes=f"<p>{words['intake']}</p><ul>{notes}</ul>" if notes else "",
    )


def row(cells):
    texts = [re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(cell)) for cell in cells]
    return "<tr>" + "".join(f"<td>{text}</td>" for text in texts) + "</tr>"


def export(course):
    """`grades.csv`: one line for each student of the roster, one column for each question."""
    path = course.folder / "grades.csv"
    with opened(course) as book:
        times = graded_students(course, book)
        done = {student: marks(book, student) for student in times}
    checks = courses.checks()
    most = {question.id: question.points for question in checks.QUESTIONS} | checks.FREE_TEXT
    with path.open("w", encoding="utf-8-sig", newline="") as file:  # Excel reads Chinese so
        table = csv.writer(file)
        table.writerow(["id", "last_name", "first_name", *most, "total", "maximum", "status"])
        for student in course.roster.values():
            held = done.get(student.id, {})
            scores = [number(held[name][0]) if held else "0" for name in most]
            total = sum(mark[0] for mark in held.values())
            table.writerow(
                [student.id, student.last_name, student.first_name, *scores, number(total)]
                + [sum(most.values()), status(course, student.id, held, times.get(student.id))]
            )
    return path


def status(course, student, held, time):
    """What still has to be done, or known, of a student's mark for the work of this time."""
    if not held:
        collected = (course.folder / "collected" / student).is_dir()
        submitted = (course.folder / "submitted" / student).is_dir()
        return "not graded" if submitted else "not readable" if collected else "missing"
    waiting = [name for name, mark in held.items() if mark[2]]
    said = [f"grade by hand: {' '.join(waiting)}"] if waiting else []
    newest = information(course, student)["time"]
    if naive(datetime.fromtimestamp(newest)) != time:
        said.insert(0, "newer work is not graded")
    if course.due and newest > course.due.timestamp():
        said.append("late")
    return "; ".join(said) or "complete"
