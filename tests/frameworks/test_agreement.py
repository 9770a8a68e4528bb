"""One framework beside PyTorch and beside values from outside this project.

`python -m pytest --framework jax` in the environment of JAX; without the option, PyTorch itself.
With `--store` a run writes what it finds instead of comparing: PyTorch the arrays that all must
agree with, each framework its figures on the page "The same layers in five frameworks".
"""

import json
import platform
import re
from functools import cache

import numpy as np
import pytest
from cases import (
    LAYERS,
    LENGTHS,
    MEASURED,
    PYTORCH,
    TABLES,
    flat,
    golden_cases,
    golden_rows,
    layer_case,
    table,
)
from kits import KITS
from mistakes import MISTAKES

# How far from PyTorch or the golden values; float32 has 7 digits, and gradients sum more terms
LIMITS = {"outputs": 5e-6, "golden": 5e-6, "gradients": 5e-5, "encoding": 1e-6}
each_length = pytest.mark.parametrize("lengths", LENGTHS)


@pytest.fixture(scope="session")
def name(pytestconfig):
    return pytestconfig.getoption("framework")


@pytest.fixture(scope="session")
def kit(name):
    return KITS[name]()


@pytest.fixture(scope="session")
def store(pytestconfig):
    return pytestconfig.getoption("store")


def random(*shape, seed=0):
    return np.random.RandomState(seed).standard_normal(shape).astype("float32")


SCORES = random(2, 4, 5)


def difference(got, right):
    """The largest difference; infinite for another shape, and for NaN."""
    got, right = np.asarray(got, "float64"), np.asarray(right, "float64")
    if got.shape != right.shape or not np.isfinite(got).all():
        return np.inf
    return float(abs(got - right).max())


# --- The figures ---


@cache
def pytorch():
    with np.load(PYTORCH) as file:
        return dict(file)


def arrays(kit, layer, lengths):
    weights, num_heads, inputs = layer_case(layer)
    return flat(layer, lengths, kit.multi_head(weights, num_heads, *inputs, LENGTHS[lengths]))


def from_pytorch(kit, layer, lengths):
    """The differences of outputs with weights, and of gradients."""
    found = arrays(kit, layer, lengths)
    names = {name for name in pytorch() if name.startswith(f"{layer}/{lengths}/")}
    assert found.keys() == names
    by_kind = {"outputs": [0.0], "gradients": [0.0]}
    for name, array in found.items():
        kind = "outputs" if name.endswith(("/output", "/weights")) else "gradients"
        by_kind[kind].append(difference(array, pytorch()[name]))
    return {kind: max(found) for kind, found in by_kind.items()}


def from_golden(kit):
    found = []
    for _, inputs, output, weights in golden_cases():
        result = kit.multi_head(*inputs)
        found += [difference(result.output, output), difference(result.weights, weights)]
    return max(found)


def from_exact_encoding(kit, tables=TABLES):
    """On random tokens, so that an encoding that overwrites them is seen."""
    found = []
    for length, width in tables:
        X = random(2, length, width) / 100  # small, so that adding rounds little
        right = X.astype("float64") + table(length, width)
        found.append(difference(kit.encode(X, max_len=length), right))
    return max(found)


@pytest.fixture(scope="session")
def differences(kit):
    """`from_pytorch` of the right module, each case computed once."""
    return cache(lambda layer, lengths: from_pytorch(kit, layer, lengths))


def figures(kit, differences):
    pairs = [differences(layer, lengths) for layer in LAYERS for lengths in LENGTHS]
    return {
        "outputs": max(pair["outputs"] for pair in pairs),
        "golden": from_golden(kit),
        "gradients": max(pair["gradients"] for pair in pairs),
        "encoding": from_exact_encoding(kit),
    }


# --- Agreement ---


def test_what_pytorch_gives_is_stored(kit, name, store):
    if name == "torch" and store:
        found = [arrays(kit, layer, lengths) for layer in LAYERS for lengths in LENGTHS]
        np.savez_compressed(
            PYTORCH, **{name: array for each in found for name, array in each.items()}
        )
        pytorch.cache_clear()
    parts = 2 + 3 + 4  # output and weights; gradients of the inputs, and of the projections
    biases = 4
    assert len(pytorch()) == len(LENGTHS) * (len(LAYERS) * parts + biases)
    small = {name for name, array in pytorch().items() if np.abs(array).max() < 0.01}
    # the bias of the keys adds the same number to all scores of a query, which softmax ignores
    assert small == {f"biased/{lengths}/b_k" for lengths in LENGTHS}


@each_length
@pytest.mark.parametrize("layer", LAYERS)
def test_outputs_weights_and_gradients_agree_with_pytorch(differences, layer, lengths):
    for kind, found in differences(layer, lengths).items():
        assert found < LIMITS[kind], kind


@pytest.mark.parametrize("case", list(golden_cases()), ids=lambda case: case[0])
def test_golden_layers(kit, case):
    _, inputs, output, weights = case
    result = kit.multi_head(*inputs)
    assert difference(result.output, output) < LIMITS["golden"]
    assert difference(result.weights, weights) < LIMITS["golden"]


@pytest.mark.parametrize("length, width", TABLES)
def test_the_encoding_agrees(kit, length, width):
    assert from_exact_encoding(kit, [(length, width)]) < LIMITS["encoding"]


def test_golden_encoding(kit):
    rows = [row for row in golden_rows() if row[0] < 5000]
    assert len(rows) >= 8
    for position, width, right in rows:
        X = np.zeros((1, position + 1, width), "float32")
        assert difference(kit.encode(X, position + 1)[0, -1], right) < 1e-7


@pytest.mark.parametrize("batch, length", [(1, 1), (3, 1), (2, 7)])
def test_a_shorter_sequence_gets_the_first_rows(kit, batch, length):
    X = random(batch, length, 6)
    assert difference(kit.encode(X, max_len=7), X + table(7, 6)[:length]) < LIMITS["encoding"]


# --- The functions ---


def softmax_rows(X, valid_lens):
    """Row by row over the valid keys alone, in float64."""
    A = np.zeros(X.shape)
    for b, i in np.ndindex(X.shape[:2]):
        lens = np.asarray(X.shape[2] if valid_lens is None else valid_lens)
        m = int(lens if lens.ndim == 0 else lens[b] if lens.ndim == 1 else lens[b, i])
        scores = X[b, i, :m].astype("float64")
        if m > 0:
            A[b, i, :m] = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
    return A


@each_length
def test_masked_softmax(kit, lengths):
    X = 3 * random(2, 4, 5)
    before = X.copy()
    A, right = kit.masked_softmax(X, LENGTHS[lengths]), softmax_rows(X, LENGTHS[lengths])
    assert difference(A, right) < 1e-6
    assert ((A == 0) == (right == 0)).all()  # what is hidden is 0, not almost
    assert (X == before).all()


def test_lengths_beyond_int64_are_not_negative(kit):
    """They are refused, or count as too long."""
    lengths = np.array([2**63 + 5, 2], "uint64")
    try:
        A = kit.numpy(kit.d2l.masked_softmax(kit.array(SCORES), lengths))
    except ValueError:
        return
    assert difference(A, softmax_rows(SCORES, [5, 2])) < 1e-6


@pytest.mark.parametrize("lengths", [None, [0, 2]], ids=str)
def test_without_keys_the_output_is_zero(kit, lengths):
    none = np.zeros((2, 0, 3), "float32")
    result = kit.attend(random(2, 4, 3), none, none, lengths)
    assert result.weights.shape == (2, 4, 0)
    assert result.output.shape == (2, 4, 3) and (result.output == 0).all()


@pytest.mark.parametrize("valid, hidden", [(-2e6, 5.0), (-1e30, 1e30), (2e6, 3e6)])
def test_no_score_beats_the_mask(kit, valid, hidden):
    X = np.array([[[valid, valid, hidden]]], "float32")
    assert kit.masked_softmax(X, [2]).tolist() == [[[0.5, 0.5, 0.0]]]


@each_length
def test_dot_product_attention(kit, lengths):
    Q, K, V = random(2, 4, 3, seed=1), random(2, 5, 3, seed=2), random(2, 5, 7, seed=3)
    result = kit.attend(Q, K, V, LENGTHS[lengths])
    scores = Q.astype("float64") @ K.transpose(0, 2, 1).astype("float64") / 3**0.5
    right = softmax_rows(scores, LENGTHS[lengths])
    assert difference(result.weights, right) < 1e-6
    assert difference(result.output, right @ V.astype("float64")) < 5e-6


def test_heads_are_cut_and_joined(kit):
    """Entry b·h + g is the column block g of sequence b."""
    X = random(2, 3, 6)
    blocks = [X[b, :, 2 * g : 2 * g + 2] for b in range(2) for g in range(3)]
    assert (kit.split(X, 3) == np.stack(blocks)).all()
    assert (kit.join(np.stack(blocks), 3) == X).all()


def test_dropout_in_training_only(kit):
    """Half of the sums are 0 and the rest doubled; the weights kept are those before dropout."""
    X = random(2, 50, 8)
    found, right = kit.encode_in_training(X, 0.5), kit.encode(X)
    kept = found != 0
    assert 0.4 < kept.mean() < 0.6 and np.allclose(found[kept], 2 * right[kept], atol=1e-6)
    keys = random(2, 50, 8, seed=1)
    found, right = kit.attend_in_training(X, keys, keys, 0.5), kit.attend(X, keys, keys, None)
    assert difference(found.weights, right.weights) < 1e-6
    assert 0.01 < difference(found.output, right.output) < np.inf


# --- Refusals ---


def call(kit, queries=(2, 4, 6), keys=(2, 5, 6), values=(2, 5, 6), num_heads=2, num_hiddens=6):
    widths = {"W_q": 6, "W_k": 6, "W_v": 6, "W_o": num_hiddens}
    weights = {W: random(width, num_hiddens) for W, width in widths.items()}
    kit.multi_head(
        weights, num_heads, *map(lambda shape: random(*shape), (queries, keys, values)), None
    )


def attend(kit, *shapes):
    kit.attend(*[random(*shape) for shape in shapes], None)


def encode(kit, X, num_hiddens=8, max_len=5):
    kit.encode(X, max_len, num_hiddens)


REFUSALS = {
    "fractional lengths": (
        lambda kit: kit.masked_softmax(SCORES, [1.5, 2.0]),
        TypeError,
        "valid_lens",
    ),
    "fractional lengths of a narrow type": (
        lambda kit: kit.d2l.masked_softmax(
            kit.array(SCORES), kit.narrow(np.array([1.5, 2.5], "float32"))
        ),
        TypeError,
        "float16",
    ),
    "boolean lengths": (
        lambda kit: kit.masked_softmax(SCORES, [True, False]),
        TypeError,
        "valid_lens",
    ),
    "negative lengths": (lambda kit: kit.masked_softmax(SCORES, [-1, 2]), ValueError, "-1"),
    "lengths of three sequences": (
        lambda kit: kit.masked_softmax(SCORES, [1, 2, 3]),
        ValueError,
        "3",
    ),
    "lengths of two queries": (
        lambda kit: kit.masked_softmax(SCORES, [[1, 2]] * 2),
        ValueError,
        "2, 2",
    ),
    "one length": (lambda kit: kit.masked_softmax(SCORES, 2), ValueError, "valid_lens"),
    "scores of one sequence": (
        lambda kit: kit.masked_softmax(SCORES[0], None),
        ValueError,
        "3 axes",
    ),
    "whole scores": (
        lambda kit: kit.masked_softmax(SCORES.astype("int32"), None),
        TypeError,
        "int32",
    ),
    "queries of one sequence": (lambda kit: call(kit, queries=(4, 6)), ValueError, "queries"),
    "another batch": (
        lambda kit: call(kit, keys=(1, 5, 6), values=(1, 5, 6)),
        ValueError,
        "2, 1 and 1",
    ),
    "a value too few": (lambda kit: call(kit, values=(2, 4, 6)), ValueError, "5 keys and 4 values"),
    "one value": (lambda kit: call(kit, values=(2, 1, 6)), ValueError, "5 keys and 1 values"),
    "another width": (
        lambda kit: attend(kit, (2, 4, 6), (2, 5, 3), (2, 5, 3)),
        ValueError,
        "width 3",
    ),
    "heads that do not fit": (lambda kit: call(kit, num_heads=4), ValueError, "num_heads=4"),
    "no head": (lambda kit: call(kit, num_heads=0), ValueError, "num_heads=0"),
    "heads of no whole width": (lambda kit: kit.split(random(2, 3, 7), 2), ValueError, "width 7"),
    "half a sequence of heads": (lambda kit: kit.join(random(3, 4, 5), 2), ValueError, "3 batch"),
    "too many positions": (lambda kit: encode(kit, random(2, 6, 8)), ValueError, "max_len=5"),
    "tokens of another width": (lambda kit: encode(kit, random(2, 5, 7)), ValueError, "8"),
    "tokens of width 1": (lambda kit: encode(kit, random(2, 5, 1)), ValueError, "8"),
    "tokens without batch": (lambda kit: encode(kit, random(5, 8)), ValueError, "8"),
    "whole tokens": (lambda kit: encode(kit, np.ones((2, 5, 8), "int32")), TypeError, "int32"),
    "a dropout rate above 1": (
        lambda kit: kit.encode_in_training(random(2, 3, 4), 1.5),
        ValueError,
        "between 0 and 1",
    ),
    "a negative dropout rate": (
        lambda kit: kit.attend_in_training(*[random(2, 3, 4)] * 3, -0.5),
        ValueError,
        "between 0 and 1",
    ),
    "an empty table": (lambda kit: kit.d2l.position_table(0, 4), ValueError, "0 and 4"),
}


@pytest.mark.parametrize("refused, error, words", REFUSALS.values(), ids=REFUSALS)
def test_what_does_not_fit_is_refused(kit, refused, error, words):
    with pytest.raises(error, match=re.escape(words)):
        refused(kit)


# --- Wrong versions ---


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_version_is_caught(kit, mistake, monkeypatch):
    """By the figure that is to catch it, and by a factor of ten."""
    replace, catcher = MISTAKES[mistake]
    for attribute, wrong in replace(kit).items():
        assert hasattr(kit.d2l, attribute)
        monkeypatch.setattr(kit.d2l, attribute, wrong)
    if catcher == "encoding":
        found = from_exact_encoding(kit)
    else:
        pairs = [from_pytorch(kit, "cross", name) for name in ("none", "1-D", "2-D with 0")]
        found = max(pair[catcher] for pair in pairs)
    assert 10 * LIMITS[catcher] < found < np.inf


def test_weights_of_almost_0_are_caught(kit, monkeypatch):
    right = kit.d2l.masked_softmax
    monkeypatch.setattr(kit.d2l, "masked_softmax", lambda X, lens: right(X, lens) + 1e-20)
    with pytest.raises(AssertionError):
        test_masked_softmax(kit, "1-D")


def test_weights_in_the_wrong_layout_are_caught(kit):
    weights, num_heads, inputs = layer_case("self")
    turned = {W: np.ascontiguousarray(X.T) for W, X in weights.items()}
    result = kit.multi_head(turned, num_heads, *inputs, None)
    assert difference(result.output, pytorch()["self/none/output"]) > 0.1


# --- The table on the page ---


def test_differences():
    assert difference([1, 2], [1, 2.5]) == 0.5 and difference([-1.0], [1.0]) == 2
    assert np.inf == difference([1, np.nan], [1, 1]) == difference([1, np.inf], [1, 1])
    assert np.inf == difference([[1]], [1]) == difference([1, 1], [1])
    assert [round_up(number) for number in (3.1e-7, 3e-7, 9.1e-7, 0.0)] == [4e-7, 3e-7, 1e-6, 0]


def round_up(number):
    """To one digit: 3.1e-7 becomes 4e-07."""
    digit, _, exponent = f"{number:.6e}".partition("e")
    return float(f"{int(np.ceil(float(digit)))}e{exponent}")


def test_the_page_shows_what_this_run_finds(kit, name, differences, store):
    """The same versions, and differences of the same size: other processors round otherwise."""
    found = figures(kit, differences)
    if name == "torch":  # which need not be compared with itself
        found = {kind: found[kind] for kind in ("golden", "encoding")}
    if store:
        rows = json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.is_file() else {}
        rows[name] = {
            "versions": kit.versions(),
            "python": platform.python_version().rpartition(".")[0],
            "differences": {kind: round_up(number) for kind, number in found.items()},
        }
        text = json.dumps(dict(sorted(rows.items())), indent=1) + "\n"
        MEASURED.write_text(text, encoding="utf-8", newline="\n")
    row = json.loads(MEASURED.read_text(encoding="utf-8"))[name]
    assert row["differences"].keys() == found.keys()
    for kind, number in found.items():
        shown = row["differences"][kind]
        assert number < LIMITS[kind] and shown <= LIMITS[kind]
        assert number <= 10 * shown and shown <= 10 * max(number, 1e-7), kind
    if name != "torch":  # the book supports several versions of PyTorch and Python
        assert row["versions"] == kit.versions()
        assert row["python"] == platform.python_version().rpartition(".")[0]
