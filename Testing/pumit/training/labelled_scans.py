"""Small generated data sets: a bright ball and a grey box in noise, with their labels."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import SimpleITK

SHAPE = (14, 30, 28)
SPACING = (2.0, 1.0, 1.0)  # (d, h, w), mm
# The segmentation network of the paper, very small.
TINY_SIZES: dict[str, Any] = {
    "dim": 24,
    "depth": 4,
    "num_heads": 2,
    "hidden": 32,
    "taps": [1, 2, 3, 4],
    "detail_widths": [8, 8],
    "pyramid_widths": [8, 8, 8, 8],
}


def ball_and_box(
    seed: int, shape: tuple[int, int, int] = SHAPE
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint8]]:
    """An image and its labels: 1 the ball, 2 the box."""
    rng = np.random.default_rng(seed)
    d, h, w = np.ogrid[: shape[0], : shape[1], : shape[2]]
    z, y, x = (rng.integers(n // 3, n // 2) for n in shape)
    ball = ((d - z) * 2.0) ** 2 + (h - y) ** 2 + (w - x) ** 2 < 36
    labels = ball.astype(np.uint8)
    labels[2:8, -10:-3, -10:-3] = 2
    image = rng.normal(0, 5, shape) + 200 * (labels == 1) + 100 * (labels == 2)
    return image.astype(np.float32), labels


def write(
    path: Path,
    array: npt.NDArray[Any],
    spacing: Sequence[float] = SPACING,
    origin: Sequence[float] = (0.0, 0.0, 0.0),
) -> Path:
    """Write an array (D, H, W) as an image; spacing in array order."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = SimpleITK.GetImageFromArray(array)
    image.SetSpacing([float(s) for s in spacing[::-1]])
    image.SetOrigin([float(o) for o in origin])
    SimpleITK.WriteImage(image, str(path))
    return path


def write_pairs(folder: Path, count: int, **changes: Any) -> Path:
    """Write images/case_<i>.nii.gz and labels/ with files of the same names."""
    for i in range(count):
        image, labels = ball_and_box(i, changes.get("shape", SHAPE))
        spacing = changes.get("spacing", SPACING)
        write(folder / "images" / f"case_{i}.nii.gz", image, spacing)
        write(folder / "labels" / f"case_{i}.nii.gz", labels, spacing)
    return folder
