"""Take MathJax from an installed package, so that no page asks another host for it."""

import shutil
from importlib.util import find_spec
from pathlib import Path

# One script with every TeX package, and its fonts: 1.9 MB of the package's 24 MB.
FILES = ["tex-chtml-full.js", "output/chtml/fonts/woff-v2"]


def choose_mathjax(app, config):
    config.mathjax_path = f"mathjax/{FILES[0]}"


def copy_mathjax(app, error):
    if error or app.builder.format != "html":
        return
    # the package's name has hyphens: it can be found, but not imported
    source = Path(find_spec("sphinx-mathjax-offline").origin).parent / "static" / "mathjax"
    target = Path(app.outdir) / "_static" / "mathjax"
    target.mkdir(parents=True, exist_ok=True)
    script, fonts = FILES
    shutil.copy(source / script, target / script)
    shutil.copytree(source / fonts, target / fonts, dirs_exist_ok=True)


def setup(app):
    app.connect("config-inited", choose_mathjax)
    app.connect("build-finished", copy_mathjax)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
