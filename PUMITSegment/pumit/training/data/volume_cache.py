"""Disk cache of pre-processed cases, read memory-mapped."""

import errno
import hashlib
import json
import logging
import os
import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumit import __version__
from pumit.errors import ExportError, VolumeError
from pumit.system.files import atomic_path, make_folder, write_text

logger = logging.getLogger(__name__)

Arrays = dict[str, NDArray[Any]]
Sources = Path | Sequence[Path]

ABANDONED_SECONDS = 24 * 3600  # age at which unfinished entries of killed processes are removed


class VolumeCache:
    """Cache of arrays, keyed by source files and pre-processing settings.

    An entry is recomputed when a source file, the settings or the version of this package changes.
    Several processes may share a folder: entries are written atomically.

    Args:
        folder: Folder of the files `<folder>/<settings>/<case>/<name>.npy`; may be deleted
            whenever no training runs.
        settings: Everything that affects the arrays; JSON-serialisable.

    Raises:
        ExportError: If the folder cannot be created.
        TypeError: If the settings cannot be written as JSON.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        text = json.dumps({"version": __version__, **settings}, sort_keys=True, indent=1)
        self.folder = folder / _digest(text)
        make_folder(folder)  # first, so that an error names the user's folder
        make_folder(self.folder)
        settings_path = self.folder / "settings.json"  # for users who inspect the cache
        if not settings_path.exists():
            write_text(settings_path, text)
        for unfinished in self.folder.glob(".*-*"):
            if time.time() - _changed(unfinished) > ABANDONED_SECONDS:
                shutil.rmtree(unfinished, ignore_errors=True)

    def get(
        self, path: Sources, make: Callable[[], Mapping[str, NDArray[Any]]], *, part: str = ""
    ) -> Arrays:
        """Return the arrays of a case by name, read-only and memory-mapped; compute missing ones.

        Args:
            path: Source file or folder, or several, such as an image and its label.
            make: Computes the arrays by name; names must be identifiers.
            part: Part of the sources, such as one series of a folder.

        Raises:
            VolumeError: If a source is missing.
            ExportError: If the disk is full.
        """
        target = self._place(path, part)
        arrays = _read(target)
        if arrays is not None:
            return arrays
        made = {name: np.asarray(array) for name, array in make().items()}
        self._write(target, made, _sources(path)[0].name)
        return _read(target) or made

    def files(
        self, path: Sources, make: Callable[[], Mapping[str, NDArray[Any]]], *, part: str = ""
    ) -> dict[str, Path]:
        """Return the .npy files of a case by name; see `get`, whose maps keep each file open."""
        self.get(path, make, part=part)
        return {file.stem: file for file in self._place(path, part).glob("*.npy")}

    def _place(self, path: Sources, part: str = "") -> Path:
        """Return the folder of a case, named after its sources and their state."""
        sources = [source.absolute() for source in _sources(path)]
        parts = [part] if part else []
        names = _digest(json.dumps([*(str(source) for source in sources), *parts]))
        state = _digest(json.dumps([_state(source) for source in sources]))
        return self.folder / f"{names}-{state}"

    def _write(self, target: Path, arrays: Arrays, name: str) -> None:
        if _read(target) is not None:
            return  # another process was faster
        for stale in self.folder.glob(f"{target.name.split('-')[0]}-*"):
            _remove(stale)  # from another state of the sources, or damaged
        try:
            with atomic_path(target) as temporary:
                temporary.mkdir()
                for key, array in arrays.items():
                    _save(temporary / f"{key}.npy", array)
        except ExportError as error:
            if _read(target) is not None:
                return
            raise ExportError(f"{name} is not cached. {error}") from None


def _sources(path: Sources) -> list[Path]:
    return [path] if isinstance(path, Path) else list(path)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _state(source: Path) -> list[Any]:
    """Return size and modification time of a file, or of all files of a folder."""
    try:
        if not source.is_dir():
            status = source.stat()
            return [status.st_size, status.st_mtime_ns]
        files = sorted(file for file in source.rglob("*") if file.is_file())
        return [[str(file.relative_to(source)), *_state(file)] for file in files]
    except OSError as error:
        raise VolumeError(f"{source.name} cannot be read: {error.strerror}.") from None


def _read(folder: Path) -> Arrays | None:
    """Return the arrays of a folder, or None if it is missing or damaged."""
    try:
        files = sorted(folder.glob("*.npy"))
        return {file.stem: _open(file) for file in files} if files else None
    except (OSError, ValueError, EOFError):
        return None


def _open(file: Path) -> NDArray[Any]:
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)
    except ValueError:  # an empty array cannot be mapped
        array: NDArray[Any] = np.load(file, allow_pickle=False)
        if array.size:
            raise
        return array


def _remove(folder: Path) -> None:
    """Remove an entry atomically for concurrent readers."""
    hidden = folder.with_name(f".{secrets.token_hex(6)}-{folder.name}")
    with suppress(OSError):  # already gone, or held open on Windows
        folder.rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)


def _save(file: Path, array: NDArray[Any]) -> None:
    try:
        with file.open("wb") as handle:
            np.save(handle, array, allow_pickle=False)
            handle.flush()
            os.fsync(handle.fileno())  # after a power failure, an entry is whole or missing
    except OSError as error:
        # When the disk fills up during a write, NumPy does not pass on the errno.
        raise error if error.errno else OSError(errno.ENOSPC, "short write") from None


def _changed(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return time.time()
