"""Give the headings of a page the ids of the English page, in every edition.

Links into a page, in the notebooks and between the editions, then need one name only.
"""

import re
from pathlib import Path

import nbformat
from docutils import nodes
from markdown_it.tree import SyntaxTreeNode
from myst_parser.mdit_to_docutils.base import compute_unique_slug
from myst_parser.mdit_to_docutils.sphinx_ import SphinxRenderer
from myst_parser.parsers.mdit import create_md_parser
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

logger = logging.getLogger(__name__)

# a part of another file, as the page on where to run the notebooks takes it from README
INCLUDE = re.compile(
    r'^```\{include\} (\S+)\n:start-after: "(.+)"\n:end-before: "(.+)"\n```$', re.MULTILINE
)

CHAPTERS = Path(__file__).resolve().parents[2] / "chapters"


def texts(path):
    """The Markdown texts of a page: the text cells of a notebook, or the whole file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return [INCLUDE.sub(lambda match: part(path.parent / match[1], *match.groups()[1:]), text)]
    cells = nbformat.reads(text, as_version=4).cells
    return [cell.source for cell in cells if cell.cell_type == "markdown"]


def part(path, start, end):
    """What stands between two texts of a file."""
    return path.read_text(encoding="utf-8").partition(start)[2].partition(end)[0]


def slugs(path, config):
    """What `#…` names each heading of a page, in the order of the page."""
    parser = create_md_parser(config, SphinxRenderer)
    found = []
    for text in texts(path):
        for node in SyntaxTreeNode(parser.parse(text, {})).children:
            if node.type == "heading":
                found.append(compute_unique_slug(node, found))
    return found


class EnglishIds(SphinxTransform):
    default_priority = 500  # before MyST resolves links within the page

    def apply(self):
        edition, *page = Path(self.env.doc2path(self.env.docname)).relative_to(CHAPTERS).parts
        english = CHAPTERS.joinpath("en", *page)
        if not english.is_file():
            return
        ids = slugs(english, self.env.myst_config)
        sections = list(self.document.findall(nodes.section))
        if len(ids) != len(sections):
            logger.warning(
                f"{len(sections)} headings here, but {len(ids)} in the English page",
                location=self.env.docname,
            )
            return
        for section, slug in zip(sections, ids, strict=True):
            self.name(section, slug)

    def name(self, section, slug):
        if slug not in section["ids"]:
            section["ids"].insert(0, slug)
            self.document.ids[slug] = section
        elif section["ids"][0] != slug:
            section["ids"].remove(slug)
            section["ids"].insert(0, slug)
        title = section.next_node(nodes.title).astext()
        self.document.myst_slugs[slug] = (section.line, slug, title)


def setup(app):
    app.add_transform(EnglishIds)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
