"""Labelled images for a classifier in training, validation and test splits."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.errors import PumitError, VolumeError
from pumit.geometry import Array
from pumit.system.wording import count_of
from pumit.volume import Volume

Labels = npt.NDArray[np.int64]

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Cases:
    """Images with their labels.

    Attributes:
        names: Unique case names for messages, such as CLASS/NAME.
        labels: Class indices (N,), or multi-label 0 or 1 (N, classes).
        read: Reads the volume of a case by index; raises VolumeError.
        files: Files of the cases; empty for images in memory.
    """

    names: Sequence[str]
    labels: Labels
    read: Callable[[int], Volume]
    files: Sequence[Path] = ()

    def __len__(self) -> int:
        return len(self.names)

    def volume(self, index: int) -> Volume:
        """Return the volume of a case.

        Raises:
            VolumeError: If it cannot be read; the message begins with the case's name.
        """
        try:
            return self.read(index)
        except VolumeError as error:
            raise VolumeError(f"{self.names[index]}: {error}") from None


@dataclass(frozen=True)
class ClassificationData:
    """A classification data set.

    Attributes:
        classes: Class names in order of the network's outputs.
        splits: Cases of "train", "val" and optionally "test".
        is_stored_as_shown: Whether all images have the same orientation without headers, as in
            MedMNIST; else they are reoriented by their headers.
        has_bytes: Whether all images are unsigned bytes, of which 0 is black and 255 white.
        notes: Remarks on the splits, for the user.
        set_aside: Names of the cases of each split that the folders do not give.
    """

    classes: tuple[str, ...]
    splits: dict[str, Cases]
    is_stored_as_shown: bool
    has_bytes: bool = False
    notes: tuple[str, ...] = ()
    set_aside: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def is_multi_label(self) -> bool:
        """Whether a case may have several classes, or none."""
        return self.splits["train"].labels.ndim == 2

    def counts(self) -> dict[str, list[int]]:
        """Return the number of cases of each class in each split."""
        return {name: _count(cases.labels, len(self.classes)) for name, cases in self._items()}

    def check(self, where: str) -> None:
        """Check that the splits can be trained and evaluated on.

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
                    f"The {name} cases of {where} ({len(cases)}) are too few: an AUC needs cases "
                    "of at least two classes."
                )
            unseen = [
                self.classes[k] for k, n in enumerate(counts[name]) if n and not counts["train"][k]
            ]
            if unseen:
                raise PumitError(
                    f"Class {unseen[0]!r} of {where} occurs in the {name} cases, but in no "
                    "training case."
                )

    def check_scans(self) -> Iterator[tuple[str, str, str]]:
        """Read all files, and yield name, problem and doubt of each, "" for none."""
        channels = 0
        first: dict[bytes, tuple[str, Any]] = {}
        for split, cases in self._items():
            for i, name in enumerate(cases.names if cases.files else ()):
                try:
                    volume = cases.read(i)
                except VolumeError as error:
                    yield name, str(error), ""
                    continue
                channels = channels or volume.channels
                place = split, cases.labels[i].tolist()
                same, where = first.setdefault(_digest(volume.array), (name, place))
                problem = doubt = ""
                if volume.channels != channels:
                    problem = f"It has {count_of(volume.channels, 'channel')}, others {channels}."
                elif where != place:
                    problem = f"It is the same image as {same}; remove one."
                elif same != name:
                    doubt = f"{name} is the same image as {same}"
                yield name, problem, doubt

    def _items(self) -> list[tuple[str, Cases]]:
        return [(name, self.splits[name]) for name in SPLITS if name in self.splits]


def _digest(array: Array) -> bytes:
    digest = hashlib.sha256(f"{array.dtype.str} {array.shape}".encode())
    digest.update(np.ascontiguousarray(array).data)
    return digest.digest()


def _count(labels: Labels, classes: int) -> list[int]:
    if labels.ndim == 2:
        return [int(n) for n in labels.sum(0)]
    return [int(n) for n in np.bincount(labels, minlength=classes)]


def named_split(split: Mapping[str, Any] | None) -> dict[str, list[str]]:
    """Return the names of the cases of "val" and "test"; empty if it gives no names."""
    if split is None or not {"val"} <= split.keys() <= {"val", "test"}:
        return {}
    is_named = all(isinstance(names, list) for names in split.values())
    return {part: list(map(str, names)) for part, names in split.items()} if is_named else {}


def require_split(split: dict[str, Any] | None) -> dict[str, float]:
    """Return the shares of "val" and "test", by default 15 % each.

    Raises:
        PumitError: If the shares are invalid.
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
