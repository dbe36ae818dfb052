"""Estimation of voxel spacing from intensities, for images without spacing.

Many clients of the nnInteractive protocol send no spacing, since its network ignores it. PUMIT's
does not: when 13 CT, MR and PET scans were treated as isotropic, Dice after one, two and three
clicks fell from 0.57, 0.67, 0.70 to 0.51, 0.62, 0.64. With this estimate it was 0.55, 0.65, 0.69.
The estimate was within a factor of 2 for 32 of 37 scans, and too small for the other five.
"""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]

# Maximum lag along the fine axes.
_LAGS = 16
# Approximate number of voxels per comparison.
_MOST_COMPARED = 1 << 20


def guess_spacing(array: Array) -> tuple[float, float, float]:
    """Estimate how much coarser the axis with the fewest voxels is than the others.

    Intensity differences grow with distance. The length of one step along the coarse axis is the
    lag along the others with an equal mean difference. It is limited so that the extent along the
    coarse axis does not exceed that along the others.

    Args:
        array: Intensities, shape (D, H, W) or (C, D, H, W); the first channel is used.

    Returns:
        Relative spacing in array order; the finest is 1, since the scale in mm is unknown.
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
    """Return the 1st and 99th percentile, so that metal does not dominate."""
    seen = image[tuple(slice(None, None, max(1, size // 64)) for size in image.shape)]
    low, high = np.percentile(seen.astype(np.float32), [1, 99])
    return float(low), float(high)


def _difference(image: Array, axis: int, lag: int, limits: tuple[float, float]) -> float:
    """Return the mean absolute difference of voxels `lag` steps apart along an axis."""
    # Subsample the lines, not the voxels along them.
    thinning = max(1, int(np.ceil(np.sqrt(image.size / _MOST_COMPARED))))
    steps = [1 if a == axis else min(thinning, image.shape[a]) for a in range(3)]
    seen = image[tuple(slice(None, None, step) for step in steps)]
    lines: npt.NDArray[np.float32] = np.moveaxis(seen, axis, 0).astype(np.float32).clip(*limits)
    return float(np.abs(lines[lag:] - lines[:-lag]).mean())
