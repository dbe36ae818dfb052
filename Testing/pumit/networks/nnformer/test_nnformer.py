"""nnFormer: published sizes, fields of any size, deep supervision, and what is refused."""

from typing import Any

import pytest
import torch
from monai.losses import DiceCELoss
from pumit.errors import PumitError
from pumit.networks.build import build_network
from pumit.networks.nnformer.network import NnFormer
from pumit.training.loop.sharding import recomputed, repeated_blocks
from pumit.training.segmentation.patches import SegmentationBatch
from pumit.training.segmentation.task import SegmentationTask
from torch import Tensor
from torch.nn import functional as F

TINY: dict[str, Any] = {
    "dim": 8,
    "depths": (2, 2, 1),
    "num_heads": (1, 2, 4),
    "decoder_num_heads": (2, 2),
    "merges": ((2, 2, 2), (2, 2, 2)),
    "windows": ((2, 2, 2), (2, 3, 2), (4, 4, 4)),
    "patch": (2, 2, 2),
    "num_classes": 3,
}


def tiny(**sizes: Any) -> NnFormer:
    torch.manual_seed(0)
    return build_network("nnformer_small", **{**TINY, "num_supervised_levels": 2, **sizes})


@pytest.mark.parametrize(
    ("sizes", "size", "second"),
    [
        ({}, (9, 12, 17), (5, 6, 9)),  # odd, and odd grids after the merges
        ({}, (4, 4, 4), (2, 2, 2)),  # the smallest: every grid is smaller than its window
        ({"merges": ((1, 2, 2), (2, 2, 2))}, (6, 16, 16), (6, 8, 8)),  # slices farther apart
    ],
)
def test_logits_lie_on_the_fields_grid_and_gradients_reach_all(sizes, size, second):
    network = tiny(in_channels=2, **sizes)
    x = torch.randn(2, 2, *size)
    levels = network(x, deep_supervision=True)
    assert [tuple(x.shape) for x in levels] == [(2, 3, *size), (2, 3, *second)]
    assert torch.equal(network.eval()(x), network(x, deep_supervision=True)[0])
    network.train()
    sum(level.square().mean() for level in levels).backward()
    for name, p in network.named_parameters():
        assert p.grad is not None, name
        assert p.grad.isfinite().all(), name
        # Where a grid is one token, attention is its value alone.
        assert size == (4, 4, 4) or p.grad.abs().sum() > 0, name


def test_the_official_options_change_the_answer_and_no_weight():
    windows = ((2, 2, 2),) * 3
    state = {
        name: torch.randn_like(p) if name.endswith("bias.table") else p
        for name, p in tiny(windows=windows).state_dict().items()
    }
    x = torch.randn(1, 1, 16, 16, 16)
    answers = []
    for options in ({}, {"official_index": True}, {"official_unmasked_shift": True}):
        network = tiny(windows=windows, **options).eval()
        network.load_state_dict(state)
        answers.append(network(x))
    assert not torch.allclose(answers[0], answers[1])
    assert not torch.allclose(answers[0], answers[2])


def test_the_trainer_weighs_three_levels_as_published():
    sizes = {**TINY, "merges": ((2, 2, 2),) * 3, "windows": ((2, 2, 2),) * 4}
    sizes |= {"depths": (1,) * 4, "num_heads": (1,) * 4, "decoder_num_heads": (1,) * 3}
    network = tiny(**sizes, num_supervised_levels=3, drop_path=0.0)
    labels = torch.randint(0, 3, (1, 16, 16, 16), dtype=torch.uint8)
    batch = SegmentationBatch(torch.randn(1, 1, 16, 16, 16), labels, ["a"])
    task = SegmentationTask(network, None)  # nothing is drawn

    found = task(batch)["loss"]

    def loss(logits: Tensor) -> Tensor:
        full = F.interpolate(logits, size=(16, 16, 16), mode="trilinear")
        return DiceCELoss(to_onehot_y=True, softmax=True)(full, labels[:, None].long())

    first, second, third = (loss(x) for x in network(batch.image, deep_supervision=True))
    torch.testing.assert_close(found, 4 / 7 * first + 2 / 7 * second + 1 / 7 * third)


def test_blocks_are_found_and_may_be_computed_again():
    network = tiny(drop_path=0.0)
    assert len(repeated_blocks(network)) == 5 + 4
    x = torch.randn(1, 1, 8, 12, 8)
    gradients = []
    for enabled in (False, True):
        network.zero_grad()
        with recomputed(network, enabled=enabled):
            network(x).square().mean().backward()
        gradients.append([p.grad for p in network.parameters() if p.grad is not None])
    torch.testing.assert_close(gradients[0], gradients[1])


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((1, 2, 16, 16, 16), "reads 1 image channel, got 2"),
        ((1, 1, 2, 16, 16), "2 x 16 x 16 voxels is smaller than the 4 x 4 x 4"),
    ],
)
def test_fields_that_do_not_fit_are_refused_in_one_line(shape, words):
    with pytest.raises(PumitError, match=words) as error:
        tiny()(torch.zeros(shape))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"num_classes": 0}, "num_classes must be at least 1"),
        ({"dim": 7}, "even width"),
        ({"num_heads": (3, 2, 4)}, "3 heads do not divide a width of 8"),
        ({"num_heads": (1, 2)}, "num_heads must have 3 entries"),
        ({"num_heads": (0, 2, 4)}, "num_heads must be at least 1"),
        ({"windows": [[2, 2, 2]]}, "windows must have 3"),
        ({"windows": [[2, 2], [2, 2], [2, 2]]}, "three numbers"),
        ({"merges": [[3, 2, 2], [2, 2, 2]]}, "each of 1, 2"),
        ({"num_supervised_levels": 3}, "must be 1 to 2"),
        ({"depths": (2,)}, "at least two stages"),
        ({"drop_path": 1.5}, "drop_path must be"),
    ],
)
def test_sizes_that_do_not_fit_together_are_refused_in_one_line(wrong, words):
    with pytest.raises(PumitError, match=words) as error:
        tiny(**wrong)
    assert "\n" not in str(error.value)


def test_half_precision_gives_finite_answers():
    network = tiny()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = network(torch.randn(1, 1, 9, 8, 8))
    assert logits.isfinite().all()
    logits.float().sum().backward()
