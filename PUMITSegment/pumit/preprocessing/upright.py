"""Reorientation of prepared images to anatomical directions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from pumit.io.read import scanned_axis
from pumit.preprocessing.pretraining_image import PreparedImage, prepare
from pumit.volume import Volume

Triple = tuple[float, float, float]


def prepare_upright(
    path: Path, depth_axis: str | None = None, *, series: str | None = None
) -> tuple[npt.NDArray[np.float32], Triple]:
    """Read a scan, prepare it like `pretraining_image.prepare_file`, and reorient it.

    Returns:
        Intensities (C, D, H, W) in [0, 1], and the spacing along (d, h, w), mm.

    Raises:
        VolumeError: If it cannot be read or used.
        PumitError: If the description of its depth axis is unknown.
    """
    volume = Volume.read(path, series=series)
    image = prepare(volume, depth_axis, scanned_axis=scanned_axis(path))
    return upright(image, volume.direction)


def upright(
    image: PreparedImage, direction: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float32], Triple]:
    """Flip and swap axes so that they run towards superior, posterior and left.

    The depth axis stays first; of the other two, the one closer to superior, then to posterior, is
    second. Nothing is resampled.

    Args:
        image: Depth first, the other axes as stored.
        direction: Direction of the original volume, columns W, H, D in LPS.

    Returns:
        Intensities (C, D, H, W), and the spacing along (d, h, w), mm.
    """
    # World direction (L, P, S) of each of the image's axes.
    along = direction.T[::-1][list(image.depth.order)]
    rank = (along**2) @ np.array([0.0, 1.0, 2.0])  # near 2 along S, 1 along P, 0 along L
    main = np.take_along_axis(along, np.abs(along).argmax(1)[:, None], axis=1)[:, 0]
    array = image.array[(slice(None), *(slice(None, None, -1 if m < 0 else 1) for m in main))]
    d, h, w = image.spacing_mm
    if rank[1] < rank[2]:
        return np.ascontiguousarray(array.swapaxes(2, 3)), (d, w, h)
    return np.ascontiguousarray(array), (d, h, w)
