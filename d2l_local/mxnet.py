"""Functions of the chapter on self-attention and positional encoding, for MXNet."""

# Generated from the notebooks' #@save cells by `python -m tools.save`: edit the notebooks, not this file.
# ruff: noqa: E402, I001

__all__ = [
    "DotProductAttention",
    "MultiHeadAttention",
    "PositionalEncoding",
    "check_dropout",
    "check_inputs",
    "check_lengths",
    "length_mask",
    "masked_softmax",
    "position_table",
    "transpose_output",
    "transpose_qkv",
]


# %% chapters/en/frameworks/mxnet.ipynb#shim
import numpy

numpy.bool = numpy.bool_


# %% chapters/en/frameworks/mxnet.ipynb#imports
import math

from mxnet import np, npx
from mxnet.gluon import nn

npx.set_np()


# %% chapters/en/frameworks/mxnet.ipynb#lengths
def check_lengths(valid_lens, batch, num_queries):
    """Valid lengths as a NumPy array of shape (batch,) or (batch, num_queries).

    Takes an array of MXNet or NumPy, or a list. Whole numbers of a floating-point type count as
    integers, since MXNet's `np.array([3, 2])` holds float32. Raises TypeError for lengths that
    are not whole numbers and ValueError for another shape or a negative length (MXNet, "Masked
    softmax").
    """
    try:
        is_mxnet = isinstance(valid_lens, np.ndarray)
        lengths = valid_lens.asnumpy() if is_mxnet else numpy.asarray(valid_lens)
    except (TypeError, ValueError):
        raise TypeError(f"valid_lens must be an array or a list of integers, or of equally long "
                        f"lists of integers, not {valid_lens!r}") from None
    whole = lengths.dtype.kind == "f" and all(map(float.is_integer, lengths.ravel().tolist()))
    if lengths.dtype.kind not in "iu" and not whole:
        raise TypeError(f"valid_lens must hold whole numbers, but holds {lengths.dtype} "
                        f"{lengths.tolist()}")
    if lengths.shape not in ((batch,), (batch, num_queries)):
        raise ValueError(f"valid_lens has shape {lengths.shape}, but ({batch},) or ({batch}, "
                         f"{num_queries}) goes with {batch} sequences of {num_queries} queries")
    if (lengths < 0).any():
        raise ValueError(f"valid_lens must be 0 or more, but holds {lengths.min()}")
    return lengths


# %% chapters/en/frameworks/mxnet.ipynb#softmax
def length_mask(valid_lens, batch, num_queries, num_keys):
    """True where a key is valid, a NumPy array (batch, num_queries or 1, num_keys).

    `valid_lens` is what `check_lengths` takes (MXNet, "Masked softmax").
    """
    valid_lens = check_lengths(valid_lens, batch, num_queries)
    valid_lens = valid_lens[:, None] if valid_lens.ndim == 1 else valid_lens
    return numpy.arange(num_keys) < valid_lens[:, :, None]


def masked_softmax(X, valid_lens):
    """Softmax of the scores `X` (B, n, m) over the valid keys; the other weights are 0.

    `valid_lens` is None, (B,) or (B, n), an array or a list; a length beyond m counts as m. A
    row without a valid key is all 0, and the type of `X` is kept. Raises ValueError or
    TypeError for other shapes or lengths (MXNet, "Masked softmax").
    """
    if X.ndim != 3:
        raise ValueError(f"X must have 3 axes (batch, query, key), but has {X.shape}")
    if X.dtype not in (numpy.float16, numpy.float32, numpy.float64):
        raise TypeError(f"X must hold floating-point scores, but holds {numpy.dtype(X.dtype)}")
    if valid_lens is None:
        return npx.softmax(X)
    mask = length_mask(valid_lens, *X.shape)                      # (B, n or 1, m)
    if X.size == 0:                                               # on which np.where crashes
        return X
    empty = ~mask.any(-1, keepdims=True)                          # (B, n or 1, 1)
    mask, empty = (np.array(array, dtype=bool, ctx=X.ctx) for array in (mask, empty))
    # arrays: with a number, np.where passes the gradient to the wrong entries
    zero, lowest = (np.full((1, 1, 1), x, dtype=X.dtype, ctx=X.ctx) for x in (0, -math.inf))
    scores = np.where(empty, zero, np.where(mask, X, lowest))
    return np.where(mask, npx.softmax(scores), zero)


# %% chapters/en/frameworks/mxnet.ipynb#attention
def check_inputs(queries, keys, values):
    """Raise ValueError unless queries, keys and values (B, n, d) can go through attention.

    The three batch sizes must be equal, and there must be one value for each key (MXNet, "The
    attention layer").
    """
    for name, X in {"queries": queries, "keys": keys, "values": values}.items():
        if X.ndim != 3:
            raise ValueError(f"{name} must have 3 axes (batch, length, width), but have shape "
                             f"{X.shape}")
    if not queries.shape[0] == keys.shape[0] == values.shape[0]:
        raise ValueError(f"queries, keys and values must be batches of one size, but hold "
                         f"{queries.shape[0]}, {keys.shape[0]} and {values.shape[0]} sequences")
    if keys.shape[1] != values.shape[1]:
        raise ValueError(f"each key needs one value, but there are {keys.shape[1]} keys and "
                         f"{values.shape[1]} values")


def check_dropout(rate):
    """Raise ValueError unless `rate` can be a rate of dropout: from 0 to below 1.

    With a rate of 1 MXNet divides by 0 (MXNet, "The attention layer").
    """
    if not 0 <= rate < 1:
        raise ValueError(f"dropout must be between 0 and 1 (1 excluded), but is {rate}")


class DotProductAttention(nn.Block):
    """Scaled dot-product attention, with dropout on the attention weights.

    Queries (B, n, d), keys (B, m, d), values (B, m, v), `valid_lens` as in `masked_softmax`;
    returns (B, n, v). `attention_weights` (B, n, m) are those of the last call before dropout,
    without their history; None before the first call. Raises ValueError for shapes that do not
    fit (MXNet, "The attention layer").
    """

    def __init__(self, dropout, **kwargs):
        super().__init__(**kwargs)
        check_dropout(dropout)
        self.dropout = nn.Dropout(dropout)
        self.attention_weights = None

    def forward(self, queries, keys, values, valid_lens=None):
        check_inputs(queries, keys, values)
        d = queries.shape[-1]
        if d != keys.shape[-1]:
            raise ValueError(f"queries of width {d} cannot be compared with keys of width "
                             f"{keys.shape[-1]}")
        scores = npx.batch_dot(queries / math.sqrt(d), keys, transpose_b=True)  # (B, n, m)
        weights = masked_softmax(scores, valid_lens)
        self.attention_weights = weights.detach()
        return npx.batch_dot(self.dropout(weights), values)


# %% chapters/en/frameworks/mxnet.ipynb#mha
def transpose_qkv(X, num_heads):
    """Cut the width into heads and make each a batch entry: (B, n, d) -> (B·h, n, d/h).

    Entry b·h + g holds head g of sequence b, the column block g of `X`. Raises ValueError when
    the width is not a multiple of `num_heads` (MXNet, "Several heads").
    """
    if X.ndim != 3:
        raise ValueError(f"X must have 3 axes (batch, length, width), but has {X.shape}")
    B, n, d = X.shape
    if num_heads < 1 or d % num_heads:
        raise ValueError(f"width {d} cannot be cut into {num_heads} heads")
    X = X.reshape(B, n, num_heads, d // num_heads)                # (B, n, h, c)
    return X.transpose(0, 2, 1, 3).reshape(B * num_heads, n, d // num_heads)


def transpose_output(X, num_heads):
    """Undo `transpose_qkv`: (B·h, n, c) -> (B, n, h·c).

    Raises ValueError when the batch is not a multiple of `num_heads` (MXNet, "Several heads").
    """
    if X.ndim != 3:
        raise ValueError(f"X must have 3 axes (batch, length, width), but has {X.shape}")
    Bh, n, c = X.shape
    if num_heads < 1 or Bh % num_heads:
        raise ValueError(f"{Bh} batch entries cannot be joined into {num_heads} heads each")
    X = X.reshape(Bh // num_heads, num_heads, n, c)               # (B, h, n, c)
    return X.transpose(0, 2, 1, 3).reshape(Bh // num_heads, n, num_heads * c)


class MultiHeadAttention(nn.Block):
    """Multi-head attention: project, cut into heads, attend, join, project.

    Called with queries (B, n, ·), keys and values (B, m, ·) and lengths as in
    `masked_softmax`, it returns (B, n, num_hiddens). The weights (B·h, n, m) of the last call
    are at `attention.attention_weights`, heads in the order of `transpose_qkv`. Raises
    ValueError when `num_hiddens` is not a multiple of `num_heads`, or for shapes that do not
    fit (Vaswani et al., 2017, section 3.2; MXNet, "Several heads").
    """

    def __init__(self, num_hiddens, num_heads, dropout, use_bias=False, **kwargs):
        super().__init__(**kwargs)
        if num_heads < 1 or num_hiddens < 1 or num_hiddens % num_heads:
            raise ValueError(f"num_hiddens={num_hiddens} must be a multiple of "
                             f"num_heads={num_heads}, and both at least 1")
        self.num_heads = num_heads
        self.attention = DotProductAttention(dropout)
        self.W_q = nn.Dense(num_hiddens, use_bias=use_bias, flatten=False)
        self.W_k = nn.Dense(num_hiddens, use_bias=use_bias, flatten=False)
        self.W_v = nn.Dense(num_hiddens, use_bias=use_bias, flatten=False)
        self.W_o = nn.Dense(num_hiddens, use_bias=use_bias, flatten=False)

    def forward(self, queries, keys, values, valid_lens=None):
        check_inputs(queries, keys, values)
        for name, X, W in (("queries", queries, self.W_q), ("keys", keys, self.W_k),
                           ("values", values, self.W_v)):
            if 0 < W.weight.shape[1] != X.shape[-1]:              # -1: the first call decides
                raise ValueError(f"{name} have width {X.shape[-1]}, but this layer was made for "
                                 f"width {W.weight.shape[1]}")
        Q = transpose_qkv(self.W_q(queries), self.num_heads)      # (B·h, n, c)
        K = transpose_qkv(self.W_k(keys), self.num_heads)         # (B·h, m, c)
        V = transpose_qkv(self.W_v(values), self.num_heads)       # (B·h, m, c)
        if valid_lens is not None:
            valid_lens = check_lengths(valid_lens, *queries.shape[:2])
            # each length h times in a row, as the heads of one sequence follow each other
            valid_lens = valid_lens.repeat(self.num_heads, axis=0)
        Y = self.attention(Q, K, V, valid_lens)                   # (B·h, n, c)
        return self.W_o(transpose_output(Y, self.num_heads))      # (B, n, d)


# %% chapters/en/frameworks/mxnet.ipynb#position
def position_table(num_positions, num_hiddens):
    """The sinusoidal encoding of positions 0, 1, … in float64: (num_positions, num_hiddens).

    Column 2j is sin(i·ω_j) and column 2j+1 is cos(i·ω_j) with ω_j = 10000^(-2j/num_hiddens).
    Raises ValueError for a size below 1 (Vaswani et al., 2017, section 3.5; MXNet, "Positional
    encoding").
    """
    if num_positions < 1 or num_hiddens < 1:
        raise ValueError(f"a table needs at least 1 position and 1 column, not {num_positions} "
                         f"and {num_hiddens}")
    i = numpy.arange(num_positions)[:, None]                      # (n, 1)
    angles = i * 10000.0 ** (-numpy.arange(0, num_hiddens, 2) / num_hiddens)  # (n, pairs)
    pairs = numpy.stack([numpy.sin(angles), numpy.cos(angles)], axis=-1)      # (n, pairs, 2)
    return pairs.reshape(num_positions, -1)[:, :num_hiddens]


class PositionalEncoding(nn.Block):
    """Add the encoding of each position to its token, then dropout.

    Called with X (B, n, num_hiddens), n up to `max_len`, it keeps the type of X. `P`
    (1, max_len, num_hiddens) holds the table. Raises ValueError for another shape and
    TypeError for tokens that are not floating-point (MXNet, "Positional encoding").
    """

    def __init__(self, num_hiddens, dropout, max_len=1000):
        super().__init__()
        check_dropout(dropout)
        self.dropout = nn.Dropout(dropout)
        self.P = np.array(position_table(max_len, num_hiddens)[None], dtype="float32")

    def forward(self, X):
        max_len, num_hiddens = self.P.shape[1:]
        if X.ndim != 3 or X.shape[2] != num_hiddens:
            raise ValueError(f"X must be (batch, length, {num_hiddens}), but has shape {X.shape}")
        if X.shape[1] > max_len:
            raise ValueError(f"X has {X.shape[1]} positions, but this encoding has "
                             f"max_len={max_len}")
        if X.dtype not in (numpy.float16, numpy.float32, numpy.float64):
            raise TypeError(f"X must hold floating-point tokens, but holds {numpy.dtype(X.dtype)}")
        return self.dropout(X + self.P[:, :X.shape[1]].astype(X.dtype).as_in_ctx(X.ctx))
