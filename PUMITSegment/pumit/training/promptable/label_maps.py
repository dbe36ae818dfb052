"""Scans generated from label maps of real anatomy: deformed, with random tissue and a scanner.

What a label map leaves out around its structures is filled with one of the generator's own
backgrounds, so that an organ does not stand in air. Some structures get lesions.

Source:
    Billot et al., SynthSeg, 2023: intensities drawn per label, deformed maps, random resolution.
    Differs from the source: any structure, or some neighbours together, may be the target.
"""

from __future__ import annotations

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
from pumit.training.synthesis.painting import Layout, any_of
from pumit.training.synthesis.scene import MIN_REAL_SHARE, Scene, is_target, slice_ratio_for
from pumit.training.synthesis.shapes import rotation
from pumit.volume import Volume

logger = logging.getLogger(__name__)

# Part of the body that a file's name tells. Each part is drawn equally often: one atlas of a knee
# shows as much that is new as twenty heads.
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
MOST_CLASSES = 60  # a data set with more labels teaches none
UNION = 0.15  # share of targets that are two structures
PART = 0.12  # share of targets that are a part of a structure
ALIKE = 0.25  # share of the scenes in which some labels are one tissue
LESIONS = 0.3  # share of the scenes in which a structure has lesions


class LabelMaps:
    """Draw scenes from label maps.

    A part of the body is drawn first, then a data set, as often as the root of its maps, then a
    map, then a structure. A file's name tells the part, its first two words the data set.

    Args:
        paths: Files of label maps; those of one data set have one meaning of each label.

    Raises:
        VolumeError: If a file cannot be read or shows no structure.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.sets: dict[str, list[RealScan]] = {}
        for path in paths:
            volume = Volume.read(path)
            label = volume.array if volume.array.ndim == 3 else volume.array[0]
            found = scan_of(label, volume.spacing_mm, label)
            if not found.places:
                raise VolumeError("A label map shows no structure.")
            name = path.name.split(".")[0]
            # An atlas of several parts of the body numbers the structures of each on its own.
            key = f"{part_of_body(name)}: {data_set_of(name)}"
            self.sets.setdefault(key, []).append(found)
        logger.info("%d label maps of %d data sets", len(paths), len(self.sets))

    def number_classes(self, first: int) -> list[tuple[str, int]]:
        """Return the number the labels of data sets, their backgrounds too; see `number_classes`.

        Those with hundreds of labels, parcels and nuclei, are left out.
        """
        named = {
            f"{name} (label maps)": maps
            for name, maps in self.sets.items()
            if max(len(each.values) for each in maps) <= MOST_CLASSES
        }
        return number_classes(named, first)

    def _any(self, generator: torch.Generator, *, has_classes: bool) -> RealScan | None:
        """Draw a map by part of the body, then data set; with classes only, on request."""
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
        """Draw a scene of a degree, or None where the drawn place has no usable target.

        Args:
            device: Device that it is drawn on; None draws on the CPU.
            is_wide: Whether it shows much of its map, as that lies.
        """
        g = generator
        # 1. The grid of the field, finer along depth where slices are thick.
        ratio = slice_ratio_for(da0, g)
        planar = da0 == 5
        oversampling = 1 if planar or ratio < 1.5 else min(3, round(ratio))
        there = torch.device("cpu") if device is None else device
        grid = Grid(
            field_shape(da0, size)[0], size, 1.0 if planar else ratio, oversampling, g, there
        )
        # 2. A label map as it is seen there, with its structures as a layout to paint.
        source = self._any(g, has_classes=is_wide)
        if source is None:
            return None
        labels, scale = _view(grid, source, is_wide=is_wide)
        layout = _layout(grid, labels)
        named = torch.unique(labels[labels > 0]).tolist()  # as `_layout` counts them
        sizes = [source.voxels[int(v)] * scale / ratio for v in named]
        if chance(g, LESIONS):
            add_lesions(grid, layout)
        shown = layout.labels[grid.oversampling // 2 :: grid.oversampling]
        # 3. Targets among the structures, and the classes of all voxels where they are named.
        targets = _targets(shown, layout, sizes, g)
        if not targets:
            return None
        wholes = None if planar else [whole for _, whole in targets]
        masks = [mask for mask, _ in targets]
        classes = None
        if len(source.classes):
            known = torch.from_numpy(source.classes).to(labels.device)
            classes = known[labels[grid.oversampling // 2 :: grid.oversampling]]
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
    """Return the part of the body that a label map shows by its name, or `other`."""
    return next((part for part, pattern in PARTS.items() if re.match(pattern, name)), "other")


def _view(grid: Grid, source: RealScan, *, is_wide: bool) -> tuple[Tensor, float]:
    """Look at one of the map's structures, or at much of it.

    Returns:
        Labels, turned and deformed, (D', H, W), and how many cubes of in-plane voxels stand for a
        voxel of the map.
    """
    g = grid.generator
    names = list(source.places)
    voxels, extent_mm = source.places[names[integer(g, 0, len(names) - 1)]]
    # 1. Where, and how large a voxel is: the structure takes a fifth to more than all of the field.
    place = voxels[integer(g, 0, len(voxels) - 1)]
    spacing = torch.tensor(source.image.spacing_mm)
    if is_wide:
        extents = torch.tensor(source.image.array.shape) * spacing
        voxel_mm = float(extents[1:].max()) * log_uniform(g, *VIEW) / grid.size
    else:
        voxel_mm = extent_mm / (grid.size * share_of_field(g))
    voxel_mm = max(voxel_mm, 0.5 * float(spacing.min()))
    # 2. Where each voxel of the grid comes from: turned, stretched, bent.
    points = grid.coordinates()  # (3, D', H, W), in-plane voxels
    shift = torch.tensor([uniform(g, -0.25, 0.25) * e for e in grid.extent])
    points = points + grid.on(shift)[:, None, None, None]
    length = uniform(g, 0.15, 0.5) * max(grid.extent)
    points = points + grid.noise(length, channels=3) * uniform(g, 0.0, 0.12) * length
    stretch = torch.diag(torch.tensor([log_uniform(g, 0.8, 1.25) for _ in range(3)]))
    if is_wide:
        matrix = stretch
    else:
        matrix = (rotation(grid) if chance(g, 0.6) else _quarter_turn(g)) @ stretch
    offset = torch.einsum("ij,j...->i...", grid.on(matrix), points) * voxel_mm
    index = offset / grid.on(spacing)[:, None, None, None]
    index = (index + grid.on(torch.from_numpy(place).float())[:, None, None, None]).round().long()
    # 3. Nearest labels; nothing beyond the map.
    limit = torch.tensor(source.image.array.shape, device=index.device)[:, None, None, None]
    inside = ((index >= 0) & (index < limit)).all(0)
    d, h, w = index.clamp_min(0).minimum(limit - 1).cpu().unbind(0)
    found = torch.from_numpy(source.image.array[d.numpy(), h.numpy(), w.numpy()].astype(np.int64))
    cube = voxel_mm**3 * float(torch.linalg.det(stretch))
    return torch.where(inside, grid.on(found), 0), float(spacing.prod()) / cube


def _quarter_turn(generator: torch.Generator) -> Tensor:
    """Return the map as it lies, or mirrored, shape (3, 3)."""
    signs = torch.randint(2, (3,), generator=generator).float() * 2 - 1
    return torch.diag(signs)


def _layout(grid: Grid, labels: Tensor) -> Layout:
    """Labels counted from 1 with their tissues, over a background in what is unlabelled."""
    g = grid.generator
    found, numbers = torch.unique(labels, return_inverse=True)
    has_outside = bool(found[0] == 0)
    numbers = numbers if has_outside else numbers + 1
    count = int(numbers.max())
    # Labels of one tissue, as left and right are, look alike.
    if count > 2 and chance(g, ALIKE):
        twins = {i: integer(g, 1, i - 1) for i in range(2, count + 1) if chance(g, 0.3)}
    else:
        twins = {}
    around = background(grid, grid.coordinates()) + count + 1
    # Unlabelled tissue is 0 as the generator's outside is, where the background is empty.
    around = torch.where(around == count + 1, 0, around)
    layout = Layout(torch.where(numbers == 0, around, numbers), count=int(around.max()) + 1)
    layout.count = max(layout.count, count + 1)
    layout.objects = [[i] for i in range(1, count + 1)]
    layout.twins = twins
    under = 0
    for label in range(1, count + 1):
        layout.parents[label] = under
        under = label  # neighbours in number are often neighbours in the body
    return layout


def _targets(
    shown: Tensor, layout: Layout, sizes: Sequence[float], generator: torch.Generator
) -> list[tuple[Tensor, float]]:
    """Structures, some of them as a union or in part.

    Args:
        shown: Labels of the scene's slices, (D, H, W).
        sizes: Voxels that each of its objects has as a whole.

    Returns:
        Masks (D, H, W), and the voxels of each as a whole.
    """
    order = torch.randperm(len(layout.objects), generator=generator).tolist()
    targets = []
    for index in order:
        parts = list(layout.objects[index])
        if chance(generator, UNION):
            parts += layout.objects[order[0]]
        mask = any_of(shown, parts)
        # A lesion ends in what is seen of it.
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
