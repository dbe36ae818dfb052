"""Connected components of a batch of masks, on any device.

Meant for a GPU, where masks need not travel and a whole batch costs what one does; on the CPU
`scipy.ndimage` does the same mask by mask, and faster.
"""

from __future__ import annotations

import torch
from torch import Tensor


def components(masks: Tensor) -> Tensor:
    """Label the pieces that are connected over faces.

    Along a line all of a piece takes the highest label of its run at once (a running maximum that
    starts again at every gap), then every voxel takes the label of the voxel that its label names;
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
