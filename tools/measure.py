"""Time what the chapter times, and store it: `python -m tools.measure [NAME ...]`.

Writes chapters/data/NAME.json, or all of them, with the machine, the versions and the date, so
that no notebook stores a time of its own. `attention` takes half a minute of one core,
`architectures` two minutes and `encoder`, which trains models, eight; `architectures` sets the
allocator of the GNU C library and counts page faults, so it needs Linux.
"""

import argparse
import base64
import datetime
import itertools
import json
import lzma
import math
import os
import platform
import subprocess
import sys

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from d2l_local import torch as d2l
from tools.notebooks import ROOT

SHAPES = [(32, 32, 64, 4), (8, 128, 128, 8), (4, 512, 256, 8), (1, 2048, 256, 4)]  # B, n, d, h
WIDTH = 128  # of the layers that are compared
BATCHES = (1, 8, 32)
LENGTHS = [2**i for i in range(4, 13)]  # 16 ... 4096
MOST_SCORES = 2**25  # batch · n², which leaves out what takes too long
# By default the C library fetches large blocks from the system and gives them back each time.
KEEP_BLOCKS = {"MALLOC_MMAP_THRESHOLD_": str(2**33), "MALLOC_TRIM_THRESHOLD_": str(2**34)}

SEEDS = (0, 1, 2)  # of first weights and batches, for all that is trained
STEPS, LONG = 400, 2000
SWEEPS = {  # of the model for digits, one option at a time
    "heads": (1, 2, 4, 8, 16),
    "width": (8, 16, 32, 64),
    "dropout": (0.0, 0.1, 0.3, 0.5),
    "max_len": (16, 64, 256, 1024),
    "base": (10, 100, 10_000, 1_000_000),
}


def processor():
    """The name of this machine's processor, as its system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def rounded(number):
    """Three significant digits: another run differs in the second already."""
    return float(f"{number:.3g}")


def attention():
    """The speed of the book's layer beside PyTorch's."""
    ratios = [d2l.layer_speed(*shape) for shape in SHAPES]
    rows = [{name: round(ratio, 3) for name, ratio in row.items()} for row in ratios]
    return {"layer_speed": [dict(shape=s, ratios=r) for s, r in zip(SHAPES, rows, strict=True)]}


def architectures():
    """Time and memory of the layers that the page on architectures compares."""
    return {
        "width": WIDTH,
        "times": in_new_process("times", KEEP_BLOCKS),
        "times_default_allocator": in_new_process("times_when_long"),
        "page_faults": {
            "times": in_new_process("page_faults", KEEP_BLOCKS),
            "times_default_allocator": in_new_process("page_faults"),
        },
        "memory": memory(),
    }


def in_new_process(function, settings=None):
    """Call a function of this file in a process of one thread, with these settings."""
    code = f"import json; from tools import measure; print(json.dumps(measure.{function}()))"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **(settings or {})}
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return json.loads(run.stdout)


def times(batches=BATCHES, lengths=LENGTHS):
    """Milliseconds of each layer, for each batch and length."""
    torch.manual_seed(0)
    found = []
    for batch in batches:
        ns = [n for n in lengths if batch * n**2 <= MOST_SCORES]
        repeats = [min(1000, max(10, MOST_SCORES // (batch * n**2))) for n in ns]
        rows = [d2l.layer_times(n, WIDTH, batch, r) for n, r in zip(ns, repeats, strict=True)]
        columns = {name: [rounded(1e3 * row[name]) for row in rows] for name in rows[0]}
        found.append({"batch": batch, "n": ns, "ms": columns})
    return found


def times_when_long():
    return times([1], [n for n in LENGTHS if n >= 512])


@torch.no_grad()
def page_faults():
    """How many pages of memory one call at the greatest length is given anew, by layer."""
    import resource  # not on Windows

    X = torch.randn(1, LENGTHS[-1], WIDTH)
    found = {}
    for name, layer in d2l.sequence_layers(WIDTH).items():
        counts = []
        for _ in range(5):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            layer(X)
            counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
        found[name] = min(counts)
    return found


def memory():
    """The peak of one forward with its graph, in MiB, by layer and length."""
    ns = [n for n in LENGTHS if 256 <= n <= 2048]  # more takes Peak too long
    found = {}
    layers = d2l.sequence_layers(WIDTH)
    del layers["RNN input"]  # a part of the RNN
    for name, layer in layers.items():
        peaks = [Peak() for _ in ns]
        for n, seen in zip(ns, peaks, strict=True):
            X = torch.randn(1, n, WIDTH, requires_grad=True)
            with seen:
                layer(X)
        found[name] = [rounded(seen.peak / 2**20) for seen in peaks]
    return {"n": ns, "MiB": found}


class Peak(TorchDispatchMode):
    """The most bytes held at once by tensors made in a block.

    It does not see what an operation uses for itself and frees before it ends.
    """

    def __init__(self):
        super().__init__()
        self.living, self.peak = {}, 0  # by address: a weak reference, and the bytes

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        inputs, results = (
            {s._cdata: s for s in map(torch.Tensor.untyped_storage, tensors(tree))}
            for tree in ((args, kwargs), result)
        )
        self.living = {key: at for key, at in self.living.items() if not at[0].expired()}
        for key in results.keys() - inputs.keys():  # a view brings no new memory
            self.living[key] = (StorageWeakRef(results[key]), results[key].nbytes())
        self.peak = max(self.peak, sum(size for _, size in self.living.values()))
        return result


def tensors(tree):
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def digits():
    """The 8×8 images of digits, from scikit-learn's copy of the UCI test set.

    scikit-learn is needed here only, once; `d2l.read_digits` undoes the packing.
    """
    from sklearn.datasets import load_digits

    found = load_digits()
    pixels = lzma.compress(found.data.astype("uint8").tobytes(), preset=9)
    return {
        "source": "E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine"
        " Learning Repository, 1998, https://doi.org/10.24432/C50P49: the test set",
        "licence": "CC BY 4.0, https://creativecommons.org/licenses/by/4.0/",
        "changes": "none to the numbers: 64 bytes an image, from 0 to 16, packed by xz and base64",
        "images": base64.b64encode(pixels).decode(),
        "labels": "".join(map(str, found.target)),
    }


def encoder():
    """The accuracies of the models that the page on the encoder trains."""
    return in_new_process("encoders")  # on one thread: sums in another order end elsewhere


def encoders():
    return {
        "seeds": SEEDS,
        "scale": scale(),
        "join": joins(),
        "tuning": {name: [tuned(name, value) for value in SWEEPS[name]] for name in SWEEPS},
    }


def nets(make, batch, steps, lr=3e-3):
    """What `make` gives, trained, for each seed."""
    for seed in SEEDS:
        torch.manual_seed(seed)
        net = make()
        d2l.train(net, batch, steps, lr, seed)
        yield net


def fresh(task, **sizes):
    """1,000 sequences of a task from a seed of their own."""
    return task(torch.Generator().manual_seed(99), B=1000, **sizes)


class PreNormBlock(d2l.EncoderBlock):
    """An encoder block that normalizes what goes into each part, and not the sum."""

    def forward(self, X, valid_lens=None):
        Y = self.addnorm1.ln(X)
        X = X + self.attention(Y, Y, Y, valid_lens)
        return X + self.ffn(self.addnorm2.ln(X))


def scaled_model(outputs, norm, std, factor, d=64):
    """An encoder whose embedding starts as N(0, std²) and is multiplied by `factor`."""
    net = d2l.EncoderWithHead(10, outputs, num_hiddens=d, num_heads=4)
    embedding = net.encoder.embedding
    nn.init.normal_(embedding.weight, std=std)
    # The encoder multiplies by √d. To undo that in the weights would change how they learn.
    embedding.register_forward_hook(lambda layer, X, Y: Y * (factor / math.sqrt(d)))
    if norm == "pre":
        net.encoder.blks = nn.Sequential(PreNormBlock(d, d, d, d, [d], d, 2 * d, 4, 0.0))
        net.head = nn.Sequential(nn.LayerNorm(d), net.head)
    return net


def scale(d=64):
    """Both factors on both starts of the embedding, for a task of places and one of contents."""
    starts = [(std, factor) for std in (1, d**-0.5) for factor in (1, d**0.5)]
    tasks, norms = (d2l.reversal, d2l.counting), ("post", "pre")
    runs = [(*run, *start, STEPS) for run in itertools.product(tasks, norms) for start in starts]
    for norm in norms:  # what fails is given more steps
        runs += [(d2l.reversal, norm, 1, d**0.5, LONG), (d2l.counting, norm, d**-0.5, 1, LONG)]
    return {"width": d, "heads": 4, "n": 16, "runs": [scaled(*run, d) for run in runs]}


def scaled(task, norm, std, factor, steps, d=64):
    """One row of `scale`."""
    outputs = {d2l.reversal: 10, d2l.counting: 16}[task]
    found = nets(lambda: scaled_model(outputs, norm, std, factor, d), task, steps)
    row = {"task": task.__name__, "norm": norm, "std": std, "factor": factor, "steps": steps}
    return row | {"accuracy": [share(d2l.accuracy(net, *fresh(task))) for net in found]}


def share(number):
    return round(number, 3)


class Beside(nn.Module):
    """Put the sinusoid beside each token: X (B, n, d - width) becomes (B, n, d)."""

    def __init__(self, width, max_len=64):
        super().__init__()
        self.register_buffer("P", d2l.position_table(max_len, width).float())

    def forward(self, X):
        P = self.P[: X.shape[1]].expand(len(X), -1, -1)
        return torch.cat([X, P], dim=-1)


def joined_model(beside, d=32):
    """An encoder for reversal that adds positions, or puts `beside` columns of them there."""
    net = d2l.EncoderWithHead(10, 10, num_hiddens=d)
    if beside:
        net.encoder.embedding = nn.Embedding(10, d - beside)
        nn.init.normal_(net.encoder.embedding.weight, std=d**-0.5)
        net.encoder.pos_encoding = Beside(beside)
    return net


def joins(counts=(50, 100, 200)):
    """Positions added, and put beside the tokens in a quarter, half or three of the columns."""
    return [
        {
            "beside": beside,
            "steps": steps,
            "accuracy": [share(d2l.accuracy(net, *fresh(d2l.reversal))) for net in
                         nets(lambda beside=beside: joined_model(beside), d2l.reversal, steps)],
        }
        for beside in (0, 8, 16, 24) for steps in counts
    ]


def sinusoid(num_positions, d, base):
    """`position_table` with another number in the place of 10,000; d is even."""
    frequencies = base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    angles = torch.arange(num_positions)[:, None] * frequencies
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


def tuned_model(name, value):
    """The model for digits with one option set."""
    options = {"heads": "num_heads", "width": "num_hiddens", "dropout": "dropout"}
    if name in options:
        return d2l.DigitsModel(**{"num_heads": 8, options[name]: value})
    net = d2l.DigitsModel(num_heads=8, positions="learned" if name == "max_len" else "sinusoid")
    if name == "max_len":
        net.encoder.pos_encoding = d2l.LearnedTable(net.encoder.num_hiddens, value)
    else:
        P = net.encoder.pos_encoding.P
        P.copy_(sinusoid(*P.shape[1:], value))
    return net


def tuned(name, value, steps=200):
    """One row of a sweep: the accuracy on test digits, and what the model costs."""
    training, test = d2l.digit_patches()
    batch = d2l.sample_from(*training)
    models = list(nets(lambda: tuned_model(name, value), batch, steps, lr=5e-3))
    return {
        "value": value,
        "steps": steps,
        "accuracy": [share(d2l.accuracy(net, *test)) for net in models],
        "parameters": sum(p.numel() for p in models[0].parameters()),
    }


def data_file(name):
    return ROOT / "chapters" / "data" / f"{name}.json"


def check_writable(file):
    """Raise OSError now rather than after minutes of measuring."""
    new = not file.exists()
    file.parent.mkdir(exist_ok=True)
    file.open("ab").close()
    if new:
        file.unlink()


def store(name, measured):
    head = {
        "command": f"python -m tools.measure {name}",
        "machine": processor(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": datetime.date.today().isoformat(),
    }
    file = data_file(name)
    text = json.dumps(head | measured, indent=1, ensure_ascii=False)
    file.write_text(text + "\n", encoding="utf-8", newline="\n")
    print(f"wrote {file.name}; now run python -m tools.save and python -m tools.run", flush=True)


STORED = {function.__name__: function for function in (attention, architectures, encoder, digits)}


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(STORED)}")
    names = parser.parse_args(argv).names
    names = names or [name for name in STORED if name != "digits"]  # it is no measurement
    unknown = [name for name in names if name not in STORED]
    if unknown:
        print(f"there is no {unknown[0]} to measure, only {', '.join(STORED)}", file=sys.stderr)
        return 1
    try:
        for name in names:
            check_writable(data_file(name))
        for name in names:
            torch.manual_seed(0)
            store(name, STORED[name]())
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
