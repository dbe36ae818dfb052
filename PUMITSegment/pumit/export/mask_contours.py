"""Contours of a 2D mask, as an RTSTRUCT needs them."""

from collections.abc import Iterator

import numpy as np
from scipy import ndimage
from skimage.measure import find_contours

from pumit.geometry import Floats
from pumit.segmentation import Mask


def keyhole_contours(mask: Mask) -> list[Floats]:
    """Trace each connected component of a mask as one closed contour.

    Holes are joined to the outer contour by a channel of zero width (keyhole technique). Programs
    that fill every contour and those that use the even-odd rule then give the same mask. Vertices
    are half-way between pixel centres inside and outside, so that rounding does not change a pixel.
    Components are 4-connected.

    Returns:
        Vertices of each component, (N, 2), as (row, column); the first is not repeated at the end.

    Source:
        Keyhole technique: DICOM PS3.3 C.8.8.6.3.
    """
    contours = []
    for outer, holes in _pieces(mask):
        # The channel goes to the left, where only the outer contour and earlier holes are.
        for hole in sorted(holes, key=lambda ring: ring[:, 1].min()):
            outer = _joined(outer, hole)
        contours.append(_without_straight_corners(outer))
    return contours


def outer_contours(mask: Mask) -> list[Floats]:
    """Trace each component without its holes; otherwise like `keyhole_contours`."""
    return [_without_straight_corners(outer) for outer, _ in _pieces(mask)]


def _pieces(mask: Mask) -> Iterator[tuple[Floats, list[Floats]]]:
    """Yield the outer contour and holes of each component; holes run in the opposite direction."""
    pieces, _ = ndimage.label(mask)
    for number, box in enumerate(ndimage.find_objects(pieces), start=1):
        piece = np.pad(pieces[box] == number, 1).astype(np.float64)
        offset = np.array([side.start - 1 for side in box])
        # Closed, each (N + 1, 2); a piece is 4-connected, its background 8-connected.
        rings = [r[:-1] + offset for r in find_contours(piece, 0.5, fully_connected="low")]
        rings.sort(key=lambda ring: -abs(_signed_area(ring)))
        yield rings[0], rings[1:]


def _signed_area(ring: Floats) -> float:
    following = np.roll(ring, -1, axis=0)
    return float((ring[:, 0] * following[:, 1] - ring[:, 1] * following[:, 0]).sum() / 2)


def _joined(outline: Floats, hole: Floats) -> Floats:
    """Join a hole to an outer contour of opposite direction.

    Every contour that crosses a row of pixels has a vertex on it.
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
