"""Build the site with every edition:  python -m tools.build

Each edition is built from its own folder, so that a page's address is en/NAME.html, and from
scratch, because an incremental build does not repeat the warnings of unchanged pages.
"""

import argparse
import shutil
import sys
from concurrent.futures import ProcessPoolExecutor

import yaml
from jupyter_book.sphinx import build_sphinx

from tools import archive, notebooks

WORK = notebooks.ROOT / "_build"
SITE = WORK / "site"
START_PAGES = notebooks.ROOT / "tools" / "site"


def merge(settings, changes):
    """Change nested settings in place."""
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(settings.get(key), dict):
            merge(settings[key], value)
        else:
            settings[key] = value


def settings(edition, editions):
    """The settings of `_config.yml` for a book whose folder is `chapters/<edition>`."""
    root = notebooks.ROOT
    config = notebooks.read_yaml(root / "_config.yml")
    changes = root / "chapters" / edition / "_config.yml"
    if changes.is_file():
        merge(config, notebooks.read_yaml(changes))
    config["repository"]["path_to_book"] = f"chapters/{edition}"
    config["bibtex_bibfiles"] = [str(root / file) for file in config["bibtex_bibfiles"]]
    config["sphinx"]["local_extensions"] = {"tools.sphinx_ext": str(root)}
    others = [other for other in editions if other != edition]
    config["sphinx"]["config"]["other_edition"] = others[0] if others else ""
    config["sphinx"]["config"]["archive"] = archive.name(edition)
    return config


def prepare(edition, editions):
    """Write the settings and contents of an edition, once all its pages can be read."""
    toc = notebooks.EDITIONS[edition]
    for notebook in notebooks.notebooks(edition):
        notebooks.read(notebook)  # Sphinx would not name the broken one
    archive.files(edition)  # what is missing for the zip is told before the long build
    folder = WORK / edition
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config = yaml.safe_dump(settings(edition, editions))
    contents = toc.read_text(encoding="utf-8").replace(f"chapters/{edition}/", "")
    for name, text in (("_config.yml", config), ("_toc.yml", contents)):
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


def build(edition):
    """Build one edition into `_build/<edition>/html`; True if there was no warning."""
    folder = WORK / edition
    result = build_sphinx(
        notebooks.ROOT / "chapters" / edition,
        folder / "html",
        path_config=folder / "_config.yml",
        noconfig=True,
        confoverrides={
            "external_toc_path": (folder / "_toc.yml").as_posix(),
            "latex_individualpages": False,
        },
        warningiserror=True,
        keep_going=True,
        quiet=True,
    )
    return result == 0


def publish(editions):
    """Put the editions and the page that offers them into one folder."""
    SITE.mkdir()
    for edition in editions:
        shutil.move(WORK / edition / "html", SITE / edition)
        archive.write(edition, SITE / edition / archive.name(edition))
    start = "editions.html" if len(editions) > 1 else "english.html"
    shutil.copy(START_PAGES / start, SITE / "index.html")
    shutil.copy(START_PAGES / "404.html", SITE)
    (SITE / ".nojekyll").touch()  # GitHub Pages would leave out _static


def build_all():
    shutil.rmtree(SITE, ignore_errors=True)  # an old site must not pass for the new one
    editions = notebooks.editions()
    if "en" not in editions:
        raise notebooks.BookError("_toc.yml: there is no such file")
    for edition in editions:
        prepare(edition, editions)
    with ProcessPoolExecutor(len(editions)) as pool:
        succeeded = list(pool.map(build, editions))
    if not all(succeeded):
        sys.exit(
            "The site was not built: mend what the warnings above say"
            " (line 40002 of a notebook stands in its 4th cell)."
        )
    publish(editions)
    print(f"Open {(SITE / 'index.html').relative_to(notebooks.ROOT).as_posix()}")


def main(argv=None):
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args(argv)
    try:
        build_all()
    except (notebooks.BookError, OSError) as error:
        sys.exit(f"The site was not built: {error}")


if __name__ == "__main__":
    main()
