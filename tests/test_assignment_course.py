"""The teacher's path, from an empty folder to the grade book, feedback and table."""

import csv
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import time
import tomllib
import urllib.request
import zipfile

import nbformat
import pytest
from bs4 import BeautifulSoup

from assignments import __main__ as program
from assignments import benchmark, form, grade, gradebook
from assignments import course as courses
from assignments.sandbox import Bubblewrap
from tools import archive
from tools.notebooks import ROOT, BookError

SOURCES = ROOT / "assignments" / "attention" / "source"
CHECKS = courses.checks()
CODED = [question.id for question in CHECKS.QUESTIONS]
COLUMNS = [*CODED, *CHECKS.FREE_TEXT]
FULL = sum(question.points for question in CHECKS.QUESTIONS)
TOTAL = FULL + sum(CHECKS.FREE_TEXT.values())
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def roster(tmp_path):
    path = tmp_path / "roster.csv"
    path.write_text("id,first_name,last_name\nann,Ann,A\nbob,Bob,B\n张三,三,张\n", encoding="utf-8")
    return path


# --- The folder of a course


def test_new_makes_a_private_folder(tmp_path, roster, capsys):
    folder = tmp_path / "a course"
    assert program.main(["new", str(folder), str(roster)]) == 0
    course = courses.load(folder)
    assert list(course.roster) == ["ann", "bob", "张三"] and "3 students" in capsys.readouterr().out
    assert course.name == "a course" and course.due is None and course.limits.seconds == 60
    if os.name != "nt":
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "secret.txt").stat().st_mode) == 0o600
    other = courses.new(tmp_path / "other", roster)
    assert len(course.secret) == 64 and course.secret != other.secret
    seeds = {place.seed(name) for place in (course, other) for name in COLUMNS}
    assert len(seeds) == 2 * len(COLUMNS)
    assert course.seed("q1") == courses.load(folder).seed("q1")


def test_a_folder_that_git_would_track_is_refused(tmp_path, roster, capsys):
    for folder in (ROOT / "course", ROOT / "_build" / "course"):
        assert program.main(["new", str(folder), str(roster)]) == 1 and not folder.exists()
        assert "git would take up students' work" in capsys.readouterr().err
    folder = courses.new(tmp_path / "course", roster).folder
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    with pytest.raises(BookError, match="lies in the repository"):
        courses.load(folder)
    with pytest.raises(BookError, match="git would take up"):
        courses.new(tmp_path / "deep" / "er", roster)


def test_nothing_is_overwritten(tmp_path, roster):
    courses.new(tmp_path / "course", roster)
    before = (tmp_path / "course" / "secret.txt").read_text()
    with pytest.raises(BookError, match="is not empty"):
        courses.new(tmp_path / "course", roster)
    assert (tmp_path / "course" / "secret.txt").read_text() == before


ROSTERS = {
    "": "is empty",
    "\n": "is empty",
    "ann": "must name the columns",
    "name\nann": "one of them `id`",
    "id\n": "names no student",
    "id\nann\nANN": "line 3: the id ANN occurs twice",
    "id,last_name\n,A": "line 2: '' cannot name a folder",
    "id\na/b": "'a/b' cannot name a folder",
    "id\n..": "cannot name a folder",
    "id\na\x07b": "cannot name a folder",
}


@pytest.mark.parametrize("text", ROSTERS)
def test_rosters_with_faults(tmp_path, text):
    (tmp_path / "roster.csv").write_text(text, encoding="utf-8")
    with pytest.raises(BookError, match=re.escape(ROSTERS[text])):
        courses.new(tmp_path / "course", tmp_path / "roster.csv")
    assert not (tmp_path / "course").exists()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "gb18030"])
@pytest.mark.parametrize("between", [",", ";", "\t"])
def test_rosters_of_any_spreadsheet(tmp_path, encoding, between):
    text = between.join(["last_name", "id", "group"]) + "\r\n" + between.join(["张", "三", "1"])
    (tmp_path / "roster.csv").write_bytes((text + "\r\n\r\n").encode(encoding))
    found = courses.read_roster(tmp_path / "roster.csv")
    assert found == {"三": courses.Student("三", last_name="张")}


SETTINGS = {
    "workers = 0": "workers must be a whole number above 0, not 0",
    "worker = 2": "worker is no setting",
    'isolation = "chroot"': "isolation must be one of",
    "due = 2026-12-01": "due must be a date with a time",
    "[limits]\nseconds = true": "seconds must be a whole number above 0",
    "[limits]\nhours = 1": "hours is no setting",
    "name = ": "not TOML",
}


@pytest.mark.parametrize("text", SETTINGS)
def test_settings_with_faults(tmp_path, roster, text):
    folder = courses.new(tmp_path / "course", roster).folder
    (folder / "course.toml").write_text(text, encoding="utf-8")
    with pytest.raises(BookError, match=re.escape(SETTINGS[text])):
        courses.load(folder)


def test_settings_that_are_commented_out_are_the_defaults(tmp_path, roster):
    folder = courses.new(tmp_path / "course", roster).folder
    plain, path = courses.load(folder), folder / "course.toml"
    path.write_text(re.sub("(?m)^# (?=[a-z_]+ =)", "", path.read_text("utf-8")), "utf-8")
    given = courses.load(folder)
    assert (given.limits, given.workers, given.isolation) == (plain.limits, 2, "auto")
    assert given.due is not None and len(tomllib.loads(path.read_text("utf-8"))["limits"]) == 5


STEPS = [["release"], ["collect", "x.zip"], ["grade"], ["form"], ["feedback"], ["export"]]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step[0])
def test_steps_say_what_is_missing(tmp_path, roster, capsys, step):
    name, *more = step
    assert program.main([name, str(tmp_path / "nowhere"), *more]) == 1
    assert "python -m assignments new" in capsys.readouterr().err
    if name in ("grade", "form", "feedback", "export"):
        folder = courses.new(tmp_path / "course", roster).folder
        options = ["--no-isolation"] if name == "grade" else []
        assert program.main([name, str(folder), *options]) == 1
        assert re.search("nothing is (collected|graded) yet", capsys.readouterr().err)


def test_release_names_the_link_to_colab_once_there_is_a_repository(
    tmp_path, roster, capsys, monkeypatch
):
    folder = os.fspath(courses.new(tmp_path / "course", roster).folder)
    assert program.main(["release", folder]) == 0
    placed = program.PLACEHOLDER in (ROOT / "_config.yml").read_text("utf-8")
    assert ("Colab" in capsys.readouterr().out) is not placed
    published = {"url": "https://github.com/owner/book", "branch": "v1.2"}
    colab = {"colab_url": "https://colab.research.google.com"}
    config = {"repository": published, "launch_buttons": colab}
    monkeypatch.setattr(program, "read_yaml", lambda path: config)
    assert program.main(["release", folder]) == 0
    address = "https://colab.research.google.com/github/owner/book/blob/v1.2/assignments/attention"
    said = capsys.readouterr().out
    for edition in ("en", "zh"):
        assert f"{address}/release/{edition}/attention.ipynb" in said


def test_a_lost_secret_is_told(tmp_path, roster):
    course = courses.new(tmp_path / "course", roster)
    (course.folder / "secret.txt").write_text("")
    with pytest.raises(BookError, match="secret is missing"):
        course.seed("q1")


# --- The whole path, with three students


def work(edition, wrong=()):
    """The instructor's answers in one language, with some replaced."""
    notebook = nbformat.read(SOURCES / edition / "attention.ipynb", 4)
    for cell in notebook.cells:
        name = cell.metadata.get("nbgrader", {}).get("grade_id")
        if name in CHECKS.FREE_TEXT:
            cell.source = f"<!-- exercise: {name} -->\nThe text of {name}. {SCRIPT}"
        if name in wrong:
            cell.source = f"# exercise: {name}\nraise RuntimeError('no idea')"
    return notebook


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """A course after collecting and grading; Ann and Li Na give equal answers, Zhang none."""
    problem = Bubblewrap.problem()
    if problem:
        pytest.skip(problem)
    tmp_path = tmp_path_factory.mktemp("taught")
    (tmp_path / "roster.csv").write_text(
        "id,last_name\nann,A\n李 娜,李\n张三,张\n", encoding="utf-8"
    )
    folder, box = tmp_path / "course", tmp_path / "box"
    box.mkdir()
    nbformat.write(work("en", ["q2"]), box / "ann.ipynb")
    twice = work("zh", ["q2"])
    (answer,) = [cell for cell in twice.cells if cell.source.startswith("# exercise: q1")]
    twice.cells.append(nbformat.v4.new_code_cell(answer.source))
    nbformat.write(twice, box / "李 娜 作业.ipynb")
    for step in (
        ["new", str(folder), str(tmp_path / "roster.csv")],
        ["release", str(folder)],
        ["collect", str(folder), str(box)],
        ["grade", str(folder)],
    ):
        assert program.main(step) == 0
    return folder


def table(folder):
    """{student: row} of the exported table."""
    assert program.main(["export", str(folder)]) == 0
    with (folder / "grades.csv").open(encoding="utf-8-sig", newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


@pytest.fixture
def folder(taught, tmp_path):
    """A copy of the course, to change."""
    return shutil.copytree(taught, tmp_path / "course")


def by_hand(folder, student, question, points, comment=""):
    """What nbgrader's form does when a teacher types points and a comment."""
    with gradebook.opened(courses.load(folder)) as book:
        where = ("attention", "attention", student)
        grade = book.find_grade(question, *where)
        grade.manual_score, grade.needs_manual_grade = points, False
        book.find_comment(question, *where).manual_comment = comment
        book.db.commit()


def test_equal_answers_in_either_language_score_equally(taught):
    rows = table(taught)
    assert list(rows) == ["ann", "李 娜", "张三"]
    for student in ("ann", "李 娜"):
        row = rows[student]
        assert {name: float(row[name]) for name in CODED} == {
            question.id: 0 if question.id == "q2" else question.points
            for question in CHECKS.QUESTIONS
        }
        assert row["status"] == f"grade by hand: {' '.join(CHECKS.FREE_TEXT)}"
    assert rows["张三"]["status"] == "missing" and rows["张三"]["total"] == "0"
    assert {row["maximum"] for row in rows.values()} == {str(TOTAL)}


def test_the_grade_book_knows_one_notebook(taught):
    with gradebook.opened(courses.load(taught)) as book:
        (assignment,) = book.assignments
        (notebook,) = assignment.notebooks
        assert (assignment.name, notebook.name) == ("attention", "attention")
        assert assignment.max_score == TOTAL and len(notebook.grade_cells) == len(COLUMNS)
        assert {student.id for student in book.students} == {"ann", "李 娜", "张三"}


def test_marks_by_hand_reach_feedback_and_table(folder):
    for student in ("ann", "李 娜"):
        for name, points in zip(CHECKS.FREE_TEXT, (7.5, 3), strict=True):
            by_hand(folder, student, name, points, f"Why <b>{name}</b>?")
    rows = table(folder)
    assert float(rows["ann"]["total"]) == FULL - 10 + 10.5 == float(rows["李 娜"]["total"])
    assert rows["ann"]["status"] == "complete"
    assert program.main(["feedback", str(folder)]) == 0
    pages = {path.parent.name: path for path in folder.glob("feedback/*/*.html")}
    assert list(sorted(pages)) == ["ann", "李 娜"]
    texts = {name: path.read_text("utf-8") for name, path in pages.items()}
    assert 'lang="en"' in texts["ann"] and 'lang="zh-CN"' in texts["李 娜"]
    assert "its cell raises RuntimeError: no idea" in texts["ann"]
    assert "它所在的单元抛出 RuntimeError: no idea" in texts["李 娜"]
    for text in texts.values():
        cells = [cell.text for cell in BeautifulSoup(text, "html.parser").find_all("td")]
        assert "7.5 / 10" in cells and f"{FULL + 0.5:g} / {TOTAL}" in cells
        assert "Why <b>q6</b>?" in cells  # as text, not as markup
        assert "<code>slow_first_table</code>" in text
    assert "<li>q1：有 2 个单元，以最后一个为准</li>" in texts["李 娜"] and "<li>" not in texts["ann"]


def test_the_table_tells_why_there_is_no_mark(folder, tmp_path):
    (tmp_path / "张三.ipynb").write_text("no notebook")
    assert program.main(["collect", str(folder), str(tmp_path / "张三.ipynb")]) == 0
    assert table(folder)["张三"]["status"] == "not readable"
    nbformat.write(work("zh"), tmp_path / "张三.ipynb")
    assert program.main(["collect", str(folder), str(tmp_path / "张三.ipynb")]) == 0
    assert table(folder)["张三"]["status"] == "not graded"


def test_the_texts_stand_first_in_the_form(folder):
    path = folder / "autograded" / "ann" / "attention" / "attention.ipynb"
    ids = [cell.metadata.nbgrader.grade_id for cell in nbformat.read(path, 4).cells]
    assert ids[:4] == ["q6-text", "q6", "q7-text", "q7"] and "q1-check" in ids


def test_late_work_is_graded_anew_and_marks_by_hand_stay(folder, tmp_path, capsys):
    by_hand(folder, "ann", "q6", 8)
    by_hand(folder, "ann", "q7", 9)
    late = work("en")
    for cell in late.cells:
        if cell.metadata["nbgrader"]["grade_id"] == "q7":
            cell.source += " More."
    nbformat.write(late, tmp_path / "ann.ipynb")
    capsys.readouterr()
    assert program.main(["collect", str(folder), str(tmp_path / "ann.ipynb")]) == 0
    assert table(folder)["ann"]["status"] == "newer work is not graded"
    capsys.readouterr()
    assert program.main(["grade", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "1 of 2 are graded already" in said and "[1/1] ann: q1 10/10 q2 10/10" in said
    row = table(folder)["ann"]
    assert float(row["q2"]) == 10 and float(row["q6"]) == 8 and float(row["q7"]) == 9
    assert row["status"] == "grade by hand: q7"  # its text changed
    assert len(list(folder.glob("collected/ann/*/*"))) == 2
    assert program.main(["grade", str(folder)]) == 0
    assert "2 of 2 are graded already" in capsys.readouterr().out
    assert table(folder)["ann"] == row  # what is graded again and again stays the same


def test_one_submission_that_cannot_be_graded_stops_nobody(folder, capsys, monkeypatch):
    (folder / "submitted" / "ann" / "attention" / "attention.ipynb").write_text("{")
    results = {name: grade.Result(1, {}) for name in CODED}
    monkeypatch.setattr(grade, "grade_cells", lambda *rest: results)
    shutil.rmtree(folder / "graded")
    assert program.main(["grade", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "ann: could not be graded" in said and "李 娜: " in said and "writing 1 into" in said


def test_an_untouched_text_needs_no_hand(folder, tmp_path):
    late = work("en")
    for cell in late.cells:
        if cell.metadata["nbgrader"]["grade_id"] == "q6":
            cell.source = "<!-- exercise: q6 -->"
    nbformat.write(late, tmp_path / "ann.ipynb")
    assert program.main(["collect", str(folder), str(tmp_path / "ann.ipynb")]) == 0
    assert program.main(["grade", str(folder)]) == 0
    row = table(folder)["ann"]
    assert row["q6"] == "0" and row["status"] == "grade by hand: q7"


def test_nothing_private_is_in_what_students_get(folder):
    """No secret, no line of the checks or of a solution in release and feedback."""
    by_hand(folder, "ann", "q6", 1)
    assert program.main(["feedback", str(folder)]) == 0
    secret = (folder / "secret.txt").read_text().strip()
    source = (SOURCES / "en" / "attention.ipynb").read_text("utf-8")
    solutions = re.findall(r"### BEGIN SOLUTION(.*?)### END SOLUTION", source, re.S)
    solved = {line.strip('\\n", ') for text in solutions for line in text.split("\n")}
    checks = (ROOT / "assignments" / "attention" / "checks.py").read_text("utf-8")
    private = {line.strip() for line in (*solved, *checks.split("\n")) if len(line.strip()) > 40}
    given = [*folder.glob("release/*"), *folder.glob("feedback/*/*")]
    assert len(solved) > 20 and len(private) > 100 and len(given) == 4
    for path in given:
        text = path.read_text("utf-8")
        assert secret not in text and "BEGIN SOLUTION" not in text
        assert [line for line in private if line in text and "import" not in line] == []


def test_book_and_zip_hold_nothing_of_the_assignment():
    for edition in ("en", "zh"):
        held = archive.files(edition)
        assert len(held) > 5 and not any("assignment" in name for name in held)
        assert not any(CHECKS.QUESTIONS[0].name.encode() in content for content in held.values())
    settings = (ROOT / "_config.yml").read_text("utf-8")
    assert "only_build_toc_files: true" in settings
    assert re.search(r"exclude_patterns: \[.*\bassignments\b", settings)


def test_the_wheel_holds_nothing_of_the_assignment(tmp_path):
    tree, made = tmp_path / "tree", tmp_path / "made"
    made.mkdir()
    outside = shutil.ignore_patterns(".*", "_build", "chapters")
    shutil.copytree(ROOT, tree, ignore=outside)
    canary = b"canary-of-the-assignment"
    for path in (tree / "assignments").rglob("*.*"):
        if path.is_file():
            path.write_bytes(path.read_bytes() + canary)
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, made], cwd=tree, check=True, capture_output=True)
    (wheel,) = made.iterdir()
    with zipfile.ZipFile(wheel) as opened:
        held = {name: opened.read(name) for name in opened.namelist()}
    assert "d2l_local/torch.py" in held and not any("assignments" in name for name in held)
    assert not any(canary in content for content in held.values())


def test_the_benchmark_tells_rate_and_memory(monkeypatch, capsys):
    monkeypatch.setattr(benchmark, "STUDENTS", 2)
    monkeypatch.setattr(benchmark, "LEAST", 10**9)
    assert program.main(["benchmark", "--no-isolation"]) == 1  # too slow for so high a bar
    said = capsys.readouterr().out
    assert re.search(
        r"2 submissions with 2 workers: .*: \d+ a minute; peak memory .* \d+ MiB", said
    )
    scores = re.findall(r"together (\d+)", said)
    assert sorted(map(int, scores))[-1] == FULL and len(scores) == 2 and len(set(scores)) == 2


# --- nbgrader's form

HARMFUL = [
    SCRIPT,
    '<img src="x" onerror="alert(1)">',
    '<img src="https://example.org/seen.png">',
    '<a href="javascript:alert(1)">x</a>',
    '<a href="java&#115;cript:alert(1)">x</a>',
    '<p style="position:fixed" onclick="alert(1)">x</p>',
    "<iframe src='data:text/html,x'></iframe>",
    "<svg onload=alert(1)>",
]


@pytest.mark.parametrize("html", HARMFUL)
def test_no_students_script_runs_in_the_form(html):
    page = BeautifulSoup(form.clean(html), "html.parser")
    assert not page.find_all(["script", "iframe", "svg"])
    for tag in page.find_all(True):
        assert not set(tag.attrs) - {"class", "href", "title", "alt"}
        assert "script" not in tag.get("href", "")


def test_what_markdown_makes_stays():
    html = "<h2>A</h2><p>a &lt; b, <em>c</em> $x&lt;y$</p><table><tbody><tr><td>1</td></tr></tbody></table>"
    assert form.clean(html) == html
    picture = '<img src="data:image/png;base64,AAAA" alt="a">'
    assert "data:image/png;base64,AAAA" in form.clean(picture)


def ask(url, data=None):
    request = urllib.request.Request(url, headers={"Authorization": "token t"})
    if data is not None:
        request.data, request.method = json.dumps(data).encode(), "PUT"
    with urllib.request.urlopen(request, timeout=30) as reply:
        return reply.read().decode()


@pytest.fixture(scope="module")
def served(taught, tmp_path_factory):
    """(folder of a course, address of its form): as the command starts it, without a browser."""
    folder = shutil.copytree(taught, tmp_path_factory.mktemp("served") / "course")
    course = courses.load(folder)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = [f"--ServerApp.port={port}", "--IdentityProvider.token=t", "--allow-root"]
    command = form.command(course, "--ServerApp.open_browser=False", *options)
    with (folder / "log").open("wb") as log:
        pipes = {"stdout": log, "stderr": log}
        process = subprocess.Popen(command, cwd=folder, env=form.environment(), **pipes)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            try:
                ask(f"{address}/api/status")
                break
            except OSError:
                assert process.poll() is None, (folder / "log").read_text()
                time.sleep(0.1)
        yield folder, address
    finally:
        process.terminate()
        process.wait(30)


def test_the_form_lets_the_teacher_in(served):
    """The address that opens in the browser brings a login which the form's requests carry."""
    _, server = served
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    page = browser.open(f"{server}/?token=t", timeout=30)
    assert page.url.split("?")[0] == f"{server}/formgrader/gradebook/attention/attention"
    path = "formgrader/api/submitted_notebooks/attention/attention"
    with browser.open(f"{server}/{path}", timeout=30) as reply:
        assert len(json.load(reply)) == 2


def test_the_form_shows_the_work_and_stores_points(served):
    folder, server = served
    api = f"{server}/formgrader/api"
    found = json.loads(ask(f"{api}/submitted_notebooks/attention/attention"))
    (ann,) = [entry for entry in found if entry["student"] == "ann"]
    page = ask(f"{server}/formgrader/submissions/{ann['id']}/")
    assert "The text of q6" in page and SCRIPT not in page  # no script of a student's
    assert "no idea" in page  # the sentence of a check
    grades = json.loads(ask(f"{api}/grades?submission_id={ann['id']}"))
    (grade,) = [entry for entry in grades if entry["name"] == "q6"]
    assert grade["needs_manual_grade"]
    ask(f"{api}/grade/{grade['id']}", {"manual_score": 6.5})
    comments = json.loads(ask(f"{api}/comments?submission_id={ann['id']}"))
    (comment,) = [entry for entry in comments if entry["name"] == "q6"]
    ask(f"{api}/comment/{comment['id']}", {"manual_comment": "Well measured."})
    row = table(folder)["ann"]
    assert row["q6"] == "6.5" and row["status"] == "grade by hand: q7"
    assert program.main(["feedback", str(folder)]) == 0
    assert "Well measured." in (folder / "feedback" / "ann" / "attention.html").read_text("utf-8")
    # nbgrader's own grading, which has no walls, finds nothing to run
    assert not json.loads(ask(f"{api}/submission/attention/ann"))["submitted"]
