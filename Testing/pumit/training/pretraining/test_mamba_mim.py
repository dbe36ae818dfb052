"""MambaMIM's objective, and the encoder that it trains."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from mim_networks import TINY, tiny_mim
from pretraining_runs import IMAGES, written
from pumit.errors import CheckpointError, PumitError
from pumit.models.card import kind_of
from pumit.models.checkpoint import load_checkpoint
from pumit.networks.build import build_network
from pumit.training.pretrain import pretrain
from pumit.training.pretraining.image_source import ImageSource
from pumit.training.pretraining.mamba_mim import VARIANCE_FLOOR, MambaMimTask
from pumit.training.recipes.pretraining import CropSize
from pumit.training.segmentation.initial_weights import load_initial_weights
from torch import Tensor

pytestmark = pytest.mark.usefixtures("blank_pictures")

POOLINGS = [[1, 2, 2], [1, 2, 2], [2, 2, 2], [2, 2, 2]]


def task(ratio: float = 0.75) -> MambaMimTask:
    crop = CropSize(depth=16, in_plane=32)
    source = ImageSource([crop], images=None, real_share=0, batch_size=2, generated_size=16)
    return MambaMimTask(tiny_mim("mamba_mim"), source, mask_ratio=ratio)


def drawn(t: MambaMimTask, seed: int = 0) -> Any:
    generators = [torch.Generator().manual_seed(seed) for _ in range(2)]
    return t.draw(0, *generators)


class Says(torch.nn.Module):
    """A network that answers the same whatever it sees."""

    def __init__(self, answer: Tensor) -> None:
        super().__init__()
        self.answer = torch.nn.Parameter(answer)
        self.stride, self.in_channels = (4, 16, 16), 1

    def grid(self, size: tuple[int, int, int]) -> tuple[int, int, int]:
        return size[0] // 4, size[1] // 16, size[2] // 16

    def forward(self, x: Tensor, visible: Tensor) -> Tensor:
        return self.answer


def slow(answer: Tensor, image: Tensor, is_masked: Tensor) -> dict[str, float]:
    """Cell by cell, in NumPy."""
    errors, plain, means = [], [], []
    for b in range(len(image)):
        for n in torch.nonzero(is_masked[b]).flatten().tolist():
            d, h, w = 4 * (n // 4), 16 * (n // 2 % 2), 16 * (n % 2)
            where = (b, 0, slice(d, d + 4), slice(h, h + 16), slice(w, w + 16))
            truth, said = image[where].numpy(), answer[where].numpy()
            deviation = np.sqrt(truth.var() + VARIANCE_FLOOR)
            errors.append(np.mean((said - (truth - truth.mean()) / deviation) ** 2))
            plain.append(np.mean((said * deviation + truth.mean() - truth) ** 2))
            means.append(truth.var())
    return {"loss": np.mean(errors), "mse": np.mean(plain), "mse_mean": np.mean(means)}


def test_only_hidden_cells_are_scored_each_by_its_own_mean_and_contrast():
    t = task()
    batch = drawn(t)
    batch.image = batch.image.double()
    answer = torch.randn(2, 1, 16, 32, 32, dtype=torch.float64)
    t.network = Says(answer)
    out = t(batch)
    expected = slow(answer, batch.image, batch.is_masked)
    assert {k: float(out[k].detach()) for k in expected} == pytest.approx(expected, rel=1e-6)
    assert float(out["psnr"]) == pytest.approx(-10 * np.log10(expected["mse"]))

    is_hidden = ~batch.is_masked.view(2, 1, 4, 2, 2)
    seen = is_hidden.repeat_interleave(4, 2).repeat_interleave(16, 3).repeat_interleave(16, 4)
    t.network = Says(torch.where(seen, answer + 9, answer))
    assert float(t(batch)["loss"].detach()) == pytest.approx(expected["loss"], rel=1e-6)


def test_masks_hide_the_share_and_what_prefetches_draws_the_same():
    t = task()
    batch = drawn(t, 3)
    assert (~batch.is_masked).sum(1).tolist() == [4, 4]
    assert not torch.equal(*batch.is_masked)
    worker_draw = t.worker_draw()(0, *[torch.Generator().manual_seed(3) for _ in range(2)])
    assert torch.equal(batch.image, worker_draw.image)
    assert torch.equal(batch.is_masked, worker_draw.is_masked)


RECIPE: dict[str, Any] = {
    **IMAGES,
    "name": "tiny",
    "network": "mamba_mim_small",
    "network_sizes": {**{k: [*v] if isinstance(v, tuple) else v for k, v in
                         TINY["mamba_mim"].items()}, "poolings": POOLINGS},
    "schedule": {**IMAGES["schedule"], "optimizer": "adamw"},
}  # fmt: skip


@pytest.mark.slow
def test_the_encoder_that_is_trained_begins_hymambas(tmp_path, capsys):
    model = pretrain(written(tmp_path, RECIPE), tmp_path / "run")
    checkpoint = load_checkpoint(model)
    assert kind_of(checkpoint.recipe) == "encoder"
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    lines = [line for line in said if "loss" in line]
    assert {"loss", "mse", "mse_mean", "psnr"} <= lines[0].keys()

    theirs = {k: v for k, v in RECIPE["network_sizes"].items() if k != "decoder_widths"}
    network = build_network("hymamba_small", num_classes=3, last_width=4, **theirs)
    drawn_head = network.head.weight.clone()
    load_initial_weights(network, str(model))
    for name, value in network.encoder.state_dict().items():
        if name.startswith("skips.0."):  # of the finest map, which the pre-training does not read
            continue
        assert torch.equal(value, checkpoint.state[f"encoder.{name}"].float()), name
    assert torch.equal(network.head.weight, drawn_head)

    with pytest.raises(CheckpointError, match="other sizes"):
        load_initial_weights(build_network("hymamba_small"), str(model))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"mask_ratio": 1.5}, "mask_ratio"),
        ({"mask_ratio": 0.01}, "hides none of the cells"),
        ({"degrees": {3: 1.0}}, "does not fit at degree 3"),
        ({"network_sizes": {"in_channels": 2}}, "in_channels of mamba_mim_small is 1 or 3"),
        ({"network_sizes": {"decoder_widths": [8]}}, "needs 5 widths"),
        ({"maks_ratio": 0.5}, "did you mean 'mask_ratio'"),
    ],
)
def test_recipes_that_cannot_be_used_are_refused_in_one_line(tmp_path, change, reason):
    with pytest.raises(PumitError, match=reason) as error:
        pretrain(written(tmp_path, RECIPE, **change), tmp_path / "run")
    assert "\n" not in str(error.value)
