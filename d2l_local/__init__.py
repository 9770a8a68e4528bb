"""The chapter on self-attention and positional encoding as a package.

Usage: `from d2l_local import torch as d2l`
"""

# Generated from the notebooks' #@save cells by `python -m tools.save`: edit the notebooks, not this file.
