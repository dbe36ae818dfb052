"""First prototypes of classes for a network whose class vectors are trained already."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pumit.networks.promptable.layers import pooled
from pumit.networks.pumit import Anisotropy
from pumit.training.promptable.task import PromptableTask


@torch.no_grad()
def begin_prototypes(task: PromptableTask, degrees: Sequence[int], seed: int = 0) -> None:
    """Set the prototype of each class to the mean of its vectors.

    A class that no field shows keeps the prototype that it has.

    Args:
        task: Task whose network is changed, and whose fields are drawn.
        degrees: Degree of anisotropy of each batch that is drawn for it.
    """
    prototypes = task.network.prototypes
    if prototypes is None:
        return
    generator, shared = (torch.Generator().manual_seed(seed) for _ in range(2))
    weight = prototypes.weight
    sums, cells = torch.zeros_like(weight), weight.new_zeros(len(weight))
    for da0 in degrees:
        batch = task.draw(da0, generator, shared).to(weight.device)
        for image, truth in ((batch.image, batch.classes), (batch.more, batch.more_classes)):
            vectors = task.network.embed(image, Anisotropy(da0)).classes if len(image) else None
            if vectors is not None:
                found, there = class_sums(vectors, truth, len(weight))
                sums, cells = sums + found, cells + there
    weight[cells > 0] = sums[cells > 0] / cells[cells > 0, None]


def class_sums(vectors: Tensor, truth: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Sum of the vectors of each class.

    Args:
        vectors: Class vectors, (B, E, d, h, w).
        truth: Class of each voxel, (B, D, H, W), `UNKNOWN` where no one knows.

    Returns:
        Sums (N, E) and voxels (N,), both in cells of the vectors' grid.
    """
    d, h, w = vectors.shape[2:]
    sums, cells = vectors.new_zeros(count, vectors.shape[1]), vectors.new_zeros(count)
    for c in torch.unique(truth).tolist():
        if 0 <= c < count:
            share = pooled((truth == c).float()[:, None], (d, h, w))[:, 0]
            sums[c] = torch.einsum("bdhw,bedhw->e", share, vectors.float())
            cells[c] = share.sum()
    return sums, cells
