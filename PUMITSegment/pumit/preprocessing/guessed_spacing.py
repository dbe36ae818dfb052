"""Voxel spacing guessed from the voxels, for images that come without.

Many programs that speak the nnInteractive protocol send no spacing, since its own network looks at
voxels alone. Ours does not: on 13 CT, MR and PET scans taken as isotropic the Dice after one, two
and three clicks fell from 0.57, 0.67, 0.70 to 0.51, 0.62, 0.64; with this guess it was 0.55, 0.65,
0.69. Of 37 scans the guess was within a factor of 2 for 32, and for the other five too small.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]

# Steps along a fine axis that one step along the coarse one is compared with.
_LAGS = 16
# Voxels that a comparison looks at.
_MOST_COMPARED = 1 << 20


def guess_spacing(array: Array) -> tuple[float, float, float]:
    """Guess how much coarser the axis with the fewest voxels is than the others.

    Intensities differ the more, the farther two voxels are apart: one step along the coarse axis
    is as long as those steps along the others over which they differ as much. It is taken to be no
    longer than what would give the image as large an extent along it as along the others.

    Args:
        array: Intensities, shape (D, H, W) or (C, D, H, W), of which the first channel counts.

    Returns:
        Spacing in array order; the finest is 1, since the image does not tell millimetres.
    """
    image = array[0] if array.ndim == 4 else array
    spacing = [1.0, 1.0, 1.0]
    thin = int(np.argmin(image.shape))
    others = [axis for axis in range(3) if axis != thin]
    shortest = min(image.shape[axis] for axis in others)
    if image.shape[thin] > 1 and shortest > image.shape[thin]:
        limits = _usual_range(image)
        target = _difference(image, thin, 1, limits)
        lags = range(1, min(_LAGS, shortest - 1) + 1)
        found = [sum(_difference(image, axis, lag, limits) for axis in others) / 2 for lag in lags]
        if target > 0 and np.isfinite(found).all():
            curve = np.maximum.accumulate(np.array([0.0, *found]))
            steps = float(np.interp(target, curve, np.arange(len(curve))))
            spacing[thin] = max(1.0, min(steps, shortest / image.shape[thin]))
    return (spacing[0], spacing[1], spacing[2])


def _usual_range(image: Array) -> tuple[float, float]:
    """Intensities without the outermost hundredths: metal would outweigh everything."""
    seen = image[tuple(slice(None, None, max(1, size // 64)) for size in image.shape)]
    low, high = np.percentile(seen.astype(np.float32), [1, 99])
    return float(low), float(high)


def _difference(image: Array, axis: int, lag: int, limits: tuple[float, float]) -> float:
    """Mean absolute difference of voxels `lag` steps apart along an axis."""
    # Every voxel along the axis, and as many of the lines along it as are needed.
    thinning = max(1, int(np.ceil(np.sqrt(image.size / _MOST_COMPARED))))
    steps = [1 if a == axis else min(thinning, image.shape[a]) for a in range(3)]
    seen = image[tuple(slice(None, None, step) for step in steps)]
    lines: npt.NDArray[np.float32] = np.moveaxis(seen, axis, 0).astype(np.float32).clip(*limits)
    return float(np.abs(lines[lag:] - lines[:-lag]).mean())
