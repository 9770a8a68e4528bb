"""The graded questions: what each answer earns, and what the students' notebook shows and hides."""

import ast
import contextlib
import copy
import io
import json
import math
import re
import sys
import textwrap
from functools import cache

import nbclient
import nbformat
import numpy as np
import pytest
import torch
from test_editions import CHECKS
from test_exercises import DETAILS, PYTHON

from assignments import release
from assignments.attention import checks
from assignments.student import decode, encode
from d2l_local import torch as d2l
from tools import notebooks

LANGUAGES = ("en", "zh")
SECRETS = (0, 1, 2)
SOURCE = release.HERE / "attention" / "source"
RELEASE = release.HERE / "attention" / "release"
QUESTIONS = {question.id: question for question in checks.QUESTIONS}
SOLUTION = re.compile(r" *### BEGIN SOLUTION\n(.*?) *### END SOLUTION", re.DOTALL)
HAN = re.compile("[\u4e00-\u9fff]")


@cache
def notebook(folder, language):
    return nbformat.read(folder / language / "attention.ipynb", as_version=4)


def cell(name, folder=SOURCE, language="en"):
    return next(c.source for c in notebook(folder, language).cells if c.id == name)


def reference(question_id):
    """The instructor's answer, without the marks."""
    return re.sub(r"\n *### (BEGIN|END) SOLUTION", "", cell(question_id))


@cache
def hidden_cases(question_id, secret):
    return QUESTIONS[question_id].cases(np.random.default_rng(secret))


def define(source, **names):
    """What the notebook holds after its set-up cell and `source`."""
    namespace = {"d2l": d2l, **names}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(cell("setup", RELEASE), namespace)
        exec(source, namespace)
    return namespace


def earn(question_id, answer, secret):
    """The points of each hidden case; an answer crosses as plain data, as when it is graded."""
    question, points = QUESTIONS[question_id], []
    driver = {"__name__": "driver"}
    exec(question.driver, driver)
    for case in hidden_cases(question_id, secret):
        inputs = copy.deepcopy(case.inputs)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                outputs = encode(driver["drive"](answer, inputs))
        except (Exception, SystemExit):
            points.append(0)
            continue
        verdict = question.judge(case, decode(json.loads(json.dumps(outputs))))
        assert verdict.points in (0, case.points)
        assert set(verdict.sentence) == (set() if verdict.points else set(LANGUAGES))
        points.append(verdict.points)
    return points


def check_earns(question_id, answer, wanted):
    for secret in SECRETS:
        assert earn(question_id, answer, secret) == wanted, f"secret {secret}"


def full(question_id):
    return [case.points for case in hidden_cases(question_id, 0)]


def nothing(question_id):
    return [0] * len(full(question_id))


def edited(question_id, *edits):
    """The instructor's answer with some pieces (old, new) replaced."""
    source = reference(question_id)
    for old, new in edits:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return define(source)[QUESTIONS[question_id].name]


# ---- the questions ------------------------------------------------------------------------------


def test_points():
    assert [sum(full(name)) for name in QUESTIONS] == [q.points for q in checks.QUESTIONS]
    assert sum(q.points for q in checks.QUESTIONS) + sum(checks.FREE_TEXT.values()) == checks.TOTAL
    for folder in (SOURCE, RELEASE):
        for language in LANGUAGES:
            marks = [c.metadata.nbgrader for c in notebook(folder, language).cells]
            points = {mark.grade_id: mark.points for mark in marks if mark.grade}
            wanted = {f"{q.id}-check": q.points for q in checks.QUESTIONS}
            assert points == wanted | checks.FREE_TEXT


@pytest.mark.parametrize("question", checks.QUESTIONS, ids=lambda q: q.id)
def test_inputs_come_from_the_secret_alone(question):
    def told(secret):
        cases = question.cases(np.random.default_rng(secret))
        return [json.dumps(encode(case.inputs)) for case in cases]

    assert told(5) == told(5)
    assert all(a != b for a, b in zip(told(5), told(6), strict=True))


@pytest.mark.parametrize("question", checks.QUESTIONS, ids=lambda q: q.id)
def test_driver_is_public(question):
    """It imports NumPy and PyTorch only, and holds no word of the hidden cases."""
    tree = ast.parse(question.driver)
    imports = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert imports == {"numpy", "torch"}
    for case in hidden_cases(question.id, 0):
        assert case.private["hint"]["en"] not in question.driver
    assert "right" not in question.driver


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", QUESTIONS)
def test_reference_earns_all(name, language):
    source = re.sub(r"\n *### (BEGIN|END) SOLUTION", "", cell(name, SOURCE, language))
    check_earns(name, define(source)[QUESTIONS[name].name], full(name))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", QUESTIONS)
def test_stub_earns_nothing(name, language):
    answer = define(cell(name, RELEASE, language))[QUESTIONS[name].name]
    check_earns(name, answer, nothing(name))


# ---- right answers in other words ---------------------------------------------------------------

RIGHT = [
    (
        "q1",
        """
        def window_attention(Q, K, V, w):
            t = torch.arange(K.shape[1])
            see = (t <= t[:, None]) & (t > t[:, None] - w)
            see = see[K.shape[1] - Q.shape[1]:]
            return nn.functional.scaled_dot_product_attention(Q, K, V, attn_mask=see)
        """,
    ),
    (
        "q1",
        """
        def window_attention(Q, K, V, w):
            rows, late = [], K.shape[1] - Q.shape[1]
            for i in range(Q.shape[1]):
                low, high = max(0, late + i - w + 1), late + i + 1
                S = (Q[:, i, None] @ K[:, low:high].mT) / Q.shape[2] ** 0.5
                rows.append(S.softmax(-1) @ V[:, low:high])
            return torch.cat(rows, dim=1)
        """,
    ),
    (
        "q2",
        """
        def slow_first_table(n, d, base, start):
            rows = []
            for i in range(start, start + n):
                angles = [i / base ** (2 * j / d) for j in range((d + 1) // 2)][::-1]
                rows.append((list(map(math.cos, angles)) + list(map(math.sin, angles)))[:d])
            return torch.tensor(rows)
        """,
    ),
    (
        "q3",
        """
        def cost_and_depth(n, d, h, w):
            see = torch.zeros(n, n).bool()
            for i in range(n):
                see[i, max(0, i - w + 1):i + 1] = True
                see[i, 0] = True
            cost = 2 * n * d * (2 * d + 2 * d // h) + 4 * see.sum() * d
            reach = torch.eye(n).bool()
            for depth in range(1, n + 1):
                reach = (see.double() @ reach.double()) > 0
                if reach.sum() == n * (n + 1) // 2:
                    return cost, torch.tensor(depth)
            return cost, None
        """,
    ),
    (
        "q4",
        """
        def span_attention(Q, K, V, starts, ends):
            Y = torch.zeros(*Q.shape[:2], V.shape[2])
            for b, (s, e) in enumerate(zip(starts.tolist(), ends.tolist())):
                if s < e:
                    S = Q[b] @ K[b, s:e].T / Q.shape[2] ** 0.5
                    Y[b] = S.softmax(-1) @ V[b, s:e]
            return Y
        """,
    ),
    (
        "q4",  # a softmax over nothing gives NaN, which the last mask takes away
        """
        def span_attention(Q, K, V, starts, ends):
            j = torch.arange(K.shape[1])
            valid = ((starts[:, None] <= j) & (j < ends[:, None]))[:, None]
            S = torch.where(valid, Q @ K.mT / math.sqrt(K.shape[2]), -math.inf)
            return torch.where(valid, S.softmax(-1), 0.0) @ V.nan_to_num()
        """,
    ),
    (
        "q5",
        """
        class ExtendableEncoding(nn.Module):
            def __init__(self, num_hiddens, max_len):
                super().__init__()
                self.P = nn.Parameter(torch.zeros(max_len, num_hiddens))

            def forward(self, X):
                if X.shape[1] > self.P.shape[0] or X.shape[-1] != self.P.shape[1]:
                    raise ValueError("X does not fit")
                return X + self.P[None, :X.shape[1]]

            def extend(self, new_len):
                if new_len <= self.P.shape[0]:
                    raise ValueError("not longer")
                times = -(-new_len // self.P.shape[0])
                self.P.data = self.P.data.repeat(times, 1)[:new_len]
        """,
    ),
]


@pytest.mark.parametrize(("name", "source"), RIGHT)
def test_other_right_answers_earn_all(name, source):
    check_earns(name, define(textwrap.dedent(source))[QUESTIONS[name].name], full(name))


def mapped(name, change):
    """The instructor's answer with each result changed."""
    answer = define(reference(name))[QUESTIONS[name].name]
    if name == "q5":
        return type(
            "Mapped", (answer,), {"forward": lambda self, X: change(answer.forward(self, X))}
        )
    if name == "q3":
        return lambda *sizes: tuple(None if x is None else change(x) for x in answer(*sizes))
    return lambda *arguments: change(answer(*arguments))


@pytest.mark.parametrize("name", QUESTIONS)
def test_rounding_and_types_cost_nothing(name):
    double = (lambda x: float(x)) if name == "q3" else torch.Tensor.double
    check_earns(name, mapped(name, double), full(name))
    if name != "q3":
        check_earns(name, mapped(name, lambda x: x + 1e-7), full(name))
        check_earns(name, mapped(name, lambda x: x.double() - 1e-7), full(name))


@pytest.mark.parametrize("name", QUESTIONS)
def test_nan_and_other_things_earn_nothing(name):
    """NaN, nothing, a word, and an object that says it equals everything."""
    equal = type("Equal", (), {"__eq__": lambda self, other: True, "__hash__": None})
    for change in (lambda x: x * math.nan, lambda x: None, lambda x: "right", lambda x: equal()):
        if name == "q3":
            answer = lambda *sizes, change=change: (change(1), change(1))  # noqa: E731
            earned = earn(name, answer, 0)  # None is right where no depth is enough
            assert earned == nothing(name)
        else:
            check_earns(name, mapped(name, change), nothing(name))


# ---- wrong answers -----------------------------------------------------------------------------

WINDOW, SCORES = "(j > t) | (j <= t - w)", "Q @ K.mT / math.sqrt(Q.shape[-1])"
SOFTMAX = "S.masked_fill(hidden, -math.inf).softmax(-1) @ V"
SPAN = "(j < starts[:, None]) | (j >= ends[:, None])"
SPAN_V = "V = V.masked_fill(hidden[:, :, None], 0)  # 0 times NaN would be NaN"
SPAN_OUT = "A.masked_fill(hidden, 0) @ V"
PARTS = "[angles.cos(), angles.sin()], dim=1)[:, :d]"
PAIRS, DEPTH = "min(i + 1, w) + (i >= w)", "-(-(n - 2) // (w - 1)) if w > 1 else None"
GROWN = "self.P.detach()[torch.arange(new_len) % length]"
EXTEND = f"self.P = nn.Parameter({GROWN})"
TOO_LONG = "if new_len <= length:"

# question, what is wrong, the points of each hidden case, pieces of the right answer to replace
WRONG = [
    ("q1", "no window", (0, 0, 0, 0), [(WINDOW, "(j > t)")]),
    ("q1", "a window, not causal", (0, 0, 0, 0), [(WINDOW, "(j >= t + w) | (j <= t - w)")]),
    ("q1", "only the past is limited", (0, 0, 0, 0), [(WINDOW, "(j <= t - w)")]),
    ("q1", "one key too many", (0, 0, 0, 0), [("j <= t - w", "j < t - w")]),
    ("q1", "one key too few", (0, 0, 0, 0), [("j <= t - w", "j <= t - w + 1")]),
    ("q1", "itself left out", (0, 0, 0, 0), [("j > t", "j >= t")]),
    ("q1", "no scale", (0, 0, 0, 0), [(SCORES, "Q @ K.mT")]),
    ("q1", "scale by the length", (0, 0, 0, 0), [("sqrt(Q.shape[-1])", "sqrt(Q.shape[1])")]),
    ("q1", "scale by the values", (0, 0, 0, 0), [("sqrt(Q.shape[-1])", "sqrt(V.shape[-1])")]),
    (
        "q1",
        "a window that must fit",
        (3, 3, 0, 2),
        [("hidden = ", "torch.ones(m - w)\n    hidden = ")],
    ),
    ("q1", "no square root", (0, 0, 0, 0), [("math.sqrt(Q.shape[-1])", "Q.shape[-1]")]),
    ("q1", "the first n tokens", (3, 0, 2, 2), [("arange(m - n, m)", "arange(n)")]),
    (
        "q1",
        "exp without the maximum",
        (3, 3, 2, 0),
        [(SOFTMAX, "(lambda E: E / E.sum(-1, keepdim=True) @ V)(S.exp() * ~hidden)")],
    ),
    ("q1", "a mask of -100", (3, 3, 2, 0), [("-math.inf", "-100.0")]),
    (
        "q1",
        "mask after softmax",
        (0, 0, 0, 0),
        [(SOFTMAX, "S.softmax(-1).masked_fill(hidden, 0) @ V")],
    ),
    ("q1", "softmax over queries", (0, 0, 0, 0), [("softmax(-1)", "softmax(-2)")]),
    ("q1", "changes Q", (0, 0, 0, 0), [(SCORES, "Q.div_(math.sqrt(Q.shape[-1])) @ K.mT")]),
    ("q1", "the weights", (0, 0, 0, 0), [(".softmax(-1) @ V", ".softmax(-1)")]),
    ("q1", "the book's layer", (0, 0, 0, 0), [(SOFTMAX, "d2l.DotProductAttention(0)(Q, K, V)")]),
    (
        "q1",
        "the book's layer with lengths",
        (0, 0, 0, 0),
        [(SOFTMAX, "d2l.DotProductAttention(0)(Q, K, V, (t[:, 0] + 1).expand(len(Q), n))")],
    ),
    (
        "q2",
        "interleaved",
        (0, 0, 0),
        [("torch.cat(" + PARTS, "torch.stack([angles.cos(), angles.sin()], -1).flatten(1)[:, :d]")],
    ),
    ("q2", "sines first", (0, 0, 0), [(PARTS, "[angles.sin(), angles.cos()], dim=1)[:, :d]")]),
    ("q2", "fastest first", (0, 0, 0), [(".flip(0)", "")]),
    (
        "q2",
        "only the sines turned",
        (0, 0, 0),
        [(PARTS, "[angles.flip(1).cos(), angles.sin()], dim=1)[:, :d]")],
    ),
    ("q2", "base 10000", (0, 0, 0), [("base **", "10000.0 **")]),
    ("q2", "start left out", (0, 0, 0), [("start, start + n", "n")]),
    ("q2", "positions from 1", (0, 0, 0), [("start, start + n", "start + 1, start + n + 1")]),
    (
        "q2",
        "no negative positions",
        (4, 3, 0),
        [("dtype=torch.float64)[:, None]", "dtype=torch.float64).clamp(min=0)[:, None]")],
    ),
    ("q2", "growing frequencies", (0, 0, 0), [("(-two_j / d)", "(two_j / d)")]),
    ("q2", "half the exponent", (0, 0, 0), [("(-two_j / d)", "(-two_j / 2 / d)")]),
    (
        "q2",
        "first and last exponent 0 and 1",
        (0, 0, 0),
        [("(-two_j / d)", "(-two_j / two_j.max())")],
    ),
    (
        "q2",
        "float32",
        (4, 3, 0),
        [("n, dtype=torch.float64", "n"), ("2, dtype=torch.float64", "2")],
    ),
    (
        "q2",
        "exponents by an even width",
        (4, 0, 3),
        [("(-two_j / d)", "(-two_j / (2 * len(two_j)))")],
    ),
    ("q2", "one column too many", (4, 0, 3), [("[:, :d]", "")]),
    (
        "q2",
        "the slowest sine cut off",
        (4, 0, 3),
        [(PARTS, "[angles.cos(), angles.sin()[:, d % 2 :]], dim=1)")],
    ),
    ("q2", "one pair too few", (4, 0, 3), [("(0, d, 2", "(0, d - 1, 2")]),
    (
        "q2",
        "the book's table",
        (0, 0, 0),
        [("torch.cat(" + PARTS, "d2l.position_table(start + n, d)[start:]")],
    ),
    ("q3", "token 0 left out", (0, 0, 3, 1), [(PAIRS, "min(i + 1, w)")]),
    ("q3", "token 0 twice", (0, 0, 3, 1), [(PAIRS, "min(i + 1, w) + 1")]),
    ("q3", "all windows full", (0, 0, 3, 1), [(PAIRS, "w + 1")]),
    ("q3", "all pairs", (0, 0, 3, 1), [(PAIRS, "n")]),
    ("q3", "the causal triangle", (0, 0, 3, 1), [(PAIRS, "i + 1")]),
    (
        "q3",
        "a multiply-add counts 1",
        (0, 0, 3, 1),
        [
            (
                "flops = 4 * n * d * d + 4 * n * d * c + 4 * pairs * d",
                "flops = 2 * n * d * d + 2 * n * d * c + 2 * pairs * d",
            )
        ],
    ),
    ("q3", "no projections", (0, 0, 3, 1), [("4 * n * d * d + 4 * n * d * c + ", "")]),
    ("q3", "keys for each head", (3, 0, 3, 1), [("4 * n * d * c", "4 * n * d * d")]),
    ("q3", "scores of one head", (3, 0, 3, 1), [("4 * pairs * d", "4 * pairs * c")]),
    ("q3", "two layers through token 0", (3, 3, 0, 0), [(DEPTH, "2")]),
    ("q3", "from token 0 on", (3, 3, 0, 0), [("-(-(n - 2)", "-(-(n - 1)")]),
    ("q3", "steps of w", (3, 3, 0, 0), [("(w - 1)) if", "w) if")]),
    ("q3", "rounded down", (3, 3, 0, 0), [("-(-(n - 2) // (w - 1))", "(n - 2) // (w - 1)")]),
    ("q3", "a window of one token", (3, 3, 3, 0), [(" if w > 1 else None", "")]),
    ("q3", "two tokens", (3, 3, 3, 0), [("n <= 2", "n < 2")]),
    ("q3", "never connected", (3, 3, 0, 0), [(DEPTH, "None")]),
    ("q3", "the cost alone", (0, 0, 0, 0), [(f"return flops, {DEPTH}", "return flops")]),
    ("q4", "start left out", (0, 0, 0, 0, 0), [(SPAN, "(j >= ends[:, None])")]),
    ("q4", "end left out", (0, 0, 0, 0, 0), [(SPAN, "(j < starts[:, None])")]),
    ("q4", "end counted", (0, 0, 0, 0, 0), [("j >= ends", "j > ends")]),
    ("q4", "start not counted", (0, 0, 0, 0, 0), [("j < starts", "j <= starts")]),
    ("q4", "a length from 0", (0, 0, 0, 0, 0), [(SPAN, "(j >= (ends - starts)[:, None])")]),
    (
        "q4",
        "the first sequence's part",
        (0, 0, 0, 0, 0),
        [(SPAN, "((j < starts[0]) | (j >= ends[0])).expand(len(Q), -1)")],
    ),
    ("q4", "no scale", (0, 0, 0, 0, 0), [("Q @ K.mT / math.sqrt(Q.shape[-1])", "Q @ K.mT")]),
    (
        "q4",
        "NaN without valid keys",
        (3, 0, 1, 2, 2),
        [("S.masked_fill(hidden.all(-1, keepdim=True), 0)", "S"), (SPAN_OUT, "A @ V")],
    ),
    (
        "q4",
        "a mean without valid keys",
        (3, 0, 1, 0, 2),
        [(SPAN_V, ""), ("-math.inf", "-1e9"), (SPAN_OUT, "A @ V")],
    ),
    (
        "q4",
        "an end that must fit",
        (3, 2, 0, 2, 2),
        [("S = (", "torch.eye(K.shape[1])[ends - 1]\n    S = (")],
    ),
    ("q4", "0 times NaN", (3, 2, 1, 0, 2), [(SPAN_V, "")]),
    (
        "q4",
        "exp without the maximum",
        (3, 2, 1, 2, 0),
        [
            (
                "S.masked_fill(hidden.all(-1, keepdim=True), 0).softmax(-1)",
                "S.exp() / S.exp().sum(-1, keepdim=True)",
            )
        ],
    ),
    ("q4", "mask after softmax", (0, 0, 0, 0, 0), [(".masked_fill(hidden, -math.inf)", "")]),
    (
        "q4",
        "scores of 0 instead of none",
        (0, 0, 0, 0, 0),
        [("-math.inf", "0"), (SPAN_OUT, "A @ V")],
    ),
    ("q4", "changes V", (0, 0, 0, 0, 0), [("V = V.masked_fill(", "V.masked_fill_(")]),
    (
        "q4",
        "the book's layer",
        (0, 0, 0, 0, 0),
        [(SPAN_OUT, "d2l.DotProductAttention(0)(Q, K, V, ends)")],
    ),
    (
        "q4",
        "the book's softmax",
        (0, 0, 0, 0, 0),
        [(".masked_fill(hidden, -math.inf)", ""), (SPAN_OUT, "d2l.masked_softmax(S, ends) @ V")],
    ),
    (
        "q5",
        "zeros in new rows",
        (2, 0, 2, 2, 1),
        [
            (
                GROWN,
                "torch.cat([self.P.detach(), self.P.new_zeros(new_len - length, self.P.shape[1])])",
            )
        ],
    ),
    (
        "q5",
        "the last row again",
        (2, 0, 2, 2, 1),
        [("torch.arange(new_len) % length", "torch.arange(new_len).clamp(max=length - 1)")],
    ),
    (
        "q5",
        "counted from the first length",
        (2, 0, 2, 2, 1),
        [
            (
                "self.P = nn.Parameter(0.02",
                "self.first = max_len\n        self.P = nn.Parameter(0.02",
            ),
            ("% length", "% self.first"),
        ],
    ),
    (
        "q5",
        "forgets what it learned",
        (0, 0, 0, 0, 0),
        [(GROWN, "torch.randn(new_len, self.P.shape[1])")],
    ),
    ("q5", "extend does nothing", (0, 0, 0, 0, 0), [(EXTEND, "pass")]),
    ("q5", "one row too many", (0, 0, 0, 0, 0), [("arange(new_len)", "arange(new_len + 1)")]),
    (
        "q5",
        "by new_len rows more",
        (0, 0, 0, 0, 0),
        [("arange(new_len)", "arange(length + new_len)")],
    ),
    ("q5", "does not learn", (0, 0, 0, 0, 0), [(f"({GROWN})", f"({GROWN}, requires_grad=False)")]),
    (
        "q5",
        "a buffer",
        (0, 0, 0, 0, 0),
        [
            (
                "self.P = nn.Parameter(0.02 * torch.randn(max_len, num_hiddens))",
                'self.register_buffer("P", torch.randn(max_len, num_hiddens))',
            ),
            (EXTEND, f"self.P = {GROWN}"),
        ],
    ),
    (
        "q5",
        "rows shared by modulo",
        (0, 0, 0, 0, 0),
        [
            ("self.P[: X.shape[1]]", "self.P[torch.arange(X.shape[1]) % length]"),
            ("X.shape[1] > length or ", ""),
            (EXTEND, "self.length = new_len"),
        ],
    ),
    (
        "q5",
        "a second parameter",
        (0, 0, 0, 0, 0),
        [(EXTEND, f"self.old = self.P\n        {EXTEND}")],
    ),
    (
        "q5",
        "new rows do not learn",
        (2, 3, 0, 2, 1),
        [
            (
                "self.P = nn.Parameter(0.02",
                "self.first = max_len\n        self.P = nn.Parameter(0.02",
            ),
            (
                "self.P[: X.shape[1]]",
                "torch.cat([self.P[: self.first], self.P[self.first :].detach()])[: X.shape[1]]",
            ),
        ],
    ),
    ("q5", "too many tokens", (2, 3, 2, 0, 1), [("X.shape[1] > length or ", "")]),
    ("q5", "a width of 1", (2, 3, 2, 0, 1), [(" or X.shape[2] != num_hiddens", "")]),
    (
        "q5",
        "another exception",
        (2, 3, 2, 0, 1),
        [('raise ValueError(f"P has', 'raise IndexError(f"P has')],
    ),
    ("q5", "extends to the same length", (2, 3, 2, 0, 1), [(TOO_LONG, "if new_len < length:")]),
    ("q5", "shorter again", (2, 3, 2, 0, 1), [(TOO_LONG, "if False:")]),
    (
        "q5",
        "float32 for good",
        (2, 3, 2, 2, 0),
        [(EXTEND, f"self.P = nn.Parameter({GROWN}.float())")],
    ),
    (
        "q5",
        "the position plus one",
        (0, 0, 0, 0, 0),
        [("self.P[: X.shape[1]]", "self.P[1 : X.shape[1] + 1]")],
    ),
    ("q5", "the first sequence only", (0, 0, 0, 0, 0), [("return X + ", "return X[:1] + ")]),
]


@pytest.mark.parametrize(("name", "mistake", "points", "edits"), WRONG)
def test_wrong_answer_earns_what_it_deserves(name, mistake, points, edits):
    check_earns(name, edited(name, *edits), list(points))


@pytest.mark.parametrize("name", QUESTIONS)
def test_enough_wrong_answers_and_each_case_is_missed_alone(name):
    """Six mistakes and more, and no case is there only to be passed with another."""
    wrong = [points for question, _, points, _ in WRONG if question == name]
    assert len(wrong) >= 6
    lost = [{i for i, earned in enumerate(points) if not earned} for points in wrong]
    assert set().union(*(each for each in lost if len(each) < len(full(name)))) >= set(
        range(1, len(full(name)))
    )


# ---- answers of the book ------------------------------------------------------------------------


def book_answers():
    """Each function and class of d2l_local and of the book's pages, in either edition."""
    found = {name: value for name, value in vars(d2l).items() if callable(value)}
    found |= {f"{name}(0)": found[name](0).eval() for name in ("DotProductAttention",)}
    found["PositionalEncoding(3, 0)"] = d2l.PositionalEncoding(3, 0)
    pages = [page for page in notebooks.notebooks("en") if notebooks.framework(page) == "torch"]
    for page in pages:  # the other frameworks' arrays are refused, and their packages are not here
        page_cells = nbformat.read(page, as_version=4).cells
        sources = [c.source for c in page_cells if c.cell_type == "code"]
        solutions = [
            block
            for c in page_cells
            if c.cell_type == "markdown"
            for _, text in DETAILS.findall(c.source)
            for block in PYTHON.findall(text)
        ]
        namespace = {"math": math, "torch": torch, "nn": torch.nn, "F": torch.nn.functional}
        namespace |= {"d2l": d2l, "np": np}
        for source in [*sources, *solutions]:
            for node in definitions(source):
                with contextlib.suppress(NameError):  # a base class of another cell
                    exec(compile(ast.Module([node], []), page.name, "exec"), namespace)
                    found[f"{page.stem}: {node.name}"] = namespace[node.name]
    return found


def definitions(source):
    try:
        body = ast.parse(source).body
    except SyntaxError:  # a magic
        return []
    return [node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]


def limited(function, lines=50_000):
    """The function, stopped after so many lines of Python: some never end on our arguments."""

    def call(*arguments):
        left = lines

        def count(frame, event, argument):
            nonlocal left
            left -= 1
            if left < 0:
                raise TimeoutError
            return count

        before = sys.gettrace()
        sys.settrace(count)
        try:
            return function(*arguments)
        finally:
            sys.settrace(before)

    return call


def test_endless_function_is_stopped():
    def endless():
        while True:
            pass

    with pytest.raises(TimeoutError):
        limited(endless)()
    assert limited(math.sqrt)(4.0) == 2


@pytest.fixture(scope="module")
def book():
    return book_answers()


def test_the_book_is_searched(book):
    solutions = {"self_attention", "softmax_by_hand", "sinusoid", "shift_halves", "operations"}
    solutions |= {"layers_needed", "dilations", "is_equivariant", "split_heads"}
    assert solutions <= {name.split(": ")[-1] for name in book}
    assert {"masked_softmax", "MultiHeadAttention", "position_table"} <= set(book)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", QUESTIONS)
def test_no_answer_of_the_book_earns_a_point(name, book, plt):
    """Under the name asked for, and with the last arguments left out."""
    for title, answer in book.items():
        if name == "q5":
            assert earn(name, answer, 0) == nothing(name), title
            continue
        stopped = limited(answer)
        for count in range(1, 6):
            tried = lambda *a, f=stopped, k=count: f(*a[:k])  # noqa: E731
            assert earn(name, tried, 0) == nothing(name), (title, count)
        plt.close("all")


# ---- the judge ------------------------------------------------------------------------------------

JUNK = [None, True, 3, math.nan, "x", [], {}, [None], [[]], {"result": 1}, [{"result": 1}],
        np.zeros(3), [np.zeros((2, 2))], [{"result": None, "after": None}],
        [{"result": [1, np.zeros(3)], "after": [1]}], [["P", np.zeros(2), True]]]  # fmt: skip


@pytest.mark.parametrize("question", checks.QUESTIONS, ids=lambda q: q.id)
def test_judge_takes_anything(question):
    for case in hidden_cases(question.id, 0):
        trials = len(case.inputs["trials"])
        for junk in [*JUNK, *([j] * trials for j in JUNK), *([[j] * 6] * trials for j in JUNK)]:
            verdict = question.judge(case, junk)
            assert verdict.points == 0 and set(verdict.sentence) == set(LANGUAGES)


def test_judge_refuses_other_kinds_of_numbers():
    right, hint = np.ones(2), {"en": "hint", "zh": "提示"}
    assert checks.fault(np.ones(2, np.float32), right, hint) == {}
    for wrong in (np.ones(2, bool), np.ones(2, complex), np.array(["1", "1"]), [1.0, 1.0], 1.0):
        assert checks.fault(wrong, right, hint) == checks.NO_NUMBERS
    assert "have the 1 axes" in checks.fault(np.ones((2, 1)), right, hint)["en"]
    # lengths may be hidden inputs: not those of the answer, nor those of the right value
    said = checks.fault(np.ones((2, 577)), np.ones((2, 433)), hint)
    assert said["en"].startswith("Axis 1 of") and not re.search("577|433", str(said))
    for off, sentence in ((1e-7, {}), (5e-6, {}), (3e-5, hint), (-3e-5, hint)):
        assert checks.fault(right + off, right, hint) == sentence  # 1e-5 and 1e-5 of 1
    assert checks.fault(np.full(2, np.inf), right, hint)["en"].startswith("NaN or infinity")


@pytest.mark.parametrize("question", checks.QUESTIONS, ids=lambda q: q.id)
def test_sentences_hold_no_expected_value(question):
    """They are the same for every secret, one sentence in each language."""
    told = [[c.private["hint"] for c in hidden_cases(question.id, s)] for s in SECRETS]
    assert told[0] == told[1] == told[2]
    for hint in told[0]:
        assert set(hint) == set(LANGUAGES)
        assert hint["en"].count(". ") == 0 and hint["en"].endswith(".")
        assert HAN.search(hint["zh"]) and hint["zh"].count("。") == 1 and hint["zh"].endswith("。")
        assert not HAN.search(hint["en"])


def test_an_answer_that_changes_its_arguments_is_told():
    case = hidden_cases("q1", 0)[0]
    outputs = [
        {"result": right, "after": [*arguments[:2], arguments[2] + 1, arguments[3]]}
        for right, arguments in zip(case.private["right"], case.inputs["trials"], strict=True)
    ]
    assert QUESTIONS["q1"].judge(case, outputs).sentence == checks.CHANGED


# ---- the visible checks -------------------------------------------------------------------------


def visible(name, namespace, language="en"):
    """What the visible check says in this notebook."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(cell("setup", RELEASE, language), namespace)
        exec(cell(f"{name}-check", RELEASE, language), namespace)
    return said.getvalue().splitlines()[-1]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", QUESTIONS)
def test_visible_check_says_one_sentence(name, language):
    undefined, untouched, right = {
        "en": (
            "run the cell that defines {} first",
            "not attempted yet",
            r"all \d visible cases agree; hidden cases give the points",
        ),
        "zh": (
            "请先运行定义 {} 的单元",
            "尚未作答",
            r"\d 个公开用例全部一致；得分由隐藏的用例决定",
        ),
    }[language]
    assert visible(name, {}, language) == f"{name}: {undefined.format(QUESTIONS[name].name)}"
    assert visible(name, define(cell(name, RELEASE)), language) == f"{name}: {untouched}"
    assert re.fullmatch(f"{name}: {right}", visible(name, define(reference(name)), language))


@pytest.mark.parametrize("name", QUESTIONS)
def test_visible_check_leaves_the_students_names_alone(name):
    namespace = define(reference(name))
    before = dict(namespace)
    exec(cell(f"{name}-check", RELEASE), namespace)
    assert set(namespace) - set(before) == {f"check_{name}"}
    assert all(namespace[key] is value for key, value in before.items())


@pytest.mark.parametrize("name", QUESTIONS)
def test_visible_check_teaches(name):
    """Three of four mistakes are seen by it, and each of its cases sees one first."""
    said = [
        visible(name, {QUESTIONS[name].name: edited(name, *edits)})
        for question, _, _, edits in WRONG
        if question == name
    ]
    missed = [sentence for sentence in said if "visible cases agree" in sentence]
    assert len(missed) <= len(said) / 4
    first = {int(number) for s in said for number in re.findall(r"visible case (\d)", s)}
    cases = visible(name, define(reference(name)))
    assert first == set(range(1, int(re.search(r"all (\d)", cases)[1]) + 1))


class Learn:
    """Takes down what the visible check calls an answer with, and what is right."""

    def __init__(self, answer):
        self.answer, self.seen = answer, []

    def __call__(self, *arguments):
        result = self.answer(*arguments)
        self.seen.append((str(arguments), result))
        return result


@pytest.mark.parametrize("name", ["q1", "q2", "q3", "q4"])
def test_hard_coded_answer_earns_nothing(name):
    learn = Learn(define(reference(name))[QUESTIONS[name].name])
    visible(name, {QUESTIONS[name].name: learn})
    known = dict(learn.seen)

    def answer(*arguments):
        return known.get(str(arguments), learn.seen[0][1])

    assert "visible cases agree" in visible(name, {QUESTIONS[name].name: answer})
    check_earns(name, answer, nothing(name))


def test_hard_coded_layer_earns_nothing():
    layer = edited("q5", (GROWN, "torch.tensor([[1.0], [2], [3], [1], [2], [1]])[:new_len]"))
    assert "visible cases agree" in visible("q5", {"ExtendableEncoding": layer})
    check_earns("q5", layer, nothing("q5"))


def test_visible_check_sees_changed_arguments():
    changes = edited("q4", ("V = V.masked_fill(", "V.masked_fill_("))
    assert "changed" in visible("q4", {"span_attention": changes})


# ---- the notebooks --------------------------------------------------------------------------------


def test_release_is_what_the_source_gives():
    assert len(release.sources()) == 2
    for source in release.sources():
        assert release.release_path(source).read_bytes() == release.released(source)


def test_release_command(tmp_path, capsys):
    for language in LANGUAGES:
        path = tmp_path / "attention" / "source" / language / "attention.ipynb"
        path.parent.mkdir(parents=True)
        path.write_bytes((SOURCE / language / "attention.ipynb").read_bytes())
    assert release.main(["--check"], tmp_path) == 1
    assert capsys.readouterr().out.count("differs") == 2
    assert release.main([], tmp_path) == 0
    assert release.main(["--check"], tmp_path) == 0
    written = tmp_path / "attention" / "release" / "zh" / "attention.ipynb"
    assert written.read_bytes() == (RELEASE / "zh" / "attention.ipynb").read_bytes()


def test_release_refuses_an_answer_without_marks(tmp_path):
    book = copy.deepcopy(notebook(SOURCE, "en"))
    found = next(c for c in book.cells if c.id == "q2")
    found.source = found.source.replace("### BEGIN SOLUTION", "")
    path = tmp_path / "en" / "attention.ipynb"
    path.parent.mkdir()
    nbformat.write(book, path)
    with pytest.raises(ValueError, match="cell q2: needs BEGIN SOLUTION"):
        release.released(path)


def test_release_takes_what_the_instructor_ran(tmp_path):
    book = copy.deepcopy(notebook(SOURCE, "en"))
    answer = next(c for c in book.cells if c.id == "q2-check")
    answer.outputs, answer.execution_count = [nbformat.v4.new_output("stream", text="q2: ran")], 7
    path = tmp_path / "en" / "attention.ipynb"
    path.parent.mkdir()
    nbformat.write(book, path)
    assert release.released(path) == (RELEASE / "en" / "attention.ipynb").read_bytes()


@pytest.mark.parametrize("language", LANGUAGES)
def test_release_shows_no_solution_and_no_hidden_check(language):
    shown = (RELEASE / language / "attention.ipynb").read_text(encoding="utf-8")
    released = notebook(RELEASE, language)
    visible_text = "\n".join(c.source for c in released.cells)
    lines = set()
    for c in notebook(SOURCE, language).cells:
        for solution in SOLUTION.findall(c.source + "\n"):
            lines |= {line.strip() for line in solution.splitlines() if len(line.strip()) > 12}
        if c.cell_type == "markdown" and "BEGIN SOLUTION" in c.source:
            answer = c.source.split("### BEGIN SOLUTION\n")[1].split("\n### END")[0]
            lines |= {line for line in answer.splitlines() if line}
    assert len(lines) > 25
    assert not [line for line in lines if line in visible_text]
    for words in ("SOLUTION", "default_rng", "assignments", "secret", "judge"):
        assert words not in shown, words
    for question in checks.QUESTIONS:
        for case in hidden_cases(question.id, 0):
            assert case.private["hint"][language] not in visible_text
    for c in released.cells:
        if c.cell_type == "code":
            assert c.outputs == [] and c.execution_count is None


@pytest.mark.parametrize("folder", [SOURCE, RELEASE], ids=["source", "release"])
def test_languages_are_interchangeable(folder):
    """The same cells, ids and marks; code differs in comments and in words with Chinese only."""
    english, chinese = (notebook(folder, language).cells for language in LANGUAGES)
    assert [c.id for c in english] == [c.id for c in chinese]
    for en, zh in zip(english, chinese, strict=True):
        marks = [dict(c.metadata.nbgrader, checksum="") for c in (en, zh)]
        assert marks[0] == marks[1] and en.cell_type == zh.cell_type
        for name in ("code", "headings", "tables", "punctuation", "words"):
            assert list(CHECKS[name](en, zh)) == [], en.id
        if en.cell_type == "code":
            first = [c.source.split("\n")[0] for c in (en, zh)]
            assert first[0] == first[1] or en.id in ("setup", "hand-in")
            continue
        assert HAN.search(zh.source) and not HAN.search(en.source)
        for quoted in (r"`[^`]+`", r"\$[^$]+\$"):
            said = [set(re.findall(quoted, c.source)) for c in (en, zh)]
            assert said[0] == said[1], en.id


@pytest.mark.parametrize("language", LANGUAGES)
def test_release_needs_torch_alone(language):
    imported = set()
    for c in notebook(RELEASE, language).cells:
        if c.cell_type == "code":
            assert not c.source.startswith(("%", "!")) and len(c.source.splitlines()) < 80
            for node in ast.walk(ast.parse(c.source)):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    imported.add(getattr(node, "module", None) or node.names[0].name)
        assert "![" not in c.source and "attachment:" not in c.source
    assert imported == {"math", "torch"}


def run_all(book, folder, extra=()):
    """Run a notebook in an empty folder; what each code cell printed, by cell id."""
    book = copy.deepcopy(book)
    book.cells += [
        nbformat.v4.new_code_cell(source, id=f"extra{i}") for i, source in enumerate(extra)
    ]
    nbclient.NotebookClient(
        book, timeout=120, resources={"metadata": {"path": str(folder)}}
    ).execute()
    return {
        c.id: "".join(output.get("text", "") for output in c.outputs)
        for c in book.cells
        if c.cell_type == "code"
    }


@pytest.mark.parametrize("language", LANGUAGES)
def test_untouched_release_runs_alone(language, tmp_path):
    printed = run_all(
        notebook(RELEASE, language), tmp_path,
        ["import sys; print(sorted(m for m in sys.modules if m[:3] in ('d2l', 'nbg')))"],
    )  # fmt: skip
    opens = {"en": "not attempted yet", "zh": "尚未作答"}[language]
    assert all(printed[f"{name}-check"] == f"{name}: {opens}\n" for name in QUESTIONS)
    left = {"en": "not attempted, or not to the end", "zh": "未作答或未完成"}[language]
    assert printed["hand-in"].count(left) == 5
    assert printed["extra0"] == "[]\n"


@pytest.mark.parametrize("language", LANGUAGES)
def test_source_runs_with_all_visible_cases_right(language, tmp_path):
    printed = run_all(notebook(SOURCE, language), tmp_path)
    agree = {"en": "visible cases agree", "zh": "个公开用例全部一致"}[language]
    assert all(agree in printed[f"{name}-check"] for name in QUESTIONS)
    found = {"en": "an answer is here", "zh": "有答案"}[language]
    order = {
        "en": "All cells ran once, from top to bottom.",
        "zh": "全部单元从上到下各运行了一次。",
    }
    assert printed["hand-in"].count(found) == 5 and order[language] in printed["hand-in"]
    assert "attention.ipynb" in printed["hand-in"]


def hand_in(*cells, folder=SOURCE):
    """What the last cell says after these cells ran, in this order."""
    namespace = {"In": ["", *(cell(name, folder) for name in cells), cell("hand-in")]}
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(cell("hand-in", RELEASE), namespace)
    return said.getvalue()


ORDER = ["setup", *(step for name in QUESTIONS for step in (name, f"{name}-check"))]
STALE = "may be stale"


def test_hand_in_knows_the_order():
    assert STALE not in hand_in(*ORDER)
    for other in (
        ORDER[:-1],
        [*ORDER, "q1"],
        [*ORDER, "q1", "q1-check"],
        [ORDER[0], ORDER[2], ORDER[1], *ORDER[3:]],
        [*ORDER, *ORDER],
        [],
    ):
        assert STALE in hand_in(*other)
    mixed = hand_in("q2", "q1")
    assert mixed.count("an answer is here") == 2 and mixed.count("has not run") == 3


def test_hand_in_reads_the_latest_answer():
    latest = {"In": ["", cell("q1"), cell("q1", RELEASE)]}
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(cell("hand-in", RELEASE), latest)
    assert "q1: not attempted" in said.getvalue()


def test_hand_in_runs_where_there_is_no_history():
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(cell("hand-in", RELEASE), {})
    assert said.getvalue().count("has not run") == 5


# ---- the text questions ---------------------------------------------------------------------------


def test_rubric_covers_each_text_question():
    rubric = (release.HERE / "attention" / "rubric.md").read_text(encoding="utf-8")
    sections = re.split(r"^## ", rubric, flags=re.M)[1:]
    assert [section.split(" ")[0] for section in sections] == list(checks.FREE_TEXT)
    for section in sections:
        rows = re.findall(r"^\| \d \| (.+?) \| (.+?) \| (\d) \|$", section, re.M)
        assert sum(int(points) for *_, points in rows) == checks.FREE_TEXT[section[:2]]
        assert all(HAN.search(zh) and not HAN.search(en) for en, zh, _ in rows)


def test_numbers_of_the_text_question():
    """What the model answer and the rubric say about 4096 tokens of width 512."""
    n, d, heads, depth = 4096, 512, 8, 24
    projections, core = 8 * n * d**2, 4 * n**2 * d
    weights = heads * n**2
    numbers = {
        "8.6": projections / 1e9, "34.4": core / 1e9, "43": (projections + core) / 1e9,
        "12.9": 4 * depth * weights / 1e9,
    }  # fmt: skip
    rubric = (release.HERE / "attention" / "rubric.md").read_text(encoding="utf-8")
    for text, value in numbers.items():
        digits = len(text.partition(".")[2])
        assert f"{value:.{digits}f}" == text
        for language in LANGUAGES:
            assert text in cell("q6", SOURCE, language)
    assert f"{depth * (projections + core) / 1e12:.1f} TFLOP" in rubric
    assert f"{weights / 1e6:.0f} million" in rubric and f"{weights / 1e8:.2f} 亿" in rubric
