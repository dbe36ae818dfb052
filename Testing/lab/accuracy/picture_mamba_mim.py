"""Draw MambaMIM's reconstruction of masked cells: scan, visible cells and reconstruction.

    python Testing/lab/accuracy/picture_mamba_mim.py CHECKPOINT -o mamba_mim.png

Each row is the middle slice of a generated scan that was not in the training. The network predicts
cells normalised by their own mean and deviation; the true values of both are restored, as in the
figures of masked auto-encoder papers.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from pumit.inference.loading import build_from, read_model
from pumit.networks.mamba_mim.mamba_mim import MambaMim
from pumit.networks.mamba_mim.masking import random_cells, stage_masks
from pumit.report.style import BACKGROUND, TEXT
from pumit.training.pretraining.image_source import Crop, ImageSource, standardised
from pumit.training.pretraining.mamba_mim import VARIANCE_FLOOR, cells_of
from pumit.training.recipes.pretraining import MAMBA_MASK_RATIO
from torch import Tensor

TITLES = ("Scan", "What the network sees", "Hidden cells filled in")
HIDDEN = 0.08  # a grey different from air and from the background


def image_of(cells: Tensor, grid: tuple[int, int, int], size: torch.Size) -> Tensor:
    """Assemble cells into the image (B, C, D, H, W) of `size`; inverse of `cells_of`."""
    batch, channels, *voxels = size
    split = [n // g for n, g in zip(voxels, grid, strict=True)]
    parts = cells.reshape(batch, *grid, channels, *split)
    return parts.permute(0, 4, 1, 5, 2, 6, 3, 7).reshape(size)


@torch.no_grad()
def rows(network: MambaMim, count: int, seed: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return scan, visible cells and reconstruction of each image, (D, H, W) in [0, 1]."""
    generator = torch.Generator().manual_seed(seed)
    source = ImageSource(Crop(32, 64), images=None, real_share=0, batch_size=count)
    image = source.draw(0, generator, generator).image[:, : network.in_channels]
    grid = network.grid(image.shape[2:])
    visible = random_cells(count, grid, ratio=MAMBA_MASK_RATIO, generator=generator)
    truth, said = cells_of(image, grid), cells_of(network(standardised(image), visible), grid)
    deviation = (truth.var(2, keepdim=True, correction=0) + VARIANCE_FLOOR).sqrt()
    filled = image_of(said * deviation + truth.mean(2, keepdim=True), grid, image.shape)
    seen = stage_masks(visible, [network.stride])[0]
    shown = torch.where(seen, image, torch.full_like(image, HIDDEN))
    answers = torch.where(seen, image, filled.clamp(0, 1))
    return [(a[0], b[0], c[0]) for a, b, c in zip(image, shown, answers, strict=True)]


def draw(images: list[tuple[Tensor, Tensor, Tensor]], path: Path) -> None:
    """Write the picture."""
    figure = Figure(figsize=(7.5, 2.5 * len(images) + 0.3), dpi=130, facecolor=BACKGROUND)
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(images), 3, squeeze=False)
    for row, (line, columns) in enumerate(zip(axes, images, strict=True)):
        for place, column, title in zip(line, columns, TITLES, strict=True):
            place.imshow(column[len(column) // 2], cmap="gray", vmin=0, vmax=1)
            place.set_axis_off()
            if row == 0:
                place.set_title(title, color=TEXT, fontsize=10)
    figure.tight_layout()
    figure.savefig(path, facecolor=BACKGROUND)


def main() -> None:
    """Read the arguments and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("mamba_mim.png"))
    parser.add_argument("--images", type=int, default=3)
    parser.add_argument("--seed", type=int, default=100_000)
    args = parser.parse_args()
    network = build_from(
        read_model(args.checkpoint, "encoder"), args.checkpoint, torch.device("cpu")
    )
    assert isinstance(network, MambaMim)
    draw(rows(network.eval(), args.images, args.seed), args.output)


if __name__ == "__main__":
    main()
