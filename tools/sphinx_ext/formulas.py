r"""Give formulas to MathJax as Jupyter and Colab do, and keep punctuation at their side."""

import re

from docutils import nodes
from sphinx.transforms import SphinxTransform

# a formula within a line, with the brackets and marks that touch it
TOUCHED = re.compile(
    r"""[(\[“‘（「]*<span class="math [^>]*>[^<]*</span>[,.;:!?)\]”’，。；：！？、）」]*"""
)


class UnwrappedFormulas(SphinxTransform):
    r"""Sphinx wraps a `$$ … $$` that contains `\\` in `\begin{split}`, which cannot hold a `\tag`:
    the reader would see red TeX source while the build stays clean.
    """

    default_priority = 500

    def apply(self):
        for formula in self.document.findall(nodes.math_block):
            if not formula.get("nowrap"):
                formula["nowrap"] = True  # which also drops the delimiters
                formula.children = []
                formula += nodes.Text(rf"\[{formula.rawsource}\]")


def keep_together(app, pagename, templatename, context, doctree):
    """Browsers would break a line between a formula and the comma after it."""
    if doctree:
        context["body"] = TOUCHED.sub(r'<span class="unbroken">\g<0></span>', context["body"])


def setup(app):
    app.add_transform(UnwrappedFormulas)
    app.connect("html-page-context", keep_together)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
