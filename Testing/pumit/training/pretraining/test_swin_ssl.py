"""The objective of Swin UNETR's pre-training, and what `pumit pretrain` makes of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from pumit.errors import PumitError
from pumit.models.card import kind_of
from pumit.models.checkpoint import load_checkpoint, save_checkpoint
from pumit.networks.build import build_network
from pumit.networks.swin_ssl import SwinSslAnswer
from pumit.training.pretrain import pretrain, read_recipe_file
from pumit.training.pretraining.image_source import Crop, ImageSource, standardised
from pumit.training.pretraining.swin_ssl import SwinSslTask, ViewBatch, contrastive_loss
from pumit.training.segmentation.initial_weights import load_initial_weights
from torch import Tensor

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
        Crop(32, 64), images=Slopes(), real_share=1.0, batch_size=3, is_upright=True
    )
    return SwinSslTask(network or build_network("swin_ssl", **TINY), source)


def drawn(t: SwinSslTask, seed: int = 0) -> ViewBatch:
    a, b = (torch.Generator().manual_seed(seed) for _ in range(2))
    return t.draw(0, a, b)


def test_views_are_turned_as_they_are_reported_to_be() -> None:
    batch = drawn(task())
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


def test_what_prefetches_draws_the_same() -> None:
    t = task()
    a, b = (torch.Generator().manual_seed(3) for _ in range(2))
    worker_draw = t.worker_draw()(0, a, b)
    assert torch.equal(worker_draw.views, drawn(t, 3).views)
    assert torch.equal(worker_draw.turns, drawn(t, 3).turns)


def test_the_contrastive_loss_is_that_of_a_slow_reference() -> None:
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


def test_the_loss_is_the_sum_of_its_parts_each_weighing_one() -> None:
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


def test_every_parameter_learns() -> None:
    t = task()
    t(drawn(t))["loss"].backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in t.network.parameters())


def recipe(folder: Path, **changes: Any) -> Path:
    content = {
        "name": "encoder",
        "network": "swin_ssl_small",
        "network_sizes": TINY,
        "threads": 1,
        "device": "cpu",
        "batch_size": 2,
        "crop": {"depth": 32, "in_plane": 64},
        "generated_size": 16,
        "schedule": {"steps": 1, "warm_up": 1, "log_every": 1},
        **changes,
    }
    (folder / "r.yaml").write_text(yaml.safe_dump(content))
    return folder / "r.yaml"


@pytest.mark.slow
def test_a_pretrained_checkpoint_is_an_encoder_and_can_begin_another(tmp_path: Path) -> None:
    first = pretrain(recipe(tmp_path), tmp_path / "a")
    found = load_checkpoint(first).recipe
    assert kind_of(found) == "encoder"
    assert found["sizes"]["merging"] == "current"
    again = recipe(tmp_path, initial=str(first))
    pretrain(again, tmp_path / "b", overrides={"steps": 1})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"batch_size": 1}, "batch_size .* at least 2, got 1"),
        ({"crop": {"depth": 48, "in_plane": 64}}, "48 x 64 x 64"),
        ({"crop": {"depth": 32, "in_plane": 32}}, "two cells"),
        ({"degrees": {0: 1.0, 3: 1.0}}, "4 x 64 x 64 voxels at degree 3"),
    ],
)
def test_recipes_that_cannot_work_are_refused(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(PumitError, match=reason):
        read_recipe_file(recipe(tmp_path, **changes))


def test_images_of_other_channels_are_refused(tmp_path: Path) -> None:
    path = recipe(tmp_path, network_sizes={**TINY, "in_channels": 2})
    with pytest.raises(PumitError, match="1 or 3"):
        pretrain(path, tmp_path / "run")


def test_what_begins_with_a_pretrained_encoder_has_exactly_its_encoder(tmp_path: Path) -> None:
    sizes = {k: v for k, v in TINY.items() if k != "contrast_size"}
    torch.manual_seed(1)
    encoder = build_network("swin_ssl", **TINY)
    content = {"network": "swin_ssl", "sizes": dict(TINY), "kind": "encoder"}
    save_checkpoint(tmp_path / "e.safetensors", encoder.state_dict(), content)
    network = build_network("swin_unetr", **sizes)
    before = {k: v.clone() for k, v in network.state_dict().items()}
    load_initial_weights(network, str(tmp_path / "e.safetensors"))
    prefix = "network.swinViT."
    for name, value in network.state_dict().items():
        if name.startswith(prefix):
            assert torch.equal(value, encoder.state_dict()[name.removeprefix("network.")])
        else:
            assert torch.equal(value, before[name])
    name = f"{prefix}patch_embed.proj.weight"
    assert not torch.equal(network.state_dict()[name], before[name])
