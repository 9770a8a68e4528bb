"""The positional encoding of `d2l_local.torch`: golden values, properties, and wrong layers."""

import contextlib
import copy
import inspect
import itertools
import json
import math
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from d2l_local import torch as d2l

GOLDEN = json.loads(
    (Path(__file__).parent / "data" / "positional_encoding.json").read_text(encoding="utf-8")
)
# How far a table that is computed in float64 and rounded once may be from the exact one
ROUNDING = {torch.float16: 5e-4, torch.bfloat16: 4e-3, torch.float32: 1e-7, torch.float64: 1e-12}
each_dtype = pytest.mark.parametrize("dtype", ROUNDING, ids=str)


def exact(values):
    return torch.tensor(values, dtype=torch.float64)


@cache
def slow_table(n, d):
    """The table entry by entry, in Python's own numbers."""

    def entry(i, column):
        angle = i / 10000 ** (2 * (column // 2) / d)
        return math.cos(angle) if column % 2 else math.sin(angle)

    return exact([[entry(i, column) for column in range(d)] for i in range(n)])


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def gap(got, right):
    assert got.shape == right.shape
    return (got.double() - right.double()).abs().max().item()


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


# --- Layers that each hold one mistake ---

TYPES = {
    "float32 angles": torch.float32,
    "float16 angles": torch.float16,
    "bfloat16 angles": torch.bfloat16,
}


def textbook_angles(n, d, mistake):
    """The angles of the sines and those of the cosines, (n, pairs) each."""
    j = torch.arange((d + 1) // 2, dtype=torch.float64)
    sines = cosines = {
        "2i of an even index": 2 * (2 * j) / d,
        "j instead of 2j": j / d,
        "integer arithmetic": 2 * j // d,  # 0 everywhere, and so no frequency but 1
    }.get(mistake, 2 * j / d)
    if mistake == "own denominators":
        cosines = 2 * (j + 1) / d
    if mistake == "precedence slip with //":
        cosines = 2 * (2 * j + 1) // 2 / d  # should be 2 * (column // 2) / d
    dtype = TYPES.get(mistake, torch.float64)
    i = torch.arange(n)[:, None].to(dtype) + (mistake == "starts at 1")
    if mistake == "precedence slip with /":
        return [i / 10000 ** (2 * j) / d] * 2
    return [i / 10000 ** exponents.to(dtype) for exponents in (sines, cosines)]


def textbook_table(n, d, mistake):
    """The table written out at length, with one mistake in it."""
    first, second = textbook_angles(n, d, mistake)
    waves = [first.sin(), second.cos()]
    if mistake == "sine and cosine swapped":
        waves.reverse()
    if mistake != "odd widths crash":
        waves[1] = waves[1][:, : d // 2]
    if mistake == "halves":
        return torch.cat(waves, dim=1)
    P = torch.zeros(n, d, dtype=first.dtype)
    P[:, 0::2], P[:, 1::2] = waves
    return P


def textbook(mistake=None):
    """A layer like the package's, written out at length, with one mistake in it."""

    class PositionalEncoding(nn.Module):
        def __init__(self, num_hiddens, dropout, max_len=1000):
            super().__init__()
            self.dropout = nn.Dropout(0.0 if mistake == "no dropout" else dropout)
            always = {"always float32": torch.float32, "table in float64": torch.float64}
            P = textbook_table(max_len, num_hiddens, mistake)[None]
            P = P.to(always.get(mistake, torch.get_default_dtype()))
            if mistake == "plain attribute":
                self.P = P
            elif mistake == "parameter":
                self.P = nn.Parameter(P)
            else:
                self.register_buffer("P", P, persistent=mistake == "persistent buffer")

        def forward(self, X):
            n, d = X.shape[1:]
            if d != self.P.shape[2] and mistake != "broadcasts the width":
                raise ValueError(f"width {d} instead of {self.P.shape[2]}")
            if n > self.P.shape[1] and mistake != "broadcasts the length":
                raise ValueError(f"{n} of {self.P.shape[1]} positions")
            P = self.P[:, :n]
            if mistake == "promotes the tokens":
                return self.dropout(X + P)
            P = P.to(torch.float32 if mistake == "sum in float32" else X.dtype)
            if mistake == "in place":
                X += P
                return self.dropout(X)
            X = X.detach() if mistake == "stops the gradient" else X
            if mistake == "dropout in evaluation":
                return nn.functional.dropout(X + P, self.dropout.p)
            if mistake == "dropout of the code alone":
                return X + self.dropout(P.expand_as(X))
            Y = self.dropout(X.float() + P if mistake == "sum in float32" else X + P)
            return Y.float() if mistake == "output in float32" else Y.to(X.dtype)

    return PositionalEncoding


# --- The checks: each takes a class ---


def check_formula(cls):
    for d in (4, 32):
        assert gap(cls(d, 0.0).P[0], slow_table(1000, d)) < 1e-4


def check_odd_widths(cls):
    for d in (1, 5, 7):
        assert gap(cls(d, 0.0, max_len=20).P[0], slow_table(20, d)) < 1e-4


def check_precision(cls):
    """Rounded once, from angles in float64."""
    for dtype, bound in ROUNDING.items():
        with default_dtype(dtype):
            assert gap(cls(32, 0.0).P[0], slow_table(1000, 32)) < bound


def check_buffer(cls):
    """A constant that follows the layer."""
    layer = cls(8, 0.0)
    assert list(dict(layer.named_buffers())) == ["P"] and not list(layer.parameters())
    assert layer.P.dtype == torch.float32 and layer.P.shape == (1, 1000, 8)
    assert layer.half().P.dtype == torch.float16 and layer.double().P.dtype == torch.float64
    assert layer.to("meta").P.is_meta


def check_checkpoint(cls):
    """What was trained with one `max_len` loads into a layer with another."""
    state = cls(8, 0.0, max_len=1000).state_dict()
    longer = cls(8, 0.0, max_len=2000)
    longer.load_state_dict(state, strict=True)
    assert longer.P.shape == (1, 2000, 8) and not state


def check_sum(cls):
    """The output is tokens plus codes, for any number of tokens up to max_len."""
    for dtype, bound in ((torch.float32, 1e-6), (torch.float64, 1e-12)):
        with default_dtype(dtype):
            layer = cls(8, 0.5, max_len=9).eval()
        for n in (1, 4, 9):
            X = random(2, n, 8, dtype=dtype)
            assert gap(layer(X), X.double() + slow_table(9, 8)[:n]) < bound


def check_types(cls):
    """The tokens' type is the output's, whatever the type of the layer."""
    for tokens, inside in itertools.product(ROUNDING, ROUNDING):
        layer = cls(8, 0.0, max_len=20).to(inside)
        assert layer(torch.zeros(2, 20, 8, dtype=tokens)).dtype == tokens


def refuses(layer, *shape):
    try:
        layer(torch.zeros(shape))
    except ValueError:
        return True
    return False


def check_length(cls):
    """Too many tokens are refused, one position for all of them too."""
    assert refuses(cls(8, 0.0), 1, 1001, 8) and refuses(cls(4, 0.0, max_len=1), 1, 4, 4)


def check_width(cls):
    assert refuses(cls(8, 0.0), 2, 5, 1) and refuses(cls(1, 0.0), 2, 5, 8)


def check_argument(cls):
    """Tokens are the caller's: unchanged; and their gradient is that of the output."""
    X, layer = random(2, 3, 8), cls(8, 0.0)
    before = X.clone()
    layer(X)
    assert torch.equal(X, before)
    direction = random(2, 3, 8, seed=1)
    leaf = X.requires_grad_()
    (got,) = torch.autograd.grad((layer(leaf) * direction).sum(), leaf)
    assert torch.equal(got, direction)


def check_dropout(cls):
    """In training, entries of the sum are zero or doubled; in evaluation nothing changes."""
    X, layer = random(2, 20, 32), cls(32, 0.5)
    torch.manual_seed(0)
    trained, layer = layer(X), layer.eval()
    full = layer(X)
    assert torch.equal(full, layer(X))
    lost = (trained == 0) & (full != 0)
    assert 0.4 < lost.double().mean() < 0.6
    assert gap(trained, (2 * full).masked_fill(lost, 0)) < 1e-6


CHECKS = {
    "formula": check_formula,
    "odd widths": check_odd_widths,
    "precision": check_precision,
    "buffer": check_buffer,
    "checkpoint": check_checkpoint,
    "sum": check_sum,
    "types": check_types,
    "length": check_length,
    "width": check_width,
    "argument": check_argument,
    "dropout": check_dropout,
}


def problems(cls):
    """The names of the checks that a class does not pass."""
    found = []
    for name, check in CHECKS.items():
        try:
            check(cls)
        except (AssertionError, RuntimeError):  # torch refuses some wrong steps itself
            found.append(name)
    return found


# --- Every check fails for some wrong layer, and passes for the right ones ---

WRONG_NUMBERS = ["formula", "odd widths", "precision", "sum"]
CAUGHT_BY = {
    "2i of an even index": WRONG_NUMBERS,
    "j instead of 2j": WRONG_NUMBERS,
    "own denominators": WRONG_NUMBERS,
    "precedence slip with //": WRONG_NUMBERS,
    "precedence slip with /": WRONG_NUMBERS,
    "integer arithmetic": WRONG_NUMBERS,
    "halves": WRONG_NUMBERS,
    "starts at 1": WRONG_NUMBERS,
    "sine and cosine swapped": WRONG_NUMBERS,
    "float32 angles": ["precision", "sum"],
    "float16 angles": WRONG_NUMBERS,
    "bfloat16 angles": WRONG_NUMBERS,
    "odd widths crash": ["odd widths"],
    "plain attribute": ["buffer"],
    "parameter": ["buffer", "checkpoint"],
    "persistent buffer": ["checkpoint"],
    "always float32": ["precision", "sum"],
    "table in float64": ["buffer"],
    "broadcasts the width": ["width"],
    "broadcasts the length": ["length"],
    "promotes the tokens": ["types"],
    "output in float32": ["sum", "types"],
    "sum in float32": ["sum"],
    "in place": ["sum", "argument", "dropout"],
    "stops the gradient": ["argument"],
    "dropout in evaluation": ["sum", "dropout"],
    "dropout of the code alone": ["dropout"],
    "no dropout": ["dropout"],
}


@pytest.mark.parametrize("cls", [d2l.PositionalEncoding, textbook()], ids=["d2l_local", "textbook"])
def test_right_layers_have_no_problem(cls):
    assert problems(cls) == []


@pytest.mark.parametrize("mistake", CAUGHT_BY)
def test_mistake_is_caught(mistake):
    assert problems(textbook(mistake)) == CAUGHT_BY[mistake]


def test_no_check_is_idle():
    assert {name for names in CAUGHT_BY.values() for name in names} == set(CHECKS)


def test_the_original_has_seven_problems(original):
    names = ["odd widths", "precision", "buffer", "sum", "types", "length", "width"]
    assert problems(original.PositionalEncoding) == names


# --- The table ---


def keys_and_values(part):
    """Golden values, under the numbers that their key holds."""
    for key, value in GOLDEN[part].items():
        yield [int(number) for number in key.split(",")], value


def test_golden_rows():
    """Rows computed outside this project; one of them is far and wide: 99,999 of width 512."""
    rows = list(keys_and_values("rows"))
    assert len(rows) == 10 and max(i for (i, _), _ in rows) == 99_999
    for (i, d), row in rows:
        assert gap(d2l.position_table(i + 1, d)[i], exact(row)) < 1e-10, (i, d)


def test_golden_dot_products():
    """They depend on the distance alone."""
    products = list(keys_and_values("dot_products"))
    assert len(products) == 15
    for (d, distance), product in products:
        P = d2l.position_table(1000, d)
        got = (P[: 1000 - distance] * P[distance:]).sum(1)
        assert gap(got, exact(product).expand_as(got)) < 1e-10, (d, distance)


def test_golden_wavelengths():
    wavelengths = list(keys_and_values("shortest_and_longest_wavelength"))
    assert len(wavelengths) == 3
    for (d,), ends in wavelengths:
        sines, cosines = d2l.position_table(2, d)[1].view(-1, 2).T
        turns = 2 * math.pi / torch.atan2(sines, cosines)
        assert_close(turns[[0, -1]], exact(ends), rtol=1e-12, atol=0)
        assert (turns.diff() > 0).all()


def test_all_golden_values_are_used():
    parts = ["dot_products", "rows", "shortest_and_longest_wavelength"]
    assert sorted(GOLDEN) == parts


# Rows to six digits, under (position, width)
ANCHORS = {
    (1, 5): [0.841471, 0.540302, 0.025116, 0.999685, 0.000631],
    (1, 7): [0.841471, 0.540302, 0.071906, 0.997411, 0.005179, 0.999987, 0.000373],
    (2, 4): [0.909297, -0.416147, 0.019999, 0.999800],
    (3, 8): [0.141120, -0.989992, 0.295520, 0.955336, 0.029996, 0.999550, 0.003000, 0.999996],
}


@pytest.mark.parametrize("position, width", ANCHORS)
def test_anchors(position, width):
    row = d2l.PositionalEncoding(width, 0)(torch.zeros(1, 4, width))[0, position]
    assert gap(row, exact(ANCHORS[position, width])) < 6e-7


def test_the_call_of_the_source_text():
    encoding_dim, num_steps = 32, 60
    pos_encoding = d2l.PositionalEncoding(encoding_dim, 0)
    pos_encoding.eval()
    X = pos_encoding(d2l.zeros((1, num_steps, encoding_dim)))
    P = pos_encoding.P[:, : X.shape[1], :]
    assert X.shape == P.shape == (1, 60, 32) and torch.equal(X, P)
    assert gap(P[0, 5, 6:10], exact([0.776530, 0.630080, 0.479426, 0.877583])) < 6e-7


@pytest.mark.parametrize("d", [1, 2, 3, 4, 7, 8, 31, 32])
def test_table_against_a_loop(d):
    P = d2l.position_table(1000, d)
    assert P.dtype == torch.float64 and gap(P, slow_table(1000, d)) < 1e-12


@each_dtype
def test_table_is_float64_whatever_the_default(dtype):
    with default_dtype(dtype):
        P = d2l.position_table(100, 7)
    assert P.dtype == torch.float64 and gap(P, slow_table(100, 7)) < 1e-12


def test_a_longer_table_begins_with_the_shorter():
    for n, d in ((1, 8), (17, 5), (999, 32)):
        assert torch.equal(d2l.position_table(n, d), d2l.position_table(1000, d)[:n])


@pytest.mark.parametrize("d", [2, 8, 32, 512])
def test_length_of_rows(d):
    P = d2l.position_table(1000, d)
    assert gap((P**2).sum(1), torch.full((1000,), d / 2)) < 1e-11


def rotation(delta, d):
    """The matrix that must move each row by delta, pair by pair."""
    T = torch.zeros(d, d, dtype=torch.float64)
    for j in range(0, d, 2):
        angle = delta / 10000 ** (j / d)
        sin, cos = math.sin(angle), math.cos(angle)
        T[j : j + 2, j : j + 2] = exact([[cos, sin], [-sin, cos]])
    return T


def test_a_shift_is_a_rotation():
    P, T = d2l.position_table(1005, 32), rotation(5, 32)
    assert gap(P[:1000] @ T.T, P[5:]) < 1e-12
    rounded = d2l.PositionalEncoding(32, 0.0, max_len=1005).P[0].double()
    assert gap(rounded[:1000] @ T.T, rounded[5:]) < 1e-6
    assert gap(P[:1000] @ T, P[5:]) > 1  # the other way round
    for i in (0, 100, 900):
        assert abs((P[i] @ P[i + 5]).item() - 11.7774) < 1e-4


# --- The layer ---


@pytest.mark.parametrize("d", [4, 32, 512])
def test_against_the_original(d, original):
    X = random(2, 1000, d)
    ours, theirs = (kit.PositionalEncoding(d, 0.5).eval() for kit in (d2l, original))
    ours.load_state_dict(theirs.state_dict(), strict=True)
    assert gap(ours(X), theirs(X)) < 1e-4  # theirs has angles in float32
    assert gap(ours(X), X.double() + slow_table(1000, d)) < 1e-6


def test_arguments_are_those_of_the_original(original):
    for method in ("__init__", "forward"):
        ours, theirs = (
            inspect.signature(getattr(kit.PositionalEncoding, method)) for kit in (d2l, original)
        )
        assert ours == theirs


@each_dtype
def test_the_table_keeps_the_default_type(dtype):
    with default_dtype(dtype):
        layer = d2l.PositionalEncoding(512, 0.0)
    assert layer.P.dtype == dtype and layer.P.shape == (1, 1000, 512)
    assert gap(layer.P[0], slow_table(1000, 512)) < ROUNDING[dtype]


@each_dtype
@pytest.mark.parametrize("inside", ROUNDING, ids=str)
def test_types_of_layer_and_tokens(inside, dtype):
    """The tokens' type is kept, and the code has the digits that both types can hold."""
    layer = d2l.PositionalEncoding(7, 0.5).to(inside).eval()
    Y = layer(torch.zeros(2, 1000, 7, dtype=dtype))
    assert layer.P.dtype == inside and Y.dtype == dtype
    # the layer was made in float32: float64 brings no digits back
    bound = max(ROUNDING[inside], ROUNDING[dtype], ROUNDING[torch.float32])
    assert gap(Y, slow_table(1000, 7).expand(2, 1000, 7)) < bound
    assert layer.train()(torch.zeros(2, 5, 7, dtype=dtype)).dtype == dtype


def test_autocast_keeps_the_type():
    layer, X = d2l.PositionalEncoding(8, 0.0), random(2, 3, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(layer(X), layer(X.clone())) and layer(X).dtype == torch.float32
        assert layer(X.bfloat16()).dtype == torch.bfloat16


def test_follows_the_model_it_is_in():
    model = nn.Sequential(nn.Linear(6, 8), d2l.PositionalEncoding(8, 0.0))
    assert [name for name, _ in model.named_buffers()] == ["1.P"]
    assert list(model.state_dict()) == ["0.weight", "0.bias"]
    assert model.half()[1].P.dtype == torch.float16
    assert model.double()(random(2, 3, 6).double()).dtype == torch.float64
    assert model.to("meta")[1].P.is_meta


def test_meta_device_checks_shapes_and_types():
    layer = d2l.PositionalEncoding(8, 0.5, max_len=9).to("meta")
    Y = layer(torch.zeros(2, 9, 8, dtype=torch.float16, device="meta"))
    assert Y.is_meta and Y.shape == (2, 9, 8) and Y.dtype == torch.float16
    with pytest.raises(ValueError, match="10 positions"):
        layer(torch.zeros(2, 10, 8, device="meta"))
    with torch.device("meta"):
        assert d2l.PositionalEncoding(8, 0.0).P.is_meta


@pytest.mark.parametrize("n, m", [(1000, 2000), (2000, 1000), (101, 201)])
def test_weights_load_into_another_max_len(n, m, tmp_path):
    """A model's weights, saved with one max_len, load into the same model with another."""
    first, second = (
        nn.Sequential(nn.Linear(8, 8), d2l.PositionalEncoding(8, 0.0, size)) for size in (n, m)
    )
    torch.save(first.state_dict(), tmp_path / "weights.pt")
    second.load_state_dict(torch.load(tmp_path / "weights.pt"), strict=True)
    X = random(2, 100, 8)
    assert torch.equal(first(X), second(X)) and second[1].P.shape == (1, m, 8)


def test_neither_tokens_nor_table_are_changed():
    X = random(2, 8, 5).mT  # a view, not contiguous
    before, layer = X.clone(), d2l.PositionalEncoding(8, 0.5)
    layer(X).zero_()
    assert torch.equal(X, before) and torch.equal(layer.P, d2l.PositionalEncoding(8, 0).P)


def test_dropout_only_in_training():
    """In training the code has holes, and is not the same twice."""
    layer = d2l.PositionalEncoding(32, 0.5)
    X = torch.zeros(1, 60, 32)
    torch.manual_seed(0)
    first, second = layer(X), layer(X)
    assert not torch.equal(first, second)
    assert set(first[0, 0].tolist()) == {0.0, 2.0}  # position 0, which is 0, 1, 0, 1, …
    layer.eval()
    assert torch.equal(layer(X), layer.P[:, :60]) and torch.equal(layer(X), layer(X))


@pytest.mark.parametrize("n", [0, 1, 2, 999, 1000])
@pytest.mark.parametrize("batch", [0, 1, 3])
def test_any_number_of_tokens_up_to_max_len(batch, n):
    X = random(batch, n, 8)
    Y = d2l.PositionalEncoding(8, 0.0)(X)
    assert Y.shape == X.shape
    assert_close(Y, X + slow_table(1000, 8)[:n].float())


def test_smallest_layer():
    layer = d2l.PositionalEncoding(1, 0.0, max_len=1)
    assert layer(torch.full((3, 1, 1), 2.0)).tolist() == [[[2.0]]] * 3  # sin(0) = 0


# --- Copying, saving, tracing ---


def test_copy_and_save(tmp_path):
    layer, X = d2l.PositionalEncoding(7, 0.5, max_len=9).eval(), random(2, 5, 7)
    Y = layer(X.requires_grad_())
    torch.save(layer, tmp_path / "layer.pt")
    for copied in (copy.deepcopy(layer), torch.load(tmp_path / "layer.pt", weights_only=False)):
        assert torch.equal(copied(X), Y)
        assert "P" in dict(copied.named_buffers()) and not copied.state_dict()
    other = copy.deepcopy(layer)
    other.P.zero_()
    assert torch.equal(other(X), X) and torch.equal(layer(X), Y)


def test_export():
    layer, X = d2l.PositionalEncoding(7, 0.5).eval(), random(2, 5, 7)
    program = torch.export.export(layer, (random(2, 5, 7, seed=1),), strict=False).module()
    assert torch.equal(program(X), layer(X))


def test_export_for_any_batch_and_length():
    layer, X = d2l.PositionalEncoding(8, 0.0, max_len=50), random(3, 4, 8)
    B, n = torch.export.Dim("B", min=2, max=64), torch.export.Dim("n", min=2, max=50)
    program = torch.export.export(layer, (X,), dynamic_shapes=({0: B, 1: n},), strict=False)
    for shape in ((2, 2, 8), (5, 7, 8), (3, 50, 8)):
        assert torch.equal(program.module()(random(*shape)), layer(random(*shape)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_compile(dtype):
    layer = d2l.PositionalEncoding(7, 0.5, max_len=9).eval()
    torch.compiler.reset()
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    for n in (1, 5, 9):  # 1 is special to a compiler
        X = random(2, n, 7, dtype=dtype)
        assert torch.equal(compiled(X), layer(X)) and compiled(X).dtype == dtype


# --- What is refused, and in which words ---


def encode(*shape, dtype=torch.float32, **sizes):
    """Encode zeros in a layer of width 8, or of other sizes."""
    sizes = {"num_hiddens": 8, "dropout": 0.0, **sizes}
    return lambda: d2l.PositionalEncoding(**sizes)(torch.zeros(shape, dtype=dtype))


def make(*sizes):
    return lambda: d2l.PositionalEncoding(*sizes)


def table(*sizes):
    return lambda: d2l.position_table(*sizes)


REFUSED = {
    "1001 tokens": (encode(1, 1001, 8), ValueError, "1001 positions", "max_len=1000"),
    "one too many": (encode(2, 5, 8, max_len=4), ValueError, "5 positions", "max_len=4"),
    "max_len 1": (encode(1, 4, 4, num_hiddens=4, max_len=1), ValueError, "4 pos", "max_len=1"),
    "narrow": (encode(2, 5, 7), ValueError, "length, 8)", "(2, 5, 7)"),
    "wide": (encode(2, 5, 16), ValueError, "length, 8)", "(2, 5, 16)"),
    "width 1": (encode(2, 5, 1), ValueError, "length, 8)", "(2, 5, 1)"),
    "layer of width 1": (encode(2, 5, 8, num_hiddens=1), ValueError, "length, 1)", "(2, 5, 8)"),
    "1-D": (encode(8), ValueError, "length, 8)", "(8,)"),
    "2-D": (encode(5, 8), ValueError, "length, 8)", "(5, 8)"),
    "4-D": (encode(1, 2, 5, 8), ValueError, "length, 8)", "(1, 2, 5, 8)"),
    "whole numbers": (encode(2, 5, 8, dtype=torch.int), TypeError, "floating-point", "torch.int32"),
    "bytes": (encode(2, 5, 8, dtype=torch.uint8), TypeError, "floating-point", "torch.uint8"),
    "boolean": (encode(2, 5, 8, dtype=torch.bool), TypeError, "floating-point", "torch.bool"),
    "complex": (encode(2, 5, 8, dtype=torch.cfloat), TypeError, "floating-point", "complex64"),
    "no width": (make(0, 0.0), ValueError, "1000 and 0"),
    "negative width": (make(-4, 0.0), ValueError, "1000 and -4"),
    "no position": (make(8, 0.0, 0), ValueError, "0 and 8"),
    "negative max_len": (make(8, 0.0, -1), ValueError, "-1 and 8"),
    "table without rows": (table(0, 8), ValueError, "1 position", "0 and 8"),
    "table without columns": (table(5, 0), ValueError, "1 column", "5 and 0"),
    "dropout above 1": (make(8, 1.5), ValueError, "dropout", "1.5"),
}


@pytest.mark.parametrize(
    "call, error, words", [(call, error, words) for call, error, *words in REFUSED.values()],
    ids=REFUSED,
)
def test_refused(call, error, words):
    with pytest.raises(error) as raised:
        call()
    message = str(raised.value)
    assert all(word in message for word in words), message
    assert "\n" not in message
