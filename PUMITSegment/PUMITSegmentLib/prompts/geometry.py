"""Geometry of a prompt node, and its conversion to prompts of `pumit`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import product

import numpy as np
import numpy.typing as npt
import slicer
from pumit.gestures.middle_line import LASSO_INNER, inner_path
from pumit.prompts import BoxPrompt, PointPrompt, Prompt, ScribblePrompt

from PUMITSegmentLib.prompts.box_on_slice import acrossAxis
from PUMITSegmentLib.prompts.mask_prior import MaskPrior
from PUMITSegmentLib.prompts.tag import BOXES, CURVES, PromptKind, PromptTag, definedIndices, keysOf

Points = npt.NDArray[np.float64]
# Grid cells along the longer side of the area.
_CELLS = 40
_VERTICES = 96
ToLps = Callable[[npt.ArrayLike], Points]
# Box corners closer than this count as one click.
_SMALLEST_MM = 1e-3


def middle_line(outline: Points, inner: float) -> Points:
    """Return the middle line of an area.

    Args:
        outline: (N, 3), mm, in order; closed implicitly. The points may deviate from a plane;
            the best-fitting plane is used.
        inner: Start of the area's inner part, relative to the largest distance to the outline:
            0 for all of it, 1 for the deepest point.

    Returns:
        (M, 3), from one end of the inner part to the other; one point for a round area, and the
            outline's centre if it encloses nothing.
    """
    center = outline.mean(axis=0)
    if len(outline) < 3:
        return center[None]
    axes = np.linalg.svd(outline - center, full_matrices=False)[2][:2]  # in the plane, (2, 3)
    flat = (outline - center) @ axes.T
    low, extent = flat.min(axis=0), np.ptp(flat, axis=0)
    step = float(extent.max()) / _CELLS
    if step <= 0 or extent.min() < step:
        return center[None]
    counts = np.ceil(extent / step).astype(int)
    cells = np.moveaxis(np.indices(counts), 0, -1)  # (A, B, 2)
    places = low + (cells + 0.5) * step
    depth = _depth(places.reshape(-1, 2), _thinned(flat)).reshape(counts)
    if depth.max() <= 0:
        return center[None]
    path = inner_path(depth, inner)
    return center + places[tuple(np.array(path).T)] @ axes


def _thinned(outline: Points) -> Points:
    """Return at most `_VERTICES` of the vertices, evenly spread."""
    if len(outline) <= _VERTICES:
        return outline
    return outline[np.linspace(0, len(outline), _VERTICES, endpoint=False).astype(int)]


def _depth(places: Points, outline: Points) -> Points:
    """Return the distance of (N, 2) positions to a closed outline (K, 2); 0 outside."""
    start, end = outline[None], np.roll(outline, -1, axis=0)[None]  # (1, K, 2)
    edge, offset = end - start, places[:, None] - start  # (1, K, 2), (N, K, 2)
    length = np.maximum((edge**2).sum(axis=2), np.finfo(float).tiny)
    along = np.clip((offset * edge).sum(axis=2) / length, 0.0, 1.0)
    nearest = np.sqrt((((offset - along[..., None] * edge) ** 2).sum(axis=2)).min(axis=1))
    # A point is inside if a ray along the first axis crosses an odd number of edges.
    y = places[:, None, 1]
    crosses = (start[..., 1] > y) != (end[..., 1] > y)
    rise = np.where(edge[..., 1] == 0, 1.0, edge[..., 1])
    is_ahead = places[:, None, 0] < start[..., 0] + offset[..., 1] * edge[..., 0] / rise
    is_inside = (crosses & is_ahead).sum(axis=1) % 2 == 1
    return np.where(is_inside, nearest, 0.0)


def definedPoints(node) -> Points:
    """Return the placed control points, (N, 3), in the node's coordinates, without the preview."""
    return _places(map(node.GetNthControlPointPosition, definedIndices(node)))


def definedPointsWorld(node) -> Points:
    """Return the placed control points, (N, 3), world RAS mm."""
    return _places(map(node.GetNthControlPointPositionWorld, definedIndices(node)))


def _places(points: Iterable[Sequence[float]]) -> Points:
    return np.array(list(points), dtype=np.float64).reshape(-1, 3)


def isFinished(node, tag: PromptTag) -> bool:
    """Return whether a node holds a prompt: a placed point, a box with a size, a drawn curve."""
    if tag.kind is None:
        return MaskPrior.isIn(node)
    if tag.kind in BOXES:
        if node.GetNumberOfUndefinedControlPoints(True) or not node.GetNumberOfControlPoints():
            return False
        return int((np.array(node.GetSize()) > _SMALLEST_MM).sum()) >= 2
    least = {PromptKind.POINT: 1, PromptKind.SCRIBBLE: 1, PromptKind.LASSO: 3}[tag.kind]
    return int(node.GetNumberOfDefinedControlPoints()) >= least


def signatureOf(node, tag: PromptTag) -> Hashable:
    """Return a key that changes with a node's prompts, except under a moving transform."""
    if not isFinished(node, tag):
        return None
    if tag.kind is None:
        return (tag, MaskPrior.read(node))
    parent = node.GetTransformNodeID()
    if tag.kind in BOXES:
        matrix = slicer.util.arrayFromVTKMatrix(node.GetObjectToNodeMatrix())
        return (tag, parent, tuple(node.GetSize()), tuple(matrix.ravel().tolist()))
    keys = tuple(keysOf(node)) if tag.kind is PromptKind.POINT else ()
    return (tag, parent, keys, definedPoints(node).tobytes())


def boxCornersWorld(node, isFlat: bool) -> Points:
    """Return the corners of an ROI, world RAS mm: (8, 3), or (4, 3) of its middle slice."""
    half = np.array(node.GetSize(), dtype=np.float64) / 2
    sides: list[tuple[float, ...]] = [(-1.0, 1.0)] * 3
    if isFlat:
        sides[acrossAxis(node)] = (0.0,)
    signs = np.array(list(product(*sides)))
    matrix = slicer.util.arrayFromVTKMatrix(node.GetObjectToNodeMatrix())
    corners = (signs * half) @ matrix[:3, :3].T + matrix[:3, 3]
    # One by one, which is also correct under non-linear parent transforms.
    return np.array([toWorld(node, corner) for corner in corners])


def toWorld(node, point: npt.ArrayLike) -> list[float]:
    """Transform a point from a node's coordinates to the world."""
    world = [0.0, 0.0, 0.0]
    node.TransformPointToWorld(np.asarray(point).tolist(), world)
    return world


def curvePointsWorld(node) -> Points:
    """Return points along a curve as it is drawn, (N, 3), world RAS mm, not only control points."""
    if node.GetNumberOfDefinedControlPoints() < 2:
        return definedPointsWorld(node)
    return _places(slicer.util.arrayFromMarkupsCurvePoints(node, world=True))


def promptsOf(node, tag: PromptTag, toLps: ToLps) -> list[tuple[str, Prompt]]:
    """Return the prompts of a markups node, each with its key; none for a negative box.

    Args:
        toLps: Map from world RAS to the volume's LPS, (N, 3) to (N, 3).
    """
    if not isFinished(node, tag) or (tag.kind in BOXES and not tag.isPositive):
        return []
    if tag.kind is PromptKind.POINT:
        points = toLps(definedPointsWorld(node)).tolist()
        placed = zip(keysOf(node), points, strict=True)
        return [(key, PointPrompt(tuple(point), tag.isPositive)) for key, point in placed]
    (key,) = keysOf(node)
    if tag.kind in BOXES:
        corners = toLps(boxCornersWorld(node, tag.kind is PromptKind.BOX_2D))
        return [(key, BoxPrompt(_tuples(corners)))]
    assert tag.kind in CURVES
    points = toLps(curvePointsWorld(node))
    if tag.kind is PromptKind.LASSO:
        points = middle_line(points, LASSO_INNER[tag.isPositive])
    return [(key, ScribblePrompt(_tuples(points), tag.isPositive))]


def _tuples(points: Points) -> tuple[tuple[float, float, float], ...]:
    return tuple((x, y, z) for x, y, z in points.tolist())
