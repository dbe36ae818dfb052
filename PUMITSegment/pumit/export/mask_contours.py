"""Outlines of a mask in one plane, such as an RTSTRUCT holds them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import ndimage
from skimage.measure import find_contours

from pumit.geometry import Floats
from pumit.segmentation import Mask


def keyhole_contours(mask: Mask) -> list[Floats]:
    """Outline each connected piece of a mask by one closed contour.

    A hole is joined to the outline of its piece by a channel without width (a keyhole), so that
    programs that fill every contour and programs that fill by even-odd give the same mask. Corners
    are half-way between the centres of pixels inside and outside, so that no rounding moves a pixel
    across. Pixels that meet in a corner only are separate pieces.

    Args:
        mask: bool, (Rows, Columns).

    Returns:
        Corners of each piece, (N, 2), as (row, column); the last one is not the first again.

    Source:
        Keyholes: DICOM PS3.3 C.8.8.6.3.
    """
    contours = []
    for outer, holes in _pieces(mask):
        # A hole's channel leads to the left, where only the outline and earlier holes are.
        for hole in sorted(holes, key=lambda ring: ring[:, 1].min()):
            outer = _joined(outer, hole)
        contours.append(_without_straight_corners(outer))
    return contours


def outer_contours(mask: Mask) -> list[Floats]:
    """Outline each connected piece of a mask without its holes; otherwise as `keyhole_contours`."""
    return [_without_straight_corners(outer) for outer, _ in _pieces(mask)]


def _pieces(mask: Mask) -> Iterator[tuple[Floats, list[Floats]]]:
    """Outline and holes of each piece; holes run in the other direction."""
    pieces, _ = ndimage.label(mask)
    for number, box in enumerate(ndimage.find_objects(pieces), start=1):
        piece = np.pad(pieces[box] == number, 1).astype(np.float64)
        offset = np.array([side.start - 1 for side in box])
        # Closed, each (N + 1, 2); a piece is 4-connected, its background 8-connected.
        rings = [r[:-1] + offset for r in find_contours(piece, 0.5, fully_connected="low")]
        rings.sort(key=lambda ring: -abs(_signed_area(ring)))
        yield rings[0], rings[1:]


def _signed_area(ring: Floats) -> float:
    """Area of a polygon, (N, 2); its sign tells the direction in which it is drawn."""
    following = np.roll(ring, -1, axis=0)
    return float((ring[:, 0] * following[:, 1] - ring[:, 1] * following[:, 0]).sum() / 2)


def _joined(outline: Floats, hole: Floats) -> Floats:
    """Outline and hole as one contour; the two run in opposite directions.

    Every contour that meets a row of pixels has a corner on it.
    """
    on_row = hole[:, 0] == np.round(hole[:, 0])
    start = int(np.where(on_row, hole[:, 1], np.inf).argmin())
    row, column = hole[start]
    is_left = (outline[:, 0] == row) & (outline[:, 1] < column)
    at = int(np.where(is_left, outline[:, 1], -np.inf).argmax())
    around = np.roll(hole, -start, axis=0)
    return np.concatenate([outline[: at + 1], around, around[:1], outline[at:]])


def _without_straight_corners(ring: Floats) -> Floats:
    before, after = ring - np.roll(ring, 1, axis=0), np.roll(ring, -1, axis=0) - ring
    turns = before[:, 0] * after[:, 1] != before[:, 1] * after[:, 0]
    return ring[turns | ((before * after).sum(axis=1) <= 0)]
