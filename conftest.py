"""Which tests belong to which framework.

The frameworks beside PyTorch do not fit into one environment with the book, and not into one
process with each other. So a run of pytest is for one of them, and PyTorch's is everything else.
"""

from tools.notebooks import FRAMEWORKS, ROOT, framework

OF_EACH = ROOT / "tests" / "frameworks"


def pytest_addoption(parser):
    parser.addoption(
        "--framework",
        choices=FRAMEWORKS,
        default="torch",
        help="test this framework's module and notebooks only (see .ci/frameworks)",
    )
    parser.addoption(
        "--store",
        action="store_true",
        help="write what a framework's run finds, instead of comparing with it",
    )


def pytest_ignore_collect(collection_path, config):
    """Leave out the notebooks of other frameworks, and beside PyTorch whatever is not of one."""
    chosen = config.getoption("framework")
    if collection_path.suffix == ".ipynb":
        return True if framework(collection_path) != chosen else None
    if collection_path.suffix == ".py" and chosen != "torch":
        return True if OF_EACH not in collection_path.parents else None
    return None


def pytest_terminal_summary(terminalreporter, config):
    chosen = config.getoption("framework")
    others = [name for key, name in FRAMEWORKS.items() if key != chosen]
    terminalreporter.write_line(
        f"Frameworks: {FRAMEWORKS[chosen]}; not {', '.join(others)}, each of which has a run of"
        " its own: .ci/frameworks"
    )
