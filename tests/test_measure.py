"""The models that `python -m tools.measure encoder` trains, and the file it wrote."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from d2l_local import torch as d2l
from tools import measure
from tools.notebooks import ROOT


def test_each_stored_file_can_be_made_anew_by_its_name():
    files = {path.stem for path in (ROOT / "chapters" / "data").glob("*.json")}
    files.remove("frameworks")  # which the runs of the frameworks' tests store
    assert files == set(measure.STORED)


def test_a_pre_norm_block_normalizes_what_goes_into_each_part():
    torch.manual_seed(0)
    block = measure.PreNormBlock(6, 6, 6, 6, [6], 6, 12, 2, 0.0)
    X = 3 + 5 * torch.randn(2, 7, 6)
    Z = F.layer_norm(X, [6])
    Y = X + block.attention(Z, Z, Z)
    torch.testing.assert_close(block(X), Y + block.ffn(F.layer_norm(Y, [6])))
    assert (block(X) - d2l.EncoderBlock.forward(block, X)).abs().max() > 1


@pytest.mark.parametrize("norm, block", [("post", d2l.EncoderBlock), ("pre", measure.PreNormBlock)])
@pytest.mark.parametrize("std, factor", [(1, 1), (1, 8), (0.125, 1), (0.125, 8)])
def test_a_scaled_model_has_its_start_and_its_factor(norm, block, std, factor):
    torch.manual_seed(0)
    net = measure.scaled_model(10, norm, std, factor)
    seen = []
    net.encoder.pos_encoding.register_forward_pre_hook(lambda layer, X: seen.append(X[0]))
    X = torch.arange(10)[None]
    assert net(X).shape == (1, 10, 10) and type(net.encoder.blks[0]) is block
    weight = net.encoder.embedding.weight
    assert abs(weight.std().item() / std - 1) < 0.1
    torch.testing.assert_close(seen[0], factor * weight[None])


def test_positions_beside_the_tokens_take_columns_of_their_own():
    net = measure.joined_model(8)
    X = torch.randint(10, (3, 16))
    found = []
    net.encoder.pos_encoding.register_forward_hook(lambda layer, X, Y: found.append(Y))
    assert net(X).shape == (3, 16, 10)
    table = d2l.position_table(16, 8).float()
    torch.testing.assert_close(found[0][..., :24], net.encoder.embedding(X) * 32**0.5)
    torch.testing.assert_close(found[0][..., 24:], table.expand(3, -1, -1))
    assert isinstance(measure.joined_model(0).encoder.pos_encoding, d2l.PositionalEncoding)


def test_the_base_changes_every_clock_but_the_first():
    usual, other = (measure.sinusoid(40, 8, base) for base in (10_000, 100))
    torch.testing.assert_close(usual, d2l.position_table(40, 8))
    assert torch.equal(usual[:, :2], other[:, :2])
    assert all((usual[:, j] - other[:, j]).abs().max() > 0.1 for j in range(2, 8))
    torch.testing.assert_close(other[:, 4], (torch.arange(40).double() / 10).sin())


OPTIONS = {
    "heads": lambda net: net.encoder.blks[0].attention.num_heads,
    "width": lambda net: net.encoder.num_hiddens,
    "dropout": lambda net: net.encoder.blks[0].addnorm1.dropout.p,
    "max_len": lambda net: len(net.encoder.pos_encoding.P),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_sweep_sets_its_option(name):
    for value in measure.SWEEPS[name]:
        assert OPTIONS[name](measure.tuned_model(name, value)) == value


def test_the_sweep_of_the_base_sets_the_table():
    for base in measure.SWEEPS["base"]:
        P = measure.tuned_model("base", base).encoder.pos_encoding.P[0]
        torch.testing.assert_close(P, measure.sinusoid(*P.shape, base).float())


def same_start():
    torch.manual_seed(0)
    return measure.joined_model(0)


@pytest.mark.parametrize("make", [lambda: measure.joined_model(0), same_start])
def test_each_seed_gives_another_start_and_other_batches_and_the_same_again(make):
    def outputs():
        X = torch.arange(10)[None]
        return [net(X) for net in measure.nets(make, d2l.reversal, steps=2)]

    first, again = outputs(), outputs()
    assert len(first) == len(measure.SEEDS) == 3
    assert all((a - b).abs().max() < 1e-5 for a, b in zip(first, again, strict=True))
    assert all((a - b).abs().max() > 0.01 for a, b in itertools.combinations(first, 2))


@pytest.fixture(scope="module")
def stored():
    return d2l.read_data("encoder")


def test_the_stored_file_holds_what_would_be_measured(stored):
    assert stored["seeds"] == list(measure.SEEDS)
    sweeps = stored["tuning"]
    assert {name: tuple(row["value"] for row in rows) for name, rows in sweeps.items()} == (
        measure.SWEEPS)
    runs = stored["scale"]["runs"]
    short = {(r["task"], r["norm"], r["std"], r["factor"]) for r in runs
             if r["steps"] == measure.STEPS}
    tasks, norms = ("reversal", "counting"), ("post", "pre")
    assert short == set(itertools.product(tasks, norms, (1, 0.125), (1, 8)))
    assert sum(r["steps"] == measure.LONG for r in runs) == 4 == len(runs) - 16
    for row in [*runs, *stored["join"], *itertools.chain(*sweeps.values())]:
        assert len(row["accuracy"]) == 3 and all(0 <= share <= 1 for share in row["accuracy"])


def test_a_stored_run_comes_out_again(stored):
    row = next(r for r in stored["join"] if (r["beside"], r["steps"]) == (0, 50))
    net = next(measure.nets(lambda: measure.joined_model(0), d2l.reversal, 50))
    assert abs(d2l.accuracy(net, *measure.fresh(d2l.reversal)) - row["accuracy"][0]) < 0.04


def test_stored_parameters_are_those_of_the_models(stored):
    for name, rows in stored["tuning"].items():
        for row in rows:
            net = measure.tuned_model(name, row["value"])
            assert row["parameters"] == sum(p.numel() for p in net.parameters())
