"""The program beside a student's code, in the sandbox: it runs cells and calls answers.

It knows no expected value, no points and no secret. One line of JSON comes in on standard input,
one goes out on the standard output; what the student's code prints goes to standard error. All
that crosses is plain data (`encode`, `decode`): nothing of a student's is ever unpickled.
"""

import base64
import importlib
import json
import math
import os
import sys
import traceback

DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "float16", "float32", "float64")
MESSAGE = 100  # characters of a student's error message, or of the line, that are told


def encode(value):
    """Plain data as JSON can hold it; another type raises TypeError with one sentence.

    Plain are None, bool, int, float, str, lists and tuples (both arrive as lists), dicts with
    str keys, and NumPy arrays and scalars of `DTYPES`. Subclasses are refused.
    """
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind in (list, tuple):
        return [encode(item) for item in value]
    if kind is dict and all(type(key) is str for key in value):
        return {"dict": {key: encode(item) for key, item in value.items()}}
    if kind.__module__ == "numpy" and hasattr(value, "dtype"):
        name = value.dtype.name
        if name in DTYPES:
            data = base64.b64encode(value.tobytes()).decode()
            return {"array": [name, list(value.shape), data]}
        raise TypeError(f"returned an array of {name}")
    raise TypeError(f"returned a {kind.__name__}")


def decode(value):
    """What `encode` made into JSON; anything else raises ValueError."""
    import numpy as np

    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"dict": dict(held), **rest} if not rest:
            return {key: decode(item) for key, item in held.items()}
        case {"array": [str(name), list(shape), str(data)], **rest} if not rest:
            if name in DTYPES and all(type(size) is int and size >= 0 for size in shape):
                content = base64.b64decode(data, validate=True)
                if len(content) == math.prod(shape) * np.dtype(name).itemsize:
                    return np.frombuffer(content, name).reshape(shape).copy()
    raise ValueError("not plain data")


def set_limits(memory, file_size, seconds):
    """Bytes of memory besides what is loaded, bytes of one file, seconds: for good."""
    try:
        import resource
    except ImportError:  # Windows: only a container sets limits there
        return
    wanted = {
        resource.RLIMIT_AS: memory + address_space(resource.getpagesize()),
        resource.RLIMIT_FSIZE: file_size,
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_NOFILE: 256,
        resource.RLIMIT_CORE: 0,
    }
    for kind, value in wanted.items():
        try:
            resource.setrlimit(kind, (value, value))
        except (ValueError, OSError):  # macOS has no limit on memory
            continue


def address_space(page):
    """Bytes that this process has mapped: with torch for CUDA that is more than most limits."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * page
    except OSError:  # macOS
        return 0


def explain(error):
    """The type of an error, the first line of its message, and the student's line it is from."""
    try:
        message = (str(error).strip().splitlines() or [""])[0]
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame.line for frame in frames if frame.filename.startswith("<ipython-input")]
        line = (own or [""])[-1]
    except BaseException:
        message = line = ""
    return [text[:MESSAGE] for text in (type(error).__name__, message, line)]


def call(shell, name, driver, inputs):
    """What the public driver makes of the student's answer to one case."""
    if name not in shell.user_ns:
        return {"missing": True}
    try:
        namespace = {"__name__": "driver"}
        exec(driver, namespace)
        outputs = namespace["drive"](shell.user_ns[name], decode(inputs))
    except NotImplementedError as error:
        return {"stub": True} if not error.args else {"error": explain(error)}
    except BaseException as error:  # SystemExit and KeyboardInterrupt too
        return {"error": explain(error)}
    try:
        return {"outputs": encode(outputs)}
    except Exception:
        return {"kind": True}


def run(shell, source):
    """Run one cell as IPython does; the error in it, or None."""
    try:
        result = shell.run_cell(source, store_history=False)
    except BaseException as error:
        return {"error": explain(error)}
    error = result.error_before_exec or result.error_in_exec
    return {"error": explain(error) if error is not None else None}


def interactive_shell():
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    class Shell(InteractiveShell):
        def enable_gui(self, gui=None):  # `%matplotlib inline` asks for it
            pass

        def ask_exit(self):  # `exit()`
            pass

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    return Shell.instance(config=config)


def main():
    memory, file_size, seconds = map(int, sys.argv[1:4])
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)

    def reply(message, number=0):
        replies.write(json.dumps(message | {"number": number}).encode() + b"\n")
        replies.flush()

    for name in sys.argv[4:]:
        importlib.import_module(name)
    set_limits(memory, file_size, seconds)
    shell = interactive_shell()
    reply({"ready": True})
    for line in requests:
        request = json.loads(line)
        if "cell" in request:
            made = run(shell, request["cell"])
        else:
            made = call(shell, request["name"], request["driver"], request["inputs"])
        reply(made, request["number"])


if __name__ == "__main__":
    main()
