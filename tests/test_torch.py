"""The attention of `d2l_local.torch` against other programs, golden values and wrong layers."""

import copy
import inspect
import io
import itertools
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from oracles import CHECKS, attend_heads, attend_rows, problems, textbook
from torch import nn
from torch.testing import assert_close

from d2l_local import torch as d2l

GOLDEN = Path(__file__).parent / "data" / "multi_head_attention.npz"
# How far a right result may be from the one in float64
TOLERANCES = {torch.float16: 5e-3, torch.bfloat16: 4e-2, torch.float32: 1e-6, torch.float64: 1e-14}
each_dtype = pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
# Lengths for 3 sequences of 4 queries; 0 hides all keys, 9 is more than there are
LENGTHS = {
    "none": None,
    "1-D": [3, 0, 9],
    "2-D": [[1, 2, 3, 4], [0, 9, 1, 0], [5, 1, 0, 2]],
}
each_length = pytest.mark.parametrize("valid_lens", LENGTHS.values(), ids=LENGTHS)


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def qkv(dtype=torch.float32):
    """Queries (3, 4, 8), keys (3, 5, 8) and values (3, 5, 6)."""
    return [random(3, n, d, seed=n + d, dtype=dtype) for n, d in ((4, 8), (5, 8), (5, 6))]


def make_layer(*arguments, dtype=torch.float32, dropout=0.0, bias=False):
    """A layer with (key_size, query_size, value_size, num_hiddens, num_heads), weights fixed."""
    layer = d2l.MultiHeadAttention(*arguments, dropout, bias)
    with torch.no_grad():
        for seed, W in enumerate(layer.parameters()):
            W.copy_(random(*W.shape, seed=seed) / math.sqrt(W.shape[-1]))
    return layer.to(dtype).eval()


# --- Every check fails for some wrong layer, and passes for the right ones ---

CAUGHT_BY = {
    "no scale": "no lengths",
    "softmax over queries": "no lengths",
    "inverted mask": "lengths",
    "one key too many": "lengths",
    "mask after softmax": "query lengths",
    "repeat": "lengths",
    "bare reshape": "heads",
    "interleaved heads": "heads",
    "heads outermost": "heads",
    "heads not joined": "heads",
    "finite mask": "large scores",
    "uniform empty row": "empty rows",
    "NaN empty row": "empty rows",
    "in place": "argument",
}


@pytest.mark.parametrize("kit", [d2l, textbook()], ids=["d2l_local", "textbook"])
def test_right_layers_have_no_problem(kit):
    assert problems(kit) == []


@pytest.mark.parametrize("mistake", CAUGHT_BY)
def test_mistake_is_caught(mistake):
    assert CAUGHT_BY[mistake] in problems(textbook(mistake))


def test_no_check_is_idle():
    caught = {name for mistake in CAUGHT_BY for name in problems(textbook(mistake))}
    assert caught == set(CHECKS)


def test_the_original_has_three_problems(original):
    assert problems(original) == ["empty rows", "large scores", "argument"]


# --- masked_softmax ---


@each_dtype
def test_masked_softmax_keeps_the_type(dtype):
    A = d2l.masked_softmax(torch.zeros(1, 2, 4, dtype=dtype), [[2, 0]])
    assert A.dtype == dtype
    assert A.tolist() == [[[0.5, 0.5, 0, 0], [0, 0, 0, 0]]]


@each_dtype
@each_length
def test_masked_softmax_against_rows(valid_lens, dtype):
    X = 3 * random(3, 4, 5, dtype=dtype)
    identity = torch.eye(5).expand(3, 5, 5)
    right, _ = attend_rows(math.sqrt(5) * X.double(), identity, identity, valid_lens)
    A = d2l.masked_softmax(X, valid_lens)
    assert_close(A.double(), right, rtol=0, atol=TOLERANCES[dtype])
    sums = right.sum(-1).round()
    assert set(sums.flatten().tolist()) == ({1.0} if valid_lens is None else {0.0, 1.0})
    assert_close(A.double().sum(-1), sums, rtol=0, atol=5 * TOLERANCES[dtype])


INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
INTEGERS += [torch.uint16, torch.uint32, torch.uint64]


FORMS = {
    "list": [3, 0],
    "tuple": (3, 0),
    "array": np.array([3, 0], dtype=np.uint16),
    "read-only array": np.array([3, 0]),
    "tensors": [torch.tensor(3), torch.tensor(0)],
    **{str(dtype): torch.tensor([3, 0], dtype=dtype) for dtype in INTEGERS},
}
FORMS["read-only array"].setflags(write=False)  # torch.as_tensor warns of it


@pytest.mark.parametrize("valid_lens", FORMS.values(), ids=FORMS)
def test_forms_of_lengths(valid_lens):
    X = random(2, 3, 4)
    expected = d2l.masked_softmax(X, torch.tensor([[3] * 3, [0] * 3]))
    assert torch.equal(d2l.masked_softmax(X, valid_lens), expected)


def test_no_sequence_and_no_key():
    assert d2l.masked_softmax(torch.zeros(0, 3, 4), torch.zeros(0, dtype=int)).shape == (0, 3, 4)
    assert d2l.masked_softmax(torch.zeros(2, 3, 0), [0, 1]).shape == (2, 3, 0)


@pytest.mark.parametrize("valid", [-1e30, -2e6, 0.0, 2e6])
@pytest.mark.parametrize("padding", [-1e30, 2e6, 1e30, math.inf, math.nan])
def test_no_score_beats_the_mask(valid, padding):
    A = d2l.masked_softmax(torch.tensor([[[valid, valid, padding]]]), [2])
    assert A.tolist() == [[[0.5, 0.5, 0.0]]]


@each_dtype
def test_largest_scores_of_each_type(dtype):
    most = torch.finfo(dtype).max
    X = torch.tensor([[[-most, most, most]]], dtype=dtype)
    assert d2l.masked_softmax(X, [1]).tolist() == [[[1, 0, 0]]]
    assert d2l.masked_softmax(X, [2]).tolist() == [[[0, 1, 0]]]


def test_masked_softmax_leaves_its_arguments_alone():
    X, lens = torch.zeros(2, 4, 3).mT, torch.tensor([2, 0])  # a view, not contiguous
    before = d2l.masked_softmax(X, lens)
    assert torch.equal(X, torch.zeros(2, 3, 4)) and lens.tolist() == [2, 0]
    assert d2l.masked_softmax(X, [4, 4]).tolist() == torch.full((2, 3, 4), 0.25).tolist()
    assert torch.equal(d2l.masked_softmax(X, lens), before)


@each_length
def test_gradient_of_masked_softmax(valid_lens):
    X = random(3, 4, 5, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda X: d2l.masked_softmax(X, valid_lens), X)


# --- DotProductAttention ---


@each_dtype
@each_length
def test_dot_product_attention_against_rows(valid_lens, dtype):
    inputs = qkv(dtype)
    attention = d2l.DotProductAttention(dropout=0.5).eval()
    Y = attention(*inputs, valid_lens)
    right, weights = attend_rows(*inputs, valid_lens)
    assert Y.dtype == attention.attention_weights.dtype == dtype
    assert_close(Y.double(), right, rtol=0, atol=2 * TOLERANCES[dtype])
    assert_close(attention.attention_weights.double(), weights, rtol=0, atol=TOLERANCES[dtype])


@each_length
def test_dot_product_attention_against_the_kernel(valid_lens):
    Q, K, V = qkv()
    mask = None
    if valid_lens is not None:
        lens = torch.tensor(valid_lens)
        mask = (torch.arange(5) < (lens[:, None, None] if lens.dim() == 1 else lens[..., None]))
    Y = d2l.DotProductAttention(0.0)(Q, K, V, valid_lens)
    assert_close(Y, F.scaled_dot_product_attention(Q, K, V, mask), rtol=0, atol=1e-6)


@each_length
def test_gradients_of_dot_product_attention(valid_lens):
    inputs = [X.requires_grad_() for X in qkv(torch.float64)]
    direction = random(3, 4, 6, seed=9, dtype=torch.float64)
    got, right = (
        torch.autograd.grad((Y * direction).sum(), inputs)
        for Y in (
            d2l.DotProductAttention(0.0)(*inputs, valid_lens),
            attend_rows(*inputs, valid_lens)[0],
        )
    )
    for name, ours, rows in zip("QKV", got, right, strict=True):
        assert_close(ours, rows, rtol=0, atol=1e-12, msg=name)


@each_dtype
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_empty_sequence_spoils_no_gradient(dropout, dtype):
    inputs = [X.requires_grad_() for X in qkv(dtype)]
    Y = d2l.DotProductAttention(dropout)(*inputs, [3, 0, 2])
    assert (Y[1] == 0).all()
    Y[0].sum().backward()
    assert all(X.grad.isfinite().all() for X in inputs)
    assert inputs[2].grad[0].abs().sum() > 0


def test_weights_are_those_before_dropout():
    Q, K, _ = qkv()
    values = torch.eye(5).expand(3, 5, 5)  # the output is the weights after dropout
    attention = d2l.DotProductAttention(dropout=0.5)
    torch.manual_seed(0)
    dropped = attention(Q, K, values, [5, 3, 2])
    A = attention.attention_weights
    assert_close(A, attend_rows(Q, K, values, [5, 3, 2])[1].float(), rtol=0, atol=1e-6)
    lost = (dropped == 0) & (A > 0)
    assert 5 < lost.sum() < 35  # of 40 weights
    assert_close(dropped, (2 * A).masked_fill(lost, 0))


def test_weights_are_none_before_a_call_and_detached_after():
    attention = d2l.DotProductAttention(0.0)
    assert attention.attention_weights is None
    Q, K, V = (X.requires_grad_() for X in qkv())
    attention(Q, K, V)
    assert not attention.attention_weights.requires_grad


@pytest.mark.parametrize("valid_lens", [[3, 1, 2], [[1, 2, 3, 4]] * 3], ids=["1-D", "2-D"])
def test_weights_do_not_follow_later_changes(valid_lens):
    Q, K, V = qkv()
    lens = torch.tensor(valid_lens)
    attention = d2l.DotProductAttention(0.0)
    attention(Q, K, V, lens)
    expected = attend_rows(Q, K, V, valid_lens)[1].float()
    for X in (Q, K, V, lens):
        X.zero_()
    assert_close(attention.attention_weights, expected, rtol=0, atol=1e-6)


def test_weights_of_large_half_precision_inputs():
    X = torch.full((1, 2, 8), 100.0, dtype=torch.float16)  # scores of 8 * 100**2 > 65504
    attention = d2l.DotProductAttention(0.0)
    assert_close(attention(X, X, X), X)
    assert attention.attention_weights.tolist() == [[[0.5, 0.5]] * 2]


@pytest.mark.parametrize("padding", [7.0, -1e3, 1e30])
def test_padding_cannot_be_seen(padding):
    Q, K, V = qkv()
    lens = [3, 1, 5]
    attention = d2l.DotProductAttention(0.0)
    before, A = attention(Q, K, V, lens), attention.attention_weights
    for b, length in enumerate(lens):
        K[b, length:], V[b, length:] = padding, padding
    assert torch.equal(attention(Q, K, V, lens), before)
    assert torch.equal(attention.attention_weights, A)
    K[0, 2] += 1  # the last valid key, to see that this test can fail
    assert not torch.equal(attention(Q, K, V, lens), before)


# --- transpose_qkv and transpose_output ---


@pytest.mark.parametrize("shape, heads", [((2, 3, 12), 4), ((1, 4, 6), 1), ((3, 1, 5), 5)])
def test_heads_are_column_blocks(shape, heads):
    X = random(*shape)
    width = shape[2] // heads
    cut = d2l.transpose_qkv(X, heads)
    assert cut.shape == (shape[0] * heads, shape[1], width)
    for b, g in itertools.product(range(shape[0]), range(heads)):
        assert torch.equal(cut[b * heads + g], X[b, :, g * width : (g + 1) * width])
    assert torch.equal(d2l.transpose_output(cut, heads), X)
    assert torch.equal(d2l.transpose_qkv(d2l.transpose_output(cut, heads), heads), cut)


# --- MultiHeadAttention ---


@pytest.mark.parametrize("bias", [False, True])
@each_length
def test_multi_head_attention_against_rows(valid_lens, bias):
    """Three sizes of input, cross-attention, outputs, weights and the gradients of all."""
    sizes = {"queries": (4, 6), "keys": (5, 7), "values": (5, 9)}
    inputs = [random(3, *size, seed=size[1], dtype=torch.float64) for size in sizes.values()]
    layer = make_layer(7, 6, 9, 8, 2, dtype=torch.float64, bias=bias)
    leaves = [*layer.parameters(), *(X.requires_grad_() for X in inputs)]
    output, weights = attend_heads(layer, *inputs, valid_lens)
    direction = random(3, 4, 8, seed=1, dtype=torch.float64)
    right = torch.autograd.grad((output * direction).sum(), leaves)
    Y = layer(*inputs, valid_lens)
    got = torch.autograd.grad((Y * direction).sum(), leaves)
    got, right = (Y, layer.attention.attention_weights, *got), (output, weights, *right)
    for ours, rows in zip(got, right, strict=True):
        assert_close(ours, rows, rtol=0, atol=1e-12)


@each_dtype
def test_multi_head_attention_in_each_type(dtype):
    layer, X = make_layer(8, 8, 8, 8, 2, dtype=dtype), random(3, 4, 8, dtype=dtype)
    right, weights = attend_heads(layer, X, X, X, [3, 0, 9])
    Y = layer(X, X, X, [3, 0, 9])
    assert Y.dtype == layer.attention.attention_weights.dtype == dtype
    assert_close(Y.double(), right.detach(), rtol=0, atol=2 * TOLERANCES[dtype])
    assert_close(
        layer.attention.attention_weights.double(),
        weights.detach(),
        rtol=0,
        atol=2 * TOLERANCES[dtype],
    )
    assert (Y[1] == 0).all()
    Y[0].sum().backward()
    assert all(W.grad.isfinite().all() for W in layer.parameters())


def golden(name):
    with np.load(GOLDEN) as file:
        return torch.from_numpy(file[name]) if name in file else None


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-6), (torch.float64, 1e-14)])
@pytest.mark.parametrize("case", ["self_none", "self_1d", "self_zero", "self_2d", "cross_1d"])
def test_golden_values(case, dtype, tolerance):
    """Values computed outside this project, in NumPy."""
    layer = d2l.MultiHeadAttention(12, 12, 12, 12, 3, 0.0).to(dtype)
    layer.load_state_dict({f"{W}.weight": golden(W) for W in ("W_q", "W_k", "W_v", "W_o")})
    X, Y = golden("X").to(dtype), golden("Y").to(dtype)
    keys = Y if case.startswith("cross") else X
    output = layer(X, keys, keys, golden(f"{case}_valid_lens"))
    weights = layer.attention.attention_weights.unflatten(0, (3, 3))
    assert_close(output.double(), golden(f"{case}_output"), rtol=0, atol=tolerance)
    assert_close(weights.double(), golden(f"{case}_weights"), rtol=0, atol=tolerance)


def test_golden_weights_are_used_as_they_are_stored():
    """With the transposed weights, or without lengths, the golden output is missed."""
    layer = d2l.MultiHeadAttention(12, 12, 12, 12, 3, 0.0).double()
    layer.load_state_dict({f"{W}.weight": golden(W).T for W in ("W_q", "W_k", "W_v", "W_o")})
    X = golden("X")
    assert (layer(X, X, X) - golden("self_none_output")).abs().max() > 0.1
    assert (golden("self_1d_output") - golden("self_none_output")).abs().max() > 0.1


def pytorch_layer(layer, heads):
    """PyTorch's own layer with the weights of ours."""
    projections = (layer.W_q, layer.W_k, layer.W_v)
    size, kdim, vdim = (W.in_features for W in projections)
    bias = layer.W_o.bias is not None
    theirs = nn.MultiheadAttention(
        size, heads, bias=bias, kdim=kdim, vdim=vdim, batch_first=True
    )
    weights = [W.weight.data for W in projections]
    state = {"out_proj.weight": layer.W_o.weight.data}
    if theirs.in_proj_weight is None:
        names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        state |= dict(zip(names, weights, strict=True))
    else:
        state["in_proj_weight"] = torch.cat(weights)
    if bias:
        state |= {
            "in_proj_bias": torch.cat([W.bias.data for W in projections]),
            "out_proj.bias": layer.W_o.bias.data,
        }
    theirs.load_state_dict(state)
    return theirs.eval()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("sizes", [(8, 8), (6, 5)], ids=["one size", "three sizes"])
@pytest.mark.parametrize(
    "valid_lens",
    [None, [3, 1, 5], [[1, 2, 3, 4], [5, 4, 3, 2], [2, 2, 5, 5]]],
    ids=["none", "1-D", "2-D"],
)
def test_multi_head_attention_against_pytorch(valid_lens, sizes, bias):
    key_size, value_size = sizes
    layer = make_layer(key_size, 8, value_size, 8, 2, bias=bias)
    queries, keys, values = random(3, 4, 8), random(3, 5, key_size), random(3, 5, value_size)
    masks = {}
    if valid_lens is not None:
        lens = torch.tensor(valid_lens)
        hide = torch.arange(5) >= lens[..., None]  # (3, 5) or (3, 4, 5): True hides
        name = "key_padding_mask" if lens.dim() == 1 else "attn_mask"
        masks = {name: hide if lens.dim() == 1 else hide.repeat_interleave(2, dim=0)}
    theirs = pytorch_layer(layer, heads=2)
    Y, A = theirs(queries, keys, values, average_attn_weights=False, **masks)
    assert_close(layer(queries, keys, values, valid_lens), Y, rtol=0, atol=1e-6)
    assert_close(layer.attention.attention_weights, A.flatten(0, 1), rtol=0, atol=1e-6)
    for name, mask in masks.items():
        inverted, _ = theirs(queries, keys, values, **{name: ~mask})
        assert (inverted - Y).nan_to_num().abs().max() > 0.1


def test_weights_of_the_original_give_its_output(original):
    theirs = original.MultiHeadAttention(7, 6, 9, 8, 2, 0.5, bias=True).eval()
    layer = d2l.MultiHeadAttention(7, 6, 9, 8, 2, 0.5, bias=True).eval()
    layer.load_state_dict(theirs.state_dict(), strict=True)
    inputs = random(3, 4, 6), random(3, 5, 7), random(3, 5, 9)
    for lens in (None, torch.tensor([3, 1, 9]), torch.tensor(LENGTHS["2-D"]).clamp(min=1)):
        assert_close(layer(*inputs, lens), theirs(*inputs, lens), rtol=0, atol=1e-6)
        theirs_weights = theirs.attention.attention_weights
        assert_close(layer.attention.attention_weights, theirs_weights, rtol=0, atol=1e-6)


SHARED = [
    *("masked_softmax", "DotProductAttention", "MultiHeadAttention", "transpose_qkv"),
    *("transpose_output", "plot", "show_heatmaps", "set_figsize", "use_svg_display"),
]


@pytest.mark.parametrize("name", SHARED)
def test_arguments_are_those_of_the_original(name, original):
    """In the same order under the same names: code written for d2l runs with d2l_local."""

    def names(call):
        return [name for name in inspect.signature(call).parameters if name != "kwargs"]

    ours, theirs = getattr(d2l, name), getattr(original, name)
    assert names(ours) == names(theirs)
    if inspect.isclass(ours):
        assert names(ours.forward) == names(theirs.forward)


def test_the_call_of_the_source_text():
    num_hiddens, num_heads = 100, 5
    attention = d2l.MultiHeadAttention(
        num_hiddens, num_hiddens, num_hiddens, num_hiddens, num_heads, 0.5
    )
    attention.eval()
    X, valid_lens = d2l.ones((2, 4, num_hiddens)), d2l.tensor([3, 2])
    assert attention(X, X, X, valid_lens).shape == (2, 4, 100)
    assert sum(W.numel() for W in attention.parameters()) == 40_000
    with pytest.raises(TypeError, match="num_hiddens"):  # as d2l 1.x wants it
        d2l.MultiHeadAttention(100, 5, 0.5)


def test_dropout_only_in_training():
    layer, X = make_layer(8, 8, 8, 8, 2, dropout=0.5), random(3, 4, 8)
    assert torch.equal(layer(X, X, X), layer(X, X, X))
    layer.train()
    torch.manual_seed(0)
    assert not torch.equal(layer(X, X, X), layer(X, X, X))


def test_padding_cannot_be_seen_by_valid_queries():
    layer, X = make_layer(8, 8, 8, 8, 2), random(3, 4, 8)
    real = torch.arange(4) < torch.tensor([3, 1, 4])[:, None]
    noisy = torch.where(real[..., None], X, 1e3 * random(3, 4, 8, seed=1))
    before, after = (layer(Z, Z, Z, [3, 1, 4]) for Z in (X, noisy))
    assert torch.equal(before[real], after[real])
    assert (before - after)[~real].abs().max() > 0.1


def test_shuffled_tokens_give_shuffled_outputs():
    layer, X = make_layer(8, 8, 8, 8, 2, dtype=torch.float64), random(2, 6, 8, dtype=torch.float64)
    Y, causal = layer(X, X, X), [[1, 2, 3, 4, 5, 6]] * 2
    masked = layer(X, X, X, causal)
    for seed in range(10):
        order = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
        Z = X[:, order]
        assert_close(layer(Z, Z, Z), Y[:, order], rtol=0, atol=1e-12)
        assert (layer(Z, Z, Z, causal) - masked[:, order]).abs().max() > 0.01


# --- Copying, saving, tracing ---


@each_length
def test_copy_and_save_after_a_call(valid_lens, tmp_path):
    layer, X = make_layer(8, 8, 8, 8, 2), random(3, 4, 8).requires_grad_()
    Y = layer(X, X, X, valid_lens)
    assert list(layer.state_dict()) == [f"W_{name}.weight" for name in "qkvo"]
    torch.save(layer, tmp_path / "layer.pt")
    loaded = torch.load(tmp_path / "layer.pt", weights_only=False)
    for copied in (copy.deepcopy(layer), loaded):
        assert torch.equal(copied.attention.attention_weights, layer.attention.attention_weights)
        assert torch.equal(copied(X, X, X, valid_lens), Y)
    buffer = io.BytesIO()
    torch.save(layer.state_dict(), buffer)
    buffer.seek(0)
    fresh = d2l.MultiHeadAttention(8, 8, 8, 8, 2, 0.0).eval()
    fresh.load_state_dict(torch.load(buffer), strict=True)
    assert torch.equal(fresh(X, X, X, valid_lens), Y)


def test_autocast():
    layer, X = make_layer(8, 8, 8, 8, 2), random(3, 4, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        Y = layer(X, X, X, [3, 0, 9])
        inside = layer.attention.attention_weights
    right, weights = attend_heads(layer, X, X, X, [3, 0, 9])
    assert Y.dtype == torch.bfloat16 and (Y[1] == 0).all()
    assert_close(Y.double(), right.detach(), rtol=0, atol=0.1)
    for A in (inside, layer.attention.attention_weights):
        assert_close(A.double(), weights.detach(), rtol=0, atol=0.1)
    Y[0].sum().backward()
    assert all(W.grad.isfinite().all() for W in layer.parameters())


LENS = [None, torch.tensor([3, 0, 4]), torch.tensor(LENGTHS["2-D"])]


@pytest.mark.parametrize("lens", LENS, ids=LENGTHS)
def test_export(lens):
    layer, X = make_layer(8, 8, 8, 8, 2), random(3, 4, 8)
    other = random(3, 4, 8, seed=1)
    program = torch.export.export(layer, (X, X, X, lens), strict=False).module()
    assert_close(program(other, other, other, lens), layer(other, other, other, lens))


def test_export_for_any_batch_and_length():
    layer, X = make_layer(8, 8, 8, 8, 2), random(3, 4, 8)
    B, n = (torch.export.Dim(name, min=2, max=64) for name in ("B", "n"))
    shapes = ({0: B, 1: n}, {0: B, 1: n}, {0: B, 1: n}, {0: B})
    arguments = (X, X, X, torch.tensor([3, 0, 4]))
    program = torch.export.export(layer, arguments, dynamic_shapes=shapes, strict=False).module()
    Z, lens = random(5, 7, 8), torch.tensor([1, 7, 0, 3, 9])
    assert_close(program(Z, Z, Z, lens), layer(Z, Z, Z, lens))


@pytest.mark.parametrize("lens", [*LENS, [3, 0, 4]], ids=[*LENGTHS, "list"])
def test_compile(lens):
    layer, X = make_layer(8, 8, 8, 8, 2), random(3, 4, 8)
    expected = layer(X, X, X, lens)
    torch.compiler.reset()
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    assert_close(compiled(X, X, X, lens), expected)
    assert layer.attention.attention_weights is None  # not those of the call before


def test_meta_device_checks_shapes_and_types_only():
    layer, X = make_layer(8, 8, 8, 8, 2).to("meta"), torch.zeros(3, 4, 8, device="meta")
    for lens in (None, torch.tensor([-1, 2, 3], device="meta"), [3, 0, 9]):  # moved if elsewhere
        Y = layer(X, X, X, lens)
        assert Y.is_meta and Y.shape == (3, 4, 8)
        assert layer.attention.attention_weights.shape == (6, 4, 4)
    with pytest.raises(ValueError, match="valid_lens"):
        layer(X, X, X, torch.tensor([1, 2], device="meta"))
    with pytest.raises(TypeError, match="valid_lens"):
        layer(X, X, X, torch.tensor([1.0, 2.0, 3.0], device="meta"))


# --- What is refused, and in which words ---

S, X8, X6 = torch.zeros(2, 3, 4), torch.zeros(2, 4, 8), torch.zeros(2, 4, 6)


def softmax(valid_lens, X=S):
    return lambda: d2l.masked_softmax(X, valid_lens)


def dot_product(*inputs):
    return lambda: d2l.DotProductAttention(0.0)(*inputs)


def heads(*inputs):
    return lambda: make_layer(8, 8, 8, 8, 2)(*inputs)


def construct(num_hiddens, num_heads):
    return lambda: d2l.MultiHeadAttention(8, 8, 8, num_hiddens, num_heads, 0.0)


REFUSED = {
    "batch": (softmax([3]), ValueError, "valid_lens (1,) (2,) (2, 3)"),
    "batch, tensor": (softmax(torch.tensor([3, 2, 1])), ValueError, "valid_lens (3,) (2,) (2, 3)"),
    "queries": (softmax([[1, 2], [3, 4]]), ValueError, "valid_lens (2, 2) (2, 3)"),
    "broadcast": (softmax([[1], [2]]), ValueError, "valid_lens (2, 1) (2, 3)"),
    "number": (softmax(3), ValueError, "valid_lens () (2,)"),
    "three axes": (softmax(torch.ones(2, 3, 4).long()), ValueError, "valid_lens (2, 3, 4)"),
    "negative": (softmax([3, -1]), ValueError, "valid_lens -1"),
    "negative, 2-D": (softmax([[1, 2, 3], [1, -7, 3]]), ValueError, "valid_lens -7"),
    "negative, int8": (softmax(torch.tensor([-2, 1]).to(torch.int8)), ValueError, "valid_lens -2"),
    "fractional": (softmax([1.5, 2.0]), TypeError, "valid_lens torch.float32"),
    "whole floats": (softmax(torch.tensor([1.0, 2.0])), TypeError, "valid_lens torch.float32"),
    "half": (softmax(torch.ones(2).half()), TypeError, "valid_lens torch.float16"),
    "boolean": (softmax([True, False]), TypeError, "valid_lens torch.bool"),
    "mask": (softmax(torch.ones(2, 3, dtype=bool)), TypeError, "valid_lens torch.bool"),
    "complex": (softmax(torch.ones(2) + 0j), TypeError, "valid_lens torch.complex64"),
    "complex128": (softmax(torch.ones(2).double() + 0j), TypeError, "valid_lens torch.complex128"),
    "uneven": (softmax([[1, 2, 3], [1]]), (TypeError, ValueError), "valid_lens"),
    "text": (softmax("ab"), (TypeError, ValueError), "valid_lens"),
    "missing length": (softmax([1, None]), (TypeError, ValueError), "valid_lens"),
    "whole scores": (softmax([2, 1], S.long()), TypeError, "X torch.int64"),
    "scores 2-D": (softmax(None, torch.zeros(3, 4)), ValueError, "X 3 (3, 4)"),
    "scores 4-D": (softmax([2], torch.zeros(1, 2, 3, 4)), ValueError, "X 3 (1, 2, 3, 4)"),
    "attention, lengths": (dot_product(X8, X8, X8, [3]), ValueError, "valid_lens (1,) (2,) (2, 4)"),
    "attention, floats": (dot_product(X8, X8, X8, [1.0, 2.0]), TypeError, "valid_lens float32"),
    "queries 2-D": (dot_product(X8[0], X8, X8), ValueError, "queries 3 (4, 8)"),
    "keys 4-D": (dot_product(X8, X8[None], X8), ValueError, "keys 3 (1, 2, 4, 8)"),
    "values 2-D": (dot_product(X8, X8, X8[0]), ValueError, "values 3 (4, 8)"),
    "batches": (dot_product(X8, X8[:1], X8), ValueError, "queries keys values 2, 1 and 2"),
    "a value short": (dot_product(X8, X8, X8[:, :3]), ValueError, "4 keys 3 values"),
    "widths": (dot_product(X8, X6, X8), ValueError, "queries 8 keys 6"),
    "heads, queries": (heads(X6, X8, X8), ValueError, "queries 6 8"),
    "heads, keys": (heads(X8, X6, X8), ValueError, "keys 6 8"),
    "heads, values": (heads(X8, X8, X6), ValueError, "values 6 8"),
    "heads, 2-D": (heads(X8[0], X8[0], X8[0]), ValueError, "queries 3 (4, 8)"),
    "heads, batches": (heads(X8, X8[:1], X8[:1]), ValueError, "queries keys values 2, 1 and 1"),
    "heads, values short": (heads(X8, X8, X8[:, :1]), ValueError, "4 keys 1 values"),
    "heads, lengths": (heads(X8, X8, X8, [3] * 4), ValueError, "valid_lens (4,) (2,) (2, 4)"),
    "heads, negative": (heads(X8, X8, X8, [3, -1]), ValueError, "valid_lens -1"),
    "heads, floats": (heads(X8, X8, X8, [3.0, 1.0]), TypeError, "valid_lens float32"),
    "10 in 3 heads": (construct(10, 3), ValueError, "num_hiddens=10 num_heads=3"),
    "10 in 0 heads": (construct(10, 0), ValueError, "num_hiddens=10 num_heads=0"),
    "10 in -2 heads": (construct(10, -2), ValueError, "num_hiddens=10 num_heads=-2"),
    "2 in 4 heads": (construct(2, 4), ValueError, "num_hiddens=2 num_heads=4"),
    "nothing": (construct(0, 1), ValueError, "num_hiddens=0 num_heads=1"),
    "cut in 3": (lambda: d2l.transpose_qkv(X8, 3), ValueError, "8 3 heads"),
    "cut in 0": (lambda: d2l.transpose_qkv(X8, 0), ValueError, "8 0 heads"),
    "join 3": (lambda: d2l.transpose_output(X8, 3), ValueError, "2 3 heads"),
    "join 0": (lambda: d2l.transpose_output(X8, 0), ValueError, "2 0 heads"),
    "unknown name": (lambda: d2l.pit, AttributeError, "d2l_local.torch pit"),
}


@pytest.mark.parametrize("call, error, words", REFUSED.values(), ids=REFUSED)
def test_refused(call, error, words):
    with pytest.raises(error) as raised:
        call()
    message = str(raised.value)
    for word in split_words(words):
        assert word in message, message
    assert "\n" not in message


def split_words(text):
    """The words in `text`; a shape in parentheses is one word."""
    while text:
        word, _, text = text.partition(") " if text.startswith("(") else " ")
        yield word + ")" if word.startswith("(") and not word.endswith(")") else word


def test_split_words():
    assert list(split_words("X (2, 3) () 4 (5,)")) == ["X", "(2, 3)", "()", "4", "(5,)"]


def test_weights_of_half_precision_are_finite_where_the_output_is():
    X = torch.full((1, 3, 64), 200.0, dtype=torch.float16)  # scores beyond 65504
    attention = d2l.DotProductAttention(0.0)
    assert attention(X, X, X).isfinite().all()
    weights = attention.attention_weights
    assert weights.dtype == torch.float16
    assert_close(weights, torch.full_like(weights, 1 / 3))


@pytest.mark.parametrize("transpose", [d2l.transpose_qkv, d2l.transpose_output])
@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 4, 6)])
def test_transposes_name_a_wrong_number_of_axes(transpose, shape):
    with pytest.raises(ValueError, match=f"3 axes.*{re.escape(str(shape))}"):
        transpose(torch.zeros(shape), 2)


# --- The import ---

IMPORT = """
import socket, sys

def refuse(*arguments, **names):
    raise AssertionError("the import asks the network")

socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
sys.modules["d2l"] = None  # an import of d2l would raise
import d2l_local
assert not hasattr(d2l_local, "plot")
from d2l_local import torch as d2l
d2l.DotProductAttention(0.0)(*[d2l.ones((1, 2, 3))] * 3, [1])
heavy = ["torchvision", "pandas", "requests", "matplotlib", "IPython", "PIL", "tensorflow"]
print(sorted(set(heavy) & set(sys.modules)), "torch" in sys.modules)
"""


def test_import_is_light(tmp_path):
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORT],
        cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=60,
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "[] True\n"


def test_aliases_are_those_of_torch():
    for name in ("tensor", "ones", "zeros", "arange"):
        assert getattr(d2l, name) is getattr(torch, name)
