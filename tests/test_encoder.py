"""The Transformer encoder of `d2l_local.torch` against d2l, a loop in NumPy, and wrong encoders."""

import copy
import inspect
import itertools
import math
from functools import cache

import pytest
import torch
from oracles import encode_slowly, encoder_kit
from torch import nn
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from d2l_local import torch as d2l

# How far an output, normalized to length √d, may be from the one in float64
TOLERANCES = {torch.float16: 2e-2, torch.bfloat16: 1.5e-1, torch.float32: 3e-6}
# Lengths for 3 sequences of 5 tokens; 9 is more than there are
LENGTHS = {
    "none": None,
    "1-D": [3, 1, 9],
    "2-D": [[1, 2, 3, 4, 5], [5, 9, 1, 2, 3], [5, 1, 4, 2, 2]],
}
each_length = pytest.mark.parametrize("valid_lens", LENGTHS.values(), ids=LENGTHS)
LAYERS = ["PositionWiseFFN", "AddNorm", "EncoderBlock", "TransformerEncoder"]
VOCAB = 11


def tokens(B=3, n=5, seed=0, vocab=VOCAB):
    return torch.randint(vocab, (B, n), generator=torch.Generator().manual_seed(seed))


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def as_lengths(valid_lens):
    return None if valid_lens is None else torch.tensor(valid_lens)


def make(kit=d2l, d=12, heads=3, layers=2, hidden=7, dropout=0.0, bias=False, shape=None):
    sizes = (d, d, d, d, [d] if shape is None else shape, d, hidden, heads, layers, dropout, bias)
    return kit.TransformerEncoder(VOCAB, *sizes)


@cache
def weights(**sizes):
    """A state_dict in which no norm and no bias is at its neutral value."""
    g = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(W.shape, generator=g) / W.shape[-1] ** 0.5 + name.endswith("ln.weight")
        for name, W in make(**sizes).state_dict().items()
    }


def made_with_weights(kit=d2l, dropout=0.0, **sizes):
    net = make(kit, dropout=dropout, **sizes)
    net.load_state_dict(weights(**sizes), strict=True)
    return net.eval()


def gap(got, right):
    assert got.shape == right.shape
    return (got.double() - right.double()).abs().max().item()


# --- The checks: each takes a kit of the four layers, and fails for some wrong kit ---


def check_output(kit, valid_lens=None, **sizes):
    """Of an encoder in float64, with the table of positions in float64 too."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        net = made_with_weights(kit, **sizes)
    finally:
        torch.set_default_dtype(default)
    heads = sizes.get("heads", 3)
    Y, A = encode_slowly(weights(**sizes), tokens(), heads, valid_lens)
    assert gap(net(tokens(), as_lengths(valid_lens)), Y) < 1e-12
    return net, A


def check_sizes(kit):
    for d, heads, layers, hidden in ((1, 1, 1, 1), (4, 4, 1, 9), (15, 5, 3, 2)):
        check_output(kit, [3, 1, 9], d=d, heads=heads, layers=layers, hidden=hidden)


def check_weights(kit):
    net, right = check_output(kit, [3, 1, 9])
    found = net.attention_weights
    assert len(found) == len(right) == 2
    assert all(gap(A, B) < 1e-12 for A, B in zip(found, right, strict=True))


def check_start(kit):
    """The embedding is a sample of N(0, 1/d): mean, spread and the share within one deviation."""
    for d in (16, 64):
        torch.manual_seed(0)
        net = kit.TransformerEncoder(2000, d, d, d, d, [d], d, 8, 1, 1, 0.0)
        Z = net.embedding.weight.detach() * math.sqrt(d)
        assert abs(Z.mean()) < 0.02 and abs(Z.std() - 1) < 0.02
        assert abs((Z.abs() < 1).double().mean() - 0.6827) < 0.02


def check_dropout(kit):
    """Entries of Y alone are missing in training, and of attention, in evaluation none."""
    layer, X, Y = kit.AddNorm(8, 0.5), random(4, 50, 8), random(4, 50, 8, seed=1)
    layer.ln = nn.Identity()
    torch.manual_seed(0)
    added = layer(X, Y) - X
    lost = added.abs() < 1e-6
    assert 0.4 < lost.double().mean() < 0.6
    assert gap(added, (2 * Y).masked_fill(lost, 0)) < 1e-5
    net = made_with_weights(kit, dropout=0.5)
    assert torch.equal(net(tokens(), None), made_with_weights(kit)(tokens(), None))
    assert not torch.equal(net.train()(tokens(), None), net(tokens(), None))


class Largest(TorchDispatchMode):
    """The number of tensors with two axes of `n` that operations make."""

    def __init__(self, n):
        super().__init__()
        self.n, self.squares = n, 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        results = function(*arguments, **keywords or {})
        for result in results if isinstance(results, (tuple, list)) else (results,):
            if isinstance(result, torch.Tensor):
                self.squares += list(result.shape).count(self.n) >= 2
        return results


def check_memory(kit):
    """A forward makes no n×n tensor, with or without a gradient; to read the weights does."""
    net, X = made_with_weights(kit), tokens(n=83)
    for lens, grad in itertools.product((None, torch.tensor([80, 3, 83])), (True, False)):
        with torch.set_grad_enabled(grad), Largest(83) as made:
            net(X, lens)
        assert made.squares == 0
    with Largest(83) as made:
        assert [A.shape for A in net.attention_weights] == [(9, 83, 83)] * 2
    assert made.squares > 0


def check_arguments(kit):
    """What is given in stays as it was; another shape of Y is refused."""
    layer, X, Y = kit.AddNorm(8, 0.0), random(2, 3, 8), random(2, 3, 8, seed=1)
    before = X.clone(), Y.clone()
    layer(X, Y)
    assert torch.equal(X, before[0]) and torch.equal(Y, before[1])
    try:
        layer(X, Y[:1])
    except ValueError:
        return
    raise AssertionError("one sequence was added to two")


CHECKS = {
    "no lengths": check_output,
    "lengths": lambda kit: check_output(kit, LENGTHS["1-D"]),
    "query lengths": lambda kit: check_output(kit, LENGTHS["2-D"]),
    "bias": lambda kit: check_output(kit, LENGTHS["1-D"], bias=True),
    "one block": lambda kit: check_output(kit, layers=1),
    "sizes": check_sizes,
    "weights": check_weights,
    "start": check_start,
    "dropout": check_dropout,
    "memory": check_memory,
    "arguments": check_arguments,
}


def problems(kit):
    """The names of the checks that a kit does not pass."""
    found = []
    for name, check in CHECKS.items():
        try:
            check(kit)
        except (AssertionError, RuntimeError):  # torch refuses some wrong steps itself
            found.append(name)
    return found


# --- Every check fails for some wrong kit, and passes for the right ones ---

EVERY_OUTPUT = ["no lengths", "lengths", "query lengths", "bias", "one block", "sizes", "weights"]
FROM_BLOCK_TO_BLOCK = [name for name in EVERY_OUTPUT if name != "one block"]
WITH_LENGTHS = ["lengths", "query lengths", "bias", "sizes", "weights"]
CAUGHT_BY = {
    "no ReLU": EVERY_OUTPUT,
    "GELU": EVERY_OUTPUT,
    "ReLU of both": EVERY_OUTPUT,
    "norm before the sum": EVERY_OUTPUT,
    "no residual": [*EVERY_OUTPUT, "dropout"],
    "no norm": EVERY_OUTPUT,
    "another eps": EVERY_OUTPUT,
    "one norm for both": EVERY_OUTPUT,
    "pre-norm": EVERY_OUTPUT,
    "second sum from the input": EVERY_OUTPUT,
    "network before attention": EVERY_OUTPUT,
    "√d missing": EVERY_OUTPUT,
    "√d twice": EVERY_OUTPUT,
    "√d after the sum": EVERY_OUTPUT,
    "no positions": EVERY_OUTPUT,
    "positions in each block": FROM_BLOCK_TO_BLOCK,
    "one block used twice": FROM_BLOCK_TO_BLOCK,
    "mask forgotten": WITH_LENGTHS,
    "mask in the first block only": WITH_LENGTHS,
    "bias forgotten": ["bias"],
    "weights of the last block": ["weights", "memory"],
    "weights in the forward": ["memory"],
    "embedding of N(0, 1)": ["start"],
    "embedding of N(0, 1/d²)": ["start"],
    "dropout at evaluation": ["dropout"],
    "dropout of the sum": ["dropout"],
    "no dropout": ["dropout"],
    "in place": ["dropout", "arguments"],
    "broadcasts the sum": ["arguments"],
}


@pytest.mark.parametrize("kit", [d2l, encoder_kit(d2l)], ids=["d2l_local", "textbook"])
def test_right_layers_have_no_problem(kit):
    assert problems(kit) == []


@pytest.mark.parametrize("mistake", CAUGHT_BY)
def test_mistake_is_caught(mistake):
    assert problems(encoder_kit(d2l, mistake)) == CAUGHT_BY[mistake]


def test_no_check_is_idle():
    assert {name for names in CAUGHT_BY.values() for name in names} == set(CHECKS)


# --- The original ---

PAIR = {"d": 12, "heads": 3}
SIZES = {
    "two blocks": PAIR,
    "bias": {**PAIR, "bias": True},
    "one head, three blocks": {"d": 10, "heads": 1, "layers": 3, "hidden": 1},
    "five narrow heads": {"d": 10, "heads": 5, "layers": 1, "hidden": 33},
    "norm over tokens and width": {**PAIR, "shape": (5, 12)},  # as D2L's own example has it
}
each_size = pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)


@each_length
@each_size
def test_weights_of_the_original_give_its_output(sizes, valid_lens, original):
    """In evaluation with dropout, and in training without."""
    for dropout, training in ((0.5, False), (0.0, True)):
        theirs, ours = (make(kit, dropout=dropout, **sizes) for kit in (original, d2l))
        ours.load_state_dict(theirs.state_dict(), strict=True)
        lens = as_lengths(valid_lens)
        right = theirs.train(training)(tokens(), lens)
        assert gap(ours.train(training)(tokens(), lens), right) < 3e-6
        assert len(ours.attention_weights) == len(theirs.attention_weights) >= 1
        for ours_of_block, theirs_of_block in zip(
            ours.attention_weights, theirs.attention_weights, strict=True
        ):
            assert ours_of_block.shape == (3 * sizes["heads"], 5, 5)
            assert gap(ours_of_block, theirs_of_block) < 1e-6


@each_size
def test_weights_of_ours_load_into_the_original(sizes, original):
    ours, theirs = made_with_weights(**sizes), make(original, **sizes).eval()
    theirs.load_state_dict(ours.state_dict(), strict=True)
    assert gap(theirs(tokens(), None), ours(tokens())) < 3e-6


@pytest.mark.parametrize("name", LAYERS)
def test_arguments_are_those_of_the_original(name, original):
    def names(call):
        return [name for name in inspect.signature(call).parameters if name != "kwargs"]

    ours, theirs = getattr(d2l, name), getattr(original, name)
    assert names(ours) == names(theirs) and names(ours.forward) == names(theirs.forward)


def test_the_original_starts_larger_and_makes_the_weights_at_once(original):
    """And leaves all else to torch: the other problems are those of its positions and attention."""
    assert {"start", "memory"} <= set(problems(original))


def test_parts_against_the_original(original):
    X, Y = random(2, 3, 4), random(2, 3, 4, seed=1)
    ours, theirs = (kit.PositionWiseFFN(4, 7, 5) for kit in (d2l, original))
    ours.load_state_dict(theirs.state_dict(), strict=True)
    assert torch.equal(ours(X), theirs(X)) and ours(X).shape == (2, 3, 5)
    for shape in (4, [4], [3, 4], torch.Size([2, 3, 4])):
        assert torch.equal(d2l.AddNorm(shape, 0.0)(X, Y), original.AddNorm(shape, 0.0)(X, Y))


# --- What an encoder can and cannot see ---


def test_padding_cannot_be_seen():
    net, X, lens = made_with_weights(), tokens(), torch.tensor([3, 1, 5])
    real = torch.arange(5) < lens[:, None]
    other = torch.where(real, X, (X + 1) % VOCAB)
    before, after = net(X, lens), net(other, lens)
    assert torch.equal(before[real], after[real])
    assert gap(before[~real], after[~real]) > 0.1


def test_without_positions_the_order_of_tokens_is_not_seen():
    net, X = made_with_weights().double(), tokens()
    orders = [torch.randperm(5, generator=torch.Generator().manual_seed(s)) for s in range(9)]
    sighted = [gap(net(X[:, order]), net(X)[:, order]) for order in orders]
    net.pos_encoding = nn.Identity()
    blind = [gap(net(X[:, order]), net(X)[:, order]) for order in orders]
    assert max(blind) < 1e-12 and min(sighted) > 0.1


def test_every_parameter_learns():
    net = made_with_weights(bias=True).train()
    (net(tokens(), torch.tensor([3, 1, 5])) * random(3, 5, 12)).sum().backward()
    for name, W in net.named_parameters():
        # a number added to each key changes no weight: the softmax takes it out
        silent = name.endswith("W_k.bias")
        assert W.grad.isfinite().all() and (W.grad.abs().max() < 1e-4) == silent, name


TOKEN_TYPES = [torch.uint8, torch.uint16, torch.uint32, torch.int16, torch.int32, torch.int64]


@pytest.mark.parametrize("dtype", TOKEN_TYPES, ids=str)
def test_types_of_tokens(dtype):
    net = made_with_weights()
    assert torch.equal(net(tokens().to(dtype)), net(tokens()))


@pytest.mark.parametrize("B, n", [(1, 1), (0, 4), (1, 1000)])
def test_few_and_many_tokens(B, n):
    assert made_with_weights()(tokens(B, n)).shape == (B, n, 12)


def test_lengths_may_be_left_out_and_further_arguments_are_ignored():
    net, X = made_with_weights(), tokens()
    assert torch.equal(net(X), net(X, None)) and torch.equal(net(X, None, "state"), net(X))


# --- The attention weights ---


def test_weights_are_none_before_a_call_and_detached_after():
    net = made_with_weights()
    assert net.attention_weights == [None, None]
    net(tokens())
    assert not any(A.requires_grad for A in net.attention_weights)


def test_weights_are_those_of_the_last_call():
    net, lens = made_with_weights(), torch.tensor([3, 1, 5])
    net(tokens(seed=1))
    net(tokens(), lens)
    lens.zero_()
    right = encode_slowly(weights(), tokens(), 3, [3, 1, 5])[1]
    assert max(map(gap, net.attention_weights, right)) < 1e-6
    assert (net.attention_weights[0].sum(-1) - 1).abs().max() < 1e-6


# --- Types ---


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_types(dtype):
    net = made_with_weights().to(dtype)
    Y, A = encode_slowly(net.state_dict(), tokens(), 3, LENGTHS["1-D"])
    got = net(tokens(), as_lengths(LENGTHS["1-D"]))
    assert got.dtype == dtype and gap(got, Y) < TOLERANCES[dtype]
    assert all(weights.dtype == dtype for weights in net.attention_weights)
    assert max(map(gap, net.attention_weights, A)) < TOLERANCES[dtype]
    got.sum().backward()
    assert all(W.grad.isfinite().all() for W in net.parameters())


def test_autocast():
    net, lens = made_with_weights(), as_lengths(LENGTHS["1-D"])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = net(tokens(), lens)
    right = encode_slowly(weights(), tokens(), 3, LENGTHS["1-D"])[0]
    assert gap(got, right) < TOLERANCES[torch.bfloat16]
    got.float().sum().backward()
    assert all(W.grad.isfinite().all() for W in net.parameters())


def test_meta_device_checks_shapes_and_types():
    net = make().to("meta")
    X = torch.zeros(2, 7, dtype=torch.long, device="meta")
    assert net(X, [3, 7]).is_meta and net(X).shape == (2, 7, 12)
    assert [A.shape for A in net.attention_weights] == [(6, 7, 7)] * 2
    with pytest.raises(ValueError, match="valid_lens"):
        net(X, [1, 2, 3])
    with pytest.raises(TypeError, match="integers"):
        net(X.float())


# --- Copying, saving, tracing ---


@each_length
def test_copy_and_save_after_a_call(valid_lens, tmp_path):
    net, lens = made_with_weights(dropout=0.5), as_lengths(valid_lens)
    Y = net(tokens(), lens)
    torch.save(net, tmp_path / "net.pt")
    torch.save(net.state_dict(), tmp_path / "state.pt")
    fresh = make().eval()
    fresh.load_state_dict(torch.load(tmp_path / "state.pt"), strict=True)
    assert torch.equal(fresh(tokens(), lens), Y)
    for copied in (copy.deepcopy(net), torch.load(tmp_path / "net.pt", weights_only=False)):
        assert all(map(torch.equal, copied.attention_weights, net.attention_weights))
        assert torch.equal(copied(tokens(), lens), Y)
        with torch.no_grad():
            copied.blks.block0.ffn.dense1.weight.zero_()
    assert torch.equal(net(tokens(), lens), Y)


@each_length
def test_export(valid_lens):
    net, lens = made_with_weights(), as_lengths(valid_lens)
    program = torch.export.export(net, (tokens(seed=1), lens), strict=False).module()
    assert_close(program(tokens(), lens), net(tokens(), lens))


def test_export_for_any_batch_and_length():
    net = made_with_weights()
    B, n = (torch.export.Dim(name, min=2, max=64) for name in ("B", "n"))
    shapes = ({0: B, 1: n}, {0: B})
    arguments = (tokens(), torch.tensor([3, 1, 5]))
    program = torch.export.export(net, arguments, dynamic_shapes=shapes, strict=False).module()
    X, lens = tokens(4, 9), torch.tensor([1, 9, 2, 3])
    assert_close(program(X, lens), net(X, lens))


@each_length
def test_compile(valid_lens):
    net, lens = made_with_weights(), as_lengths(valid_lens)
    right = net(tokens(), lens)
    torch.compiler.reset()
    compiled = torch.compile(net, backend="eager", fullgraph=True)
    assert_close(compiled(tokens(), lens), right)
    assert net.attention_weights == [None, None]  # not those of the call before


# --- What is refused, and in which words ---


def encode(X, *lens, **sizes):
    return lambda: make(**sizes)(X, *lens)


def construct(**changed):
    names = list(inspect.signature(d2l.TransformerEncoder).parameters)
    sizes = dict(zip(names, (VOCAB, 12, 12, 12, 12, [12], 12, 7, 3, 2, 0.0), strict=False))
    return lambda: d2l.TransformerEncoder(**sizes | changed)


def add(*shapes):
    return lambda: d2l.AddNorm(4, 0.0)(*map(torch.zeros, shapes))


X = tokens()
SHORT = torch.zeros(2, 3, 4)
REFUSED = {
    "floats": (encode(X.float()), TypeError, "integers", "float32"),
    "half": (encode(X.half()), TypeError, "integers", "float16"),
    "boolean": (encode(X > 3), TypeError, "integers", "bool"),
    "complex": (encode(X + 0j), TypeError, "integers", "complex64"),
    "list": (encode([[1, 2]]), TypeError, "tensor", "list"),
    "text": (encode("to be"), TypeError, "tensor", "str"),
    "one sequence": (encode(X[0]), ValueError, "2 axes", "(5,)"),
    "embedded": (encode(X[..., None]), ValueError, "2 axes", "(3, 5, 1)"),
    "token too large": (encode(X + VOCAB), ValueError, "0 to 10", "vocab_size=11"),
    "one token too large": (encode(X.clone().fill_(VOCAB)), ValueError, "vocab_size=11", "11"),
    "negative token": (encode(X - VOCAB), ValueError, "0 to 10", "vocab_size=11"),
    "token -1": (encode(torch.tensor([[0, -1]])), ValueError, "vocab_size=11", "-1"),
    "too long": (encode(tokens(1, 1001)), ValueError, "1001 positions", "max_len=1000"),
    "lengths": (encode(X, [3, 1]), ValueError, "valid_lens", "(2,)", "(3,)"),
    "negative length": (encode(X, [3, -1, 2]), ValueError, "valid_lens", "-1"),
    "fractional length": (encode(X, [3.0, 1.0, 2.0]), TypeError, "valid_lens", "float32"),
    "key_size": (construct(key_size=6), ValueError, "key_size", "6", "12"),
    "query_size": (construct(query_size=6), ValueError, "query_size", "6", "12"),
    "value_size": (construct(value_size=6), ValueError, "value_size", "6", "12"),
    "norm_shape": (construct(norm_shape=[6]), ValueError, "norm_shape", "6", "12"),
    "norm_shape 1": (construct(norm_shape=1), ValueError, "norm_shape", "1", "12"),
    "ffn_num_input": (construct(ffn_num_input=6), ValueError, "ffn_num_input", "6", "12"),
    "num_hiddens": (construct(num_hiddens=6), ValueError, "num_hiddens=6", "12"),
    "heads": (construct(num_heads=5), ValueError, "num_hiddens=12", "num_heads=5"),
    "no head": (construct(num_heads=0), ValueError, "num_heads=0"),
    "no block": (construct(num_layers=0), ValueError, "num_layers", "0"),
    "blocks -1": (construct(num_layers=-1), ValueError, "num_layers", "-1"),
    "no width": (construct(num_hiddens=0), ValueError, "num_hiddens must be 1 or more", "0"),
    "width -4": (construct(num_hiddens=-4), ValueError, "num_hiddens must be 1 or more", "-4"),
    "uint16": (encode((X + VOCAB).to(torch.uint16)), ValueError, "0 to 10", "vocab_size=11"),
    "no token": (construct(vocab_size=0), ValueError, "vocab_size", "0"),
    "dropout": (construct(dropout=1.5), ValueError, "dropout", "1.5"),
    "add, one token": (add((2, 3, 4), (2, 1, 4)), ValueError, "(2, 3, 4)", "(2, 1, 4)"),
    "add, one sequence": (add((1, 3, 4), (2, 3, 4)), ValueError, "(1, 3, 4)", "(2, 3, 4)"),
    "add, width 1": (add((2, 3, 4), (2, 3, 1)), ValueError, "(2, 3, 4)", "(2, 3, 1)"),
    "add, an axis less": (add((2, 3, 4), (3, 4)), ValueError, "(2, 3, 4)", "(3, 4)"),
}


@pytest.mark.parametrize(
    "call, error, words", [(call, error, words) for call, error, *words in REFUSED.values()],
    ids=REFUSED,
)  # fmt: skip
def test_refused(call, error, words):
    with pytest.raises(error) as raised:
        call()
    message = str(raised.value)
    assert all(word in message for word in words) and "\n" not in message, message


def test_tokens_are_unchanged():
    net, X, lens = made_with_weights(dropout=0.5).train(), tokens(), torch.tensor([3, 1, 5])
    for _ in range(2):
        net(X, lens)
    assert torch.equal(X, tokens()) and lens.tolist() == [3, 1, 5]


def test_patches_in_place_of_tokens():
    """Where a linear layer stands in for the table, what goes in is not taken for tokens."""
    net = made_with_weights()
    net.embedding = nn.Linear(4, 12)
    assert net(random(2, 5, 4)).shape == (2, 5, 12)
