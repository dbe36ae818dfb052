"""Comparison of generated and labelled hearts: shapes, slices and grey levels at borders.

    export PYTHONPATH=PUMITSegment
    python Testing/lab/accuracy/compare_hearts.py CASES...

`CASES` are folders with `image.nii.gz` and `label.nii.gz`: 1 right ventricle, 2 wall, 3 left
ventricle, in short-axis slices. Prints quartiles of both, to show where the generator's ranges are
off. Grey levels are scaled to 0 in the wall and 1 in the middle of the left ventricle.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import numpy.typing as npt
import SimpleITK
import torch
from pumit.training.synthesis import short_axis as drawn
from pumit.training.synthesis.appearance import acquire, textured
from pumit.training.synthesis.grid import Grid
from pumit.training.synthesis.shapes import Layout, any_of
from scipy import ndimage

Mask = npt.NDArray[np.bool_]
SEEDS = 200
DEPTH, SIZE, RATIO = 16, 96, 6.0  # slices, in-plane voxels, slice spacing over in-plane spacing
SPACINGS_MM = (0.9, 2.4)  # in-plane range of generated hearts to compare
LEAST = 30  # fewest voxels of a structure in a slice


@dataclass
class Heart:
    """A scan of a heart: image and masks (d, h, w), in-plane spacing in mm."""

    image: npt.NDArray[np.float64]
    right: Mask
    wall: Mask
    left: Mask
    mm: float


def labelled(folder: Path) -> Heart:
    """Read a labelled scan."""
    image = SimpleITK.ReadImage(str(folder / "image.nii.gz"))
    labels = SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(folder / "label.nii.gz")))
    right, wall, left = (labels == value for value in (1, 2, 3))
    voxels = SimpleITK.GetArrayFromImage(image).astype(float)
    return Heart(voxels, right, wall, left, image.GetSpacing()[0])


def generated() -> Iterator[Heart]:
    """Yield generated hearts with cine MR contrast that are completely in the field."""
    for seed in range(SEEDS):
        grid = Grid(DEPTH, SIZE, RATIO, 1, torch.Generator().manual_seed(seed))
        layout = Layout(torch.zeros(grid.shape, dtype=torch.long))
        with (
            mock.patch.object(drawn, "SCANS", ((1.0, drawn.CINE),)),
            mock.patch.object(drawn, "_paint_ventricles", wraps=drawn._paint_ventricles) as paint,
        ):
            drawn.short_axis(grid, layout, grid.coordinates())
        mm = 1 / paint.call_args.args[0].mm  # voxel size
        image = acquire(grid, textured(grid, layout), is_natural=layout.is_natural).numpy()
        masks = {
            name: any_of(layout.labels, [i for i, of in layout.names.items() if of == name]).numpy()
            for name in ("crescent", "wall", "cavity")
        }
        heart = Heart(image, *masks.values(), mm)
        ring = masks["wall"]
        is_whole = not (ring[[0, -1]].any() or ring[:, [0, -1]].any() or ring[:, :, [0, -1]].any())
        if layout.is_upright and SPACINGS_MM[0] < heart.mm < SPACINGS_MM[1] and is_whole:
            yield heart


def in_slices(heart: Heart, found: dict[str, list[float]]) -> None:
    """Measure each slice that shows the left ventricle, except the first and last."""
    shown = [z for z in range(len(heart.left)) if heart.left[z].sum() > LEAST]
    for z in shown[1:-1]:
        image, right, wall, left = (
            part[z] for part in (heart.image, heart.right, heart.wall, heart.left)
        )
        core = ndimage.binary_erosion(left, iterations=3)
        if wall.sum() < LEAST or not core.any():
            continue
        # 1. Grey levels relative to wall and blood, by distance from the borders in voxels.
        dark, bright = np.median(image[wall]), np.median(image[core])
        grey = (image - dark) / (bright - dark)
        whole = ndimage.binary_fill_holes(wall | left)
        outer, inner = ((mask.sum() / np.pi) ** 0.5 for mask in (whole, left))
        found["wall, mm"].append((outer - inner) * heart.mm)
        found["wall over outer radius"].append((outer - inner) / outer)
        not_right = ~ndimage.binary_dilation(right, iterations=3)
        for name, mask, part in (
            ("left ventricle", left, ~right),
            ("outside of the wall", whole, not_right),
            ("right ventricle", right, ~whole),
        ):
            distance = _signed(mask)
            for voxels in (-3, -1, 1, 3):
                at = (abs(distance - voxels) < 0.5) & part
                if (name == "outside of the wall") == (voxels > 0) and at.sum() > 3:
                    found[f"grey, {name}, {abs(voxels)} voxels off"].append(np.median(grey[at]))
        # 2. The right ventricle relative to the left one.
        if right.sum() > LEAST:
            found["right over left area"].append(right.sum() / left.sum())
            deepest = ndimage.distance_transform_edt(right).max()
            found["depth of the right one over outer radius"].append(deepest / outer)


def through_slices(heart: Heart, found: dict[str, list[float]]) -> None:
    """Measure from slice to slice, from the base to the apex."""
    left_and_wall = np.array([ndimage.binary_fill_holes(m) for m in heart.wall | heart.left])
    areas = {"left ventricle and wall": left_and_wall, "right ventricle": heart.right}
    sums = {name: mask.sum((1, 2)).astype(float) for name, mask in areas.items()}
    shown = np.flatnonzero(sum(sums.values()))
    whole = sums["left ventricle and wall"]
    if len(shown) < 4:
        return
    step = 1 if whole[shown[:3]].sum() > whole[shown[-3:]].sum() else -1
    for name, area in sums.items():
        for share in (0, 0.25, 0.5, 0.75, 1):
            z = shown[::step][round(share * (len(shown) - 1))]
            found[f"area, {name}, at {share} of its length"].append(area[z] / max(area.max(), 1))
    middles = [np.argwhere(mask).mean(0) for mask in heart.left if mask.sum() > LEAST]
    shifts = np.linalg.norm(np.diff(middles, axis=0), axis=1) * heart.mm
    if len(shifts) > 0:
        found["shift from slice to slice, mm"].append(float(np.median(shifts)))


def _signed(mask: Mask) -> npt.NDArray[np.float64]:
    """Return the signed distance from the border of a mask (h, w), voxels; negative inside."""
    outside, inside = (ndimage.distance_transform_edt(m) for m in (~mask, mask))
    return np.asarray(outside - inside)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="+", type=Path)
    hearts = {"labelled": map(labelled, parser.parse_args().cases), "generated": generated()}
    found: dict[str, dict[str, list[float]]] = {}
    for kind, each in hearts.items():
        found[kind] = defaultdict(list)
        for heart in each:
            in_slices(heart, found[kind])
            through_slices(heart, found[kind])
    print("| quartiles | labelled | generated |\n|---|---|---|")
    for name in found["labelled"]:
        both = (np.percentile(found[k][name] or [np.nan], [25, 50, 75]) for k in hearts)
        print(f"| {name} |", " | ".join(" ".join(f"{v:.2f}" for v in row) for row in both), "|")


if __name__ == "__main__":
    main()
