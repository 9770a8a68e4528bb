"""Write the address of the repository everywhere:  python -m tools.publish REPOSITORY [REF]

REPOSITORY is `owner/name` or its address on GitHub. REF is the branch ("main") or the tag that
the set-up cells and launch links fetch. `--site URL` is where the site is published, for the
links that must be absolute; without it there are none.

`--check` writes nothing: it prints each place that differs from `_config.yml` (or from what is
named). The launch links are made from `_config.yml` by the build, so they stand nowhere else.
"""

import argparse
import re
import sys
import tomllib

from tools.notebooks import ROOT, BookError, label

PLACEHOLDER = "https://github.com/YOUR_NAME/d2l-attention"  # no user name has an underscore
CONFIG = "_config.yml"

# Files, what must be found there (its groups are replaced), and how many times.
PLACES = [
    (CONFIG, r'^  url: "(?P<repository>[^"\n]*)"', 1),
    (CONFIG, r'^  branch: "(?P<ref>[^"\n]*)"', 1),
    (CONFIG, r'^    site: "(?P<site>[^"\n]*)"', 1),
    ("chapters/*/_config.yml", r"^repository:|\bsite:", 0),  # an edition takes them from the above
    (
        "chapters/**/*.ipynb",
        r'^ *"REPOSITORY, REF = \\"(?P<repository>[^"\\]*)\\", \\"(?P<ref>[^"\\]*)\\"\\n",$',
        1,
    ),
    ("tools/site/editions.html", r'hreflang="[^"]*" href="(?P<site>[^"]*)(?:en|zh)/index.html"', 2),
    ("pyproject.toml", r'^Repository = "(?P<repository>[^"\n]*)"', 1),
    ("CITATION.cff", r'^repository-code: "(?P<repository>[^"\n]*)"\n(?P<url>(?:url: .*\n)?)', 1),
    ("CITATION.cff", r'^version: "(?P<version>[^"\n]*)"', 1),
    ("CITATION.cff", r'^date-released: "(?P<date>[^"\n]*)"', 1),
    ("README.md", r"^(?P<sentence>The address of the repository .*)$", 1),
]

GITHUB = re.compile(
    r"(?:https://github\.com/)?([a-z\d]+(?:-[a-z\d]+)*/[\w.-]+?)(?:\.git)?/?", re.A | re.I
)
# What git and every file above take without quoting. `git clone --branch` takes no commit.
REF = re.compile(r"(?!refs/|[\da-f]{40}$|.*(?:\.\.|//|/\.|\.lock(?:/|$)|[/.]$))\w[\w./-]*", re.A)
SITE = re.compile(r"https://[a-z\d-]+(?:\.[a-z\d-]+)+(?::\d+)?(?:/[\w.~-]+)*/?", re.A | re.I)
VERSION_TAG = re.compile(r"v\d+(\.\d+)*((a|b|rc)\d+)?")


def short(repository):
    return repository.removeprefix("https://github.com/")


def repository_address(text):
    if text in (PLACEHOLDER, short(PLACEHOLDER)):
        return PLACEHOLDER  # to go back
    match = GITHUB.fullmatch(text)
    if not match or match[1].endswith(("/.", "/..")):
        raise BookError(f"{text} is no repository on GitHub: write owner/name")
    return f"https://github.com/{match[1]}"


def branch_or_tag(text):
    if not REF.fullmatch(text):
        raise BookError(
            f"{text!r} cannot be fetched: name a branch or tag made of letters, digits and . _ / -"
        )
    return text


def site_address(text):
    if not SITE.fullmatch(text):
        raise BookError(f"{text} is no address of a site, such as https://owner.github.io/name/")
    return text.rstrip("/") + "/"


def places(root):
    """Each pattern, how often it must be found, and a file in which it must be."""
    for files, pattern, times in PLACES:
        paths = [
            path for path in sorted(root.glob(files)) if ".ipynb_checkpoints" not in path.parts
        ]
        if not paths:
            raise BookError(f"{files}: there is no such file")
        for path in paths:
            yield path, pattern, times


def spans(text, pattern, times, name):
    """Where the groups of a pattern stand in the text: (start, end, name of the group)."""
    found = list(re.finditer(pattern, text, re.MULTILINE))
    if len(found) != times:
        raise BookError(f"{name}: found {len(found)} times instead of {times}: {pattern}")
    return [(*match.span(group), group) for match in found for group in match.groupdict()]


def read(path):
    return path.read_bytes().decode()  # as it is, line ends too


def replace(text, spans, values):
    for start, end, group in reversed(spans):
        text = text[:start] + values[group] + text[end:]
    return text


def current(root):
    """The repository, the branch or tag, and the site that `_config.yml` names."""
    text = read(root / CONFIG)
    found = [
        spans(text, pattern, times, CONFIG) for file, pattern, times in PLACES if file == CONFIG
    ]
    return {group: text[start:end] for place in found for start, end, group in place}


def release(root):
    """The version, which stands in pyproject.toml, and the date of its entry in CHANGELOG.md."""
    version = tomllib.loads(read(root / "pyproject.toml"))["project"]["version"]
    entry = re.search(r"^## \[(\d[^]]*)\] - (\d{4}-\d\d-\d\d)$", read(root / "CHANGELOG.md"), re.M)
    if not entry or entry[1] != version:
        found = f"is {entry[1]}" if entry else "is missing"
        raise BookError(
            f"CHANGELOG.md: the newest entry `## [version] - year-month-day` {found},"
            f" but pyproject.toml has version {version}"
        )
    return {"version": version, "date": entry[2]}


def sentence(repository, ref, site):
    """What README says about the address."""
    if repository == PLACEHOLDER:
        return (
            f"The address of the repository in the set-up cells and launch links is a placeholder,"
            f" `{short(repository)}`, until `python -m tools.publish` writes the real one."
        )
    published = f" The book can be read at <{site}>." if site else ""
    return (
        f"The address of the repository is <{repository}>; set-up cells and launch links"
        f" fetch `{ref}` from it.{published}"
    )


def all_values(repository, ref, site, root):
    """What must stand in each group of PLACES."""
    values = {"repository": repository, "ref": ref, "site": site, **release(root)}
    if VERSION_TAG.fullmatch(ref) and ref != f"v{values['version']}":
        raise BookError(f"The tag {ref} is not the version in pyproject.toml, {values['version']}")
    values["url"] = f'url: "{site}"\n' if site else ""
    values["sentence"] = sentence(repository, ref, site)
    return values


def publish(root, values):
    """Write the values, or nothing if a place is missing; the files that have changed."""
    before, after = {}, {}
    for path, pattern, times in places(root):
        before.setdefault(path, read(path))
        text = after.get(path, before[path])
        after[path] = replace(text, spans(text, pattern, times, label(path, root)), values)
    changed = [path for path in after if after[path] != before[path]]
    for path in changed:
        path.write_bytes(after[path].encode())
    return changed


def differences(root, values, origin):
    """What stands in another place than the value of its group; `origin` is where that is from."""
    origins = {"version": "pyproject.toml", "date": "CHANGELOG.md"}
    for path, pattern, times in places(root):
        name, text = label(path, root), read(path)
        try:
            found = spans(text, pattern, times, name)
        except BookError as error:
            yield str(error)
            continue
        for start, end, group in found:
            if text[start:end] != values[group]:
                expected = f"{origins.get(group, origin)} has {values[group]!r}"
                yield f"{name}: {group} is {text[start:end]!r}, but {expected}"


def wanted(arguments, root):
    """What is named on the command line; for a check the rest is taken from `_config.yml`."""
    values = current(root) if arguments.check else {"ref": "main", "site": ""}
    if arguments.repository is not None:
        values["repository"] = repository_address(arguments.repository)
    if arguments.ref is not None:
        values["ref"] = branch_or_tag(arguments.ref)
    if arguments.site is not None:
        values["site"] = site_address(arguments.site)
    if "repository" not in values:
        raise BookError("Name the repository: python -m tools.publish owner/name")
    return values


def main(argv=None, root=ROOT):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("repository", nargs="?", metavar="REPOSITORY")
    parser.add_argument("ref", nargs="?", metavar="REF")
    parser.add_argument("--site", metavar="URL")
    parser.add_argument("--check", action="store_true", help="compare only")
    arguments = parser.parse_args(argv)
    try:
        values = all_values(**wanted(arguments, root), root=root)
        if arguments.check:
            origin = CONFIG if arguments.repository is None else "the command line"
            problems = list(differences(root, values, origin))
            print("".join(f"{problem}\n" for problem in problems), end="")
            return 1 if problems else 0
        changed = publish(root, values)
    except (BookError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{values['repository']} at {values['ref']}: {len(changed)} files changed")
    return 0


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may not know Chinese
    sys.exit(main())
