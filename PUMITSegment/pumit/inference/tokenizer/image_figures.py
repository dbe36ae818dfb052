"""Metrics of an image and its reconstruction that separate unusual images from usual ones.

Some measure the reconstruction. Others, such as the difference of neighbouring slices, measure only
the image: they are the only ones that reveal a wrong header.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional as F

from pumit.inference.tokenizer.token_use import TokenUse
from pumit.volume import Volume

Image = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
Grid = tuple[int, int, int]
Spacing = tuple[float, float, float]

LEAST_CELLS = 8  # with fewer cells the metrics say little
_NOISE_FLOOR = (0.5 / 255) ** 2  # half an 8-bit grey level, squared: smaller errors do not count
_LEAST_STEP = 1e-4
_LAGS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_FAR_LAG = 8
_BORDER_LAG = 4  # far enough that borders count for more than a scan's own noise
_GREY_LEVELS = 64
_THICK = 1.5  # slice spacing over in-plane spacing from which the order of axes can be checked
_SAMPLED_VOXELS = 2_000_000


def figures_of(
    seen: Image,
    back: Image,
    *,
    use: TokenUse,
    usual_shares: Floats | None,
    cell: Grid,
    spacing: Spacing,
    colour: float,
) -> dict[str, float]:
    """Compute all metrics of an image.

    Args:
        seen: Input of the tokenizer, 0..1, depth first, (d, h, w).
        back: Reconstruction, likewise.
        usual_shares: Usual share of each token, positive; None omits the metrics that need it.
        spacing: Voxel spacing along the axes, in any one unit.
    """
    lost, plain = (error + _NOISE_FLOOR for error in _errors(seen, back, cell))
    figures = {
        "detail_lost_db": 10 * math.log10(lost / plain),
        "cell_entropy_nats": use.mean_entropy,
        "grey_levels_nats": _grey_levels(seen),
        "colour": colour,
        **_borders(seen),
        **_steps(seen, spacing),
    }
    if usual_shares is not None:
        rarity = float(-(use.shares * np.log(usual_shares)).sum())
        figures["token_rarity_nats"] = rarity
        figures["token_mix_nats"] = rarity - use.entropy
    return figures


def colour_of(volume: Volume) -> float:
    """Return the mean saturation of an 8-bit colour image, 0..1; 0 for any other."""
    if volume.channels not in (3, 4) or volume.array.dtype != np.uint8:
        return 0.0
    rgb = volume.array[:3]
    return float(np.mean(rgb.max(0) - rgb.min(0), dtype=np.float64)) / 255


def _errors(seen: Image, back: Image, cell: Grid) -> tuple[float, float]:
    """Return the mean squared errors of the reconstruction and of interpolated cell means."""
    x = torch.from_numpy(np.ascontiguousarray(seen))
    missing = [(-n) % c for n, c in zip(seen.shape, cell, strict=True)]
    pad = [m for n in reversed(missing) for m in (0, n)]
    means = F.avg_pool3d(F.pad(x[None, None], pad, mode="replicate"), cell)
    size = [n + m for n, m in zip(seen.shape, missing, strict=True)]
    plain = F.interpolate(means, size, mode="trilinear", align_corners=False)[0, 0]
    d, h, w = seen.shape
    kept = float((plain[:d, :h, :w] - x).square_().mean(dtype=torch.float64))
    return float(np.mean(np.square(back - seen), dtype=np.float64)), kept


def _grey_levels(seen: Image) -> float:
    """Return the entropy of the grey levels, nats: 0 for one level, ln 64 if uniform."""
    counts, _ = np.histogram(seen, _GREY_LEVELS, (0.0, 1.0))
    p = counts[counts > 0] / seen.size
    return float(-(p * np.log(p)).sum())


def _borders(seen: Image) -> dict[str, float]:
    """Return the log kurtosis of in-plane differences: ln 3 for noise, more with borders."""
    lag = min(_BORDER_LAG, min(seen.shape[1:]) // 2)
    if lag < 1:
        return {}
    step = max(1, round(seen.size / _SAMPLED_VOXELS))
    planes = seen[::step]
    both = (planes[:, lag:] - planes[:, :-lag], planes[:, :, lag:] - planes[:, :, :-lag])
    square = [np.square(difference, dtype=np.float64) for difference in both]
    second = sum(float(x.mean()) for x in square) / 2
    fourth = sum(float(np.square(x).mean()) for x in square) / 2
    return {
        "border_kurtosis": math.log(max(fourth, _NOISE_FLOOR**2) / max(second, _NOISE_FLOOR) ** 2)
    }


def _steps(seen: Image, spacing: Spacing) -> dict[str, float]:
    """Return metrics of how intensity differences grow with distance along each axis.

    Natural images vary equally in all directions.
    """
    d, h, w = seen.shape
    if min(h, w) < 2:
        return {}
    rows, columns = _Steps.along(seen, 1), _Steps.along(seen, 2)
    fineness = (rows.at(1) - rows.at(_FAR_LAG) + columns.at(1) - columns.at(_FAR_LAG)) / 2
    figures = {"fineness": fineness, "row_step": _within(rows, columns, spacing)}
    if d > 1:
        slices = _Steps.along(seen, 0)
        figures["slice_step"] = _across(slices, rows, columns, spacing)
        if spacing[0] > _THICK * math.sqrt(spacing[1] * spacing[2]):
            # The given axis order should fit the spacing best.
            anisotropy = figures["row_step"] + abs(figures["slice_step"])
            others = ((rows, slices, columns), (columns, rows, slices))
            best = min(
                _within(b, c, spacing) + abs(_across(a, b, c, spacing)) for a, b, c in others
            )
            figures["axis_order"] = max(anisotropy - best, 0.0)
    return figures


@dataclass(frozen=True)
class _Steps:
    """Binary logarithms of the RMS difference of voxels along one axis, by lag in voxels."""

    lags: list[int]
    differences: Floats

    @staticmethod
    def along(image: Image, axis: int) -> _Steps:
        size = image.shape[axis]
        # Subsample the lines, not the voxels along them.
        step = max(1, round((image.size / _SAMPLED_VOXELS) ** 0.5))
        lines = np.moveaxis(image, axis, 0)[:, ::step, ::step]
        lags = [k for k in _LAGS if k <= max(1, size // 2)]
        return _Steps(lags, np.log2([_rms(lines[k:] - lines[:-k]) for k in lags]))

    def at(self, lag: float) -> float:
        """Return the value interpolated at a lag of at least one voxel."""
        return float(np.interp(math.log2(max(lag, 1.0)), np.log2(self.lags), self.differences))


def _across(slices: _Steps, rows: _Steps, columns: _Steps, spacing: Spacing) -> float:
    """Return how much more neighbouring slices differ than in-plane voxels as far apart."""
    lag = spacing[0] / math.sqrt(spacing[1] * spacing[2])
    return slices.at(1) - (rows.at(lag) + columns.at(lag)) / 2


def _within(rows: _Steps, columns: _Steps, spacing: Spacing) -> float:
    """Return how much more voxels differ along one axis in-plane than along the other."""
    ratio = spacing[1] / spacing[2]
    return abs(rows.at(1 / ratio) - columns.at(ratio))


def _rms(difference: Image) -> float:
    mean = float(np.mean(np.square(difference), dtype=np.float64))
    return max(math.sqrt(mean), _LEAST_STEP)
