"""Pre-training of Swin UNETR: inpainting, rotation prediction and contrastive learning."""

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from pumit.errors import PumitError
from pumit.networks.swin_ssl import TURNS, SwinSsl
from pumit.networks.swin_unetr import STRIDE
from pumit.training.loop.context import TrainingRun
from pumit.training.loop.task import Batch, Draw, SourceTask
from pumit.training.pretraining import image_recipe
from pumit.training.pretraining.image_source import ImageSource, standardised
from pumit.training.pretraining.objective import Objective, begun_network
from pumit.training.recipes.pretraining import SwinSslRecipe
from pumit.training.synthesis.grid import integer, uniform

MOST = 0.3  # largest share of the volume to cut out, per kind of filling
SHORTEST, LONGEST = 0.05, 0.25  # side of a cuboid over that of the crop
Cuboid = tuple[slice, slice, slice]
TEMPERATURE = 0.5  # of the contrastive loss


def draw_cuboids(shape: tuple[int, int, int], generator: torch.Generator) -> list[Cuboid]:
    """Draw cuboids whose volumes (overlaps count twice) sum to at most a random share up to 30 %.

    Each side is 5 to 25 % of the crop's, at least one voxel, and cuboids lie inside the crop.

    Differs from the source: there the last cuboid may exceed the share, and cuboids are clipped at
    the far ends of the crop, which are therefore damaged more often and in smaller pieces.
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

    1. Some are filled with Gaussian noise, scaled so that each cuboid spans 0 to 1.
    2. Others are filled from the same position of a random crop of the batch; if that is the crop
       itself, this step is skipped.

    Differs from the source: the other crop is always undamaged.

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
    """Two views of each of B crops: the first view of all crops, then the second.

    Attributes:
        views: Rotated and damaged, intensities in [0, 1], (2B, C, D, H, W).
        turns: Quarter turns of each view in the plane (h, w), (2B,), 0 to 3.
    """

    views: Tensor
    whole: Tensor
    turns: Tensor
    cases: list[str]

    def __len__(self) -> int:
        return len(self.cases)

    @property
    def voxels(self) -> int:
        """Number of voxels of all views."""
        return self.views[:, 0].numel()


def draw_views(
    source: ImageSource,
    channels: int,
    da0: int,
    generator: torch.Generator,
    shared: torch.Generator,
) -> ViewBatch:
    """Draw crops (B, 3, D, H, W), keep their first `channels`, and make two views of each.

    A view is damaged, and rotated by 0 to 3 quarter turns about the depth axis, which preserves the
    shape of every crop. The crops are upright; otherwise rotations could not be recognised.

    Differs from the source: the authors' code rotates in the plane of the last two axes, which is
    y-z in their orientation, and needs cubic crops.
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
    """Self-supervised training of Swin UNETR with inpainting, rotation and contrastive heads.

    Args:
        source: Source of upright crops, at least two per batch for the contrastive loss.

    Source:
        Tang et al., CVPR 2022, eq. 1 to 4, all three losses with weight 1, as released.

    Differs from the source: input intensities are standardised by a fixed affine map, similar to
    the z-scores of fine-tuning. The reconstruction has intensities in [0, 1], as published.
    """

    def worker_draw(self) -> Draw:
        """Return the function that draws views in worker processes."""
        return partial(draw_views, self.source, self.network.in_channels)

    def forward(self, batch: ViewBatch) -> dict[str, Tensor]:
        """Compute the loss of a batch.

        Returns:
            `loss`, the sum of `l1`, `turn` and `contrast`. `l1`: mean absolute error of the whole
            reconstructed view. `turn`: cross-entropy of the rotation, ln 4 by chance. `contrast`:
            see `contrastive_loss`. `turns_right`: share of rotations recognised.
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
    """Compute NT-Xent: identify the other view of a crop among all other views of the batch.

    It is the mean cross-entropy in nats, ln(2B - 1) by chance.

    Args:
        vectors: (2B, C); rows i and B + i are the views of a crop.

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
    """Raise PumitError for invalid keys, without reading data."""
    for da0, shape in image_recipe.shapes_of(recipe):
        if any(n % STRIDE for n in shape) or math.prod(shape) < 2 * STRIDE**3:
            raise PumitError(
                f"A crop has {' x '.join(map(str, shape))} voxels at degree {da0} of "
                f"anisotropy; Swin UNETR takes multiples of {STRIDE}, two cells at least."
            )


def build(recipe: SwinSslRecipe, run: TrainingRun) -> Objective:
    """Build network, data and task of a recipe."""
    image_recipe.require_grey_or_colour(recipe)
    source = image_recipe.image_source(recipe, run.reporter, is_upright=True)
    task = SwinSslTask(begun_network(recipe, SwinSsl), source)
    return image_recipe.objective_of(recipe, task, kind="encoder")
