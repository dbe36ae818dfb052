"""Draw generated training scans of the promptable model, of kinds without open data.

    python Testing/lab/accuracy/picture_generated_scans.py -o Resources/generated_scans.png

Shows slices of generated trunks and hearts, without and with the outlines of their targets.
"""

import argparse
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from pumit.report.views import BACKGROUND, COLORS, TEXT
from pumit.training.synthesis.layout import SceneShares
from pumit.training.synthesis.scene import Scene, draw_scene

KINDS = {"Trunks": SceneShares(heart=0.0, trunk=1.0), "Hearts": SceneShares(heart=1.0)}
DEGREE = 2  # slices four to eight times as thick as in-plane voxels
SIZE = 96


def show(axes: Axes, scene: Scene, *, has_outlines: bool) -> None:
    """Show the middle slice of a scene."""
    middle = len(scene.image) // 2
    image = scene.image[middle]
    low, high = (float(image.quantile(q)) for q in (0.005, 0.995))
    axes.imshow(image, cmap="gray", vmin=low, vmax=high)
    axes.set_axis_off()
    if has_outlines:
        for i, target in enumerate(scene.targets):
            if target[middle].any():
                color = COLORS[i % len(COLORS)]
                axes.contour(target[middle].float(), [0.5], colors=[color], linewidths=1.2)


def draw(path: Path, *, rows: int, seed: int) -> None:
    """Write the picture, with `rows` rows of two scenes per kind."""
    figure = Figure(figsize=(2.2 * 4, 2.2 * rows * len(KINDS) + 0.3), dpi=75, facecolor=BACKGROUND)
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows * len(KINDS), 4, squeeze=False)
    generator = torch.Generator().manual_seed(seed)
    for kind, (name, shares) in enumerate(KINDS.items()):
        axes[kind * rows][0].set_title(name, color=TEXT, fontsize=10)
        for row in axes[kind * rows : (kind + 1) * rows]:
            for place in (0, 2):
                scene = draw_scene(DEGREE, SIZE, generator, shares=shares)
                show(row[place], scene, has_outlines=False)
                show(row[place + 1], scene, has_outlines=True)
    figure.tight_layout(pad=0.3)
    figure.savefig(path, facecolor=BACKGROUND)


def main() -> None:
    """Read the arguments and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("generated_scans.png"))
    parser.add_argument("--rows", type=int, default=2)
    parser.add_argument("--seed", type=int, default=3)
    args = parser.parse_args()
    draw(args.output, rows=args.rows, seed=args.seed)


if __name__ == "__main__":
    main()
