"""Readers of classification data: MedMNIST files, and folders with one subfolder per class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.errors import PumitError
from pumit.geometry import PLANAR_SLICE_SPACING_MM
from pumit.io.parser_errors import parsing
from pumit.system.wording import count_of
from pumit.training.classification.cases import (
    SPLITS,
    Cases,
    ClassificationData,
    Labels,
    require_split,
)
from pumit.training.data.split import split_cases
from pumit.training.recipes.labelled import LabelledData
from pumit.volume import Volume

COLOUR = 3
# Suffixes of scans; a folder inside a class is a DICOM series.
SUFFIXES = (
    *(".nii.gz", ".nii", ".nrrd", ".nhdr", ".mha", ".mhd"),
    *(".dcm", ".zip", ".png", ".jpg", ".jpeg"),
)
# Folders of a data set for segmentation, which are no classes.
LAYOUT_FOLDERS = {"images", "labels", "masks", "imagesTr", "labelsTr", "imagesTs", "labelsTs"}


@dataclass(frozen=True)
class _ArrayReader:
    """Reader of images (N, D, H, W) or (N, H, W), colour last with 3 channels."""

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

    It holds `train_images`, `train_labels` and the same for `val` and `test`: uint8 images of shape
    (N, D, H, W) or (N, H, W), colour last; labels (N, 1), or multi-label 0 or 1 (N, L).

    Args:
        classes: Class names in order of their indices; by default the indices.

    Raises:
        PumitError: If it is another file, or an array is invalid.

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
    """Return class indices (N,), or multi-label 0 or 1 (N, L)."""
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
    """Return the class names, after checking that all labels are in range."""
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


@dataclass(frozen=True)
class _FileReader:
    paths: Sequence[Path]

    def __call__(self, index: int) -> Volume:
        return Volume.read(self.paths[index])


def read_class_folders(
    folder: Path,
    *,
    split: dict[str, float] | None = None,
    patient: str | None = None,
    seed: int = 0,
) -> ClassificationData:
    """Find the scans of `CLASS/*`, or of `train/CLASS/*` with `val` and `test` next to it.

    A scan is a file in any format of `Volume.read`, or a folder of DICOM files. Without `val`, a
    random share of the training cases of each class is set aside; without split folders, one for
    `test` too.

    Args:
        split: Shares to set aside, see `require_split`.
        patient: Regular expression for the patient in `CLASS/NAME`, as its first group or the
            whole match. The scans of a patient then stay together, and shares are of all
            patients, not per class. Without it every scan is a patient.
        seed: Seed of the split; the same files give the same splits everywhere.

    Raises:
        PumitError: If a class is empty, or has too few cases to be split.
    """
    shares = require_split(split)
    if (folder / "train").is_dir():
        found = {name: _scans_of(folder / name) for name in SPLITS if (folder / name).is_dir()}
        classes = tuple(sorted(found["train"]))
        for name, scans in found.items():
            unknown = sorted(set(scans) - set(classes))
            if unknown:
                raise PumitError(f"Class {unknown[0]!r} of {name} is not among those of train.")
        if "val" not in found:
            found |= _split(found["train"], {"val": shares["val"]}, patient, seed)
    else:
        scans = _scans_of(folder)
        classes = tuple(sorted(scans))
        found = _split(scans, shares, patient, seed)
    splits = {}
    for split_name, scans in found.items():
        paths = [path for c in classes for path in scans.get(c, ())]
        labels = [k for k, c in enumerate(classes) for _ in scans.get(c, ())]
        names = [path.relative_to(folder).as_posix() for path in paths]
        numbers = np.array(labels, dtype=np.int64)
        splits[split_name] = Cases(names, numbers, _FileReader(paths), paths)
    return ClassificationData(classes, splits, is_stored_as_shown=False)


def _scans_of(folder: Path) -> dict[str, list[Path]]:
    """Return the scans of each class, sorted by name.

    Raises:
        PumitError: If there is no class, or a class is empty.
    """
    visible = [path for path in folder.iterdir() if not path.name.startswith(".")]
    scans = {
        inner.name: sorted(
            path
            for path in inner.iterdir()
            if not path.name.startswith(".")
            and (path.is_dir() or path.name.lower().endswith(SUFFIXES))
        )
        for inner in visible
        if inner.is_dir()
    }
    if not scans:
        raise PumitError(
            f"The folder {folder.name!r} holds no folders; it needs one for each class."
        )
    if set(scans) <= LAYOUT_FOLDERS:
        raise PumitError(
            f"{folder.name!r} is laid out for segmentation ({', '.join(sorted(scans))}); "
            "classification needs a folder of scans for each class."
        )
    empty = sorted(name for name, paths in scans.items() if not paths)
    if empty:
        raise PumitError(f"The class folder {empty[0]!r} holds no scan; fill it or remove it.")
    return scans


def _split(
    scans: dict[str, list[Path]], shares: dict[str, float], patient: str | None, seed: int
) -> dict[str, dict[str, list[Path]]]:
    """Set aside shares of the cases, or of the patients."""
    shares_left = {name: share for name, share in shares.items() if share > 0}
    if patient is not None:
        return _split_patients(scans, shares_left, patient, seed)
    return _split_classes(scans, shares_left, seed)


def _split_patients(
    scans: dict[str, list[Path]], shares: dict[str, float], patient: str, seed: int
) -> dict[str, dict[str, list[Path]]]:
    """Set aside all scans of some patients."""
    paths = {f"{name}/{path.name}": path for name in scans for path in scans[name]}
    found: dict[str, dict[str, list[Path]]] = {}
    left, share_left = sorted(paths), 1.0
    for part, share in reversed(shares.items()):
        # The share is of all patients, including those already set aside.
        rule = LabelledData(validation=share / share_left, patient=patient)
        chosen = split_cases(left, rule, seed=seed)
        found[part] = _by_class(chosen.validation, paths)
        left, share_left = list(chosen.training), share_left - share
    found["train"] = _by_class(left, paths)
    return {part: found[part] for part in SPLITS if part in found}


def _by_class(names: Iterable[str], paths: dict[str, Path]) -> dict[str, list[Path]]:
    scans: dict[str, list[Path]] = {}
    for name in names:
        scans.setdefault(name.split("/")[0], []).append(paths[name])
    return scans


def _split_classes(
    scans: dict[str, list[Path]], shares: dict[str, float], seed: int
) -> dict[str, dict[str, list[Path]]]:
    """Set aside the same share of each class, at least one case."""
    generator = np.random.default_rng(seed)
    found: dict[str, dict[str, list[Path]]] = {name: {} for name in ("train", *shares)}
    for name, paths in sorted(scans.items()):
        if len(paths) <= len(shares):
            raise PumitError(
                f"Class {name!r} has {count_of(len(paths), 'scan')}, too few for "
                f"{', '.join(found)}; give at least {len(shares) + 1}, or make folders of these "
                "names yourself."
            )
        order = generator.permutation(len(paths))
        start = 0
        for part, share in shares.items():
            count = max(1, round(share * len(paths)))
            found[part][name] = sorted(paths[i] for i in order[start : start + count])
            start += count
        found["train"][name] = sorted(paths[i] for i in order[start:])
        if not found["train"][name]:
            raise PumitError(f"Class {name!r} has no case left to learn from; make split smaller.")
    return found


def read_classification_data(
    path: Path,
    *,
    classes: Sequence[str] = (),
    split: dict[str, float] | None = None,
    patient: str | None = None,
    seed: int = 0,
) -> ClassificationData:
    """Read a MedMNIST file, or a folder with one subfolder per class.

    Args:
        path: `.npz`, or a folder; see `read_medmnist` and `read_class_folders`.
        classes: Class names of a MedMNIST file, in order of their indices.
        split: Shares of "val" and "test", for folders without them.
        patient: Pattern of patients in file names, see `read_class_folders`.

    Raises:
        PumitError: If the path does not exist, or a classifier cannot be trained on its data.
    """
    if path.is_dir():
        if classes:
            raise PumitError(f"classes are the folders of {path.name}; leave the key classes out.")
        data = read_class_folders(path, split=split, patient=patient, seed=seed)
    elif path.is_file():
        if split is not None or patient is not None:
            raise PumitError(f"{path.name} says itself which cases are for what; leave split out.")
        data = read_medmnist(path, classes)
    else:
        raise PumitError(
            f"There is no {path.name!r} to learn from; data is an .npz file of MedMNIST or a "
            "folder with one folder per class."
        )
    data.check(path.name)
    return data
