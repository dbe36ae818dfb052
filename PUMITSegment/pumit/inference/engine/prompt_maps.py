"""Prompt maps and prompt tokens in NumPy, equal to `PromptEncoder.dense` and `.sparse`.

The prompt-independent part of the maps is computed once per field with its features: the image at
1/2 resolution and its path costs. The rest costs a fraction of a decoding. Padding tokens are left
out: nothing attends to them.

Arrays (d, h, w) are on the maps' grid; points (P, 3) and boxes (2, 3) are those of `FieldPrompts`,
as is `ratio`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from pumit.inference.engine.engine import FieldPrompts, Floats, Shape
from pumit.networks.promptable.constants import (
    BOX_LOWER,
    BOX_SHARPNESS,
    BOX_UPPER,
    FAR_SHARE,
    LIKENESS_BINS,
    LIKENESS_WIDTH,
    NEAR_VOXELS,
    NEGATIVE,
    POSITIVE,
    RANGES,
)
from pumit.networks.promptable.geodesic import distance_to, nearness, path_costs

Mask = npt.NDArray[np.bool_]


def geodesic_maps(
    positive: npt.NDArray[np.bool_], negative: npt.NDArray[np.bool_], along: list[Floats]
) -> list[Floats]:
    """Return nearness to either kind of seed, and which is nearer, each (d, h, w) in [-1, 1]."""
    blank = np.zeros(positive.shape, dtype=np.float32)
    maps, distances = [], []
    for seeds in (positive, negative):
        if not seeds.any():
            maps += [blank] * (len(RANGES) + 1)
            continue
        distances.append(distance_to(seeds, along, np.minimum.accumulate, np))
        maps += nearness(distances[-1], np)
    if len(distances) == 2:
        near, far = distances
        maps.append((far - near) / np.maximum(far + near, np.float32(1e-3)))
    else:
        maps.append(blank)
    return maps


@dataclass(frozen=True)
class MapGrid:
    """Grid of the prompt maps of a field, with their prompt-independent part.

    Attributes:
        image: Channels at the grid's resolution, (C, d, h, w).
        along: Output of `path_costs`; empty for a network without geodesic maps.
    """

    full: Shape
    shape: Shape
    image: Floats
    along: list[Floats]

    @classmethod
    def of(cls, image: Floats, shape: Shape, slice_ratio: float, *, geodesic: bool) -> MapGrid:
        """Return the grid of `shape` over a field's channels (C, D, H, W)."""
        d, h, w = image.shape[1:]
        small = block_means(image, shape)
        depth_step = slice_ratio * (d / shape[0]) / (h / shape[1])
        return cls((d, h, w), shape, small, path_costs(small, depth_step, np) if geodesic else [])

    @property
    def nbytes(self) -> int:
        """Memory used, bytes."""
        return self.image.nbytes + sum(cost.nbytes for cost in self.along)

    @property
    def cell(self) -> npt.NDArray[np.float64]:
        """Field voxels per grid voxel, (3,)."""
        return np.array(self.full) / np.array(self.shape)

    def centres(self, slice_ratio: float) -> list[Floats]:
        """Return the voxel centres along each axis, in prompt coordinates."""
        scales = (slice_ratio, 1.0, 1.0)
        return [
            (((np.arange(n) + 0.5) * c - 0.5) * s).astype(np.float32)
            for n, c, s in zip(self.shape, self.cell, scales, strict=True)
        ]


def block_means(array: Floats, shape: Sequence[int]) -> Floats:
    """Average (..., D, H, W) over equal blocks to (..., *shape)."""
    out, count = array, 1
    for axis, n in zip((-3, -2, -1), shape, strict=True):
        size = out.shape[axis] // n
        if size > 1:
            parts = np.moveaxis(out, axis, 0)
            total = reduce(np.add, (parts[i::size] for i in range(size)))
            out = np.moveaxis(total, 0, axis)
            count *= size
    return np.ascontiguousarray(out) * np.float32(1 / count)


def voxel_index(places: Floats, slice_ratio: float) -> npt.NDArray[np.float64]:
    """Convert prompt coordinates (..., 3) to field indices; depth is 0 in planar images."""
    index = np.array(places, dtype=np.float64)
    index[..., 0] = index[..., 0] / slice_ratio if slice_ratio > 0 else 0.0
    return index


def prompt_maps(
    prompts: FieldPrompts, grid: MapGrid, field_size: int, classes: Floats | None = None
) -> Floats:
    """Return all prompt maps, (channels, d, h, w), in the network's channel order.

    Args:
        field_size: In-plane voxels of a training field.
        classes: Class vectors (E, d, h, w), or None for a network without them.
    """
    ratio = prompts.slice_ratio
    centres = grid.centres(ratio)
    points, is_positive = prompts.points, prompts.is_positive
    # 1. Maps of positive and of negative points.
    each = [
        _of_points(points[is_positive == kind], grid, centres, ratio, field_size)
        for kind in (True, False)
    ]
    # 2. Box: saturating signed distance to its faces, and intensity likeness.
    blank = np.zeros(grid.shape, dtype=np.float32)
    box = [blank, blank]
    outside = np.zeros(grid.shape, dtype=bool)
    margin = None
    if prompts.box is not None:
        margin = _margin(prompts.box, centres, ratio)
        box = [np.tanh(margin * np.float32(BOX_SHARPNESS / field_size)), blank + 1]
        if not is_positive.any():
            each[0][2:] = box_likeness(grid.image, margin, prompts.box)
        outside = _outside(prompts.box, grid, ratio)
    # 3. Prior, -1 to 1, and geodesic maps of the seeds.
    prior = blank if prompts.prior is None else 2 * block_means(prompts.prior, grid.shape) - 1
    maps = [*each[0], *each[1], *box, prior]
    if grid.along:
        seeds = [_seeds(points[is_positive == kind], grid, ratio) for kind in (True, False)]
        maps += geodesic_maps(seeds[0], seeds[1] | outside, grid.along)
    # 4. Class vector maps, if the network has them.
    if classes is not None:
        maps += _class_maps(prompts, grid, classes, margin)
    return np.stack(maps)


def vectors_at(points: Floats, vectors: Floats, full: Shape, ratio: float) -> Floats:
    """Return vectors (P, E) at points of a field of shape `full`, from a coarser (E, d, h, w)."""
    out = np.zeros((len(points), len(vectors)), dtype=np.float32)
    for i, index in enumerate(voxel_index(points, ratio)):
        for (d, h, w), weight in trilinear(index, full, vectors.shape[1:]):
            out[i] += np.float32(weight) * vectors[:, d, h, w]
    return out


def _class_maps(
    prompts: FieldPrompts, grid: MapGrid, classes: Floats, margin: Floats | None
) -> list[Floats]:
    """Return class maps: cosines with positive and negative points, and the box's contrast."""
    flat = classes.reshape(len(classes), -1)
    blank = np.zeros(grid.shape, dtype=np.float32)
    maps = [blank, blank, blank]
    vectors = vectors_at(prompts.points, classes, grid.full, prompts.slice_ratio)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    for i, kind in enumerate((True, False)):
        own = vectors[prompts.is_positive == kind]
        if len(own):
            maps[i] = (own @ flat).max(0).reshape(grid.shape)
    if margin is not None and prompts.box is not None:
        extent = (prompts.box[1] - prompts.box[0])[1:].max()
        inside = (margin > -0.5).ravel()
        around = (margin > -0.5 - 0.5 * extent).ravel() & ~inside
        means = [flat @ where / np.float32(max(int(where.sum()), 1)) for where in (inside, around)]
        unlike = (means[0] - means[1]).astype(np.float32)
        maps[2] = (unlike @ flat).reshape(grid.shape)
    return maps


def _of_points(
    points: Floats, grid: MapGrid, centres: list[Floats], ratio: float, field_size: int
) -> list[Floats]:
    """Return nearness at two ranges and likeness per channel, for points of one sign."""
    if len(points) == 0:
        return [np.zeros(grid.shape, dtype=np.float32)] * (2 + len(grid.image))
    d, h, w = centres
    squared = np.full(grid.shape, np.inf, dtype=np.float32)
    for z, y, x in points:
        apart = ((d - z) ** 2)[:, None, None] + ((h - y) ** 2)[:, None]
        np.minimum(squared, apart + (w - x) ** 2, out=squared)
    near = np.exp(squared * np.float32(-0.5 / NEAR_VOXELS**2))
    far = np.exp(np.sqrt(squared) * np.float32(-1 / (FAR_SHARE * field_size)))
    maps = [near, far]
    at_points = np.stack([_smooth_at(grid, p) for p in voxel_index(points, ratio)])  # (P, C)
    for channel, values in zip(grid.image, at_points.T, strict=True):
        unlike = np.abs(channel - values[0])
        for value in values[1:]:
            np.minimum(unlike, np.abs(channel - value), out=unlike)
        unlike *= np.float32(1 / LIKENESS_WIDTH)
        maps.append(np.exp(-(unlike * unlike)))
    return maps


def trilinear(
    index: npt.NDArray[np.float64], full: Sequence[int], shape: Sequence[int]
) -> list[tuple[Shape, float]]:
    """Return the trilinear neighbours of a field index on a coarser grid, with their weights."""
    at = (index + 0.5) / full * shape - 0.5
    at = at.clip(0, np.array(shape) - 1)
    low = np.floor(at).astype(int)
    part = at - low
    corners = []
    for corner in np.ndindex(2, 2, 2):
        weight = float(np.where(corner, part, 1 - part).prod())
        if weight > 0:
            d, h, w = (int(i) for i in low + corner)
            corners.append(((d, h, w), weight))
    return corners


def _smooth_at(grid: MapGrid, index: npt.NDArray[np.float64]) -> Floats:
    """Return the smoothed intensities at a field index, (C,)."""
    reach = (1 if grid.shape[0] > 2 else 0, 1, 1)
    total = np.zeros(len(grid.image))
    for corner, weight in trilinear(index, grid.full, grid.shape):
        around = tuple(slice(max(i - r, 0), i + r + 1) for i, r in zip(corner, reach, strict=True))
        total += weight * grid.image[(slice(None), *around)].mean((1, 2, 3))
    return total.astype(np.float32)


def _margin(box: Floats, centres: list[Floats], ratio: float) -> Floats:
    """Return the distance to the faces of a box, positive inside, in-plane voxels, (d, h, w)."""
    d, h, w = (np.minimum(at - low, high - at) for at, low, high in zip(centres, *box, strict=True))
    if ratio == 0:
        d = np.full_like(d, 1e3)  # a planar image has no depth
    return np.minimum(d[:, None, None], np.minimum(h[:, None], w))


def box_likeness(image: Floats, margin: Floats, box: Floats) -> list[Floats]:
    """Return how much more often an intensity occurs inside a box than around it, per channel.

    Replaces the likeness to clicked intensities if there is a box but no positive click.

    Args:
        image: Shape (C, d, h, w), values in [0, 1].
        margin: Distance to the faces of the box, positive inside, in-plane voxels, (d, h, w).
        box: Lower and upper corner, (2, 3).
    """
    extent = (box[1] - box[0])[1:].max()
    inside = margin > -0.5
    around = (margin > -0.5 - 0.5 * extent) & ~inside
    # A box that fills the field has nothing around it to compare with.
    if int(around.sum()) <= 8 or not inside.any():
        return [np.zeros(margin.shape, dtype=np.float32)] * len(image)
    maps = []
    for channel in image:
        index = np.rint(channel * np.float32(LIKENESS_BINS - 1)).astype(np.intp)
        shares = [_shares(index[where]) for where in (inside, around)]
        ratio = 2 * shares[0] / np.maximum(shares[0] + shares[1], 1e-6) - 1
        maps.append(ratio.clip(0).astype(np.float32)[index])
    return maps


def _shares(index: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
    """Return the share of each histogram bin, smoothed over its neighbours."""
    counts = np.bincount(index, minlength=LIKENESS_BINS).astype(np.float64)
    ones = np.ones(3)
    counts = np.convolve(counts, ones, "same") / np.convolve(np.ones_like(counts), ones, "same")
    return counts / max(float(counts.sum()), 1e-6)


def _cells(places: Floats, grid: MapGrid, ratio: float) -> npt.NDArray[np.float64]:
    """Convert prompt coordinates to grid cells, the first cell's centre at 0."""
    return (voxel_index(places, ratio) + 0.5) / grid.cell - 0.5


def _seeds(points: Floats, grid: MapGrid, ratio: float) -> Mask:
    seeds = np.zeros(grid.shape, dtype=bool)
    at = np.rint(_cells(points, grid, ratio)).astype(int)
    seeds[tuple(at.clip(0, np.array(grid.shape) - 1).T)] = True
    return seeds


def _outside(box: Floats, grid: MapGrid, ratio: float) -> Mask:
    """Return the mask of cells outside a box, ignoring axes of length 1."""
    lower, upper = _cells(box, grid, ratio)
    outside = np.zeros(grid.shape, dtype=bool)
    for axis, n in enumerate(grid.shape):
        if n > 1:
            place = np.arange(n)
            beyond = (place < lower[axis] - 0.5) | (place > upper[axis] + 0.5)
            outside |= beyond.reshape([-1 if a == axis else 1 for a in range(3)])
    return outside


class PromptTokens:
    """Conversion of prompts to tokens; `field_size` is the in-plane voxels of a training field."""

    def __init__(self, weights: Mapping[str, Floats], field_size: int) -> None:
        self._frequencies = weights["prompt_encoder.frequencies"]
        self._kinds = weights["prompt_encoder.kinds.weight"]
        self._feature = weights["prompt_encoder.feature.weight"]
        self._feature_bias = weights["prompt_encoder.feature.bias"]
        self._class_feature = weights.get("prompt_encoder.class_feature.weight")
        self._class_bias = weights.get("prompt_encoder.class_feature.bias")
        self._own = np.concatenate(
            [weights[f"mask_decoder.{name}.weight"] for name in ("iou_token", "mask_tokens")]
        )
        self._scale = np.float32(2 * math.pi / field_size)

    def positional(self, places: npt.NDArray[np.floating]) -> Floats:
        """Return Fourier features (..., dim) of positions (..., 3) in in-plane voxels."""
        phase = (self._scale * places.astype(np.float32)) @ self._frequencies
        return np.concatenate((np.sin(phase), np.cos(phase)), axis=-1)

    def of_grid(self, grid: MapGrid, slice_ratio: float) -> Floats:
        """Return position codes of a grid's voxels in raster order, (d h w, dim)."""
        places = np.meshgrid(*grid.centres(slice_ratio), indexing="ij")
        return self.positional(np.stack(places, -1).reshape(-1, 3))

    def of(
        self,
        prompts: FieldPrompts,
        features: Floats,
        full: Shape,
        class_vectors: Floats | None = None,
    ) -> Floats:
        """Return the network's output tokens, then point tokens and box tokens, (T, dim).

        Args:
            features: The encoder's tokens, (dim, d, h, w).
            class_vectors: Class vectors at the points, (P, E); None for a network without them.
        """
        parts = [self._own]
        if len(prompts.points):
            seen = vectors_at(prompts.points, features, full, prompts.slice_ratio)
            kinds = self._kinds[np.where(prompts.is_positive, POSITIVE, NEGATIVE)]
            tokens = self.positional(prompts.points) + kinds
            tokens = tokens + seen @ self._feature.T + self._feature_bias
            if self._class_feature is not None and class_vectors is not None:
                tokens = tokens + class_vectors @ self._class_feature.T + self._class_bias
            parts.append(tokens)
        if prompts.box is not None:
            parts.append(self.positional(prompts.box) + self._kinds[[BOX_LOWER, BOX_UPPER]])
        return np.concatenate(parts)
