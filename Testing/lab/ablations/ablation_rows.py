"""The rows of the ablation: the full network and variants without one part each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from pumit.networks.build import PROMPTABLE
from pumit.networks.promptable.image_encoder import ImageEmbedding
from pumit.networks.promptable.network import IMAGE_CHANNELS, PromptableNetwork
from pumit.networks.promptable.prompt_encoder import PromptBatch, PromptEncoder
from pumit.networks.pumit import Anisotropy
from pumit.training.loop import trainer
from pumit.training.promptable.task import DEGREE_SHARES, DEGREES
from torch import Tensor
from torch.nn import functional as F

BASE = {
    **PROMPTABLE,
    "field_size": 32,
    "widths": (8, 16, 32),
    "dim": 96,
    "depth": 3,
    "num_heads": 3,
    "geodesic": True,
}
LEARNING_RATE = 3e-3  # above the default recipe's: narrow networks, short runs
WARM_UP = 20
SEED = 1


class PlainConvolution(PromptableNetwork):
    """Plain 3D convolution: every field is treated as isotropic, whatever its spacing.

    Depth is padded at its end, by replication, to a multiple of eight for three downsamplings.
    """

    def embed(self, image: Tensor, anisotropy: Anisotropy) -> ImageEmbedding:
        return super().embed(_padded(image), Anisotropy(0))

    def decode(self, embedding: ImageEmbedding, prompts: PromptBatch) -> tuple[Tensor, Tensor]:
        depth = prompts.prior.shape[2]
        padded = dataclasses.replace(prompts, prior=_padded(prompts.prior))
        logits, iou = super().decode(embedding, padded)
        return logits[:, :, :depth], iou


def _padded(x: Tensor) -> Tensor:
    return F.pad(x, (0, 0, 0, 0, 0, -x.shape[2] % 8), mode="replicate")


class WithoutScaleAndBias(PromptableNetwork):
    """Plain attention, without BA-SAM's scaling factor and bias."""

    def __init__(self, **sizes: Any) -> None:
        super().__init__(**sizes)
        for block in self.image_encoder.blocks:
            block.attention.train_tokens = None
            del block.attention.slope


class WithoutLikeness(PromptableNetwork):
    """Zero maps for the similarity to clicked or boxed intensities."""

    def __init__(self, **sizes: Any) -> None:
        super().__init__(**sizes)
        encoder = BlindEncoder(
            sizes["dim"], sizes["field_size"], IMAGE_CHANNELS - 1, geodesic=sizes["geodesic"]
        )
        encoder.load_state_dict(self.prompt_encoder.state_dict())
        self.prompt_encoder = encoder


class BlindEncoder(PromptEncoder):
    """Prompt encoder with zero likeness maps.

    The maps are ordered near, far and likenesses of positive clicks, then those of negative ones.
    """

    def dense(self, prompts: PromptBatch, embedding: ImageEmbedding) -> Tensor:
        maps = super().dense(prompts, embedding)
        shown = torch.ones(maps.shape[1])
        group = 2 + self.image_channels
        for first in (2, group + 2):
            shown[first : first + self.image_channels] = 0
        return maps * shown[:, None, None, None]


@dataclass(frozen=True, eq=False)
class Row:
    """One network of the table, and its differences from the first."""

    key: str
    title: str
    network_class: type[PromptableNetwork] = PromptableNetwork
    sizes: Mapping[str, Any] = field(default_factory=dict)
    seed: int = SEED
    is_adamw: bool = False


ROWS = [
    Row("all", "all of it"),
    Row("plain", "plain 3D convolution", PlainConvolution),
    Row("no_ba", "without BA-SAM's scaling and bias", WithoutScaleAndBias),
    Row("no_geodesic", "without geodesic maps", sizes={"geodesic": False}),
    Row("no_likeness", "without likeness maps", WithoutLikeness),
    Row("adamw", "AdamW instead of Muon", is_adamw=True),
    Row("half", "half the width", sizes={"widths": (4, 8, 16), "dim": 48}),
    Row("twice", "twice the width", sizes={"widths": (16, 32, 64), "dim": 192, "num_heads": 6}),
    Row("again", "all of it, other initial weights", seed=SEED + 1),
]


def build(row: Row) -> PromptableNetwork:
    """Build the row's network; networks of equal sizes have equal initial weights."""
    torch.manual_seed(row.seed)
    return row.network_class(**{**BASE, **row.sizes})


def without_muon(
    network: torch.nn.Module, schedule: trainer.Schedule, groups: Any = None
) -> torch.optim.Optimizer:
    optimizer = MUON(network, schedule, groups)
    for group in optimizer.param_groups:
        group["orthogonal"] = False
    return optimizer


MUON = trainer.optimizer_for


def fields_seen(steps: int, batch: int) -> int:
    """Count the fields of `steps` steps, with the degrees that the training loop draws."""
    shares, count = torch.tensor(DEGREE_SHARES), 0
    for step in range(steps):
        shared = torch.Generator().manual_seed(SEED * 1_000_003 + step)
        da0 = DEGREES[int(torch.multinomial(shares, 1, generator=shared))]
        count += batch * (1, 1, 2, 3, 4, 8)[da0]
    return count
