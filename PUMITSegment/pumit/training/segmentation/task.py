"""The objective of an automatic network: Dice and cross-entropy at every level of its decoder.

Classes that exclude each other share a softmax with the background. Regions, which overlap, have a
sigmoid each and no background; their cross-entropy is binary.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pumit.networks.monai import DiceCELoss, DiceLoss
from pumit.training.loop.prefetch import Draw
from pumit.training.segmentation.patches import SegmentationBatch, SegmentationSource


class SegmentationTask(nn.Module):
    """Draw patches and score the network's answers.

    Args:
        network: Maps (B, C, d, h, w) to logits of the background and every class, or of every
            region; with `deep_supervision=True`, where it has `heads`, to a list of them, the
            finest first.
        source: Source of the patches.
        regions: Labels of each region, bool (K, 1 + labels), of
            `classes.region_table`; None where classes exclude each other.
        dice_background: Whether Dice counts the background as one of the classes, where these
            exclude each other; cross-entropy always does.

    Source:
        PUMIT, section "Segmentation Experiments": the sum of Dice loss, the background counted
        in, and cross-entropy; each coarser level at half the weight of the one before, the
        weights summing to 1, its logits enlarged linearly to the full grid. Regions are nnU-Net's:
        Dice over the batch, and binary cross-entropy. nnU-Net, and nnFormer after it, leave the
        background out of Dice.
    """

    def __init__(
        self,
        network: nn.Module,
        source: SegmentationSource,
        *,
        regions: Tensor | None = None,
        dice_background: bool = True,
    ) -> None:
        super().__init__()
        self.network = network
        self.source = source
        self._is_deep = len(getattr(network, "heads", ())) > 1
        self._regions = regions
        self._loss: Callable[[Tensor, Tensor], Tensor] = (
            DiceCELoss(include_background=dice_background, to_onehot_y=True, softmax=True)
            if regions is None
            else RegionLoss()
        )

    def draw(
        self, da0: int, generator: torch.Generator, shared: torch.Generator
    ) -> SegmentationBatch:
        """Draw a batch; see `SegmentationSource.draw`."""
        return self.source.draw(da0, generator, shared)

    def worker_draw(self) -> Draw:
        """What draws in worker processes."""
        return self.source.draw

    def forward(self, batch: SegmentationBatch) -> dict[str, Tensor]:
        """Score a batch.

        Returns:
            `loss`, and for the log `dice`, the mean hard Dice of the classes in the batch, or of
            its regions.
        """
        batch = batch.to(next(self.network.parameters()).device)
        options = {"deep_supervision": True} if self._is_deep else {}
        answer: Tensor | list[Tensor] = self.network(batch.image, **options)
        levels = list(answer) if isinstance(answer, (list, tuple)) else [answer]
        target = self._target(batch.labels)
        with torch.autocast(target.device.type, enabled=False):
            losses = []
            for logits in levels:
                full = logits.float()
                if full.shape[2:] != target.shape[2:]:
                    full = F.interpolate(full, size=target.shape[2:], mode="trilinear")
                losses.append(self._loss(full, target))
        weights = torch.tensor([0.5**i for i in range(len(losses))], device=target.device)
        loss = (torch.stack(losses) * weights).sum() / weights.sum()
        finest = levels[0].detach()
        if self._regions is not None:
            return {"loss": loss, "dice": region_dice(finest, target)}
        return {"loss": loss, "dice": batch_dice(finest, batch.labels)}

    def _target(self, labels: Tensor) -> Tensor:
        """Labels (B, 1, d, h, w), or masks of the regions (B, K, d, h, w), of (B, d, h, w)."""
        if self._regions is None:
            return labels[:, None].long()
        return region_masks(labels, self._regions)


class RegionLoss(nn.Module):
    """Dice and binary cross-entropy of regions, each for itself, their means added.

    Dice is of all patches together: in a single one a small region is often absent, where Dice is
    a step.
    """

    def __init__(self) -> None:
        super().__init__()
        self._dice = DiceLoss(sigmoid=True, batch=True)

    def forward(self, logits: Tensor, masks: Tensor) -> Tensor:
        """Score logits (B, K, d, h, w) by masks of 0 and 1, of the same shape."""
        loss: Tensor = self._dice(logits, masks)
        return loss + F.binary_cross_entropy_with_logits(logits, masks)


def region_masks(labels: Tensor, regions: Tensor) -> Tensor:
    """Which regions each voxel lies in.

    Args:
        labels: (B, d, h, w), whole numbers.
        regions: Labels of each region, bool (K, 1 + labels).

    Returns:
        (B, K, d, h, w), float32, 0 or 1.
    """
    return regions.to(labels.device)[:, labels.long()].movedim(0, 1).float()


def region_dice(logits: Tensor, masks: Tensor) -> Tensor:
    """Mean Dice of the regions that occur in the answer or the masks, over a whole batch.

    Args:
        logits: (B, K, d, h, w).
        masks: Masks of the same shape, 0 or 1.

    Returns:
        A scalar; NaN where there is none.
    """
    answer = (logits > 0).movedim(1, 0).flatten(1)
    truth = (masks > 0).movedim(1, 0).flatten(1)
    dice = 2 * (answer & truth).sum(1) / (answer.sum(1) + truth.sum(1))
    return dice.nanmean()


def batch_dice(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean Dice of the classes that occur in the answer or the labels, over a whole batch.

    Args:
        logits: (B, K, d, h, w), channel 0 the background.
        labels: (B, d, h, w).

    Returns:
        A scalar; NaN where there is background alone.
    """
    classes = logits.shape[1]
    answer = logits.argmax(1)
    both = torch.bincount(labels[answer == labels].long(), minlength=classes)
    count = torch.bincount(answer.flatten(), minlength=classes)
    count = count + torch.bincount(labels.flatten().long(), minlength=classes)
    dice = 2 * both[1:] / count[1:]  # NaN where a class is in neither
    return dice.nanmean()
