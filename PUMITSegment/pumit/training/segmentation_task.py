"""The objective of an automatic network: Dice and cross-entropy at every level of its decoder."""

from __future__ import annotations

import torch
from monai.losses import DiceCELoss
from torch import Tensor, nn
from torch.nn import functional as F

from pumit.training.drawing_ahead import Draw
from pumit.training.segmentation_source import SegmentationBatch, SegmentationSource


class SegmentationTask(nn.Module):
    """Draw patches and score the network's answers.

    Args:
        network: Maps (B, C, d, h, w) to logits of the background and every class; with
            `deep_supervision=True`, where it has `heads`, to a list of them, the finest first.
        source: What draws the patches.

    Source:
        PUMIT, section "Segmentation Experiments": the sum of Dice loss, the background counted
        in, and cross-entropy; each coarser level at half the weight of the one before, the
        weights summing to 1, its logits enlarged linearly to the full grid.
    """

    def __init__(self, network: nn.Module, source: SegmentationSource) -> None:
        super().__init__()
        self.network = network
        self.source = source
        self._is_deep = len(getattr(network, "heads", ())) > 1
        self._loss = DiceCELoss(include_background=True, to_onehot_y=True, softmax=True)

    def draw(
        self, da0: int, generator: torch.Generator, shared: torch.Generator
    ) -> SegmentationBatch:
        """Draw a batch; see `SegmentationSource.draw`."""
        return self.source.draw(da0, generator, shared)

    def ahead(self) -> Draw:
        """What draws in worker processes."""
        return self.source.draw

    def forward(self, batch: SegmentationBatch) -> dict[str, Tensor]:
        """Score a batch.

        Returns:
            `loss`, and for the log `dice`, the mean hard Dice of the classes in the batch.
        """
        batch = batch.to(next(self.network.parameters()).device)
        options = {"deep_supervision": True} if self._is_deep else {}
        answer: Tensor | list[Tensor] = self.network(batch.image, **options)
        levels = list(answer) if isinstance(answer, (list, tuple)) else [answer]
        target = batch.labels[:, None].long()
        with torch.autocast(target.device.type, enabled=False):
            losses = []
            for logits in levels:
                full = logits.float()
                if full.shape[2:] != target.shape[2:]:
                    full = F.interpolate(full, size=target.shape[2:], mode="trilinear")
                losses.append(self._loss(full, target))
        weights = torch.tensor([0.5**i for i in range(len(losses))], device=target.device)
        loss = (torch.stack(losses) * weights).sum() / weights.sum()
        return {"loss": loss, "dice": batch_dice(levels[0].detach(), batch.labels)}


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
