"""Gestures of a simulated user other than clicks: boxes, scribble and lasso."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from pumit.gestures.prompts import lasso_prompts, scribble_prompts
from pumit.preprocessing.fields import depth_first
from pumit.prompts import BoxPrompt, Prompt
from pumit.volume import Volume

Mask = npt.NDArray[np.bool_]
Corner = npt.NDArray[np.intp]
LOOSE = 0.1  # margin of a loose box on each side, relative to its size


def box_prompt(volume: Volume, low: Corner, high: Corner) -> BoxPrompt:
    """Return a box from voxel `low` to `high`, (d, h, w), clipped to the volume."""
    limit = np.array(volume.shape) - 1
    sides = np.clip(np.stack((low, high)), 0, limit)
    # All eight corners: in an oblique volume, two would define another box.
    indices = [[sides[s, axis] for axis, s in enumerate(c)] for c in product((0, 1), repeat=3)]
    corners = volume.index_to_world(np.array(indices))
    return BoxPrompt(tuple((x, y, z) for x, y, z in corners.tolist()))


def tight_box(volume: Volume, target: Mask) -> list[Prompt]:
    """Return the bounding box along the volume's axes, grown by one voxel in-plane."""
    low, high = _bounds(target)
    grow = np.ones(3, dtype=int)
    grow[depth_first(volume.spacing_mm, target.shape)[0]] = 0
    return [box_prompt(volume, low - grow, high + grow)]


def loose_box(volume: Volume, target: Mask) -> list[Prompt]:
    """Return the bounding box grown on each side by a tenth of its size, at least one voxel."""
    low, high = _bounds(target)
    grow = np.maximum(np.round(LOOSE * (high - low + 1)).astype(int), 1)
    return [box_prompt(volume, low - grow, high + grow)]


def flat_box(volume: Volume, target: Mask) -> list[Prompt]:
    """Return a box on the slice with the largest target area, grown by one voxel."""
    axis, index = largest_slice(volume, target)
    low, high = _bounds(np.take(target, [index], axis))
    grow = np.ones(3, dtype=int)
    grow[axis] = 0
    low[axis] = high[axis] = index
    return [box_prompt(volume, low - grow, high + grow)]


def scribble(volume: Volume, target: Mask) -> list[Prompt]:
    """Return a stroke along the skeleton of the target's largest component on that slice."""
    from skimage.morphology import skeletonize

    axis, index = largest_slice(volume, target)
    piece = _largest_piece(np.take(target, index, axis))
    line = skeletonize(piece)
    drawn = np.expand_dims(line if line.any() else piece, axis)
    return scribble_prompts(drawn, _start(axis, index), volume, is_positive=True)


def lasso(volume: Volume, target: Mask) -> list[Prompt]:
    """Return an outline of the target's largest component on that slice."""
    axis, index = largest_slice(volume, target)
    drawn = np.expand_dims(_largest_piece(np.take(target, index, axis)), axis)
    return lasso_prompts(drawn, _start(axis, index), volume, is_positive=True)


GESTURES: Mapping[str, Callable[[Volume, Mask], list[Prompt]]] = {
    "box": tight_box,
    "loose_box": loose_box,
    "flat_box": flat_box,
    "scribble": scribble,
    "lasso": lasso,
}


def largest_slice(volume: Volume, target: Mask) -> tuple[int, int]:
    """Return the slice axis, and the index of the slice with the largest target area."""
    axis = depth_first(volume.spacing_mm, target.shape)[0]
    others = tuple(a for a in range(3) if a != axis)
    return axis, int(target.sum(axis=others).argmax())


def _largest_piece(mask: Mask) -> Mask:
    labels, _ = ndimage.label(mask)
    return np.asarray(labels == 1 + int(np.argmax(np.bincount(labels.ravel())[1:])))


def _start(axis: int, index: int) -> tuple[int, int, int]:
    """Return the volume index of a slice's first voxel."""
    d, h, w = (index if a == axis else 0 for a in range(3))
    return d, h, w


def _bounds(mask: Mask) -> tuple[Corner, Corner]:
    window = ndimage.find_objects(mask.astype(np.uint8))[0]
    return np.array([s.start for s in window]), np.array([s.stop - 1 for s in window])
