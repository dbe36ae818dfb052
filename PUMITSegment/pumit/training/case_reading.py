"""Read a scan with its label map, and say what of it cannot be used."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.errors import VolumeError
from pumit.io.channel_files import read_channels, require_same_grid
from pumit.preprocessing.channels import image_channels
from pumit.preprocessing.network_axes import NetworkAxes, Orientation
from pumit.training.class_values import ClassValue, base_values, region_table
from pumit.training.labelled_cases import LabelledCase, bare_name
from pumit.volume import Volume

FOREGROUND_SAMPLES = 10_000  # voxels of a case that count for the intensities of the data set
SHOWN_VALUES = 6


@dataclass(frozen=True, eq=False)
class LabelledVolume:
    """A scan and its label map on the same grid.

    Attributes:
        name: Of the case.
        volume: The scan, all channels in one.
        labels: (D, H, W), 0 background, i the i-th class; of regions the i-th of `base_values`.
    """

    name: str
    volume: Volume
    labels: npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class CaseFacts:
    """What planning needs to know of a case, without its voxels.

    Attributes:
        name: Of the case.
        spacing_mm: Voxel size on the network's axes, depth first.
        shape: Voxels along these.
        channels: Image channels.
        class_voxels: Voxels of each class, the background first; regions share voxels.
        foreground: Sampled intensities of labelled voxels, (channels, n).
        lowest: Smallest intensity of each channel.
        is_integer: Whether intensities are whole numbers.
        digest: Fingerprint of the image's voxels.
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


def read_labelled(case: LabelledCase, classes: Sequence[ClassValue]) -> LabelledVolume:
    """Read a case.

    Args:
        case: Where it lies.
        classes: Values of the label map and what they mean.

    Raises:
        VolumeError: If a file cannot be read, image and label map are on different grids, or the
            label map holds what no class names. The message begins with the case's name.
    """
    try:
        volume = read_channels(case.images)
        label = Volume.read(case.label)
        if label.array.ndim != 3:
            raise VolumeError(f"the label map has {label.channels} channels, it needs one")
        require_same_grid(volume, label, "the label map")
        labels = class_indices(label.array, classes)
    except (VolumeError, OSError) as error:
        message = " ".join(str(error).split()).removesuffix(".")
        raise VolumeError(f"{case.name}: {message}") from None
    return LabelledVolume(case.name, volume, labels)


def class_indices(values: npt.NDArray[Any], classes: Sequence[ClassValue]) -> npt.NDArray[np.uint8]:
    """Replace the values of a label map by the numbers of their classes, from 1 on.

    Where there are regions, by their numbers among `base_values`.

    Raises:
        VolumeError: If a value is of no class.
    """
    found = np.unique(values)
    known = {0: 0} | {value: i for i, value in enumerate(base_values(classes), start=1)}
    unknown = [v for v in found.tolist() if v not in known]
    if unknown:
        shown = ", ".join(f"{v:g}" for v in unknown[:SHOWN_VALUES])
        more = " and more" if len(unknown) > SHOWN_VALUES else ""
        raise VolumeError(f"no class is named for the label values {shown}{more}")
    indices = np.array([known[v] for v in found.tolist()], dtype=np.uint8)
    return indices[np.searchsorted(found, values)]


def facts_of(
    case: LabelledVolume, *, classes: Sequence[ClassValue], orientation: Orientation
) -> CaseFacts:
    """Measure a case.

    Args:
        case: Scan and labels.
        classes: Values of the label map and what they mean.
        orientation: How the network's axes run.
    """
    axes = NetworkAxes.of(case.volume, orientation)
    d, h, w = (case.volume.spacing_mm[a] for a in axes.order)
    depth, height, width = (case.volume.shape[a] for a in axes.order)
    count = case.volume.channels
    channels = image_channels(case.volume, count)
    places = np.flatnonzero(case.labels)
    step = max(1, len(places) // FOREGROUND_SAMPLES)
    samples = [c.reshape(-1)[places[::step]].astype(np.float32) for c in channels]
    members = region_table(classes)  # (classes, 1 + base values)
    counts = np.bincount(case.labels.ravel(), minlength=members.shape[1])
    voxels = (counts[0], *(members @ counts))
    digest = hashlib.sha256(np.ascontiguousarray(case.volume.array).tobytes())
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
    )


def unnamed_classes(case: LabelledCase) -> list[int]:
    """Values of a label map other than 0, for a recipe that names none."""
    try:
        values = np.unique(Volume.read(case.label).array)
    except VolumeError as error:
        raise VolumeError(f"{bare_name(case.label)}: {error}") from None
    return [int(v) for v in values if v > 0 and v == int(v)]
