"""Functions of the chapter on self-attention and positional encoding, for Paddle."""

# Generated from the notebooks' #@save cells by `python -m tools.save`: edit the notebooks, not this file.
# ruff: noqa: E402, I001

__all__ = [
    "DotProductAttention",
    "MultiHeadAttention",
    "PositionalEncoding",
    "check_inputs",
    "check_lengths",
    "length_mask",
    "masked_softmax",
    "position_table",
    "transpose_output",
    "transpose_qkv",
]


# %% chapters/en/frameworks/paddle.ipynb#imports
import math

import numpy as np
import paddle
from paddle import nn


# %% chapters/en/frameworks/paddle.ipynb#lengths
def check_lengths(valid_lens, batch, num_queries):
    """Valid lengths as an int64 tensor of shape (batch,) or (batch, num_queries).

    Takes a tensor, an array or a list. Raises TypeError for lengths that are not integers and
    ValueError for another shape or a negative length (Paddle, "Masked softmax").
    """
    try:
        lengths = np.asarray(valid_lens)
    except (TypeError, ValueError):
        raise TypeError(f"valid_lens must be a tensor or a list of integers, or of equally long "
                        f"lists of integers, not {valid_lens!r}") from None
    # to NumPy, bfloat16 is uint16
    is_float = paddle.is_tensor(valid_lens) and valid_lens.is_floating_point()
    if is_float or not np.issubdtype(lengths.dtype, np.integer):
        raise TypeError(f"valid_lens must hold integers, but holds "
                        f"{valid_lens.dtype if is_float else lengths.dtype}")
    lengths = lengths.astype("int64")
    if lengths.shape not in ((batch,), (batch, num_queries)):
        raise ValueError(f"valid_lens has shape {lengths.shape}, but ({batch},) or ({batch}, "
                         f"{num_queries}) goes with {batch} sequences of {num_queries} queries")
    if (lengths < 0).any():
        raise ValueError(f"valid_lens must be 0 or more, but holds {lengths.min()}")
    return paddle.to_tensor(lengths)


# %% chapters/en/frameworks/paddle.ipynb#softmax
def length_mask(valid_lens, batch, num_queries, num_keys):
    """True where a key is valid, (batch, num_queries or 1, num_keys) (Paddle, "Masked softmax")."""
    valid_lens = check_lengths(valid_lens, batch, num_queries)
    valid_lens = valid_lens.unsqueeze(1) if valid_lens.ndim == 1 else valid_lens
    return paddle.arange(num_keys) < valid_lens.unsqueeze(-1)


def masked_softmax(X, valid_lens):
    """Softmax of the scores `X` (B, n, m) over the valid keys; the other weights are 0.

    `valid_lens` is None, (B,) or (B, n), a tensor or a list; a length beyond m counts as m. A
    row without a valid key is all 0, and the type of `X` is kept. `X` is not changed. Raises
    ValueError or TypeError for other shapes or lengths (Paddle, "Masked softmax").
    """
    if X.ndim != 3:
        raise ValueError(f"X must have 3 axes (batch, query, key), but has {list(X.shape)}")
    if not X.is_floating_point():
        raise TypeError(f"X must hold floating-point scores, but holds {X.dtype}")
    if valid_lens is None:
        return nn.functional.softmax(X)
    mask = length_mask(valid_lens, *X.shape)                      # (B, n or 1, m)
    empty = ~mask.any(-1, keepdim=True)                           # (B, n or 1, 1)
    scores = X.masked_fill(~mask, -math.inf).masked_fill(empty, 0.0)
    return nn.functional.softmax(scores).masked_fill(~mask, 0.0)


# %% chapters/en/frameworks/paddle.ipynb#attention
def check_inputs(queries, keys, values):
    """Raise ValueError unless queries, keys and values (B, n, d) can go through attention.

    The three batch sizes must be equal, and there must be one value for each key (Paddle, "The
    attention layer").
    """
    for name, X in {"queries": queries, "keys": keys, "values": values}.items():
        if X.ndim != 3:
            raise ValueError(f"{name} must have 3 axes (batch, length, width), but have shape "
                             f"{list(X.shape)}")
    if not queries.shape[0] == keys.shape[0] == values.shape[0]:
        raise ValueError(f"queries, keys and values must be batches of one size, but hold "
                         f"{queries.shape[0]}, {keys.shape[0]} and {values.shape[0]} sequences")
    if keys.shape[1] != values.shape[1]:
        raise ValueError(f"each key needs one value, but there are {keys.shape[1]} keys and "
                         f"{values.shape[1]} values")


class DotProductAttention(nn.Layer):
    """Scaled dot-product attention, with dropout on the attention weights.

    Queries (B, n, d), keys (B, m, d), values (B, m, v), `valid_lens` as in `masked_softmax`;
    returns (B, n, v). `attention_weights` (B, n, m) are those of the last call before dropout,
    without their history; None before the first call. Raises ValueError for shapes that do not
    fit (Paddle, "The attention layer").
    """

    def __init__(self, dropout):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.attention_weights = None

    def forward(self, queries, keys, values, valid_lens=None):
        check_inputs(queries, keys, values)
        d = queries.shape[-1]
        if d != keys.shape[-1]:
            raise ValueError(f"queries of width {d} cannot be compared with keys of width "
                             f"{keys.shape[-1]}")
        scores = queries / math.sqrt(d) @ keys.transpose((0, 2, 1))       # (B, n, m)
        weights = masked_softmax(scores, valid_lens)
        self.attention_weights = weights.detach()
        return self.dropout(weights) @ values


# %% chapters/en/frameworks/paddle.ipynb#mha
def transpose_qkv(X, num_heads):
    """Cut the width into heads and make each a batch entry: (B, n, d) -> (B·h, n, d/h).

    Entry b·h + g holds head g of sequence b, the column block g of `X`. Raises ValueError when
    the width is not a multiple of `num_heads` (Paddle, "Several heads").
    """
    if X.ndim != 3:
        raise ValueError(f"X must have 3 axes (batch, length, width), but has {list(X.shape)}")
    B, n, d = X.shape
    if num_heads < 1 or d % num_heads:
        raise ValueError(f"width {d} cannot be cut into {num_heads} heads")
    X = X.reshape((B, n, num_heads, d // num_heads))              # (B, n, h, c)
    return X.transpose((0, 2, 1, 3)).reshape((B * num_heads, n, d // num_heads))


def transpose_output(X, num_heads):
    """Undo `transpose_qkv`: (B·h, n, c) -> (B, n, h·c).

    Raises ValueError when the batch is not a multiple of `num_heads` (Paddle, "Several heads").
    """
    if X.ndim != 3:
        raise ValueError(f"X must have 3 axes (batch, length, width), but has {list(X.shape)}")
    Bh, n, c = X.shape
    if num_heads < 1 or Bh % num_heads:
        raise ValueError(f"{Bh} batch entries cannot be joined into {num_heads} heads each")
    X = X.reshape((Bh // num_heads, num_heads, n, c))             # (B, h, n, c)
    return X.transpose((0, 2, 1, 3)).reshape((Bh // num_heads, n, num_heads * c))


class MultiHeadAttention(nn.Layer):
    """Multi-head attention: project, cut into heads, attend, join, project.

    Called with queries (B, n, query_size), keys (B, m, key_size), values (B, m, value_size)
    and lengths as in `masked_softmax`, it returns (B, n, num_hiddens). The weights (B·h, n, m)
    of the last call are at `attention.attention_weights`, heads in the order of
    `transpose_qkv`. Raises ValueError when `num_hiddens` is not a multiple of `num_heads`, or
    for shapes that do not fit (Vaswani et al., 2017, section 3.2; Paddle, "Several heads").
    """

    def __init__(self, key_size, query_size, value_size, num_hiddens, num_heads, dropout,
                 bias=False):
        super().__init__()
        if num_heads < 1 or num_hiddens < 1 or num_hiddens % num_heads:
            raise ValueError(f"num_hiddens={num_hiddens} must be a multiple of "
                             f"num_heads={num_heads}, and both at least 1")
        self.num_heads = num_heads
        self.attention = DotProductAttention(dropout)
        bias = None if bias else False                            # None: Paddle's default bias
        self.W_q = nn.Linear(query_size, num_hiddens, bias_attr=bias)
        self.W_k = nn.Linear(key_size, num_hiddens, bias_attr=bias)
        self.W_v = nn.Linear(value_size, num_hiddens, bias_attr=bias)
        self.W_o = nn.Linear(num_hiddens, num_hiddens, bias_attr=bias)

    def forward(self, queries, keys, values, valid_lens=None):
        check_inputs(queries, keys, values)
        for name, X, W in (("queries", queries, self.W_q), ("keys", keys, self.W_k),
                           ("values", values, self.W_v)):
            if X.shape[-1] != W.weight.shape[0]:
                raise ValueError(f"{name} have width {X.shape[-1]}, but this layer was made for "
                                 f"width {W.weight.shape[0]}")
        Q = transpose_qkv(self.W_q(queries), self.num_heads)      # (B·h, n, c)
        K = transpose_qkv(self.W_k(keys), self.num_heads)         # (B·h, m, c)
        V = transpose_qkv(self.W_v(values), self.num_heads)       # (B·h, m, c)
        if valid_lens is not None:
            valid_lens = check_lengths(valid_lens, *queries.shape[:2])
            # each length h times in a row, as the heads of one sequence follow each other
            valid_lens = valid_lens.repeat_interleave(self.num_heads, axis=0)
        Y = self.attention(Q, K, V, valid_lens)                   # (B·h, n, c)
        return self.W_o(transpose_output(Y, self.num_heads))      # (B, n, d)


# %% chapters/en/frameworks/paddle.ipynb#position
def position_table(num_positions, num_hiddens):
    """The sinusoidal encoding of positions 0, 1, … in float64: (num_positions, num_hiddens).

    Column 2j is sin(i·ω_j) and column 2j+1 is cos(i·ω_j) with ω_j = 10000^(-2j/num_hiddens).
    Raises ValueError for a size below 1 (Vaswani et al., 2017, section 3.5; Paddle, "Positional
    encoding").
    """
    if num_positions < 1 or num_hiddens < 1:
        raise ValueError(f"a table needs at least 1 position and 1 column, not {num_positions} "
                         f"and {num_hiddens}")
    i = np.arange(num_positions)[:, None]                         # (n, 1)
    angles = i * 10000.0 ** (-np.arange(0, num_hiddens, 2) / num_hiddens)     # (n, pairs)
    pairs = np.stack([np.sin(angles), np.cos(angles)], axis=-1)   # (n, pairs, 2)
    return pairs.reshape(num_positions, -1)[:, :num_hiddens]


class PositionalEncoding(nn.Layer):
    """Add the encoding of each position to its token, then dropout.

    Called with X (B, n, num_hiddens), n up to `max_len`, it keeps the type of X. `P`
    (1, max_len, num_hiddens) holds the table. Raises ValueError for another shape and
    TypeError for tokens that are not floating-point (Paddle, "Positional encoding").
    """

    def __init__(self, num_hiddens, dropout, max_len=1000):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        table = position_table(max_len, num_hiddens)[None]        # (1, max_len, d)
        table = paddle.to_tensor(table, dtype=paddle.get_default_dtype())
        self.register_buffer("P", table, persistable=False)

    def forward(self, X):
        max_len, num_hiddens = self.P.shape[1:]
        if X.ndim != 3 or X.shape[2] != num_hiddens:
            raise ValueError(f"X must be (batch, length, {num_hiddens}), but has shape "
                             f"{list(X.shape)}")
        if X.shape[1] > max_len:
            raise ValueError(f"X has {X.shape[1]} positions, but this encoding has "
                             f"max_len={max_len}")
        if not X.is_floating_point():
            raise TypeError(f"X must hold floating-point tokens, but holds {X.dtype}")
        return self.dropout(X + self.P[:, :X.shape[1]].astype(X.dtype))
