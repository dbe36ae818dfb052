"""Finding and removing files that PUMIT downloaded or cached."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pumit.errors import ExportError
from pumit.system.consent import graphs_folder, user_folder
from slicer.i18n import tr as _

# Prefix of `installation`'s temporary folders.
INSTALL_PREFIX = "pumit-install-"


@dataclass(frozen=True)
class Downloaded:
    """Files of one kind that can be downloaded again."""

    what: str
    paths: tuple[Path, ...]
    byteCount: int


def findDownloaded(
    environment: Mapping[str, str] = os.environ, temporary: Path | None = None
) -> list[Downloaded]:
    """Find everything that can be downloaded or compiled again.

    The user's own models, licence agreements, scenes, exports, runs, and packages installed in
    Slicer's Python are not included.

    Returns:
        Non-empty groups: downloaded models, compiled graphs, pip's cache, and leftovers of
            failed installations.
    """
    temporary = temporary or Path(tempfile.gettempdir())
    found = [
        (_("downloaded models"), _fetchedModels()),
        (_("models compiled for this computer"), sorted(graphs_folder().glob("*"))),
        (_("pip's cache, which other programs use too"), _pipCache(environment)),
        (_("leftovers of unfinished installations"), sorted(temporary.glob(f"{INSTALL_PREFIX}*"))),
    ]
    counted = [Downloaded(what, tuple(paths), _byteCount(paths)) for what, paths in found]
    return [each for each in counted if each.byteCount]


def removeDownloaded(found: list[Downloaded]) -> int:
    """Remove the files.

    Returns:
        Number of bytes freed.

    Raises:
        ExportError: If some files could not be removed, such as files in use.
    """
    left = 0
    for each in found:
        for path in each.paths:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                with suppress(OSError):  # counted below
                    path.unlink(missing_ok=True)
        left += _byteCount(list(each.paths))
    if left:
        raise ExportError(
            _("{size} could not be removed: other programs use these files.").format(
                size=sizeInWords(left)
            )
        )
    return sum(each.byteCount for each in found)


def sizeInWords(byteCount: int) -> str:
    """Format a size for display, such as "3.1 MB"."""
    size = float(byteCount)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def _fetchedModels() -> list[Path]:
    """Return checkpoints in the user folder that its own index does not list."""
    folder = user_folder()
    index = folder / "index.yaml"  # names the user's own
    try:
        own = index.read_text(encoding="utf-8") if index.is_file() else ""
    except (OSError, UnicodeDecodeError):
        return []  # cannot tell the user's own from downloads
    return [path for path in sorted(folder.glob("*.safetensors")) if path.name not in own]


def _pipCache(environment: Mapping[str, str]) -> list[Path]:
    """Return pip's folders of wheels and downloads, at the documented locations."""
    home = Path(environment.get("HOME") or Path.home())
    if environment.get("PIP_CACHE_DIR"):
        folder = Path(environment["PIP_CACHE_DIR"])
    elif sys.platform == "win32":
        folder = Path(environment.get("LOCALAPPDATA") or home / "AppData" / "Local") / "pip/Cache"
    elif sys.platform == "darwin":
        folder = home / "Library" / "Caches" / "pip"
    else:
        folder = Path(environment.get("XDG_CACHE_HOME") or home / ".cache") / "pip"
    # Only pip's own subfolders, in case the variable names another folder.
    names = ("http", "http-v2", "wheels", "selfcheck")
    return [folder / name for name in names if (folder / name).is_dir()]


def _byteCount(paths: list[Path]) -> int:
    total = 0
    for path in paths:
        files = path.rglob("*") if path.is_dir() and not path.is_symlink() else [path]
        for file in files:
            with suppress(OSError):  # already gone
                total += file.lstat().st_size if not file.is_dir() or file.is_symlink() else 0
    return total
