"""The objective of Swin UNETR's pre-training, and what `pumit pretrain` makes of it."""

import math
from typing import Any

import pytest
import torch
from pretraining_runs import IMAGES, written
from pumit.errors import PumitError
from pumit.models.card import kind_of
from pumit.models.checkpoint import load_checkpoint
from pumit.networks.build import build_network
from pumit.networks.swin_ssl import SwinSslAnswer
from pumit.training.pretrain import pretrain
from pumit.training.pretraining.image_source import ImageSource, standardised
from pumit.training.pretraining.swin_ssl import (
    LONGEST,
    MOST,
    SwinSslTask,
    ViewBatch,
    contrastive_loss,
    damaged,
    draw_cuboids,
)
from pumit.training.recipes.pretraining import CropSize
from torch import Tensor

pytestmark = pytest.mark.usefixtures("blank_pictures")

TINY: dict[str, Any] = {
    "feature_size": 12,
    "depths": [1, 1, 1, 1],
    "num_heads": [1, 1, 2, 2],
    "window_size": 2,
    "contrast_size": 6,
}


class Slopes:
    """Crops that are brighter to the right, each with its own brightness."""

    def draw(
        self, da0: int, shape: tuple[int, int, int], generator: torch.Generator
    ) -> tuple[Tensor, str]:
        step = torch.linspace(0, 0.5, shape[2]).expand(1, *shape)
        return step + 0.4 * torch.rand((), generator=generator), "slope"


def task(network: torch.nn.Module | None = None) -> SwinSslTask:
    torch.manual_seed(0)
    source = ImageSource(
        [CropSize(depth=32, in_plane=64)],
        images=Slopes(),
        real_share=1.0,
        batch_size=3,
        is_upright=True,
    )
    return SwinSslTask(network or build_network("swin_ssl", **TINY), source)


def drawn(t: SwinSslTask, seed: int = 0) -> ViewBatch:
    a, b = (torch.Generator().manual_seed(seed) for _ in range(2))
    return t.draw(0, a, b)


def test_views_are_turned_as_they_are_reported_to_be():
    t = task()
    batch = drawn(t)
    prefetched = t.worker_draw()(0, *(torch.Generator().manual_seed(0) for _ in range(2)))
    assert torch.equal(prefetched.views, batch.views)
    assert torch.equal(prefetched.turns, batch.turns)
    assert batch.views.shape == (6, 1, 32, 64, 64)
    assert batch.voxels == 6 * 32 * 64 * 64
    assert len(batch) == 3
    seen = set()
    for view, k in zip(batch.whole, batch.turns, strict=True):
        back = view.rot90(-int(k), (2, 3))
        rising = back[0].diff(dim=2)
        assert float(rising.min()) >= -1e-6
        assert float(rising.sum()) > 0
        seen.add(int(k))
    assert len(seen) > 1
    # Both views of a crop show the same voxels, damaged in other places.
    for i in range(3):
        first, second = batch.whole[i].flatten().sort(), batch.whole[3 + i].flatten().sort()
        torch.testing.assert_close(first.values, second.values)
    assert not torch.equal(batch.views, batch.whole)


def test_the_contrastive_loss_is_that_of_a_slow_reference():
    vectors = torch.randn(8, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    total = 0.0
    for i in range(8):
        partner = (i + 4) % 8

        def alike(j: int, i: int = i) -> float:
            return math.exp(float(torch.cosine_similarity(vectors[i], vectors[j], dim=0)) / 0.5)

        others = sum(alike(j) for j in range(8) if j != i)
        total -= math.log(alike(partner) / others)
    assert float(contrastive_loss(vectors)) == pytest.approx(total / 8, rel=1e-9)


class Knows(torch.nn.Module):
    """Answers right about the batch that it was given."""

    in_channels = 1

    def __init__(self, batch: ViewBatch) -> None:
        super().__init__()
        self.batch = batch
        self.unused = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> SwinSslAnswer:
        assert torch.equal(x, standardised(self.batch.views))
        turns = 50.0 * torch.nn.functional.one_hot(self.batch.turns, 4)
        return SwinSslAnswer(turns, torch.eye(3).repeat(2, 1), self.batch.whole + 0.25)


def test_the_loss_is_the_sum_of_its_parts_each_weighing_one():
    t = task()
    batch = drawn(t)
    t.network = Knows(batch)
    out = {k: float(v) for k, v in t(batch).items()}
    # Partners are alike (cosine 1), others are not (0): four of them and the partner.
    contrast = math.log((math.exp(2) + 4) / math.exp(2))
    assert out["l1"] == pytest.approx(0.25)
    assert out["turn"] == pytest.approx(0, abs=1e-6)
    assert out["contrast"] == pytest.approx(contrast)
    assert out["loss"] == pytest.approx(0.25 + contrast, rel=1e-5)
    assert out["turns_right"] == 1


RECIPE: dict[str, Any] = {
    **IMAGES,
    "name": "encoder",
    "network": "swin_ssl_small",
    "network_sizes": TINY,
    "batch_size": 2,
    "crop": {"depth": 32, "in_plane": 64},
    "schedule": {"steps": 1, "warm_up": 1, "log_every": 1},
}


@pytest.mark.slow
def test_a_pretrained_checkpoint_is_an_encoder(tmp_path):
    found = load_checkpoint(pretrain(written(tmp_path, RECIPE), tmp_path / "a")).recipe
    assert kind_of(found) == "encoder"
    assert found["sizes"]["merging"] == "current"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"network_sizes": {**TINY, "in_channels": 2}}, "1 or 3"),
        ({"batch_size": 1}, "batch_size .* at least 2, got 1"),
        ({"crop": {"depth": 48, "in_plane": 64}}, "48 x 64 x 64"),
        ({"crop": {"depth": 32, "in_plane": 32}}, "two cells"),
        ({"degrees": {0: 1.0, 3: 1.0}}, "4 x 64 x 64 voxels at degree 3"),
    ],
)
def test_recipes_that_cannot_work_are_refused(tmp_path, changes, reason):
    with pytest.raises(PumitError, match=reason):
        pretrain(written(tmp_path, RECIPE, **changes), tmp_path / "run")


SHAPE = (32, 64, 48)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_cuboids_lie_inside_have_the_sides_that_are_reported_and_are_not_too_many():
    g = generator()
    shares = []
    for _ in range(100):
        cuboids = draw_cuboids(SHAPE, g)
        for cuboid in cuboids:
            for side, n in zip(cuboid, SHAPE, strict=True):
                assert 0 <= side.start < side.stop <= n
                assert max(1, round(0.05 * n)) <= side.stop - side.start <= LONGEST * n
        volumes = [math.prod(side.stop - side.start for side in c) for c in cuboids]
        shares.append(sum(volumes) / math.prod(SHAPE))
    assert max(shares) <= MOST
    assert max(shares) > 0.25
    assert min(shares) < 0.03


def test_noise_spans_the_range_and_other_crops_show_through_in_place():
    # Constant crops: what is neither the crop nor another one is noise.
    images = torch.tensor([2.0, 3.0]).view(2, 1, 1, 1, 1).expand(2, 1, *SHAPE)
    shown = noisy = 0
    for seed in range(8):
        out = damaged(images, generator(seed))
        assert (images[0] == 2).all()
        for i in range(2):
            own, other = (out[i] == images[i]), (out[i] == images[1 - i])
            assert own.float().mean() >= 1 - 2 * MOST
            shown += int(other.any())
            noise = out[i][~own & ~other]
            if noise.numel():
                noisy += 1
                assert (float(noise.min()), float(noise.max())) == (0, 1)
    assert 4 < shown < 12  # the other crop is drawn half of the time
    assert noisy > 10


def test_a_crop_alone_is_damaged_by_noise_only():
    out = damaged(torch.full((1, 1, *SHAPE), 2.0), generator())
    changed = out[out != 2]
    assert changed.numel() <= MOST * math.prod(SHAPE)
    assert float(changed.max()) <= 1
