"""From the repository to the grade book, one command for each step:

python -m assignments new COURSE ROSTER.csv     make the folder of a course
python -m assignments release COURSE            put the notebooks for the students there
python -m assignments collect COURSE FILE ...   take in folders, zips or notebooks
python -m assignments grade COURSE              run and judge what is new
python -m assignments form COURSE               grade the texts by hand, in the browser
python -m assignments feedback COURSE           write a page for each student
python -m assignments export COURSE             write grades.csv
python -m assignments benchmark                 time the grading of 60 made-up submissions
"""

import argparse
import shutil
import sys

from assignments import benchmark, form, grade, gradebook, intake, sandbox
from assignments import course as courses
from tools.notebooks import ROOT, BookError, label, read_yaml
from tools.publish import PLACEHOLDER


def parser():
    style = argparse.RawDescriptionHelpFormatter
    main = argparse.ArgumentParser(
        "python -m assignments", description=__doc__, formatter_class=style
    )
    steps = main.add_subparsers(dest="step", required=True, metavar="STEP")
    for name in ("new", "release", "collect", "grade", "form", "feedback", "export"):
        step = steps.add_parser(name)
        step.add_argument("course", help="the folder of the course")
        if name == "new":
            step.add_argument("roster", help="a CSV file with a column `id`")
        if name == "collect":
            step.add_argument("sources", nargs="+", help="folders, zips or notebooks")
        if name == "grade":
            step.add_argument("--again", action="store_true", help="grade all, not what is new")
            isolation(step)
    isolation(steps.add_parser("benchmark"))
    return main


def isolation(step):
    step.add_argument(
        "--no-isolation",
        action="store_true",
        help="let students' code read and change what you can",
    )


def main(arguments=None):
    given = parser().parse_args(arguments)
    try:
        return STEPS[given.step](given) or 0
    except BookError as error:
        print(error, file=sys.stderr)
        return 1


def new(given):
    course = courses.new(given.course, given.roster)
    print(f"{course.folder}: {len(course.roster)} students; settings stand in course.toml")


def release(given):
    course = courses.load(given.course)
    for edition, path in courses.releases().items():
        target = course.path("release", f"{courses.ASSIGNMENT}-{edition}.ipynb")
        shutil.copyfile(path, target)
        print(f"{target}: give it to your students")
        if address := in_colab(path):
            print(f"or this link, which opens it in Colab: {address}")


def in_colab(path):
    """The address at which Colab opens a file of the published repository, or None."""
    config = read_yaml(ROOT / "_config.yml")
    repository, colab = config["repository"], config["launch_buttons"]["colab_url"]
    if repository["url"] == PLACEHOLDER:
        return None
    inside = repository["url"].removeprefix("https://github.com/")
    return f"{colab}/github/{inside}/blob/{repository['branch']}/{label(path, ROOT)}"


def collect(given):
    course = courses.load(given.course)
    print(f"reading {', '.join(given.sources)}", flush=True)
    intake.collect(course, given.sources, say=tell)


def grade_all(given):
    course = courses.load(given.course)
    grade.grade(course, walls(given, course), given.again, say=tell)


def walls(given, course):
    kind = "none" if given.no_isolation else course.isolation
    private = (courses.ROOT, course.folder)
    found = sandbox.walls(kind, course.limits, private)
    tell(f"isolation: {found.told}")
    return found


def hand(given):
    return form.serve(courses.load(given.course))


def feedback(given):
    gradebook.feedback(courses.load(given.course), say=tell)


def export(given):
    print(gradebook.export(courses.load(given.course)))


def time_grading(given):
    return benchmark.main(no_isolation=given.no_isolation)


def tell(line):
    print(line, flush=True)


STEPS = {
    "new": new,
    "release": release,
    "collect": collect,
    "grade": grade_all,
    "form": hand,
    "feedback": feedback,
    "export": export,
    "benchmark": time_grading,
}

if __name__ == "__main__":
    sys.stdout.reconfigure(errors="replace")  # a console that lacks a letter of some name
    sys.exit(main())
