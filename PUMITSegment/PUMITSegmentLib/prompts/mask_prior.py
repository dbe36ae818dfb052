"""Manually edited mask, stored in the scene as a prompt from which predictions start."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pumit.prompts import MaskPrompt, Prompt
from PUMITSlicerLib.mrml import ijkToRas

from PUMITSegmentLib.segments.packed_mask import PackedMask

Mask = npt.NDArray[np.bool_]
Matrix = npt.NDArray[Any]
_GRID = "grid"
_BITS = "bits"
# Voxel centres closer than this, in voxels, count as equal.
_SAME_VOXEL = 0.01


@dataclass(frozen=True)
class MaskPrior:
    """Mask with the grid on which it was made.

    It is stored in parameters of a hidden node and not in a label map, because these are part of
    the scene file itself: Slicer's save dialog omits the files of hidden nodes.

    Attributes:
        ijkToRas: The grid's 4 x 4 matrix, row by row.
        isContinued: Whether it comes from another frame of a sequence and not from manual
            edits.
        isClicked: Whether a single click made it in its frame.
    """

    packed: PackedMask
    ijkToRas: tuple[float, ...]
    isContinued: bool = False
    isClicked: bool = False

    @property
    def byteCount(self) -> int:
        """Memory use."""
        return self.packed.byteCount

    @staticmethod
    def isIn(node) -> bool:
        """Return whether a node contains a mask prior."""
        return bool(node.GetParameter(_GRID))

    def write(self, node) -> None:
        """Store it in a vtkMRMLScriptedModuleNode."""
        grid = {
            "shape": self.packed.shape,
            "box": self.packed.box,
            "ijkToRas": self.ijkToRas,
            "continued": self.isContinued,
            "clicked": self.isClicked,
        }
        modified = node.StartModify()
        node.SetParameter(_GRID, json.dumps(grid, separators=(",", ":")))
        node.SetParameter(_BITS, base64.b64encode(self.packed.bits).decode("ascii"))
        node.EndModify(modified)

    @staticmethod
    def read(node) -> MaskPrior | None:
        """Return the mask prior in a node, or None if it is absent or cannot be read."""
        try:
            grid = json.loads(node.GetParameter(_GRID) or "null")
            if grid is None:
                return None
            box = tuple((int(start), int(stop)) for start, stop in grid["box"])
            bits = base64.b64decode(node.GetParameter(_BITS), validate=True)
            shape = tuple(int(size) for size in grid["shape"])
            packed, matrix = PackedMask(shape, box, bits), tuple(map(float, grid["ijkToRas"]))
            isContinued, isClicked = bool(grid.get("continued")), bool(grid.get("clicked"))
            return MaskPrior(packed, matrix, isContinued, isClicked)
        except (ValueError, TypeError, KeyError):
            return None  # edited by hand

    def on(self, shape: tuple[int, ...], ijkToRas: Matrix) -> Mask:
        """Return the mask on a grid, bool (D, H, W), resampled if the grid differs.

        Args:
            shape: (D, H, W).
            ijkToRas: 4 x 4 matrix of that grid, in the same frame.
        """
        own = np.array(self.ijkToRas).reshape(4, 4)
        fromTarget = np.linalg.inv(own) @ ijkToRas
        corners = _corners([(0, size - 1) for size in shape])
        drift = np.abs(_moved(corners, fromTarget) - corners).max()
        if tuple(shape) == self.packed.shape and drift < _SAME_VOXEL:
            return self.packed.mask()
        return self._sampled(shape, fromTarget)

    def _sampled(self, shape: tuple[int, ...], fromTarget: Matrix) -> Mask:
        """Resample by nearest neighbour, within the mask's box on the other grid."""
        target = np.zeros(shape, dtype=bool)
        if self.packed.box is None:
            return target
        edges = [(start - 0.5, stop - 0.5) for start, stop in self.packed.box]
        reached = _moved(_corners(edges), np.linalg.inv(fromTarget))
        low = np.clip(np.floor(reached.min(axis=0)), 0, shape).astype(int)
        high = np.clip(np.ceil(reached.max(axis=0)) + 1, 0, shape).astype(int)
        if (high <= low).any():
            return target
        inside = self.packed.inside()
        start = np.array([first for first, _ in self.packed.box])
        for d in range(low[0], high[0]):  # slice by slice to save memory
            plane = np.moveaxis(np.mgrid[d : d + 1, low[1] : high[1], low[2] : high[2]], 0, -1)
            index = np.rint(_moved(plane.reshape(-1, 3), fromTarget)).astype(int) - start
            isIn = ((index >= 0) & (index < inside.shape)).all(axis=1)
            values = np.zeros(len(index), dtype=bool)
            values[isIn] = inside[tuple(index[isIn].T)]
            target[d, low[1] : high[1], low[2] : high[2]] = values.reshape(plane.shape[1:3])
        return target


class MaskPrompts:
    """Latest mask prior as a prompt; the same object while prior and grid are unchanged."""

    def __init__(self) -> None:
        self._cache: dict[object, tuple[object, list[tuple[str, Prompt]]]] = {}

    def of(self, node, volumeNode) -> list[tuple[str, Prompt]]:
        """Return the prompt in a node with its key; none if it is outside the scan.

        Args:
            volumeNode: Scan on whose grid it is computed; None for its own grid.
        """
        prior = MaskPrior.read(node)
        if prior is None:
            return []
        shape, matrix = prior.packed.shape, np.array(prior.ijkToRas).reshape(4, 4)
        if volumeNode is not None and volumeNode.GetImageData() is not None:
            shape = tuple(reversed(volumeNode.GetImageData().GetDimensions()))
            matrix = ijkToRas(volumeNode)
        cacheKey = (prior, shape, matrix.tobytes())
        if node not in self._cache or self._cache[node][0] != cacheKey:
            mask = prior.on(shape, matrix)
            # Only the latest, since whole masks are large.
            self._cache = {node: (cacheKey, [("", MaskPrompt(mask))] if mask.any() else [])}
        return self._cache[node][1]


def _corners(edges: list[tuple[float, float]]) -> Matrix:
    """Return the eight corners of a box, (8, 3), from its (low, high) along each axis."""
    return np.stack(np.meshgrid(*edges, indexing="ij"), axis=-1).reshape(-1, 3).astype(float)


def _moved(index_dhw: Matrix, matrix: Matrix) -> Matrix:
    """Transform indices (N, 3) in (d, h, w) order by a 4 x 4 matrix for (i, j, k)."""
    return (index_dhw[:, ::-1] @ matrix[:3, :3].T + matrix[:3, 3])[:, ::-1]
