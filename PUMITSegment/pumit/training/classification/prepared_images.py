"""Pre-processed images of a classifier, computed on demand or cached in a file."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pumit.errors import ExportError, VolumeError
from pumit.preprocessing.classifier_input import ClassifierInput
from pumit.system.files import atomic_path
from pumit.training.classification.cases import Cases
from pumit.volume import Volume


@dataclass(frozen=True)
class PreparedImages:
    """Pre-processed images by index.

    Attributes:
        kept: File with all images, written by `keep_prepared`, or None.
    """

    cases: Cases
    form: ClassifierInput
    kept: Path | None = None

    def __len__(self) -> int:
        return len(self.cases)

    def __getitem__(self, index: int) -> Tensor:
        """Return an image (C, d, h, w), float32; C is 1 if all channels are equal."""
        if self.kept is not None:
            array = np.load(self.kept, mmap_mode="r", allow_pickle=False)[index]
            return torch.from_numpy(array.astype(np.float32))
        return self.form.prepare(read_case(self.cases, index))


def read_case(cases: Cases, index: int) -> Volume:
    """Return the volume of a case.

    Raises:
        VolumeError: If it cannot be read; the message begins with the case's name.
    """
    try:
        return cases.read(index)
    except VolumeError as error:
        raise VolumeError(f"{cases.names[index]}: {error}") from None


def keep_prepared(cases: Cases, form: ClassifierInput, target: Path) -> PreparedImages:
    """Pre-process all images once and cache them in half precision.

    All files are read before training, so an unreadable one fails early. If `target` already holds
    the same images, nothing is read.

    Raises:
        VolumeError: If a file cannot be read, or the images differ in their channels.
        ExportError: If the target cannot be written.
    """
    # 1. Reuse images of the same files in the same form.
    note = target.with_suffix(".json")
    try:
        mark = _mark(cases, form)
    except OSError as error:
        raise VolumeError(
            f"{Path(error.filename or '').name} cannot be read: {error.strerror}."
        ) from None
    if target.is_file() and _read_mark(note) == mark:
        return PreparedImages(cases, form, target)
    # 2. Else write them atomically: float16 (N, C, D, H, W).
    channels = 0
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        note.unlink(missing_ok=True)
        with atomic_path(target) as temporary:
            array: np.memmap[tuple[int, ...], np.dtype[np.float16]] | None = None
            for i in range(len(cases)):
                volume = read_case(cases, i)
                try:
                    image = form.prepare(volume)
                except VolumeError as error:
                    raise VolumeError(f"{cases.names[i]}: {error}") from None
                if array is None:
                    channels = volume.channels
                    shape = (len(cases), *image.shape)
                    array = np.lib.format.open_memmap(
                        temporary, mode="w+", dtype=np.float16, shape=shape
                    )
                if volume.channels != channels:
                    raise VolumeError(
                        f"{cases.names[i]} has {volume.channels} channels, "
                        f"{cases.names[0]} {channels}; all images must have as many."
                    )
                array[i] = image.numpy().astype(np.float16)
            if array is not None:
                array.flush()
            del array
        # 3. Write the fingerprint of the sources last; without it, the images are computed again.
        note.write_text(json.dumps({"mark": mark}), encoding="utf-8")
    except OSError as error:
        reason = error.strerror or "the system refused"
        raise ExportError(f"Prepared images cannot be kept in {target.name}: {reason}.") from None
    return PreparedImages(cases, form, target)


def _mark(cases: Cases, form: ClassifierInput) -> str:
    """Return a fingerprint of the files and the form."""
    stats = [path.stat() for path in cases.files]
    files = [(str(p), s.st_size, s.st_mtime_ns) for p, s in zip(cases.files, stats, strict=True)]
    facts = [form.as_recipe(), list(cases.names), files]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _read_mark(note: Path) -> str | None:
    try:
        return str(json.loads(note.read_text(encoding="utf-8"))["mark"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
