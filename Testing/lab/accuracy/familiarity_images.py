"""Images for the familiarity score: known ones, odd ones, and real ones for evaluation only.

Odd images are noise, the photographs of scikit-image, and real scans with wrong axes, slice order,
spacing or intensities.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import skimage
import torch
from pumit.geometry import PLANAR_SLICE_SPACING_MM
from pumit.preprocessing.network_axes import depth_first
from pumit.training.synthesis.phantom import torso_phantom
from pumit.training.synthesis.scene import draw_scene
from pumit.volume import Volume
from scipy import ndimage

Role = Literal["known", "odd", "measured", "measured odd"]
Spacing = tuple[float, float, float]
SIZE, SLICES = 128, 48
GENERATED_SIZE = 80
PHOTOGRAPHS = (
    "camera.png",
    "astronaut.png",
    "coffee.png",
    "chelsea.png",
    "coins.png",
    "brick.png",
    "grass.png",
    "gravel.png",
    "rocket.jpg",
    "motorcycle_left.png",
    "clock_motion.png",
    "moon.png",
    "hubble_deep_field.jpg",
)
DRAWINGS = ("text.png", "page.png", "chessboard_GRAY.png", "logo.png", "horse.png")


@dataclass(frozen=True)
class Sample:
    """One image.

    Attributes:
        role: `known` and `odd` images are used for fitting, the others are not.
        kind: Name of its kind.
        source: Origin of the image; cross-validation keeps images of one source in one fold.
        volume: The image.
    """

    role: Role
    kind: str
    source: str
    volume: Volume


def generated(count: int, seed: int) -> Iterator[Sample]:
    """Yield generated scans of degrees of anisotropy 0 to 3 and 5."""
    for i in range(count):
        generator = torch.Generator().manual_seed(seed + i)
        da0 = (0, 1, 2, 3, 5, 2)[i % 6]
        scene = draw_scene(da0, GENERATED_SIZE, generator)
        array = scene.image.numpy()[: 1 if da0 == 5 else None]
        slices_mm = PLANAR_SLICE_SPACING_MM if da0 == 5 else scene.slice_ratio
        yield Sample("known", "generated", f"generated {i}", Volume(array, (slices_mm, 1.0, 1.0)))


def real(folder: Path, cases: list[str], rng: np.random.Generator) -> Iterator[Sample]:
    """Yield central crops and slices of real scans as known images, and odd images from them."""
    for case in cases:
        array, spacing = depth_first_image(folder / case / "image.nii.gz")
        part = middle(array)
        yield Sample("known", "real scan", case, Volume(part, spacing))
        for i in rng.choice(np.arange(len(array) // 4, 3 * len(array) // 4 + 1), 2):
            flat = Volume(array[i : i + 1], (PLANAR_SLICE_SPACING_MM, *spacing[1:]))
            yield Sample("known", "slice of a real scan", case, flat)
        yield from spoilt("odd", case, part, spacing, rng)
        label = folder / case / "label.nii.gz"
        if label.exists():
            mask = (middle(depth_first_image(label)[0]) > 0).astype(np.uint8)
            if 0 < mask.mean() < 1:
                yield Sample("odd", "mask", case, Volume(mask, spacing))


def spoilt(
    role: Role, source: str, array: npt.NDArray[Any], spacing: Spacing, rng: np.random.Generator
) -> Iterator[Sample]:
    """Yield images with typical import errors: axes, slice order, spacing, intensities."""
    is_thick = spacing[0] > 1.6 * spacing[1]
    axes = "axes swapped, thick slices" if is_thick else "axes swapped, isotropic"
    yield Sample(role, axes, source, Volume(array.swapaxes(0, 1), spacing))
    shuffled = array[rng.permutation(len(array))]
    yield Sample(role, "slices shuffled", source, Volume(shuffled, spacing))
    if is_thick:
        yield Sample(role, "spacing lost", source, Volume(array, (1.0, 1.0, 1.0)))
    yield Sample(role, "inverted", source, Volume(array.max() - array, spacing))


def phantoms(count: int) -> Iterator[Sample]:
    """Yield generated trunks, without that of `pumit demo`, whose seed is 10."""
    for seed in range(1, count + 1):
        volume = torso_phantom(seed=seed).volume
        yield Sample("known", "generated", f"trunk {seed}", volume)


def synthetic(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield noise of several kinds, checkerboards and nearly empty images."""
    grids: list[tuple[tuple[int, int, int], Spacing]] = [
        ((48, 96, 96), (1.0, 1.0, 1.0)),
        ((12, 128, 128), (6.0, 1.0, 1.0)),
        ((1, 160, 160), (PLANAR_SLICE_SPACING_MM, 1.0, 1.0)),
    ]
    for number, (shape, spacing) in enumerate(grids):
        white = rng.normal(size=shape).astype(np.float32)
        arrays = {("white noise", "normal"): white, ("white noise", "Rayleigh"): white**2}
        for width in (1.5, 4.0):
            across = 0.0 if shape[0] == 1 else width / spacing[0]
            smooth = ndimage.gaussian_filter(white, (across, width, width))
            arrays["smooth noise", str(width)] = smooth
        at = [a * min(s, 1e3) for a, s in zip(np.indices(shape), spacing, strict=True)]
        for period in (4, 11, 32):
            board = sum(a // period for a in at) % 2
            arrays["checkerboard", str(period)] = board.astype(np.float32)
        arrays["nearly nothing", "ramp"] = at[2].astype(np.float32)
        dot = np.zeros(shape, dtype=np.float32)
        dot[0, 40, 40] = 1
        arrays["nearly nothing", "dot"] = dot
        for (kind, name), array in arrays.items():
            yield Sample("odd", kind, f"{kind} {name} {number}", Volume(array, spacing))


def photographs() -> Iterator[Sample]:
    """Yield the photographs and drawings of scikit-image."""
    folder = Path(skimage.__file__).parent / "data"
    for kind, names in (("photograph", PHOTOGRAPHS), ("text, drawing", DRAWINGS)):
        for name in names:
            if (folder / name).exists():
                volume = Volume.read(folder / name)
                named = (
                    "colour photograph" if kind == "photograph" and _has_colour(volume) else kind
                )
                yield Sample("odd", named, name, volume)


def measured(
    folder: Path, groups: dict[str, list[Path]], rng: np.random.Generator
) -> Iterator[Sample]:
    """Yield real images for evaluation only, and odd ones made from the volumes."""
    for kind, paths in groups.items():
        for path in paths:
            volume = Volume.read(path)
            name = f"{path.parent.name}/{path.name}"
            if volume.is_planar:
                yield Sample("measured", kind, name, volume)
                continue
            array, spacing = depth_first_image(path)
            part = middle(array)
            yield Sample("measured", kind, name, Volume(part, spacing))
            yield from spoilt("measured odd", name, part, spacing, rng)


def depth_first_image(path: Path) -> tuple[npt.NDArray[Any], Spacing]:
    """Read the first channel of an image, with its coarsest axis first, and the spacing."""
    volume = Volume.read(path)
    array = volume.array if volume.array.ndim == 3 else volume.array[0]
    order = depth_first(volume.spacing_mm, volume.shape)
    d, h, w = (volume.spacing_mm[axis] for axis in order)
    return array.transpose(order), (d, h, w)


def middle(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Crop the centre of an image, at most `SIZE` voxels wide and `SLICES` deep."""
    most = (SLICES, SIZE, SIZE)
    d, h, w = (max(0, (n - m) // 2) for n, m in zip(array.shape, most, strict=True))
    return array[d : d + SLICES, h : h + SIZE, w : w + SIZE]


def _has_colour(volume: Volume) -> bool:
    return volume.channels >= 3 and bool((np.ptp(volume.array[:3], axis=0) > 0).any())
