"""nbgrader's form for grading by hand, served to this computer alone."""

import os
import subprocess
import sys
from pathlib import Path

from assignments.course import ASSIGNMENT
from tools.notebooks import BookError

SETTINGS = """\
# Read by nbgrader's form; written anew whenever it starts.
c = get_config()
c.CourseDirectory.course_id = "course"
c.CourseDirectory.root = {root!r}
c.HTMLExporter.sanitize_html = True  # no script of a student's runs in your browser
"""


def command(course, *options):
    """What starts the server of the form, and the settings that it reads."""
    if not (course.folder / "gradebook.db").is_file():
        raise BookError("nothing is graded yet; run python -m assignments grade first")
    settings = SETTINGS.format(root=os.fspath(course.folder))
    (course.folder / "nbgrader_config.py").write_text(settings, encoding="utf-8")
    return [
        *(sys.executable, "-m", "jupyter_server"),
        f"--ServerApp.root_dir={course.folder}",
        f"--ServerApp.default_url=/formgrader/gradebook/{ASSIGNMENT}/{ASSIGNMENT}",
        *options,
    ]


def environment():
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return os.environ | {"PATH": path}


def serve(course):
    """Open the form in the browser, until Ctrl-C."""
    started = command(course, "--ServerApp.open_browser=True")
    try:
        return subprocess.run(started, cwd=course.folder, env=environment()).returncode
    except KeyboardInterrupt:
        return 0
