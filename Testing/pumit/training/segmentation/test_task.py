"""The objective is the published one, and a network learns by it."""

from __future__ import annotations

import pytest
import torch
from fixed_patches import Fixed, made_source
from labelled_scans import TINY_SIZES
from pumit.networks.build import build_network
from pumit.training.segmentation.patches import SegmentationBatch
from pumit.training.segmentation.task import SegmentationTask, batch_dice
from torch import Tensor
from torch.nn import functional as F


def slow_loss(logits: Tensor, labels: Tensor, first: int) -> Tensor:
    """Dice of every class from the first and of every sample, plus cross-entropy."""
    truth = F.one_hot(labels, logits.shape[1]).movedim(-1, 1).float()
    share = logits.softmax(1)
    both = (share * truth).flatten(2).sum(-1)
    dice = (2 * both + 1e-5) / (share.flatten(2).sum(-1) + truth.flatten(2).sum(-1) + 1e-5)
    return (1 - dice[:, first:]).mean() + F.cross_entropy(logits, labels)


@pytest.mark.parametrize(("count", "background"), [(1, True), (3, True), (3, False)])
def test_loss_is_dice_and_cross_entropy_of_every_level(count: int, background: bool) -> None:
    torch.manual_seed(0)
    levels = [torch.randn(2, 3, 8 >> i, 16 >> i, 16 >> i) for i in range(count)]
    labels = torch.randint(0, 3, (2, 8, 16, 16))
    task = SegmentationTask(Fixed(levels), made_source(), dice_background=background)
    batch = SegmentationBatch(torch.zeros(2, 1, 8, 16, 16), labels.to(torch.uint8), ["a", "b"])
    full = [F.interpolate(x, size=(8, 16, 16), mode="trilinear") for x in levels]
    weights = [0.5**i for i in range(count)]
    expected = sum(
        w * slow_loss(x, labels, int(not background)) for w, x in zip(weights, full, strict=True)
    )
    torch.testing.assert_close(task.forward(batch)["loss"], expected / sum(weights))


def test_dice_of_a_batch_counts_classes_that_occur() -> None:
    labels = torch.zeros(1, 2, 4, 4, dtype=torch.uint8)
    labels[0, 0] = 1
    logits = F.one_hot(labels.long(), 4).movedim(-1, 1).float()
    assert batch_dice(logits, labels) == 1  # classes 2 and 3 are in neither
    logits[:, 1] -= 2 * (torch.arange(4) < 2)
    assert float(batch_dice(logits, labels)) == pytest.approx(2 * 8 / (8 + 16))
    assert batch_dice(logits[:, :, 1:], labels[:, 1:]).isnan()


def test_gradients_reach_every_parameter() -> None:
    sizes = {**TINY_SIZES, "num_classes": 3, "position_table": (4, 2, 2)}
    network = build_network("pumit_segmentation_small", **sizes)
    task = SegmentationTask(network, made_source())
    task.forward(task.draw(0, torch.Generator(), torch.Generator()))["loss"].backward()
    without = [n for n, p in network.named_parameters() if p.grad is None or not p.grad.any()]
    # Biases and whatever is left of a tap's bias are cancelled by the instance norm after them.
    assert not [name for name in without if not name.endswith("bias")]
