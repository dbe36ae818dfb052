"""Families of shapes, as signed functions on a grid: positive inside.

Each family is a function `(grid, coordinates, size) -> (D', H, W)` float, with `size` the typical
radius in in-plane voxels; `draw_shape` picks one. The families resemble anatomy: solid and hollow
organs, vessels, walls, clusters.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pumit.training.synthesis.grid import Grid, chance, integer, log_uniform, pick, uniform

MAX_TUBE_NODES = 24  # largest number of balls along a tube, to limit the cost
Greys = dict[str, tuple[float, float]]  # intensity range of each tissue; 1 is white
# Intensity range of each tissue, percent, in each of several kinds of scans.
GreyTable = dict[str, tuple[tuple[int, int], ...]]
SMALLEST = 4  # fewest voxels to paint


def rotation(grid: Grid) -> Tensor:
    """Draw an orthogonal matrix, uniform over all orientations, shape (3, 3), on the CPU."""
    q, r = torch.linalg.qr(torch.randn(3, 3, generator=grid.generator))
    return q * r.diagonal().sign()


def _local(grid: Grid, xyz: Tensor, centre: Tensor) -> Tensor:
    """Return coordinates around `centre`, rotated and stretched by up to 2.5 between axes."""
    most = math.sqrt(2.5)
    scale = torch.tensor([log_uniform(grid.generator, 1 / most, most) for _ in range(3)])
    matrix = rotation(grid) / scale[:, None]
    offset = xyz - grid.on(centre)[:, None, None, None]
    return torch.einsum("ij,j...->i...", grid.on(matrix), offset)


def random_centre(grid: Grid, margin: float = 0.45) -> Tensor:
    """Draw a point in the field, (z, h, w) in in-plane voxels from its centre, on the CPU."""
    return torch.tensor([uniform(grid.generator, -margin, margin) * e for e in grid.extent])


def ellipsoid(grid: Grid, xyz: Tensor, size: float, centre: Tensor | None = None) -> Tensor:
    """Draw a deformed ellipsoid or superquadric."""
    g = grid.generator
    p = _local(grid, xyz, random_centre(grid) if centre is None else centre)
    if chance(g, 0.3):
        power = uniform(g, 2.0, 6.0)
        radius = (p.abs() ** power).sum(0) ** (1 / power)
    else:
        radius = p.square().sum(0).sqrt()
    wobble = grid.fractal(max(size * uniform(g, 0.5, 1.5), 2.0)) * uniform(g, 0.0, 0.28)
    return 1 + wobble - radius / size


def shell(grid: Grid, xyz: Tensor, size: float) -> Tensor:
    """Draw the wall of a hollow organ: a deformed shell, often open on one side like a cup."""
    g = grid.generator
    centre = random_centre(grid, 0.25)
    solid = ellipsoid(grid, xyz, size, centre)
    wall = uniform(g, 0.12, 0.45)
    thickness = wall * (1 + 0.3 * grid.noise(max(size, 3.0))[0])
    inside = torch.minimum(solid, thickness - solid)
    if chance(g, 0.4):
        normal = rotation(grid)[0]
        offset = xyz - grid.on(centre)[:, None, None, None]
        plane = torch.einsum("i,i...->...", grid.on(normal), offset) / size
        inside = torch.minimum(inside, uniform(g, -0.2, 0.7) - plane)
    return inside


def _add_ball(grid: Grid, out: Tensor, centre: Tensor, radius: float) -> None:
    """Add a ball to a shape in place, computed only within its bounding box."""
    window = grid.window(centre, radius)
    if window is None:
        return
    z, h, w = (
        (axis[s] - c).square()
        for axis, s, c in zip(grid.axes(), window, centre.tolist(), strict=True)
    )
    distance = ((z[:, None, None] + h[:, None]) + w).sqrt()
    out[window] = torch.maximum(out[window], 1 - distance / radius)


def tube(grid: Grid, xyz: Tensor, size: float) -> Tensor:
    """Draw a vessel, bowel or cord: a curved tube, sometimes with branches."""
    g = grid.generator
    radius = max(size * uniform(g, 0.15, 0.5), 1.3)
    out = torch.full(grid.shape, -1e3, device=grid.device)
    start, heading = random_centre(grid), rotation(grid)[0]
    for _ in range(integer(g, 2, 6) if chance(g, 0.5) else 1):
        position = start.clone()
        direction = heading + 0.5 * torch.randn(3, generator=g)
        step = radius * 0.9
        nodes = []
        reach = max(grid.extent)
        for i in range(2 * integer(g, 4, max(5, int(reach / step)))):
            direction = direction + 0.25 * torch.randn(3, generator=g)
            direction = direction / direction.norm()
            position = position + direction * step
            nodes.append(position.clone())
            if i == 3:
                start, heading = position.clone(), direction.clone()
        for node in nodes[:MAX_TUBE_NODES]:
            _add_ball(grid, out, node, radius)
        radius *= 0.75
    return out


def sheet(grid: Grid, xyz: Tensor, size: float) -> Tensor:
    """Draw a thin wall: the band around a level set of a smooth field."""
    g = grid.generator
    length = max(size * 2.0, 6.0)
    level = grid.noise(length)[0] - uniform(g, -0.5, 0.5)
    return uniform(g, 0.15, 0.45) - level.abs()


def blob(grid: Grid, xyz: Tensor, size: float) -> Tensor:
    """Draw an irregular, lobed shape from a smooth random field; sometimes in pieces."""
    level = grid.fractal(max(size * 1.6, 4.0), octaves=3)
    centre = random_centre(grid, 0.3)
    offset = xyz - grid.on(centre)[:, None, None, None]
    distance = offset.square().sum(0).sqrt() / (1.6 * size)
    return level + 1.2 - distance * 1.6


def cluster(grid: Grid, xyz: Tensor, size: float) -> Tensor:
    """Draw a cluster of small balls, like lymph nodes or nodules."""
    g = grid.generator
    centre = random_centre(grid, 0.35)
    out = torch.full(grid.shape, -1e3, device=grid.device)
    for _ in range(integer(g, 3, 9)):
        c = centre + torch.randn(3, generator=g) * size * 0.8
        r = max(size * uniform(g, 0.25, 0.6), 1.5)
        _add_ball(grid, out, c, r)
    return out


# Families with their shares.
FAMILIES: dict[Callable[[Grid, Tensor, float], Tensor], float] = {
    ellipsoid: 0.28,
    shell: 0.16,
    tube: 0.22,
    sheet: 0.09,
    blob: 0.18,
    cluster: 0.09,
}


def draw_shape(grid: Grid, xyz: Tensor, size: float) -> Tensor:
    """Draw a shape of a random family, bool mask (D', H, W)."""
    return pick(grid.generator, FAMILIES)(grid, xyz, size) > 0


@dataclass
class Layout:
    """A label map with its possible targets and intensity constraints.

    Attributes:
        labels: Integer label per voxel, shape (D', H, W); 0 is the outside.
        parents: Label -> most frequent label underneath.
        twins: Label -> earlier label with the same intensity.
        contrasts: Label -> smallest difference in mean intensity from the label underneath.
        means: Label -> fixed mean intensity in [0, 1].
        names: Label -> name of its structure, for labels with a class.
        is_natural: Whether intensities imitate a real scanner, and must not be inverted.
        is_upright: Whether it has the usual orientation of its scanner's images.
        shading: Factor on the intensity of each voxel, (D', H, W), or None.
        count: Number of labels in use, including the outside; 0 means to count them.
    """

    labels: Tensor
    objects: list[list[int]] = field(default_factory=list)
    parents: dict[int, int] = field(default_factory=dict)
    twins: dict[int, int] = field(default_factory=dict)
    contrasts: dict[int, float] = field(default_factory=dict)
    means: dict[int, float] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    is_natural: bool = False
    is_upright: bool = False
    shading: Tensor | None = None
    count: int = 0

    def __post_init__(self) -> None:
        if self.count == 0:
            self.count = int(self.labels.max()) + 1


def any_of(labels: Tensor, parts: Sequence[int]) -> Tensor:
    """Return the mask of the labels `parts`; faster than `torch.isin` for a few labels."""
    mask = torch.zeros_like(labels, dtype=torch.bool)
    for part in parts:
        mask |= labels == part
    return mask


def paint(layout: Layout, mask: Tensor) -> int:
    """Paint a mask with a new label, and return the label."""
    label = layout.count
    under = torch.bincount(layout.labels[mask], minlength=1).cpu().numpy()
    layout.parents[label] = int(under.argmax())
    layout.labels = layout.labels.masked_fill(mask, label)
    layout.count += 1
    return label


def kinds_of_scan(table: GreyTable) -> list[Greys]:
    """Return the intensity ranges of each kind of scan in a table."""
    columns = zip(*table.values(), strict=True)
    return [
        {tissue: (low / 100, high / 100) for tissue, (low, high) in zip(table, column, strict=True)}
        for column in columns
    ]


def any_scan(scans: tuple[tuple[float, Greys], ...], generator: torch.Generator) -> Greys:
    """Draw one of several kinds of scans, given as (share, intensity ranges)."""
    return scans[pick(generator, {i: share for i, (share, _) in enumerate(scans)})][1]


@dataclass
class Anatomy:
    """Base class of body regions being drawn.

    Attributes:
        mm: In-plane voxels per mm.
    """

    grid: Grid
    layout: Layout
    greys: Greys
    mm: float

    def grey(self, tissue: str) -> float:
        """Draw an intensity for a tissue."""
        return uniform(self.grid.generator, *self.greys[tissue])

    def add(self, mask: Tensor, grey: float) -> list[int]:
        """Paint a mask with one intensity; return the new label, or none if the mask is tiny."""
        if int(mask.sum()) < SMALLEST:
            return []
        label = paint(self.layout, mask)
        self.layout.means[label] = grey
        return [label]

    def lumps(self, mm: float) -> Tensor:
        """Draw fractal noise, of about unit variance, with a correlation length in mm."""
        return self.grid.fractal(max(mm * self.mm, 3.0))
