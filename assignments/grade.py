"""Grading: a student's process is asked, this process judges.

The student's cells run behind the wall (`sandbox`). Then each hidden case goes in as plain data,
what the answer makes of it comes out, and the private checks decide here on points and one
sentence. A cell that fails, hangs or ends the interpreter costs only the answers in it.
"""

import builtins
import hashlib
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

import nbformat
import numpy as np

from assignments import course as courses
from assignments import gradebook, sandbox
from assignments.course import ASSIGNMENT
from assignments.intake import skeleton
from assignments.student import MESSAGE, decode, encode
from tools.notebooks import BookError

RESTARTS = 20  # of one submission's process
SENTENCES = {
    "stub": {"en": "Not attempted yet.", "zh": "尚未作答。"},
    "missing": {"en": "There is no `{name}` in the notebook.", "zh": "笔记本中没有 `{name}`。"},
    "cell": {
        "en": "There is no `{name}`, since its cell raises {error}.",
        "zh": "没有得到 `{name}`：它所在的单元抛出 {error}。",
    },
    "error": {
        "en": "`{name}` raises {error} in the line `{line}`.",
        "zh": "`{name}` 在 `{line}` 这一行抛出 {error}。",
    },
    "elsewhere": {"en": "`{name}` raises {error}.", "zh": "`{name}` 抛出 {error}。"},
    "kind": {
        "en": "`{name}` returns something other than numbers and tensors of numbers.",
        "zh": "`{name}` 返回的不是数，也不是由数组成的张量。",
    },
    "late": {
        "en": "`{name}` or its cell is not done after {seconds} s.",
        "zh": "`{name}` 或它所在的单元运行 {seconds} 秒仍未结束。",
    },
    "ended": {
        "en": "`{name}` or its cell ends the interpreter.",
        "zh": "`{name}` 或它所在的单元终止了解释器。",
    },
    "flood": {
        "en": "`{name}` or its cell prints more than {kilobytes} kB.",
        "zh": "`{name}` 或它所在的单元打印的内容超过 {kilobytes} kB。",
    },
    "huge": {
        "en": "`{name}` returns far more than the question asks for.",
        "zh": "`{name}` 返回的内容远远超出题目的要求。",
    },
    "noise": {
        "en": "`{name}` or its cell writes where only the grader writes.",
        "zh": "`{name}` 或它所在的单元写入了评分程序专用的通道。",
    },
    "over": {
        "en": "The {limit} s of this submission were used up before `{name}`.",
        "zh": "还没有运行到 `{name}`，这份作业的 {limit} 秒就已用完。",
    },
    "check": {
        "en": "`{name}` could not be judged; please ask your teacher.",
        "zh": "`{name}` 无法评判，请询问教师。",
    },
}


@dataclass(frozen=True)
class Result:
    """What one question earned, and one sentence on it in each language ({} if all is right)."""

    points: int
    sentence: dict


class Session:
    """A student's process, started anew without the guilty cell whenever it is lost."""

    def __init__(self, cells, walls):
        self.cells, self.walls, self.limits = cells, walls, walls.limits
        self.lines = {short(line) for _, source in cells for line in source.splitlines()}
        self.errors = {}  # {question: what its cell raises, or why the process was lost in it}
        self.lost = set()  # numbers of cells that are not run any more
        self.left = float(walls.limits.seconds)
        self.starts = 0
        self.student = None

    def request(self, message):
        """One request within the time that is left. Raises Lost."""
        if self.left <= 0:
            raise sandbox.Lost("over")
        begin = time.monotonic()
        try:
            return self.student.request(message, min(self.limits.call_seconds, self.left))
        except sandbox.Lost:
            self.close()
            raise
        finally:
            self.left -= time.monotonic() - begin

    def ready(self):
        """Have a process in which all cells ran, but those that end it. Raises Lost."""
        while self.student is None:
            if self.starts == RESTARTS or self.left <= 0:
                raise sandbox.Lost("over")
            self.starts += 1
            self.student = sandbox.Student(self.walls)
            self.run_cells()

    def run_cells(self):
        for number, (questions, source) in enumerate(self.cells):
            if number in self.lost:
                continue
            try:
                error = self.request({"cell": source}).get("error")
            except sandbox.Lost as lost:
                self.lost.add(number)
                self.errors |= {question: lost.reason for question in questions}
                self.close()
                return
            if error:
                self.errors |= {question: error for question in questions}

    def ask(self, question, case):
        """The reply of the student's answer to one case. Raises Lost."""
        self.ready()
        message = {"name": question.name, "driver": question.driver, "inputs": encode(case.inputs)}
        return self.request(message)

    def close(self):
        if self.student is not None:
            self.student.close()
            self.student = None


def sentence(key, question, limits, error="", line=""):
    values = {
        "name": question.name,
        "seconds": limits.call_seconds,
        "limit": limits.seconds,
        "kilobytes": limits.output_kb,
        "error": error,
        "line": line,
    }
    return {language: text.format(**values) for language, text in SENTENCES[key].items()}


def read_error(error):
    """What `explain` in student.py makes of an error, from a process that may send anything."""
    if not (isinstance(error, list) and len(error) == 3 and all(type(e) is str for e in error)):
        return "Exception", "", ""
    return map(short, error)


def short(text):
    return "".join(c for c in text.strip() if c.isprintable())[:MESSAGE].strip()


def cell_sentence(question, limits, error):
    """On a cell that fails. It has seen no hidden input, so its own message may be told."""
    kind, message, _ = read_error(error)
    told = f"{kind}: {message.rstrip('.')}" if message else kind
    return sentence("cell", question, limits, told)


def error_sentence(question, session, error):
    """On an answer that fails. It has seen hidden inputs, and could put them into a message or the
    name of a type: told are a type of Python's own, and a line that stands in the notebook."""
    kind, _, line = read_error(error)
    known = getattr(builtins, kind, None)
    if not (isinstance(known, type) and issubclass(known, BaseException)):
        kind = "Exception"
    key = "error" if line and line in session.lines else "elsewhere"
    return sentence(key, question, session.limits, kind, line)


def judge(question, case, reply, session):
    """(points, sentence) for one reply; it may hold anything."""
    limits = session.limits
    if "outputs" in reply:
        try:
            outputs = decode(reply["outputs"])
        except (ValueError, RecursionError):
            return 0, sentence("noise", question, limits)
        try:
            verdict = question.judge(case, outputs)
            return min(max(int(verdict.points), 0), case.points), dict(verdict.sentence)
        except Exception:  # a fault of the checks, never of the other students
            return 0, sentence("check", question, limits)
    if "missing" in reply:
        error = session.errors.get(question.id)
        if isinstance(error, str):
            return 0, sentence(error, question, limits)
        if error:
            return 0, cell_sentence(question, limits, error)
    for key in ("missing", "stub", "kind"):
        if key in reply:
            return 0, sentence(key, question, limits)
    return 0, error_sentence(question, session, reply.get("error"))


def grade_cells(cells, cases, walls):
    """{question: Result} for a list of (questions answered in the cell, source).

    `cases` is {Question: [Case]}. What is lost in a case ends its question, as the next case
    would most likely go the same way: what was earned before stays.
    """
    session, results = Session(cells, walls), {}
    try:
        for question, its_cases in cases.items():
            points, said = 0, {}
            for case in its_cases:
                try:
                    earned, words = judge(question, case, session.ask(question, case), session)
                except sandbox.Lost as lost:
                    said = said or sentence(lost.reason, question, walls.limits)
                    break
                points, said = points + earned, said or words
            results[question.id] = Result(points, said)
    finally:
        session.close()
    return results


def cells_to_run(notebook, skeleton):
    """The code cells of a rebuilt notebook that count: not the visible checks, no shell lines."""
    cells = []
    for cell in notebook.cells:
        graded = cell.metadata.get("nbgrader", {})
        check = graded.get("grade") and not graded.get("solution")
        if cell.cell_type != "code" or check or graded.get("grade_id") == "hand-in":
            continue
        source = re.sub(r"(?m)^([ \t]*)([!%](?!%).*)$", r"\1pass  # \2", cell.source)
        named = [name for name in skeleton.code if f"exercise: {name}" in source]
        cells.append((named or [graded.get("grade_id", "")], source))
    return cells


def hidden_cases(course):
    """{Question: [Case]} drawn from the course's secret."""
    cases = {}
    for question in courses.checks().QUESTIONS:
        drawn = question.cases(np.random.default_rng(course.seed(question.id)))
        if sum(case.points for case in drawn) != question.points:
            raise BookError(f"{question.id}: its cases do not add up to {question.points} points")
        cases[question] = drawn
    return cases


def fingerprint(course, path):
    """What a result depends on: if it is the same, the submission need not be graded again."""
    digest = hashlib.sha256(path.read_bytes())
    digest.update(Path(courses.checks().__file__).read_bytes())
    digest.update(f"{course.secret} {course.limits}".encode())
    return digest.hexdigest()


def grade_one(course, student, bones, cases, walls):
    """Grade one rebuilt notebook, and keep the result in `graded/STUDENT.json`."""
    path = course.path("submitted", student, ASSIGNMENT, f"{ASSIGNMENT}.ipynb")
    cells = cells_to_run(nbformat.read(path, 4), bones)
    results = grade_cells(cells, cases, walls)
    held = {"fingerprint": fingerprint(course, path)}
    held["results"] = {name: asdict(result) for name, result in results.items()}
    target = course.path("graded", f"{student}.json")
    target.write_text(json.dumps(held, ensure_ascii=False, indent=1), encoding="utf-8")
    return results


def stored(course, student):
    """The kept results of a student, or {} if there are none for this submission."""
    path = course.path("graded", f"{student}.json")
    submitted = course.path("submitted", student, ASSIGNMENT, f"{ASSIGNMENT}.ipynb")
    if not path.is_file():
        return {}
    held = json.loads(path.read_text(encoding="utf-8"))
    if held["fingerprint"] != fingerprint(course, submitted):
        return {}
    return {name: Result(**result) for name, result in held["results"].items()}


def grade(course, walls, again=False, say=print):
    """Grade what is new or changed (all, if `again`), with a line for each student."""
    students = [name for name in course.roster if (course.folder / "submitted" / name).is_dir()]
    if not students:
        raise BookError("nothing is collected yet; run python -m assignments collect first")
    bones, cases = skeleton(), hidden_cases(course)
    results = {} if again else {name: stored(course, name) for name in students}
    todo = [name for name in students if not results.get(name)]
    if len(todo) < len(students):
        say(f"{len(students) - len(todo)} of {len(students)} are graded already")
    pool = ThreadPoolExecutor(course.workers)
    try:
        running = {pool.submit(grade_one, course, s, bones, cases, walls): s for s in todo}
        for number, done in enumerate(as_completed(running), 1):
            student = running[done]
            try:
                results[student] = done.result()
                said = summary(results[student], cases)
            except BookError:  # Python does not start: so it goes for all
                raise
            except Exception as error:  # one student's file must never stop the class
                results.pop(student, None)
                said = f"could not be graded ({type(error).__name__}: {error})"
            say(f"[{number}/{len(todo)}] {student}: {said}")
    finally:  # after Ctrl-C too; what is graded is kept
        pool.shutdown(cancel_futures=True)
    say(f"writing {len(results)} into the grade book")
    gradebook.store(course, results)
    return results


def summary(results, cases):
    points = " ".join(f"{q.id} {results[q.id].points}/{q.points}" for q in cases)
    return f"{points}, together {sum(result.points for result in results.values())}"
