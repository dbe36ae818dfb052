"""Read and measure labelled cases."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pumit.errors import VolumeError
from pumit.io.labels.label_file import LabelFile, count_values
from pumit.io.labels.label_source import read_all_labels, read_scan
from pumit.preprocessing.channels import image_channels
from pumit.preprocessing.network_axes import NetworkAxes, Orientation
from pumit.training.data.class_matching import class_labels, cut_classes, known_labels
from pumit.training.data.classes import UNKNOWN, ClassValue, region_table
from pumit.training.data.found_cases import LabelledCase, one_line
from pumit.volume import Volume

KEPT_BYTES = 1 << 30  # memory for cases that are kept after the first read
FOREGROUND_SAMPLES = 10_000  # voxels per case that are sampled for intensity statistics


@dataclass(frozen=True, eq=False)
class LabelledVolume:
    """A scan and its label map on the same grid.

    Attributes:
        labels: (D, H, W), 0 background, i the i-th class or, with regions, the i-th of
            `base_values`; `UNKNOWN` for unannotated voxels.
        drawn: Whether each class was annotated; a class that was not may be anywhere in the
            background. None if all were.
    """

    name: str
    volume: Volume
    labels: npt.NDArray[np.uint8]
    doubts: tuple[str, ...] = ()
    drawn: tuple[bool, ...] | None = None


@dataclass(frozen=True, eq=False)
class CaseFacts:
    """Facts about a case for planning, without its voxels.

    Attributes:
        spacing_mm: Voxel size on the network's axes, depth first.
        shape: Number of voxels along the same axes.
        class_voxels: Voxels of each class, the background first; regions share voxels.
        foreground: Sampled intensities of labelled voxels, (channels, n).
        lowest: Smallest intensity of each channel.
        known_share: Fraction of annotated voxels.
        drawn: Whether each class was annotated; None if all were.
        cut: Classes, from 1 on, that touch unknown voxels and may continue there.
    """

    name: str
    spacing_mm: tuple[float, float, float]
    shape: tuple[int, int, int]
    channels: int
    class_voxels: tuple[int, ...]
    foreground: npt.NDArray[np.float32]
    lowest: tuple[float, ...]
    is_integer: bool
    digest: str
    doubts: tuple[str, ...] = ()
    known_share: float = 1.0
    drawn: tuple[bool, ...] | None = None
    cut: frozenset[int] = frozenset()

    def undrawn(self, names: Sequence[str]) -> list[str]:
        """Return which of the class names were not annotated."""
        there = self.drawn or (True,) * len(names)
        return [name for name, is_drawn in zip(names, there, strict=True) if not is_drawn]


def read_labelled(case: LabelledCase, classes: Sequence[ClassValue]) -> LabelledVolume:
    """Read a case.

    Raises:
        VolumeError: If a file cannot be read, image and label map are on different grids, or the
            label map has a value without a class. The message begins with the case's name.
    """
    try:
        volume = read_scan(case.images, case.label)
        file = read_all_labels(case.labels, volume)
        return labelled_volume(case, volume, file, classes)
    except (VolumeError, OSError) as error:
        raise VolumeError(f"{case.name}: {one_line(error)}") from None


class KeptCases:
    """Labelled cases, read on demand and kept in memory up to `KEPT_BYTES`."""

    def __init__(self, cases: Sequence[LabelledCase], classes: Sequence[ClassValue]) -> None:
        self._cases, self._classes = cases, classes
        self._kept: dict[str, LabelledVolume] = {}
        self._bytes = 0

    def __iter__(self) -> Iterator[LabelledVolume]:
        """Read the cases in order."""
        for case in self._cases:
            read = self._kept.get(case.name) or read_labelled(case, self._classes)
            size = self._bytes + read.volume.array.nbytes + read.labels.nbytes
            if case.name not in self._kept and size < KEPT_BYTES:
                self._kept[case.name], self._bytes = read, size
            yield read


def labelled_volume(
    case: LabelledCase, volume: Volume, file: LabelFile, classes: Sequence[ClassValue]
) -> LabelledVolume:
    """Return a scan with its labels converted to classes and unknown voxels marked.

    Raises:
        VolumeError: If a label value has no class, or `case.drawn` names an unknown class.
    """
    found = class_labels(file, classes, case.ignore_value)
    labels, drawn = known_labels(found, classes, drawn=case.drawn, known=case.known)
    doubts = [*file.doubts, *found.doubts]
    if case.known == "strokes" and not (labels == 0).any():
        doubts.append("has no stroke of a segment that is called background")
    return LabelledVolume(case.name, volume, labels, tuple(doubts), drawn)


def facts_of(
    case: LabelledVolume, *, classes: Sequence[ClassValue], orientation: Orientation
) -> CaseFacts:
    """Measure a case."""
    axes = NetworkAxes.of(case.volume, orientation)
    d, h, w = (case.volume.spacing_mm[a] for a in axes.order)
    depth, height, width = (case.volume.shape[a] for a in axes.order)
    count = case.volume.channels
    channels = image_channels(case.volume, count)
    members = region_table(classes)  # (classes, 1 + base values)
    every = count_values(case.labels, UNKNOWN)
    unknown, counts = int(every[UNKNOWN]), every[: members.shape[1]]
    places = _labelled(case.labels, max(1, int(counts[1:].sum()) // FOREGROUND_SAMPLES))
    samples = [c.reshape(-1)[places].astype(np.float32) for c in channels]
    voxels = (counts[0], *(members @ counts))
    digest = hashlib.sha256(np.ascontiguousarray(case.volume.array).data)
    return CaseFacts(
        case.name,
        (d, h, w),
        (depth, height, width),
        count,
        tuple(int(v) for v in voxels),
        np.stack(samples),
        tuple(float(c.min()) for c in channels),
        case.volume.array.dtype.kind in "iu" or bool((np.mod(samples, 1) == 0).all()),
        digest.hexdigest(),
        case.doubts,
        1 - unknown / case.labels.size,
        case.drawn,
        cut_classes(case.labels, classes) if unknown else frozenset(),
    )


def _labelled(labels: npt.NDArray[np.uint8], step: int) -> npt.NDArray[np.int64]:
    """Return flat indices of every n-th labelled voxel, slice by slice to save memory."""
    found: list[npt.NDArray[np.int64]] = []
    count = 0
    for k, part in enumerate(labels):
        inside = np.flatnonzero((part > 0) & (part != UNKNOWN))
        found.append(inside[-count % step :: step] + k * part.size)
        count += len(inside)
    return np.concatenate(found)
