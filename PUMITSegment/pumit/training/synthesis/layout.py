"""Label maps: a background that resembles a body, and objects painted over it in order."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from pumit.training.synthesis.grid import Grid, chance, integer, log_uniform, uniform
from pumit.training.synthesis.shapes import draw_shape, ellipsoid, random_centre, rotation


@dataclass
class Layout:
    """A label map and what belongs together in it.

    Attributes:
        labels: Integer label per voxel, shape (D', H, W); 0 is the outside.
        objects: For every object that can be a target, the labels it consists of.
        parents: What an object was painted on: label -> most frequent label underneath.
        twins: Labels of the same tissue: label -> an earlier label it looks like.
    """

    labels: Tensor
    objects: list[list[int]] = field(default_factory=list)
    parents: dict[int, int] = field(default_factory=dict)
    twins: dict[int, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Number of labels in use."""
        return int(self.labels.max()) + 1


def voronoi(grid: Grid, xyz: Tensor, cells: int) -> Tensor:
    """Partition into warped, unequal cells: structures that touch their like."""
    g = grid.generator
    warp = grid.noise(uniform(g, 6, 20), channels=3) * uniform(g, 0.5, 4.0)
    points = xyz + warp
    best = torch.full(grid.shape, torch.inf)
    labels = torch.zeros(grid.shape, dtype=torch.long)
    for label in range(cells):
        centre = random_centre(grid, 0.55)
        weight = log_uniform(g, 0.6, 1.7)
        distance = (points - centre[:, None, None, None]).square().sum(0) * weight
        closer = distance < best
        best = torch.where(closer, distance, best)
        labels[closer] = label
    return labels


def levels(grid: Grid, count: int) -> Tensor:
    """Argmax of smooth random fields: interlocking soft regions."""
    length = uniform(grid.generator, 8, 26)
    return torch.stack([grid.fractal(length) for _ in range(count)]).argmax(0)


def torso(grid: Grid, xyz: Tensor) -> Tensor:
    """Body outline with layers under the skin; labels 0 outside, 1 .. 3 from skin inwards."""
    g = grid.generator
    scale = torch.tensor([uniform(g, 0.9, 3.0), uniform(g, 0.42, 0.7), uniform(g, 0.42, 0.7)])
    scale = scale * torch.tensor([max(grid.extent)] * 3)
    radius = (xyz / scale[:, None, None, None]).square().sum(0).sqrt()
    radius = radius + grid.fractal(max(grid.extent) / 3) * 0.04
    labels = torch.zeros(grid.shape, dtype=torch.long)
    for label, edge in enumerate((1.0, uniform(g, 0.82, 0.95), uniform(g, 0.66, 0.8)), start=1):
        labels[radius < edge] = label
    return labels


def background(grid: Grid, xyz: Tensor) -> Tensor:
    """One of the backgrounds, labels from 0."""
    g = grid.generator
    draw = uniform(g, 0, 1)
    if draw < 0.3:
        return voronoi(grid, xyz, integer(g, 3, 14))
    if draw < 0.5:
        return levels(grid, integer(g, 2, 5))
    if draw < 0.75:
        return torso(grid, xyz)
    return torch.zeros(grid.shape, dtype=torch.long)


def _paint(layout: Layout, mask: Tensor) -> int:
    """Give the voxels of `mask` a new label; returns it."""
    label = layout.count
    under = layout.labels[mask]
    layout.parents[label] = int(under.mode().values) if under.numel() else 0
    layout.labels = torch.where(mask, label, layout.labels)
    return label


def _add_parts(grid: Grid, layout: Layout, xyz: Tensor, mask: Tensor, size: float) -> list[int]:
    """Paint vessels, a core or lesions inside an object; they stay part of it."""
    parts = []
    for _ in range(integer(grid.generator, 1, 2)):
        inner = draw_shape(grid, xyz, max(size * uniform(grid.generator, 0.15, 0.5), 1.5)) & mask
        # Beyond a third of the object a part would be the object.
        if 8 < int(inner.sum()) < 0.33 * int(mask.sum()):
            parts.append(_paint(layout, inner))
    return parts


def _heart(grid: Grid, layout: Layout, xyz: Tensor) -> None:
    """Nested shells with a neighbour: a cavity in its wall, a crescent beside it."""
    g = grid.generator
    size = uniform(g, 0.12, 0.36) * grid.size
    centre = random_centre(grid, 0.2)
    side = centre + rotation(grid)[0] * size * uniform(g, 1.0, 1.5)
    state = g.get_state()
    outer = ellipsoid(grid, xyz, size, centre) > 0
    g.set_state(state)  # the same deformation, smaller: the cavity follows the wall
    inner = ellipsoid(grid, xyz, size * uniform(g, 0.45, 0.8), centre) > 0
    crescent = (ellipsoid(grid, xyz, size * uniform(g, 0.8, 1.3), side) > 0) & ~outer
    labels = []
    for mask in (crescent, outer & ~inner, inner & outer):
        if mask.any():
            labels.append(_paint(layout, mask))
            layout.objects.append([labels[-1]])
    if len(labels) == 3 and chance(g, 0.6):
        layout.twins[labels[2]] = labels[0]  # the same blood in both
    if chance(g, 0.15):
        layout.objects.append([layout.count - 1, layout.count - 2])


def draw_layout(grid: Grid) -> Layout:
    """Draw a label map with its objects."""
    g = grid.generator
    xyz = grid.coordinates()
    layout = Layout(background(grid, xyz))
    layout.objects = [[label] for label in range(1, layout.count)] if chance(g, 0.7) else []
    has_heart = chance(g, 0.35)
    is_in_front = chance(g, 0.7)
    if has_heart and not is_in_front:
        _heart(grid, layout, xyz)
    for _ in range(integer(g, 1, 7)):
        size = log_uniform(g, 0.06, 0.42) * grid.size
        mask = draw_shape(grid, xyz, size)
        if chance(g, 0.2) and layout.objects:
            # Kept inside one earlier object: a lesion in an organ.
            host = layout.objects[integer(g, 0, len(layout.objects) - 1)]
            mask &= torch.isin(layout.labels, torch.tensor(host))
        if int(mask.sum()) < 12:
            continue
        label = _paint(layout, mask)
        parts = _add_parts(grid, layout, xyz, mask, size) if chance(g, 0.25) else []
        layout.objects.append([label, *parts])
    if has_heart and is_in_front:
        _heart(grid, layout, xyz)
    return layout
