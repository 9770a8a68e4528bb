"""Private checks of the assignment "attention": questions, points, hidden cases and their judge.

Nothing here runs beside a student's code. The grader sends `Case.inputs` to the student's kernel,
where the public `Question.driver` calls the answer, and gives what comes back to `Question.judge`.
The right values are computed here, in NumPy float64 loops that share nothing with the solutions.

A case holds several trials and is all or nothing. Each case has at least one trial that tells the
question apart from what the book teaches (a window shorter than the sequence, a start that is not
0, …), so that an answer to another question earns nothing. Inputs come from a generator that the
grader seeds with the secret of the course.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Case:
    """Some trials that earn `points` together; `private` stays on this side."""

    inputs: dict
    points: int
    private: dict


@dataclass(frozen=True)
class Verdict:
    """The points of one case, and one sentence {"en": …, "zh": …}, empty when all is right."""

    points: int
    sentence: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Question:
    """One question: what the student defines, how it is called, and what is asked of it."""

    id: str
    name: str
    points: int
    driver: str
    cases: Callable
    judge: Callable


def both(en, zh):
    return {"en": en, "zh": zh}


# ---- how an answer is called, in the student's kernel --------------------------------------

PLAIN = '''
import numpy
import torch


def plain(value):
    """Tensors become arrays, NumPy's numbers Python's; all else stays what it is."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy().copy()
    if isinstance(value, numpy.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
'''

CALL = (
    PLAIN
    + '''

def drive(answer, inputs):
    """Call the function once for each trial; give back its results and its arguments."""
    outputs = []
    for arguments in inputs["trials"]:
        given = [torch.from_numpy(a) if isinstance(a, numpy.ndarray) else a for a in arguments]
        outputs.append({"result": plain(answer(*given)), "after": plain(given)})
    return outputs
'''
)

LAYER = (
    PLAIN
    + '''

def drive(answer, inputs):
    """Make a layer for each trial, put a table into it, and take the steps of the trial."""
    return [trial(answer, **arguments) for arguments in inputs["trials"]]


def trial(answer, width, max_len, table, steps):
    layer = answer(width, max_len)
    with torch.no_grad():
        layer.P.copy_(torch.from_numpy(table))
    results = []
    for do, *arguments in steps:
        tensors = [torch.from_numpy(a) if isinstance(a, numpy.ndarray) else a for a in arguments]
        if do == "reload":
            state, layer = layer.state_dict(), answer(width, *tensors)
            layer.load_state_dict(state)
            results.append(None)
        else:
            results.append(STEPS[do](layer, *tensors))
    return results


def learn(layer, X, G, rate):
    """The change of P by one step of gradient descent on the sum of G times the output."""
    before = plain(layer.P)
    (layer(X) * G).sum().backward()
    with torch.no_grad():
        for parameter in layer.parameters():
            if parameter.grad is not None:
                parameter -= rate * parameter.grad
                parameter.grad = None
    return plain(layer.P) - before


def refuse(layer, method, argument):
    """The name of the exception that is raised, or None."""
    try:
        layer.extend(argument) if method == "extend" else layer(argument)
    except Exception as error:
        return type(error).__name__


def parameters(layer):
    return [[name, list(P.shape), P.requires_grad] for name, P in layer.named_parameters()]


STEPS = {
    "forward": lambda layer, X: plain(layer(X)),
    "table": lambda layer: plain(layer.P),
    "type": lambda layer: str(layer.P.dtype),
    "extend": lambda layer, length: plain(layer.extend(length)),
    "double": lambda layer: layer.double() and None,
    "learn": learn,
    "refuse": refuse,
    "parameters": parameters,
}
'''
)

# ---- how results are compared ----------------------------------------------------------------

CHANGED = both(
    "The function changes its arguments: compute new tensors instead of writing into them.",
    "函数改动了传入的参数：应当计算出新的张量，不要写进参数里。",
)
NO_NUMBERS = both(
    "The result is not of the kind that the question asks for.", "返回值的类型与题目要求的不符。"
)
OTHER_FORM = both(
    "What came back does not have the form of an answer to this question.",
    "返回的内容不是这道题的答案应有的形式。",
)


def shape_differs(shape, right):
    """What is wrong with a shape. No length is told, as it could be a hidden input."""
    if len(shape) != len(right):
        return both(
            f"The result does not have the {len(right)} axes that the question asks for.",
            f"结果的轴数不对：题目要求 {len(right)} 个轴。",
        )
    axis = next(i for i, (a, b) in enumerate(zip(shape, right, strict=True)) if a != b)
    return both(
        f"Axis {axis} of the result (the first is 0) does not have the length that the question "
        "asks for.",
        f"结果的第 {axis} 个轴（从 0 数起）的长度与题目要求的不符。",
    )


def fault(result, right, hint):
    """One sentence on how the array `result` differs from `right`, or {}.

    Equal means within 1e-5 plus 1e-5 of the right value.
    """
    if not isinstance(result, np.ndarray) or result.dtype.kind not in "fiu":
        return NO_NUMBERS
    if result.shape != right.shape:
        return shape_differs(result.shape, right.shape)
    if not np.isfinite(result).all():
        return both(
            f"NaN or infinity in the result: {hint['en']}", f"结果里有 NaN 或无穷大：{hint['zh']}"
        )
    return {} if np.allclose(result.astype(np.float64), right, rtol=1e-5, atol=1e-5) else hint


def same_arguments(before, after):
    """Whether the arguments of a call hold the same bytes as before it."""
    if not isinstance(after, list) or len(after) != len(before):
        return False
    return all(
        isinstance(b, np.ndarray) and a.dtype == b.dtype and a.tobytes() == b.tobytes()
        if isinstance(a, np.ndarray)
        else type(a) is type(b) and a == b
        for a, b in zip(before, after, strict=True)
    )


def judge_calls(case, outputs):
    """Points for a case of plain calls: each trial has a result near the right one."""
    trials = case.inputs["trials"]
    if not isinstance(outputs, list) or len(outputs) != len(trials):
        return Verdict(0, OTHER_FORM)
    for arguments, right, output in zip(trials, case.private["right"], outputs, strict=True):
        if not isinstance(output, dict) or set(output) != {"result", "after"}:
            return Verdict(0, OTHER_FORM)
        sentence = case.private["fault"](output["result"], right, case.private["hint"])
        if not sentence and not same_arguments(arguments, output["after"]):
            sentence = CHANGED
        if sentence:
            return Verdict(0, sentence)
    return Verdict(case.points)


def calls(points, hint, trials, right, compare=fault):
    """A case of plain calls; `right(*arguments)` computes the right value of each trial."""
    private = {"right": [right(*arguments) for arguments in trials], "hint": hint, "fault": compare}
    return Case({"trials": trials}, points, private)


# ---- attention over the keys that a rule allows: q1 and q4 -------------------------------------


def attend(query, keys, values, allowed):
    """The average of the allowed values for one query, in float64; zeros if none is allowed."""
    answer = np.zeros(values.shape[1])
    if not allowed:
        return answer
    scores = [
        sum(float(a) * float(b) for a, b in zip(query, keys[j], strict=True)) / len(query) ** 0.5
        for j in allowed
    ]
    weights = [np.exp(score - max(scores)) for score in scores]
    for j, weight in zip(allowed, weights, strict=True):
        answer += weight / sum(weights) * values[j].astype(np.float64)
    return answer


def attend_all(Q, K, V, allowed):
    """`attend` for each query of each sequence; `allowed(b, i)` lists the keys that it sees."""
    return np.array(
        [
            [attend(Q[b, i], K[b], V[b], allowed(b, i)) for i in range(Q.shape[1])]
            for b in range(Q.shape[0])
        ]
    )


def tokens(rng, batch, n, m, d, v):
    """Random queries (B, n, d), keys (B, m, d) and values (B, m, v), float32."""
    shapes = ((batch, n, d), (batch, m, d), (batch, m, v))
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def far_tokens(rng, batch, n, m, v):
    """Like `tokens`, with scores near 4096 or -4096 that float32 holds exactly."""
    Q, K, V = tokens(rng, batch, n, m, 16, v)
    Q[:], K[:] = (rng.integers(-2, 3, X.shape) for X in (Q, K))
    Q[:, :, 0] = rng.choice([-128.0, 128.0], (batch, n))
    Q[:, 0, 0], Q[:, -1, 0] = 128.0, -128.0
    K[:, :, 0] = 128.0
    return Q, K, V


def window_right(Q, K, V, w):
    """Query i is token m - n + i, and sees itself and the w - 1 tokens before it."""
    earlier = K.shape[1] - Q.shape[1]
    return attend_all(
        Q, K, V, lambda b, i: list(range(max(0, earlier + i - w + 1), earlier + i + 1))
    )


def window_cases(rng):
    size = lambda low, high: int(rng.integers(low, high + 1))  # noqa: E731
    plain, later, wide, far = [], [], [], []
    for _ in range(3):
        n = size(8, 9)  # the width is never a length: a wrong scale shows
        plain.append([*tokens(rng, size(2, 3), n, n, size(5, 7), size(2, 3)), size(2, 4)])
        n = size(3, 4)
        later.append([*tokens(rng, 2, n, n + size(3, 5), size(10, 12), 2), size(2, 3)])
        far.append([*far_tokens(rng, 2, 7, 7, 3), size(2, 4)])
    n = size(5, 7)
    for w in (1, 3, n, n + size(1, 9)):
        wide.append([*tokens(rng, 2, n, n, 8, 3), w])
    return [
        calls(
            3,
            both(
                "Query i sees the w keys i-w+1 to i: itself counts, later keys do not, the scores "
                "are divided by √d, and the weights over these keys sum to 1.",
                "第 i 个查询只看第 i-w+1 到第 i 个键，共 w 个：包括自身，不包括后面的键；分数除以 "
                "√d，这些键上的权重之和为 1。",
            ),
            plain,
            window_right,
        ),
        calls(
            3,
            both(
                "With fewer queries than keys, the queries are the last n of the m tokens.",
                "查询比键少时，这些查询对应 m 个词元中的最后 n 个。",
            ),
            later,
            window_right,
        ),
        calls(
            2,
            both(
                "Try a window of one token, of all tokens, and one longer than the sequence.",
                "试一试窗口只有一个词元、恰好等于序列长度、超过序列长度的情形。",
            ),
            wide,
            window_right,
        ),
        calls(
            2,
            both(
                "Scores of several thousand, positive or negative: subtract the largest visible "
                "score of each row before exp.",
                "分数的绝对值有几千时，求 exp 之前要减去每一行里看得见的最大分数。",
            ),
            far,
            window_right,
        ),
    ]


def span_right(Q, K, V, starts, ends):
    """Sequence b is valid from starts[b] up to, not including, ends[b]."""
    m = K.shape[1]
    return attend_all(Q, K, V, lambda b, i: list(range(int(starts[b]), min(int(ends[b]), m))))


def span_trial(rng, spans, make=tokens, m=8):
    """One trial with these (start, end), in a random order, and one with 0 < start < end < m."""
    spans = [*spans, (int(rng.integers(1, 4)), int(rng.integers(5, m)))]
    starts, ends = np.array(rng.permutation(spans), dtype=np.int64).T.copy()
    sizes = (len(spans), int(rng.integers(3, 6)), m)
    sizes = (*sizes, int(rng.integers(6, 8)), 2) if make is tokens else (*sizes, 3)
    return [*make(rng, *sizes), starts, ends]


def spoil_outside(Q, K, V, starts, ends):
    """The same trial with NaN, infinity and huge numbers where keys and values are not valid."""
    K, V = K.copy(), V.copy()
    for b, (start, end) in enumerate(zip(starts, ends, strict=True)):
        outside = [j for j in range(K.shape[1]) if not start <= j < end]
        for place, j in enumerate(outside):
            K[b, j] = V[b, j] = (np.nan, np.inf, 1e30)[place % 3]
    return [Q, K, V, starts, ends]


def span_cases(rng):
    plain = [span_trial(rng, [(2, 6), (3, 7)]) for _ in range(2)]
    empty = [span_trial(rng, [(3, 3), (6, 2), (1, 4)]) for _ in range(2)]
    edges = [span_trial(rng, [(0, 5), (4, 8), (2, 8 + int(rng.integers(1, 9)))]) for _ in range(2)]
    spoiled = [spoil_outside(*span_trial(rng, [(1, 3), (4, 7)])) for _ in range(2)]
    far = [span_trial(rng, [(2, 5)], far_tokens) for _ in range(2)]
    hints = [
        both(
            "Each sequence keeps the keys from its start up to, not including, its end; the scores "
            "are divided by √d, and the weights over these keys sum to 1.",
            "每个序列只保留从起点到终点（不含终点）的键；分数除以 √d，这些键上的权重之和为 1。",
        ),
        both(
            "A sequence whose end does not come after its start has no valid key: its output is 0.",
            "终点不在起点之后的序列没有有效的键：它的输出是 0。",
        ),
        both(
            "The valid part may begin at key 0, end with the last key, or name an end beyond it.",
            "有效部分可以从第 0 个键开始，可以到最后一个键为止，终点也可以超出键的个数。",
        ),
        both(
            "NaN outside of the valid part reaches the output: 0 times NaN is NaN, so values must "
            "be masked too.",
            "有效部分之外的 NaN 传到了输出：0 乘 NaN 还是 NaN，所以值也要掩蔽。",
        ),
        both(
            "Scores of several thousand: subtract the largest valid score of each row before exp.",
            "分数的绝对值有几千时，求 exp 之前要减去每一行里有效的最大分数。",
        ),
    ]
    groups = (plain, empty, edges, spoiled, far)
    return [
        calls(points, hint, trials, span_right)
        for points, hint, trials in zip((3, 2, 1, 2, 2), hints, groups, strict=True)
    ]


# ---- q2: an encoding with other columns ---------------------------------------------------------


def table_right(n, d, base, start):
    pairs = (d + 1) // 2
    columns = [(np.cos, j) for j in reversed(range(pairs))]
    columns += [(np.sin, j) for j in reversed(range(pairs))]
    table = np.zeros((n, d))
    for i in range(n):
        for column, (wave, j) in enumerate(columns[:d]):
            table[i, column] = wave((start + i) / float(base) ** (2 * j / d))
    return table


def table_cases(rng):
    size = lambda low, high: int(rng.integers(low, high + 1))  # noqa: E731
    base = lambda: round(float(rng.uniform(20, 900)), 2)  # noqa: E731
    even = [[size(3, 5), d, base(), size(2, 40)] for d in (4, 6, 2 * size(4, 6))]
    odd = [[size(3, 5), d, base(), size(2, 40)] for d in (1, 5, 2 * size(3, 6) + 1)]
    far = [[4, 6, base(), sign * size(1_000_000, 2_000_000)] for sign in (1, 1, -1)]
    hints = [
        both(
            "Cosines fill the left half and sines the right half, each from the slowest column to "
            "the fastest; the first row is position start, and the base is the one given.",
            "左半是余弦，右半是正弦，各自从最慢的一列排到最快的一列；第一行是位置 start，"
            "底数用传入的 base。",
        ),
        both(
            "An odd width has one cosine more than sines: the fastest sine is left out, and the "
            "exponents are still -2j/d.",
            "宽度为奇数时余弦比正弦多一列：缺的是最快的那一列正弦，指数仍是 -2j/d。",
        ),
        both(
            "Positions of a million: compute the angles in float64.",
            "位置达到百万时，角度要用 float64 计算。",
        ),
    ]
    return [
        calls(points, hint, trials, table_right)
        for points, hint, trials in zip((4, 3, 3), hints, (even, odd, far), strict=True)
    ]


# ---- q3: cost and depth of another layer ---------------------------------------------------------


def seen(n, w):
    """The keys that each query sees: the window that ends at it, and token 0."""
    return [sorted({0, *range(max(0, i - w + 1), i + 1)}) for i in range(n)]


def flops_right(n, d, h, w):
    """Count the multiply-adds product by product, query by query."""
    c = d // h
    total = 0
    for keys in seen(n, w):
        total += 2 * d * d + 2 * d * c + 2 * d * c + 2 * d * d  # queries, key, value, output
        for _ in range(h):
            total += 2 * len(keys) * c + 2 * len(keys) * c  # scores, averages
    return total


def depth_right(n, d, h, w):
    """Follow the dependences layer by layer until nothing new is reached."""
    reached = [{i} for i in range(n)]
    for layers in range(1, n + 2):
        reached = [set().union(*(reached[j] for j in keys)) for keys in seen(n, w)]
        if all(reached[i] == set(range(i + 1)) for i in range(n)):
            return layers
    return None


def count_fault(place):
    """Compare one of the two numbers of an answer to q3."""

    def compare(result, right, hint):
        if not isinstance(result, list) or len(result) != 2:
            return NO_NUMBERS
        number = result[place]
        if isinstance(number, np.ndarray) and number.ndim == 0:
            number = number.item()
        if number is None or right is None:
            return {} if number is right else hint
        if isinstance(number, bool) or not isinstance(number, int | float):
            return NO_NUMBERS
        return {} if number == right else hint

    return compare


def cost_cases(rng):
    size = lambda low, high: int(rng.integers(low, high + 1))  # noqa: E731
    one_head = [[size(9, 30), size(5, 16), 1, size(2, 6)] for _ in range(3)]
    heads = [[size(9, 30), h * size(2, 6), h, size(2, 6)] for h in (2, 3, size(4, 6))]
    deep = [[n, 8, 2, w] for n, w in ((size(12, 20), 2), (size(20, 40), 3), (21, 6), (22, 6))]
    edge = [[2, 4, 2, 1], [size(3, 9), 4, 1, 1], [1, 4, 1, 3], [7, 4, 1, 9], [size(9, 14), 4, 2, 2]]
    cost, depth = count_fault(0), count_fault(1)
    return [
        calls(
            3,
            both(
                "The operations: two products with d × d matrices per token, the key and the value "
                "of the token, and 4d for each pair of a query and a key that it sees; early "
                "queries see fewer keys, and token 0 counts once.",
                "运算次数：每个词元有两次与 d × d 矩阵的乘法，再加上它的键和值；每一对"
                "“查询和它看得见的键”要 4d 次；靠前的查询看到的键较少，第 0 个词元只算一次。",
            ),
            one_head,
            flops_right,
            cost,
        ),
        calls(
            3,
            both(
                "With several heads there is still one key and one value of width d/h for a token.",
                "有多个头时，每个词元仍只有一个键和一个值，宽度为 d/h。",
            ),
            heads,
            flops_right,
            cost,
        ),
        calls(
            3,
            both(
                "The layers: token 0 is seen by all but sees only itself, so it relays nothing; "
                "find the two tokens that are hardest to connect.",
                "层数：所有词元都看得见第 0 个词元，但它只看得见自己，所以不能中转；"
                "想一想哪两个词元最难连通。",
            ),
            deep,
            depth_right,
            depth,
        ),
        calls(
            1,
            both(
                "The layers at the edges: one or two tokens need one layer, and a window of one "
                "token connects no others (None).",
                "层数的边界情形：一两个词元只要一层；窗口只有一个词元时，其余词元永远连不通（None）。",
            ),
            edge,
            depth_right,
            depth,
        ),
    ]


# ---- q5: a learnable encoding that can be extended -----------------------------------------------


class Table:
    """What the layer should do, step by step, on a table in float64."""

    def __init__(self, table):
        self.P = table.astype(np.float64)

    def forward(self, X):
        answer = X.astype(np.float64)
        for sequence in answer:
            for i in range(len(sequence)):
                sequence[i] += self.P[i]
        return answer

    def learn(self, X, G, rate):
        before = self.P.copy()
        for sequence in G.astype(np.float64):
            for i in range(len(sequence)):
                self.P[i] -= rate * sequence[i]
        return self.P - before

    def extend(self, length):
        old = len(self.P)
        self.P = np.array([self.P[i % old] for i in range(length)])

    def table(self):
        return self.P.copy()

    def parameters(self):
        return [["P", list(self.P.shape), True]]

    def refuse(self, method, argument):
        return "ValueError"

    def double(self):
        pass

    def type(self):
        return "torch.float64"

    def reload(self, length):
        pass


def layer_right(trial):
    table = Table(trial["table"])
    return [getattr(table, do)(*arguments) for do, *arguments in trial["steps"]]


def judge_layer(case, outputs):
    """Points for a case of layers: each step of each trial gives the right result."""
    trials = case.inputs["trials"]
    if not isinstance(outputs, list) or len(outputs) != len(trials):
        return Verdict(0, OTHER_FORM)
    for right, results in zip(case.private["right"], outputs, strict=True):
        if not isinstance(results, list) or len(results) != len(right):
            return Verdict(0, OTHER_FORM)
        for wanted, result in zip(right, results, strict=True):
            if isinstance(wanted, np.ndarray):
                sentence = fault(result, wanted, case.private["hint"])
            else:
                # repr: lists that hold arrays cannot be compared by ==
                sentence = {} if repr(result) == repr(wanted) else case.private["hint"]
            if sentence:
                return Verdict(0, sentence)
    return Verdict(case.points)


def layers(points, hint, trials):
    right = [layer_right(trial) for trial in trials]
    return Case({"trials": trials}, points, {"right": right, "hint": hint})


def layer_cases(rng):
    size = lambda low, high: int(rng.integers(low, high + 1))  # noqa: E731
    normal = lambda *shape: rng.standard_normal(shape).astype(np.float32)  # noqa: E731

    def trial(steps):
        """`steps(d, old, new)` on a layer with `old` rows; new is no multiple of old."""
        d, old = size(3, 6), size(4, 6)
        new = 2 * old + size(1, old - 1)
        return {"width": d, "max_len": old, "table": normal(old, d), "steps": steps(d, old, new)}

    def keeps(d, old, new):
        X, G = normal(2, old - 1, d), normal(2, old - 1, d)
        step, look = ["learn", X, G, 0.1], ["forward", X]
        return [step, look, ["extend", new], ["parameters"], look, step, look]

    def grows(d, old, new):
        third = new + size(2, old)
        long = normal(2, third, d)
        return [
            *(["extend", new], ["parameters"], ["table"]),
            *(["extend", third], ["table"], ["forward", long]),
        ]

    def learns(d, old, new):
        first = normal(2, old, d)
        step = ["learn", normal(2, new, d), normal(2, new, d), 0.1]
        return [["extend", new], ["parameters"], step, step, ["forward", first]]

    def refuses(d, old, new):
        wrong = [["refuse", "forward", normal(2, new + 1, d)], ["refuse", "extend", old]]
        wrong += [["refuse", "extend", new], ["refuse", "forward", normal(2, 3, 1)]]
        return [["extend", new], *wrong, ["parameters"], ["forward", normal(2, old, d)]]

    def moves(d, old, new):
        look = ["forward", normal(2, old, d)]
        return [["double"], ["extend", new], ["type"], ["parameters"], look, ["reload", new], look]

    hints = [
        both(
            "Row i of P is added to token i, learns with it, and stays what it is when the layer "
            "is extended; P is then the only parameter, with the new number of rows.",
            "P 的第 i 行加到第 i 个词元上，并随训练更新；扩展之后它保持不变，"
            "P 仍是唯一的参数，行数是新的长度。",
        ),
        both(
            "A new row i begins as a copy of row i mod L, with L the number of rows just before "
            "this extension.",
            "新的第 i 行一开始是第 i mod L 行的副本，L 是这一次扩展之前的行数。",
        ),
        both(
            "After an extension P is the only parameter, and each row learns by itself.",
            "扩展之后 P 是唯一的参数，每一行各自学习。",
        ),
        both(
            "Too many tokens, tokens of another width, and a length that is not larger each raise "
            "ValueError and change nothing.",
            "词元过多、词元宽度不符、新长度不比原来大，这三种情形都应抛出 ValueError，"
            "并且什么都不改变。",
        ),
        both(
            "The extended P keeps its type, and state_dict fits a new layer of the new length.",
            "扩展后的 P 保持原来的数据类型，state_dict 可以载入新长度的新层。",
        ),
    ]
    groups = (keeps, grows, learns, refuses, moves)
    return [
        layers(points, hint, [trial(steps) for _ in range(2)])
        for points, hint, steps in zip((2, 3, 2, 2, 1), hints, groups, strict=True)
    ]


QUESTIONS = (
    Question("q1", "window_attention", 10, CALL, window_cases, judge_calls),
    Question("q2", "slow_first_table", 10, CALL, table_cases, judge_calls),
    Question("q3", "cost_and_depth", 10, CALL, cost_cases, judge_calls),
    Question("q4", "span_attention", 10, CALL, span_cases, judge_calls),
    Question("q5", "ExtendableEncoding", 10, LAYER, layer_cases, judge_layer),
)
FREE_TEXT = {"q6": 10, "q7": 10}
TOTAL = sum(question.points for question in QUESTIONS) + sum(FREE_TEXT.values())
