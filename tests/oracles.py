"""Right answers by other means than the package's, and layers that each hold one mistake."""

import math
from functools import cache
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn


def attend_rows(Q, K, V, valid_lens=None):
    """Attention in float64, query by query over its valid keys alone: outputs and weights.

    Uses no mask, no softmax and no matrix product, and has a gradient.
    """
    Q, K, V = Q.double(), K.double(), V.double()
    B, n, d = Q.shape
    Y, A = torch.zeros(B, n, V.shape[2]).double(), torch.zeros(B, n, K.shape[1]).double()
    for b in range(B):
        for i in range(n):
            m = row_length(valid_lens, b, i, K.shape[1])
            if m > 0:
                scores = (Q[b, i] * K[b, :m]).sum(1) / d**0.5
                fits = (scores - scores.max()).exp()
                A[b, i, :m] = fits / fits.sum()
                Y[b, i] = (A[b, i, :m, None].clone() * V[b, :m]).sum(0)
    return Y, A


def row_length(valid_lens, b, i, keys):
    """How many keys query i of sequence b sees."""
    if valid_lens is None:
        return keys
    length = valid_lens[b] if torch.as_tensor(valid_lens).dim() == 1 else valid_lens[b][i]
    return min(int(length), keys)


def attend_heads(layer, queries, keys, values, valid_lens=None):
    """What `layer`'s weights must give, head by head: outputs, and weights (B·h, n, m)."""

    def project(W, X):
        Y = X.double() @ W.weight.double().T
        return Y if W.bias is None else Y + W.bias.double()

    inputs = ((layer.W_q, queries), (layer.W_k, keys), (layer.W_v, values))
    projected = [project(W, X) for W, X in inputs]
    width = layer.W_o.in_features // layer.num_heads
    blocks = [slice(g * width, (g + 1) * width) for g in range(layer.num_heads)]
    heads = [attend_rows(*[X[..., block] for X in projected], valid_lens) for block in blocks]
    Y = torch.cat([Y for Y, _ in heads], dim=2)
    A = torch.stack([A for _, A in heads], dim=1)
    return project(layer.W_o, Y), A.flatten(0, 1)


def textbook(mistake=None):
    """The functions and layers of the package written out at length, with one mistake in them."""

    def masked_softmax(X, valid_lens):
        axis = -2 if mistake == "softmax over queries" else -1
        if valid_lens is None:
            return X.softmax(axis)
        hidden = hide(valid_lens, X)
        if mistake == "in place":
            X.masked_fill_(hidden, -math.inf)
        if mistake == "mask after softmax":
            return X.softmax(axis).masked_fill(hidden, 0)
        fills = {"finite mask": -1e6, "uniform empty row": torch.finfo(X.dtype).min}
        A = X.masked_fill(hidden, fills.get(mistake, -math.inf)).softmax(axis)
        # a softmax over nothing is NaN, or uniform over the padding
        keep = mistake in ("uniform empty row", "NaN empty row")
        return A if keep else A.masked_fill(hidden, 0)

    def hide(valid_lens, X):
        """Where a key is padding, in the shape of the scores X."""
        lens = torch.as_tensor(valid_lens)
        lens = lens[:, None, None] if lens.dim() == 1 else lens[:, :, None]
        keys = torch.arange(X.shape[2])
        wrong = {"inverted mask": keys < lens, "one key too many": keys > lens}
        return wrong.get(mistake, keys >= lens).expand_as(X)

    def transpose_qkv(X, num_heads):
        B, n, d = X.shape
        if mistake == "bare reshape":
            return X.reshape(B * num_heads, n, d // num_heads)
        if mistake == "interleaved heads":
            return X.reshape(B, n, -1, num_heads).permute(0, 3, 1, 2).flatten(0, 1)
        X = X.reshape(B, n, num_heads, d // num_heads)
        if mistake == "heads outermost":
            return X.permute(2, 0, 1, 3).flatten(0, 1)
        return X.permute(0, 2, 1, 3).flatten(0, 1)

    def transpose_output(X, num_heads):
        X = X.reshape(-1, num_heads, *X.shape[1:])            # (B, h, n, c)
        X = X if mistake == "heads not joined" else X.permute(0, 2, 1, 3)
        return X.reshape(X.shape[0], -1, num_heads * X.shape[3])

    class DotProductAttention(nn.Module):
        def forward(self, Q, K, V, valid_lens=None):
            scale = 1 if mistake == "no scale" else math.sqrt(Q.shape[-1])
            A = masked_softmax(Q @ K.mT / scale, valid_lens)
            self.attention_weights = A.detach()
            return A @ V

    class MultiHeadAttention(nn.Module):
        def __init__(self, key_size, query_size, value_size, num_hiddens, num_heads, dropout):
            super().__init__()
            self.num_heads = num_heads
            self.attention = DotProductAttention()
            self.W_q = nn.Linear(query_size, num_hiddens, bias=False)
            self.W_k = nn.Linear(key_size, num_hiddens, bias=False)
            self.W_v = nn.Linear(value_size, num_hiddens, bias=False)
            self.W_o = nn.Linear(num_hiddens, num_hiddens, bias=False)

        def forward(self, queries, keys, values, valid_lens=None):
            h = self.num_heads
            Q, K, V = self.W_q(queries), self.W_k(keys), self.W_v(values)
            Q, K, V = (transpose_qkv(X, h) for X in (Q, K, V))
            if valid_lens is not None:
                lens = torch.as_tensor(valid_lens)
                if mistake == "repeat":
                    valid_lens = torch.cat([lens] * h)
                else:
                    valid_lens = lens.repeat_interleave(h, dim=0)
            return self.W_o(transpose_output(self.attention(Q, K, V, valid_lens), h))

    return SimpleNamespace(
        masked_softmax=masked_softmax,
        transpose_qkv=transpose_qkv,
        transpose_output=transpose_output,
        MultiHeadAttention=MultiHeadAttention,
    )


@cache
def reference(valid_lens):
    """Random weights and inputs, and what two heads must make of them, in float64."""
    g = torch.Generator().manual_seed(0)
    layer = textbook().MultiHeadAttention(8, 8, 8, 8, 2, 0.0).double()
    for W in layer.parameters():
        W.data = torch.randn(W.shape, generator=g).double()
    queries, keys = (torch.randn(3, n, 8, generator=g).double() for n in (4, 5))
    lens = None if valid_lens is None else torch.tensor(valid_lens)
    with torch.no_grad():
        right = attend_heads(layer, queries, keys, keys, lens)
    return layer.state_dict(), (queries, keys, keys, lens), *right


def check_layer(kit, valid_lens):
    """The layer gives the right outputs and keeps the right weights."""
    state, inputs, output, weights = reference(valid_lens)
    layer = kit.MultiHeadAttention(8, 8, 8, 8, 2, 0.0).double().eval()
    layer.load_state_dict(state)
    close(layer(*inputs), output)
    close(layer.attention.attention_weights, weights)


def close(got, right):
    torch.testing.assert_close(got, right, rtol=0, atol=1e-12)


def check_heads(kit):
    """Head g of sequence b is its column block g; joining the heads undoes the cut."""
    X = torch.arange(2 * 3 * 6.0).reshape(2, 3, 6)
    blocks = [X[b, :, 2 * g : 2 * g + 2] for b in range(2) for g in range(3)]
    close(kit.transpose_qkv(X, 3), torch.stack(blocks))
    close(kit.transpose_output(torch.stack(blocks), 3), X)


def check_empty_rows(kit):
    """A row without a valid key gets zeros and stops no gradient."""
    X = torch.randn(2, 1, 4, generator=torch.Generator().manual_seed(1)).requires_grad_()
    A = kit.masked_softmax(X + 0, torch.tensor([0, 3]))
    assert (A[0] == 0).all()
    A[1, 0, 0].backward()
    assert X.grad.isfinite().all()


def check_large_scores(kit):
    """No score is so large, and none so small, that padding gets a weight."""
    for valid, padding in ((-2e6, 5.0), (-1e30, 1e30), (2e6, 3e6)):
        X = torch.tensor([[[valid, valid, padding]]])
        assert kit.masked_softmax(X, torch.tensor([2])).tolist() == [[[0.5, 0.5, 0.0]]]


def check_argument(kit):
    """The scores are the caller's: unchanged, and may be a leaf that asks for a gradient."""
    X = torch.zeros(1, 2, 4)
    kit.masked_softmax(X, torch.tensor([2]))
    assert (X == 0).all()
    leaf = torch.zeros(1, 2, 4, requires_grad=True)
    kit.masked_softmax(leaf, torch.tensor([2])).sum().backward()


CHECKS = {
    "no lengths": lambda kit: check_layer(kit, None),
    "lengths": lambda kit: check_layer(kit, (3, 1, 5)),
    "query lengths": lambda kit: check_layer(kit, ((1, 2, 3, 4), (5, 5, 1, 2), (3, 4, 1, 5))),
    "heads": check_heads,
    "empty rows": check_empty_rows,
    "large scores": check_large_scores,
    "argument": check_argument,
}


def problems(kit):
    """The names of the checks that `kit`, a module or what `textbook` gives, does not pass."""
    found = []
    for name, check in CHECKS.items():
        try:
            check(kit)
        except (AssertionError, RuntimeError):  # torch refuses some wrong steps itself
            found.append(name)
    return found


# --- The Transformer encoder ---


def encode_slowly(state, tokens, num_heads, valid_lens=None):
    """What an encoder with these weights gives, token by token in NumPy's float64.

    `state` is a state_dict. Returns the outputs (B, n, d), and for each block the attention
    weights (B·h, n, n).
    """
    W = {name: tensor.double().numpy() for name, tensor in state.items()}
    blocks = sorted({int(name.split(".")[1][5:]) for name in W if name.startswith("blks.block")})
    outputs, weights = [], [[] for _ in blocks]
    for b, sequence in enumerate(tokens.tolist()):
        lengths = [row_length(valid_lens, b, i, len(sequence)) for i in range(len(sequence))]
        X = [place_token(W["embedding.weight"][t], i) for i, t in enumerate(sequence)]
        for block in blocks:
            prefix = f"blks.block{block}."
            part = {name[len(prefix) :]: W[name] for name in W if name.startswith(prefix)}
            attended, A = attend_slowly(part, X, num_heads, lengths)
            X = [normalize(part, "addnorm1.ln", x + y) for x, y in zip(X, attended, strict=True)]
            X = [normalize(part, "addnorm2.ln", x + feed_forward(part, x)) for x in X]
            weights[block].extend(A)
        outputs.append(np.stack(X))
    return torch.tensor(np.stack(outputs)), [torch.tensor(np.stack(A)) for A in weights]


def place_token(row, i):
    """The embedding times √d, plus the sinusoid of position i."""
    d = len(row)
    waves = [(math.cos if c % 2 else math.sin)(i / 10000 ** (2 * (c // 2) / d)) for c in range(d)]
    return math.sqrt(d) * row + np.array(waves)


def linear(part, name, x):
    y = part[f"{name}.weight"] @ x
    return y + part[f"{name}.bias"] if f"{name}.bias" in part else y


def feed_forward(part, x):
    hidden = linear(part, "ffn.dense1", x)
    return linear(part, "ffn.dense2", np.where(hidden > 0, hidden, 0))


def normalize(part, name, x):
    centred = x - x.sum() / len(x)
    variance = (centred**2).sum() / len(x)
    return part[f"{name}.weight"] * centred / math.sqrt(variance + 1e-5) + part[f"{name}.bias"]


def attend_slowly(part, X, num_heads, lengths):
    """What each token gathers from the first `lengths[i]` tokens, and each head's weights."""
    Q, K, V = ([linear(part, f"attention.W_{name}", x) for x in X] for name in "qkv")
    width = len(Q[0]) // num_heads
    weights = np.zeros((num_heads, len(X), len(X)))
    joined = np.zeros((len(X), len(Q[0])))
    for g in range(num_heads):
        head = slice(g * width, (g + 1) * width)
        for i, length in enumerate(lengths):
            scores = [Q[i][head] @ K[j][head] / math.sqrt(width) for j in range(length)]
            fits = [math.exp(score - max(scores)) for score in scores]
            for j, fit in enumerate(fits):
                weights[g, i, j] = fit / sum(fits)
                joined[i, head] += weights[g, i, j] * V[j][head]
    return [linear(part, "attention.W_o", y) for y in joined], weights


def encoder_kit(kit, mistake=None):
    """The four layers written out at length on the attention of `kit`, with one mistake."""

    class PositionWiseFFN(nn.Module):
        def __init__(self, ffn_num_input, ffn_num_hiddens, ffn_num_outputs):
            super().__init__()
            self.dense1 = nn.Linear(ffn_num_input, ffn_num_hiddens)
            self.dense2 = nn.Linear(ffn_num_hiddens, ffn_num_outputs)

        def forward(self, X):
            Y = self.dense1(X)
            wrong = {"no ReLU": Y, "GELU": nn.functional.gelu(Y), "ReLU of both": Y.relu()}
            Y = self.dense2(wrong.get(mistake, Y.relu()))
            return Y.relu() if mistake == "ReLU of both" else Y

    class AddNorm(nn.Module):
        def __init__(self, normalized_shape, dropout):
            super().__init__()
            self.dropout = nn.Dropout(0.0 if mistake == "no dropout" else dropout)
            self.ln = nn.LayerNorm(normalized_shape)
            self.ln.eps = 1e-12 if mistake == "another eps" else 1e-5

        def forward(self, X, Y):
            if X.shape != Y.shape and mistake != "broadcasts the sum":
                raise ValueError(f"{tuple(X.shape)} and {tuple(Y.shape)}")
            if mistake == "dropout of the sum":
                return self.ln(self.dropout(X + Y))
            if mistake == "dropout at evaluation":
                return self.ln(X + nn.functional.dropout(Y, self.dropout.p))
            Y = self.dropout(Y)
            if mistake == "in place":
                return self.ln(X.add_(Y))
            wrong = {
                "norm before the sum": lambda: X + self.ln(Y),
                "no residual": lambda: self.ln(Y),
                "no norm": lambda: X + Y,
            }
            return wrong.get(mistake, lambda: self.ln(X + Y))()

    class EncoderBlock(nn.Module):
        def __init__(self, key_size, query_size, value_size, num_hiddens, norm_shape,
                     ffn_num_input, ffn_num_hiddens, num_heads, dropout, use_bias=False):
            super().__init__()
            bias = use_bias and mistake != "bias forgotten"
            self.attention = kit.MultiHeadAttention(
                key_size, query_size, value_size, num_hiddens, num_heads, dropout, bias)
            self.addnorm1 = AddNorm(norm_shape, dropout)
            self.ffn = PositionWiseFFN(ffn_num_input, ffn_num_hiddens, num_hiddens)
            self.addnorm2 = AddNorm(norm_shape, dropout)

        def forward(self, X, valid_lens):
            valid_lens = None if mistake == "mask forgotten" else valid_lens
            if mistake == "pre-norm":
                Z = self.addnorm1.ln(X)
                X = X + self.attention(Z, Z, Z, valid_lens)
                return X + self.ffn(self.addnorm2.ln(X))
            Y = self.addnorm1(X, self.attention(X, X, X, valid_lens))
            if mistake == "network before attention":
                Y = self.addnorm2(X, self.ffn(X))
                return self.addnorm1(Y, self.attention(Y, Y, Y, valid_lens))
            second = self.addnorm1 if mistake == "one norm for both" else self.addnorm2
            return second(X if mistake == "second sum from the input" else Y, self.ffn(Y))

    class TransformerEncoder(nn.Module):
        def __init__(self, vocab_size, key_size, query_size, value_size, num_hiddens,
                     norm_shape, ffn_num_input, ffn_num_hiddens, num_heads, num_layers,
                     dropout, use_bias=False):
            super().__init__()
            self.num_hiddens = num_hiddens
            self.embedding = nn.Embedding(vocab_size, num_hiddens)
            spread = {"embedding of N(0, 1)": 1, "embedding of N(0, 1/d²)": 1 / num_hiddens}
            std = spread.get(mistake, num_hiddens**-0.5)
            nn.init.normal_(self.embedding.weight, std=std)
            self.pos_encoding = kit.PositionalEncoding(num_hiddens, dropout)
            blocks = [EncoderBlock(key_size, query_size, value_size, num_hiddens, norm_shape,
                                   ffn_num_input, ffn_num_hiddens, num_heads, dropout, use_bias)
                      for _ in range(num_layers)]
            if mistake == "one block used twice":
                blocks = blocks[:1] * num_layers
            self.blks = nn.Sequential()
            for i, block in enumerate(blocks):
                self.blks.add_module(f"block{i}", block)

        @property
        def attention_weights(self):
            blocks = self.blks[-1:] if mistake == "weights of the last block" else self.blks
            return [block.attention.attention.attention_weights for block in blocks]

        def forward(self, X, valid_lens):
            factors = {"√d missing": 1, "√d twice": self.num_hiddens}
            X = self.embedding(X) * factors.get(mistake, math.sqrt(self.num_hiddens))
            if mistake == "√d after the sum":
                X = self.pos_encoding(X / math.sqrt(self.num_hiddens)) * math.sqrt(self.num_hiddens)
            elif mistake != "no positions":
                X = self.pos_encoding(X)
            for i, block in enumerate(self.blks):
                X = self.pos_encoding(X) if i and mistake == "positions in each block" else X
                X = block(X, None if i and mistake == "mask in the first block only" else valid_lens)
                if mistake == "weights in the forward":
                    block.attention.attention.attention_weights  # noqa: B018
            return X

    return SimpleNamespace(
        PositionWiseFFN=PositionWiseFFN,
        AddNorm=AddNorm,
        EncoderBlock=EncoderBlock,
        TransformerEncoder=TransformerEncoder,
    )
