"""Overlapping segments in as few label maps as possible."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.errors import VolumeError
from pumit.io.labels.grid_match import Shape
from pumit.system.machine import free_bytes

_FEW_LAYERS = 4  # added without a memory check
Labels = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]


class LabelLayers:
    """Label maps (D, H, W) on one grid, filled segment by segment.

    Args:
        shape: Shape of the grid.
        highest: Largest label value; decides between uint8 and uint16.
    """

    def __init__(self, shape: Shape, highest: int) -> None:
        self.shape = shape
        self._dtype: type[Any] = np.uint8 if highest <= np.iinfo(np.uint8).max else np.uint16
        self._layers: list[Labels] = []

    def add(self, value: int, mask: npt.NDArray[np.bool_], start: int = 0) -> int:
        """Add a segment to the first layer where it overlaps no other; return the layer's index.

        Args:
            mask: (d, H, W), slices from `start` on.

        Raises:
            VolumeError: If the layers of overlapping segments do not fit in memory.
        """
        part = slice(start, start + len(mask))
        free = (i for i, layer in enumerate(self._layers) if not layer[part][mask].any())
        number = next(free, len(self._layers))
        if number == len(self._layers):
            self._check_memory()
            self._layers.append(np.zeros(self.shape, dtype=self._dtype))
        self._layers[number][part][mask] = value
        return number

    def _check_memory(self) -> None:
        """Refuse another layer if stacking all of them would need more memory than is free."""
        count = len(self._layers) + 1
        size = math.prod(self.shape) * np.dtype(self._dtype).itemsize
        if count > _FEW_LAYERS and (count + 1) * size > free_bytes():
            raise VolumeError(
                f"More than {count - 1} segments overlap, and their {count} label maps of "
                f"{size >> 20} MiB do not fit in memory; export the segments in several files."
            )

    def fill(self, labels: npt.NDArray[Any]) -> None:
        """Add a whole label map (D, H, W) as a new layer."""
        self._layers.append(labels.astype(self._dtype))

    def array(self) -> npt.NDArray[Any]:
        """Return (D, H, W), or (L, D, H, W) for several layers."""
        if not self._layers:
            return np.zeros(self.shape, dtype=self._dtype)
        return self._layers[0] if len(self._layers) == 1 else np.stack(self._layers)
