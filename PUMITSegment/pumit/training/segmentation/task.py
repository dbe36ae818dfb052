"""The objective of an automatic network: Dice and cross-entropy at every level of its decoder.

Classes that exclude each other share a softmax with the background. Regions, which overlap, have a
sigmoid each and no background; their cross-entropy is binary. What the labels do not know is
left out.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pumit.training.data.classes import UNKNOWN
from pumit.training.loop.task import SourceTask
from pumit.training.segmentation.loss import (
    ClassLoss,
    RegionLoss,
    batch_dice,
    known_regions,
    region_dice,
    region_masks,
)
from pumit.training.segmentation.patches import SegmentationBatch, SegmentationSource


class SegmentationTask(SourceTask):
    """Draw patches and score the network's answers.

    Args:
        network: Maps (B, C, d, h, w) to logits of the background and every class, or of every
            region; with `deep_supervision=True`, where it has `heads`, to a list of them, the
            finest first.
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
        super().__init__(network, source)
        self._is_deep = len(getattr(network, "heads", ())) > 1
        self._regions = regions
        self._class_loss = ClassLoss(has_background=dice_background)
        self._region_loss = RegionLoss()

    def forward(self, batch: SegmentationBatch) -> dict[str, Tensor]:
        """Score a batch.

        Returns:
            `loss`, and for the log `dice`, the mean hard Dice of the classes in the batch, or of
            its regions.
        """
        is_whole = not bool((batch.labels == UNKNOWN).any())  # before it is on a GPU
        batch = batch.to(next(self.network.parameters()).device)
        options = {"deep_supervision": True} if self._is_deep else {}
        answer: Tensor | list[Tensor] = self.network(batch.image, **options)
        levels = list(answer) if isinstance(answer, (list, tuple)) else [answer]
        labels, drawn, regions = batch.labels, batch.drawn, self._regions
        masks = None if regions is None else region_masks(labels, regions)
        is_known = regions is None or (is_whole and drawn is None)
        known = None if is_known else known_regions(labels, drawn)
        with torch.autocast(labels.device.type, enabled=False):
            losses = []
            for logits in levels:
                full = logits.float()
                if full.shape[2:] != labels.shape[1:]:
                    full = F.interpolate(full, size=labels.shape[1:], mode="trilinear")
                if masks is None:
                    losses.append(self._class_loss(full, labels, drawn=drawn, is_whole=is_whole))
                else:
                    losses.append(self._region_loss(full, masks, known))
        weights = torch.tensor([0.5**i for i in range(len(losses))], device=labels.device)
        loss = (torch.stack(losses) * weights).sum() / weights.sum()
        finest = levels[0].detach()
        if masks is not None:
            return {"loss": loss, "dice": region_dice(finest, masks, known)}
        return {"loss": loss, "dice": batch_dice(finest, labels, drawn)}
