"""Torso phantom: a generated CT with known organs, for demonstration, tests and sample data."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from pumit.preprocessing.fields import resampled
from pumit.volume import Volume

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

SHAPE = (64, 176, 208)
SPACING_MM = (3.0, 1.8, 1.8)

# name: centre and radii in mm as (z, h, w) from the centre of the scan, and HU; h increases towards
# posterior, w towards the patient's left.
ORGANS: dict[str, tuple[tuple[float, float, float], tuple[float, float, float], float]] = {
    "stomach": ((35, -28, 52), (38, 30, 34), 30.0),
    "spleen": ((30, 35, 92), (38, 32, 20), 105.0),
    "liver": ((22, -8, -62), (58, 62, 68), 100.0),
    "left kidney": ((-22, 42, 62), (44, 22, 24), 160.0),
    "right kidney": ((-30, 42, -60), (44, 22, 24), 160.0),
}


@dataclass
class Phantom:
    """A generated scan and its masks.

    Attributes:
        volume: HU, int16, (D, H, W).
        masks: Bool masks of the organs, "liver lesion" and "aorta", by name.
    """

    volume: Volume
    masks: dict[str, npt.NDArray[np.bool_]]

    def centre_lps(self, name: str) -> tuple[float, float, float]:
        """Return the point of an organ farthest from its border, LPS mm."""
        mask = self.masks[name]
        (box,) = ndimage.find_objects(mask.astype(np.uint8))
        # One voxel around the organ decides as all others would.
        around = tuple(slice(max(0, side.start - 1), side.stop + 1) for side in box)
        depth = ndimage.distance_transform_edt(mask[around], sampling=self.volume.spacing_mm)
        index = np.unravel_index(int(depth.argmax()), depth.shape)
        x, y, z = self.volume.index_to_world(np.add(index, [side.start for side in around]))
        return (float(x), float(y), float(z))


def _ball(
    mm: tuple[Floats, ...], centre: tuple[float, ...], radii: tuple[float, ...], wobble: Floats
) -> Mask:
    z, h, w = (((a - c) / r) ** 2 for a, c, r in zip(mm, centre, radii, strict=True))
    return np.asarray(np.sqrt(z + h + w) < 1 + wobble)


def _noise(rng: np.random.Generator, length_mm: float) -> Floats:
    """Draw smooth noise of unit variance with a correlation length in mm."""
    cells = [
        max(2, min(n, math.ceil(n * s / length_mm) + 1))
        for n, s in zip(SHAPE, SPACING_MM, strict=True)
    ]
    noise = rng.standard_normal(cells).astype(np.float32)
    places = [np.linspace(0, n - 1, m) for n, m in zip(cells, SHAPE, strict=True)]
    smooth = resampled(noise, places)
    smooth /= max(float(smooth.std()), 1e-3)
    return smooth


def _blurred(array: Floats, sigma: tuple[float, float, float]) -> Floats:
    return np.asarray(ndimage.gaussian_filter(array, sigma, mode="nearest", truncate=2.5))


def torso_phantom(seed: int = 10) -> Phantom:
    """Generate a contrast-enhanced CT of an abdomen."""
    rng = np.random.default_rng(seed)

    def wobble(length_mm: float, amount: float) -> Floats:
        finer = _noise(rng, max(length_mm / 2, SPACING_MM[2]))
        return np.float32(amount) * (_noise(rng, length_mm) + np.float32(0.5) * finer)

    axes = [
        (np.arange(n, dtype=np.float32) - (n - 1) / 2) * s
        for n, s in zip(SHAPE, SPACING_MM, strict=True)
    ]
    # 1. Coordinates in mm from the centre of the grid.
    mm = tuple(np.meshgrid(*axes, indexing="ij", sparse=True))  # (D, 1, 1), (1, H, 1), (1, 1, W)
    z, h, w = mm
    # 2. Nested shells: subcutaneous fat, muscle, visceral fat.
    body = np.sqrt((h / 118) ** 2 + (w / 160) ** 2) + wobble(120, 0.012)
    hu = np.full(SHAPE, -1000.0, dtype=np.float32)
    np.copyto(hu, -100 + wobble(20, 6), where=body < 1.0)
    np.copyto(hu, 55 + wobble(15, 6), where=body < 0.9)
    np.copyto(hu, -95 + wobble(25, 8), where=body < 0.8)
    # 3. Disjoint organs; renal hilum; vessels and a lesion in the liver.
    masks: dict[str, Mask] = {}
    for name, (centre, radii, value) in ORGANS.items():
        mask = _ball(mm, centre, radii, wobble(55, 0.09)) & (body < 0.84)
        for other in masks.values():
            mask &= ~other
        masks[name] = mask
        np.copyto(hu, value + wobble(12, 5), where=mask)
    for side in ("left", "right"):
        (cz, ch, cw), _, _ = ORGANS[f"{side} kidney"]
        hilum = _ball(mm, (cz, ch, cw * 0.8), (22, 8, 10), wobble(20, 0.15))
        np.copyto(hu, 40.0, where=hilum & masks[f"{side} kidney"])
    for k in range(5):  # vessels of the liver
        a, b = (rng.random(2) - 0.5).tolist()
        line = (h + 10 + 60 * a + 0.4 * z) ** 2 + (w + 62 + 70 * b - (0.5 - 0.2 * k) * z) ** 2
        np.copyto(hu, 170.0, where=(np.sqrt(line) < 5) & masks["liver"])
    lesion = _ball(mm, (28, -18, -82), (17, 16, 16), wobble(20, 0.12)) & masks["liver"]
    masks["liver lesion"] = lesion
    np.copyto(hu, 45 + wobble(8, 5), where=lesion)
    # 4. Spine with discs and canal, aorta, ribs.
    spine = ((h - 62) / 20) ** 2 + (w / 23) ** 2
    np.copyto(hu, 180 + wobble(6, 40), where=spine < 1)
    np.copyto(hu, 480.0, where=(spine < 1) & (spine > 0.75))
    disc = (spine < 1) & ((z % 36) < 7)
    np.copyto(hu, 80.0, where=disc)
    np.copyto(hu, 30.0, where=((h - 88) / 9) ** 2 + (w / 9) ** 2 < 1)
    masks["aorta"] = ((h - 26 - 6 * np.sin(z / 60)) / 11) ** 2 + ((w - 14) / 11) ** 2 < 1
    np.copyto(hu, 190 + wobble(10, 4), where=masks["aorta"])
    angle = np.arctan2(h, w)
    ribs = (body > 0.815) & (body < 0.865) & (np.sin(z / 9 + 2.4 * np.cos(angle)) > 0.55)
    np.copyto(hu, 420.0, where=ribs)
    # 5. Scanner blur and noise.
    hu = _blurred(hu, (0.4, 0.7, 0.7))
    noise = _blurred(rng.standard_normal(SHAPE).astype(np.float32), (0.0, 0.6, 0.6))
    hu = hu + 14 * noise / noise.std()
    array = hu.clip(-1024, 3071).round().astype(np.int16)
    origin = tuple(float(a[0]) for a in reversed(axes))
    volume = Volume(array, SPACING_MM, (origin[0], origin[1], origin[2]))
    return Phantom(volume, masks)
