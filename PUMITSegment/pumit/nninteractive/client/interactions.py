"""Conversion of world prompts to interactions of the nnInteractive protocol, in voxel indices.

Axes are (D, H, W), as in the uploaded array; bounds are half-open, as in the protocol.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
import numpy.typing as npt

from pumit.errors import PromptError
from pumit.inference.interactive.index_prompts import check_prompt
from pumit.nninteractive.remote_capabilities import RemoteCapabilities
from pumit.prompts import BoxPrompt, MaskPrompt, PointPrompt, Prompt, ScribblePrompt
from pumit.volume import Volume
from pumit.wire import protocol

Bounds = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
Drawn = npt.NDArray[np.uint8]
# Tolerance for a corner on a voxel's border, voxels.
_ON_BORDER = 1e-6
# Largest sampling distance along a scribble, voxels, so that no voxel on its path is missed.
_STEP = 0.25


@dataclass(frozen=True, eq=False)
class Interaction:
    """One request that adds an interaction to the server's object.

    Attributes:
        meta: The JSON body, or the `X-Meta` header of an array.
        drawn: Drawn voxels, 0 or 1, (d, h, w); None for points and boxes.
    """

    path: str
    meta: dict[str, object]
    drawn: Drawn | None = None


def interactions_of(
    prompt: Prompt, volume: Volume, remote: RemoteCapabilities
) -> list[Interaction]:
    """Convert a prompt to interactions of the protocol.

    Returns:
        One interaction; several, in order, for a 3D box on a server that takes only 2D boxes.

    Raises:
        PromptError: If the prompt does not fit the volume, or the server does not support it.
    """
    check_prompt(prompt, volume)
    takes = remote.interactions
    if isinstance(prompt, BoxPrompt):
        bounds = bounds_of(prompt, volume)
        _expect("bbox2d" in takes or "bbox3d" in takes, "boxes", "points or a scribble")
        # A flat box is also sent to a server that takes only 3D boxes.
        is_flat = any(stop - start == 1 for start, stop in bounds)
        whole = is_flat or "bbox3d" in takes
        boxes = [bounds] if whole else list(dict.fromkeys(_middles(bounds)))
        return [
            Interaction(
                protocol.PATH_ADD_BBOX,
                {"bbox_coords": [list(pair) for pair in box], **_predicting(True)},
            )
            for box in boxes
        ]
    if isinstance(prompt, PointPrompt):
        _expect("points" in takes, "points", "a box or a scribble")
        index = np.rint(_index(prompt.point_lps, volume)).astype(int)
        place = index.clip(0, np.asarray(volume.shape) - 1).tolist()
        meta = {"coordinates": place, **_predicting(prompt.is_positive)}
        return [Interaction(protocol.PATH_ADD_POINT, meta)]
    if isinstance(prompt, ScribblePrompt):
        _expect("scribble" in takes, "scribbles", "points or a box")
        drawn, bounds = scribble_voxels(prompt, volume, remote.scribble_thickness)
        meta = {"interaction_bbox": [list(pair) for pair in bounds]}
        meta |= _predicting(prompt.is_positive)
        return [Interaction(protocol.PATH_ADD_SCRIBBLE, meta, drawn)]
    if isinstance(prompt, MaskPrompt):
        _expect(remote.takes_mask, "initial mask", "points, a box or a scribble")
        # No prediction: the next prompts correct the user's drawing as it is.
        meta = {"run_prediction": False}
        return [Interaction(protocol.PATH_ADD_INITIAL_SEG, meta, prompt.mask.astype(np.uint8))]
    raise PromptError(
        "An nnInteractive server gives one answer; undo the choice of another answer."
    )


def bounds_of(box: BoxPrompt, volume: Volume) -> Bounds:
    """Return the voxels that a box intersects: the smallest index box around all its corners.

    A corner at the centre of the last voxel or on its far border includes that voxel.

    Raises:
        PromptError: If the box lies outside the volume.
    """
    corners = _index(box.corners_lps, volume)
    low, high = corners.min(axis=0), corners.max(axis=0)
    limit = np.asarray(volume.shape)
    if (high < -0.5).any() or (low > limit - 0.5).any():
        raise PromptError(
            "The box is outside of the volume; remove it and draw it around a structure."
        )
    first = np.floor(low + 0.5 + _ON_BORDER).astype(int).clip(0, limit - 1)
    last = np.ceil(high - 0.5 - _ON_BORDER).astype(int).clip(first, limit - 1)
    (a, b), (c, d), (e, f) = zip(first.tolist(), (last + 1).tolist(), strict=True)
    return (a, b), (c, d), (e, f)


def scribble_voxels(
    scribble: ScribblePrompt, volume: Volume, thickness: tuple[int, int, int]
) -> tuple[Drawn, Bounds]:
    """Draw a scribble into its bounding box.

    A scribble within one slice, as viewers draw them, stays in that slice: it is thick only in
    the other two directions.

    Args:
        thickness: Voxels along (D, H, W).

    Returns:
        The drawn voxels as 1, and the bounds of their box in the volume.
    """
    limit = np.asarray(volume.shape)
    places = np.concatenate(list(_along(_index(scribble.points_lps, volume))))
    places = places.clip(0, limit - 1)
    brush = np.array(thickness)
    flat = np.flatnonzero(np.ptp(np.rint(places), axis=0) == 0)
    if len(flat):  # a straight line is flat along several axes: take the largest spacing
        brush[max(flat, key=lambda axis: volume.spacing_mm[axis])] = 1
    first = np.ceil(places - brush / 2 - _ON_BORDER).astype(int)
    steps = np.array(list(product(*(range(size) for size in brush))))
    voxels = (first[:, None] + steps).reshape(-1, 3)
    voxels = voxels[((voxels >= 0) & (voxels < limit)).all(axis=1)]
    low, high = voxels.min(axis=0), voxels.max(axis=0) + 1
    drawn = np.zeros(high - low, dtype=np.uint8)
    drawn[tuple((voxels - low).T)] = 1
    (a, b), (c, d), (e, f) = zip(low.tolist(), high.tolist(), strict=True)
    return drawn, ((a, b), (c, d), (e, f))


def _middles(bounds: Bounds) -> Iterator[Bounds]:
    """Return the middle slices of a 3D box in three directions, which define its extent."""
    for axis, (start, stop) in enumerate(bounds):
        middle = (start + stop - 1) // 2
        sides = list(bounds)
        sides[axis] = (middle, middle + 1)
        yield sides[0], sides[1], sides[2]


def _predicting(is_positive: bool) -> dict[str, object]:
    return {"include_interaction": is_positive, "run_prediction": True}


def _expect(is_taken: bool, what: str, instead: str) -> None:
    if not is_taken:
        raise PromptError(f"The model of this nnInteractive server takes no {what}; use {instead}.")


def _index(points_lps: npt.ArrayLike, volume: Volume) -> npt.NDArray[np.float64]:
    index = volume.world_to_index(points_lps)
    if volume.is_planar:
        index[..., 0] = 0.0  # a 2D image has one slice
    return index


def _along(points: npt.NDArray[np.float64]) -> Iterator[npt.NDArray[np.float64]]:
    """Sample a polyline, in pieces of shape (n, 3)."""
    yield points[:1]
    for start, end in pairwise(points):
        count = int(np.ceil(np.abs(end - start).max() / _STEP)) + 1
        yield start + (end - start) * np.linspace(0, 1, count)[:, None]
