"""One folder for all files of a process that stands in for Slicer; it goes with the process."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path


@cache
def _whole() -> tempfile.TemporaryDirectory[str]:
    # Its finalizer runs when the interpreter ends; VTK may hold files open until then.
    return tempfile.TemporaryDirectory(prefix="Slicer-", ignore_cleanup_errors=True)


def ownFolder(name: str) -> Path:
    """A folder of this process, made at first use.

    Args:
        name: What it is for: "home", "cache".
    """
    folder = Path(_whole().name, name)
    folder.mkdir(exist_ok=True)
    return folder
