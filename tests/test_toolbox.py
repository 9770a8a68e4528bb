"""Plots, stored measurements and the exercise checker of `d2l_local.torch`."""

import math
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgba

from d2l_local import torch as d2l

pytestmark = pytest.mark.usefixtures("plt")  # no windows, and no figure stays open


def xy(axes):
    """The curves on the axes, as pairs of lists."""
    return [(line.get_xdata().tolist(), line.get_ydata().tolist()) for line in axes.lines]


def styles(axes):
    return {(to_rgba(line.get_color()), line.get_linestyle()) for line in axes.lines}


# --- plot ---

THREE = {
    "tensor": torch.tensor([1.0, 2.0, 4.0]),
    "integers": torch.tensor([1, 2, 4]),
    "bfloat16": torch.tensor([1.0, 2.0, 4.0], dtype=torch.bfloat16),
    "gradient": torch.tensor([1.0, 2.0, 4.0], requires_grad=True),
    "array": np.array([1, 2, 4], dtype=np.uint8),
    "list": [1, 2, 4],
    "tuple": (1.0, 2.0, 4.0),
    "tensors": [torch.tensor(1), torch.tensor(2.0, requires_grad=True), np.float32(4)],
}


@pytest.mark.parametrize("values", THREE.values(), ids=THREE)
def test_plot_takes_one_curve_in_any_form(values):
    assert xy(d2l.plot(values)) == [([0, 1, 2], [1, 2, 4])]
    assert xy(d2l.plot(values, values)) == [([1, 2, 4], [1, 2, 4])]
    assert xy(d2l.plot(range(3), values)) == [([0, 1, 2], [1, 2, 4])]
    assert xy(d2l.plot(range(3), [values, values])) == [([0, 1, 2], [1, 2, 4])] * 2


def test_plot_draws_the_rows_of_a_matrix():
    rows = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    for matrix in (torch.tensor(rows), np.array(rows), rows):
        assert xy(d2l.plot([7, 8, 9], matrix)) == [([7, 8, 9], row) for row in rows]
        assert xy(d2l.plot(matrix)) == [([0, 1, 2], row) for row in rows]
        pairs = [([3, 2, 1], rows[0]), ([0, 0, 0], rows[1])]
        assert xy(d2l.plot([[3, 2, 1], [0, 0, 0]], matrix)) == pairs


def test_plot_takes_curves_of_different_lengths():
    curves = [torch.arange(2), np.arange(4.0)]
    assert xy(d2l.plot(curves)) == [([0, 1], [0, 1]), ([0, 1, 2, 3], [0, 1, 2, 3])]
    assert xy(d2l.plot(curves, curves))[0] == ([0, 1], [0, 1])


@pytest.mark.parametrize("curves", [1, 5, 8, 13, 40])
def test_plot_drops_no_curve(curves):
    axes = d2l.plot(torch.arange(3.0), torch.ones(curves, 3), legend=range(curves))
    assert len(axes.lines) == len(axes.get_legend().get_texts()) == curves
    assert len(styles(axes)) >= min(curves, 8)


def test_plot_with_formats_of_the_original():
    axes = d2l.plot([1, 2], torch.ones(5, 2), fmts=("-", "m--", "g-.", "r:"))
    assert len(axes.lines) == 5
    assert [line.get_linestyle() for line in axes.lines] == ["-", "--", "-.", ":", "-"]
    assert axes.lines[1].get_color() == "m"


def test_plot_settings(plt):
    axes = d2l.plot([1, 10], [2, 3], "x", "y", ["a"], (0, 20), (-1, 5), "symlog", "linear")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("x", "y")
    assert (axes.get_xlim(), axes.get_ylim()) == ((0, 20), (-1, 5))
    assert (axes.get_xscale(), axes.get_yscale()) == ("symlog", "linear")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a"]
    assert axes.figure.get_size_inches().tolist() == [3.5, 2.5]
    wide = d2l.plot([1, 2], figsize=(6, 2))
    assert wide.get_legend() is None and wide.figure is not axes.figure
    assert wide.figure.get_size_inches().tolist() == [6, 2]
    again = d2l.plot([3, 4], axes=axes)
    assert again is axes and len(axes.lines) == 2
    assert len(plt.get_fignums()) == 2


NOT_DRAWN = {
    "too many legend entries": (dict(X=[1, 2], legend=["a", "b"]), "1 X, 1 Y and 2 legend"),
    "too few legend entries": (dict(X=torch.ones(3, 2), legend=["a"]), "3 X, 3 Y and 1 legend"),
    "no legend entry": (dict(X=[1, 2], legend=[]), "1 X, 1 Y and 0 legend"),
    "two X, three Y": (dict(X=torch.ones(2, 4), Y=torch.ones(3, 4)), "2 X, 3 Y"),
    "two X, one Y": (dict(X=torch.ones(2, 4), Y=torch.ones(4)), "2 X, 1 Y"),
    "columns": (dict(X=torch.arange(3), Y=torch.ones(3, 4)), "4 values over 3"),
    "lengths": (dict(X=[1, 2, 3], Y=[1, 2]), "2 values over 3"),
    "third curve": (dict(X=[1, 2], Y=[[1, 2], [1, 2], [1]]), "1 values over 2"),
    "three axes": (dict(X=torch.ones(2, 3, 4)), "2"),
    "list of matrices": (dict(X=[1, 2, 3], Y=[torch.ones(3, 3)] * 2), "2"),
    "number beside a curve": (dict(X=[1, torch.ones(3)]), "[0, 1]"),
}


@pytest.mark.parametrize("arguments, words", NOT_DRAWN.values(), ids=NOT_DRAWN)
def test_plot_refuses(arguments, words):
    with pytest.raises(ValueError, match=re.escape(words)) as raised:
        d2l.plot(**arguments)
    assert str(raised.value).startswith("plot ")


# --- show_heatmaps ---


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int32])
@pytest.mark.parametrize(
    "shape, grid",
    [((2, 3), (1, 1)), ((4, 2, 3), (1, 4)), ((2, 3, 4, 5), (2, 3)), ((1, 1, 2, 3), (1, 1))],
)
def test_heatmaps_show_their_matrices(shape, grid, dtype):
    matrices = torch.arange(math.prod(shape)).reshape(shape).to(dtype)
    axes = d2l.show_heatmaps(matrices, "key", "query")
    assert axes.shape == grid
    panels = matrices.double().reshape(*grid, *shape[-2:])
    for i, j in np.ndindex(grid):
        assert axes[i, j].images[0].get_array().tolist() == panels[i, j].tolist()
        assert axes[i, j].get_xlabel() == ("key" if i == grid[0] - 1 else "")
        assert axes[i, j].get_ylabel() == ("query" if j == 0 else "")
        bottom, top = axes[i, j].get_ylim()
        assert top < bottom  # row 0 is on top
    assert len({ax.images[0].get_clim() for ax in axes.flat}) == 1
    assert len(axes[0, 0].figure.axes) == axes.size + 1  # one colour bar


def test_heatmaps_take_arrays_lists_and_gradients():
    for matrices in (
        torch.ones(2, 2, requires_grad=True),
        np.ones((2, 2), dtype=np.float32),
        [[1, 1], [1, 1]],
        torch.ones(2, 2) > 0,
    ):
        assert d2l.show_heatmaps(matrices, "x", "y").shape == (1, 1)
    assert d2l.show_heatmaps([torch.ones(2, 2), np.ones((2, 2))], "x", "y").shape == (1, 2)


def test_heatmap_titles_and_size():
    axes = d2l.show_heatmaps(torch.ones(2, 3, 4, 5), "x", "y", ["a", "b", "c"], (5, 3), "Blues")
    assert [[ax.get_title() for ax in row] for row in axes] == [["a", "b", "c"], ["", "", ""]]
    assert axes[0, 0].figure.get_size_inches().tolist() == [5, 3]
    assert axes[0, 0].images[0].get_cmap().name == "Blues"


HEATMAP_ERRORS = {
    "1-D": (torch.ones(3), None, "(3,)"),
    "5-D": (torch.ones(1, 1, 1, 2, 2), None, "(1, 1, 1, 2, 2)"),
    "no panel": (torch.ones(0, 2, 2), None, "(0, 2, 2)"),
    "empty matrix": (torch.ones(2, 0), None, "(2, 0)"),
    "one title for three": (torch.ones(3, 2, 2), ["a"], "1 titles for 3"),
    "no title": (torch.ones(2, 2), [], "0 titles for 1"),
    "too many titles": (torch.ones(2, 1, 2, 2), ["a", "b"], "2 titles for 1"),
}


@pytest.mark.parametrize("matrices, titles, words", HEATMAP_ERRORS.values(), ids=HEATMAP_ERRORS)
def test_show_heatmaps_refuses(matrices, titles, words, plt):
    with pytest.raises(ValueError, match=re.escape(words)):
        d2l.show_heatmaps(matrices, "x", "y", titles)
    assert plt.get_fignums() == []


SCALES = {
    "weights": ([0.2, 0.7], (0, 1), "Reds"),
    "larger numbers": ([0.0, 12.0], (0, 12), "Reds"),
    "signed": ([-3.0, 1.0], (-3, 3), "RdBu"),
    "all negative": ([-2.0, -1.0], (-2, 2), "RdBu"),
    "small and signed": ([-0.1, 0.2], (-0.2, 0.2), "RdBu"),
    "zeros": ([0.0, 0.0], (0, 1), "Reds"),
    "NaN": ([math.nan, 0.5], (0, 1), "Reds"),
    "only NaN": ([math.nan, math.nan], (0, 1), "Reds"),
    "masked scores": ([-math.inf, 2.0, -4.0], (-4, 4), "RdBu"),
    "infinity": ([math.inf, 2.0], (0, 2), "Reds"),
}


@pytest.mark.parametrize("values, limits, cmap", SCALES.values(), ids=SCALES)
def test_color_scale(values, limits, cmap):
    scale = d2l.color_scale(np.array([values]))
    assert (scale["vmin"], scale["vmax"], scale["cmap"]) == (*limits, cmap)
    axes = d2l.show_heatmaps([values], "x", "y")
    assert axes[0, 0].images[0].get_clim() == limits
    axes[0, 0].figure.canvas.draw()


# --- Stored measurements, names, display ---


def test_read_data():
    measured = d2l.read_data("attention")
    assert isinstance(measured, dict) and len(measured) > 1


@pytest.mark.parametrize("name", ["atention", "attention.json", "../torch", ""])
def test_unknown_data(name):
    with pytest.raises(FileNotFoundError) as raised:
        d2l.read_data(name)
    assert repr(name) in str(raised.value) and "'attention'" in str(raised.value)


def test_names_looked_up_late(plt):
    assert d2l.plt is plt
    assert not hasattr(d2l, "pit")
    with pytest.raises(ImportError, match="pit"):
        from d2l_local.torch import pit  # noqa: F401


DISPLAY = """
import matplotlib
matplotlib.use("Agg")
from d2l_local import torch as d2l

def shown():
    data, _ = get_ipython().display_formatter.format(d2l.plot([1, 2]).figure)
    return data

d2l.use_svg_display()  # in plain Python: nothing to set
d2l.plot([1, 2])
from IPython.core.interactiveshell import InteractiveShell
get_ipython = InteractiveShell.instance
get_ipython().run_cell("1")
d2l.use_svg_display()
print(sorted(shown()), shown()["image/svg+xml"] == shown()["image/svg+xml"])
"""


def test_display_in_plain_python_and_in_ipython(tmp_path):
    """No warning in either; SVG, the same bytes each time, and PNG in IPython."""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", DISPLAY],
        env={**os.environ, "IPYTHONDIR": str(tmp_path)},
        cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=60,
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1] == "['image/png', 'image/svg+xml', 'text/plain'] True"


@pytest.mark.parametrize("missing", ["IPython", "matplotlib_inline"])
def test_display_without(missing, monkeypatch):
    for name in (missing, "matplotlib_inline.backend_inline"):
        monkeypatch.setitem(sys.modules, name, None)
    d2l.use_svg_display()
    d2l.set_figsize((2, 1))
    assert d2l.plt.figure().get_size_inches().tolist() == [2, 1]


# --- The exercise checker ---

HAN = re.compile("[\u4e00-\u9fff]")
BRACES = "{} {0} {n} {hint} 100 % %s"
TWO = torch.tensor([1.0, 2.0])
CASES = [((TWO,), 2 * TWO, "HINT"), ((3 * TWO,), 6 * TWO, "LATER")]


@pytest.fixture
def say(capsys):
    """The checker's sentence, without its title."""

    def check(attempt, cases=CASES, title="Exercise 9.9"):
        d2l.check_exercise(title, attempt, cases)
        start, printed = title + ("：" if HAN.search(title) else ": "), capsys.readouterr().out
        assert printed.startswith(start) and printed.endswith("\n")
        return printed[len(start) : -1]

    return check


def stub(x):
    raise NotImplementedError


def raises(x):
    raise ValueError(BRACES)


def change(x):
    return x.mul_(2)


def change_one(x):
    x[0] = 7
    return torch.tensor([2.0, 4.0])


class EqualToAll:
    def __eq__(self, other):
        return True

    __hash__ = None


ANSWERS = {  # attempt: the sentence in English, the sentence in Chinese
    "stub": (stub, "not attempted yet", "尚未作答"),
    "right": (lambda x: 2 * x, "2 of 2 cases agree", "2 个用例全部一致"),
    "no function": (7, "what you gave is not a function", "不是函数"),
    "None": (lambda x: None, "case 1 of 2 gave None: is a `return` missing?", "None"),
    "list": (lambda x: [2.0, 4.0], "case 1 of 2 gave a list, but", "list"),
    "tuple": (lambda x: (2 * x, x), "case 1 of 2 gave a tuple, but", "tuple"),
    "text": (lambda x: "2 4", "case 1 of 2 gave a str, but", "str"),
    "equal to all": (lambda x: EqualToAll(), "case 1 of 2 gave a EqualToAll, but", "EqualToAll"),
    "function": (lambda x: stub, "case 1 of 2 gave a function, but", "function"),
    "in place": (change, "case 1 of 2: your function changed its argument", "修改了传入的参数"),
    "changed": (change_one, "case 1 of 2: your function changed", "修改了"),
    "shape": (lambda x: x[None], "case 1 of 2 has shape (1, 2), but (2,) is asked", "(1, 2)"),
    "scalar": (lambda x: 2.0, "case 1 of 2 has shape (), but (2,) is asked for", "()"),
    "NaN": (lambda x: x * math.nan, "case 1 of 2 gave NaN or infinity. HINT", "NaN"),
    "infinity": (lambda x: x / 0, "case 1 of 2 gave NaN or infinity. HINT", "NaN"),
    "value": (lambda x: x**2 + 1, "case 1 of 2 differs. HINT", "HINT"),
    "constant": (lambda x: 2 * TWO, "case 2 of 2 differs. LATER", "LATER"),
    "raises": (raises, f"case 1 of 2 raised ValueError: {BRACES}", f"ValueError: {BRACES}"),
    "arguments": (lambda: 2, "case 1 of 2 raised TypeError: ", "TypeError: "),
    "exit": (lambda x: sys.exit("bye"), "case 1 of 2 raised SystemExit: bye", "SystemExit: bye"),
    # torch's word for "there is no kernel for this type" does not mean an untouched stub
    "no kernel": (
        lambda x: x.long().softmax(0),
        "case 1 of 2 raised NotImplementedError: ",
        "NotImplementedError: ",
    ),
}


@pytest.mark.parametrize("attempt, english, chinese", ANSWERS.values(), ids=ANSWERS)
def test_sentences(attempt, english, chinese, say):
    sentence = say(attempt)
    assert sentence.startswith(english) and not HAN.search(sentence)
    translated = say(attempt, title="练习 9.9")
    assert chinese in translated and HAN.search(translated)


@pytest.mark.parametrize("give", [lambda x: x + 5j, lambda x: x.numpy() + 0j], ids=["torch", "numpy"])
def test_complex_numbers_are_no_answer(give):
    assert d2l.judge(give, [((TWO,), TWO, "hint")])[0] == "type"


@pytest.mark.parametrize("give", [lambda x: x @ x.double(), lambda x: x[:0]])
def test_the_hint_is_given_for_an_error_and_a_wrong_shape_too(give, say):
    cases = [((TWO,), TWO, "Look at the width.")]
    assert say(give, cases).rstrip().endswith("Look at the width.")


def test_a_refused_plot_leaves_no_figure(plt):
    with pytest.raises(ValueError, match="2 values over 3"):
        d2l.plot([1, 2, 3], [1, 2])
    assert plt.get_fignums() == []


def test_every_sentence_was_seen():
    """Both languages have the same keys and places to fill, and the table above covers them."""
    english, chinese = d2l.SENTENCES["en"], d2l.SENTENCES["zh"]
    places = {key: set(re.findall(r"{(\w+)}", sentence)) for key, sentence in english.items()}
    assert {key: set(re.findall(r"{(\w+)}", text)) for key, text in chinese.items()} == places
    assert {d2l.judge(attempt, CASES)[0] for attempt, *_ in ANSWERS.values()} == set(english)


@pytest.mark.parametrize("title", ["Exercise 1.1 {n}", "练习 1.1 {hint}", "E%s"])
def test_braces_in_title_and_hint(title, say):
    cases = [((TWO,), TWO, "{x} % %s {}")]
    assert "{x} % %s {}" in say(lambda x: -x, cases, title)


@pytest.mark.parametrize("title", ["Exercise 9.9", "练习 9.9"])
def test_the_right_value_is_never_printed(title, say):
    secret = torch.tensor([1234.5, 678.25])
    for attempt, *_ in ANSWERS.values():
        sentence = say(attempt, [((TWO,), secret, "HINT")], title)
        assert "1234" not in sentence and "678" not in sentence


def test_close_results_of_any_type_are_accepted(say):
    for attempt in (
        lambda x: 2 * x.double(),
        lambda x: 2 * x + 1e-7,
        lambda x: (2 * x).requires_grad_(),
        lambda x: (2 * x).int(),
        lambda x: 2 * x.numpy(),
        torch.nn.Parameter(TWO).add,
    ):
        assert say(attempt, CASES[:1]) == "1 of 1 cases agree"
    assert "differs" in say(lambda x: 2 * x + 1e-3)
    for result in (3, 3.0, np.float32(3), torch.tensor(3), np.array(3)):
        assert say(lambda x, result=result: result, [((TWO,), 3, "")]) == "1 of 1 cases agree"
    assert "shape (1,)" in say(lambda x: torch.tensor([3]), [((TWO,), 3, "")])


@pytest.mark.parametrize("n", [1e-9, 1e9])
def test_tolerance_is_absolute_for_small_and_relative_for_large_numbers(n, say):
    cases = [((), torch.tensor(n, dtype=torch.float64), "HINT")]
    assert say(lambda: n * (1 + 1e-6), cases) == "1 of 1 cases agree"
    assert "differs" in say(lambda: n + max(1, n) * 1e-4, cases)


ARGUMENTS = {  # an argument, and a way to change it that its result does not show
    "tensor": (torch.ones(2), lambda x: x.add_(1)),
    "data": (torch.ones(2), lambda x: x.data.add_(1)),
    "size": (torch.ones(2), lambda x: x.resize_(1)),
    "NaN": (torch.tensor([math.nan, 1.0]), lambda x: x.add_(1)),
    "array": (np.ones(2), lambda x: x.__iadd__(1)),
    "list of tensors": ([torch.ones(2)], lambda x: x[0].add_(1)),
    "entry": ([torch.ones(2)], lambda x: x.__setitem__(0, None)),
    "text as entry": ([torch.ones(2)], lambda x: x.__setitem__(0, "a")),
    "list": ([1, 2], lambda x: x.append(3)),
    "number in a list": ([1, 2], lambda x: x.__setitem__(0, 3)),
}


@pytest.mark.parametrize("argument, edit", ARGUMENTS.values(), ids=ARGUMENTS)
def test_changed_arguments(argument, edit, say):
    def attempt(x, changes):
        if changes:
            edit(x)
        return 1.0

    assert say(attempt, [((argument, False), 1.0, "")]) == "1 of 1 cases agree"
    wrong = say(attempt, [((argument, True), 1.0, "")])
    assert "changed its argument" in wrong or "raised" in wrong
    # the case itself was not changed, so it can be run again
    assert say(attempt, [((argument, True), 1.0, "")]) == wrong


def test_stub_of_a_later_case_is_open(say):
    assert say(lambda x: 2 * x if x[0] == 1 else stub(x)) == "not attempted yet"


@pytest.mark.parametrize("cases", [[], ()])
def test_no_cases_are_a_mistake_of_the_author(cases):
    with pytest.raises(ValueError, match="Exercise 9.9.*no cases"):
        d2l.check_exercise("Exercise 9.9", stub, cases)
