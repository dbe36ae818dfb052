"""Training objective of automatic segmentation: Dice and cross-entropy with deep supervision.

Mutually exclusive classes share a softmax with the background. Overlapping regions have one sigmoid
each, binary cross-entropy, and no background. Unknown voxels are ignored.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pumit.training.data.classes import UNKNOWN
from pumit.training.loop.task import SourceTask
from pumit.training.segmentation.patches import SegmentationBatch, SegmentationSource

SMOOTH = 1e-5  # MONAI's


def class_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    drawn: Tensor | None = None,
    is_whole: bool = False,
    has_background: bool = True,
) -> Tensor:
    """Compute mean Dice loss over patches and classes, plus mean cross-entropy.

    In partially annotated patches, background voxels may belong to unannotated classes: their
    probabilities are added to that of the background. If no voxel is known, the loss is 0.

    Args:
        logits: (B, 1 + K, d, h, w), channel 0 is the background.
        labels: (B, d, h, w), integers 0 to K, or `UNKNOWN`.
        drawn: Annotated classes of each patch, bool (B, K); None for all.
        is_whole: Whether no voxel is unknown, which saves the masking.
        has_background: Whether Dice includes the background.

    Source:
        Shi et al., Marginal loss and exclusion loss for partially supervised multi-organ
        segmentation, 2021, eq. 2 to 4: the marginal loss, of Dice and cross-entropy.
    """
    logs = _marginal(logits.log_softmax(1), drawn)
    target, known = labels.long(), labels != UNKNOWN
    count = known.sum()
    entropy = F.nll_loss(logs, target, ignore_index=UNKNOWN, reduction="sum")
    shares = logs.exp()  # (B, 1 + K, d, h, w)
    truth = torch.zeros_like(shares).scatter_(1, (target * known)[:, None], 1.0)
    if not is_whole:
        shares, truth = shares * known[:, None], truth * known[:, None]
    both = (shares * truth).flatten(2).sum(-1)  # (B, 1 + K)
    either = shares.flatten(2).sum(-1) + truth.flatten(2).sum(-1)
    dice = (2 * both + SMOOTH) / (either + SMOOTH)
    counted = torch.ones_like(dice)
    counted[:, 0] = float(has_background)
    if drawn is not None:
        counted[:, 1:] = drawn.to(counted)
    counted = counted * known.flatten(1).any(1)[:, None]
    overlap = ((1 - dice) * counted).sum() / counted.sum().clamp_min(1)
    return overlap + entropy / count.clamp_min(1)


def region_loss(logits: Tensor, masks: Tensor, known: Tensor | None = None) -> Tensor:
    """Compute mean Dice loss plus mean binary cross-entropy of regions; 0 if no voxel is known.

    Dice is computed over the whole batch: a small region is often absent from a single patch, where
    Dice would be a step function.

    Args:
        logits: (B, K, d, h, w).
        masks: 0 or 1, same shape.
        known: 1 for voxels whose region is known, else 0; same or broadcastable shape. None if all
            are.
    """
    entropy = F.binary_cross_entropy_with_logits(logits, masks, reduction="none")
    shares = logits.sigmoid()
    counted = torch.ones_like(shares) if known is None else known.to(shares).expand_as(shares)
    if known is not None:
        entropy, shares, masks = entropy * counted, shares * counted, masks * counted
    both = (shares * masks).movedim(1, 0).flatten(1).sum(1)  # (K,)
    either = (shares + masks).movedim(1, 0).flatten(1).sum(1)
    dice = (2 * both + SMOOTH) / (either + SMOOTH)
    is_counted = counted.movedim(1, 0).flatten(1).any(1)
    overlap = ((1 - dice) * is_counted).sum() / is_counted.sum().clamp_min(1)
    return overlap + entropy.sum() / counted.sum().clamp_min(1)


def _marginal(logs: Tensor, drawn: Tensor | None) -> Tensor:
    """Return log-probabilities (B, 1 + K, ...), with unannotated classes merged into background."""
    if drawn is None:
        return logs
    undrawn = ~drawn[:, :, None, None, None]  # (B, K, 1, 1, 1)
    rest = torch.cat([torch.ones_like(undrawn[:, :1]), undrawn], dim=1)
    background = logs.masked_fill(~rest, -torch.inf).logsumexp(1, keepdim=True)
    return torch.cat([background, logs[:, 1:].masked_fill(undrawn, -torch.inf)], dim=1)


def region_masks(labels: Tensor, regions: Tensor) -> Tensor:
    """Return the masks of the regions of a label map; unknown voxels are in no region.

    Args:
        labels: (B, d, h, w), integers, or `UNKNOWN`.
        regions: Labels of each region, bool (K, 1 + labels).

    Returns:
        (B, K, d, h, w), float32, 0 or 1.
    """
    known = labels.long() * (labels != UNKNOWN)
    return regions.to(labels.device)[:, known].movedim(0, 1).float()


def known_regions(labels: Tensor, drawn: Tensor | None) -> Tensor:
    """Return where the regions of voxels are known.

    Args:
        labels: (B, d, h, w), integers, or `UNKNOWN`.
        drawn: Annotated regions of each patch, bool (B, K); None for all.

    Returns:
        bool, (B, K or 1, d, h, w).
    """
    known = (labels != UNKNOWN)[:, None]
    return known if drawn is None else known & drawn[:, :, None, None, None]


def region_dice(logits: Tensor, masks: Tensor, known: Tensor | None = None) -> Tensor:
    """Return the mean Dice over a batch of the regions in prediction or ground truth, or NaN.

    The arguments are those of `region_loss`.
    """
    inside = logits > 0 if known is None else (logits > 0) & known
    truth = masks > 0 if known is None else (masks > 0) & known
    answer, truth = (m.movedim(1, 0).flatten(1) for m in (inside, truth))
    dice = 2 * (answer & truth).sum(1) / (answer.sum(1) + truth.sum(1))
    return dice.nanmean()


def batch_dice(logits: Tensor, labels: Tensor, drawn: Tensor | None = None) -> Tensor:
    """Return the mean Dice over a batch of the classes in prediction or ground truth, or NaN.

    The arguments are those of `class_loss`. Classes that were not annotated count as background.
    """
    classes = logits.shape[1]
    answer = logits.argmax(1)
    if drawn is not None:
        number = torch.arange(1, classes, device=answer.device) * drawn
        table = F.pad(number, (1, 0))  # (B, 1 + K)
        answer = table.gather(1, answer.flatten(1)).reshape(answer.shape)
    known = labels != UNKNOWN
    answer, truth = answer[known], labels[known].long()
    both = torch.bincount(truth[answer == truth], minlength=classes)
    count = torch.bincount(answer, minlength=classes) + torch.bincount(truth, minlength=classes)
    dice = 2 * both[1:] / count[1:]  # NaN where a class is in neither
    return dice.nanmean()


class SegmentationTask(SourceTask):
    """Training task of automatic segmentation.

    Args:
        network: Maps (B, C, d, h, w) to logits of background and classes, or of regions. With
            several `heads` and `deep_supervision=True`, to a list of logits, the finest first.
        regions: Labels of each region from `classes.region_table`, bool (K, 1 + labels); None for
            mutually exclusive classes.
        dice_background: Whether Dice includes the background of exclusive classes; cross-entropy
            always does.

    Source:
        PUMIT, section "Segmentation Experiments": sum of Dice loss, including the background, and
        cross-entropy; each coarser level has half the weight of the one before, the weights sum to
        1, and logits are upsampled linearly to the full grid. Regions follow nnU-Net: Dice over
        the batch, and binary cross-entropy. nnU-Net and nnFormer exclude the background from Dice.
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
        self._dice_background = dice_background

    def forward(self, batch: SegmentationBatch) -> dict[str, Tensor]:
        """Compute the loss of a batch.

        Returns:
            `loss`, and for the log `dice`, the mean hard Dice of the batch's classes or regions.
        """
        is_whole = not bool((batch.labels == UNKNOWN).any())  # on the CPU, to avoid a GPU sync
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
                if masks is not None:
                    losses.append(region_loss(full, masks, known))
                    continue
                loss = class_loss(
                    full,
                    labels,
                    drawn=drawn,
                    is_whole=is_whole,
                    has_background=self._dice_background,
                )
                losses.append(loss)
        weights = torch.tensor([0.5**i for i in range(len(losses))], device=labels.device)
        loss = (torch.stack(losses) * weights).sum() / weights.sum()
        finest = levels[0].detach()
        if masks is not None:
            return {"loss": loss, "dice": region_dice(finest, masks, known)}
        return {"loss": loss, "dice": batch_dice(finest, labels, drawn)}
