"""A folder per class: the simplest way to say what each scan shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pumit.errors import PumitError
from pumit.training.classification.cases import (
    SPLITS,
    Cases,
    ClassificationData,
    require_split,
)
from pumit.training.data.split import split_cases
from pumit.training.recipes.labelled import LabelledData
from pumit.volume import Volume

# What files of scans end with; a folder inside a class is a DICOM series.
SUFFIXES = (
    *(".nii.gz", ".nii", ".nrrd", ".nhdr", ".mha", ".mhd"),
    *(".dcm", ".zip", ".png", ".jpg", ".jpeg"),
)


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

    A scan is a file of any format that `Volume.read` takes, or a folder of DICOM files. Without
    `val` a part of the training cases is set aside by chance, the same part of each class; where
    nothing is split by folders, one for the test too.

    Args:
        split: Shares to set aside, see `require_split`.
        patient: Regular expression that finds the patient in `CLASS/NAME`, as its first group or
            as all that it matches; no patient's scans are then torn apart, and shares are shares
            of the patients, whatever their class. Without it every scan is a patient.
        seed: Seed of that choice; the same files give the same splits everywhere.

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
        names = [path.name for path in paths]
        numbers = np.array(labels, dtype=np.int64)
        splits[split_name] = Cases(names, numbers, _FileReader(paths), paths)
    return ClassificationData(classes, splits, is_stored_as_shown=False)


def _scans_of(folder: Path) -> dict[str, list[Path]]:
    """Return scans of each class, sorted by name.

    Raises:
        PumitError: If there is no class, or nothing in one.
    """
    visible = [path for path in folder.iterdir() if not path.name.startswith(".")]
    scans = {
        inner.name: sorted(path for path in inner.iterdir() if _is_scan(path))
        for inner in visible
        if inner.is_dir()
    }
    if not scans:
        raise PumitError(
            f"The folder {folder.name!r} holds no folders; it needs one for each class."
        )
    empty = sorted(name for name, paths in scans.items() if not paths)
    if empty:
        raise PumitError(f"The class folder {empty[0]!r} holds no scan; fill it or remove it.")
    return scans


def _is_scan(path: Path) -> bool:
    if path.name.startswith("."):
        return False
    return path.is_dir() or path.name.lower().endswith(SUFFIXES)


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
        # The share is of all patients, those that are set aside already included.
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
    """Set aside the same share of each class, at least one case of it."""
    generator = np.random.default_rng(seed)
    found: dict[str, dict[str, list[Path]]] = {name: {} for name in ("train", *shares)}
    for name, paths in sorted(scans.items()):
        if len(paths) <= len(shares):
            raise PumitError(
                f"Class {name!r} has {len(paths)} cases, too few for {' and '.join(found)}; give "
                f"at least {len(shares) + 1}, or make the splits yourself."
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
