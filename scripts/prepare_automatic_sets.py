"""Make the training sets of the shipped automatic models, from cropped public scans.

    python scripts/prepare_automatic_sets.py --data TRAIN --set heart-mr -o SETS/heart-mr
    pumit train heart_mr --data SETS/heart-mr -o runs/heart-mr

TRAIN holds `index.json` and a folder with image and label for each case. The public hearts and
abdomens are cropped close to the organs, and the CTs have 8 bits, unlike a user's scans. Each case
is therefore written unchanged and again inside larger surroundings, CT also in approximate
Hounsfield units. The surroundings are labelled as background.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import SimpleITK
from scipy import ndimage

Array = npt.NDArray[Any]
Padding = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
SETS = {
    "heart-mr": "acdc",
    "abdomen-ct": "btcv",
    "abdomen-mr": "chaos_mr",
    "hippocampus-mr": "hippocampus",
}
LIVER = 6  # label value in the CT set
HEART_SPACING_MM = 1.5
# Intensity augmentation of organs in MR: label values, lowest and highest factor. Iron overload,
# as after transfusions, darkens liver and spleen.
Ranges = tuple[tuple[tuple[int, ...], float, float], ...]
OTHER: Ranges = (((1,), 0.3, 1.6), ((2, 3), 0.6, 1.3), ((4,), 0.5, 1.4))
IRON: Ranges = (((1,), 0.25, 0.7), ((2, 3), 0.7, 1.3), ((4,), 0.2, 0.6))


@dataclass(frozen=True)
class Copy:
    """One variant of a case.

    Attributes:
        suffix: Suffix of the case's name.
        image: Intensities, (D, H, W).
        labels: (D, H, W).
        padding: Voxels added before and after, along each axis.
    """

    suffix: str
    image: Array
    labels: Array
    padding: Padding


def padding_to(shape: tuple[int, ...], size: int, random: np.random.Generator) -> Padding:
    """Return in-plane padding to `size` voxels or more; each side gets at least a third of it."""
    sides = []
    for n in shape[1:]:
        missing = max(0, size - n)
        before = int(random.integers(missing // 3, missing - missing // 3 + 1))
        sides.append((before, missing - before))
    return (0, 0), sides[0], sides[1]


class HeartCopies:
    """Copies of heart scans inside the tissue of other MR scans.

    Args:
        scans: Image files of other MR scans.
        random: Generator for sizes, positions and contrasts.
    """

    def __init__(self, scans: list[Path], random: np.random.Generator) -> None:
        self._random = random
        self._tissue = []
        for path in scans:
            image = SimpleITK.ReadImage(str(path))
            zoom = image.GetSpacing()[0] / HEART_SPACING_MM
            array = ndimage.zoom(
                SimpleITK.GetArrayFromImage(image).astype(np.float32), (1, zoom, zoom), order=1
            )
            low, high = np.percentile(array, [1, 99])
            self._tissue.append(np.clip((array - low) / (high - low), 0, 1.3))

    def __call__(self, image: Array, labels: Array) -> Iterator[Copy]:
        """Yield two copies with larger surroundings."""
        for suffix in ("b", "c"):
            padding = padding_to(image.shape, int(self._random.integers(190, 260)), self._random)
            low, high = np.percentile(image, [1, 99])
            around = self._around(tuple(np.add(image.shape, np.sum(padding, axis=1))))
            around = low + (high - low) * around
            # The scan fades into its surroundings over eight voxels.
            scan = np.pad(np.ones(image.shape[1:]), padding[1:])
            weight = np.clip(ndimage.distance_transform_edt(scan) / 8, 0, 1)
            mixed = np.pad(image, padding) * weight + around * (1 - weight)
            yield Copy(suffix, mixed, np.pad(labels, padding), padding)

    def _around(self, shape: tuple[int, ...]) -> Array:
        """Return tissue of another scan, about 0 to 1: a random crop, scale and contrast."""
        random = self._random
        tissue = self._tissue[random.integers(len(self._tissue))]
        zoom = random.uniform(0.8, 1.3)
        first = int(random.integers(0, max(1, tissue.shape[0] - shape[0])))
        part = ndimage.zoom(tissue[first : first + shape[0]], (1, zoom, zoom), order=1)
        for axis in (1, 2):
            if random.random() < 0.5:
                part = np.flip(part, axis)
        missing = [(0, max(0, n - m)) for n, m in zip(shape, part.shape, strict=True)]
        part = np.pad(part, missing, mode="wrap")
        y, x = (int(random.integers(0, part.shape[a] - shape[a] + 1)) for a in (1, 2))
        part = part[: shape[0], y : y + shape[1], x : x + shape[2]]
        part = np.clip(part, 0, 1.3) ** random.uniform(0.7, 1.4) * random.uniform(0.6, 1.1)
        return np.asarray(part * (random.uniform(0.1, 0.5) if random.random() < 0.3 else 1.0))


def mr_copies(image: Array, labels: Array, random: np.random.Generator) -> Iterator[Copy]:
    """Yield a copy padded with air of little noise, and copies with other contrasts."""
    padding = padding_to(image.shape, int(random.integers(240, 270)), random)
    padded = np.pad(image, padding)
    outside = np.pad(np.zeros(image.shape, dtype=bool), padding, constant_values=True)
    padded[outside] = np.abs(random.normal(0, 6, int(outside.sum())))
    yield Copy("b", padded, np.pad(labels, padding), padding)
    for suffix, ranges in (("c", OTHER), ("d", OTHER), ("e", OTHER), ("f", IRON), ("g", IRON)):
        other = other_contrasts(image, labels, ranges, random)
        yield Copy(suffix, other, labels, ((0, 0),) * 3)


def other_contrasts(
    image: Array, labels: Array, ranges: Ranges, random: np.random.Generator
) -> Array:
    """Return an abdominal MR with other grey levels of organs, as with iron or fat."""
    found, brightest = image.copy(), np.percentile(image, 99)
    # 1. Darken or brighten organs, with soft borders; both kidneys by the same factor.
    for values, low, high in ranges:
        factor = np.exp(random.uniform(np.log(low), np.log(high)))
        inside = np.isin(labels, values).astype(np.float32)
        found *= 1 + (factor - 1) * ndimage.gaussian_filter(inside, (0, 1, 1))
    # 2. A random monotonic curve of grey levels.
    knots = np.array([0.2, 0.4, 0.6, 0.8])
    curve = 0.5 * knots + 0.5 * np.sort(random.uniform(0, 1, 4))
    grey = np.interp(found / brightest, [0, *knots, 1, 1.5], [0, *curve, 1, 1.5])
    # 3. A bias field and noise.
    coarse = random.normal(0, 1, (2, 3, 3))
    field = ndimage.zoom(
        coarse, [n / m for n, m in zip(image.shape, coarse.shape, strict=True)], order=1
    )
    noise = random.normal(0, random.uniform(0.005, 0.03), image.shape)
    return np.clip((grey * np.exp(0.25 * field) + noise) * brightest, 0, None)


def ct_copies(image: Array, labels: Array, random: np.random.Generator) -> Iterator[Copy]:
    """Yield two copies padded with air: in 8 bits as published, and in Hounsfield units.

    The intensity window of the 8 bits varies between cases and is not stated. It is assumed to
    begin at the lower end of fat and to give the liver its value in the portal venous phase.
    """
    padding = padding_to(image.shape, int(random.integers(257, 300)), random)
    yield Copy("b", np.pad(image, padding), np.pad(labels, padding), padding)
    padding = padding_to(image.shape, int(random.integers(257, 300)), random)
    padded = np.pad(image, padding)
    low = -125 - random.uniform(0, 40)
    width = (random.uniform(90, 125) - low) * 255 / np.median(image[labels == LIVER])
    units = low + padded / 255 * width
    # Below the window is air: -1000 HU outside the body, somewhat more in lungs and bowel.
    air = padded == 0
    pieces, count = ndimage.label(air)
    is_outside = np.zeros(count + 1, dtype=bool)
    for border in (pieces[:, 0], pieces[:, -1], pieces[:, :, 0], pieces[:, :, -1]):
        is_outside[np.unique(border)] = True
    is_outside[0] = False
    outside = is_outside[pieces]
    units[air] = random.normal(-830, 70, int(air.sum()))
    units[outside] = random.normal(-995, 12, int(outside.sum()))
    # Above the window is bone.
    bone = padded >= 250
    units[bone] += np.abs(random.normal(0, 250, int(bone.sum())))
    units = ndimage.gaussian_filter(units, (0, 0.5, 0.5)) + random.normal(0, 8, units.shape)
    yield Copy("hu", units, np.pad(labels, padding), padding)


def write(copy: Copy, image: SimpleITK.Image, name: str, output: Path) -> None:
    """Write a copy; the scan's own voxels keep their world positions."""
    corner = [-copy.padding[axis][0] for axis in (2, 1, 0)]
    contents = {"images": np.round(copy.image).astype(np.int16), "labels": copy.labels}
    for kind, array in contents.items():
        made = SimpleITK.GetImageFromArray(array)
        made.SetSpacing(image.GetSpacing())
        made.SetDirection(image.GetDirection())
        made.SetOrigin(image.TransformIndexToPhysicalPoint(corner))
        (output / kind).mkdir(parents=True, exist_ok=True)
        SimpleITK.WriteImage(made, str(output / kind / f"{name}_{copy.suffix}.nii.gz"), True)


def main() -> None:
    """Write one set."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with index.json and cases")
    parser.add_argument("--set", choices=SETS, required=True, help="which model it is for")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder to write")
    args = parser.parse_args()
    index = json.loads((args.data / "index.json").read_text())
    random = np.random.default_rng(0)
    files = {name: args.data / "cases" / name for name in sorted(index)}
    others = [
        files[name] / "image.nii.gz"
        for name, row in index.items()
        if row["dataset"] in ("chaos_mr", "sts") and row["modality"] == "MR"
    ]
    hearts = HeartCopies(others, random) if args.set == "heart-mr" else None
    for name in (n for n in files if index[n]["dataset"] == SETS[args.set]):
        image = SimpleITK.ReadImage(str(files[name] / "image.nii.gz"))
        array = SimpleITK.GetArrayFromImage(image).astype(np.float32)
        label_image = SimpleITK.ReadImage(str(files[name] / "label.nii.gz"))
        labels = SimpleITK.GetArrayFromImage(label_image).astype(np.uint8)
        write(Copy("a", array, labels, ((0, 0),) * 3), image, name, args.output)
        if hearts is not None:
            copies = hearts(array, labels)
        elif args.set == "hippocampus-mr":  # this model is meant for crops
            copies = iter(())
        else:
            copies = {"abdomen-ct": ct_copies, "abdomen-mr": mr_copies}[args.set](
                array, labels, random
            )
        for copy in copies:
            write(copy, image, name, args.output)


if __name__ == "__main__":
    main()
