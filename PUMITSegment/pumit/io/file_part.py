"""The part of a file that is meant, where it holds several: `scan_folder#1.2.3`, `scene.mrb#CT`."""

from __future__ import annotations

import os
from pathlib import Path


def split_part(path: Path) -> tuple[Path, str]:
    """Divide a path into the file or folder that exists and what is named behind it.

    Args:
        path: Such as `scene.mrb#Segmentation`, or `folder#1.2.840.1#2` (the second stack of a
            DICOM series). A name that itself holds a `#` is a file's, if there is one.

    Returns:
        The file or folder, and what follows the `#`; the path as it is and "" where no part of
        it exists.
    """
    if path.exists():
        return path, ""
    text = os.fspath(path)
    for place in (i for i, character in enumerate(text) if character == "#"):
        if Path(text[:place]).exists():
            # Windows turns a slash in a node's name around.
            return Path(text[:place]), text[place + 1 :].replace("\\", "/")
    return path, ""


def with_part(path: Path, part: str) -> Path:
    """Return a path that `split_part` divides again."""
    return path.with_name(f"{path.name}#{part}") if part else path


def file_exists(path: Path) -> bool:
    """Return whether the file of a path, which may name a part of it, is there."""
    return split_part(path)[0].exists()
