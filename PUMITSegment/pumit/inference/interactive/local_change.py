"""What a corrective click changes: the connected change at the click, and nothing elsewhere.

A network that is asked again answers anew everywhere, and undoes here what was settled there.
Only the change that hangs together with the newest click is taken over.

Source:
    Chen et al., FocalClick, CVPR 2022, "Progressive merge". Differs from the source: in 3D, and
    the change is looked for on the grid of the field, then brought to the volume's.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from scipy import ndimage
from torch import Tensor

from pumit.inference.interactive.grid_transfer import Patch, to_volume_box
from pumit.preprocessing.fields import Field

Mask = npt.NDArray[np.bool_]
REACH = 2.0  # in-plane voxels of the field around a click within which a change belongs to it
RIM = 1  # voxels around a change that are taken over with it, so that its border is the new one
_NEIGHBOURS = np.ones((3, 3, 3), dtype=bool)


def change_at(
    before: Tensor, after: Tensor, place: npt.ArrayLike, slice_ratio: float
) -> Mask | None:
    """The pieces of a change that a click belongs to.

    Args:
        before: Earlier answer, logits (D, H, W).
        after: New answer, logits of the same shape.
        place: The click, field index (d, h, w).
        slice_ratio: Slice spacing over in-plane spacing; 0 in 2D.

    Returns:
        Bool (D, H, W), or None where nothing changed at the click.
    """
    changed = ((before > 0) != (after > 0)).numpy()
    labels, count = ndimage.label(changed, _NEIGHBOURS)
    if count == 0:
        return None
    scale = np.array([slice_ratio if slice_ratio > 0 else 1.0, 1.0, 1.0])
    axes = [
        (np.arange(n) - c) * s
        for n, c, s in zip(changed.shape, np.asarray(place, dtype=np.float64), scale, strict=True)
    ]
    d, h, w = np.ix_(*axes)
    near = d**2 + h**2 + w**2 <= REACH**2
    touched = np.unique(labels[near])
    touched = touched[touched > 0]
    return np.isin(labels, touched) if len(touched) else None


def take_over(
    patch: Patch, after: Tensor, change: Mask, where: Field, shape: tuple[int, int, int]
) -> Patch:
    """The earlier answer with the change at the click in it.

    Args:
        patch: Earlier answer, on the volume's grid.
        after: New answer of a field, logits (D, H, W).
        change: What of it to take over, (D, H, W), not empty.
        where: The field.
        shape: The volume's grid.
    """
    rim = np.ones([1 if n == 1 else 2 * RIM + 1 for n in change.shape], dtype=bool)
    region = ndimage.binary_dilation(change, rim)
    window = ndimage.find_objects(region.astype(np.uint8))[0]
    # A voxel more, which interpolation between the field's voxels asks for.
    window = tuple(
        slice(max(s.start - 1, 0), min(s.stop + 1, n))
        for s, n in zip(window, region.shape, strict=True)
    )
    part = crop(where, window)
    values = to_volume_box(after[window].float(), part, shape)
    inside = to_volume_box(torch.from_numpy(region[window]).float(), part, shape)
    if values is None or inside is None:
        return patch
    starts = [min(a, b) for a, b in zip(patch.start, values.start, strict=True)]
    stops = [
        max(a + n, b + m)
        for a, n, b, m in zip(
            patch.start, patch.logits.shape, values.start, values.logits.shape, strict=True
        )
    ]
    whole = torch.full([b - a for a, b in zip(starts, stops, strict=True)], -4.0)

    def place(of: Patch) -> Tensor:
        return whole[
            tuple(
                slice(a - s, a - s + n)
                for a, s, n in zip(of.start, starts, of.logits.shape, strict=True)
            )
        ]

    place(patch).copy_(patch.logits)
    here = place(values)
    here.copy_(torch.where(inside.logits > 0.5, values.logits, here))
    return Patch((starts[0], starts[1], starts[2]), whole)


def crop(where: Field, window: tuple[slice, ...]) -> Field:
    """The part of a field that some of its voxels make up."""
    middle = [(s.start + s.stop - 1) / 2 for s in window]
    d, h, w = where.to_volume(middle).tolist()
    a, b, c = (s.stop - s.start for s in window)
    return replace(where, centre_index=(d, h, w), shape=(a, b, c))
