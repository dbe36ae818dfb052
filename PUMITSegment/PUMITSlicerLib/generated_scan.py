"""Generated abdominal CT on an oblique grid, for tutorials and tests.

It needs neither network nor torch, is identical on every computer, and takes about a second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pumit.geometry import Floats
from pumit.segmentation import Mask
from pumit.volume import Volume

SHAPE = (72, 150, 180)
SPACING_MM = (3.0, 2.2, 2.2)
# Tilted and turned a little, so that no axis is aligned with the world's.
TILT_DEGREES, TURN_DEGREES = 11.0, -7.0
# Organs in drawing order; earlier ones are not overwritten. Centre and radii in mm from the middle
# of the scan as (z, h, w): h grows to posterior, w to the patient's left. Then Hounsfield units.
ORGANS: dict[str, tuple[tuple[float, ...], tuple[float, ...], float]] = {
    "aorta": ((0, 24, 14), (400, 11, 11), 185.0),
    "left kidney": ((-25, 42, 66), (46, 24, 25), 165.0),
    "right kidney": ((-32, 42, -62), (46, 24, 25), 160.0),
    "spleen": ((35, 34, 96), (40, 33, 22), 108.0),
    "gallbladder": ((-12, -44, -42), (24, 15, 15), 12.0),
    "stomach": ((38, -34, 52), (36, 30, 36), 32.0),
    "liver": ((22, -2, -72), (62, 70, 58), 98.0),
}
# The liver's left lobe is in front of the stomach.
LEFT_LOBE = ((42, -46, -4), (30, 26, 52))
TUMOUR = ((32, -22, -86), (18, 17, 17), 48.0)
_NOISE_HU = 13.0
_SEED = 20
# Largest shift in mm, and largest relative change of radius, of other patients' organs.
_SHIFT_MM, _GROWTH = 7.0, 0.15


@dataclass(frozen=True, eq=False)
class GeneratedScan:
    """Generated scan with its ground truth.

    Attributes:
        volume: HU, int16, (D, H, W).
        masks: bool, (D, H, W), by name; those of `ORGANS`, and "liver tumour" inside the liver.
    """

    volume: Volume
    masks: dict[str, Mask]


def generatedScan(patient: int = 0) -> GeneratedScan:
    """Generate the scan of a patient; deterministic.

    Args:
        patient: 0 for the patient of the tutorial; other numbers shift and scale the organs.
    """
    draw = _Canvas(np.random.default_rng(_SEED + patient), _placement(patient))
    _z, h, w = draw.mm
    body = np.hypot(h / 118, w / 162) + draw.wobble(60, 0.012)
    hu = np.full(SHAPE, -1000.0, dtype=np.float32)
    for edge, value, texture in ((1.0, -100.0, 6), (0.9, 55.0, 6), (0.8, -95.0, 8)):
        inside = body < edge
        hu[inside] = (value + draw.wobble(20, texture))[inside]
    masks: dict[str, Mask] = {}
    free = body < 0.84
    for name, (centre, radii, value) in ORGANS.items():
        shape = draw.ball(centre, radii, 0.02 if name == "aorta" else 0.2)
        if name == "liver":
            shape |= draw.ball(*LEFT_LOBE, 0.2)
        masks[name] = shape & free
        free &= ~masks[name]
        hu[masks[name]] = (value + draw.wobble(12, 5))[masks[name]]
    tumour = draw.ball(TUMOUR[0], TUMOUR[1], 0.1) & masks["liver"]
    hu[tumour] = (TUMOUR[2] + draw.wobble(8, 6))[tumour]
    masks["liver tumour"] = tumour
    _draw_bones(hu, body, draw)
    array = _acquired(hu, draw.generator)
    direction = _direction()
    middle = (np.array(SHAPE) - 1) / 2 * SPACING_MM
    x, y, s = -direction @ middle[::-1]
    volume = Volume(array, SPACING_MM, (float(x), float(y), float(s)), direction)
    return GeneratedScan(volume, masks)


# Function from an organ's centre in mm to its shift in mm and the factors of its radii.
_Placement = Callable[[tuple[float, ...]], tuple[Floats, Floats]]


def _placement(patient: int) -> _Placement:
    def place(centre: tuple[float, ...]) -> tuple[Floats, Floats]:
        if patient == 0:
            return np.zeros(3), np.ones(3)
        # Nearby parts of an organ move together.
        near = int(np.dot(np.round(np.divide(centre, 90.0)) + 5, (1, 11, 121)))
        generator = np.random.default_rng((_SEED, patient, near))
        shift = generator.uniform(-_SHIFT_MM, _SHIFT_MM, 3)
        return shift, generator.uniform(1 - _GROWTH, 1 + _GROWTH, 3)

    return place


class _Canvas:
    """Coordinates and smooth noise on the scan's grid."""

    def __init__(self, generator: np.random.Generator, place: _Placement) -> None:
        self.generator = generator
        self._place = place
        axes = [
            ((np.arange(n) - (n - 1) / 2) * s).astype(np.float32)
            for n, s in zip(SHAPE, SPACING_MM, strict=True)
        ]
        # z, h, w in mm from the middle, broadcastable.
        self.mm = np.meshgrid(*axes, indexing="ij", sparse=True)

    def wobble(self, length_mm: float, amount: float) -> Floats:
        """Return smooth noise, (D, H, W), of a length scale and at most about an amplitude."""
        from scipy import ndimage

        size = [int(n * s / length_mm) + 3 for n, s in zip(SHAPE, SPACING_MM, strict=True)]
        coarse = self.generator.uniform(-amount, amount, size).astype(np.float32)
        zoom = [n / (c - 1) for n, c in zip(SHAPE, size, strict=True)]
        smooth = ndimage.zoom(coarse, zoom, order=1)
        return smooth[tuple(slice(n) for n in SHAPE)]

    def ball(self, centre: tuple[float, ...], radii: tuple[float, ...], rugged: float) -> Mask:
        """Return an ellipsoid with an uneven surface."""
        shift, growth = self._place(centre)
        parts = zip(self.mm, np.add(centre, shift), np.multiply(radii, growth), strict=True)
        squares = [((axis - c) / r) ** 2 for axis, c, r in parts]
        return np.sqrt(squares[0] + squares[1] + squares[2]) < 1 + self.wobble(45, rugged)


def _draw_bones(hu: npt.NDArray[np.float32], body: Floats, draw: _Canvas) -> None:
    z, h, w = draw.mm
    spine = np.broadcast_to(((h - 62) / 20) ** 2 + (w / 23) ** 2, hu.shape)
    hu[spine < 1] = (190 + draw.wobble(8, 45))[spine < 1]
    hu[(spine < 1) & (spine > 0.75)] = 480
    hu[(spine < 1) & np.broadcast_to((z % 36) < 7, hu.shape)] = 80
    hu[np.broadcast_to(((h - 88) / 9) ** 2 + (w / 9) ** 2, hu.shape) < 1] = 30
    wave = np.sin(z / 9 + 2.4 * np.cos(np.arctan2(h, w)))
    hu[(body > 0.815) & (body < 0.865) & (wave > 0.55)] = 420


def _acquired(hu: npt.NDArray[np.float32], generator: np.random.Generator) -> np.ndarray:
    """Simulate the acquisition: blur, noise and rounding."""
    from scipy import ndimage

    noise = ndimage.gaussian_filter(
        generator.standard_normal(SHAPE, dtype=np.float32), (0.0, 0.6, 0.6)
    )
    blurred = ndimage.gaussian_filter(hu, (0.4, 0.6, 0.6))
    blurred += noise * (_NOISE_HU / noise.std())
    return np.clip(np.rint(blurred), -1024, 3071).astype(np.int16)


def _direction() -> Floats:
    tilt, turn = np.deg2rad([TILT_DEGREES, TURN_DEGREES])
    tilted = np.array(
        [[1, 0, 0], [0, np.cos(tilt), -np.sin(tilt)], [0, np.sin(tilt), np.cos(tilt)]]
    )
    turned = np.array(
        [[np.cos(turn), -np.sin(turn), 0], [np.sin(turn), np.cos(turn), 0], [0, 0, 1]]
    )
    return turned @ tilted
