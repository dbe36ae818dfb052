"""A real scan with its label map, prepared for sampling fields."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from scipy import ndimage
from torch import Tensor

from pumit.errors import VolumeError
from pumit.preprocessing.fields import Pyramid
from pumit.preprocessing.network_axes import depth_first
from pumit.training.synthesis.scene import UNKNOWN
from pumit.volume import Volume

FEWEST_VOXELS = 30  # smallest structure used as a target


@dataclass
class RealScan:
    """A scan with its label map, depth axis first.

    Attributes:
        labels: Pyramid of the label map (read at full resolution only), or None.
        places: Sampled voxels (n, 3) and in-plane extent in mm of each structure that has at least
            `FEWEST_VOXELS` voxels.
        values: Labels that make up each structure.
        voxels: Number of voxels of each structure.
        classes: Class number of each label, indexed by label from 0; empty without classes.
    """

    image: Pyramid
    labels: Pyramid | None
    places: dict[int, tuple[npt.NDArray[np.int64], float]]
    values: dict[int, tuple[int, ...]]
    voxels: dict[int, int] = field(default_factory=dict)
    classes: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def mask(self, labels: Tensor, structure: int) -> Tensor:
        """Return the mask of a structure in a part of the label map."""
        return torch.isin(labels, torch.tensor(self.values[structure], dtype=labels.dtype))


def number_classes(sets: Mapping[str, Sequence[RealScan]], first: int = 0) -> list[tuple[str, int]]:
    """Assign class numbers to the labels and backgrounds of data sets, and store them in the scans.

    Return data set and label of each class, ordered by class number from `first` on. Scans without
    labels get no classes.
    """
    known: list[tuple[str, int]] = []
    for name, scans in sorted(sets.items()):
        labels = sorted({label for scan in scans for label in scan.values})
        if not labels:
            continue
        table = np.full(labels[-1] + 1, UNKNOWN, np.int64)
        table[[0, *labels]] = first + len(known) + np.arange(len(labels) + 1)
        known += [(name, label) for label in (0, *labels)]
        for scan in scans:
            if scan.labels is not None:
                scan.classes = table
    return known


def load_scan(image_path: Path, label_path: Path | None, *, series: str | None = None) -> RealScan:
    """Read a scan and, if given, its label map."""
    volume = Volume.read(image_path, series=series)
    array = volume.array if volume.array.ndim == 3 else volume.array[0]
    if label_path is None:
        return scan_of(array, volume.spacing_mm, None)
    label = Volume.read(label_path).array
    label = label if label.ndim == 3 else label[0]
    if label.shape != array.shape:
        raise VolumeError(f"A label map of {label.shape} does not fit a scan of {array.shape}.")
    return scan_of(array, volume.spacing_mm, label)


def scan_of(
    array: npt.NDArray[np.generic],
    spacing_mm: tuple[float, float, float],
    labels: npt.NDArray[np.generic] | None,
    values: Mapping[int, tuple[int, ...]] | None = None,
) -> RealScan:
    """Prepare a scan for sampling fields.

    Args:
        array: Intensities (D, H, W).
        labels: Label map of the same shape, or None.
        values: Labels that make up each structure; None makes each label a structure.

    Raises:
        VolumeError: If a label is above 32767.
    """
    order = depth_first(spacing_mm, array.shape)
    d, h, w = (spacing_mm[a] for a in order)
    image = Pyramid(np.ascontiguousarray(array.transpose(order), dtype=np.float32), (d, h, w))
    if labels is None:
        return RealScan(image, None, {}, {})
    if labels.size and labels.max() > np.iinfo(np.int16).max:
        raise VolumeError(f"Labels go up to 32767, and this map has {labels.max()}; renumber it.")
    label = np.ascontiguousarray(labels.transpose(order), dtype=np.int16)
    if values is None:
        values = {int(v): (int(v),) for v in np.unique(label[label > 0])}
    places, counts = {}, {}
    rng = np.random.default_rng(0)
    windows = ndimage.find_objects(label)
    for structure, members in values.items():
        voxels = _voxels_of(label, windows, members)
        counts[structure] = len(voxels)
        if len(voxels) < FEWEST_VOXELS:
            continue
        extent = float((np.ptp(voxels, axis=0)[1:] * np.asarray((h, w))).max())
        keep = rng.choice(len(voxels), min(len(voxels), 500), replace=False)
        places[structure] = (voxels[keep], max(extent, 2 * h))
    return RealScan(image, Pyramid(label, (d, h, w)), places, dict(values), counts)


def _voxels_of(
    label: npt.NDArray[np.int16],
    windows: Sequence[tuple[slice, ...] | None],
    members: Sequence[int],
) -> npt.NDArray[np.int64]:
    """Return the voxels of labels, (n, 3); `windows` are the result of `ndimage.find_objects`."""
    around = [w for m in members if 0 < m <= len(windows) and (w := windows[m - 1]) is not None]
    if not around:
        return np.empty((0, 3), np.int64)
    low = [min(w[axis].start for w in around) for axis in range(3)]
    high = [max(w[axis].stop for w in around) for axis in range(3)]
    part = label[tuple(slice(a, b) for a, b in zip(low, high, strict=True))]
    return np.argwhere(np.isin(part, members)) + np.asarray(low)
