"""Functions of the chapter on self-attention and positional encoding, for PyTorch."""

# Generated from the notebooks' #@save cells by `python -m tools.save`: edit the notebooks, not this file.
# ruff: noqa: E402, I001

__all__ = [
    "AddNorm",
    "DigitsModel",
    "DotProductAttention",
    "EncoderBlock",
    "EncoderWithHead",
    "LearnedTable",
    "MultiHeadAttention",
    "PositionWiseFFN",
    "PositionalEncoding",
    "SENTENCES",
    "TransformerEncoder",
    "accuracy",
    "arange",
    "check_classes",
    "check_exercise",
    "check_inputs",
    "check_lengths",
    "check_tokens",
    "color_scale",
    "counting",
    "cpu_times",
    "difference",
    "digit_patches",
    "judge",
    "layer_speed",
    "layer_times",
    "length_mask",
    "markers",
    "masked_softmax",
    "ones",
    "plot",
    "position_table",
    "read_data",
    "read_digits",
    "reversal",
    "sample_from",
    "sequence_layers",
    "set_figsize",
    "show_heatmaps",
    "tensor",
    "to_array",
    "to_curves",
    "train",
    "trained",
    "transpose_output",
    "transpose_qkv",
    "unchanged",
    "use_svg_display",
    "zeros",
]


# %% chapters/en/toolbox.ipynb#imports
import base64
import copy
import importlib.resources
import itertools
import json
import lzma
import time

import numpy as np
import torch


# %% chapters/en/toolbox.ipynb#names
from torch import arange as arange
from torch import ones as ones
from torch import tensor as tensor
from torch import zeros as zeros


# %% chapters/en/toolbox.ipynb#plt
def __getattr__(name):
    """Give `d2l.plt`, matplotlib's pyplot, when it is first asked for.

    Raises AttributeError for any other unknown name (toolbox, "Names that D2L readers know").
    """
    if name != "plt":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from matplotlib import pyplot

    return pyplot


# %% chapters/en/toolbox.ipynb#use-svg-display
def use_svg_display():
    """Show figures as SVG with a small PNG beside it; in plain Python this does nothing.

    Source: toolbox, "Figures".
    """
    import matplotlib

    matplotlib.rcParams["svg.hashsalt"] = "d2l_local"
    try:
        from IPython import get_ipython
        from matplotlib_inline.backend_inline import set_matplotlib_formats
    except ImportError:
        return
    if get_ipython() is not None:
        set_matplotlib_formats("svg", "png", metadata={"Date": None})


# %% chapters/en/toolbox.ipynb#set-figsize
def set_figsize(figsize=(3.5, 2.5)):
    """Set the size of the figures that follow, in inches (toolbox, "Figures")."""
    import matplotlib

    use_svg_display()
    matplotlib.rcParams.update({"figure.figsize": figsize, "figure.dpi": 72, "savefig.dpi": 72})


# %% chapters/en/toolbox.ipynb#to-array
def to_array(values):
    """Turn tensors, arrays, numbers or nested lists of them into one float64 array.

    Raises ValueError for lists of unequal lengths (toolbox, "Figures").
    """
    if isinstance(values, torch.Tensor):
        return values.detach().cpu().to(torch.float64).numpy()
    if isinstance(values, (list, tuple)):
        return np.array([to_array(value) for value in values], dtype=np.float64)
    return np.asarray(values, dtype=np.float64)


# %% chapters/en/toolbox.ipynb#to-curves
def to_curves(values):
    """A list of one-dimensional arrays, one for each curve in `values`.

    Takes one curve, a matrix whose rows are curves, or a list of curves; raises ValueError for
    anything else (toolbox, "Figures").
    """
    if isinstance(values, (list, tuple)):
        curves = [to_array(value) for value in values]
        if all(curve.ndim == 0 for curve in curves):
            curves = [to_array(values)]
    else:
        curves = list(np.atleast_2d(to_array(values)))
    if any(curve.ndim != 1 for curve in curves):
        raise ValueError(f"plot draws one curve, a matrix of curves or a list of curves, but got "
                         f"curves with {sorted({curve.ndim for curve in curves})} axes")
    return curves


# %% chapters/en/toolbox.ipynb#plot
def plot(X, Y=None, xlabel=None, ylabel=None, legend=None, xlim=None, ylim=None,
         xscale="linear", yscale="linear", fmts=None, figsize=(3.5, 2.5), axes=None):
    """Draw the curves `Y` over `X`, or the curves `X` over their indices; return the axes.

    `X` and `Y` hold one curve (n,), a matrix of curves (m, n), or a list of curves:
    tensors or arrays of any number type. One `X` serves all curves. `fmts` are matplotlib's
    format strings, used in turn. Raises ValueError when the numbers of curves in `X`, `Y`
    and `legend` differ, or the lengths of a curve (toolbox, "Figures").
    """
    import matplotlib.pyplot as plt

    set_figsize(figsize)
    ys = to_curves(X if Y is None else Y)
    xs = [np.arange(len(y)) for y in ys] if Y is None else to_curves(X)
    xs = xs * len(ys) if len(xs) == 1 else xs
    labels = [None] * len(ys) if legend is None else list(legend)
    if not len(xs) == len(ys) == len(labels):
        raise ValueError(f"plot got {len(xs)} X, {len(ys)} Y and {len(labels)} legend entries")
    for x, y in zip(xs, ys):
        if len(x) != len(y):
            raise ValueError(f"plot got a curve of {len(y)} values over {len(x)} places")
    axes = plt.subplots(layout="constrained")[1] if axes is None else axes
    styles = itertools.cycle(fmts or [f"C{i}{line}" for i, line in
                                      zip(range(8), itertools.cycle(["-", "--", "-.", ":"]))])
    for x, y, label, style in zip(xs, ys, labels, styles):
        axes.plot(x, y, style, label=label)
    axes.set(xlabel=xlabel, ylabel=ylabel, xscale=xscale, yscale=yscale)
    axes.set(**{name: lim for name, lim in (("xlim", xlim), ("ylim", ylim)) if lim is not None})
    axes.grid(True)
    if legend is not None:
        axes.legend()
    return axes


# %% chapters/en/toolbox.ipynb#color-scale
def color_scale(matrices):
    """The arguments `vmin`, `vmax` and `cmap` of one colour scale for all of `matrices`.

    0 to 1 for weights, 0 to the maximum for larger numbers, symmetric about a white zero as
    soon as a number is negative; NaN and infinity do not count (toolbox, "Figures").
    """
    finite = matrices[np.isfinite(matrices)]
    low, high = finite.min(initial=0), finite.max(initial=0)
    if low < 0:
        bound = max(-low, high)
        return {"vmin": -bound, "vmax": bound, "cmap": "RdBu"}
    return {"vmin": 0, "vmax": max(1, high), "cmap": "Reds"}


# %% chapters/en/toolbox.ipynb#show-heatmaps
def show_heatmaps(matrices, xlabel, ylabel, titles=None, figsize=(2.5, 2.5), cmap=None):
    """Draw matrices as heat maps on one colour scale; return the axes (rows, columns).

    `matrices` is (m, n), (columns, m, n) or (rows, columns, m, n); row 0 of each matrix is on
    top. `titles` names the columns. Raises ValueError for another number of axes, for empty
    input, or when there are not as many titles as columns (toolbox, "Figures").
    """
    import matplotlib.pyplot as plt

    panels = to_array(matrices)
    if not 2 <= panels.ndim <= 4 or panels.size == 0:
        raise ValueError(f"matrices must be 4-D (rows, columns, m, n), 3-D or 2-D and not empty, "
                         f"but has shape {panels.shape}")
    panels = panels.reshape((1,) * (4 - panels.ndim) + panels.shape)
    rows, columns = panels.shape[:2]
    if titles is not None and len(titles) != columns:
        raise ValueError(f"show_heatmaps got {len(titles)} titles for {columns} columns")
    set_figsize(figsize)
    figure, axes = plt.subplots(rows, columns, sharex=True, sharey=True, squeeze=False,
                                layout="constrained")
    scale = {**color_scale(panels), **({} if cmap is None else {"cmap": cmap})}
    for (i, j), ax in np.ndenumerate(axes):
        image = ax.imshow(panels[i, j], **scale)
        ax.set(xlabel=xlabel if i == rows - 1 else None, ylabel=ylabel if j == 0 else None,
               title=None if titles is None or i else titles[j])
    figure.colorbar(image, ax=axes, shrink=0.6)
    return axes


# %% chapters/en/toolbox.ipynb#read-data
def read_data(name):
    """The stored measurements `name`, a dictionary (toolbox, "Stored measurements").

    Raises FileNotFoundError, with the names there are, when there is no such file.
    """
    folder = importlib.resources.files("d2l_local") / "data"
    file = folder / f"{name}.json"
    if not file.is_file():
        names = sorted(f.name[:-5] for f in folder.iterdir() if f.name.endswith(".json"))
        raise FileNotFoundError(f"there are no stored measurements {name!r}, only {names}")
    return json.loads(file.read_text(encoding="utf-8"))


# %% chapters/en/toolbox.ipynb#read-digits
def read_digits():
    """The images (1797, 8, 8) of handwritten digits, from 0 to 1, and their labels (1797,).

    E. Alpaydin and C. Kaynak, 1998, the test set, CC BY 4.0; from `python -m tools.measure
    digits` (toolbox, "Stored measurements").
    """
    stored = read_data("digits")
    pixels = lzma.decompress(base64.b64decode(stored["images"]))
    images = torch.tensor(list(pixels)).view(-1, 8, 8) / 16
    return images, torch.tensor([int(label) for label in stored["labels"]])


# %% chapters/en/toolbox.ipynb#cpu-times
def cpu_times(contenders, repeats=20):
    """The least CPU time in seconds of each contender, {name: function of no arguments}.

    The contenders run in turn, `repeats` times, on one thread (toolbox, "Stored
    measurements").
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    least = dict.fromkeys(contenders, float("inf"))
    try:
        for _ in range(repeats):
            for name, run in contenders.items():
                start = time.thread_time()
                run()
                least[name] = min(least[name], time.thread_time() - start)
    finally:
        torch.set_num_threads(threads)
    return least


# %% chapters/en/toolbox.ipynb#check-lengths
def check_lengths(valid_lens, batch, num_queries):
    """Valid lengths as an integer tensor of shape (batch,) or (batch, num_queries).

    Takes a tensor or a list. Raises TypeError for lengths that are not integers and ValueError
    for another shape or a negative length; values are checked outside torch.compile and
    torch.export only (toolbox, "Checks of shapes and lengths").
    """
    if not isinstance(valid_lens, torch.Tensor):
        try:
            valid_lens = torch.tensor(valid_lens)
        except (TypeError, ValueError, RuntimeError):
            raise TypeError(f"valid_lens must be a tensor or a list of integers, or of equally "
                            f"long lists of integers, not {valid_lens!r}") from None
    if valid_lens.dtype == torch.bool or valid_lens.is_floating_point() or valid_lens.is_complex():
        raise TypeError(f"valid_lens must hold integers, but holds {valid_lens.dtype}")
    valid_lens = valid_lens.long()
    if valid_lens.shape not in ((batch,), (batch, num_queries)):
        raise ValueError(f"valid_lens has shape {tuple(valid_lens.shape)}, but ({batch},) or "
                         f"({batch}, {num_queries}) goes with {batch} sequences of "
                         f"{num_queries} queries")
    has_values = not (valid_lens.is_meta or torch.compiler.is_compiling())
    if has_values and (valid_lens < 0).any():
        raise ValueError(f"valid_lens must be 0 or more, but holds {valid_lens.min().item()}")
    return valid_lens


# %% chapters/en/toolbox.ipynb#check-inputs
def check_inputs(queries, keys, values):
    """Raise ValueError unless queries, keys and values (B, n, d) can go through attention.

    The three batch sizes must be equal, and there must be one value for each key (toolbox,
    "Checks of shapes and lengths").
    """
    for name, X in {"queries": queries, "keys": keys, "values": values}.items():
        if X.dim() != 3:
            raise ValueError(f"{name} must have 3 axes (batch, length, width), "
                             f"but have shape {tuple(X.shape)}")
    if not queries.shape[0] == keys.shape[0] == values.shape[0]:
        raise ValueError(f"queries, keys and values must be batches of one size, but hold "
                         f"{queries.shape[0]}, {keys.shape[0]} and {values.shape[0]} sequences")
    if keys.shape[1] != values.shape[1]:
        raise ValueError(f"each key needs one value, but there are {keys.shape[1]} keys and "
                         f"{values.shape[1]} values")


# %% chapters/en/toolbox.ipynb#sentences
SENTENCES = {
    "en": {
        "open": "not attempted yet",
        "agree": "{n} of {n} cases agree",
        "function": "what you gave is not a function",
        "raised": "case {i} of {n} raised {error}. {hint}",
        "nothing": "case {i} of {n} gave None: is a `return` missing?",
        "type": "case {i} of {n} gave a {type}, but a tensor or a number is asked for",
        "changed": "case {i} of {n}: your function changed its argument",
        "shape": "case {i} of {n} has shape {got}, but {shape} is asked for. {hint}",
        "nan": "case {i} of {n} gave NaN or infinity. {hint}",
        "differ": "case {i} of {n} differs. {hint}",
    },
    "zh": {
        "open": "尚未作答",
        "agree": "{n} 个用例全部一致",
        "function": "给出的不是函数",
        "raised": "第 {i} 个用例（共 {n} 个）抛出异常 {error}。{hint}",
        "nothing": "第 {i} 个用例（共 {n} 个）返回 None：是不是漏了 `return`？",
        "type": "第 {i} 个用例（共 {n} 个）返回了 {type}，这里要的是张量或数",
        "changed": "第 {i} 个用例（共 {n} 个）：函数修改了传入的参数",
        "shape": "第 {i} 个用例（共 {n} 个）的形状是 {got}，应为 {shape}。{hint}",
        "nan": "第 {i} 个用例（共 {n} 个）出现 NaN 或无穷大。{hint}",
        "differ": "第 {i} 个用例（共 {n} 个）的数值不对。{hint}",
    },
}


# %% chapters/en/toolbox.ipynb#difference
def difference(result, expected):
    """How `result` differs from `expected`: a key of SENTENCES and its values, or None.

    Both are tensors, arrays or numbers; equal means equal shape and values within
    1e-5 plus 1e-5 of the right value (toolbox, "The exercise checker").
    """
    if result is None:
        return "nothing", {}
    if not isinstance(result, (torch.Tensor, np.ndarray, np.generic, int, float)):
        return "type", {"type": type(result).__name__}
    if "complex" in str(getattr(result, "dtype", "")):
        return "type", {"type": str(result.dtype)}
    got, right = to_array(result), to_array(expected)
    if got.shape != right.shape:
        return "shape", {"got": got.shape, "shape": right.shape}
    if not np.isfinite(got).all():
        return "nan", {}
    return None if np.allclose(got, right, rtol=1e-5, atol=1e-5) else ("differ", {})


# %% chapters/en/toolbox.ipynb#unchanged
def unchanged(before, after):
    """Whether two arguments hold the same numbers (toolbox, "The exercise checker")."""
    if isinstance(before, (list, tuple)):
        return len(before) == len(after) and all(map(unchanged, before, after))
    if isinstance(before, (torch.Tensor, np.ndarray, int, float)):
        return np.array_equal(to_array(before), to_array(after), equal_nan=True)
    return True


# %% chapters/en/toolbox.ipynb#judge
def judge(attempt, cases):
    """The first failing case: a key of SENTENCES and its values (toolbox, "The exercise checker").

    `cases` is a list of (arguments, expected, hint). A bare NotImplementedError, that of an
    untouched stub, gives "open"; no failure gives "agree".
    """
    if not callable(attempt):
        return "function", {}
    for i, (arguments, expected, hint) in enumerate(cases, 1):
        place = {"i": i, "n": len(cases), "hint": hint}
        given = copy.deepcopy(arguments)
        try:
            found = difference(attempt(*given), expected)
            same = unchanged(arguments, given)
        except (Exception, SystemExit) as error:
            if isinstance(error, NotImplementedError) and not error.args:
                return "open", {}
            return "raised", {**place, "error": f"{type(error).__name__}: {error}"}
        if not same:
            return "changed", place
        if found is not None:
            return found[0], {**place, **found[1]}
    return "agree", {"n": len(cases)}


# %% chapters/en/toolbox.ipynb#check-exercise
def check_exercise(title, attempt, cases):
    """Print one sentence on how `attempt` does: not attempted, agrees, or the likely mistake.

    `cases` is a list of (arguments, expected, hint): a tuple of arguments, the right value,
    and the sentence to say when the value differs. The sentences are Chinese when `title`
    holds a Chinese character. Raises ValueError without cases (toolbox, "The exercise checker").
    """
    if len(cases) == 0:
        raise ValueError(f"{title}: there are no cases to check")
    key, values = judge(attempt, cases)
    language = "zh" if any("\u4e00" <= letter <= "\u9fff" for letter in title) else "en"
    colon = {"en": ": ", "zh": "："}[language]
    print(title + colon + SENTENCES[language][key].format(**values))


# %% chapters/en/self-attention.ipynb#imports
import math

import torch.nn.functional as F
from torch import nn


# %% chapters/en/self-attention.ipynb#masked-softmax
def length_mask(valid_lens, batch, num_queries, num_keys, device=None):
    """True where a key is valid: (batch, num_queries or 1, num_keys).

    `valid_lens` is what `check_lengths` takes (self-attention, "Padding must get no weight").
    """
    valid_lens = check_lengths(valid_lens, batch, num_queries).to(device)
    valid_lens = valid_lens[:, None] if valid_lens.dim() == 1 else valid_lens
    return torch.arange(num_keys, device=device) < valid_lens[:, :, None]


def masked_softmax(X, valid_lens):
    """Softmax of the scores `X` (B, n, m) over the valid keys; the other weights are 0.

    `valid_lens` is None, (B,) or (B, n), a tensor or a list; a length beyond m counts as m. A
    row without a valid key is all 0. `X` is not changed, and its type is kept. Raises
    ValueError or TypeError for other shapes or lengths (self-attention, "Padding must get no
    weight").
    """
    if X.dim() != 3:
        raise ValueError(f"X must have 3 axes (batch, query, key), but has {tuple(X.shape)}")
    if not X.is_floating_point():
        raise TypeError(f"X must hold floating-point scores, but holds {X.dtype}")
    if valid_lens is None:
        return X.softmax(-1)
    mask = length_mask(valid_lens, *X.shape, device=X.device)     # (B, n or 1, m)
    empty = ~mask.any(-1, keepdim=True)                           # (B, n or 1, 1)
    scores = X.masked_fill(~mask, -math.inf).masked_fill(empty, 0)
    return scores.softmax(-1).masked_fill(~mask, 0)


# %% chapters/en/self-attention.ipynb#dot-product-attention
class DotProductAttention(nn.Module):
    """Scaled dot-product attention (1.6), with dropout on the attention weights.

    Queries (B, n, d), keys (B, m, d), values (B, m, v), `valid_lens` as in `masked_softmax`;
    returns (B, n, v). NaN or infinity in a padded key or value reaches every
    query. Raises ValueError for shapes that do not fit (self-attention, "The attention layer").
    """

    def __init__(self, dropout):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self._last = None

    def forward(self, queries, keys, values, valid_lens=None):
        check_inputs(queries, keys, values)
        if queries.shape[-1] != keys.shape[-1]:
            raise ValueError(f"queries of width {queries.shape[-1]} cannot be compared with "
                             f"keys of width {keys.shape[-1]}")
        mask = None
        if valid_lens is not None:
            sizes = (*queries.shape[:2], keys.shape[1])
            valid_lens = check_lengths(valid_lens, *sizes[:2])
            mask = length_mask(valid_lens, *sizes, device=queries.device)[:, None]
        self._remember(queries, keys, valid_lens)
        # the kernel takes four axes (batch, head, length, width); here there is one head
        Y = F.scaled_dot_product_attention(
            queries[:, None], keys[:, None], values[:, None], attn_mask=mask,
            dropout_p=self.dropout.p if self.training else 0.0)
        return Y[:, 0]

    def _remember(self, *inputs):
        """Keep copies, without their history, from which the weights can be computed."""
        if torch.compiler.is_compiling():
            self._last = None
        else:
            self._last = [None if X is None else X.detach().clone() for X in inputs]

    @property
    def attention_weights(self):
        """The weights (B, n, m) of the last call, before dropout, computed when asked for.

        None before the first call, and after a call under torch.compile or torch.export.
        """
        if self._last is None:
            return None
        Q, K, valid_lens = self._last
        wide = torch.promote_types(Q.dtype, torch.float32)        # half types would overflow
        S = Q.to(wide) @ K.to(wide).mT / math.sqrt(Q.shape[-1])
        return masked_softmax(S, valid_lens).to(Q.dtype)


# %% chapters/en/self-attention.ipynb#transpose
def transpose_qkv(X, num_heads):
    """Cut the width into heads and make each a batch entry: (B, n, d) -> (B·h, n, d/h).

    Entry b·h + g holds head g of sequence b, the column block g of `X`. Raises ValueError when
    the width is not a multiple of `num_heads` (self-attention, "Several heads").
    """
    if X.dim() != 3:
        raise ValueError(f"X must have 3 axes (batch, length, width), but has {tuple(X.shape)}")
    B, n, d = X.shape
    if num_heads < 1 or d % num_heads:
        raise ValueError(f"width {d} cannot be cut into {num_heads} heads")
    X = X.reshape(B, n, num_heads, d // num_heads)                # (B, n, h, c)
    return X.permute(0, 2, 1, 3).reshape(B * num_heads, n, d // num_heads)


def transpose_output(X, num_heads):
    """Undo `transpose_qkv`: (B·h, n, c) -> (B, n, h·c).

    Raises ValueError when the batch is not a multiple of `num_heads` (self-attention,
    "Several heads").
    """
    if X.dim() != 3:
        raise ValueError(f"X must have 3 axes (batch, length, width), but has {tuple(X.shape)}")
    Bh, n, c = X.shape
    if num_heads < 1 or Bh % num_heads:
        raise ValueError(f"{Bh} batch entries cannot be joined into {num_heads} heads each")
    X = X.reshape(Bh // num_heads, num_heads, n, c)               # (B, h, n, c)
    return X.permute(0, 2, 1, 3).reshape(Bh // num_heads, n, num_heads * c)


# %% chapters/en/self-attention.ipynb#multi-head-attention
class MultiHeadAttention(nn.Module):
    """Multi-head attention: project, cut into heads, attend, join, project.

    `forward(queries, keys, values, valid_lens)` takes (B, n, query_size), (B, m, key_size),
    (B, m, value_size) and lengths as in `masked_softmax`, and returns (B, n, num_hiddens).
    The weights (B·h, n, m) of the last call are at `attention.attention_weights`, heads in the
    order of `transpose_qkv`. Raises ValueError when `num_hiddens` is not a multiple of
    `num_heads`, or for shapes that do not fit (Vaswani et al., 2017, section 3.2;
    self-attention, "Several heads").
    """

    def __init__(self, key_size, query_size, value_size, num_hiddens, num_heads, dropout,
                 bias=False):
        super().__init__()
        if num_heads < 1 or num_hiddens < 1 or num_hiddens % num_heads:
            raise ValueError(f"num_hiddens={num_hiddens} must be a multiple of "
                             f"num_heads={num_heads}, and both at least 1")
        self.num_heads = num_heads
        self.attention = DotProductAttention(dropout)
        self.W_q = nn.Linear(query_size, num_hiddens, bias=bias)
        self.W_k = nn.Linear(key_size, num_hiddens, bias=bias)
        self.W_v = nn.Linear(value_size, num_hiddens, bias=bias)
        self.W_o = nn.Linear(num_hiddens, num_hiddens, bias=bias)

    def forward(self, queries, keys, values, valid_lens=None):
        check_inputs(queries, keys, values)
        for name, X, W in (("queries", queries, self.W_q), ("keys", keys, self.W_k),
                           ("values", values, self.W_v)):
            if X.shape[-1] != W.in_features:
                raise ValueError(f"{name} have width {X.shape[-1]}, but this layer was made for "
                                 f"width {W.in_features}")
        Q = transpose_qkv(self.W_q(queries), self.num_heads)      # (B·h, n, c)
        K = transpose_qkv(self.W_k(keys), self.num_heads)         # (B·h, m, c)
        V = transpose_qkv(self.W_v(values), self.num_heads)       # (B·h, m, c)
        if valid_lens is not None:
            valid_lens = check_lengths(valid_lens, *queries.shape[:2])
            # each length h times in a row, as the heads of one sequence follow each other
            valid_lens = valid_lens.repeat_interleave(self.num_heads, dim=0)
        Y = self.attention(Q, K, V, valid_lens)                   # (B·h, n, c)
        return self.W_o(transpose_output(Y, self.num_heads))      # (B, n, d)


# %% chapters/en/self-attention.ipynb#layer-speed
def layer_speed(B, n, d, h):
    """CPU time of `MultiHeadAttention` and of PyTorch's layer with weights, as two ratios.

    Both are divided by the time of `nn.MultiheadAttention` without weights: forward, B
    sequences of n tokens with padding, width d, h heads, one thread (self-attention, "How fast
    is it?").
    """
    X = torch.randn(B, n, d)
    valid_lens = torch.randint(n // 2, n + 1, (B,))
    hide = torch.arange(n) >= valid_lens[:, None]                 # (B, n)
    ours = MultiHeadAttention(d, d, d, d, h, dropout=0.0)
    theirs = nn.MultiheadAttention(d, h, bias=False, batch_first=True)
    seconds = cpu_times({
        "ours": lambda: ours(X, X, X, valid_lens),
        "with weights": lambda: theirs(X, X, X, key_padding_mask=hide),
        "without": lambda: theirs(X, X, X, key_padding_mask=hide, need_weights=False),
    })
    return {name: seconds[name] / seconds["without"] for name in ("ours", "with weights")}


# %% chapters/en/positional-encoding.ipynb#positional-encoding
def position_table(num_positions, num_hiddens):
    """The sinusoidal encoding of positions 0, 1, … in float64: (num_positions, num_hiddens).

    Column 2j is sin(i·ω_j) and column 2j+1 is cos(i·ω_j) with ω_j = 10000^(-2j/num_hiddens).
    Raises ValueError for a size below 1 (Vaswani et al., 2017, section 3.5; positional
    encoding, "The layer").
    """
    if num_positions < 1 or num_hiddens < 1:
        raise ValueError(f"a table needs at least 1 position and 1 column, not {num_positions} "
                         f"and {num_hiddens}")
    i = torch.arange(num_positions, dtype=torch.float64)[:, None]             # (n, 1)
    two_j = torch.arange(0, num_hiddens, 2, dtype=torch.float64)
    angles = i * 10000 ** (-two_j / num_hiddens)                              # (n, pairs)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :num_hiddens]


class PositionalEncoding(nn.Module):
    """Add the encoding of each position (2.3) to its token, then dropout.

    `forward(X)` takes X (B, n, num_hiddens) with n up to `max_len` and keeps its type. The
    buffer `P` (1, max_len, num_hiddens) holds the table. Raises ValueError for another shape
    and TypeError for tokens that are not floating-point (positional encoding, "The layer").
    """

    def __init__(self, num_hiddens, dropout, max_len=1000):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        table = position_table(max_len, num_hiddens).to(torch.get_default_dtype())
        self.register_buffer("P", table[None], persistent=False)

    def forward(self, X):
        max_len, num_hiddens = self.P.shape[1:]
        if X.dim() != 3 or X.shape[2] != num_hiddens:
            raise ValueError(f"X must be (batch, length, {num_hiddens}), "
                             f"but has shape {tuple(X.shape)}")
        if X.shape[1] > max_len:
            raise ValueError(f"X has {X.shape[1]} positions, but this encoding has "
                             f"max_len={max_len}")
        if not X.is_floating_point():
            raise TypeError(f"X must hold floating-point tokens, but holds {X.dtype}")
        return self.dropout(X + self.P[:, :X.shape[1]].to(X.dtype))


# %% chapters/en/architectures.ipynb#sequence-layers
def sequence_layers(d):
    """One layer of each kind and width `d`: {name: function of X (B, n, d), giving (B, n, d)}.

    A convolution of width 3, an RNN, its input projection alone, attention without projections
    by two products and by the fused kernel, and multi-head attention with 4 heads
    (architectures, "Time and memory").
    """
    conv, rnn = nn.Conv1d(d, d, 3, padding=1), nn.RNN(d, d, batch_first=True)
    mha = MultiHeadAttention(d, d, d, d, 4, dropout=0.0)
    return {
        "convolution": lambda X: conv(X.mT).mT,
        "RNN": lambda X: rnn(X)[0],
        "RNN input": lambda X: F.linear(X, rnn.weight_ih_l0),
        "core": lambda X: (X @ X.mT / math.sqrt(d)).softmax(-1) @ X,
        "fused core": lambda X: F.scaled_dot_product_attention(*[X[:, None]] * 3)[:, 0],
        "whole layer": lambda X: mha(X, X, X),
    }


# %% chapters/en/architectures.ipynb#layer-times
@torch.no_grad()
def layer_times(n, d, batch, repeats=7):
    """CPU seconds of one forward of each of the `sequence_layers`, on X (batch, n, d).

    One thread, float32, the least of `repeats` (architectures, "Time and memory").
    """
    X = torch.randn(batch, n, d, dtype=torch.float32)
    return cpu_times({name: lambda layer=layer: layer(X)
                      for name, layer in sequence_layers(d).items()}, repeats)


# %% chapters/en/transformer-encoder.ipynb#ffn-add-norm
class PositionWiseFFN(nn.Module):
    """Two linear layers with a ReLU between, for each token by itself (4.1).

    `forward(X)` takes (*, ffn_num_input) and returns (*, ffn_num_outputs) (Vaswani et al., 2017,
    section 3.3; transformer encoder, "The block, part by part").
    """

    def __init__(self, ffn_num_input, ffn_num_hiddens, ffn_num_outputs):
        super().__init__()
        self.dense1 = nn.Linear(ffn_num_input, ffn_num_hiddens)
        self.relu = nn.ReLU()
        self.dense2 = nn.Linear(ffn_num_hiddens, ffn_num_outputs)

    def forward(self, X):
        return self.dense2(self.relu(self.dense1(X)))


class AddNorm(nn.Module):
    """Add X to the dropped-out Y, then layer normalization (4.2).

    `normalized_shape` is the width, or the last axes to normalize over. Raises ValueError when
    X and Y differ in shape (transformer encoder, "The block, part by part").
    """

    def __init__(self, normalized_shape, dropout):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.ln = nn.LayerNorm(normalized_shape)

    def forward(self, X, Y):
        if X.shape != Y.shape:
            raise ValueError(f"X and Y must have the same shape to be added, but have "
                             f"{tuple(X.shape)} and {tuple(Y.shape)}")
        return self.ln(self.dropout(Y) + X)


# %% chapters/en/transformer-encoder.ipynb#encoder-block
class EncoderBlock(nn.Module):
    """Self-attention and a position-wise network, each followed by add & norm (4.3).

    `forward(X, valid_lens)` takes X (B, n, num_hiddens) and lengths as in `masked_softmax`, and
    returns the shape of X. All sizes but `ffn_num_hiddens` are one width, since X is query, key
    and value, and is added to what comes out: ValueError names those that are not. `norm_shape`
    is that width in a list or tuple; D2L's (n, width) ties the block to n tokens and lets
    padding into the mean (transformer encoder, "The block, part by part").
    """

    def __init__(self, key_size, query_size, value_size, num_hiddens, norm_shape, ffn_num_input,
                 ffn_num_hiddens, num_heads, dropout, use_bias=False):
        super().__init__()
        width = norm_shape if isinstance(norm_shape, int) else (None, *norm_shape)[-1]
        sizes = {"key_size": key_size, "query_size": query_size, "value_size": value_size,
                 "the last entry of norm_shape": width, "ffn_num_input": ffn_num_input}
        for name, size in sizes.items():
            if size != num_hiddens:
                raise ValueError(f"{name} must equal num_hiddens={num_hiddens}, the width of the "
                                 f"tokens that the block adds up, but is {size}")
        self.attention = MultiHeadAttention(key_size, query_size, value_size, num_hiddens,
                                            num_heads, dropout, use_bias)
        self.addnorm1 = AddNorm(norm_shape, dropout)
        self.ffn = PositionWiseFFN(ffn_num_input, ffn_num_hiddens, num_hiddens)
        self.addnorm2 = AddNorm(norm_shape, dropout)

    def forward(self, X, valid_lens=None):
        Y = self.addnorm1(X, self.attention(X, X, X, valid_lens))
        return self.addnorm2(Y, self.ffn(Y))


# %% chapters/en/transformer-encoder.ipynb#transformer-encoder
def check_tokens(X, vocab_size):
    """Raise unless X (B, n) is a tensor of integers from 0 to vocab_size - 1.

    TypeError for another type, ValueError for another number of axes or a value outside; values
    are checked outside torch.compile and torch.export only (transformer encoder, "The encoder").
    """
    if not isinstance(X, torch.Tensor):
        raise TypeError(f"tokens must be a tensor of integers, not {type(X).__name__}")
    if X.dtype == torch.bool or X.is_floating_point() or X.is_complex():
        raise TypeError(f"tokens must be integers, but X holds {X.dtype}")
    if X.dim() != 2:
        raise ValueError(f"tokens must have 2 axes (batch, length), but X has shape "
                         f"{tuple(X.shape)}")
    if X.numel() > 0 and not (X.is_meta or torch.compiler.is_compiling()):
        low, high = X.long().aminmax()                            # uint16 has no minimum of its own
        if low < 0 or high >= vocab_size:
            raise ValueError(f"tokens must be from 0 to {vocab_size - 1}, since vocab_size="
                             f"{vocab_size}, but X holds {low.item()} to {high.item()}")


class TransformerEncoder(nn.Module):
    """Embed tokens, scale by √num_hiddens, add positions, and run the blocks (4.4).

    `forward(X, valid_lens)` takes tokens X (B, n) and returns (B, n, num_hiddens); arguments as
    in `EncoderBlock`. The embedding starts as N(0, 1/num_hiddens), so that a token and its
    position are about equally long (4.8). Raises what `check_tokens` raises; an `embedding` put
    in place of the table, such as a linear layer for patches, checks its own input. `pos_encoding`
    refuses more than its `max_len` tokens. `attention_weights` lists each block's (B·h, n, n),
    computed when read (Vaswani et al., 2017, section 3.1; transformer encoder, "The encoder").
    """

    def __init__(self, vocab_size, key_size, query_size, value_size, num_hiddens, norm_shape,
                 ffn_num_input, ffn_num_hiddens, num_heads, num_layers, dropout, use_bias=False):
        super().__init__()
        sizes = {"vocab_size": vocab_size, "num_hiddens": num_hiddens, "num_layers": num_layers}
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"{name} must be 1 or more, but is {size}")
        self.num_hiddens = num_hiddens
        self.embedding = nn.Embedding(vocab_size, num_hiddens)
        nn.init.normal_(self.embedding.weight, std=num_hiddens**-0.5)
        self.pos_encoding = PositionalEncoding(num_hiddens, dropout)
        self.blks = nn.Sequential()
        for i in range(num_layers):
            self.blks.add_module(f"block{i}", EncoderBlock(
                key_size, query_size, value_size, num_hiddens, norm_shape, ffn_num_input,
                ffn_num_hiddens, num_heads, dropout, use_bias))

    @property
    def attention_weights(self):
        """The weights of each block's last call, as `DotProductAttention` gives them."""
        return [blk.attention.attention.attention_weights for blk in self.blks]

    def forward(self, X, valid_lens=None, *args):
        if isinstance(self.embedding, nn.Embedding):
            check_tokens(X, self.embedding.num_embeddings)
            X = X.long()
        X = self.pos_encoding(self.embedding(X) * math.sqrt(self.num_hiddens))
        for blk in self.blks:
            X = blk(X, valid_lens)
        return X


# %% chapters/en/transformer-encoder.ipynb#harness
class LearnedTable(nn.Module):
    """Add a learned vector to each position: X (B, n, num_hiddens) with n up to `max_len`.

    Its rows begin as long as those of the sinusoid. Raises ValueError for another shape
    (transformer encoder, "A small model").
    """

    def __init__(self, num_hiddens, max_len=64):
        super().__init__()
        self.P = nn.Parameter(torch.randn(max_len, num_hiddens) / math.sqrt(2))

    def forward(self, X):
        max_len, width = self.P.shape
        if X.dim() != 3 or X.shape[1] > max_len or X.shape[2] != width:
            raise ValueError(f"X must be (batch, up to {max_len} tokens, {width}), but has shape "
                             f"{tuple(X.shape)}")
        return X + self.P[:X.shape[1]]


class EncoderWithHead(nn.Module):
    """A Transformer encoder and a linear layer on each token, or with `pool` on their mean.

    `positions` is "none", "sinusoid" or "learned". `forward(X)` takes tokens (B, n) and returns
    (B, n, num_outputs), or (B, num_outputs) with `pool`. Raises ValueError for another name,
    and with `pool` for no tokens (transformer encoder, "A small model").
    """

    def __init__(self, vocab_size, num_outputs, pool=False, positions="sinusoid", num_hiddens=32,
                 num_heads=2, num_layers=1, dropout=0.0):
        super().__init__()
        d, self.pool = num_hiddens, pool
        self.encoder = TransformerEncoder(vocab_size, d, d, d, d, [d], d, 2 * d, num_heads,
                                          num_layers, dropout)
        if positions not in ("none", "sinusoid", "learned"):
            raise ValueError(f"positions must be none, sinusoid or learned, not {positions!r}")
        if positions != "sinusoid":
            self.encoder.pos_encoding = nn.Identity() if positions == "none" else LearnedTable(d)
        self.head = nn.Linear(d, num_outputs)

    def forward(self, X):
        Y = self.encoder(X)                                       # (B, n, d)
        if self.pool and Y.shape[1] == 0:
            raise ValueError(f"pool takes the mean over tokens, but X {tuple(X.shape)} has none")
        return self.head(Y.mean(1) if self.pool else Y)


def check_classes(scores, y):
    """Raise ValueError unless y holds one class for each row of `scores` (*, classes).

    An empty y is refused too: its mean would be NaN (transformer encoder, "A small model").
    """
    if y.shape != scores.shape[:-1] or y.numel() == 0:
        raise ValueError(f"y must hold one class for each answer, in the shape of the answers "
                         f"{tuple(scores.shape[:-1])}, and at least one, but has shape "
                         f"{tuple(y.shape)}")


def train(net, batch, steps, lr=3e-3, seed=0):
    """Train in place by Adam on `steps` batches; return the losses.

    `batch(g)` gives X and the right classes y, drawn from the generator `g`, which `seed` sets.
    Raises ValueError when y has not the shape of the answers, or for a loss that is not finite,
    before the step (transformer encoder, "A small model").
    """
    net.train()
    g = torch.Generator().manual_seed(seed)
    optimizer, losses = torch.optim.Adam(net.parameters(), lr), []
    for _ in range(steps):
        X, y = batch(g)
        scores = net(X)
        check_classes(scores, y)
        loss = F.cross_entropy(scores.flatten(0, -2), y.flatten())
        if not loss.isfinite():
            raise ValueError(f"the loss is {loss.item()} after {len(losses)} steps: look at the "
                             "numbers in X, the classes in y, lr, and half types of parameters")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def accuracy(net, X, y):
    """The share of right classes, without dropout; `net` stays in its mode.

    Raises ValueError when y has not the shape of the answers (transformer encoder, "A small
    model").
    """
    training = net.training
    net.eval()
    try:
        scores = net(X)
    finally:
        net.train(training)
    check_classes(scores, y)
    return (scores.argmax(-1) == y).double().mean().item()


def trained(task, sizes, seed, steps=300, **options):
    """An `EncoderWithHead` of these sizes (vocab_size, num_outputs) and options, trained on a task.

    (transformer encoder, "A small model")
    """
    torch.manual_seed(seed)
    net = EncoderWithHead(*sizes, **options)
    train(net, task, steps, seed=seed)
    return net


def markers(g, B=64, n=16):
    """Which of two markers comes first: tokens (B, n), and 1 where token 1 stands before 0.

    The others are drawn from 2 to 11 (transformer encoder, "Which comes first?").
    """
    X = torch.randint(2, 12, (B, n), generator=g)
    places = torch.rand(B, n, generator=g).argsort(1)[:, :2]      # two different ones
    X.scatter_(1, places, torch.tensor([0, 1]).expand(B, 2))
    return X, (places[:, 0] > places[:, 1]).long()


def reversal(g, B=64, n=16, V=10):
    """Random tokens (B, n) below V, and the same from the end (transformer encoder, "Reversal")."""
    X = torch.randint(V, (B, n), generator=g)
    return X, X.flip(1)


def counting(g, B=64, n=16, V=10):
    """Tokens (B, n), and how many others equal each (transformer encoder, "Why √d?")."""
    X = torch.randint(V, (B, n), generator=g)
    return X, (X[:, :, None] == X[:, None]).sum(2) - 1


# %% chapters/en/transformer-encoder.ipynb#digits-model
def digit_patches():
    """Training and test pairs of `read_digits`, images as 16 patches: X (B, 16, 4) and labels.

    Patches of 2×2 pixels go from left to right, then down; 1,400 images, drawn once and for all,
    are for training, and 397 for the test (transformer encoder, "Real data").
    """
    images, labels = read_digits()                                # (1797, 8, 8)
    patches = images.unflatten(1, (4, 2)).unflatten(3, (4, 2)).transpose(2, 3)
    X = patches.flatten(3).flatten(1, 2)                          # (1797, 16, 4)
    order = torch.randperm(len(X), generator=torch.Generator().manual_seed(0))
    return [(X[part], labels[part]) for part in (order[:1400], order[1400:])]


def sample_from(X, y, B=64):
    """A function of a generator that draws B pairs from X and y.

    Raises ValueError unless X and y are equally long, and not empty (transformer encoder, "Real
    data").
    """
    if len(X) != len(y) or len(X) == 0:
        raise ValueError(f"X and y must be pairs, at least one, but X has {len(X)} entries and y "
                         f"has {len(y)}")

    def batch(g):
        chosen = torch.randint(len(X), (B,), generator=g)
        return X[chosen], y[chosen]
    return batch


class DigitsModel(EncoderWithHead):
    """An `EncoderWithHead` with these options for the ten digits: patches (B, n, 4) -> (B, 10).

    A linear layer stands in for the table of embeddings (transformer encoder, "Real data").
    """

    def __init__(self, **options):
        super().__init__(1, 10, pool=True, **options)
        d = self.encoder.num_hiddens
        self.encoder.embedding = nn.Linear(4, d)
        nn.init.normal_(self.encoder.embedding.weight, std=d**-0.5)
        nn.init.zeros_(self.encoder.embedding.bias)               # the same for all: says nothing
