"""MambaMIM: predict the voxels of masked cells, normalised per cell."""

from functools import partial

import torch
from torch import Tensor

from pumit.errors import PumitError
from pumit.networks.build import build_network
from pumit.networks.mamba_mim.mamba_mim import MambaMim
from pumit.networks.mamba_mim.masking import random_cells
from pumit.training.loop.context import TrainingRun
from pumit.training.loop.task import Draw, SourceTask
from pumit.training.pretraining import image_recipe
from pumit.training.pretraining.image_source import ImageBatch, ImageSource, standardised
from pumit.training.pretraining.objective import Objective, begun_network
from pumit.training.recipes.pretraining import MAMBA_MASK_RATIO, MambaMimRecipe

VARIANCE_FLOOR = 1e-6  # for intensities in [0, 1]; cells of air have zero variance

Triple = tuple[int, int, int]


def draw_hidden(
    source: ImageSource,
    stride: Triple,
    ratio: float,
    da0: int,
    generator: torch.Generator,
    shared: torch.Generator,
) -> ImageBatch:
    """Draw images, and mask cells at random."""
    batch = source.draw(da0, generator, shared)
    grid = [n // step for n, step in zip(batch.image.shape[2:], stride, strict=True)]
    visible = random_cells(len(batch), grid, ratio=ratio, generator=generator)
    batch.is_masked = ~visible.flatten(1)
    return batch


class MambaMimTask(SourceTask):
    """Masked image modelling of MambaMIM: mask cells and reconstruct them.

    Source:
        Tang et al., MambaMIM, 2024, sections 2 and 3.2.

    Differs from the source: input intensities are standardised by a fixed affine map, similar to
    the z-scores of fine-tuning.
    """

    def __init__(
        self, network: MambaMim, source: ImageSource, *, mask_ratio: float = MAMBA_MASK_RATIO
    ) -> None:
        super().__init__(network, source)
        self.mask_ratio = mask_ratio

    def worker_draw(self) -> Draw:
        """Return the function that draws batches with masked cells in worker processes."""
        return partial(draw_hidden, self.source, self.network.stride, self.mask_ratio)

    def forward(self, batch: ImageBatch) -> dict[str, Tensor]:
        """Compute the loss of a batch.

        Returns:
            `loss`, the mean squared error of the masked cells, each normalised by its own mean and
            standard deviation; about 1 for a constant prediction, less in air. For the log: `mse`,
            the error in intensities of 0 to 1; `mse_mean`, that of filling each masked cell with
            its true mean; `psnr` of `mse`, dB.
        """
        assert batch.is_masked is not None
        batch = batch.to(next(self.network.parameters()).device)
        assert batch.is_masked is not None
        image = batch.image[:, : self.network.in_channels]
        grid = self.network.grid(image.shape[2:])
        visible = ~batch.is_masked.view(len(batch), 1, *grid)
        answer = self.network(standardised(image), visible)
        with torch.autocast(image.device.type, enabled=False):
            truth = cells_of(image, grid)[batch.is_masked]  # (M, C * voxels)
            filled = cells_of(answer.float(), grid)[batch.is_masked]
            mean = truth.mean(1, keepdim=True)
            deviation = (truth.var(1, keepdim=True, correction=0) + VARIANCE_FLOOR).sqrt()
            loss = (filled - (truth - mean) / deviation).square().mean()
            with torch.no_grad():
                mse = (filled * deviation + mean - truth).square().mean()
                mse_mean = (truth - mean).square().mean()
        return {"loss": loss, "mse": mse, "mse_mean": mse_mean, "psnr": -10 * mse.log10()}


def cells_of(image: Tensor, grid: Triple) -> Tensor:
    """Split (B, C, D, H, W) into cells in raster order: (B, N, C * voxels)."""
    batch, channels, *size = image.shape
    split = [m for n, cells in zip(size, grid, strict=True) for m in (cells, n // cells)]
    parts = image.reshape(batch, channels, *split)  # (B, C, d, D / d, h, H / h, w, W / w)
    cells = parts.permute(0, 2, 4, 6, 1, 3, 5, 7)
    return cells.reshape(batch, grid[0] * grid[1] * grid[2], -1)


def check(recipe: MambaMimRecipe) -> None:
    """Raise PumitError for invalid keys, without reading data."""
    shapes = image_recipe.shapes_of(recipe)
    with torch.device("meta"):  # allocates no memory
        network = build_network(recipe.network, **recipe.network_sizes)
    assert isinstance(network, MambaMim)
    image_recipe.require_grey_or_colour(recipe)
    for da0, shape in shapes:
        try:
            grid = network.grid(shape)
        except ValueError as error:
            text = f"A crop does not fit at degree {da0} of anisotropy: {error}"
            raise PumitError(text) from None
        if bool(random_cells(1, grid, ratio=recipe.mask_ratio).all()):
            raise PumitError(
                f"A mask_ratio of {recipe.mask_ratio} hides none of the cells of a crop at "
                f"degree {da0} of anisotropy; make the crop or the ratio larger."
            )


def build(recipe: MambaMimRecipe, run: TrainingRun) -> Objective:
    """Build network, data and task of a recipe."""
    source = image_recipe.image_source(recipe, run.reporter)
    task = MambaMimTask(begun_network(recipe, MambaMim), source, mask_ratio=recipe.mask_ratio)
    return image_recipe.objective_of(recipe, task, kind="encoder")
