"""The reference page of the names in `import pumit`, from signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

import pumit

_INTRODUCTION = """# Python, in short

This page is generated from the program (`python scripts/write_reference.py`). It lists the names of
`import pumit`; [Python](../how-to/python.md) has examples. The site (`python3 scripts/docs.py`) has
all packages.
"""
# First the one-call functions, then the classes for several predictions on one scan.
_ORDER = (
    "segment",
    "predict",
    "save",
    "find_structure",
    "Watch",
    "Volume",
    "load_segmenter",
    "InteractiveSession",
)


def page() -> str:
    """Return the Markdown of the public names; classes also list their methods, one line each."""
    parts = [_INTRODUCTION]
    for name in _ORDER:
        found = getattr(pumit, name)
        text = inspect.cleandoc(found.__doc__)
        parts.append(f"## pumit.{name}\n\n```text\n{_call(name, found)}\n\n{text}\n```\n")
        if inspect.isclass(found):
            parts.append("\n".join(["| method | |", "|---|---|", *_methods(found)]) + "\n")
    return "\n".join(parts)


def _call(name: str, found: Callable[..., object]) -> str:
    signature = inspect.signature(found)
    rows = []
    for argument in signature.parameters.values():
        is_first_named = argument.kind is argument.KEYWORD_ONLY and "*" not in rows
        # Annotations are strings: remove the quotes.
        rows += ["*"] * is_first_named + [re.sub(r": '([^']*)'", r": \1", str(argument))]
    end = signature.return_annotation
    lines = "".join(f"    {row},\n" for row in rows)
    return f"{name}(\n{lines})" + (f" -> {end}" if isinstance(end, str) and end != "None" else "")


def _methods(found: type) -> list[str]:
    rows = []
    for name, method in inspect.getmembers(found):
        line = (inspect.getdoc(method) or "").partition("\n")[0]
        if not name.startswith("_") and (callable(method) or isinstance(method, property)):
            rows.append(f"| `{name}` | {line} |")
    return rows
