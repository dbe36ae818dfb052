"""Random label maps: a background that resembles a body, and objects painted over it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pumit.training.synthesis.grid import Grid, chance, integer, log_uniform, uniform
from pumit.training.synthesis.heart import heart, short_axis
from pumit.training.synthesis.shapes import Layout, any_of, draw_shape, paint, random_centre
from pumit.training.synthesis.trunk import trunk

FEWEST = 12  # smallest lesion, voxels


def add_lesions(grid: Grid, layout: Layout) -> None:
    """Paint lesions into one structure; each is a target, and so is their union.

    Every target that includes the structure also includes its lesions.
    """
    g = grid.generator
    if not layout.objects:
        return
    xyz = grid.coordinates()
    host = layout.objects[integer(g, 0, len(layout.objects) - 1)]
    count = 1 if chance(g, 0.6) else integer(g, 2, 6)
    # Lesions of one scan share a tissue.
    size = log_uniform(g, 0.03, 0.2) * grid.size
    contrast = uniform(g, 0.15, 0.6)
    lesions: list[list[int]] = []
    for _ in range(count):
        mask = draw_shape(grid, xyz, max(size * uniform(g, 0.5, 1.5), 1.5)) & any_of(
            layout.labels, host
        )
        if int(mask.sum()) < FEWEST:
            continue
        label = paint(layout, mask)
        layout.contrasts[label] = contrast
        if host[0] in layout.names:
            layout.names[label] = layout.names[host[0]]
        if lesions:
            layout.twins[label] = lesions[0][0]
        parts = [label]
        if chance(g, 0.2):  # a rim around a core
            core = draw_shape(grid, xyz, max(0.6 * size, 1.5)) & mask
            if 8 < int(core.sum()) < 0.6 * int(mask.sum()):
                parts.append(paint(layout, core))
        lesions.append(parts)
    found = [part for parts in lesions for part in parts]
    layout.objects = [[*parts, *found] if host[0] in parts else parts for parts in layout.objects]
    layout.objects += lesions
    if len(lesions) > 1:
        layout.objects.append(found)


@dataclass(frozen=True)
class SceneShares:
    """Shares of the kinds of generated scans.

    Attributes:
        heart: Share of chests with a heart among 2D images and scans with thick slices; half of
            this among the others.
        trunk: Share of trunks with organs among the remaining scans.
    """

    heart: float = 0.1
    trunk: float = 0.2


USUAL_SHARES = SceneShares()


def voronoi(grid: Grid, xyz: Tensor, cells: int) -> Tensor:
    """Partition the grid into warped, unequal Voronoi cells, like adjacent similar structures."""
    g = grid.generator
    warp = grid.noise(uniform(g, 6, 20), channels=3) * uniform(g, 0.5, 4.0)
    points = xyz + warp
    best = torch.full(grid.shape, torch.inf, device=grid.device)
    labels = torch.zeros(grid.shape, dtype=torch.long, device=grid.device)
    for label in range(cells):
        centre = random_centre(grid, 0.55)
        weight = log_uniform(g, 0.6, 1.7)
        offset = points - grid.on(centre)[:, None, None, None]
        distance = offset.square().sum(0) * weight
        labels.masked_fill_(distance < best, label)
        best = torch.minimum(best, distance)
    return labels


def levels(grid: Grid, count: int) -> Tensor:
    """Return the argmax of smooth random fields: interlocking regions."""
    length = uniform(grid.generator, 8, 26)
    best = grid.fractal(length)
    labels = torch.zeros(grid.shape, dtype=torch.long, device=grid.device)
    for label in range(1, count):
        other = grid.fractal(length)
        labels.masked_fill_(other > best, label)
        best = torch.maximum(best, other)
    return labels


def torso(grid: Grid, xyz: Tensor) -> Tensor:
    """Draw a body outline with layers; labels are 0 outside and 1 to 3 from the skin inwards."""
    g = grid.generator
    scale = torch.tensor([uniform(g, 0.9, 3.0), uniform(g, 0.42, 0.7), uniform(g, 0.42, 0.7)])
    scale = scale * torch.tensor([max(grid.extent)] * 3)
    radius = (xyz / grid.on(scale)[:, None, None, None]).square().sum(0).sqrt()
    radius = radius + grid.fractal(max(grid.extent) / 3) * 0.04
    labels = torch.zeros(grid.shape, dtype=torch.long, device=grid.device)
    for label, edge in enumerate((1.0, uniform(g, 0.82, 0.95), uniform(g, 0.66, 0.8)), start=1):
        labels.masked_fill_(radius < edge, label)
    return labels


def background(grid: Grid, xyz: Tensor) -> Tensor:
    """Draw one of the backgrounds, labels from 0."""
    g = grid.generator
    draw = uniform(g, 0, 1)
    if draw < 0.3:
        return voronoi(grid, xyz, integer(g, 3, 14))
    if draw < 0.5:
        return levels(grid, integer(g, 2, 5))
    if draw < 0.75:
        return torso(grid, xyz)
    return torch.zeros(grid.shape, dtype=torch.long, device=grid.device)


def _add_parts(grid: Grid, layout: Layout, xyz: Tensor, mask: Tensor, size: float) -> list[int]:
    """Paint vessels, a core or lesions inside an object; they stay part of it."""
    parts = []
    for _ in range(integer(grid.generator, 1, 2)):
        inner = draw_shape(grid, xyz, max(size * uniform(grid.generator, 0.15, 0.5), 1.5)) & mask
        # Larger parts would dominate the object.
        if 8 < int(inner.sum()) < 0.33 * int(mask.sum()):
            parts.append(paint(layout, inner))
    return parts


def _add_filling(grid: Grid, layout: Layout, mask: Tensor) -> list[int]:
    """Fill a share of an object with another label, like air or food in a stomach."""
    g = grid.generator
    if chance(g, 0.5):
        side = grid.coordinates()[1 + int(chance(g, 0.5))]
        order = side * (1.0 if chance(g, 0.5) else -1.0) + 0.3 * grid.noise(4.0)[0]
    else:
        order = grid.fractal(uniform(g, 0.1, 0.4) * grid.size)
    filled = mask & (order > order[mask].quantile(uniform(g, 0.25, 0.8)))
    return [paint(layout, filled)] if int(filled.sum()) > 8 else []


def draw_layout(grid: Grid, shares: SceneShares = USUAL_SHARES) -> Layout:
    """Draw a label map with its objects."""
    g = grid.generator
    xyz = grid.coordinates()
    is_thick = grid.slice_ratio >= 1.9 or grid.depth == 1
    if chance(g, shares.heart if is_thick else shares.heart / 2):
        layout = Layout(torch.zeros(grid.shape, dtype=torch.long, device=grid.device))
        short_axis(grid, layout, xyz)
        return layout
    if chance(g, shares.trunk):
        layout = Layout(torch.zeros(grid.shape, dtype=torch.long, device=grid.device))
        trunk(grid, layout, xyz)
        if chance(g, 0.5):
            add_lesions(grid, layout)
        return layout
    # 1. Background, and the options for a heart.
    layout = Layout(background(grid, xyz))
    has_heart = chance(g, 0.12)
    is_in_front = chance(g, 0.75)
    is_alone = has_heart and is_in_front and chance(g, 0.4)
    shows_background = chance(g, 0.5) and not is_alone
    layout.objects = [[label] for label in range(1, layout.count)] if shows_background else []
    if has_heart and not is_in_front:
        heart(grid, layout, xyz)
    # 2. Objects in order, some inside an earlier one, some with parts or a filling.
    for _ in range(integer(g, 1, 9)):
        size = log_uniform(g, 0.06, 0.42) * grid.size
        mask = draw_shape(grid, xyz, size)
        if chance(g, 0.2) and layout.objects:
            # Inside an earlier object, like a lesion in an organ.
            host = layout.objects[integer(g, 0, len(layout.objects) - 1)]
            mask &= any_of(layout.labels, host)
        if int(mask.sum()) < 12:
            continue
        label = paint(layout, mask)
        parts = _add_parts(grid, layout, xyz, mask, size) if chance(g, 0.25) else []
        if not parts and chance(g, 0.12):
            parts = _add_filling(grid, layout, mask)
        if not is_alone:
            layout.objects.append([label, *parts])
    # 3. A heart over everything else.
    if has_heart and is_in_front:
        heart(grid, layout, xyz)
    return layout
