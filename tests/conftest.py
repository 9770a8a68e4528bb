"""Fixtures that several test files use."""

import os
import sys
import types
import warnings

import pytest

# Two workers share two cores: more threads for each would only wait for one another. Set before
# torch is imported; the kernels of the notebooks inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def original():
    """The package `d2l`, whose names and weights ours must accept.

    It imports torchvision without declaring it, and uses it for pictures only: where it is
    missing, an empty module stands in for it during the import.
    """
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import torchvision  # noqa: F401
        except (ImportError, RuntimeError):  # not there, or not made for this torch
            stub = types.ModuleType("torchvision")
            stub.transforms = types.ModuleType("torchvision.transforms")
            patch.setitem(sys.modules, "torchvision", stub)
        from d2l import torch
    return torch


@pytest.fixture
def plt():
    """pyplot without a window; closes the figures that a test leaves open."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")
