"""Perturbations of a scan and its prompts that a person would hardly notice.

The simulated user sees the original scan. The model gets the perturbed one, and its mask is mapped
back. The first click is at the same position in every variant; only the prediction changes.
Only a resampled scan is also shown to the user; then the target is resampled too.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import numpy.typing as npt
from pumit.evaluation.simulated_user import moved_within
from pumit.geometry import Triple
from pumit.inference.interactive.segmenter import Segmenter
from pumit.inference.interactive.session import InteractiveSession
from pumit.preprocessing.network_axes import depth_first
from pumit.prompts import BoxPrompt, Prompt
from pumit.volume import Volume
from scipy import ndimage

Mask = npt.NDArray[np.bool_]
Random = np.random.Generator

# Noise relative to the range of grey values around the target (5th to 95th percentile).
NOISE_SHARE = 0.1
# With fewer slices of the target a person would not see the same either.
MIN_SLICES = 3
# Fraction of each axis that keeps half of the volume.
HALF_PER_AXIS = 0.5 ** (1 / 3)
_CORNERS = tuple(product((0, 1), repeat=3))


@dataclass(frozen=True)
class DisturbedScan:
    """A perturbed scan for the model, with the scan that the user sees.

    Attributes:
        given: The scan that the model gets.
        seen: The scan on whose grid the user works and masks are compared.
        target: Ground truth on the grid of `seen`.
        back: Maps a mask from the grid of `given` to that of `seen`.
    """

    given: Volume
    seen: Volume
    target: Mask
    back: Callable[[Mask], Mask]


@dataclass(frozen=True)
class Disturbance:
    """One kind of perturbation.

    Attributes:
        scene_of: Perturbs a scan with a target; returns None if it does not apply.
        jitter_mm: Largest displacement of clicks and box faces, mm.
    """

    name: str
    scene_of: Callable[[Volume, Mask, Random], DisturbedScan | None]
    jitter_mm: float = 0.0


class DisturbedSession:
    """A session that perturbs scan and prompts before they reach the model.

    Args:
        jitter_mm: Largest displacement of prompts, mm.
    """

    def __init__(
        self, segmenter: Segmenter, scene: DisturbedScan, jitter_mm: float, rng: Random
    ) -> None:
        self._scene, self._jitter_mm, self._rng = scene, jitter_mm, rng
        self._session = InteractiveSession(segmenter)
        self._session.set_volume(scene.given)

    @property
    def volume(self) -> Volume:
        """The scan that the user sees."""
        return self._scene.seen

    def reset(self) -> None:
        """Remove all prompts."""
        self._session.reset()

    def add_point(self, point_lps: Triple, *, positive: bool = True) -> None:
        """Click at or near a point, on the same side of the target's border."""
        side = self._scene.target == positive
        place = moved_within(self.volume, side, point_lps, self._jitter_mm, self._rng)
        self._session.add_point(place, positive=positive)

    def add_prompt(self, prompt: Prompt) -> None:
        """Draw a box, with each face moved."""
        if isinstance(prompt, BoxPrompt) and self._jitter_mm > 0:
            prompt = self._jittered(prompt)
        self._session.add_prompt(prompt)

    def predict(self) -> Mask:
        """Return the mask on the user's grid."""
        return self._scene.back(self._session.predict())

    def _jittered(self, box: BoxPrompt) -> BoxPrompt:
        corners = self.volume.world_to_index(box.corners_lps)
        room = self._jitter_mm / np.asarray(self.volume.spacing_mm)
        limit = np.asarray(self.volume.shape) - 1.0
        ends = np.stack((corners.min(0), corners.max(0)))
        ends = np.clip(np.sort(ends + self._rng.uniform(-room, room, (2, 3)), axis=0), 0, limit)
        index = [[ends[side, axis] for axis, side in enumerate(s)] for s in _CORNERS]
        moved = self.volume.index_to_world(np.array(index)).tolist()
        return BoxPrompt(tuple((x, y, z) for x, y, z in moved))


def unchanged(volume: Volume, target: Mask, _: Random) -> DisturbedScan:
    """Change nothing."""
    return DisturbedScan(volume, volume, target, np.asarray)


def rescaled(volume: Volume, target: Mask, _: Random) -> DisturbedScan:
    """Rescale intensities linearly."""
    array = volume.array.astype(np.float32) * 3.7 - 200
    return DisturbedScan(replace(volume, array=array), volume, target, np.asarray)


def with_gamma(gamma: float) -> Callable[[Volume, Mask, Random], DisturbedScan]:
    """Apply a monotonic gamma curve, odd about the 0.5th percentile."""

    def scene_of(volume: Volume, target: Mask, _: Random) -> DisturbedScan:
        low, high = np.percentile(volume.array, (0.5, 99.5))
        part = (volume.array.astype(np.float32) - low) / max(float(high - low), 1e-12)
        array = (np.sign(part) * np.abs(part) ** gamma).astype(np.float32)
        return DisturbedScan(replace(volume, array=array), volume, target, np.asarray)

    return scene_of


def noisy(volume: Volume, target: Mask, rng: Random) -> DisturbedScan:
    """Add Gaussian noise that is small compared with the contrast around the target."""
    window = ndimage.find_objects(target.astype(np.uint8))[0]
    around = tuple(slice(max(s.start - 10, 0), s.stop + 10) for s in window)
    low, high = np.percentile(volume.array[around], (5, 95))
    noise = rng.normal(0, NOISE_SHARE * float(high - low), volume.shape)
    array = (volume.array + noise).astype(np.float32)
    return DisturbedScan(replace(volume, array=array), volume, target, np.asarray)


def flipped(axis: int) -> Callable[[Volume, Mask, Random], DisturbedScan]:
    """Flip the array along an axis; all voxels keep their world positions."""

    def scene_of(volume: Volume, target: Mask, _: Random) -> DisturbedScan:
        corner = np.zeros(3)
        corner[axis] = volume.shape[axis] - 1
        sign = np.ones(3)
        sign[2 - axis] = -1  # the direction's columns are the W, H, D axes
        given = replace(
            volume,
            array=np.flip(volume.array, axis),
            origin_lps=_triple(volume.index_to_world(corner)),
            direction=volume.direction * sign,
            source=None,
        )
        return DisturbedScan(given, volume, target, lambda mask: np.flip(mask, axis))

    return scene_of


def permuted(order: tuple[int, int, int]) -> Callable[[Volume, Mask, Random], DisturbedScan]:
    """Permute the array's axes; all voxels keep their world positions."""

    def scene_of(volume: Volume, target: Mask, _: Random) -> DisturbedScan:
        d, h, w = (volume.spacing_mm[a] for a in order)
        given = replace(
            volume,
            array=volume.array.transpose(order),
            spacing_mm=(d, h, w),
            direction=volume.direction[:, ::-1][:, list(order)][:, ::-1],
            source=None,
        )
        return DisturbedScan(given, volume, target, lambda mask: mask.transpose(np.argsort(order)))

    return scene_of


def cropped(volume: Volume, target: Mask, _: Random) -> DisturbedScan:
    """Crop to half of the volume around the target, but not closer than 2 voxels to it."""
    box = ndimage.find_objects(target.astype(np.uint8))[0]
    window = []
    for size, part in zip(volume.shape, box, strict=True):
        keep = max(round(size * HALF_PER_AXIS), min(part.stop - part.start + 4, size))
        start = (part.start + part.stop - keep) // 2
        start = min(max(start, 0), size - keep)
        window.append(slice(start, start + keep))
    place = (window[0], window[1], window[2])
    origin = _triple(volume.index_to_world([s.start for s in place]))
    given = replace(volume, array=volume.array[place], origin_lps=origin, source=None)

    def back(mask: Mask) -> Mask:
        whole = np.zeros(volume.shape, dtype=bool)
        whole[place] = mask
        return whole

    return DisturbedScan(given, volume, target, back)


def with_slices(slice_mm: float) -> Callable[[Volume, Mask, Random], DisturbedScan | None]:
    """Average slices to a larger thickness, for the user too.

    Does not apply if the slices are already about as thick, or if fewer than `MIN_SLICES` would
    show the target.
    """

    def scene_of(volume: Volume, target: Mask, _: Random) -> DisturbedScan | None:
        axis = depth_first(volume.spacing_mm, volume.shape)[0]
        if volume.is_planar or volume.spacing_mm[axis] > slice_mm / 1.3:
            return None
        weights = _overlaps(volume.shape[axis], slice_mm / volume.spacing_mm[axis])

        def averaged(array: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
            return np.moveaxis(np.tensordot(weights, array, (1, axis)), 0, axis)

        spacing = list(volume.spacing_mm)
        spacing[axis] = slice_mm
        first = np.zeros(3)
        first[axis] = (slice_mm / volume.spacing_mm[axis] - 1) / 2
        given = replace(
            volume,
            array=averaged(volume.array.astype(np.float32)),
            spacing_mm=(spacing[0], spacing[1], spacing[2]),
            origin_lps=_triple(volume.index_to_world(first)),
            source=None,
        )
        thick = averaged(target.astype(np.float32)) > 0.5
        slices = int(np.moveaxis(thick, axis, 0).any(axis=(1, 2)).sum())
        return DisturbedScan(given, given, thick, np.asarray) if slices >= MIN_SLICES else None

    return scene_of


def _overlaps(size: int, step: float) -> npt.NDArray[np.float32]:
    """Return the weights of `size` thin slices in slices of `step` times the thickness.

    The shape is (thick, thin).
    """
    count = max(int(size / step + 1e-6), 1)
    edges = np.arange(count + 1) * step
    thin = np.arange(size)
    upper = np.minimum(edges[1:, None], thin + 1)
    lower = np.maximum(edges[:-1, None], thin)
    shares = np.clip(upper - lower, 0, None)
    return (shares / shares.sum(axis=1, keepdims=True)).astype(np.float32)


def _triple(point: npt.NDArray[np.float64]) -> Triple:
    return (float(point[0]), float(point[1]), float(point[2]))


AS_IT_IS = Disturbance("as it is", unchanged)
DISTURBANCES = (
    AS_IT_IS,
    Disturbance("prompts moved by 3 mm", unchanged, jitter_mm=3.0),
    Disturbance("intensities x 3.7 - 200", rescaled),
    Disturbance("gamma 0.7", with_gamma(0.7)),
    Disturbance("gamma 1.4", with_gamma(1.4)),
    Disturbance("noise", noisy),
    Disturbance("flipped along D", flipped(0)),
    Disturbance("flipped along H", flipped(1)),
    Disturbance("flipped along W", flipped(2)),
    Disturbance("axes permuted to W, D, H", permuted((2, 0, 1))),
    Disturbance("cropped to half", cropped),
    Disturbance("3 mm slices", with_slices(3.0)),
    Disturbance("6 mm slices", with_slices(6.0)),
)
