"""The exercises: each stub is open, each solution agrees, and each known mistake is told."""

import ast
import contextlib
import io
import math
import re
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import matplotlib.pyplot
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tools import notebooks

pytestmark = pytest.mark.usefixtures("plt")  # no windows, and no figure stays open

HEADINGS = {
    "en": re.compile(r"### Exercise (\d+\.\d+) \((\w+), (\d+) minutes\)"),
    "zh": re.compile(r"### 练习 (\d+\.\d+)（(\w+)，(\d+) 分钟）"),
}
KINDS = {"en": {"predict", "prove", "code", "measure"}, "zh": {"预测", "证明", "编程", "测量"}}
HINT, SOLUTION = {"en": "Hint", "zh": "提示"}, {"en": "Solution", "zh": "解答"}
OPEN = {"en": "not attempted yet", "zh": "尚未作答"}
AGREE = {"en": re.compile(r": (\d+) of \1 cases agree$"), "zh": re.compile(r"：\d+ 个用例全部一致$")}
DETAILS = re.compile(r"<details><summary>(.*?)</summary>\n\n(.*?)\n\n</details>", re.DOTALL)
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
HAN = re.compile("[\u4e00-\u9fff]")
STUB, CHECK = "raise NotImplementedError", "check_exercise("


@dataclass
class Exercise:
    edition: str
    path: Path
    heading: str
    text: str = ""
    code: list = field(default_factory=list)  # its code cells

    @property
    def number(self):
        return re.search(r"[\d.]*\d", self.heading)[0]

    def __str__(self):
        return f"{self.edition}/{self.path.stem}/{self.number}"

    def cells(self, mark):
        return [cell for cell in self.code if mark in cell.source]

    @property
    def functions(self):
        """The names that the reader is to define."""
        return [name for cell in self.cells(STUB) for name in defined(cell.source)]

    @property
    def solution(self):
        return "\n".join(PYTHON.findall(dict(DETAILS.findall(self.text))[SOLUTION[self.edition]]))


def defined(source):
    kinds = (ast.FunctionDef, ast.ClassDef)
    return [node.name for node in ast.parse(source).body if isinstance(node, kinds)]


def exercises(path, edition):
    """The exercises of a page, each from its heading to the next heading."""
    found, current = [], None
    for cell in notebooks.read(path).cells:
        if cell.cell_type == "code":
            if current:
                current.code.append(cell)
            continue
        for part in re.split(r"^(?=##+ )", cell.source, flags=re.MULTILINE):
            if part.startswith("##"):
                heading = part.splitlines()[0]
                current = None
                if re.match(r"#+ .*(Exercise|练习).*\d", heading):
                    current = Exercise(edition, path, heading)
                    found.append(current)
            if current:
                current.text += part
    return found


EDITIONS = {
    edition: [ex for path in notebooks.notebooks(edition) for ex in exercises(path, edition)]
    for edition in notebooks.editions()
}
ALL = [exercise for found in EDITIONS.values() for exercise in found]
CODED = [exercise for exercise in ALL if exercise.cells(STUB)]
ENGLISH = {path.stem: path for path in notebooks.notebooks("en")}
each_edition = pytest.mark.parametrize("edition", EDITIONS)
each_exercise = pytest.mark.parametrize("exercise", ALL, ids=str)
each_coded = pytest.mark.parametrize("exercise", CODED, ids=str)


def run(cell, names):
    """Run a code cell and give the lines it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(cell.source, f"<cell {cell.id}>", "exec"), names)
    matplotlib.pyplot.close("all")
    return printed.getvalue().splitlines()


@cache
def names_before_cells(page):
    """What is defined before each cell of an untouched notebook: {cell id: names}.

    Other editions have the same cells and code (test_editions), so one run serves them all.
    """
    names, before = {"__name__": "__main__"}, {}
    for cell in notebooks.code_cells(notebooks.read(ENGLISH[page])):
        if cell.id != notebooks.SETUP_ID:
            before[cell.id] = dict(names)
            run(cell, names)
    return before


def sentences(exercise, source="", **answers):
    """What the check says when `source` was run, or `answers` given, after the stubs."""
    (cell,) = exercise.cells(CHECK)
    names = {**names_before_cells(exercise.path.stem)[cell.id], **answers}
    exec(source, names)
    return run(cell, names)


# --- The form ---


@each_edition
def test_no_exercise_is_overlooked(edition):
    assert len(EDITIONS[edition]) >= 4
    assert len([exercise for exercise in CODED if exercise.edition == edition]) >= 3
    owned = {(ex.path, cell.id) for ex in EDITIONS[edition] for cell in ex.code}
    for path in notebooks.notebooks(edition):
        for cell in notebooks.code_cells(notebooks.read(path)):
            if path.stem != "toolbox" and (STUB in cell.source or CHECK in cell.source):
                assert (path, cell.id) in owned, f"{path.stem}: no exercise has cell {cell.id}"


@each_edition
def test_numbers_and_kinds(edition):
    numbers = []
    for exercise in EDITIONS[edition]:
        match = HEADINGS[edition].fullmatch(exercise.heading)
        assert match, f"{exercise}: {exercise.heading!r} is not of the form that it should be"
        number, kind, minutes = match.groups()
        assert kind in KINDS[edition] and 1 <= int(minutes) <= 60, exercise.heading
        numbers.append(tuple(map(int, number.split("."))))
    pages = sorted({page for page, _ in numbers})
    counts = [len([n for n in numbers if n[0] == page]) for page in pages]
    counted = zip(pages, counts, strict=True)
    assert numbers == [(page, i + 1) for page, count in counted for i in range(count)]


def check_parts(exercise):
    """A stub comes with one check, a hint and a solution; any exercise has something to open."""
    details = dict(DETAILS.findall(exercise.text))
    assert exercise.text.count("<details") == len(details) > 0
    if exercise.cells(STUB) or exercise.cells(CHECK):
        assert len(exercise.cells(STUB)) == len(exercise.cells(CHECK)) == 1
        assert {HINT[exercise.edition], SOLUTION[exercise.edition]} <= set(details)
        assert set(exercise.functions) <= set(defined(exercise.solution))


@each_exercise
def test_parts(exercise):
    check_parts(exercise)


@pytest.mark.parametrize("old, new", [("Hint<", "Tip<"), ("Solution<", "<"), ("```python", "```"),
                                      ("def self_attention", "def other"), ("</details>", "")])
def test_missing_part_is_noticed(old, new):
    exercise = CODED[0]
    assert old in exercise.text
    with pytest.raises(AssertionError):
        check_parts(replace(exercise, text=exercise.text.replace(old, new)))
    for mark in (STUB, CHECK):
        with pytest.raises(AssertionError):
            cells = [cell for cell in exercise.code if mark not in cell.source]
            check_parts(replace(exercise, code=cells))


# --- The answers ---


@each_coded
def test_untouched_exercise_is_open(exercise):
    lines = sentences(exercise)
    assert len(lines) == len(exercise.functions)
    for line in lines:
        assert line.endswith(OPEN[exercise.edition]) and f" {exercise.number}" in line


@each_coded
def test_solution_agrees(exercise):
    lines = sentences(exercise, exercise.solution)
    assert len(lines) == len(exercise.functions)
    assert all(AGREE[exercise.edition].search(line) for line in lines), lines


# --- Wrong answers: under the name of the stub, the mistake and a word of the sentence ---

@each_coded
def test_a_readers_own_variables_do_no_harm(exercise):
    """Whoever tries something out in the stub's cell uses these names."""
    own = "B, n, d, h, k = 1, 2, 3, 4, 5\nX = Q = K = V = W = g = P = S = A = Y = None\n"
    said = sentences(exercise, own + exercise.solution)
    assert said and all(AGREE[exercise.edition].search(line) for line in said), said


WRONG = {}


def wrong(stub, words=""):
    """Register a wrong answer to `stub`; the English sentence must hold these words."""

    def register(function):
        WRONG.setdefault(stub, {})[function.__name__] = (function, words)
        return function

    return register


def weights(X, scale):
    return (X @ X.T / scale).softmax(-1)


@wrong("self_attention", "√d")
def no_scale(X):
    return weights(X, 1) @ X


@wrong("self_attention", "√d")
def scale_is_the_width(X):
    return weights(X, X.shape[1]) @ X


@wrong("self_attention", "√d")
def scale_is_the_length(X):
    return weights(X, math.sqrt(len(X))) @ X


@wrong("self_attention", "rows sum to 1")
def softmax_over_queries(X):
    return (X @ X.T / math.sqrt(X.shape[1])).softmax(0) @ X


@wrong("self_attention", "rows sum to 1")
def transposed_weights(X):
    return weights(X, math.sqrt(X.shape[1])).T @ X


@wrong("self_attention", "shape")
def returns_weights(X):
    return weights(X, math.sqrt(X.shape[1]))


@wrong("self_attention", "largest score")
def exp_without_maximum(X):
    E = (X @ X.T / math.sqrt(X.shape[1])).exp()
    return E / E.sum(1, keepdim=True) @ X


@wrong("self_attention", "largest score of each row")
def one_maximum_for_all_rows(X):
    S = X @ X.T / math.sqrt(X.shape[1])
    E = (S - S.max()).exp()
    return E / E.sum(1, keepdim=True) @ X


@wrong("self_attention", "largest score of each row")
def clamped_scores(X):
    E = (X @ X.T / math.sqrt(X.shape[1])).clamp(max=80).exp()
    return E / E.sum(1, keepdim=True) @ X


@wrong("self_attention")
def leaves_itself_out(X):
    S = X @ X.T / math.sqrt(X.shape[1])
    return S.fill_diagonal_(-math.inf).softmax(-1) @ X


@wrong("self_attention")
def sums_over_all(X):
    E = (X @ X.T / math.sqrt(X.shape[1])).exp()
    return E / E.sum() @ X


@wrong("split_heads", "column block")
def direct_reshape(X, h):
    return X.reshape(X.shape[0] * h, X.shape[1], -1)


@wrong("split_heads", "b·h + g")
def heads_outermost(X, h):
    return X.unflatten(2, (h, -1)).permute(2, 0, 1, 3).flatten(0, 1)


@wrong("split_heads", "column block")
def interleaved_heads(X, h):
    return X.unflatten(2, (-1, h)).permute(0, 3, 1, 2).flatten(0, 1)


@wrong("split_heads", "shape")
def heads_as_tokens(X, h):
    return X.reshape(X.shape[0], X.shape[1] * h, -1)


@wrong("split_heads", "shape")
def heads_as_an_axis(X, h):
    return X.unflatten(2, (h, -1)).transpose(1, 2)


@wrong("join_heads", "swap the axes")
def no_permute_back(X, h):
    return X.reshape(X.shape[0] // h, X.shape[1], -1)


@wrong("join_heads")
def joins_from_outermost(X, h):
    return X.unflatten(0, (h, -1)).permute(1, 2, 0, 3).flatten(2)


@wrong("join_heads")
def joins_interleaved(X, h):
    return X.unflatten(0, (-1, h)).permute(0, 2, 3, 1).flatten(2)


def hidden(X, lens):
    """Where keys are padding; nothing is without lengths."""
    if lens is None:
        return torch.zeros_like(X, dtype=torch.bool)
    lens = lens[:, None] if lens.dim() == 1 else lens
    return (torch.arange(X.shape[2]) >= lens[:, :, None]).expand_as(X)


@wrong("softmax_by_hand", "no fixed number")
def mask_of_a_million(X, lens, fill=-1e6):
    mask = hidden(X, lens)
    A = X.masked_fill(mask, fill).softmax(-1)
    return A.masked_fill(mask.all(-1, keepdim=True), 0)


@wrong("softmax_by_hand", "no fixed number")
def mask_of_a_billion(X, lens):
    return mask_of_a_million(X, lens, fill=-1e9)


@wrong("softmax_by_hand", "zeros")
def nan_row(X, lens):
    return X.masked_fill(hidden(X, lens), -math.inf).softmax(-1)


@wrong("softmax_by_hand", "zeros")
def uniform_row(X, lens):
    return X.masked_fill(hidden(X, lens), torch.finfo(X.dtype).min).softmax(-1)


@wrong("softmax_by_hand", "sum to 1")
def mask_after_softmax(X, lens):
    return X.softmax(-1).masked_fill(hidden(X, lens), 0)


@wrong("softmax_by_hand", "j < length")
def one_key_too_many(X, lens):
    return right_softmax(X, None if lens is None else lens + 1)


@wrong("softmax_by_hand", "changed its argument")
def in_place(X, lens):
    mask = hidden(X, lens)
    return X.masked_fill_(mask, -math.inf).softmax(-1).masked_fill(mask, 0)


@wrong("softmax_by_hand", "(B, n)")
def query_lengths_as_one(X, lens):
    return right_softmax(X, lens[:, 0] if lens is not None and lens.dim() == 2 else lens)


@wrong("softmax_by_hand", "j < length")
def hides_queries(X, lens):
    if lens is None or lens.dim() == 2:
        return right_softmax(X, lens)
    return X.softmax(-1) * (torch.arange(X.shape[1]) < lens[:, None])[:, :, None]


@wrong("softmax_by_hand", "*valid* score")
def maximum_of_all_keys(X, lens):
    E = (X - X.amax(-1, keepdim=True)).exp() * ~hidden(X, lens)
    return E / E.sum(-1, keepdim=True).clamp_min(1e-30)


@wrong("softmax_by_hand", "largest valid score")
def exp_of_the_scores(X, lens):
    E = X.exp() * ~hidden(X, lens)
    return E / E.sum(-1, keepdim=True).clamp_min(1e-30)


@wrong("softmax_by_hand", "j < length")
def masked_scores_are_zero(X, lens):
    mask = hidden(X, lens)
    return X.masked_fill(mask, 0).softmax(-1).masked_fill(mask.all(-1, keepdim=True), 0)


@wrong("softmax_by_hand", "last axis")
def softmax_over_the_queries(X, lens):
    return X.masked_fill(hidden(X, lens), -math.inf).softmax(1).nan_to_num()


@wrong("softmax_by_hand", "raised")
def lengths_are_never_none(X, lens):
    return right_softmax(X, torch.as_tensor(lens))


@wrong("softmax_by_hand")
def an_empty_row_takes_the_first_key(X, lens):
    return right_softmax(X, None if lens is None else lens.clamp(min=1))


def right_softmax(X, lens):
    mask = hidden(X, lens)
    return X.masked_fill(mask, -math.inf).softmax(-1).masked_fill(mask, 0)


def frequencies(d, base=10000, dtype=torch.float64):
    """One for each pair of columns, with a last one for the odd column."""
    return base ** (-torch.arange(0, d, 2, dtype=dtype) / d)


def right_sinusoid(n, d, base, start, omega=None):
    omega = frequencies(d, base) if omega is None else omega
    angles = torch.arange(start, start + n, dtype=omega.dtype)[:, None] * omega
    return interleave(angles.sin(), angles.cos())[:, :d]


def interleave(left, right):
    return torch.stack([left, right], dim=-1).flatten(1)


@wrong("sinusoid", "columns 2j and 2j+1")
def sines_left_cosines_right(n, d, base, start):
    P = right_sinusoid(n, d, base, start)
    return torch.cat([P[:, 0::2], P[:, 1::2]], dim=1)


@wrong("sinusoid", "frequency base^(-2j/d)")
def cosine_has_its_own_exponent(n, d, base, start):
    sines = right_sinusoid(n, 2 * d, base, start)[:, 0::2]  # one exponent for each column
    cosines = right_sinusoid(n, 2 * d, base, start)[:, 1::2]
    return torch.where(torch.arange(d) % 2 == 0, sines, cosines)


@wrong("sinusoid", "frequency base^(-2j/d)")
def exponent_is_j_over_d(n, d, base, start):
    return right_sinusoid(n, d, base, start, frequencies(d, base).sqrt())


@wrong("sinusoid", "(sin 0, cos 0)")
def sine_and_cosine_swapped(n, d, base, start):
    P = right_sinusoid(n, d + d % 2, base, start, frequencies(d, base))
    return interleave(P[:, 1::2], P[:, 0::2])[:, :d]


@wrong("sinusoid", "Position 0")
def starts_at_1(n, d, base, start):
    return right_sinusoid(n, d, base, start + 1)


@wrong("sinusoid", "first row is position start")
def ignores_the_start(n, d, base, start):
    return right_sinusoid(n, d, base, 0)


@wrong("sinusoid", "base that is given")
def ignores_the_base(n, d, base, start):
    return right_sinusoid(n, d, 10000, start)


@wrong("sinusoid", "raised RuntimeError")
def odd_width_crashes(n, d, base, start):
    P, waves = torch.zeros(n, d).double(), right_sinusoid(n, d + d % 2, base, start)
    P[:, 0::2], P[:, 1::2] = waves[:, 0::2], waves[:, 1::2]
    return P


@wrong("sinusoid", "odd width")
def odd_width_rounded_up(n, d, base, start):
    return right_sinusoid(n, d + d % 2, base, start)[:, :d]


@wrong("sinusoid", "float64")
def angles_in_float32(n, d, base, start):
    return right_sinusoid(n, d, base, start, frequencies(d, base, torch.float32))


@wrong("sinusoid", "float64")
def frequencies_in_float32(n, d, base, start):
    return right_sinusoid(n, d, base, start, frequencies(d, base, torch.float32).double())


def right_shift(delta, d):
    return blocks_of_halves(delta * frequencies(d))


def blocks_of_halves(angles):
    cos, sin = torch.diag(angles.cos()), torch.diag(angles.sin())
    return torch.cat([torch.cat([cos, sin], dim=1), torch.cat([-sin, cos], dim=1)])


@wrong("shift_halves", "rows (cos, sin)")
def transposed_shift(delta, d):
    return right_shift(delta, d).T


@wrong("shift_halves", "angle δ·ω")
def small_angles(delta, d):
    angles = torch.diag(delta * frequencies(d))
    one = torch.eye(d // 2).double()
    return torch.cat([torch.cat([one, angles], dim=1), torch.cat([-angles, one], dim=1)])


@wrong("shift_halves", "column j + d/2")
def interleaved_shift(delta, d):
    columns = torch.arange(d).view(2, -1).T.flatten()  # 0, d/2, 1, d/2 + 1, …
    return right_shift(delta, d)[columns][:, columns]


@wrong("shift_halves", "δ·ω_j")
def one_angle_for_all_pairs(delta, d):
    return blocks_of_halves(torch.full((d // 2,), float(delta)).double())


@wrong("shift_halves", "negative shift")
def ignores_the_sign(delta, d):
    return right_shift(abs(delta), d)


def halves_of(positions, d):
    angles = positions.double()[:, None] * frequencies(d)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


@wrong("shift_halves", "all positions")
def least_squares_on_64_positions(delta, d, driver="gelsd"):
    i = torch.arange(64)
    return torch.linalg.lstsq(halves_of(i, d), halves_of(i + delta, d), driver=driver).solution.T


@wrong("shift_halves", "all positions")
def least_squares_with_pivots(delta, d):
    return least_squares_on_64_positions(delta, d, driver="gelsy")


@wrong("shift_halves", "in float64")
def shift_from_float32_frequencies(delta, d):
    return blocks_of_halves(delta * frequencies(d, dtype=torch.float32).double())


def shuffles(X, times=20):
    """Random orders of the rows of X, the same at each call."""
    g = torch.Generator().manual_seed(0)
    return [torch.randperm(len(X), generator=g) for _ in range(times)]


def right_is_equivariant(f, X, orders=None, tolerance=1e-5):
    Y = f(X)
    gaps = [(f(X[order]) - Y[order]).abs().max() for order in orders or shuffles(X)]
    return bool(max(gaps) <= tolerance * Y.abs().max())


@wrong("is_equivariant", "no other order")
def tries_the_reversal_only(f, X):
    return right_is_equivariant(f, X, [torch.arange(len(X)).flip(0)])


@wrong("is_equivariant", "rotation")
def tries_rotations_only(f, X):
    places = torch.arange(len(X))
    return right_is_equivariant(f, X, [places.roll(shift) for shift in range(len(X))])


@wrong("is_equivariant", "tolerance")
def compares_exactly(f, X):
    return all(torch.equal(f(X[order]), f(X)[order]) for order in shuffles(X))


@wrong("is_equivariant", "tolerance")
def one_tolerance_for_all_sizes(f, X):
    Y = f(X)
    return all((f(X[order]) - Y[order]).abs().max() < 1e-6 for order in shuffles(X))


@wrong("is_equivariant", "no rounding")
def a_coarse_tolerance(f, X):
    return right_is_equivariant(f, X, tolerance=1e-2)


@wrong("is_equivariant")
def invariance_instead(f, X):
    Y = f(X)
    return all((f(X[order]) - Y).abs().max() <= 1e-5 * Y.abs().max() for order in shuffles(X))


def right_operations(kind, n, d, k):
    return {
        "convolution": 2 * k * n * d * d,
        "RNN": 4 * n * d * d,
        "core": 4 * n * n * d,
        "whole layer": 8 * n * d * d + 4 * n * n * d,
        "restricted": 4 * k * n * d,
    }[kind]


@wrong("operations", "counts 2")
def multiply_adds(kind, n, d, k):
    return right_operations(kind, n, d, k) // 2


@wrong("operations", "projections count too")
def forgets_the_projections(kind, n, d, k):
    return right_operations("core" if kind == "whole layer" else kind, n, d, k)


@wrong("operations", "two products")
def forgets_the_input_matrix(kind, n, d, k):
    return right_operations(kind, n, d, k) // (2 if kind == "RNN" else 1)


@wrong("operations", "k offsets")
def forgets_the_kernel_width(kind, n, d, k):
    return right_operations(kind, n, d, 1 if kind == "convolution" else k)


@wrong("operations", "fused kernel is not free")
def trusts_the_counters_zero(kind, n, d, k):
    return 8 * n * d * d if kind == "whole layer" else right_operations(kind, n, d, k)


@wrong("operations", "sees k tokens")
def restricted_sees_all(kind, n, d, k):
    return right_operations("core" if kind == "restricted" else kind, n, d, k)


def right_layers_needed(kind, n, k):
    if kind == "causal":
        return next(layers for layers in range(n) if k**layers >= n)
    return {"convolution": -(-2 * (n - 1) // (k - 1)), "RNN": n - 1, "attention": 1}[kind]


@wrong("layers_needed", "all pairs")
def layers_until_two_meet(kind, n, k):
    return -(-(n - 1) // (k - 1)) if kind == "convolution" else right_layers_needed(kind, n, k)


@wrong("layers_needed", "all pairs")
def n_over_k(kind, n, k):
    return -(-n // k) if kind == "convolution" else right_layers_needed(kind, n, k)


@wrong("layers_needed", "rounding of math.log")
def logarithm_in_floats(kind, n, k):
    causal = math.ceil(math.log(n) / math.log(k)) if k > 1 else 0
    return causal if kind == "causal" else right_layers_needed(kind, n, k)


@wrong("layers_needed", "multiplied by k")
def logarithm_of_base_2(kind, n, k):
    return right_layers_needed(kind, n, 2 if kind == "causal" else k)


@wrong("layers_needed", "one place further")
def one_layer_is_enough_for_the_rnn(kind, n, k):
    return 1 if kind == "RNN" else right_layers_needed(kind, n, k)


@wrong("layers_needed", "connects every pair")
def attention_goes_step_by_step(kind, n, k):
    return n if kind == "attention" else right_layers_needed(kind, n, k)


def right_dilations(n):
    return [2**layer for layer in range(max(1, math.ceil(math.log2(n))))]


@wrong("dilations", "stays open")
def powers_of_3(n):
    return [3**layer for layer in range(right_layers_needed("causal", max(n, 2), 3) + 1)]


@wrong("dilations", "stays open")
def one_layer_too_few(n):
    return right_dilations(n)[:-1] or [1]


@wrong("dilations", "too long")
def no_dilation_at_all(n):
    return [1] * (n - 1)


class RightLearnedEncoding(nn.Module):
    """What the wrong ones change in one place."""

    std = 0.7

    def __init__(self, num_hiddens, dropout, max_len=1000):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.sizes = (max_len, num_hiddens)
        self.make()

    def make(self):
        self.P = nn.Parameter(self.std * torch.randn(self.sizes))

    def check(self, X):
        if X.shape[1] > self.sizes[0] or X.shape[2] != self.sizes[1]:
            raise ValueError(f"{tuple(X.shape)} does not fit {self.sizes}")

    def rows(self, X):
        return self.P[: X.shape[1]].to(X.dtype)

    def forward(self, X):
        self.check(X)
        return self.dropout(X + self.rows(X))


@wrong("LearnedPositionalEncoding", "not trained")
class PlainTensor(RightLearnedEncoding):
    def make(self):
        self.P = torch.randn(self.sizes)


@wrong("LearnedPositionalEncoding", "not trained")
class Buffer(RightLearnedEncoding):
    def make(self):
        self.register_buffer("P", torch.randn(self.sizes))


@wrong("LearnedPositionalEncoding", "one vector knows no positions")
class OneVector(RightLearnedEncoding):
    def make(self):
        self.P = nn.Parameter(torch.randn(1, self.sizes[1]))


@wrong("LearnedPositionalEncoding", "max_len × num_hiddens")
class Scalar(RightLearnedEncoding):
    def make(self):
        self.P = nn.Parameter(torch.randn(1, 1))


@wrong("LearnedPositionalEncoding", "same rows")
class ByBatch(RightLearnedEncoding):
    def rows(self, X):
        return self.P[: X.shape[0], None].to(X.dtype)


@wrong("LearnedPositionalEncoding", "not multiplied")
class Multiplies(RightLearnedEncoding):
    def forward(self, X):
        self.check(X)
        return self.dropout(X * self.rows(X))


@wrong("LearnedPositionalEncoding", "begin with the same row")
class StartsAtZero(RightLearnedEncoding):
    std = 0.0


@wrong("LearnedPositionalEncoding", "unused rows")
class CentredTable(RightLearnedEncoding):
    def rows(self, X):
        return (self.P - self.P.mean(0))[: X.shape[1]].to(X.dtype)


@wrong("LearnedPositionalEncoding", "More than max_len")
class WrapsAround(RightLearnedEncoding):
    def check(self, X):
        super().check(X[:, : self.sizes[0]])

    def rows(self, X):
        return self.P[torch.arange(X.shape[1]) % self.sizes[0]].to(X.dtype)


@wrong("LearnedPositionalEncoding", "raised RuntimeError")
class LeavesLengthToTorch(RightLearnedEncoding):
    def check(self, X):
        pass


@wrong("LearnedPositionalEncoding", "Another width")
class BroadcastsTheWidth(RightLearnedEncoding):
    def check(self, X):
        if X.shape[1] > self.sizes[0]:
            raise ValueError("too long")


@wrong("LearnedPositionalEncoding", "type of X")
class PromotesTheTokens(RightLearnedEncoding):
    def rows(self, X):
        return self.P[: X.shape[1]]


@wrong("LearnedPositionalEncoding", "Dropout acts")
class NoDropout(RightLearnedEncoding):
    def forward(self, X):
        self.check(X)
        return X + self.rows(X)


@wrong("LearnedPositionalEncoding", "in training only")
class DropoutInEvaluation(RightLearnedEncoding):
    def forward(self, X):
        self.check(X)
        return nn.functional.dropout(X + self.rows(X), self.dropout.p)


@wrong("LearnedPositionalEncoding", "on the sum")
class DropoutOfTheRowsAlone(RightLearnedEncoding):
    def forward(self, X):
        self.check(X)
        return X + self.dropout(self.rows(X))


@wrong("LearnedPositionalEncoding", "belongs to the caller")
class InPlace(RightLearnedEncoding):
    def forward(self, X):
        self.check(X)
        sum_with_rows = X + self.rows(X)
        X.copy_(sum_with_rows.detach())
        return self.dropout(sum_with_rows)


@wrong("LearnedPositionalEncoding", "state_dict")
class KeepsAnOffsetToItself(RightLearnedEncoding):
    def make(self):
        super().make()
        self.offset = torch.randn(self.sizes[1])

    def rows(self, X):
        return super().rows(X) + self.offset.to(X.dtype)


def right_report(**changed):
    """Measured once, as the exercise asks."""
    return {
        "learned inside": [1.0, 0.997, 1.0],
        "learned outside": [0.092, 0.1, 0.093],
        "sinusoid inside": [0.989, 0.984, 0.989],
        "sinusoid outside": [0.181, 0.183, 0.155],
        "reaches": [],
        **{name.replace("_", " "): value for name, value in changed.items()},
    }


@wrong("compare_encodings", "three runs")
def one_seed():
    return {name: values[:1] for name, values in right_report().items()}


@wrong("compare_encodings", "no two runs")
def the_same_seed_three_times():
    return {name: values if name == "reaches" else values[:1] * 3
            for name, values in right_report().items()}


@wrong("compare_encodings", "names of the docstring")
def other_names():
    return {name.replace(" ", "_"): values for name, values in right_report().items()}


@wrong("compare_encodings", "positions 0 to 7")
def no_training():
    chance = [0.06, 0.07, 0.065]
    return right_report(**{f"{name}_inside": chance for name in ("learned", "sinusoid")})


@wrong("compare_encodings", "8 to 15 alone")
def the_mean_over_all_positions():
    return right_report(learned_outside=[0.54, 0.55, 0.53], sinusoid_outside=[0.6, 0.58, 0.59])


@wrong("compare_encodings", "not read somewhere")
def as_the_paper_hopes():
    return right_report(sinusoid_outside=[0.97, 0.96, 0.98], reaches=["sinusoid"])


@wrong("compare_encodings", "your own numbers")
def claims_more_than_it_measured():
    return right_report(reaches=["sinusoid"])


@wrong("compare_encodings", "your own numbers")
def claims_that_both_reach():
    return right_report(reaches=["learned", "sinusoid"])


def right_content_factor(init, vocab_size, num_hiddens):
    variance = {"normal": 1, "scaled": 1 / num_hiddens, "xavier": 2 / (vocab_size + num_hiddens)}
    return (2 * variance[init]) ** -0.5


@wrong("content_factor", "|p|² = d/2")
def always_the_root_of_d(init, vocab_size, num_hiddens):
    return math.sqrt(num_hiddens)


@wrong("content_factor", "|p|² = d/2")
def always_one_over_the_root_of_d(init, vocab_size, num_hiddens):
    return 1 / math.sqrt(num_hiddens)


@wrong("content_factor", "variance 1/d")
def ignores_how_it_begins(init, vocab_size, num_hiddens):
    return right_content_factor("normal", vocab_size, num_hiddens)


@wrong("content_factor", "neither is 1")
def takes_positions_for_vectors_of_length_root_d(init, vocab_size, num_hiddens):
    return math.sqrt(2) * right_content_factor(init, vocab_size, num_hiddens)


@wrong("content_factor", "neither is 1")
def takes_positions_for_unit_vectors(init, vocab_size, num_hiddens):
    return right_content_factor(init, vocab_size, num_hiddens) * math.sqrt(2 / num_hiddens)


@wrong("content_factor", "vocabulary")
def takes_xavier_for_a_square_matrix(init, vocab_size, num_hiddens):
    return right_content_factor(init, num_hiddens, num_hiddens)


@wrong("content_factor", "E|x|² first")
def variance_for_deviation(init, vocab_size, num_hiddens):
    return math.sqrt(2) * right_content_factor(init, vocab_size, num_hiddens) ** 2


def right_depth_profile(X, layers, residual, start=None, carried=True, axis=0):
    found = [] if start is None else [start]
    for layer in layers:
        Y = X + layer(F.layer_norm(X, X.shape[-1:])) if residual else layer(X)
        X = Y if carried else X
        M = Y.mean(axis, keepdim=True)
        found.append([(Y - M).norm().item(), M.expand_as(Y).norm().item()])
    return torch.tensor(found)


@wrong("depth_profile", "shape")
def begins_with_the_input(X, layers, residual):
    M = X.mean(0).expand_as(X)
    return right_depth_profile(X, layers, residual, [(X - M).norm().item(), M.norm().item()])


@wrong("depth_profile", "not over columns")
def mean_over_columns(X, layers, residual):
    return right_depth_profile(X, layers, residual, axis=1)


@wrong("depth_profile", "not their ratio")
def parts_of_the_whole(X, layers, residual):
    profile = right_depth_profile(X, layers, residual)
    return profile / profile.norm(dim=1, keepdim=True)


@wrong("depth_profile", "lengths of all n rows together")
def one_row_of_the_mean(X, layers, residual):
    return right_depth_profile(X, layers, residual) / torch.tensor([1, math.sqrt(len(X))])


@wrong("depth_profile", "the layer before")
def each_layer_reads_the_input(X, layers, residual):
    return right_depth_profile(X, layers, residual, carried=False)


@wrong("depth_profile", "only the layer sees")
def residual_without_norm(X, layers, residual):
    if not residual:
        return right_depth_profile(X, layers, residual)
    return right_depth_profile(X, [lambda Z, f=layer: Z + f(Z) for layer in layers], False)


@wrong("depth_profile", "only the layer sees")
def post_norm(X, layers, residual):
    if not residual:
        return right_depth_profile(X, layers, residual)
    blocks = [lambda Z, f=layer: F.layer_norm(Z + f(Z), Z.shape[-1:]) for layer in layers]
    return right_depth_profile(X, blocks, False)


@wrong("depth_profile", "X itself")
def norm_without_residual(X, layers, residual):
    if not residual:
        return right_depth_profile(X, layers, residual)
    blocks = [lambda Z, f=layer: f(F.layer_norm(Z, Z.shape[-1:])) for layer in layers]
    return right_depth_profile(X, blocks, False)


@wrong("depth_profile", "without a norm of its own")
def a_norm_between_layers(X, layers, residual):
    if not residual or len(layers) == 1:
        return right_depth_profile(X, layers, residual)
    first = right_depth_profile(X, layers[:1], True)
    X = F.layer_norm(X + layers[0](F.layer_norm(X, X.shape[-1:])), X.shape[-1:])
    return torch.cat([first, right_depth_profile(X, layers[1:], True)])


def right_stack_operations(L, n, d):
    return L * right_operations("whole layer", n, d, 0)


@wrong("stack_operations", "counts 2")
def stack_of_multiply_adds(L, n, d):
    return right_stack_operations(L, n, d) // 2


@wrong("stack_operations", "depth is a factor")
def one_layer_for_all(L, n, d):
    return right_stack_operations(1, n, d)


@wrong("stack_operations", "four projections")
def stack_without_projections(L, n, d):
    return L * 4 * n * n * d


@wrong("stack_operations", "four projections")
def stack_without_the_last_projection(L, n, d):
    return L * (6 * n * d * d + 4 * n * n * d)


@wrong("stack_operations")
def stack_with_feed_forward_networks(L, n, d):
    return right_stack_operations(L, n, d) + L * 16 * n * d * d


RIGHT = {
    "softmax_by_hand": right_softmax,
    "sinusoid": right_sinusoid,
    "shift_halves": right_shift,
    "is_equivariant": right_is_equivariant,
    "operations": right_operations,
    "layers_needed": right_layers_needed,
    "dilations": right_dilations,
    "LearnedPositionalEncoding": RightLearnedEncoding,
    "compare_encodings": right_report,
    "content_factor": right_content_factor,
    "depth_profile": right_depth_profile,
    "stack_operations": right_stack_operations,
}


@pytest.mark.parametrize("stub", RIGHT)
def test_what_the_wrong_answers_stand_on_is_right(stub):
    """So what is refused is their mistake."""
    having = [exercise for exercise in CODED if stub in exercise.functions]
    assert having
    for exercise in having:
        lines = sentences(exercise, **{stub: RIGHT[stub]})
        (line,) = [line for line in lines if not line.endswith(OPEN[exercise.edition])]
        assert AGREE[exercise.edition].search(line), line


def solved(number):
    """An exercise of the English page, and what is defined at its check when it is solved."""
    (exercise,) = (exercise for exercise in EDITIONS["en"] if exercise.number == number)
    (cell,) = exercise.cells(CHECK)
    names = dict(names_before_cells(exercise.path.stem)[cell.id])
    exec(exercise.solution, names)
    return cell, names


def test_what_the_solution_says_of_positions_outside():
    _, names = solved("4.3")
    report = names["compare_encodings"]()
    assert min(report["learned inside"] + report["sinusoid inside"]) > 0.95
    assert max(report["learned outside"]) < 0.12 and max(report["sinusoid outside"]) < 0.25


def test_what_the_solution_says_of_depth():
    cell, names = solved("4.5")
    run(cell, names)
    layers = names["attention_layers"](8, 12)
    (apart, mean), (kept, grown) = (
        names["depth_profile"](names["tokens"], layers, residual).detach().T
        for residual in (False, True)
    )
    factors = apart[1:4] / apart[:3]
    assert factors[0] < 0.5 and (factors[1:] < factors[:-1] / 5).all() and apart[4:].max() < 1e-10
    assert mean.min() > 0.5
    assert kept.min() > 0.9 * kept[0] and grown[7] > 3 * grown[0]


def attempts():
    for exercise in CODED:
        for stub in exercise.functions:
            for mistake, (function, words) in WRONG.get(stub, {}).items():
                yield pytest.param(exercise, stub, function, words, id=f"{exercise}-{mistake}")


def test_each_function_has_wrong_answers():
    for exercise in CODED:
        for stub in exercise.functions:
            assert len(WRONG.get(stub, {})) >= 3, f"{exercise}: {stub}"
    assert set(WRONG) == {stub for exercise in CODED for stub in exercise.functions}


@pytest.mark.parametrize("exercise, stub, function, words", list(attempts()))
def test_wrong_answer_is_told(exercise, stub, function, words):
    lines = sentences(exercise, **{stub: function})
    told = [line for line in lines if not line.endswith(OPEN[exercise.edition])]
    assert len(told) == 1 and not AGREE[exercise.edition].search(told[0]), lines
    if exercise.edition == "en":
        assert words in told[0]
    else:
        assert all(HAN.search(part) for part in re.split("[。：]", told[0]) if part), told[0]


@each_edition
def test_landing_page_gives_the_minutes_of_the_exercises(edition):
    page = (notebooks.ROOT / "chapters" / edition / "index.md").read_text(encoding="utf-8")
    promised = re.findall(r"^\| \[.*?\]\(([\w-]+)\.ipynb\) .* \| (\d+) \S+ \|$", page, re.M)
    spent = {}
    for exercise in EDITIONS[edition]:
        minutes = int(HEADINGS[edition].match(exercise.heading)[3])
        spent[exercise.path.stem] = spent.get(exercise.path.stem, 0) + minutes
    assert len(spent) >= 3 and {name: int(minutes) for name, minutes in promised} == spent
