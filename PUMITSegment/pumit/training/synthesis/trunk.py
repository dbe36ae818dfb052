"""Trunks: organs at their places in a body, seen whole or in part, in CT-like greys or any."""

from __future__ import annotations

import torch
from torch import Tensor

from pumit.training.synthesis.grid import Grid, chance, log_uniform, uniform
from pumit.training.synthesis.painting import Layout, paint


def _sideless(name: str) -> str:
    """A structure's name without its side."""
    return name.removeprefix("left ").removeprefix("right ")


# Centre and radii in units of the body's half width, (z, h, w): z to the head, h to the back,
# w to the left; and the usual grey in CT over the window -1000 .. 400 HU.
ORGANS: dict[str, tuple[tuple[float, float, float], tuple[float, float, float], float]] = {
    "right lung": ((0.85, 0.02, -0.45), (0.62, 0.5, 0.34), 0.10),
    "left lung": ((0.85, 0.02, 0.45), (0.62, 0.5, 0.34), 0.10),
    "heart": ((0.62, -0.2, 0.12), (0.3, 0.3, 0.36), 0.77),
    "bowel": ((-0.45, -0.2, 0.0), (0.45, 0.36, 0.62), 0.73),
    "stomach": ((0.22, -0.18, 0.33), (0.26, 0.22, 0.26), 0.74),
    "spleen": ((0.2, 0.24, 0.6), (0.26, 0.24, 0.15), 0.79),
    "liver": ((0.16, -0.06, -0.38), (0.38, 0.42, 0.44), 0.785),
    "gallbladder": ((0.0, -0.24, -0.2), (0.14, 0.09, 0.09), 0.72),
    "pancreas": ((0.02, -0.02, 0.12), (0.1, 0.09, 0.32), 0.76),
    "left kidney": ((-0.12, 0.28, 0.36), (0.28, 0.15, 0.16), 0.81),
    "right kidney": ((-0.18, 0.28, -0.36), (0.28, 0.15, 0.16), 0.81),
    "bladder": ((-1.0, -0.15, 0.0), (0.22, 0.22, 0.28), 0.72),
}
SPINE = ("vertebra", "canal", "aorta", "vena cava")
# Structures that a trunk shows; left and right are one, since scenes are mirrored.
TRUNK = tuple(dict.fromkeys([_sideless(name) for name in ORGANS if name != "bowel"] + [*SPINE]))


def _ball(grid: Grid, p: Tensor, centre: Tensor, radii: Tensor, lumps: Tensor) -> Tensor:
    """Signed measure of a deformed ellipsoid in body units: below 1 inside."""
    q = (p - grid.on(centre)[:, None, None, None]) / grid.on(radii)[:, None, None, None]
    if chance(grid.generator, 0.5):
        # Bent: organs lie against their neighbours.
        bend = uniform(grid.generator, -0.4, 0.4)
        q = torch.stack((q[0], q[1] + bend * (q[0].square() - 0.5), q[2]))
    return q.square().sum(0).sqrt() + lumps


def trunk(grid: Grid, layout: Layout, xyz: Tensor) -> None:
    """Paint a trunk and register its organs."""
    g = grid.generator
    # 1. Coordinates of a body, seen whole or in part: 1 at its sides.
    half = log_uniform(g, 0.35, 1.6) * grid.size  # half the body's width, in in-plane voxels
    reach = torch.tensor([0.8, 0.5 * half / grid.size, 0.7 * half / grid.size]).clamp(max=0.8)
    middle = torch.tensor([uniform(g, -float(r), float(r)) for r in reach])
    p = xyz / half + grid.on(middle)[:, None, None, None]
    if chance(g, 0.3):  # coronal: what runs along the body lies in the plane
        p = p[[1, 0, 2]]
    lumps = grid.fractal(max(0.25 * half, 3.0)) * uniform(g, 0.03, 0.10)
    is_ct = chance(g, 0.5)
    soft = uniform(g, 0.02, 0.06)  # spread of the soft tissues in CT

    def add(mask: Tensor, grey: float) -> int | None:
        if int(mask.sum()) < 8:
            return None
        label = paint(layout, mask)
        if is_ct:
            noise = soft * float(torch.randn((), generator=g)) if 0.6 < grey < 0.9 else 0.0
            layout.means[label] = min(max(grey + noise, 0.0), 1.0)
        return label

    # 2. Skin, fat, muscle and cavity as shells, then ribs.
    skin = ((p[1] / uniform(g, 0.6, 0.8)).square() + p[2].square()).sqrt() + 0.2 * lumps
    fat = uniform(g, 0.04, 0.22)
    if is_ct:
        layout.means[0] = 0.0
    add(skin < 1, 0.63)
    add(skin < 1 - fat, 0.75)
    cavity = skin < 1 - fat - uniform(g, 0.05, 0.12)
    add(cavity & (p[0] < 0.9), 0.64)
    ribs = (skin - (1 - fat - 0.07)).abs() < 0.03
    add(ribs & (torch.sin(p[0] * 28 + 3 * p[2].abs()) > 0.4) & (p[0] > -0.1), 0.92)
    # 3. Organs at their places, with what they hold; parts of one organ are one object.
    for name, (centre, radii, grey) in ORGANS.items():
        c = torch.tensor(centre) + 0.05 * torch.randn(3, generator=g)
        r = torch.tensor(radii) * torch.tensor([log_uniform(g, 0.75, 1.3) for _ in range(3)])
        mask = (_ball(grid, p, c, r, lumps) < 1) & cavity
        if name == "bowel":
            _bowel(grid, layout, mask, 0.1 * half, is_ct=is_ct)
            continue
        label = add(mask, grey)
        if label is None:
            continue
        parts = [label]
        if name == "stomach" and chance(g, 0.7):
            parts += _contents(grid, layout, mask, p, is_ct=is_ct)
        elif "kidney" in name and chance(g, 0.7):
            core = (
                _ball(grid, p, c - torch.tensor([0.0, 0.0, 0.3 * centre[2]]), 0.55 * r, lumps) < 1
            )
            inner = add(core & mask, 0.72)
            # Some readers include the hollow, most leave it out.
            parts += [inner] if inner is not None and chance(g, 0.3) else []
        elif name == "liver" and chance(g, 0.6):
            vessels = grid.noise(max(0.12 * half, 2.0), 2).abs().amax(0) < uniform(g, 0.12, 0.3)
            inner = add(vessels & mask, 0.83)
            parts += [inner] if inner is not None else []
        layout.objects.append(parts)
        layout.names |= dict.fromkeys(parts, _sideless(name))
    # 4. The spine over all.
    _spine(grid, layout, p, is_ct=is_ct)


def _contents(grid: Grid, layout: Layout, mask: Tensor, p: Tensor, *, is_ct: bool) -> list[int]:
    """Air on top of fluid, or food of another grey; all of it the stomach's."""
    g = grid.generator
    parts = []
    if chance(g, 0.6):
        level = p[1][mask].quantile(uniform(g, 0.1, 0.6))
        air = mask & (p[1] < level)
        if int(air.sum()) >= 8:
            parts.append(paint(layout, air))
            if is_ct:
                layout.means[parts[-1]] = uniform(g, 0.0, 0.08)
    if chance(g, 0.6):
        food = mask & (grid.fractal(0.2 * grid.size) > uniform(g, -0.5, 1.0))
        food &= ~layout.shows(parts)
        if int(food.sum()) >= 8:
            parts.append(paint(layout, food))
            if is_ct:
                layout.means[parts[-1]] = uniform(g, 0.7, 0.9)
    return parts


def _bowel(grid: Grid, layout: Layout, mask: Tensor, length: float, *, is_ct: bool) -> None:
    """Loops: the level bands of a noise, in two greys, some full of air."""
    g = grid.generator
    level = grid.noise(max(length, 2.0), 2)
    for i, grey in enumerate((uniform(g, 0.7, 0.8), uniform(g, 0.0, 0.8))):
        loops = mask & (level[i] > uniform(g, 0.2, 0.8))
        if int(loops.sum()) >= 8:
            label = paint(layout, loops)
            if is_ct:
                layout.means[label] = grey


def _spine(grid: Grid, layout: Layout, p: Tensor, *, is_ct: bool) -> None:
    """Vertebra with its canal, aorta and vena cava in front of it."""
    g = grid.generator
    places = (
        ((0.36, 0.0), (0.15, 0.18), 0.87),
        ((0.55, 0.0), (0.06, 0.07), 0.74),
        ((0.16, 0.06), (0.07, 0.07), 0.8),
        ((0.16, -0.12), (0.07, 0.09), 0.78),
    )
    sway = 0.04 * torch.sin(p[0] * uniform(g, 1, 4) + uniform(g, 0, 6.3))
    for name, ((h, w), (rh, rw), grey) in zip(SPINE, places, strict=True):
        mask = ((p[1] - h) / rh).square() + ((p[2] - w + sway) / rw).square() < 1
        if name == "vertebra":
            mask &= torch.sin(p[0] * 20) > -0.8  # discs between them
        if int(mask.sum()) < 8:
            continue
        label = paint(layout, mask)
        if is_ct:
            layout.means[label] = grey
        layout.objects.append([label])
        layout.names[label] = name
