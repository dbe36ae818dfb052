"""Generated scans of four channels with regions in each other, as of brain tumours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from labelled_scans import SHAPE, SPACING, write

CHANNELS = ("T1", "T1ce", "T2", "FLAIR")
REGIONS = {"whole tumour": [1, 2, 4], "tumour core": [1, 4], "enhancing tumour": [4]}
# What each channel shows of necrosis (1), oedema (2) and enhancing tumour (4).
_SHOWN = {"T1": (-40, 0, 0), "T1ce": (-60, 0, 200), "T2": (120, 60, 60), "FLAIR": (0, 150, 150)}


def tumour(
    seed: int, shape: tuple[int, int, int] = SHAPE
) -> tuple[list[npt.NDArray[np.float32]], npt.NDArray[np.uint8]]:
    """Four images and their labels: balls in each other around one centre."""
    rng = np.random.default_rng(seed)
    d, h, w = np.ogrid[: shape[0], : shape[1], : shape[2]]
    z, y, x = (rng.integers(n // 3, 2 * n // 3) for n in shape)
    away = np.sqrt(((d - z) * 2.0) ** 2 + (h - y) ** 2 + (w - x) ** 2)
    labels = np.select([away < 3, away < 6, away < 9], [1, 4, 2]).astype(np.uint8)
    images = [
        rng.normal(100, 5, shape) + np.select([labels == v for v in (1, 2, 4)], _SHOWN[name])
        for name in CHANNELS
    ]
    return [image.astype(np.float32) for image in images], labels


def write_tumours(folder: Path, count: int) -> Path:
    """Write images/case_<i>_000<c>.nii.gz and labels/case_<i>.nii.gz."""
    for i in range(count):
        images, labels = tumour(i)
        for c, image in enumerate(images):
            write(folder / "images" / f"case_{i}_{c:04d}.nii.gz", image, SPACING)
        write(folder / "labels" / f"case_{i}.nii.gz", labels, SPACING)
    return folder
