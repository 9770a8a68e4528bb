"""The weights and inputs that all frameworks are given, and where right values are stored."""

import json
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
PYTORCH = Path(__file__).with_name("pytorch.npz")  # what PyTorch gave: {"self/1-D/output": …}
GOLDEN = ROOT / "tests" / "data" / "multi_head_attention.npz"  # from outside this project
ROWS = ROOT / "tests" / "data" / "positional_encoding.json"
MEASURED = ROOT / "chapters" / "data" / "frameworks.json"  # what the page shows

# 2 sequences of 4 queries; the lengths are of 4 keys or more
LENGTHS = {
    "none": None,
    "1-D": [3, 2],
    "2-D": [[1, 2, 3, 4], [4, 1, 3, 2]],
    "1-D with 0": [0, 2],
    "2-D with 0": [[0, 2, 3, 4], [4, 0, 2, 0]],
    "too long": [9, 2],
}
# widths of queries, keys, values and output, number of keys, heads, biases or not
LAYERS = {
    "self": ((20, 20, 20, 20), 4, 5, False),
    "cross": ((6, 9, 7, 15), 6, 3, False),  # heads of an odd width
    "biased": ((4, 4, 4, 6), 5, 2, True),
}
TABLES = [(60, 1), (60, 2), (60, 7), (1000, 32), (1000, 33), (5000, 512)]  # length, width


def layer_case(name):
    """Weights x @ W of shape (in, out), number of heads, and queries, keys, values in float32.

    The stream of RandomState never changes, so every version of NumPy makes the same numbers.
    """
    (q, k, v, d), num_keys, num_heads, biased = LAYERS[name]
    random = np.random.RandomState(sorted(LAYERS).index(name))
    inputs = {"W_q": q, "W_k": k, "W_v": v, "W_o": d}
    weights = {W: random.standard_normal((n, d)) / n**0.5 for W, n in inputs.items()}
    if biased:
        weights |= {f"b{W[1:]}": random.standard_normal(d) for W in inputs}
    weights = {W: X.astype("float32") for W, X in weights.items()}
    shapes = [(2, 4, q), (2, num_keys, k), (2, num_keys, v)]
    arrays = [random.standard_normal(shape).astype("float32") for shape in shapes]
    return weights, num_heads, (arrays[:1] * 3 if name == "self" else arrays)


def flat(layer, lengths, found):
    """What a kit's `multi_head` gives, under the names of the stored arrays."""
    parts = {"output": found.output, "weights": found.weights, **found.gradients}
    return {f"{layer}/{lengths}/{part}": np.asarray(array) for part, array in parts.items()}


def golden_cases():
    """(weights, heads, queries, keys, values, lengths), output, weights (B·h, n, m)."""
    with np.load(GOLDEN) as file:
        data = {name: file[name] for name in file.files}
    weights = {W: data[W].T.astype("float32") for W in ("W_q", "W_k", "W_v", "W_o")}
    X, Y = (data[name].astype("float32") for name in "XY")
    for name in ("self_none", "self_1d", "self_zero", "self_2d", "cross_1d"):
        keys = Y if name.startswith("cross") else X
        A = data[f"{name}_weights"]
        inputs = (weights, 3, X, keys, keys, data.get(f"{name}_valid_lens"))
        yield name, inputs, data[f"{name}_output"], A.reshape(-1, *A.shape[2:])


def golden_rows():
    """(position, width, row) of the encoding, from outside this project."""
    for key, row in json.loads(ROWS.read_text(encoding="utf-8"))["rows"].items():
        yield *map(int, key.split(",")), np.array(row)


def table(length, width):
    """The encoding in float64, entry by entry pair, without the package."""
    P = np.zeros((length, width))
    for column in range(width):
        frequency = 10000.0 ** (-2 * (column // 2) / width)
        P[:, column] = (np.cos if column % 2 else np.sin)(np.arange(length) * frequency)
    return P
