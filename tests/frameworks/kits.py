"""One interface to the five modules of the package, so that one test file serves them all.

NumPy arrays come in and go out, and weights are x @ W, of shape (in, out), whatever a framework
stores. A kit imports its framework when it is made, and nothing else may import one: TensorFlow
and then Paddle in one process is a crash.
"""

import importlib
import importlib.metadata
import os
import warnings
from types import SimpleNamespace

import numpy as np

PROJECTIONS = ("W_q", "W_k", "W_v", "W_o")


class Kit:
    """The functions and layers of `d2l_local.<name>`, whose names a test may replace in `d2l`."""

    packages = ()  # whose versions decide the numbers, NumPy beside them

    def __init__(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the frameworks' own imports
            self.d2l = importlib.import_module(f"d2l_local.{self.name}")

    def versions(self):
        """Without what a build adds, such as 2.13.0+cpu."""
        found = {name: importlib.metadata.version(name) for name in (*self.packages, "numpy")}
        return {name: version.partition("+")[0] for name, version in found.items()}

    def masked_softmax(self, X, valid_lens):
        return self.numpy(self.d2l.masked_softmax(self.array(X), self.lengths(valid_lens)))

    def split(self, X, num_heads):
        return self.numpy(self.d2l.transpose_qkv(self.array(X), num_heads))

    def join(self, X, num_heads):
        return self.numpy(self.d2l.transpose_output(self.array(X), num_heads))

    def lengths(self, valid_lens):
        return None if valid_lens is None else self.array(np.asarray(valid_lens))

    def attend(self, queries, keys, values, valid_lens):
        """Outputs and weights of `DotProductAttention`."""
        layer = self.ready(self.d2l.DotProductAttention(0.0))
        arrays = [self.array(X) for X in (queries, keys, values)]
        Y = layer(*arrays, self.lengths(valid_lens))
        return SimpleNamespace(output=self.numpy(Y), weights=self.numpy(layer.attention_weights))

    def multi_head(self, weights, num_heads, queries, keys, values, valid_lens):
        """Outputs, weights, and the gradients of the sum of the squared outputs.

        `weights` is {"W_q": (in, out), …, "b_q": (out,), …}, with all four biases or none.
        """
        layer = self.make_layer(weights, num_heads)
        tensors = [self.leaf(X) for X in (queries, keys, values)]
        Y, gradients = self.differentiate(layer, tensors, self.lengths(valid_lens), weights)
        A = layer.attention.attention_weights
        return SimpleNamespace(output=self.numpy(Y), weights=self.numpy(A), gradients=gradients)

    def encode(self, X, max_len=1000, num_hiddens=None):
        width = num_hiddens or X.shape[2]
        layer = self.ready(self.d2l.PositionalEncoding(width, 0.0, max_len))
        return self.numpy(layer(self.array(X)))

    def encode_in_training(self, X, dropout):
        layer = self.ready(self.d2l.PositionalEncoding(X.shape[2], dropout))
        return self.numpy(self.train(layer, self.array(X)))

    def attend_in_training(self, queries, keys, values, dropout):
        layer = self.ready(self.d2l.DotProductAttention(dropout))
        Y = self.train(layer, *[self.array(X) for X in (queries, keys, values)])
        return SimpleNamespace(output=self.numpy(Y), weights=self.numpy(layer.attention_weights))

    def train(self, layer, *tensors):
        """Call a layer with dropout."""
        layer.train()
        return layer(*tensors)

    def ready(self, layer):
        """A layer that can be called, in inference mode."""
        return layer

    def leaf(self, X):
        """A tensor that asks for a gradient."""
        return self.array(X)

    def narrow(self, X):
        """A tensor of bfloat16, a type that NumPy does not have."""
        return self.array(X).astype("bfloat16")

    # What wrong versions are made of; frameworks that call it otherwise say so

    def reshape(self, X, *shape):
        return X.reshape(shape)

    def swap(self, X):
        """Exchange the last two of three axes."""
        return X.transpose((0, 2, 1))

    def take(self, X, rows):
        """Rows of the first axis."""
        return X[self.array(np.array(rows))]

    def stop(self, X):
        """The same numbers, through which no gradient passes."""
        return X.detach()

    def as_table(self, table):
        """An encoding as `position_table` gives it."""
        return table


def sizes(weights):
    """The first four arguments of a constructor with all sizes."""
    widths = [weights[name].shape[0] for name in ("W_k", "W_q", "W_v")]
    return (*widths, weights["W_q"].shape[1])


def stored(layer, weights, matrix, vector):
    """The parameters of a layer by our names, from the names of the framework's attributes."""
    found = {W: getattr(getattr(layer, W), matrix) for W in PROJECTIONS}
    if "b_q" in weights:
        found |= {f"b{W[1:]}": getattr(getattr(layer, W), vector) for W in PROJECTIONS}
    return found


def turned(name, array):
    """W transposed, for a framework that stores (out, in); a bias as it is."""
    return array.T if name.startswith("W") else array


class Torch(Kit):
    name, packages = "torch", ("torch",)

    def __init__(self):
        super().__init__()
        self.torch = importlib.import_module("torch")

    def array(self, X):
        return self.torch.tensor(X)

    def numpy(self, X):
        return X.detach().numpy()

    def narrow(self, X):
        return self.array(X).bfloat16()

    def ready(self, layer):
        return layer.eval()

    def leaf(self, X):
        return self.array(X).requires_grad_()

    def swap(self, X):
        return X.mT

    def as_table(self, table):
        return self.array(table)

    def make_layer(self, weights, num_heads):
        layer = self.d2l.MultiHeadAttention(*sizes(weights), num_heads, 0.0, "b_q" in weights)
        with self.torch.no_grad():
            for name, parameter in stored(layer, weights, "weight", "bias").items():
                parameter.copy_(self.array(turned(name, weights[name])))
        return layer.eval()

    def differentiate(self, layer, tensors, valid_lens, weights):
        Y = layer(*tensors, valid_lens)
        (Y**2).sum().backward()
        gradients = dict(zip(("queries", "keys", "values"), tensors, strict=True))
        gradients |= stored(layer, weights, "weight", "bias")
        return Y, {name: turned(name, X.grad.numpy()) for name, X in gradients.items()}


class TensorFlow(Kit):
    name, packages = "tensorflow", ("tensorflow-cpu", "keras")

    def __init__(self):
        os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "1", "TF_ENABLE_ONEDNN_OPTS": "0"}  # quiet
        super().__init__()
        self.tf = importlib.import_module("tensorflow")

    def array(self, X):
        return self.tf.constant(X)

    def numpy(self, X):
        return X.numpy()

    def train(self, layer, *tensors):
        return layer(*tensors, training=True)

    def narrow(self, X):
        return self.tf.cast(X, "bfloat16")

    def reshape(self, X, *shape):
        return self.tf.reshape(X, shape)

    def swap(self, X):
        return self.tf.transpose(X, (0, 2, 1))

    def take(self, X, rows):
        return self.tf.gather(X, rows)

    def stop(self, X):
        return self.tf.stop_gradient(X)

    def make_layer(self, weights, num_heads):
        layer = self.d2l.MultiHeadAttention(*sizes(weights), num_heads, 0.0, "b_q" in weights)
        for name, variable in stored(layer, weights, "kernel", "bias").items():
            variable.assign(weights[name])
        return layer

    def differentiate(self, layer, tensors, valid_lens, weights):
        variables = stored(layer, weights, "kernel", "bias")
        sources = dict(zip(("queries", "keys", "values"), tensors, strict=True))
        sources |= {name: variable.value for name, variable in variables.items()}
        with self.tf.GradientTape() as tape:
            tape.watch(tensors)
            Y = layer(*tensors, valid_lens)
            loss = self.tf.reduce_sum(Y**2)
        gradients = tape.gradient(loss, sources)
        return Y, {name: X.numpy() for name, X in gradients.items()}


class Paddle(Kit):
    name, packages = "paddle", ("paddlepaddle",)

    def __init__(self):
        super().__init__()
        self.paddle = importlib.import_module("paddle")

    def array(self, X):
        return self.paddle.to_tensor(X)

    def numpy(self, X):
        return X.numpy()

    def ready(self, layer):
        layer.eval()  # gives nothing
        return layer

    def leaf(self, X):
        return self.paddle.to_tensor(X, stop_gradient=False)

    def make_layer(self, weights, num_heads):
        layer = self.d2l.MultiHeadAttention(*sizes(weights), num_heads, 0.0, "b_q" in weights)
        for name, parameter in stored(layer, weights, "weight", "bias").items():
            parameter.set_value(weights[name])
        return self.ready(layer)

    def differentiate(self, layer, tensors, valid_lens, weights):
        Y = layer(*tensors, valid_lens)
        (Y**2).sum().backward()
        sources = dict(zip(("queries", "keys", "values"), tensors, strict=True))
        sources |= stored(layer, weights, "weight", "bias")
        return Y, {name: X.grad.numpy() for name, X in sources.items()}


class MXNet(Kit):
    name, packages = "mxnet", ("mxnet",)

    def __init__(self):
        super().__init__()
        self.mx = importlib.import_module("mxnet")

    def array(self, X):
        return self.mx.np.array(X, dtype=X.dtype)

    def numpy(self, X):
        return X.asnumpy()

    def ready(self, layer):
        layer.initialize()
        return layer

    def leaf(self, X):
        X = self.array(X)
        X.attach_grad()
        return X

    def train(self, layer, *tensors):
        with self.mx.autograd.record():
            return layer(*tensors)

    def narrow(self, X):
        return self.array(X).astype("float16")  # MXNet has no bfloat16

    def take(self, X, rows):
        return self.mx.np.take(X, self.array(np.array(rows)), axis=0)

    def make_layer(self, weights, num_heads):
        d = weights["W_q"].shape[1]
        layer = self.ready(self.d2l.MultiHeadAttention(d, num_heads, 0.0, "b_q" in weights))
        layer(*[self.mx.np.zeros((1, 1, weights[W].shape[0])) for W in PROJECTIONS[:3]])
        for name, parameter in stored(layer, weights, "weight", "bias").items():
            parameter.set_data(self.array(turned(name, weights[name])))
        return layer

    def differentiate(self, layer, tensors, valid_lens, weights):
        with self.mx.autograd.record(train_mode=False):
            Y = layer(*tensors, valid_lens)
            loss = (Y**2).sum()
        loss.backward(train_mode=False)
        parameters = stored(layer, weights, "weight", "bias")
        gradients = {name: parameter.grad() for name, parameter in parameters.items()}
        inputs = zip(("queries", "keys", "values"), tensors, strict=True)
        gradients |= {name: X.grad for name, X in inputs}
        return Y, {name: turned(name, X.asnumpy()) for name, X in gradients.items()}


class Jax(Kit):
    """Flax layers return their weights, and what they compute depends on parameters given."""

    name, packages = "jax", ("jax", "flax")

    def __init__(self):
        super().__init__()
        self.jax = importlib.import_module("jax")

    def array(self, X):
        return self.jax.numpy.asarray(X.astype("int32") if X.dtype == "int64" else X)

    def numpy(self, X):
        return np.asarray(X)

    def stop(self, X):
        return self.jax.lax.stop_gradient(X)

    def attend(self, queries, keys, values, valid_lens):
        arrays = [self.array(X) for X in (queries, keys, values)]
        layer = self.d2l.DotProductAttention(0.0)
        Y, A = layer.apply({}, *arrays, self.lengths(valid_lens))
        return SimpleNamespace(output=np.asarray(Y), weights=np.asarray(A))

    def multi_head(self, weights, num_heads, queries, keys, values, valid_lens):
        d = weights["W_q"].shape[1]
        layer = self.d2l.MultiHeadAttention(d, num_heads, 0.0, "b_q" in weights)
        tree = {W: {"kernel": self.array(weights[W])} for W in PROJECTIONS}
        for W in PROJECTIONS if "b_q" in weights else ():
            tree[W]["bias"] = self.array(weights[f"b{W[1:]}"])
        tensors = [self.array(X) for X in (queries, keys, values)]
        valid_lens = self.lengths(valid_lens)

        def loss(tree, *tensors):
            Y, A = layer.apply({"params": tree}, *tensors, valid_lens)
            return (Y**2).sum(), (Y, A)

        # not under `jit`, as the notebook has it: compiling each case would take minutes
        differentiate = self.jax.grad(loss, argnums=(0, 1, 2, 3), has_aux=True)
        (found, *inputs), (Y, A) = differentiate(tree, *tensors)
        gradients = dict(zip(("queries", "keys", "values"), map(np.asarray, inputs), strict=True))
        for W, parts in found.items():
            gradients |= {
                (W if part == "kernel" else f"b{W[1:]}"): np.asarray(X) for part, X in parts.items()
            }
        return SimpleNamespace(output=np.asarray(Y), weights=np.asarray(A), gradients=gradients)

    def encode(self, X, max_len=1000, num_hiddens=None):
        layer = self.d2l.PositionalEncoding(num_hiddens or X.shape[2], 0.0, max_len)
        return np.asarray(layer.apply({}, self.array(X)))

    def encode_in_training(self, X, dropout):
        layer = self.d2l.PositionalEncoding(X.shape[2], dropout)
        return np.asarray(self.train(layer, self.array(X)))

    def attend_in_training(self, queries, keys, values, dropout):
        arrays = [self.array(X) for X in (queries, keys, values)]
        Y, A = self.train(self.d2l.DotProductAttention(dropout), *arrays)
        return SimpleNamespace(output=np.asarray(Y), weights=np.asarray(A))

    def train(self, layer, *tensors):
        keys = {"dropout": self.jax.random.key(0)}
        return layer.apply({}, *tensors, training=True, rngs=keys)


KITS = {kit.name: kit for kit in (Torch, TensorFlow, Paddle, MXNet, Jax)}
