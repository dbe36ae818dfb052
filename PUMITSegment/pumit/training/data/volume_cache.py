"""Preprocessed cases on disk: made once, read memory-mapped ever after."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
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
from pumit.system.atomic import atomic_path, make_folder, write_text

logger = logging.getLogger(__name__)

Arrays = dict[str, NDArray[Any]]
Sources = Path | Sequence[Path]

ABANDONED_SECONDS = 24 * 3600  # after which what a killed process left half-made is removed


class VolumeCache:
    """Arrays of cases, by where a case comes from and how it is preprocessed.

    A case is made again when one of its files changes, when the settings change, and with another
    version of this package. Several processes may use one folder: the first makes a case,
    and what it wrote appears at once and whole.

    Args:
        folder: Folder of the files `<folder>/<settings>/<case>/<name>.npy`; may be deleted at any
            time that no training runs.
        settings: All that decides how a case is made; what JSON can hold.

    Raises:
        ExportError: If the folder cannot be made.
        TypeError: If the settings cannot be written as JSON.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        text = json.dumps({"version": __version__, **settings}, sort_keys=True, indent=1)
        self.folder = folder / _digest(text)
        make_folder(folder)  # an error names the folder that the user knows
        make_folder(self.folder)
        settings_path = self.folder / "settings.json"  # for people who wonder what a folder holds
        if not settings_path.exists():
            write_text(settings_path, text)
        self._remove_abandoned()

    def get(
        self, path: Sources, make: Callable[[], Mapping[str, NDArray[Any]]], *, part: str = ""
    ) -> Arrays:
        """Return the arrays of a case.

        Args:
            path: File or folder that it comes from, or several, such as an image and its label.
            make: Makes the arrays where they are not there; names are identifiers.
            part: What of the sources it is, such as one of a folder's series.

        Returns:
            Arrays by name, read-only and read from disk where they are touched.

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

    def _place(self, path: Sources, part: str = "") -> Path:
        """Folder of a case: its sources' names, then the state that they are in."""
        sources = [source.absolute() for source in _sources(path)]
        parts = [part] if part else []
        names = _digest(json.dumps([*(str(source) for source in sources), *parts]))
        state = _digest(json.dumps([_state(source) for source in sources]))
        return self.folder / f"{names}-{state}"

    def _write(self, target: Path, arrays: Arrays, name: str) -> None:
        if _read(target) is not None:
            return  # another process was faster
        for stale in self.folder.glob(f"{target.name.split('-')[0]}-*"):
            _remove(stale)  # of another state of its sources, or damaged
        try:
            with atomic_path(target) as temporary:
                temporary.mkdir()
                for key, array in arrays.items():
                    _save(temporary / f"{key}.npy", array)
        except ExportError as error:
            if _read(target) is not None:
                return
            raise ExportError(f"{name} is not cached. {error}") from None

    def _remove_abandoned(self) -> None:
        for folder in self.folder.glob(".*-*"):
            if time.time() - _changed(folder) > ABANDONED_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


def _sources(path: Sources) -> list[Path]:
    return [path] if isinstance(path, Path) else list(path)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _state(source: Path) -> list[Any]:
    """Size and time of change of a file, or of all files of a folder."""
    try:
        if not source.is_dir():
            status = source.stat()
            return [status.st_size, status.st_mtime_ns]
        files = sorted(file for file in source.rglob("*") if file.is_file())
        return [[str(file.relative_to(source)), *_state(file)] for file in files]
    except OSError as error:
        raise VolumeError(f"{source.name} cannot be read: {error.strerror}.") from None


def _read(folder: Path) -> Arrays | None:
    """Arrays of a folder, or None where it is not there or damaged."""
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
    """Remove an entry; who reads it at the same time finds all of it or nothing."""
    hidden = folder.with_name(f".{secrets.token_hex(6)}-{folder.name}")
    with suppress(OSError):  # gone already, or held open on Windows
        folder.rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)


def _save(file: Path, array: NDArray[Any]) -> None:
    try:
        np.save(file, array, allow_pickle=False)
    except OSError as error:
        # Where a disk fills up in the middle, NumPy does not pass on the system's own number.
        raise error if error.errno else OSError(errno.ENOSPC, "short write") from None


def _changed(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return time.time()
