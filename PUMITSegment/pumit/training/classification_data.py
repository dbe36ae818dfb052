"""Labelled images for a classifier, in three splits, wherever they come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.errors import PumitError
from pumit.volume import Volume

Labels = npt.NDArray[np.int64]

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Cases:
    """Images with their labels.

    Attributes:
        names: What a case is called in messages, without a folder.
        labels: Class numbers (N,), or one 0 or 1 per label (N, classes).
        read: Gives the volume of a case by its number; raises VolumeError.
        files: Where the cases lie, or none where they are in memory.
    """

    names: Sequence[str]
    labels: Labels
    read: Callable[[int], Volume]
    files: Sequence[Path] = ()

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class ClassificationData:
    """A data set to learn from.

    Attributes:
        classes: Names, in the order of the network's outputs.
        splits: By "train", "val" and, where there is one, "test".
        is_stored_as_shown: Whether axes mean the same in every image without a header that says
            so (MedMNIST); else the header turns them.
    """

    classes: tuple[str, ...]
    splits: dict[str, Cases]
    is_stored_as_shown: bool

    @property
    def is_multi_label(self) -> bool:
        """Whether a case may have several of the classes, or none."""
        return self.splits["train"].labels.ndim == 2

    def counts(self) -> dict[str, list[int]]:
        """Cases of each class in each split."""
        return {name: _count(cases.labels, len(self.classes)) for name, cases in self._items()}

    def check(self, where: str) -> None:
        """Refuse what nothing can be learned from, or measured on.

        Args:
            where: What to call the data set in a message.

        Raises:
            PumitError: If a split lacks cases of a class that it needs.
        """
        counts = self.counts()
        used = [k for k, n in enumerate(counts["train"]) if n]
        if not self.is_multi_label and len(used) < 2:
            raise PumitError(
                f"All training cases of {where} are of one class, "
                f"{self.classes[used[0]]!r}; a classifier needs at least two."
            )
        for name, cases in self._items():
            found = sum(0 < n < len(cases) for n in counts[name])
            if found == 0:
                raise PumitError(
                    f"The {name} cases of {where} ({len(cases)}) are too few: they need cases of "
                    "at least two classes to tell how well these are told apart."
                )
            unseen = [
                self.classes[k] for k, n in enumerate(counts[name]) if n and not counts["train"][k]
            ]
            if unseen:
                raise PumitError(
                    f"Class {unseen[0]!r} of {where} occurs in the {name} cases, but in no "
                    "training case."
                )

    def _items(self) -> list[tuple[str, Cases]]:
        return [(name, self.splits[name]) for name in SPLITS if name in self.splits]


def _count(labels: Labels, classes: int) -> list[int]:
    if labels.ndim == 2:
        return [int(n) for n in labels.sum(0)]
    return [int(n) for n in np.bincount(labels, minlength=classes)]


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
        path: `.npz`, or a folder; see `medmnist_file` and `class_folders`.
        classes: Names of the classes of a MedMNIST file, in the order of their numbers.
        split: Share of the cases for "val" and "test", where a folder does not say which.
        patient: How a folder's files tell their patient, see `class_folders`.
        seed: Of that split.

    Raises:
        PumitError: If there is nothing there, or nothing that a classifier can learn from.
    """
    from pumit.training.class_folders import read_class_folders
    from pumit.training.medmnist_file import read_medmnist

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


def require_split(split: dict[str, Any] | None) -> dict[str, float]:
    """Shares for "val" and "test", by default 15 % each.

    Raises:
        PumitError: If they cannot be used.
    """
    given = {"val": 0.15, "test": 0.15} if split is None else split
    is_number = all(
        isinstance(v, (int, float)) and not isinstance(v, bool) and 0 <= v < 1
        for v in given.values()
    )
    shares = {name: float(given.get(name, 0.0)) for name in ("val", "test")} if is_number else {}
    if not is_number or set(given) - set(shares) or shares["val"] <= 0 or sum(shares.values()) >= 1:
        raise PumitError(
            f"split must give the shares of val and test, such as {{val: 0.15, test: 0.15}}, got "
            f"{split!r}."
        )
    return shares
