"""Pre-training of Swin UNETR: fill what is cut out, tell turns, recognise views."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from pumit.errors import PumitError
from pumit.networks.swin_ssl import TURNS, SwinSsl
from pumit.networks.swin_unetr import STRIDE
from pumit.training.loop.task import Batch, Draw, SourceTask
from pumit.training.pretraining import image_recipe
from pumit.training.pretraining.image_source import ImageSource, standardised
from pumit.training.pretraining.objective import (
    BuildContext,
    Objective,
    begun_network,
    sizes_of,
)
from pumit.training.recipes.pretraining import SwinSslRecipe
from pumit.training.synthesis.grid import integer, uniform

MOST = 0.3  # of the volume is cut out, each time
SHORTEST, LONGEST = 0.05, 0.25  # of a side of the crop, for that of a cuboid
Cuboid = tuple[slice, slice, slice]
TEMPERATURE = 0.5  # which cosines are divided by


def draw_cuboids(shape: tuple[int, int, int], generator: torch.Generator) -> list[Cuboid]:
    """Cuboids whose volumes, overlaps counted twice, sum to a random share of at most 30 %.

    Each side has 5 to 25 % of the crop's, one voxel at least, and all of it lies inside.

    Differs from the source: there the last cuboid may go beyond the share, and cuboids are cut off
    at the far ends of the crop, so that these are damaged more often and in smaller pieces.

    Args:
        shape: Shape of the crop (d, h, w).
    """
    most = uniform(generator, 0, MOST) * math.prod(shape)
    cuboids: list[Cuboid] = []
    total = 0
    while True:
        d, h, w = (_stretch(n, generator) for n in shape)
        total += math.prod(side.stop - side.start for side in (d, h, w))
        if total > most:
            return cuboids
        cuboids.append((d, h, w))


def _stretch(n: int, generator: torch.Generator) -> slice:
    length = integer(generator, max(1, round(SHORTEST * n)), max(1, int(LONGEST * n)))
    start = integer(generator, 0, n - length)
    return slice(start, start + length)


def damaged(images: Tensor, generator: torch.Generator) -> Tensor:
    """Cut cuboids out of every crop of a batch.

    1. Filled with noise of a normal distribution, scaled so that each cuboid spans 0 to 1.
    2. Others filled with the same place of another crop of the batch, drawn at random; where it
       is the crop itself, nothing is cut out.

    Differs from the source: the other crop is undamaged, whatever its number.

    Args:
        images: Intensities in [0, 1], (B, C, D, H, W); unchanged.

    Source:
        Tang et al., CVPR 2022, section 3.1 and its released code.
    """
    out = images.clone()
    d, h, w = images.shape[2:]
    for i in range(len(images)):
        for cuboid in draw_cuboids((d, h, w), generator):
            where = (i, slice(None), *cuboid)
            noise = torch.randn(out[where].shape, generator=generator)
            low, high = noise.aminmax()
            out[where] = (noise - low) / (high - low).clamp_min(1e-6)
        other = integer(generator, 0, len(images) - 1)
        if other != i:
            for cuboid in draw_cuboids((d, h, w), generator):
                out[(i, slice(None), *cuboid)] = images[(other, slice(None), *cuboid)]
    return out


@dataclass
class ViewBatch(Batch):
    """Two views of each of B crops: first one of all, then the other of all.

    Attributes:
        views: Turned and damaged, intensities in [0, 1], (2B, C, D, H, W).
        whole: The same, undamaged.
        turns: Quarter turns of each in the plane (h, w), (2B,), 0 to 3.
    """

    views: Tensor
    whole: Tensor
    turns: Tensor
    cases: list[str]

    def __len__(self) -> int:
        return len(self.cases)

    @property
    def voxels(self) -> int:
        """Voxels of all views."""
        return self.views[:, 0].numel()


def draw_views(
    source: ImageSource,
    channels: int,
    da0: int,
    generator: torch.Generator,
    shared: torch.Generator,
) -> ViewBatch:
    """Draw crops and make two views of each.

    A view is turned by 0 to 3 quarter turns in the plane (h, w), about the depth axis, which keeps
    the shape of every crop, and damaged.

    Differs from the source: the authors' code turns in the plane of the last two axes, which in
    their orientation is y-z; it takes cubes.

    Args:
        source: Draws crops (B, 3, D, H, W), all of them upright: how a view was turned cannot be
            distinguished from others.
        channels: Number of the three channels to keep, from the first on.
        generator: Generator of this process and step, on the CPU.
        shared: Generator in the same state in every process.
    """
    batch = source.draw(da0, generator, shared)
    crops = batch.image[:, :channels]
    turns = torch.randint(TURNS, (2, len(crops)), generator=generator)
    whole = [
        torch.stack([c.rot90(int(k), (2, 3)) for c, k in zip(crops, of_view, strict=True)])
        for of_view in turns
    ]
    views = [damaged(view, generator) for view in whole]
    return ViewBatch(torch.cat(views), torch.cat(whole), turns.flatten(), batch.cases)


class SwinSslTask(SourceTask):
    """Draw views of crops and score what the three heads say of them.

    Args:
        source: Draws upright crops, two at least: each is distinguished from the others.

    Source:
        Tang et al., CVPR 2022, eq. 1 to 4, all three losses weighing 1, as released.

    Differs from the source: intensities are standardised for the network by one affine map, as
    fine-tuning's z-scores are; the reconstruction is of intensities in [0, 1], as published.
    """

    def worker_draw(self) -> Draw:
        """Return what draws views in worker processes."""
        return partial(draw_views, self.source, self.network.in_channels)

    def forward(self, batch: ViewBatch) -> dict[str, Tensor]:
        """Score a batch.

        Returns:
            `loss`, the sum of the three that follow for the log: `l1`, the mean error of the whole
            filled-in view; `turn`, cross-entropy of its quarter turns, ln 4 where nothing is
            known; `contrast`, see `contrastive_loss`; and `turns_right`, the share of turns
            recognised.
        """
        batch = batch.to(next(self.network.parameters()).device)
        answer = self.network(standardised(batch.views))
        with torch.autocast(batch.views.device.type, enabled=False):
            l1 = F.l1_loss(answer.image.float(), batch.whole)
            turn = F.cross_entropy(answer.turns.float(), batch.turns)
            contrast = contrastive_loss(answer.contrast.float())
        recognised = (answer.turns.argmax(1) == batch.turns).float().mean()
        return {
            "loss": l1 + turn + contrast,
            "l1": l1.detach(),
            "turn": turn.detach(),
            "contrast": contrast.detach(),
            "turns_right": recognised,
        }


def contrastive_loss(vectors: Tensor) -> Tensor:
    """NT-Xent: find the other view of a crop among all other views of the batch.

    Args:
        vectors: (2B, C); rows i and B + i are the views of a crop.

    Returns:
        The mean cross-entropy in nats; ln(2B - 1) where nothing is known.

    Source:
        Chen et al., SimCLR, ICML 2020, eq. 1.
    """
    count = len(vectors)
    unit = F.normalize(vectors, dim=1)
    alike = unit @ unit.T / TEMPERATURE  # (2B, 2B)
    itself = torch.eye(count, dtype=torch.bool, device=vectors.device)
    partner = torch.arange(count, device=vectors.device).roll(count // 2)
    return F.cross_entropy(alike.masked_fill(itself, float("-inf")), partner)


def check(recipe: SwinSslRecipe) -> None:
    """Raise PumitError for keys that cannot be used, reading no data."""
    image_recipe.check(recipe)
    for crop in image_recipe.crops_of(recipe):
        for da0 in image_recipe.degrees_with_share(recipe):
            shape = crop.shape(da0)
            if any(n % STRIDE for n in shape) or math.prod(shape) < 2 * STRIDE**3:
                raise PumitError(
                    f"A crop has {' x '.join(map(str, shape))} voxels at degree {da0} of "
                    f"anisotropy; Swin UNETR takes multiples of {STRIDE}, two cells at least."
                )


def build(recipe: SwinSslRecipe, context: BuildContext) -> Objective:
    """Build network, data and task of a recipe.

    Raises:
        PumitError: If its data or weights are missing, or the network takes no such images.
    """
    channels = sizes_of(recipe)["in_channels"]
    if channels not in (1, 3):
        raise PumitError(f"in_channels of {recipe.network} is 1 or 3, got {channels}.")
    source = image_recipe.image_source(recipe, is_upright=True)
    task = SwinSslTask(begun_network(recipe, SwinSsl), source)
    content = image_recipe.model_content(recipe, kind="encoder")
    return Objective(task, image_recipe.degrees_with_share(recipe), content)
