"""The folder of one course: what it holds, how it is made and read.

It lies outside any repository, as it holds the names, the work and the marks of students, and
the secret from which the hidden inputs are drawn.
"""

import csv
import hashlib
import os
import secrets
import shutil
import tomllib
from dataclasses import dataclass, fields
from datetime import datetime
from importlib import import_module
from pathlib import Path

from assignments.sandbox import Limits
from tools.notebooks import ROOT, BookError

ASSIGNMENT = "attention"  # also the one notebook that the grade book knows
KINDS = ("auto", "bubblewrap", "docker", "podman", "none")
FORBIDDEN = set('<>:"/\\|?*\0')  # in a student's id, which names folders on any system

SETTINGS = """\
# One course. What is commented out shows the value that counts without it.
name = "{name}"
# due = 2026-12-20T23:59:00+08:00   # later work is collected too, and marked "late"
# isolation = "auto"                # or "bubblewrap", "docker", "podman"
# workers = 2                       # submissions graded at the same time

[limits]                            # of one submission
# seconds = 60
# call_seconds = 10                 # of one cell, or one call of an answer
# memory_mib = 2048
# output_kb = 1000
# file_mb = 20
"""


@dataclass(frozen=True)
class Student:
    id: str
    first_name: str = ""
    last_name: str = ""
    email: str = ""


@dataclass(frozen=True)
class Course:
    folder: Path
    name: str
    due: datetime | None
    isolation: str
    workers: int
    limits: Limits
    roster: dict

    @property
    def secret(self):
        path = self.folder / "secret.txt"
        held = path.read_text(encoding="ascii").strip() if path.is_file() else ""
        if len(held) < 32:
            raise BookError(f"{path}: the course's secret is missing; bring it back from a copy")
        return held

    def seed(self, question):
        """The seed of the hidden inputs of a question, the same for all students."""
        digest = hashlib.sha256(f"{self.secret}/{question}".encode()).digest()
        return int.from_bytes(digest)

    def path(self, *parts):
        """A path in the folder, whose parents exist."""
        path = self.folder.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def checks():
    """The private checks of the assignment."""
    return import_module(f"assignments.{ASSIGNMENT}.checks")


def releases():
    """{edition: the released notebook's path}"""
    folder = ROOT / "assignments" / ASSIGNMENT / "release"
    return {path.parent.name: path for path in sorted(folder.glob(f"*/{ASSIGNMENT}.ipynb"))}


def repository_around(folder):
    """The nearest folder at or above `folder` that git looks after, or None."""
    for place in (folder, *folder.parents):
        if (place / ".git").exists():
            return place
    return None


def new(folder, roster):
    """Make the folder of a course from the roster, a CSV file; it must be empty or not exist."""
    folder = Path(folder).expanduser().resolve()
    repository = repository_around(folder)
    if repository:
        raise BookError(
            f"{folder} lies in the repository {repository}: git would take up students' work."
            " Choose a folder outside"
        )
    if folder.exists() and any(folder.iterdir()):
        raise BookError(f"{folder} is not empty; name a new folder for the course")
    read_roster(Path(roster).expanduser())
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    shutil.copyfile(Path(roster).expanduser(), folder / "roster.csv")
    name = folder.name.replace("\\", "").replace('"', "")
    (folder / "course.toml").write_text(SETTINGS.format(name=name), encoding="utf-8")
    descriptor = os.open(folder / "secret.txt", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(secrets.token_hex(32) + "\n")
    return load(folder)


def load(folder):
    """Read and check a course's settings and roster; a mistake raises BookError."""
    folder = Path(folder).expanduser().resolve()
    path = folder / "course.toml"
    if not path.is_file():
        raise BookError(f"{path}: there is no such file; `python -m assignments new` makes one")
    if repository_around(folder):
        raise BookError(f"{folder} lies in the repository {repository_around(folder)}; move it")
    try:
        held = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BookError(f"{path}: not TOML ({error})") from None
    limits = held.pop("limits", {})
    refuse_unknown(path, held, ["name", "due", "isolation", "workers"])
    refuse_unknown(path, limits, [field.name for field in fields(Limits)])
    for key, value in {"workers": held.get("workers", 2), **limits}.items():
        if type(value) is not int or value < 1:
            raise BookError(f"{path}: {key} must be a whole number above 0, not {value!r}")
    due, kind = held.get("due"), held.get("isolation", "auto")
    if due is not None and not isinstance(due, datetime):
        raise BookError(f"{path}: due must be a date with a time, not {due!r}")
    if kind not in KINDS:
        raise BookError(f"{path}: isolation must be one of {', '.join(KINDS)}, not {kind!r}")
    return Course(
        folder=folder,
        name=str(held.get("name", folder.name)),
        due=due.astimezone() if due else None,
        isolation=kind,
        workers=held.get("workers", 2),
        limits=Limits(**limits),
        roster=read_roster(folder / "roster.csv"),
    )


def refuse_unknown(path, held, known):
    unknown = sorted(set(held) - set(known))
    if unknown:
        raise BookError(f"{path}: {unknown[0]} is no setting; there are {', '.join(known)}")


def decode(content):
    """The text of a file, as programs of any country save it; raises ValueError with a few words."""
    if not content.strip(b"\0 \t\r\n"):
        raise ValueError("is empty")
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encodings = ("utf-16",)
    elif b"\0" in content[:4]:
        encodings = ("utf-16-le" if content[1:2] == b"\0" else "utf-16-be",)
    else:
        encodings = ("utf-8-sig", "gb18030")
    for encoding in encodings:
        try:
            return content.decode(encoding)
        except UnicodeDecodeError:
            continue
    raise ValueError("is not text")


def read_roster(path):
    """{id: Student} from a CSV file whose first line names at least the column `id`."""
    if not path.is_file():
        raise BookError(f"{path}: there is no such file")
    try:
        lines = decode(path.read_bytes()).splitlines()
    except ValueError as error:
        raise BookError(f"{path} {error}") from None
    delimiter = max(",;\t", key=lines[0].count) if lines else ","
    rows = csv.DictReader(lines, delimiter=delimiter)
    if "id" not in (rows.fieldnames or []):
        raise BookError(f"{path}: the first line must name the columns, one of them `id`")
    roster = {}
    for row in rows:
        given = {field.name: (row.get(field.name) or "").strip() for field in fields(Student)}
        name = given["id"]
        if not name and not any(given.values()):
            continue
        if not name or set(name) & FORBIDDEN or not name.isprintable() or name.strip(". ") != name:
            raise BookError(f"{path}, line {rows.line_num}: {name!r} cannot name a folder")
        if name.casefold() in (other.casefold() for other in roster):
            raise BookError(f"{path}, line {rows.line_num}: the id {name} occurs twice")
        roster[name] = Student(**given)
    if not roster:
        raise BookError(f"{path}: names no student")
    return roster
