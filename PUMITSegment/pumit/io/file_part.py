"""Paths that select one part of a file or folder: `scan_folder#1.2.3`, `scene.mrb#CT`."""

import os
from pathlib import Path


def split_part(path: Path) -> tuple[Path, str]:
    """Split a path at `#` into an existing file or folder and the name of a part.

    Args:
        path: Such as `scene.mrb#Segmentation`, or `folder#1.2.840.1#2` (the second stack of a
            DICOM series). An existing file whose name contains `#` takes precedence.

    Returns:
        The file or folder, and the text after the `#`; the unchanged path and "" if no such file
        exists.
    """
    if path.exists():
        return path, ""
    text = os.fspath(path)
    for place in (i for i, character in enumerate(text) if character == "#"):
        if Path(text[:place]).exists():
            # pathlib on Windows turns the slash in a node's name into a backslash.
            return Path(text[:place]), text[place + 1 :].replace("\\", "/")
    return path, ""


def with_part(path: Path, part: str) -> Path:
    """Return a path that `split_part` splits into these two."""
    return path.with_name(f"{path.name}#{part}") if part else path


def file_exists(path: Path) -> bool:
    """Return whether the file of a path, possibly with a part, exists."""
    return split_part(path)[0].exists()
