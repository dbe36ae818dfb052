"""Read a label map with the names of its segments, where the file holds them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.errors import VolumeError
from pumit.io.parser_errors import muted_stderr, parsing
from pumit.io.read import read_volume
from pumit.volume import Volume


@dataclass(frozen=True)
class LabelledSegment:
    """One segment of a label file.

    Attributes:
        value: Its voxels' value.
        layer: The layer, of possibly several, that holds them.
        name: Its name; empty where the file names none.
    """

    value: int
    layer: int = 0
    name: str = ""


@dataclass(frozen=True, eq=False)
class LabelFile:
    """Segments on a grid; they may overlap.

    Attributes:
        volume: The grid; its voxels are the segments' values, one channel for each layer.
        segments: All that the file names, those without a voxel too; where it names none, one
            for each value above 0.
    """

    volume: Volume
    segments: tuple[LabelledSegment, ...]

    @property
    def is_named(self) -> bool:
        """Whether every segment has a name."""
        return all(segment.name for segment in self.segments)

    def mask(self, segment: LabelledSegment) -> npt.NDArray[np.bool_]:
        """Where a segment is, (D, H, W)."""
        layers = self.volume.array.reshape(-1, *self.volume.shape)
        return np.asarray(layers[segment.layer] == segment.value)


def read_label_file(path: Path) -> LabelFile:
    """Read NIfTI, NRRD or MetaImage label maps, `.seg.nrrd` with its names and layers.

    Raises:
        VolumeError: If the file cannot be read, or holds something else than labels.
    """
    volume = read_volume(path)
    array = volume.array
    if array.dtype.kind == "f":
        if not np.array_equal(array, np.rint(array)):
            raise VolumeError(
                "The label map holds fractions; a label map holds one whole number per voxel."
            )
    elif array.dtype.kind == "b":
        volume = Volume(
            array.astype(np.uint8), volume.spacing_mm, volume.origin_lps, volume.direction
        )
    segments = _named_segments(path) if path.name.lower().endswith(".nrrd") else ()
    if not segments:
        if volume.channels > 1:
            raise VolumeError(
                f"The label map has {volume.channels} channels and no names; a label map has one."
            )
        values = np.unique(volume.array)
        segments = tuple(LabelledSegment(int(v)) for v in values if v > 0)
    if any(segment.layer >= volume.channels for segment in segments):
        raise VolumeError("The file names a segment on a layer that it lacks; export it again.")
    return LabelFile(volume, segments)


def is_same_grid(one: Volume, other: Volume) -> bool:
    """Whether two volumes have voxels at the same places, up to a tenth of the smallest side."""
    if one.shape != other.shape:
        return False
    far = np.asarray(one.shape) - 1
    corners = np.vstack((np.zeros(3), np.diag(far)))
    # A planar image has no side along its normal, and its far corner there is the first one.
    tolerance = 0.1 * min(one.spacing_mm)
    return np.allclose(
        one.index_to_world(corners), other.index_to_world(corners), rtol=0, atol=tolerance
    )


def _named_segments(path: Path) -> tuple[LabelledSegment, ...]:
    """Segments that the header of an NRRD file names, in order; none where it is no `.seg.nrrd`."""
    import SimpleITK

    with parsing("NRRD file"), muted_stderr():
        reader = SimpleITK.ImageFileReader()
        reader.SetImageIO("NrrdImageIO")
        reader.SetFileName(os.fspath(path))
        reader.ReadImageInformation()
        header: dict[str, Any] = {k: reader.GetMetaData(k) for k in reader.GetMetaDataKeys()}
    found = []
    numbers = sorted(int(m[1]) for k in header if (m := re.fullmatch(r"Segment(\d+)_ID", k)))
    for i in numbers:
        value, layer = (
            header.get(f"Segment{i}_LabelValue", "1"),
            header.get(f"Segment{i}_Layer", "0"),
        )
        if not value.isdecimal() or not layer.isdecimal():
            raise VolumeError(f"Segment {i} has no usable label value or layer; export it again.")
        name = header.get(f"Segment{i}_Name") or f"Segment {i + 1}"
        found.append(LabelledSegment(int(value), int(layer), name))
    return tuple(found)
