"""Scans synthesised from deformed label maps of real anatomy.

Tissue intensities and acquisition are random. Unlabelled voxels are filled with a generated
background, so that organs are not surrounded by air. Some structures get lesions.

Source:
    Billot et al., SynthSeg, 2023: intensities drawn per label, deformed maps, random resolution.
    Differs from the source: the target may be any structure, a union of two, or a part of one.
"""

import logging
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pumit.errors import VolumeError
from pumit.preprocessing.fields import field_shape
from pumit.training.promptable.labelled_scans import VIEW, data_set_of, part_of, share_of_field
from pumit.training.promptable.real_scan import RealScan, number_classes, scan_of
from pumit.training.synthesis.appearance import acquire, textured
from pumit.training.synthesis.grid import Grid, chance, integer, log_uniform, uniform
from pumit.training.synthesis.layout import add_lesions, background
from pumit.training.synthesis.scene import MIN_REAL_SHARE, Scene, is_target, slice_ratio_for
from pumit.training.synthesis.shapes import Layout, any_of, rotation
from pumit.volume import Volume

logger = logging.getLogger(__name__)

# Patterns of file names for each part of the body. Parts are drawn equally often: one knee atlas
# adds as much variety as twenty heads.
PARTS: dict[str, str] = {
    "head": r"brain|head_|zanatomy_full_head",
    "neck": r"headneck",
    "spine": r"spine|skeleton_torso",
    "thorax": r"lung|torso|hra_._thorax|zanatomy_.*thorax",
    "abdomen": r"abdomen|kidney|liver|hra_._abdomen|zanatomy_full_abdomen",
    "pelvis": r"hra_._pelvis|zanatomy_full_pelvis",
    "leg": r"knee|thigh|.*(hip|femur|foot|knee|thigh|calf)",
    "arm": r".*(hand|elbow|shoulder)",
}
MOST_TARGETS = 6
MOST_CLASSES = 60  # data sets with more labels get no classes
UNION = 0.15  # share of targets that are a union of two structures
PART = 0.12  # share of targets that are a part of a structure
ALIKE = 0.25  # share of scenes in which some labels share a tissue
LESIONS = 0.3  # share of scenes with lesions


class LabelMaps:
    """Source of scenes generated from label maps.

    Draws a part of the body, then a data set with weight sqrt(number of maps), then a map and a
    structure. The part is inferred from the file name, the data set from its first two words.

    Args:
        paths: Label map files; a label means the same in all files of a data set.

    Raises:
        VolumeError: If a file cannot be read or shows no structure.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.sets: dict[str, list[RealScan]] = {}
        for path in paths:
            try:
                volume = Volume.read(path)
                label = volume.array if volume.array.ndim == 3 else volume.array[0]
                found = scan_of(label, volume.spacing_mm, label)
            except VolumeError as error:
                raise VolumeError(f"{path.name}: {error}") from None
            if not found.places:
                raise VolumeError(f"{path.name}: the label map shows no structure.")
            name = path.name.split(".")[0]
            # Atlases that cover several parts of the body number the structures of each separately.
            key = f"{part_of_body(name)}: {data_set_of(name)}"
            self.sets.setdefault(key, []).append(found)
        logger.info("%d label maps of %d data sets", len(paths), len(self.sets))

    def number_classes(self, first: int) -> list[tuple[str, int]]:
        """Assign class numbers to labels and backgrounds of all data sets; see `number_classes`.

        Data sets with more than `MOST_CLASSES` labels, such as parcellations, are left out.
        """
        named = {
            f"{name} (label maps)": maps
            for name, maps in self.sets.items()
            if max(len(each.values) for each in maps) <= MOST_CLASSES
        }
        return number_classes(named, first)

    def _any(self, generator: torch.Generator, *, has_classes: bool) -> RealScan | None:
        """Draw a map by part of the body, then data set; None if none has the classes required."""
        parts: dict[str, list[list[RealScan]]] = {}
        for name, maps in self.sets.items():
            if not has_classes or len(maps[0].classes):
                parts.setdefault(name.partition(":")[0], []).append(maps)
        if not parts:
            return None
        sets = list(parts.values())[integer(generator, 0, len(parts) - 1)]
        roots = torch.tensor([len(maps) ** 0.5 for maps in sets])
        maps = sets[int(torch.multinomial(roots, 1, generator=generator))]
        return maps[integer(generator, 0, len(maps) - 1)]

    def draw(
        self,
        da0: int,
        size: int,
        generator: torch.Generator,
        device: torch.device | None = None,
        *,
        is_wide: bool = False,
    ) -> Scene | None:
        """Draw a scene of a degree of anisotropy, or return None if it has no usable target.

        With `is_wide`, draw only maps with classes and show much of the map, unrotated.
        """
        g = generator
        # 1. Grid of the field, over-sampled along depth where slices are thick.
        ratio = slice_ratio_for(da0, g)
        planar = da0 == 5
        there = torch.device("cpu") if device is None else device
        grid = Grid.for_field(field_shape(da0, size), 1.0 if planar else ratio, g, there)
        # 2. Sample a label map on it, and turn its structures into a layout to paint.
        source = self._any(g, has_classes=is_wide)
        if source is None:
            return None
        labels, scale = _view(grid, source, is_wide=is_wide)
        layout = _layout(grid, labels)
        named = torch.unique(labels[labels > 0]).tolist()  # same order as in `_layout`
        sizes = [source.voxels[int(v)] * scale / ratio for v in named]
        if chance(g, LESIONS):
            add_lesions(grid, layout)
        shown = layout.labels[grid.middles]
        # 3. Targets among the structures, and the class of every voxel if the map has classes.
        targets = _targets(shown, layout, sizes, g)
        if not targets:
            return None
        wholes = None if planar else [whole for _, whole in targets]
        masks = [mask for mask, _ in targets]
        classes = None
        if len(source.classes):
            known = torch.from_numpy(source.classes).to(labels.device)
            classes = known[labels[grid.middles]]
        return Scene(
            acquire(grid, textured(grid, layout)),
            masks,
            ratio,
            is_upright=is_wide,
            wholes=wholes,
            classes=classes,
            regions=shown,
        )


def part_of_body(name: str) -> str:
    """Infer the part of the body from a label map's file name; `other` if none matches."""
    return next((part for part, pattern in PARTS.items() if re.match(pattern, name)), "other")


def _view(grid: Grid, source: RealScan, *, is_wide: bool) -> tuple[Tensor, float]:
    """Sample the label map around one of its structures, rotated and deformed.

    Returns:
        Labels (D', H, W), and the volume of a map voxel in units of the cubed in-plane spacing,
        after scaling.
    """
    g = grid.generator
    names = list(source.places)
    voxels, extent_mm = source.places[names[integer(g, 0, len(names) - 1)]]
    # 1. Centre and in-plane spacing.
    place = voxels[integer(g, 0, len(voxels) - 1)]
    spacing = torch.tensor(source.image.spacing_mm)
    if is_wide:
        extents = torch.tensor(source.image.array.shape) * spacing
        voxel_mm = float(extents[1:].max()) * log_uniform(g, *VIEW) / grid.size
    else:
        voxel_mm = extent_mm / (grid.size * share_of_field(g))
    voxel_mm = max(voxel_mm, 0.5 * float(spacing.min()))
    # 2. Map voxel of each grid point: shift, elastic deformation, scaling, rotation.
    points = grid.coordinates()  # (3, D', H, W), in-plane voxels
    shift = torch.tensor([uniform(g, -0.25, 0.25) * e for e in grid.extent])
    points = points + grid.on(shift)[:, None, None, None]
    length = uniform(g, 0.15, 0.5) * max(grid.extent)
    points = points + grid.noise(length, channels=3) * uniform(g, 0.0, 0.12) * length
    stretch = torch.diag(torch.tensor([log_uniform(g, 0.8, 1.25) for _ in range(3)]))
    matrix = stretch
    if not is_wide and chance(g, 0.6):
        matrix = rotation(grid) @ stretch
    elif not is_wide:  # random flips of the axes
        matrix = torch.diag(torch.randint(2, (3,), generator=g).float() * 2 - 1) @ stretch
    offset = torch.einsum("ij,j...->i...", grid.on(matrix), points) * voxel_mm
    index = offset / grid.on(spacing)[:, None, None, None]
    index = (index + grid.on(torch.from_numpy(place).float())[:, None, None, None]).round().long()
    # 3. Nearest labels; 0 outside the map.
    limit = torch.tensor(source.image.array.shape, device=index.device)[:, None, None, None]
    inside = ((index >= 0) & (index < limit)).all(0)
    d, h, w = index.clamp_min(0).minimum(limit - 1).cpu().unbind(0)
    found = torch.from_numpy(source.image.array[d.numpy(), h.numpy(), w.numpy()].astype(np.int64))
    cube = voxel_mm**3 * float(torch.linalg.det(stretch))
    return torch.where(inside, grid.on(found), 0), float(spacing.prod()) / cube


def _layout(grid: Grid, labels: Tensor) -> Layout:
    """Renumber the labels from 1 and fill unlabelled voxels with a generated background."""
    g = grid.generator
    found, numbers = torch.unique(labels, return_inverse=True)
    has_outside = bool(found[0] == 0)
    numbers = numbers if has_outside else numbers + 1
    count = int(numbers.max())
    # Some labels share a tissue and look the same, as left and right organs do.
    twins = {}
    if count > 2 and chance(g, ALIKE):
        twins = {i: integer(g, 1, i - 1) for i in range(2, count + 1) if chance(g, 0.3)}
    around = background(grid, grid.coordinates()) + count + 1
    # Empty background is 0, like the outside in generated scenes.
    around = torch.where(around == count + 1, 0, around)
    layout = Layout(
        torch.where(numbers == 0, around, numbers),
        objects=[[i] for i in range(1, count + 1)],
        twins=twins,
        count=max(int(around.max()), count) + 1,
    )
    under = 0
    for label in range(1, count + 1):
        layout.parents[label] = under
        under = label  # labels with adjacent numbers are often adjacent in the body
    return layout


def _targets(
    shown: Tensor, layout: Layout, sizes: Sequence[float], generator: torch.Generator
) -> list[tuple[Tensor, float]]:
    """Choose targets, some of them a union or a part; return masks and sizes as `Scene.wholes`."""
    order = torch.randperm(len(layout.objects), generator=generator).tolist()
    targets = []
    for index in order:
        parts = list(layout.objects[index])
        if chance(generator, UNION):
            parts += layout.objects[order[0]]
        mask = any_of(shown, parts)
        # Lesions have no size outside the scene: count the visible voxels.
        whole = sum(sizes[part - 1] for part in set(parts) if part <= len(sizes))
        whole = whole or float(mask.sum())
        if chance(generator, PART):
            part = part_of(mask, generator)
            whole *= float(part.sum()) / max(float(mask.sum()), 1.0)
            mask = part
        if is_target(mask, MIN_REAL_SHARE):
            targets.append((mask, whole))
        if len(targets) == MOST_TARGETS:
            break
    return targets
