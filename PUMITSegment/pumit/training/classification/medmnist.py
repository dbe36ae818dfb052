"""MedMNIST's files: arrays of images and labels in three splits, one `.npz`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.errors import PumitError
from pumit.geometry import PLANAR_SLICE_SPACING_MM
from pumit.io.parser_errors import parsing
from pumit.training.classification.cases import SPLITS, Cases, ClassificationData, Labels
from pumit.volume import Volume

COLOUR = 3


@dataclass(frozen=True)
class _ArrayReader:
    """Images (N, D, H, W) or (N, H, W), with a last axis of 3 where they are in colour."""

    images: npt.NDArray[Any]
    is_planar: bool
    is_colour: bool

    def __call__(self, index: int) -> Volume:
        image = self.images[index]
        if self.is_colour:
            image = np.moveaxis(image, -1, 0)
        if self.is_planar:
            return Volume(np.expand_dims(image, -3), (PLANAR_SLICE_SPACING_MM, 1.0, 1.0))
        return Volume(image)


def read_medmnist(path: Path, classes: Sequence[str] = ()) -> ClassificationData:
    """Read a file of MedMNIST v2, 2D or 3D, of any image size.

    It holds `train_images`, `train_labels` and the same of `val` and `test`: images of unsigned
    bytes, shape (N, D, H, W) or (N, H, W), colour last; labels (N, 1), or (N, L) of zeros and ones
    where a case may have several.

    Args:
        classes: Names of the classes, in the order of their numbers; numbered where absent.

    Raises:
        PumitError: If it is another file, or an array of it cannot be used.

    Source:
        Yang et al., MedMNIST v2, 2023.
    """
    arrays = _read_arrays(path)
    shapes = {arrays[f"{split}_images"].shape[1:] for split in SPLITS}
    if len(shapes) > 1:
        raise PumitError(f"The images of {path.name} differ in size or channels: {shapes}.")
    (shape,) = shapes
    is_colour = len(shape) > 2 and shape[-1] == COLOUR
    dimensions = len(shape) - is_colour
    if dimensions not in (2, 3) or 0 in shape:
        raise PumitError(
            f"The images of {path.name} must be (N, D, H, W) or (N, H, W), colour last; each is "
            f"{shape}."
        )
    labels = {split: _labels_of(arrays, split, path.name) for split in SPLITS}
    names = _class_names(labels, tuple(classes), path.name)
    splits = {}
    for split in SPLITS:
        images = arrays[f"{split}_images"]
        cases = [f"{split} image {i}" for i in range(len(images))]
        reader = _ArrayReader(images, dimensions == 2, is_colour)
        splits[split] = Cases(cases, labels[split], reader)
    return ClassificationData(names, splits, is_stored_as_shown=True)


def _read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    keys = [f"{split}_{what}" for split in SPLITS for what in ("images", "labels")]
    with parsing(f"file {path.name}"):
        file = np.load(path, allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise PumitError(f"{path.name} is no .npz file of MedMNIST.")
        with file:
            missing = [name for name in keys if name not in file]
            if missing:
                raise PumitError(
                    f"{path.name} holds no {missing[0]}; a MedMNIST file holds {', '.join(keys)}."
                )
            arrays = {name: _member(file, name, path.name) for name in keys}
    odd = [name for name, array in arrays.items() if array.dtype.kind not in "biuf"]
    if odd:
        raise PumitError(f"{odd[0]} of {path.name} holds no numbers, but {arrays[odd[0]].dtype}.")
    return arrays


def _member(file: Any, name: str, where: str) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = file[name]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise PumitError(
            f"{name} of {where} holds Python objects, which could run any code; only numbers are "
            "read."
        ) from None
    return array


def _labels_of(arrays: dict[str, npt.NDArray[Any]], split: str, where: str) -> Labels:
    """Class numbers (N,), or zeros and ones (N, L)."""
    given, images = arrays[f"{split}_labels"], arrays[f"{split}_images"]
    if given.ndim not in (1, 2) or images.ndim == 0 or len(given) != len(images):
        raise PumitError(
            f"{split}_labels of {where} have shape {given.shape}, but there are "
            f"{len(images) if images.ndim else 0} images; there is one row for each."
        )
    labels = given.astype(np.int64)
    if (labels != given).any():
        raise PumitError(f"{split}_labels of {where} are not whole numbers.")
    return labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels


def _class_names(labels: dict[str, Labels], names: tuple[str, ...], where: str) -> tuple[str, ...]:
    """Names of the classes, once every label is known to be one of them."""
    widths = {split: found.shape[1:] for split, found in labels.items()}
    if len(set(widths.values())) > 1:
        raise PumitError(f"The labels of {where} differ in number: {widths}.")
    several = labels["train"].ndim == 2
    count = labels["train"].shape[1] if several else int(labels["train"].max(initial=0)) + 1
    if not several:
        count = max(count, len(names))
    if names and len(names) != count:
        raise PumitError(f"{where} has {count} classes, but the recipe names {len(names)}.")
    highest = 1 if several else count - 1
    for split, found in labels.items():
        wrong = found[(found < 0) | (found > highest)]
        if wrong.size:
            raise PumitError(
                f"{split}_labels of {where} hold {wrong.flat[0]}, which is out of range: they go "
                f"from 0 to {highest}."
            )
    return names or tuple(str(k) for k in range(count))
