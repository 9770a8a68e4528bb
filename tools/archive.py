"""The zip of an edition: its notebooks and all that they need where there is no network.

Its bytes depend on the files alone, not on when and where it is made.
"""

import zipfile

from tools import notebooks

README = {
    "en": """\
The notebooks of the book "Self-attention and positional encoding", with the package they use.
Unpack this zip and open a terminal in its folder. You need Python 3.11 or newer; type line by line:
    python -m pip install torch numpy matplotlib jupyterlab
    jupyter lab
Open a notebook and run it from its first cell on. Once this is installed, no network is needed.
Each notebook in the folder "frameworks" begins with how to get its framework.
The book lives at {address}
""",
    "zh": """\
《自注意力与位置编码》一书的笔记本，以及它们使用的软件包。
解压本 zip 包，在解压后的文件夹中打开终端。需要 Python 3.11 或更新的版本；逐行输入：
    python -m pip install torch numpy matplotlib jupyterlab
    jupyter lab
打开一个笔记本，从第一个单元开始运行。安装之后不再需要网络。
文件夹 frameworks 里的笔记本各需一个框架，安装方法写在笔记本的开头。
本书的网址：{address}
""",
}


def name(edition):
    return f"d2l-attention-{edition}.zip"


def readme(edition, root):
    config = notebooks.read_yaml(root / "_config.yml", root)
    address = config["sphinx"]["config"].get("site") or config["repository"]["url"]
    return README[edition].format(address=address)


def files(edition, root=notebooks.ROOT):
    """What the zip holds: {name: bytes}."""
    package = root / notebooks.PACKAGE
    if not (package / "torch.py").is_file():
        raise notebooks.BookError(
            f"{notebooks.PACKAGE}/torch.py: there is no such file; run python -m tools.save"
        )
    paths = [root / "LICENSE", root / "NOTICE", *package.glob("*.py"), *package.glob("data/*")]
    held = {notebooks.label(path, root): path.read_bytes() for path in paths}
    chapters = root / "chapters" / edition
    for path in notebooks.notebooks(edition, root):
        held[path.relative_to(chapters).as_posix()] = path.read_bytes()
    return held | {"README.txt": readme(edition, root).encode()}


def write(edition, path, root=notebooks.ROOT):
    """Write the zip, in which all files stand in one folder of the zip's name."""
    with zipfile.ZipFile(path, "w") as archive:
        for file, content in sorted(files(edition, root).items()):
            entry = zipfile.ZipInfo(f"{path.stem}/{file}")  # of 1980, as ZipInfo begins
            entry.create_system = 3  # Unix, on Windows too
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
