"""Functions of the chapter on self-attention and positional encoding, for JAX."""

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


# %% chapters/en/frameworks/jax.ipynb#imports
import math

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn


# %% chapters/en/frameworks/jax.ipynb#lengths
def check_lengths(valid_lens, batch, num_queries):
    """Valid lengths as integers of shape (batch,) or (batch, num_queries).

    Takes an array or a list. Raises TypeError for lengths that are not integers and ValueError
    for another shape or a negative length; under `jit` the values are not known, and only type
    and shape are checked (JAX, "Masked softmax").
    """
    known = not isinstance(valid_lens, jax.core.Tracer)
    try:
        valid_lens = np.asarray(valid_lens) if known else valid_lens
    except (TypeError, ValueError):
        raise TypeError(f"valid_lens must be an array or a list of integers, or of equally long "
                        f"lists of integers, not {valid_lens!r}") from None
    if not jnp.issubdtype(valid_lens.dtype, jnp.integer):
        raise TypeError(f"valid_lens must hold integers, but holds {valid_lens.dtype}")
    if valid_lens.shape not in ((batch,), (batch, num_queries)):
        raise ValueError(f"valid_lens has shape {valid_lens.shape}, but ({batch},) or ({batch}, "
                         f"{num_queries}) goes with {batch} sequences of {num_queries} queries")
    if known and (valid_lens < 0).any():
        raise ValueError(f"valid_lens must be 0 or more, but holds {valid_lens.min()}")
    return valid_lens


# %% chapters/en/frameworks/jax.ipynb#softmax
def length_mask(valid_lens, batch, num_queries, num_keys):
    """True where a key is valid, (batch, num_queries or 1, num_keys) (JAX, "Masked softmax")."""
    valid_lens = check_lengths(valid_lens, batch, num_queries)
    valid_lens = valid_lens[:, None] if valid_lens.ndim == 1 else valid_lens
    return np.arange(num_keys) < valid_lens[:, :, None]


def masked_softmax(X, valid_lens):
    """Softmax of the scores `X` (B, n, m) over the valid keys; the other weights are 0.

    `valid_lens` is None, (B,) or (B, n), an array or a list; a length beyond m counts as m. A
    row without a valid key is all 0, and the type of `X` is kept. Raises ValueError or
    TypeError for other shapes or lengths (JAX, "Masked softmax").
    """
    X = jnp.asarray(X)
    if X.ndim != 3:
        raise ValueError(f"X must have 3 axes (batch, query, key), but has {X.shape}")
    if not jnp.issubdtype(X.dtype, jnp.floating):
        raise TypeError(f"X must hold floating-point scores, but holds {X.dtype}")
    if valid_lens is None:
        return nn.softmax(X)
    mask = length_mask(valid_lens, *X.shape)                      # (B, n or 1, m)
    empty = ~mask.any(-1, keepdims=True)                          # (B, n or 1, 1)
    scores = jnp.where(empty, 0, jnp.where(mask, X, -jnp.inf))
    return jnp.where(mask, nn.softmax(scores), 0)


# %% chapters/en/frameworks/jax.ipynb#attention
def check_inputs(queries, keys, values):
    """Raise ValueError unless queries, keys and values (B, n, d) can go through attention.

    The three batch sizes must be equal, and there must be one value for each key (JAX, "The
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
    """Raise ValueError unless `rate` can be a rate of dropout: a number from 0 to 1.

    Flax takes any, and then scales wrongly (JAX, "The attention layer").
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"dropout must be between 0 and 1, but is {rate}")


class DotProductAttention(nn.Module):
    """Scaled dot-product attention, with dropout on the attention weights.

    Queries (B, n, d), keys (B, m, d), values (B, m, v), `valid_lens` as in `masked_softmax`;
    returns the output (B, n, v) and the weights (B, n, m) before dropout. Raises ValueError
    for shapes that do not fit (JAX, "The attention layer").
    """

    dropout: float

    def __post_init__(self):
        check_dropout(self.dropout)
        super().__post_init__()

    @nn.compact
    def __call__(self, queries, keys, values, valid_lens=None, training=False):
        check_inputs(queries, keys, values)
        d = queries.shape[-1]
        if d != keys.shape[-1]:
            raise ValueError(f"queries of width {d} cannot be compared with keys of width "
                             f"{keys.shape[-1]}")
        scores = queries / math.sqrt(d) @ keys.swapaxes(1, 2)     # (B, n, m)
        weights = masked_softmax(scores, valid_lens)
        dropped = nn.Dropout(self.dropout)(weights, deterministic=not training)
        return dropped @ values, weights


# %% chapters/en/frameworks/jax.ipynb#mha
def transpose_qkv(X, num_heads):
    """Cut the width into heads and make each a batch entry: (B, n, d) -> (B·h, n, d/h).

    Entry b·h + g holds head g of sequence b, the column block g of `X`. Raises ValueError when
    the width is not a multiple of `num_heads` (JAX, "Several heads").
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

    Raises ValueError when the batch is not a multiple of `num_heads` (JAX, "Several heads").
    """
    if X.ndim != 3:
        raise ValueError(f"X must have 3 axes (batch, length, width), but has {X.shape}")
    Bh, n, c = X.shape
    if num_heads < 1 or Bh % num_heads:
        raise ValueError(f"{Bh} batch entries cannot be joined into {num_heads} heads each")
    X = X.reshape(Bh // num_heads, num_heads, n, c)               # (B, h, n, c)
    return X.transpose(0, 2, 1, 3).reshape(Bh // num_heads, n, num_heads * c)


class MultiHeadAttention(nn.Module):
    """Multi-head attention: project, cut into heads, attend, join, project.

    Called with queries (B, n, ·), keys and values (B, m, ·) and lengths as in
    `masked_softmax`, it returns the output (B, n, num_hiddens) and the weights (B·h, n, m),
    heads in the order of `transpose_qkv`. Raises ValueError when `num_hiddens` is not a
    multiple of `num_heads`, or for shapes that do not fit (Vaswani et al., 2017, section 3.2;
    JAX, "Several heads").
    """

    num_hiddens: int
    num_heads: int
    dropout: float
    bias: bool = False

    def __post_init__(self):
        if self.num_heads < 1 or self.num_hiddens < 1 or self.num_hiddens % self.num_heads:
            raise ValueError(f"num_hiddens={self.num_hiddens} must be a multiple of "
                             f"num_heads={self.num_heads}, and both at least 1")
        check_dropout(self.dropout)
        super().__post_init__()

    def setup(self):
        self.attention = DotProductAttention(self.dropout)
        self.W_q = nn.Dense(self.num_hiddens, use_bias=self.bias)
        self.W_k = nn.Dense(self.num_hiddens, use_bias=self.bias)
        self.W_v = nn.Dense(self.num_hiddens, use_bias=self.bias)
        self.W_o = nn.Dense(self.num_hiddens, use_bias=self.bias)

    def __call__(self, queries, keys, values, valid_lens=None, training=False):
        check_inputs(queries, keys, values)
        Q = transpose_qkv(self.W_q(queries), self.num_heads)      # (B·h, n, c)
        K = transpose_qkv(self.W_k(keys), self.num_heads)         # (B·h, m, c)
        V = transpose_qkv(self.W_v(values), self.num_heads)       # (B·h, m, c)
        if valid_lens is not None:
            valid_lens = check_lengths(valid_lens, *queries.shape[:2])
            # each length h times in a row, as the heads of one sequence follow each other
            valid_lens = valid_lens.repeat(self.num_heads, axis=0)
        Y, weights = self.attention(Q, K, V, valid_lens, training)
        return self.W_o(transpose_output(Y, self.num_heads)), weights


# %% chapters/en/frameworks/jax.ipynb#position
def position_table(num_positions, num_hiddens):
    """The sinusoidal encoding of positions 0, 1, … in float64: (num_positions, num_hiddens).

    Column 2j is sin(i·ω_j) and column 2j+1 is cos(i·ω_j) with ω_j = 10000^(-2j/num_hiddens).
    Raises ValueError for a size below 1 (Vaswani et al., 2017, section 3.5; JAX, "Positional
    encoding").
    """
    if num_positions < 1 or num_hiddens < 1:
        raise ValueError(f"a table needs at least 1 position and 1 column, not {num_positions} "
                         f"and {num_hiddens}")
    i = np.arange(num_positions)[:, None]                         # (n, 1)
    angles = i * 10000.0 ** (-np.arange(0, num_hiddens, 2) / num_hiddens)     # (n, pairs)
    pairs = np.stack([np.sin(angles), np.cos(angles)], axis=-1)   # (n, pairs, 2)
    return pairs.reshape(num_positions, -1)[:, :num_hiddens]


class PositionalEncoding(nn.Module):
    """Add the encoding of each position to its token, then dropout.

    Called with X (B, n, num_hiddens), n up to `max_len`, it keeps the type of X. `P`
    (1, max_len, num_hiddens) holds the table inside of `apply`. Raises ValueError for another shape and
    TypeError for tokens that are not floating-point (JAX, "Positional encoding").
    """

    num_hiddens: int
    dropout: float
    max_len: int = 1000

    def __post_init__(self):
        check_dropout(self.dropout)
        super().__post_init__()

    def setup(self):
        self.P = jnp.asarray(position_table(self.max_len, self.num_hiddens), jnp.float32)[None]
        self.drop = nn.Dropout(self.dropout)

    def __call__(self, X, training=False):
        if X.ndim != 3 or X.shape[2] != self.num_hiddens:
            raise ValueError(f"X must be (batch, length, {self.num_hiddens}), but has shape "
                             f"{X.shape}")
        if X.shape[1] > self.max_len:
            raise ValueError(f"X has {X.shape[1]} positions, but this encoding has "
                             f"max_len={self.max_len}")
        if not jnp.issubdtype(X.dtype, jnp.floating):
            raise TypeError(f"X must hold floating-point tokens, but holds {X.dtype}")
        return self.drop(X + self.P[:, :X.shape[1]].astype(X.dtype), deterministic=not training)
