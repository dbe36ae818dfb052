"""The reference pages of the Python API: one per package, filled from docstrings at build time."""

from __future__ import annotations

import ast
from pathlib import Path

_INTRODUCTION = """# Python

This page is generated from the docstrings. Most programs need only these; the packages follow
below.

- [`pumit.segment`][pumit.simple.segment], [`predict`][pumit.simple.predict],
  [`save`][pumit.simple.save]: a mask from a click, labels from a model, and a file from either;
- [`pumit.Volume`][pumit.volume.Volume]: a scan with its place in the patient; read by
  [`Volume.read`][pumit.volume.Volume.read];
- [`pumit.load_segmenter`][pumit.inference.interactive.segmenter.load_segmenter]: a model, by
  its name or from a file;
- [`pumit.InteractiveSession`][pumit.inference.interactive.session.InteractiveSession]: masks from
  clicks;
- [`pumit.client`](pumit.client.md): the same through a server;
- [`pumit.errors`](pumit.md): the exceptions.

Arrays are (D, H, W), spacing follows array order, world coordinates are LPS millimetres. Names that
begin with an underscore may change at any time ([versions](../versions.md)).

## Packages

"""


def packages(core: Path) -> dict[str, list[str]]:
    """Return the module names of every package.

    Args:
        core: The folder `pumit`.
    """
    found: dict[str, list[str]] = {}
    for init in sorted(core.rglob("__init__.py")):
        folder = init.parent
        name = ".".join(folder.relative_to(core.parent).parts)
        modules = [file for file in sorted(folder.glob("*.py")) if not file.stem.startswith("_")]
        found[name] = [f"{name}.{file.stem}" for file in modules]
    return found


def pages(core: Path) -> dict[str, str]:
    """Return file name and Markdown of each package's page and of the index."""
    made = {}
    rows = ["| package | what it holds |", "|---|---|"]
    for package, modules in packages(core).items():
        init = core.parent.joinpath(*package.split(".")) / "__init__.py"
        about = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or ""
        rows.append(f"| [`{package}`]({package}.md) | {about.splitlines()[0]} |")
        parts = [f"# {package}\n\n{about.splitlines()[0]}\n"]
        parts += [f"::: {module}\n    options:\n      heading_level: 2\n" for module in modules]
        made[f"{package}.md"] = "\n".join(parts)
    made["index.md"] = _INTRODUCTION + "\n".join(rows) + "\n"
    return made
