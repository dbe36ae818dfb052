"""Connected components and distance to the background for a batch of masks, on any device.

Meant for a GPU, where masks need not travel and a whole batch costs what one does; on the CPU
`scipy.ndimage` does the same mask by mask, and faster.
"""

from __future__ import annotations

import torch
from torch import Tensor


def components(masks: Tensor) -> Tensor:
    """Label the pieces that hang together over faces.

    Along a line all of a piece takes the highest label of its run at once (a running maximum that
    starts anew at every gap), then every voxel takes the label of the voxel that its label names;
    a few rounds follow any path that a mask has.

    Args:
        masks: Bool (B, D, H, W).

    Returns:
        Labels (B, D, H, W), 0 outside: voxels per field less the flat index of the piece's first
        voxel. They differ between the pieces of a field, not between fields.
    """
    size = masks[0].numel()
    # The largest number is a label and all gaps of a line. Four bytes, which take half of the time,
    # hold that of fields of training.
    largest = (max(masks.shape[1:]) + 1) * (size + 1)
    kind = torch.int32 if largest < 2**31 else torch.int64
    labels = torch.arange(size, 0, -1, device=masks.device, dtype=kind)
    labels = labels.view(masks.shape[1:]) * masks
    axes = [axis for axis in (1, 2, 3) if masks.shape[axis] > 1]
    # Runs of one line are distinguished by the gaps before them, counted from either end.
    gaps = {axis: (~masks).cumsum(axis, dtype=kind) * (size + 1) for axis in axes}
    while True:
        before = labels
        for axis in axes:
            forth = (labels + gaps[axis]).cummax(axis).values - gaps[axis]
            last = gaps[axis].narrow(axis, masks.shape[axis] - 1, 1)
            behind = last - gaps[axis]
            back = (forth * masks + behind).flip(axis).cummax(axis).values.flip(axis) - behind
            labels = back * masks
        flat = labels.flatten(1)
        named = flat.gather(1, (size - flat).clamp_max(size - 1).long())
        labels = torch.where(flat > 0, named, 0).view_as(labels)
        if torch.equal(labels, before):
            return labels


def largest_components(masks: Tensor) -> tuple[Tensor, Tensor]:
    """Largest piece of every mask; of equal ones, the first.

    Args:
        masks: Bool (B, D, H, W).

    Returns:
        Masks (B, D, H, W), and how many voxels they have (B,).
    """
    labels = components(masks).flatten(1).long()
    size = labels.shape[1]
    counts = torch.zeros(len(labels), size + 1, dtype=torch.long, device=labels.device)
    counts.scatter_add_(1, labels, torch.ones_like(labels))
    counts[:, 0] = 0
    most = counts.amax(1)
    # A higher label begins earlier; `argmax` may return any of equal ones.
    place = torch.arange(size + 1, device=labels.device)
    chosen = torch.where(counts == most[:, None], place, -1).amax(1)
    pieces = (labels == chosen[:, None]) & (labels > 0)
    return pieces.view_as(masks), most


def squared_distance(masks: Tensor, spacing: Tensor) -> Tensor:
    """Squared Euclidean distance of every voxel to the nearest one that is not in its mask.

    What lies beyond the field counts as background, but for an axis of one voxel.

    Args:
        masks: Bool (B, D, H, W).
        spacing: Depth step over in-plane step, (B,), positive.

    Returns:
        Shape (B, D, H, W), in-plane voxels squared; 0 outside of the mask.
    """
    # 1. Within the masks farther than anything in the field, 0 elsewhere.
    reach = (
        float(sum(n * n for n in masks.shape[2:])) + float((spacing * masks.shape[1]).max()) ** 2
    )
    distance = torch.where(masks, reach, 0.0)
    # 2. One axis after the other, as squared distances separate.
    for axis in (3, 2, 1):
        n = masks.shape[axis]
        if n == 1:
            continue
        square = spacing.square()[:, None, None, None] if axis == 1 else torch.ones_like(spacing)
        square = square.view(-1, 1, 1, 1)
        index = torch.arange(n, device=masks.device)
        edge = torch.minimum(index + 1, n - index).square()
        shape = [n if a == axis else 1 for a in range(4)]
        # 2.1. What lies beyond the field is background.
        out = torch.minimum(distance, edge.view(shape) * square)
        # 2.2. The lower envelope of the parabolas, by shifts of growing length.
        step = 1
        # No voxel further than the greatest distance so far can be the nearest.
        furthest = float((out / square).amax())
        while step < n and step * step < furthest:
            cost = step * step * square
            there = distance.narrow(axis, step, n - step) + cost
            here = out.narrow(axis, 0, n - step)
            torch.minimum(here, there, out=here)
            there = distance.narrow(axis, 0, n - step) + cost
            here = out.narrow(axis, step, n - step)
            torch.minimum(here, there, out=here)
            step += 1
        distance = out
    return distance
