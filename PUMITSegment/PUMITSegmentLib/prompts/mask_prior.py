"""Manually edited mask, stored in the scene as a prompt from which predictions start."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from pumit.prompts import MaskPrompt, Prompt
from PUMITSlicerLib.labelmap_grid import Box, GridMap, sampled
from PUMITSlicerLib.mrml import ijkToRas, orientedImage

from PUMITSegmentLib.segments.packed_mask import PackedMask

Mask = npt.NDArray[np.bool_]
Matrix = npt.NDArray[Any]
_GRID = "grid"
_BITS = "bits"


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

    @staticmethod
    def move(node, matrix: Matrix) -> None:
        """Move the mask prior in a node by a 4 x 4 matrix in RAS, with its scan."""
        prior = MaskPrior.read(node)
        if prior is not None:
            grid = matrix @ np.reshape(prior.ijkToRas, (4, 4))
            replace(prior, ijkToRas=tuple(grid.ravel().tolist())).write(node)

    def on(self, shape: tuple[int, ...], ijkToRas: Matrix) -> Mask:
        """Return the mask on a grid, bool (D, H, W), by nearest neighbour if the grid differs.

        Args:
            ijkToRas: 4 x 4 matrix of that grid, in the same frame.
        """
        depth, height, width = shape
        target, whole = np.zeros(shape, dtype=bool), Box((0, 0, 0), (depth, height, width))
        if self.packed.box is None:
            return target
        own = np.array(self.ijkToRas).reshape(4, 4)
        d, h, w = (start for start, _stop in self.packed.box)
        inside = self.packed.inside()  # the image uses its memory
        image = orientedImage(inside, own, (d, h, w))
        box = GridMap(own, ijkToRas, None, None).covering(Box.ofImage(image)).cut(whole)
        found = sampled(image, box, GridMap(ijkToRas, own, None, None))
        target[box.within(whole)] = found.view(bool)
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
