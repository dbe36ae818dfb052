"""Arrangement of overlapping segments in few label maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.errors import ExportError
from pumit.segmentation import Segment

Labels = npt.NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True, eq=False)
class Layers:
    """Label maps that together hold every voxel of every segment.

    Attributes:
        maps: Label maps, each (D, H, W); a segment's value is its number, from 1.
    """

    maps: tuple[Labels, ...]
    layer_of: tuple[int, ...]


def label_type(count: int) -> type[np.uint8] | type[np.uint16]:
    """Return the smallest unsigned type for `count` labels.

    Raises:
        ExportError: If there are more than 65535.
    """
    if count > np.iinfo(np.uint16).max:
        raise ExportError(
            f"A label map holds at most 65535 segments, got {count}; write several files."
        )
    return np.uint8 if count <= np.iinfo(np.uint8).max else np.uint16


def arrange_in_layers(segments: tuple[Segment, ...]) -> Layers:
    """Put each segment, in order, into the first label map where it overlaps no other."""
    dtype = label_type(len(segments))
    maps: list[Labels] = []
    layer_of = []
    for number, segment in enumerate(segments, start=1):
        layer = next((i for i, m in enumerate(maps) if not m[segment.mask].any()), len(maps))
        if layer == len(maps):
            maps.append(np.zeros(segment.mask.shape, dtype=dtype))
        maps[layer][segment.mask] = number
        layer_of.append(layer)
    return Layers(tuple(maps), tuple(layer_of))
