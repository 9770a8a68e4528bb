"""Functions of the chapter on self-attention and positional encoding, for TensorFlow."""

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


# %% chapters/en/frameworks/tensorflow.ipynb#imports
import math

import numpy as np
import tensorflow as tf


# %% chapters/en/frameworks/tensorflow.ipynb#lengths
def check_lengths(valid_lens, batch, num_queries):
    """Valid lengths as an int64 tensor of shape (batch,) or (batch, num_queries).

    Takes a tensor, an array or a list; a size of None is unknown and goes with any. Raises
    TypeError for lengths that are not integers and ValueError for another shape or a negative
    length; in a graph the values are not known, and not checked (TensorFlow, "Masked softmax").
    """
    try:
        valid_lens = tf.convert_to_tensor(valid_lens)
    except (TypeError, ValueError):
        raise TypeError(f"valid_lens must be a tensor or a list of integers, or of equally long "
                        f"lists of integers, not {valid_lens!r}") from None
    if not valid_lens.dtype.is_integer:
        raise TypeError(f"valid_lens must hold integers, but holds {valid_lens.dtype.name}")
    shape = valid_lens.shape
    right = [(batch,), (batch, num_queries)]
    if shape.rank is None or not any(shape.is_compatible_with(other) for other in right):
        raise ValueError(f"valid_lens has shape {shape}, but ({batch},) or ({batch}, "
                         f"{num_queries}) goes with {batch} sequences of {num_queries} queries")
    valid_lens = tf.cast(valid_lens, tf.int64)
    if tf.executing_eagerly() and tf.reduce_any(valid_lens < 0):
        raise ValueError(f"valid_lens must be 0 or more, but holds {tf.reduce_min(valid_lens)}")
    return valid_lens


# %% chapters/en/frameworks/tensorflow.ipynb#softmax
def length_mask(valid_lens, batch, num_queries, num_keys):
    """True where a key is valid: (batch, num_queries or 1, num_keys).

    `num_keys` may be a tensor, the others None (TensorFlow, "Masked softmax").
    """
    valid_lens = check_lengths(valid_lens, batch, num_queries)
    valid_lens = valid_lens[:, None] if valid_lens.shape.rank == 1 else valid_lens
    return tf.range(tf.cast(num_keys, tf.int64)) < valid_lens[:, :, None]


def masked_softmax(X, valid_lens):
    """Softmax of the scores `X` (B, n, m) over the valid keys; the other weights are 0.

    `valid_lens` is None, (B,) or (B, n), a tensor or a list; a length beyond m counts as m. A
    row without a valid key is all 0, and the type of `X` is kept. Raises ValueError or
    TypeError for other shapes or lengths (TensorFlow, "Masked softmax").
    """
    X = tf.convert_to_tensor(X)
    if X.shape.rank != 3:
        raise ValueError(f"X must have 3 axes (batch, query, key), but has {X.shape}")
    if not X.dtype.is_floating:
        raise TypeError(f"X must hold floating-point scores, but holds {X.dtype.name}")
    if valid_lens is None:
        return tf.nn.softmax(X)
    mask = length_mask(valid_lens, *X.shape[:2], tf.shape(X)[2])  # (B, n or 1, m)
    empty = ~tf.reduce_any(mask, axis=-1, keepdims=True)          # (B, n or 1, 1)
    zero, lowest = tf.constant(0, X.dtype), tf.constant(-math.inf, X.dtype)
    scores = tf.where(empty, zero, tf.where(mask, X, lowest))
    return tf.where(mask, tf.nn.softmax(scores), zero)


# %% chapters/en/frameworks/tensorflow.ipynb#attention
def check_inputs(queries, keys, values):
    """Raise ValueError unless queries, keys and values (B, n, d) can go through attention.

    The three batch sizes must be equal, and there must be one value for each key; a size of
    None is unknown and goes with any (TensorFlow, "The attention layer").
    """
    for name, X in {"queries": queries, "keys": keys, "values": values}.items():
        if X.shape.rank != 3:
            raise ValueError(f"{name} must have 3 axes (batch, length, width), but have shape "
                             f"{X.shape}")
    if len({X.shape[0] for X in (queries, keys, values)} - {None}) > 1:
        raise ValueError(f"queries, keys and values must be batches of one size, but hold "
                         f"{queries.shape[0]}, {keys.shape[0]} and {values.shape[0]} sequences")
    if not keys.shape[1:2].is_compatible_with(values.shape[1:2]):
        raise ValueError(f"each key needs one value, but there are {keys.shape[1]} keys and "
                         f"{values.shape[1]} values")


@tf.keras.utils.register_keras_serializable(package="d2l_local")
class DotProductAttention(tf.keras.layers.Layer):
    """Scaled dot-product attention, with dropout on the attention weights.

    Queries (B, n, d), keys (B, m, d), values (B, m, v), `valid_lens` as in `masked_softmax`;
    returns (B, n, v). `attention_weights` (B, n, m) are those of the last eager call before
    dropout, without their history; None before the first one and after a graph is recorded.
    Raises ValueError for shapes that do not fit (TensorFlow, "The attention layer").
    """

    def __init__(self, dropout, **kwargs):
        super().__init__(**kwargs)
        self.dropout = tf.keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.attention_weights = None
        self.built = True                                         # it has no parameters

    def call(self, queries, keys, values, valid_lens=None, training=None):
        check_inputs(queries, keys, values)
        d = queries.shape[-1]
        if d != keys.shape[-1]:
            raise ValueError(f"queries of width {d} cannot be compared with keys of width "
                             f"{keys.shape[-1]}")
        scores = tf.matmul(queries / math.sqrt(d), keys, transpose_b=True)    # (B, n, m)
        weights = masked_softmax(scores, valid_lens)
        self.attention_weights = tf.stop_gradient(weights) if tf.executing_eagerly() else None
        return self.dropout(weights, training=training) @ values


# %% chapters/en/frameworks/tensorflow.ipynb#mha
def transpose_qkv(X, num_heads):
    """Cut the width into heads and make each a batch entry: (B, n, d) -> (B·h, n, d/h).

    Entry b·h + g holds head g of sequence b, the column block g of `X`. Raises ValueError when
    the width is not a multiple of `num_heads` (TensorFlow, "Several heads").
    """
    if X.shape.rank != 3:
        raise ValueError(f"X must have 3 axes (batch, length, width), but has {X.shape}")
    n, d = tf.shape(X)[1], X.shape[2]                             # n may be unknown, d is not
    if num_heads < 1 or d % num_heads:
        raise ValueError(f"width {d} cannot be cut into {num_heads} heads")
    X = tf.reshape(X, (-1, n, num_heads, d // num_heads))         # (B, n, h, c)
    return tf.reshape(tf.transpose(X, (0, 2, 1, 3)), (-1, n, d // num_heads))


def transpose_output(X, num_heads):
    """Undo `transpose_qkv`: (B·h, n, c) -> (B, n, h·c).

    Raises ValueError when the batch is known and no multiple of `num_heads` (TensorFlow,
    "Several heads").
    """
    if X.shape.rank != 3:
        raise ValueError(f"X must have 3 axes (batch, length, width), but has {X.shape}")
    (Bh, _, c), n = X.shape, tf.shape(X)[1]
    if num_heads < 1 or (Bh or 0) % num_heads:
        raise ValueError(f"{Bh} batch entries cannot be joined into {num_heads} heads each")
    X = tf.reshape(X, (-1, num_heads, n, c))                      # (B, h, n, c)
    return tf.reshape(tf.transpose(X, (0, 2, 1, 3)), (-1, n, num_heads * c))


@tf.keras.utils.register_keras_serializable(package="d2l_local")
class MultiHeadAttention(tf.keras.layers.Layer):
    """Multi-head attention: project, cut into heads, attend, join, project.

    Called with queries (B, n, query_size), keys (B, m, key_size), values (B, m, value_size)
    and lengths as in `masked_softmax`, it returns (B, n, num_hiddens). The weights (B·h, n, m)
    of the last call are at `attention.attention_weights`, heads in the order of
    `transpose_qkv`. Raises ValueError when `num_hiddens` is not a multiple of `num_heads`, or
    for shapes that do not fit (Vaswani et al., 2017, section 3.2; TensorFlow, "Several
    heads").
    """

    def __init__(self, key_size, query_size, value_size, num_hiddens, num_heads, dropout,
                 bias=False, **kwargs):
        super().__init__(**kwargs)
        if num_heads < 1 or num_hiddens < 1 or num_hiddens % num_heads:
            raise ValueError(f"num_hiddens={num_hiddens} must be a multiple of "
                             f"num_heads={num_heads}, and both at least 1")
        self.num_heads = num_heads
        self.attention = DotProductAttention(dropout, dtype=self.dtype_policy)
        self.W_q, self.W_k, self.W_v, self.W_o = (
            tf.keras.layers.Dense(num_hiddens, use_bias=bias, dtype=self.dtype_policy)
            for _ in range(4))
        for W, size in ((self.W_q, query_size), (self.W_k, key_size), (self.W_v, value_size),
                        (self.W_o, num_hiddens)):
            W.build((None, size))                                 # the weights exist at once

    def call(self, queries, keys, values, valid_lens=None, training=None):
        check_inputs(queries, keys, values)
        for name, X, W in (("queries", queries, self.W_q), ("keys", keys, self.W_k),
                           ("values", values, self.W_v)):
            if X.shape[-1] != W.kernel.shape[0]:
                raise ValueError(f"{name} have width {X.shape[-1]}, but this layer was made for "
                                 f"width {W.kernel.shape[0]}")
        Q = transpose_qkv(self.W_q(queries), self.num_heads)      # (B·h, n, c)
        K = transpose_qkv(self.W_k(keys), self.num_heads)         # (B·h, m, c)
        V = transpose_qkv(self.W_v(values), self.num_heads)       # (B·h, m, c)
        if valid_lens is not None:
            valid_lens = check_lengths(valid_lens, *queries.shape[:2])
            # each length h times in a row, as the heads of one sequence follow each other
            valid_lens = tf.repeat(valid_lens, self.num_heads, axis=0)
        Y = self.attention(Q, K, V, valid_lens, training=training)            # (B·h, n, c)
        return self.W_o(transpose_output(Y, self.num_heads))      # (B, n, d)


# %% chapters/en/frameworks/tensorflow.ipynb#position
def position_table(num_positions, num_hiddens):
    """The sinusoidal encoding of positions 0, 1, … in float64: (num_positions, num_hiddens).

    Column 2j is sin(i·ω_j) and column 2j+1 is cos(i·ω_j) with ω_j = 10000^(-2j/num_hiddens).
    Raises ValueError for a size below 1 (Vaswani et al., 2017, section 3.5; TensorFlow,
    "Positional encoding").
    """
    if num_positions < 1 or num_hiddens < 1:
        raise ValueError(f"a table needs at least 1 position and 1 column, not {num_positions} "
                         f"and {num_hiddens}")
    i = np.arange(num_positions)[:, None]                         # (n, 1)
    angles = i * 10000.0 ** (-np.arange(0, num_hiddens, 2) / num_hiddens)     # (n, pairs)
    pairs = np.stack([np.sin(angles), np.cos(angles)], axis=-1)   # (n, pairs, 2)
    return pairs.reshape(num_positions, -1)[:, :num_hiddens]


@tf.keras.utils.register_keras_serializable(package="d2l_local")
class PositionalEncoding(tf.keras.layers.Layer):
    """Add the encoding of each position to its token, then dropout.

    Called with X (B, n, num_hiddens), n up to `max_len`, which Keras casts to the type of the
    layer. `P` (1, max_len, num_hiddens) holds the table. Raises ValueError for another shape
    and TypeError for tokens that are not floating-point (TensorFlow, "Positional encoding").
    """

    def __init__(self, num_hiddens, dropout, max_len=1000, **kwargs):
        super().__init__(**kwargs)
        self.dropout = tf.keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.P = tf.constant(position_table(max_len, num_hiddens)[None], self.variable_dtype)

    def call(self, X, training=None):
        max_len, num_hiddens = self.P.shape[1:]
        if X.shape.rank != 3 or X.shape[2] != num_hiddens:
            raise ValueError(f"X must be (batch, length, {num_hiddens}), but has shape {X.shape}")
        if X.shape[1] is not None and X.shape[1] > max_len:
            raise ValueError(f"X has {X.shape[1]} positions, but this encoding has "
                             f"max_len={max_len}")
        if not X.dtype.is_floating:
            raise TypeError(f"X must hold floating-point tokens, but holds {X.dtype.name}")
        # unlike an index, `slice` refuses an unknown n beyond max_len
        P = tf.slice(self.P, (0, 0, 0), (1, tf.shape(X)[1], num_hiddens))     # (1, n, d)
        return self.dropout(X + tf.cast(P, X.dtype), training=training)
