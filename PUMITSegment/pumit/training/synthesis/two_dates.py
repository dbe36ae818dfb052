"""Generated torso CT at two dates with known motion and changing lesions."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import ndimage
from scipy.spatial.transform import Rotation

from pumit.training.synthesis.phantom import torso_phantom
from pumit.volume import Volume

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Ball = tuple[tuple[float, float, float], float]

# Centres, LPS mm at the torso's position at the first date, and radii, mm: for the first and the
# second date.
LESIONS: dict[str, tuple[tuple[Ball, ...], tuple[Ball, ...]]] = {
    "grown": ((((-75, 25, 0), 9),), (((-75, 25, 0), 13),)),
    "shrunk": ((((-40, 12, 50), 12),), (((-40, 12, 50), 7),)),
    "stable": ((((92, 35, 32), 9),), (((92, 35, 32), 9),)),
    "gone": ((((-38, -38, 12), 9),), ()),
    "new": ((), (((-105, 10, 12), 8),)),
    "merged": (
        (((-58, 0, -22), 8), ((-80, 0, -22), 8)),
        (((-58, 0, -22), 12), ((-80, 0, -22), 12)),
    ),
    "split": ((((-38, -22, 36), 12),), (((-28, -22, 36), 6.5), ((-50, -22, 36), 6.5))),
}
LESION_HU = 35.0
AIR_HU = -1000.0
# Table shift at the second date, LPS mm.
_TABLE_MM = (0.0, 40.0, -180.0)


@dataclass(frozen=True, eq=False)
class TwoDates:
    """A torso at two dates.

    Attributes:
        earlier: Scan of the first date, HU.
        later: Scan of the second date, on another grid.
        earlier_masks: Lesions present at the first date, by name.
        later_masks: Lesions present at the second date, by name, on its grid.
        matrix: 4 x 4, from points of the first scan to those of the second, LPS mm.
    """

    earlier: Volume
    later: Volume
    earlier_masks: dict[str, Mask]
    later_masks: dict[str, Mask]
    matrix: Floats


def two_dates(seed: int = 0) -> TwoDates:
    """Generate a contrast-enhanced CT at two dates."""
    rng = np.random.default_rng(seed)
    body = torso_phantom(10 + seed).volume
    # A rotation, a small scaling, and a shift that is mostly the table's.
    matrix = np.eye(4)
    turn = Rotation.from_euler("xyz", rng.uniform(-8, 8, 3), degrees=True).as_matrix()
    matrix[:3, :3] = turn @ np.diag(1 + rng.uniform(-0.03, 0.03, 3))
    matrix[:3, 3] = rng.uniform(-25, 25, 3) + np.array(_TABLE_MM)
    # The grid of the second scan is rotated by itself.
    turn = Rotation.from_euler("xyz", rng.uniform(-4, 4, 3), degrees=True).as_matrix()
    spacing = (2.5, 1.6, 1.6)
    shape = (80, 192, 224)
    middle = matrix[:3, :3] @ body.index_to_world((np.array(body.shape) - 1) / 2) + matrix[:3, 3]
    half = (np.array(shape[::-1]) - 1) / 2 * spacing[::-1]
    x, y, z = (float(v) for v in middle - turn @ half)
    grid = Volume(np.zeros(shape, np.int16), spacing, (x, y, z), turn)
    earlier, earlier_masks = _date(body, body, np.eye(4), 0, rng)
    later, later_masks = _date(body, grid, np.asarray(np.linalg.inv(matrix), np.float64), 1, rng)
    return TwoDates(earlier, later, earlier_masks, later_masks, matrix)


def _date(
    body: Volume, grid: Volume, to_first: Floats, date: int, rng: np.random.Generator
) -> tuple[Volume, dict[str, Mask]]:
    """Paint the torso and its lesions on a grid, with noise of that date."""
    # Where a voxel (0, 0, 0) of the grid lies in the torso, and one step along each axis.
    corners = np.vstack([np.zeros(3), np.eye(3)])
    at = body.world_to_index(grid.index_to_world(corners) @ to_first[:3, :3].T + to_first[:3, 3])
    hu = ndimage.affine_transform(
        body.array.astype(np.float32), (at[1:] - at[0]).T.round(12), at[0].round(12), grid.shape,
        order=1, cval=AIR_HU,
    ).astype(float)  # fmt: skip
    to_grid = np.linalg.inv(to_first)
    masks = {}
    for name, dates in LESIONS.items():
        mask = np.zeros(grid.shape, bool)
        for centre, radius in dates[date]:
            middle = grid.world_to_index(to_grid[:3, :3] @ centre + to_grid[:3, 3]).round()
            reach = np.ceil(1.1 * (radius + 2) / np.array(grid.spacing_mm))
            low, high = (middle - reach).clip(0).astype(int), (middle + reach + 1).astype(int)
            high = np.minimum(high, grid.shape)
            near = tuple(map(slice, low, high))
            index = np.stack(np.meshgrid(*map(np.arange, low, high), indexing="ij"), axis=-1)
            places = grid.index_to_world(index) @ to_first[:3, :3].T + to_first[:3, 3]
            away = np.linalg.norm(places - np.array(centre), axis=-1)
            mask[near] |= away < radius
            # Partial volume at the border.
            share = np.clip((radius + 0.8 - away) / 1.6, 0, 1)
            hu[near] = hu[near] * (1 - share) + LESION_HU * share
        if mask.any():
            masks[name] = mask
    noise = ndimage.gaussian_filter(rng.standard_normal(grid.shape), (0, 0.6, 0.6))
    hu = hu + 8 * noise / noise.std()
    voxels = hu.clip(-1024, 3071).round().astype(np.int16)
    return Volume(voxels, grid.spacing_mm, grid.origin_lps, grid.direction), masks
