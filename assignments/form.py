"""nbgrader's form for grading by hand, served to this computer alone."""

import os
import subprocess
import sys
from pathlib import Path

import bleach

from assignments.course import ASSIGNMENT
from tools.notebooks import ROOT, BookError

SETTINGS = """\
# Read by nbgrader's form; written anew whenever it starts.
c = get_config()
c.CourseDirectory.course_id = "course"
c.CourseDirectory.root = {root!r}
# its button "autograde" would run students' code without walls: it finds nothing there
c.CourseDirectory.submitted_directory = "nothing-that-nbgrader-runs"
# no script of a student's runs in your browser: the form's templates know no other place for it
from assignments.form import clean
c.HTMLExporter.filters = {{"strip_files_prefix": clean}}
"""

TAGS = "p br hr h1 h2 h3 h4 h5 h6 table thead tbody tr th td pre div span img sub sup del".split()


def clean(text):
    """HTML made from a student's Markdown, without what could run or call elsewhere."""
    return bleach.clean(
        text,
        tags={*bleach.ALLOWED_TAGS, *TAGS},
        attributes={"*": ["class"], "a": ["href", "title"], "img": picture},
        protocols={"http", "https", "mailto", "data"},
    )


def picture(tag, name, value):
    return name == "alt" or (
        name == "src" and value.startswith(("data:image/png", "data:image/jp"))
    )


def command(course, *options):
    """What starts the server of the form, and the settings that it reads."""
    if not (course.folder / "gradebook.db").is_file():
        raise BookError("nothing is graded yet; run python -m assignments grade first")
    settings = SETTINGS.format(root=os.fspath(course.folder))
    (course.folder / "nbgrader_config.py").write_text(settings, encoding="utf-8")
    return [
        *(sys.executable, "-m", "jupyter_server"),
        f"--ServerApp.root_dir={course.folder}",
        # the form's own pages would leave the path of the login to the browser, and lose it
        "--IdentityProvider.cookie_options=path=/",
        f"--ServerApp.default_url=/formgrader/gradebook/{ASSIGNMENT}/{ASSIGNMENT}",
        *options,
    ]


def environment():
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return os.environ | {"PATH": path, "PYTHONPATH": os.fspath(ROOT)}


def serve(course):
    """Open the form in the browser, until Ctrl-C."""
    options = ["--ServerApp.open_browser=True"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # in a container, say
        options.append("--allow-root")
    started = command(course, *options)
    try:
        return subprocess.run(started, cwd=course.folder, env=environment()).returncode
    except KeyboardInterrupt:
        return 0
