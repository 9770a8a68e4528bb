"""How many submissions are graded in a minute, and in how much memory.

Sixty made-up submissions, in a course that is thrown away: the instructor's solutions, with some
answers left out, broken or wrong, in both languages.
"""

import csv
import tempfile
import threading
import time
from pathlib import Path

import nbformat
import psutil

from assignments import course as courses
from assignments import grade, intake, sandbox
from tools.notebooks import ROOT

STUDENTS = 60
LEAST = 20  # submissions a minute, on two cores
DAMAGE = (
    lambda source: source,
    lambda source: "raise RuntimeError('this cell is broken')",
    lambda source: source.replace(" + ", " - ", 1),
    lambda source: source.replace("return ", "return 0 * ", 1),
)


def submissions(folder):
    """Write one notebook for each student; no two of a row have the same faults."""
    sources = sorted((ROOT / "assignments" / courses.ASSIGNMENT / "source").glob("*/*.ipynb"))
    for number in range(STUDENTS):
        notebook = nbformat.read(sources[number % len(sources)], 4)
        for place, cell in enumerate(notebook.cells):
            graded = cell.metadata.get("nbgrader", {})
            if graded.get("solution") and cell.cell_type == "code":
                damage = DAMAGE[(number + place) % len(DAMAGE)] if number % 3 == 0 else DAMAGE[0]
                cell.source = damage(cell.source)
        nbformat.write(notebook, folder / f"student{number:02}.ipynb")


class Memory(threading.Thread):
    """Watches the memory of this process and of all that it starts; `peak` is in bytes."""

    def __init__(self):
        super().__init__(daemon=True)
        self.done, self.own, self.peak = threading.Event(), psutil.Process(), 0

    def run(self):
        while not self.done.wait(0.1):
            used = 0
            for process in [self.own, *self.own.children(recursive=True)]:
                try:
                    used += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            self.peak = max(self.peak, used)


def main(no_isolation=False):
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        folder = Path(folder)
        with (folder / "roster.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([["id"], *([f"student{n:02}"] for n in range(STUDENTS))])
        inbox = folder / "inbox"
        inbox.mkdir()
        submissions(inbox)
        course = courses.new(folder / "course", folder / "roster.csv")
        kind = "none" if no_isolation else course.isolation
        walls = sandbox.walls(kind, course.limits, (ROOT, course.folder))
        print(f"isolation: {walls.told}", flush=True)
        memory = Memory()
        memory.start()
        begin = time.monotonic()
        intake.collect(course, [inbox], say=lambda line: None)
        read = time.monotonic()
        grade.grade(course, walls, say=lambda line: print(line, flush=True))
        end = time.monotonic()
        memory.done.set()
    rate = STUDENTS * 60 / (end - begin)
    print(
        f"{STUDENTS} submissions with {course.workers} workers: collected in {read - begin:.1f} s,"
        f" graded in {end - read:.1f} s: {rate:.0f} a minute;"
        f" peak memory of all processes {memory.peak / 2**20:.0f} MiB"
    )
    return 0 if rate >= LEAST else 1
