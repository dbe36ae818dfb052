"""Regions are learned each for itself, by masks that the labels hold."""

from __future__ import annotations

import torch
from fixed_patches import Fixed, made_source
from pumit.training.data.classes import classes_from, region_table
from pumit.training.segmentation.patches import SegmentationBatch
from pumit.training.segmentation.task import SegmentationTask, region_dice, region_masks
from torch import Tensor
from torch.nn import functional as F

REGIONS = torch.from_numpy(region_table(classes_from({"whole": [1, 2, 4], "core": [2, 4]})))


def slow_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Dice of each region over the batch, plus the mean of its binary cross-entropy."""
    total = torch.zeros(())
    for k, members in enumerate(([1, 2, 3], [2, 3])):
        share, truth = torch.sigmoid(logits[:, k]), torch.isin(labels, torch.tensor(members))
        both = (share * truth).sum()
        total += 1 - (2 * both + 1e-5) / (share.sum() + truth.sum() + 1e-5)
        total -= torch.where(truth, share, 1 - share).log().mean()
    return total / 2


def test_masks_of_regions_follow_from_labels() -> None:
    labels = torch.tensor([[[[0, 1, 2, 3]]]], dtype=torch.uint8)
    masks = region_masks(labels, REGIONS)
    assert masks.shape == (1, 2, 1, 1, 4)
    assert masks[0, :, 0, 0].tolist() == [[0, 1, 1, 1], [0, 0, 1, 1]]


def test_loss_is_dice_and_binary_cross_entropy_of_every_level() -> None:
    torch.manual_seed(0)
    levels = [torch.randn(2, 2, 8 >> i, 16 >> i, 16 >> i) for i in range(3)]
    labels = torch.randint(0, 4, (2, 8, 16, 16))
    task = SegmentationTask(Fixed(levels), made_source(), regions=REGIONS)
    batch = SegmentationBatch(torch.zeros(2, 4, 8, 16, 16), labels.to(torch.uint8), ["a", "b"])
    full = [F.interpolate(x, size=(8, 16, 16), mode="trilinear") for x in levels]
    expected = sum(0.5**i * slow_loss(x, labels) for i, x in enumerate(full)) / 1.75
    found = task.forward(batch)
    torch.testing.assert_close(found["loss"], expected)
    found["loss"].backward()
    assert all(p.grad.abs().max() > 0 for p in task.network.parameters())
    torch.testing.assert_close(found["dice"], region_dice(levels[0], region_masks(labels, REGIONS)))


def test_dice_of_a_batch_counts_regions_that_occur() -> None:
    masks = torch.zeros(1, 2, 2, 4, 4)
    masks[:, 0, 0] = 1
    assert region_dice(2 * masks - 1, masks) == 1  # the second region is in neither
    assert region_dice(-torch.ones_like(masks), masks) == 0
    assert region_dice(-torch.ones_like(masks), 0 * masks).isnan()
