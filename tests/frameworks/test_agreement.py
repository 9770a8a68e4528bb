"""One framework beside PyTorch and beside values from outside this project.

`python -m pytest --framework jax` in the environment of JAX; without the option, PyTorch itself.
With `--store` a run writes what it finds instead of comparing: PyTorch the arrays that all must
agree with, each framework its figures on the page "The same layers in five frameworks".
"""

import json
import platform
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
        X = random(2, length, width)
        right = X.astype("float64") + table(length, width)
        found.append(difference(kit.encode(X, max_len=length), right))
    return max(found)


def figures(kit, layers=tuple(LAYERS), lengths=tuple(LENGTHS)):
    pairs = [from_pytorch(kit, layer, length) for layer in layers for length in lengths]
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
def test_outputs_weights_and_gradients_agree_with_pytorch(kit, layer, lengths):
    for kind, found in from_pytorch(kit, layer, lengths).items():
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


def test_weights_in_the_wrong_layout_are_caught(kit):
    weights, num_heads, inputs = layer_case("self")
    turned = {W: np.ascontiguousarray(X.T) for W, X in weights.items()}
    result = kit.multi_head(turned, num_heads, *inputs, None)
    assert difference(result.output, pytorch()["self/none/output"]) > 0.1


# --- The table on the page ---


def round_up(number):
    """To one digit: 3.1e-7 becomes 4e-07."""
    digit, _, exponent = f"{number:.6e}".partition("e")
    return float(f"{int(np.ceil(float(digit)))}e{exponent}")


def test_the_page_shows_what_this_run_finds(kit, name, store):
    """The same versions, and differences of the same size: other processors round otherwise."""
    found = figures(kit)
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
    assert row["differences"].keys() == found.keys() == LIMITS.keys()
    for kind, number in found.items():
        shown = row["differences"][kind]
        assert number < LIMITS[kind] and shown <= LIMITS[kind]
        assert number <= 10 * shown and shown <= 10 * max(number, 1e-7), kind
    if name != "torch":  # the book supports several versions of PyTorch and Python
        assert row["versions"] == kit.versions()
        assert row["python"] == platform.python_version().rpartition(".")[0]
