"""Right answers by other means than the package's, and layers that each hold one mistake."""

import math
from functools import cache
from types import SimpleNamespace

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
