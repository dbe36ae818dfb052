"""Hearts: left ventricle (wall and cavity), right ventricle (crescent), and surroundings."""

from __future__ import annotations

import torch
from torch import Tensor

from pumit.training.synthesis.grid import Grid, chance, uniform
from pumit.training.synthesis.shapes import Layout, paint, random_centre, rotation

HEART = ("wall", "cavity", "crescent")  # class names of a heart


def frame_of_heart(grid: Grid, *, tilt: float, thick: float) -> Tensor:
    """Draw the directions of a heart as rows: long axis and two perpendicular ones; (3, 3), CPU.

    In 2D and in thick slices the long axis is often close to the slice normal, as in short-axis
    views; otherwise the orientation is uniform.

    Args:
        tilt: Largest slope of the long axis against the slice normal.
        thick: Share of short-axis views among hearts in thick slices.
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


def cone(along: Tensor, length: float, power: float) -> Tensor:
    """Return the radius relative to the base: 1 at the base, 0 at the apex, -1 beyond either."""
    s = along / length
    inside = (s >= 0) & (s < 1)
    return torch.where(
        inside, (1 - s.clamp(0, 1) ** power).clamp_min(0).sqrt(), -torch.ones_like(s)
    )


def heart(grid: Grid, layout: Layout, xyz: Tensor) -> None:
    """Paint a heart: surrounding fat, crescent, wall and cavity; the last three are objects.

    Both cavities mostly have the same blood intensity. Papillary muscles and trabeculae count as
    part of the cavities, as in manual annotations.
    """
    g = grid.generator
    # 1. Axes of a heart of random size (radius at the base) and position, (3, D', H, W): the first
    #    is 0 at the base and rises to the apex, the second points to the crescent.
    size = uniform(g, 0.13, 0.42) * grid.size
    length = size * uniform(g, 1.8, 3.4)
    offset = xyz - grid.on(random_centre(grid, 0.2))[:, None, None, None]
    frame = frame_of_heart(grid, tilt=0.3, thick=0.8)
    axes = torch.einsum("ij,j...->i...", grid.on(frame), offset)
    axes[0] += length * uniform(g, 0.25, 0.75)
    along, a, b = axes
    # 2. Outer surface: a cone with an uneven, elliptical outline.
    wobble = 1 + grid.noise(max(size * uniform(g, 0.6, 1.5), 2.0))[0] * uniform(g, 0.0, 0.07)
    squeeze = uniform(g, 0.85, 1.15)
    radius = ((a * squeeze).square() + (b / squeeze).square()).sqrt() * wobble
    power = uniform(g, 1.5, 4.0)
    outer = radius < size * cone(along, length, power)

    # 3. Cavity: the same shape, smaller by a wall of uneven thickness.
    wall = size * uniform(g, 0.14, 0.5)
    bearing = torch.atan2(b, a)
    uneven = 1 + uniform(g, 0.0, 0.35) * torch.cos(bearing + uniform(g, 0, 6.3))
    core = cone(along, length - wall * uniform(g, 0.6, 1.2), power) * size - wall * uneven
    if chance(g, 0.3):
        core = torch.minimum(core, (along - wall) * 10)  # also closed at the base
    inner = (radius < core) & outer

    # 4. Crescent: an ellipse that overlaps the wall, not longer than the left ventricle.
    reach = length * uniform(g, 0.55, 1.0)
    taper = cone(along - uniform(g, -0.2, 0.1) * length, reach, uniform(g, 1.2, 3.0))
    offset = size * uniform(g, 0.75, 1.25) * taper.clamp_min(0).sqrt()
    # In cross-section the crescent bends around the left ventricle.
    u = (a - offset) / (size * uniform(g, 0.45, 1.0)) + uniform(g, 0.0, 0.5) * (b / size).square()
    v = (b - size * uniform(g, -0.3, 0.3)) / (size * uniform(g, 0.7, 1.25))
    distance = (u.square() + v.square()).sqrt() * wobble
    crescent = (distance < taper) & ~outer

    # 5. Fat around both.
    around = layout.count
    if chance(g, 0.6):
        margin = uniform(g, 1.1, 1.45)
        fat = (radius < size * margin * (along > -0.3 * length)) | (distance < margin * taper)
        paint(layout, fat)
    # 6. Paint each structure, with shared intensities as in scans.
    shapes = {"wall": outer, "cavity": inner, "thin": torch.zeros_like(outer), "crescent": crescent}
    if chance(g, 0.7):
        # Wall of the right ventricle, which is rarely annotated and so not a target.
        shapes["thin"] = (distance < taper + uniform(g, 0.1, 0.22)) & (taper > 0) & ~outer
    labels = {name: paint(layout, m) for name, m in shapes.items() if bool(m.any())}
    layout.objects += [[label] for name, label in labels.items() if name != "thin"]
    if "wall" in labels:
        layout.objects.append([labels["wall"]])  # twice as often, because rings are hard to learn
    if "wall" in labels and around > 1 and chance(g, 0.4):
        # Wall with the intensity of its surroundings, so that only the blood stands out.
        layout.twins[labels["wall"]] = int(uniform(g, 0, around - 1e-3))
    if "cavity" in labels and chance(g, 0.6):
        layout.contrasts[labels["cavity"]] = uniform(g, 0.2, 0.5)
    if {"wall", "thin"} <= labels.keys():
        layout.twins[labels["thin"]] = labels["wall"]
    if {"cavity", "crescent"} <= labels.keys() and chance(g, 0.75):
        layout.twins[labels["crescent"]] = labels["cavity"]
    layout.names |= {label: name for name, label in labels.items() if name in HEART}
    # 7. Muscles inside the cavities, vessels at the base.
    _muscles(grid, layout, labels, shapes, size)
    _vessels(grid, layout, axes, labels, size)
    if chance(g, 0.1) and {"wall", "cavity"} <= labels.keys():
        layout.objects.append([labels["wall"], labels["cavity"]])


def _muscles(
    grid: Grid, layout: Layout, labels: dict[str, int], shapes: dict[str, Tensor], size: float
) -> None:
    """Paint papillary muscles and trabeculae with the wall's intensity, as part of the cavities."""
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


def _vessels(grid: Grid, layout: Layout, axes: Tensor, labels: dict[str, int], size: float) -> None:
    """Paint atria and great vessels beyond the base, mostly with the same blood; not targets."""
    g = grid.generator
    along, a, b = axes
    for _ in range(int(uniform(g, 0, 3.99))):
        centre = [uniform(g, -1.3, 1.3) * size for _ in range(2)]
        radius = size * uniform(g, 0.3, 0.8)
        disc = ((a - centre[0]).square() + (b - centre[1]).square()).sqrt() < radius
        mask = disc & (along < 0) & (along > -size * uniform(g, 0.3, 2.0))
        if int(mask.sum()) < 8:
            continue
        label = paint(layout, mask)
        if "cavity" in labels and chance(g, 0.7):
            layout.twins[label] = labels["cavity"]
