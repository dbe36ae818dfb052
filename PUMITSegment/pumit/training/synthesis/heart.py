"""Hearts: a cavity in its wall, a crescent next to it, and what lies around them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pumit.training.synthesis.grid import Grid, chance, uniform
from pumit.training.synthesis.painting import Layout, paint
from pumit.training.synthesis.shapes import random_centre, rotation

HEART = ("wall", "cavity", "crescent")  # structures that a heart shows


@dataclass
class Axes:
    """Coordinates of a heart, in in-plane voxels.

    Attributes:
        along: Position from the base to the apex, 0 at the base.
        across: Two coordinates across, the first towards the crescent.
    """

    along: Tensor
    across: tuple[Tensor, Tensor]


def frame_of_heart(grid: Grid, *, tilt: float, thick: float) -> Tensor:
    """Directions of a heart as rows: along its long axis, and two across; (3, 3), on the CPU.

    The long axis runs through the slices of a thin stack, as short-axis views have it.

    Args:
        tilt: The most that the axis leans away from the slices' normal, as a slope.
        thick: Share of the hearts in thick slices that are seen so; others are turned anyhow.
    """
    g = grid.generator
    frame = rotation(grid)
    if (grid.slice_ratio >= 1.9 and chance(g, thick)) or (grid.depth == 1 and chance(g, 0.6)):
        axis = torch.tensor([1.0, *(uniform(g, -tilt, tilt) for _ in range(2))])
        axis = axis / axis.norm() * (1.0 if chance(g, 0.5) else -1.0)
        side = torch.linalg.cross(axis, frame[1], dim=0)
        side = side / side.norm()
        frame = torch.stack((axis, side, torch.linalg.cross(axis, side, dim=0)))
    return frame


def _axes(grid: Grid, xyz: Tensor, centre: Tensor, length: float) -> Axes:
    """Coordinates of a heart about a point."""
    frame = frame_of_heart(grid, tilt=0.3, thick=0.8)
    offset = xyz - grid.on(centre)[:, None, None, None]
    local = torch.einsum("ij,j...->i...", grid.on(frame), offset)
    return Axes(local[0] + length * uniform(grid.generator, 0.25, 0.75), (local[1], local[2]))


def cone(along: Tensor, length: float, power: float) -> Tensor:
    """Radius over that of the base: 1 at the base, 0 at the apex and beyond either."""
    s = along / length
    inside = (s >= 0) & (s < 1)
    return torch.where(
        inside, (1 - s.clamp(0, 1) ** power).clamp_min(0).sqrt(), -torch.ones_like(s)
    )


def heart(grid: Grid, layout: Layout, xyz: Tensor, size: float | None = None) -> None:
    """Paint a heart: fat around it, crescent, wall and cavity, each its own object.

    Both cavities hold the same blood most of the time; muscles stand into them and belong to
    them, as readers draw it.

    Args:
        size: Radius at the base, in-plane voxels; None draws one that suits the field.
    """
    g = grid.generator
    # 1. Axes of a heart of some size and place.
    if size is None:
        size = uniform(g, 0.13, 0.42) * grid.size
    length = size * uniform(g, 1.8, 3.4)
    axes = _axes(grid, xyz, random_centre(grid, 0.2), length)
    a, b = axes.across
    # 2. The outer surface: a cone with an uneven, squeezed outline.
    wobble = 1 + grid.noise(max(size * uniform(g, 0.6, 1.5), 2.0))[0] * uniform(g, 0.0, 0.07)
    squeeze = uniform(g, 0.85, 1.15)
    radius = ((a * squeeze).square() + (b / squeeze).square()).sqrt() * wobble
    power = uniform(g, 1.5, 4.0)
    outer = radius < size * cone(axes.along, length, power)

    # 3. The cavity within it: the same shape, smaller by a wall of uneven thickness.
    wall = size * uniform(g, 0.14, 0.5)
    bearing = torch.atan2(b, a)
    uneven = 1 + uniform(g, 0.0, 0.35) * torch.cos(bearing + uniform(g, 0, 6.3))
    core = cone(axes.along, length - wall * uniform(g, 0.6, 1.2), power) * size - wall * uneven
    if chance(g, 0.3):
        core = torch.minimum(core, (axes.along - wall) * 10)  # closed at the base too
    inner = (radius < core) & outer

    # 4. The crescent: an ellipse pushed into the wall, shorter than the other cavity.
    reach = length * uniform(g, 0.55, 1.0)
    taper = cone(axes.along - uniform(g, -0.2, 0.1) * length, reach, uniform(g, 1.2, 3.0))
    offset = size * uniform(g, 0.75, 1.25) * taper.clamp_min(0).sqrt()
    # Seen across it, the far side is bent round the near one.
    u = (a - offset) / (size * uniform(g, 0.45, 1.0)) + uniform(g, 0.0, 0.5) * (b / size).square()
    v = (b - size * uniform(g, -0.3, 0.3)) / (size * uniform(g, 0.7, 1.25))
    distance = (u.square() + v.square()).sqrt() * wobble
    crescent = (distance < taper) & ~outer

    # 5. Fat around both.
    around = layout.count
    if chance(g, 0.6):
        margin = uniform(g, 1.1, 1.45)
        fat = (radius < size * margin * (axes.along > -0.3 * length)) | (distance < margin * taper)
        paint(layout, fat)
    # 6. Paint each as its own object, in an order that tells apart wall and blood, and wall and
    # surroundings; tissues look alike as in scans.
    shapes = {"wall": outer, "cavity": inner, "thin": torch.zeros_like(outer), "crescent": crescent}
    if chance(g, 0.7):
        # The thin wall of the right side; no one draws it.
        shapes["thin"] = (distance < taper + uniform(g, 0.1, 0.22)) & (taper > 0) & ~outer
    labels = {name: paint(layout, m) for name, m in shapes.items() if bool(m.any())}
    layout.objects += [[label] for name, label in labels.items() if name != "thin"]
    if "wall" in labels:
        layout.objects.append([labels["wall"]])  # twice as often: a ring is what is hard to learn
    if "wall" in labels and around > 1 and chance(g, 0.4):
        # As dark as what lies about the heart: only the blood stands out.
        layout.twins[labels["wall"]] = int(uniform(g, 0, around - 1e-3))
    if "cavity" in labels and chance(g, 0.6):
        layout.contrasts[labels["cavity"]] = uniform(g, 0.2, 0.5)
    if {"wall", "thin"} <= labels.keys():
        layout.twins[labels["thin"]] = labels["wall"]
    if {"cavity", "crescent"} <= labels.keys() and chance(g, 0.75):
        layout.twins[labels["crescent"]] = labels["cavity"]  # the same blood in both
    layout.names |= {label: name for name, label in labels.items() if name in HEART}
    # 7. Muscles within the cavities, vessels at the base.
    _muscles(grid, layout, labels, shapes, size)
    _vessels(grid, layout, axes, labels, size)
    if chance(g, 0.1) and {"wall", "cavity"} <= labels.keys():
        layout.objects.append([labels["wall"], labels["cavity"]])


def _muscles(
    grid: Grid, layout: Layout, labels: dict[str, int], shapes: dict[str, Tensor], size: float
) -> None:
    """Papillary muscles and trabeculae: of the wall's tissue, but part of the cavity."""
    g = grid.generator
    for name in ("cavity", "crescent"):
        if name not in labels or "wall" not in labels or chance(g, 0.4):
            continue
        lumps = grid.noise(max(size * uniform(g, 0.15, 0.4), 1.5))[0] > uniform(g, 1.0, 2.0)
        mask = lumps & shapes[name]
        if not mask.any():
            continue
        label = paint(layout, mask)
        layout.twins[label] = labels["wall"]
        layout.names[label] = name
        for parts in layout.objects:
            if labels[name] in parts:
                parts.append(label)


def _vessels(grid: Grid, layout: Layout, axes: Axes, labels: dict[str, int], size: float) -> None:
    """Atria and great vessels beyond the base, filled with the same blood; not to be included."""
    g = grid.generator
    a, b = axes.across
    for _ in range(int(uniform(g, 0, 3.99))):
        centre = [uniform(g, -1.3, 1.3) * size for _ in range(2)]
        radius = size * uniform(g, 0.3, 0.8)
        disc = ((a - centre[0]).square() + (b - centre[1]).square()).sqrt() < radius
        mask = disc & (axes.along < 0) & (axes.along > -size * uniform(g, 0.3, 2.0))
        if int(mask.sum()) < 8:
            continue
        label = paint(layout, mask)
        if "cavity" in labels and chance(g, 0.7):
            layout.twins[label] = labels["cavity"]
