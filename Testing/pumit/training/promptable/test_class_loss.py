"""The loss of classes compares each field with the classes of its own data set."""

import pytest
import torch
from pumit.training.promptable.class_loss import class_loss, region_loss
from pumit.training.synthesis.scene import UNKNOWN
from torch import Tensor

SETS = torch.tensor([0, 0, 0, 1, 1])  # background, two structures; background, one structure


@pytest.fixture
def truth() -> Tensor:
    """A field of the first data set, one of the second, one that no one labelled."""
    labels = torch.full((3, 4, 8, 8), UNKNOWN)
    labels[0], labels[0, :, :4], labels[0, :, :2] = 0, 1, 2
    labels[1], labels[1, :, :4] = 3, 4
    return labels


def loss_of(logits: Tensor, truth: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return class_loss(lambda fields, own: logits[fields][:, own], truth, SETS, (2, 4, 4))


def test_it_equals_a_slow_reference(truth):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 5, 2, 4, 4, generator=generator)
    losses = []
    for i, own in ((0, [0, 1, 2]), (1, [3, 4])):
        p = logits[i, own].softmax(0)
        coarse = truth[i, ::2, ::2, ::2]
        right = [p[k][coarse == c].log().sum() for k, c in enumerate(own)]
        cross = -torch.stack(right).sum() / coarse.numel()
        dice = []
        for k, c in enumerate(own[1:], start=1):
            hit = (coarse == c).float()
            dice.append((2 * (p[k] * hit).sum() + 1) / (p[k].sum() + hit.sum() + 1))
        losses.append(cross + 1 - torch.stack(dice).mean())
    loss, _, _ = loss_of(logits, truth)
    torch.testing.assert_close(loss, torch.stack(losses).mean())


def test_fields_without_classes_cost_nothing(truth):
    loss, dice, count = loss_of(torch.randn(1, 5, 2, 4, 4), truth[2:])
    assert (float(loss), float(dice), int(count)) == (0, 0, 0)


def halves(shape: tuple[int, int, int] = (4, 8, 8)) -> Tensor:
    regions = torch.full((1, *shape), UNKNOWN)
    regions[0, :, :4], regions[0, :, 4:] = 3, 7
    return regions


def test_regions_that_are_told_apart_cost_nothing():
    regions = halves()
    right = torch.zeros(1, 2, 2, 4, 4)
    right[0, 0, :, :2], right[0, 1, :, 2:] = 1, 1
    alike = torch.zeros(1, 2, 2, 4, 4)
    alike[:, 0] = 1
    torch.manual_seed(0)
    assert float(region_loss(right, regions)) < 1e-3
    assert abs(float(region_loss(alike, regions)) - 0.69) < 0.1  # log 2: one of two regions


def test_voxels_of_no_known_region_do_not_count():
    vectors = torch.randn(2, 3, 2, 4, 4, requires_grad=True)
    regions = torch.cat((halves(), torch.full((1, 4, 8, 8), UNKNOWN)))
    region_loss(torch.nn.functional.normalize(vectors, dim=1), regions).backward()
    assert vectors.grad[0].abs().sum() > 0
    assert vectors.grad[1].abs().sum() == 0
    nothing = region_loss(vectors, torch.full((2, 4, 8, 8), UNKNOWN))
    assert float(nothing) == 0
