"""Wrong versions of the five modules: {mistake: (names and what replaces them, what catches it)}.

They use only what every framework has, so that one list serves all.
"""

import numpy as np
from cases import table


def softmax(change):
    """Replace `masked_softmax` by change(kit, right, X, valid_lens)."""

    def replace(kit):
        right = kit.d2l.masked_softmax
        return {"masked_softmax": lambda X, valid_lens: change(kit, right, X, valid_lens)}

    return replace


def one_key_too_many(kit, right, X, valid_lens):
    return right(X, None if valid_lens is None else valid_lens + 1)


def uniform_empty_rows(kit, right, X, valid_lens):
    A = right(X, valid_lens)  # (B, n, m)
    m = A.shape[2]
    sums = A @ kit.array(np.ones((m, m), "float32"))  # each row's sum, m times
    return A + (1 - sums) / m


def over_the_queries(kit, right, X, valid_lens):
    return right(X, valid_lens) if valid_lens is not None else kit.swap(right(kit.swap(X), None))


def bare_reshape(kit):
    def transpose_qkv(X, h):
        B, n, d = X.shape
        return kit.reshape(X, B * h, n, d // h)

    return {"transpose_qkv": transpose_qkv}


def heads_not_joined(kit):
    def transpose_output(X, h):
        Bh, n, c = X.shape
        return kit.reshape(X, Bh // h, n, h * c)

    return {"transpose_output": transpose_output}


def heads_outermost(kit):
    """Head by head instead of sequence by sequence, while the lengths stay as they are."""
    split, join = kit.d2l.transpose_qkv, kit.d2l.transpose_output

    def order(rows, h):
        return np.arange(rows).reshape(-1, h).T.ravel()

    def transpose_qkv(X, h):
        return kit.take(split(X, h), order(X.shape[0] * h, h))

    def transpose_output(X, h):
        return join(kit.take(X, np.argsort(order(X.shape[0], h))), h)

    return {"transpose_qkv": transpose_qkv, "transpose_output": transpose_output}


def half_a_gradient(kit):
    join = kit.d2l.transpose_output
    return {"transpose_output": lambda X, h: join(kit.stop(X) / 2 + X / 2, h)}


def encoding(change):
    """Replace `position_table` by what `change` makes of the length and width."""

    def replace(kit):
        return {"position_table": lambda length, width: kit.as_table(change(length, width))}

    return replace


def sine_and_cosine_exchanged(length, width):
    P = table(length, width + width % 2)
    return np.stack([P[:, 1::2], P[:, 0::2]], axis=2).reshape(length, -1)[:, :width]


def in_single_precision(length, width):
    exponents = np.arange(0, width, 2, dtype="float32") / np.float32(width)
    angles = np.arange(length, dtype="float32")[:, None] / np.float32(10000) ** exponents
    P = np.stack([np.sin(angles), np.cos(angles)], axis=2)
    return P.reshape(length, -1)[:, :width].astype("float64")


MISTAKES = {
    "no mask": (softmax(lambda kit, right, X, valid_lens: right(X, None)), "outputs"),
    "one key too many": (softmax(one_key_too_many), "outputs"),
    "uniform empty rows": (softmax(uniform_empty_rows), "outputs"),
    "softmax over the queries": (softmax(over_the_queries), "outputs"),
    "another scale": (
        softmax(lambda kit, right, X, valid_lens: right(X * 2, valid_lens)),
        "outputs",
    ),
    "bare reshape": (bare_reshape, "outputs"),
    "heads not joined": (heads_not_joined, "outputs"),
    "heads outermost": (heads_outermost, "outputs"),
    "half a gradient": (half_a_gradient, "gradients"),
    "sine and cosine exchanged": (encoding(sine_and_cosine_exchanged), "encoding"),
    "one position late": (encoding(lambda n, d: table(n + 1, d)[1:]), "encoding"),
    "angles in single precision": (encoding(in_single_precision), "encoding"),
}
