"""The objective is the published one; what is not known is left out, and regions overlap."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from labelled_scans import ball_and_box
from monai.losses import DiceCELoss, DiceLoss
from pumit.training.data.classes import UNKNOWN, classes_from, region_table
from pumit.training.recipes.segmentation import AugmentationSettings
from pumit.training.segmentation.patches import Augmentation, SegmentationBatch, SegmentationSource
from pumit.training.segmentation.prepared_cases import PreparedCase
from pumit.training.segmentation.task import (
    SegmentationTask,
    batch_dice,
    class_loss,
    known_regions,
    region_dice,
    region_loss,
    region_masks,
)
from torch import Tensor, nn
from torch.nn import functional as F

PATCH = (16, 32, 32)


def made_source() -> SegmentationSource:
    image, labels = ball_and_box(0)
    places = {c: np.argwhere(labels == c).astype(np.int32) for c in (1, 2)}
    case = PreparedCase("a", image[None] / 50, labels, places, float(image.min()) / 50)
    plain = Augmentation(AugmentationSettings.model_validate(False), PATCH, (1.0, 1.0, 1.0), ())
    return SegmentationSource(
        [case], patch=PATCH, batch_size=2, balanced_share=0.75, augmentation=plain
    )


class Fixed(nn.Module):
    """Answers with logits that are given, at several scales."""

    def __init__(self, levels: list[Tensor]) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Identity() for _ in levels)
        self.levels = nn.ParameterList(levels)

    def forward(self, x: Tensor, *, deep_supervision: bool = False) -> list[Tensor] | Tensor:
        return list(self.levels) if deep_supervision else self.levels[0]


def test_dice_of_a_batch_counts_classes_that_occur():
    labels = torch.zeros(1, 2, 4, 4, dtype=torch.uint8)
    labels[0, 0] = 1
    logits = F.one_hot(labels.long(), 4).movedim(-1, 1).float()
    assert batch_dice(logits, labels) == 1  # classes 2 and 3 are in neither
    logits[:, 1] -= 2 * (torch.arange(4) < 2)
    assert float(batch_dice(logits, labels)) == pytest.approx(2 * 8 / (8 + 16))
    assert batch_dice(logits[:, :, 1:], labels[:, 1:]).isnan()


def test_dice_counts_known_voxels_and_drawn_classes():
    labels = torch.zeros(2, 2, 4, 4, dtype=torch.uint8)
    labels[:, 0] = 1
    logits = F.one_hot(labels.long(), 3).movedim(-1, 1).float()
    logits[0, 2, 1] = 2  # class 2 where it was not drawn
    drawn = torch.tensor([[True, False], [True, True]])
    assert [batch_dice(logits, labels), batch_dice(logits, labels, drawn)] == [0.5, 1]
    labels[0, 1] = UNKNOWN
    assert batch_dice(logits, labels) == 1
    masks = torch.ones(2, 2, 2, 4, 4)
    answer, known = torch.ones_like(masks), torch.ones(2, 1, 2, 4, 4, dtype=torch.bool)
    answer[:, :, 1], known[:, :, 1] = -1, False
    assert region_dice(answer, masks) < 1
    assert region_dice(answer, masks, known) == 1


REGIONS = torch.from_numpy(region_table(classes_from({"whole": [1, 2, 4], "core": [2, 4]})))


def test_loss_of_regions_is_that_of_every_level():
    torch.manual_seed(0)
    levels = [torch.randn(2, 2, 8 >> i, 16 >> i, 16 >> i) for i in range(3)]
    labels = torch.randint(0, 4, (2, 8, 16, 16))
    task = SegmentationTask(Fixed(levels), made_source(), regions=REGIONS)
    batch = SegmentationBatch(torch.zeros(2, 4, 8, 16, 16), labels.to(torch.uint8), ["a", "b"])
    full = [F.interpolate(x, size=(8, 16, 16), mode="trilinear") for x in levels]
    masks = region_masks(labels, REGIONS).float()
    expected = sum(0.5**i * region_loss(x, masks) for i, x in enumerate(full)) / 1.75
    found = task.forward(batch)
    torch.testing.assert_close(found["loss"], expected)
    found["loss"].backward()
    assert all(p.grad.abs().max() > 0 for p in task.network.parameters())
    torch.testing.assert_close(found["dice"], region_dice(levels[0], region_masks(labels, REGIONS)))


def test_dice_of_a_batch_counts_regions_that_occur():
    masks = torch.zeros(1, 2, 2, 4, 4)
    masks[:, 0, 0] = 1
    labels = torch.tensor([[[[0, 1, 2, 3]]]], dtype=torch.uint8)
    found = region_masks(labels, REGIONS)[0, :, 0, 0]
    assert found.tolist() == [[0, 1, 1, 1], [0, 0, 1, 1]]
    assert region_dice(2 * masks - 1, masks) == 1  # the second region is in neither
    assert region_dice(-torch.ones_like(masks), masks) == 0
    assert region_dice(-torch.ones_like(masks), 0 * masks).isnan()


SHAPE = (4, 6, 8)


def random_case(seed: int, batch: int = 2, classes: int = 3) -> tuple[Tensor, Tensor]:
    """Logits of a background and classes, and labels; both random."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(batch, 1 + classes, *SHAPE, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 1 + classes, (batch, *SHAPE), generator=generator)
    return logits.requires_grad_(), labels


def slow_class_loss(logits: Tensor, labels: Tensor, drawn: list[list[bool]]) -> float:
    """The loss voxel by voxel, in plain numbers."""
    dices: list[float] = []
    entropies: list[float] = []
    for one, truth, there in zip(logits.detach(), labels, drawn, strict=True):
        overlap = [[0.0, 0.0] for _ in range(len(one))]  # both, either
        any_known = False
        for place in torch.nonzero(truth != UNKNOWN).tolist():
            any_known = True
            values = one[:, *place]
            shares = (values.exp() / values.exp().sum()).tolist()
            for k, is_drawn in enumerate(there, start=1):
                if not is_drawn:
                    shares[0] += shares[k]
                    shares[k] = 0.0
            label = int(truth[*place])
            entropies.append(-math.log(shares[label]))
            for k, share in enumerate(shares):
                overlap[k][0] += share * (label == k)
                overlap[k][1] += share + (label == k)
        for k, (both, either) in enumerate(overlap):
            if any_known and (k == 0 or there[k - 1]):
                dices.append(1 - (2 * both + 1e-5) / (either + 1e-5))
    mean = sum(dices) / len(dices) if dices else 0.0
    return mean + (sum(entropies) / len(entropies) if entropies else 0.0)


@pytest.mark.parametrize("has_background", [True, False])
def test_where_everything_is_known_the_loss_is_monais(has_background):
    logits, labels = random_case(0)
    reference = DiceCELoss(include_background=has_background, to_onehot_y=True, softmax=True)
    found = class_loss(logits, labels, has_background=has_background)
    torch.testing.assert_close(found, reference(logits, labels[:, None]))
    masks = (torch.rand_like(logits) > 0.5).double()
    both = DiceLoss(sigmoid=True, batch=True)(logits, masks)
    both = both + F.binary_cross_entropy_with_logits(logits, masks)
    torch.testing.assert_close(region_loss(logits, masks), both)


@pytest.mark.parametrize(
    "drawn", [None, [[True, False, True], [True, True, True]], [[False] * 3, [False, True, False]]]
)
def test_loss_is_the_slow_one_over_what_is_known(drawn):
    logits, labels = random_case(1)
    labels[0, 1:3] = UNKNOWN
    labels[1, :, :, 3:] = UNKNOWN
    given = drawn or [[True] * 3] * 2
    table = torch.tensor([[0, *row] for row in given], dtype=torch.bool)
    table[:, 0] = True
    for one, there in zip(labels, table, strict=True):  # what was not drawn is in no label
        one[(one != UNKNOWN) & ~there[one.clamp(max=3)]] = 0
    found = class_loss(logits, labels, drawn=None if drawn is None else table[:, 1:])
    assert float(found.detach()) == pytest.approx(slow_class_loss(logits, labels, given), abs=1e-9)


def test_a_region_that_was_not_drawn_teaches_nothing():
    logits, labels = random_case(5)
    drawn = torch.tensor([[True, True, False, True], [True, True, True, True]])
    masks = (torch.rand_like(logits) > 0.5).double()
    region_loss(logits, masks, known_regions(labels, drawn)).backward()
    assert not logits.grad[0, 2].any()
    assert logits.grad[1, 2].all()
    assert logits.grad[0, 1].all()


@pytest.mark.parametrize("regions", [None, torch.eye(4, dtype=torch.bool)[1:]])
def test_a_batch_of_which_nothing_is_known_has_no_loss(regions):
    levels = [torch.randn(1, 4 if regions is None else 3, 4, 8, 8) for _ in range(2)]
    task = SegmentationTask(Fixed(levels), made_source(), regions=regions)
    labels = torch.full((1, 4, 8, 8), UNKNOWN, dtype=torch.uint8)
    found = task.forward(SegmentationBatch(torch.zeros(1, 1, 4, 8, 8), labels, ["a"]))
    found["loss"].backward()
    assert float(found["loss"].detach()) == 0
    assert all(not p.grad.any() for p in task.network.parameters())


@pytest.mark.parametrize(("count", "has_background"), [(1, True), (3, True), (3, False)])
def test_every_level_of_the_decoder_leaves_out_what_is_unknown(count, has_background):
    torch.manual_seed(0)
    levels = [torch.randn(2, 3, 8 >> i, 16 >> i, 16 >> i) for i in range(count)]
    labels = torch.randint(0, 3, (2, 8, 16, 16)).to(torch.uint8)
    labels[:, 4:] = UNKNOWN
    full = [F.interpolate(x, size=(8, 16, 16), mode="trilinear")[:, :, :4] for x in levels]
    known = labels[:, :4].long()
    single = partial(class_loss, has_background=has_background)
    weights = [0.5**i for i in range(count)]
    expected = sum(w * single(x, known) for w, x in zip(weights, full, strict=True))
    task = SegmentationTask(Fixed(levels), made_source(), dice_background=has_background)
    found = task.forward(SegmentationBatch(torch.zeros(2, 1, 8, 16, 16), labels, ["a", "b"]))
    torch.testing.assert_close(found["loss"], expected / sum(weights))
    torch.testing.assert_close(found["dice"], batch_dice(levels[0][:, :, :4], known))
