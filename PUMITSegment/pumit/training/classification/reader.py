"""Read what a classifier learns from, however it lies there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pumit.errors import PumitError
from pumit.training.classification.cases import ClassificationData
from pumit.training.classification.class_folders import read_class_folders
from pumit.training.classification.medmnist import read_medmnist


def read_classification_data(
    path: Path,
    *,
    classes: Sequence[str] = (),
    split: dict[str, float] | None = None,
    patient: str | None = None,
    seed: int = 0,
) -> ClassificationData:
    """Read a MedMNIST file or a folder of one folder per class.

    Args:
        path: `.npz`, or a folder; see `medmnist` and `class_folders`.
        classes: Names of the classes of a MedMNIST file, in the order of their numbers.
        split: Share of the cases for "val" and "test", where a folder does not say which.
        patient: Pattern by which a folder's files tell their patient, see `class_folders`.

    Raises:
        PumitError: If there is nothing there, or nothing that a classifier can learn from.
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
