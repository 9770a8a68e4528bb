"""What trains the encoder: the small model, the loop, the tasks, and the digits."""

import pytest
import torch
from torch import nn

from d2l_local import torch as d2l


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


# --- Tasks, against loops over their tokens ---


def first_marker(tokens):
    return [int(tokens.index(1) < tokens.index(0))]


def others_that_are_equal(tokens):
    return [sum(other == token for other in tokens) - 1 for token in tokens]


TASKS = {
    "markers": (d2l.markers, first_marker, range(12)),
    "reversal": (d2l.reversal, lambda tokens: tokens[::-1], range(10)),
    "counting": (d2l.counting, others_that_are_equal, range(10)),
}


@pytest.mark.parametrize("n", [2, 7, 16])
@pytest.mark.parametrize("name", TASKS)
def test_task(name, n):
    task, answer, kinds = TASKS[name]
    X, y = task(generator(), B=200, n=n)
    assert X.shape == (200, n) and set(X.flatten().tolist()) <= set(kinds)
    assert y.view(200, -1).tolist() == [answer(tokens) for tokens in X.tolist()]
    again = task(generator(), B=200, n=n)
    assert torch.equal(again[0], X) and not torch.equal(task(generator(1), B=200, n=n)[0], X)


def test_markers_stand_anywhere_and_either_comes_first():
    X, y = d2l.markers(generator(), B=4000, n=5)
    assert (X == 0).sum(1).tolist() == (X == 1).sum(1).tolist() == [1] * 4000
    for marker in (0, 1):
        assert ((X == marker).double().mean(0) - 1 / 5).abs().max() < 0.04
    assert abs(y.double().mean() - 1 / 2) < 0.04


# --- The model ---


def test_positions():
    X = torch.randint(12, (3, 8), generator=generator())
    torch.manual_seed(0)
    kinds = ("none", "sinusoid", "learned")
    nets = {kind: d2l.EncoderWithHead(12, 5, positions=kind) for kind in kinds}
    for kind, net in nets.items():
        blind = torch.allclose(net(X.flip(1)).flip(1), net(X), atol=1e-5)
        assert net(X).shape == (3, 8, 5) and blind == (kind == "none")
    counts = {kind: sum(p.numel() for p in net.parameters()) for kind, net in nets.items()}
    assert counts["none"] == counts["sinusoid"] == counts["learned"] - 64 * 32
    with pytest.raises(ValueError, match="positions must be .* not 'sine'"):
        d2l.EncoderWithHead(12, 5, positions="sine")


def test_learned_rows_begin_as_long_as_the_sinusoid():
    table = d2l.LearnedTable(256, max_len=200)
    X = torch.randn(2, 9, 256)
    torch.testing.assert_close(table(X), torch.stack([x + table.P[:9] for x in X]))
    assert abs(table.P.square().sum(1).mean() - 128) < 4  # |p|² = d/2


@pytest.mark.parametrize("shape", [(2, 4, 8), (2, 3, 1), (3, 8), (1, 2, 3, 8)])
def test_learned_table_refuses_another_shape(shape):
    with pytest.raises(ValueError, match="up to 3 tokens, 8.*" + str(shape[-1])):
        d2l.LearnedTable(8, max_len=3)(torch.randn(shape))


def test_pool_is_the_mean_over_tokens():
    net = d2l.EncoderWithHead(12, 5, pool=True)
    X = torch.randint(12, (3, 8), generator=generator())
    torch.testing.assert_close(net(X), net.head(net.encoder(X).sum(1) / 8))


def test_pool_of_no_tokens_is_refused():
    X = torch.zeros(2, 0, dtype=torch.long)
    assert d2l.EncoderWithHead(12, 5)(X).shape == (2, 0, 5)
    with pytest.raises(ValueError, match=r"mean over tokens.*\(2, 0\)"):
        d2l.EncoderWithHead(12, 5, pool=True)(X)


# --- Training ---


def test_training_is_that_of_its_seed_and_leaves_other_draws_alone():
    def losses(seed):
        torch.manual_seed(7)
        net = d2l.EncoderWithHead(10, 10, num_hiddens=8)
        before, state = [p.clone() for p in net.parameters()], torch.get_rng_state()
        found = d2l.train(net, d2l.reversal, 5, seed=seed)
        assert torch.equal(torch.get_rng_state(), state)
        assert all((p != q).any() for p, q in zip(net.parameters(), before, strict=True))
        return found

    assert len(losses(1)) == 5 and losses(1) == losses(1) != losses(2)


def test_trained_is_a_model_of_its_seed_after_training():
    X, y = d2l.reversal(generator(9))
    one, same, other = (d2l.trained(d2l.reversal, (10, 10), seed, steps=3) for seed in (0, 0, 1))
    torch.testing.assert_close(one(X), same(X))
    assert not torch.allclose(one(X), other(X), atol=1e-3)
    torch.manual_seed(0)
    assert not torch.allclose(one(X), d2l.EncoderWithHead(10, 10)(X), atol=1e-3)


@pytest.mark.parametrize("training", [True, False])
def test_accuracy_is_without_dropout_and_leaves_the_mode(training):
    net = d2l.EncoderWithHead(10, 10, dropout=0.5).train(training)
    X, y = d2l.reversal(generator())
    share = d2l.accuracy(net, X, y)
    assert net.training == net.encoder.training == training
    right = (net.eval()(X).argmax(-1) == y).sum().item()
    assert share == pytest.approx(right / y.numel(), abs=1e-12)


@pytest.mark.parametrize("shape", [(4,), (4, 1), (1, 5), (5, 4), (4, 5, 10), ()], ids=str)
def test_classes_in_another_shape_are_refused(shape):
    """Also shapes that would broadcast, or hold as many classes in another order."""
    net, X = d2l.EncoderWithHead(10, 10), torch.randint(10, (4, 5), generator=generator())
    before, y = net.head.weight.clone(), torch.zeros(shape, dtype=torch.long)
    for use in (lambda: d2l.accuracy(net, X, y), lambda: d2l.train(net, lambda g: (X, y), 1)):
        with pytest.raises(ValueError) as raised:
            use()
        assert "answers (4, 5)" in str(raised.value) and str(shape) in str(raised.value)
    assert torch.equal(net.head.weight, before)


def test_no_answers_give_no_accuracy_and_no_loss():
    net, X = d2l.EncoderWithHead(10, 10), torch.zeros(0, 5, dtype=torch.long)
    for use in (lambda: d2l.accuracy(net, X, X), lambda: d2l.train(net, lambda g: (X, X), 1)):
        with pytest.raises(ValueError, match="at least one"):
            use()


def test_training_stops_before_a_loss_that_is_no_number_reaches_the_model():
    X, y = torch.rand(4, 16, 4), torch.arange(4)
    for bad in ((X * torch.nan, y), (X, y * 0 - 100)):  # -100: left out by cross_entropy
        net = d2l.DigitsModel()
        with pytest.raises(ValueError, match="loss is nan after 2 steps"):
            batches = iter([(X, y), (X, y), bad])
            d2l.train(net, lambda g: next(batches), 3)  # noqa: B023
        assert all(W.isfinite().all() for W in net.parameters())


def test_accuracy_leaves_the_mode_when_the_model_refuses():
    net = d2l.EncoderWithHead(10, 10).train()
    with pytest.raises(ValueError, match="tokens"):
        d2l.accuracy(net, torch.full((2, 3), 10), torch.zeros(2, 3))
    assert net.training and net.encoder.training


def test_training_uses_dropout():
    """Also where the model was put in evaluation before."""
    net = d2l.EncoderWithHead(10, 10, dropout=0.5).eval()
    _ = d2l.train(net, d2l.reversal, 1)
    assert net.training


@pytest.mark.parametrize("positions, more", [("none", 0), ("sinusoid", 0), ("learned", 64 * 8)])
@pytest.mark.parametrize("pool", [False, True])
def test_shapes_and_parameters_of_the_small_model(positions, more, pool):
    net = d2l.EncoderWithHead(7, 5, pool, positions, num_hiddens=8, num_heads=2, num_layers=3)
    block = 4 * 8 * 8 + 2 * 2 * 8 + (8 * 16 + 16) + (16 * 8 + 8)
    assert sum(W.numel() for W in net.parameters()) == 7 * 8 + 3 * block + (8 * 5 + 5) + more
    Y = net(torch.randint(7, (3, 6), generator=generator()))
    assert Y.shape == ((3, 5) if pool else (3, 6, 5))


def test_a_mirrored_pair_gets_one_answer_without_positions():
    torch.manual_seed(0)
    X, y = d2l.markers(generator(), B=200)
    for positions, differ in (("none", 0), ("learned", 1)):
        net = d2l.EncoderWithHead(12, 2, pool=True, positions=positions).double()
        gap_of_pair = (net(X) - net(X.flip(1))).abs().max()
        assert (gap_of_pair > 1e-3) if differ else (gap_of_pair < 1e-12)
        right = d2l.accuracy(net, torch.cat([X, X.flip(1)]), torch.cat([y, 1 - y]))
        assert differ or right == 0.5


def test_training_is_adam_on_the_cross_entropy():
    """The same steps in a loop of our own, with the batches of the seed."""
    nets = []
    for _ in range(2):
        torch.manual_seed(3)
        nets.append(d2l.EncoderWithHead(10, 10, num_hiddens=8))
    losses = d2l.train(nets[0].eval(), d2l.reversal, 4, lr=1e-2, seed=5)
    g, optimizer = generator(5), torch.optim.Adam(nets[1].parameters(), 1e-2)
    for loss in losses:
        X, y = d2l.reversal(g)
        scores = nets[1](X).log_softmax(-1)
        mine = -scores.gather(2, y[..., None]).mean()
        optimizer.zero_grad()
        mine.backward()
        optimizer.step()
        assert abs(loss - mine.item()) < 1e-5
    for ours, mine in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        torch.testing.assert_close(ours, mine, rtol=0, atol=1e-4)
    assert nets[0].training


# --- Digits ---


def test_digits_are_those_of_their_authors():
    """The numbers of each class, and the first image, as scikit-learn's pages print them."""
    images, labels = d2l.read_digits()
    assert images.shape == (1797, 8, 8) and images.dtype == torch.float32
    assert labels.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    pixels = 16 * images
    assert torch.equal(pixels, pixels.round()) and (pixels.min(), pixels.max()) == (0, 16)
    assert pixels[0, :3].tolist() == [
        [0, 0, 5, 13, 9, 1, 0, 0],
        [0, 0, 13, 15, 10, 15, 5, 0],
        [0, 3, 15, 2, 0, 11, 8, 0],
    ]
    assert labels[:12].tolist() == [*range(10), 0, 1]


def test_patches_are_pieces_of_the_images_each_in_one_part():
    images, labels = d2l.read_digits()
    (X, y), (X_test, y_test) = d2l.digit_patches()
    assert (X.shape, X_test.shape) == ((1400, 16, 4), (397, 16, 4))
    found = {}
    for patches, label in zip(torch.cat([X, X_test]), torch.cat([y, y_test]), strict=True):
        found.setdefault(tuple(patches.flatten().tolist()), []).append(label.item())
    for image, label in zip(images, labels, strict=True):
        cut = [image[2 * r : 2 * r + 2, 2 * c : 2 * c + 2] for r in range(4) for c in range(4)]
        found[tuple(torch.stack(cut).flatten().tolist())].remove(label.item())
    assert not any(found.values())
    assert torch.equal(d2l.digit_patches()[0][0], X)


def test_samples_are_pairs():
    X = torch.arange(50)
    x, y = d2l.sample_from(X, 10 * X, B=300)(generator())
    assert torch.equal(y, 10 * x) and len(x) == 300 and len(set(x.tolist())) == 50


@pytest.mark.parametrize("sizes", [(50, 10), (10, 50), (0, 0)])
def test_samples_of_unequal_or_no_pairs_are_refused(sizes):
    with pytest.raises(ValueError, match="{} entries and y has {}".format(*sizes)):
        d2l.sample_from(*map(torch.arange, sizes))


def test_digits_model():
    net = d2l.DigitsModel(num_hiddens=64, num_heads=4)
    assert isinstance(net.encoder.embedding, nn.Linear)
    X = torch.rand(3, 16, 4)
    assert net(X).shape == (3, 10)
    weight = net.encoder.embedding.weight
    assert abs(weight.square().mean() * 64 - 1) < 0.5 and (net.encoder.embedding.bias == 0).all()
