"""Sphinx extensions of the book."""


def setup(app):
    for name in ("formulas", "figures", "headings", "offline", "layout", "search"):
        app.setup_extension(f"{__name__}.{name}")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
