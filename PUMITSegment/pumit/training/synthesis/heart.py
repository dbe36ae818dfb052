"""Hearts: left ventricle (wall and cavity), right ventricle (crescent), and surroundings.

`heart` paints one of any intensities into any scene; `short_axis` a heart in its chest, with the
intensities of real scanners.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pumit.training.synthesis.grid import Grid, chance, log_uniform, uniform
from pumit.training.synthesis.shapes import (
    Anatomy,
    Greys,
    GreyTable,
    Layout,
    any_scan,
    kinds_of_scan,
    paint,
    random_centre,
    rotation,
)

HEART = ("wall", "cavity", "crescent")  # class names of a heart
# Intensity ranges of tissues, percent: cine MR (balanced steady-state free precession: blood and
# fat bright, muscle dark, lung black), late enhancement, dark blood, and CT with contrast.
_TISSUES: GreyTable = {
    "air": ((0, 2), (0, 2), (0, 2), (0, 2)),
    "lung": ((3, 20), (3, 20), (3, 20), (5, 20)),
    "vessel": ((15, 40), (15, 40), (15, 40), (40, 70)),
    "fat": ((60, 100), (40, 80), (60, 100), (40, 48)),
    "muscle": ((15, 30), (15, 30), (15, 30), (52, 58)),
    "bone": ((30, 70), (30, 70), (30, 70), (70, 100)),
    "liver": ((22, 45), (22, 45), (35, 55), (54, 66)),
    "gut": ((10, 60), (10, 60), (10, 60), (20, 60)),
    "blood": ((55, 95), (50, 90), (2, 14), (66, 90)),
    "wall": ((14, 34), (2, 20), (35, 60), (54, 64)),
}
CINE, LATE_ENHANCEMENT, DARK_BLOOD, CONTRAST_CT = kinds_of_scan(_TISSUES)
SCANS = ((0.7, CINE), (0.12, LATE_ENHANCEMENT), (0.08, DARK_BLOOD), (0.1, CONTRAST_CT))  # shares
UPRIGHT = 0.6  # share of hearts in thick slices with the usual orientation
BRIGHT = 0.3  # above this intensity, blood is darker in the right ventricle


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
    _plain_vessels(grid, layout, axes, labels, size)
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


def _plain_vessels(
    grid: Grid, layout: Layout, axes: Tensor, labels: dict[str, int], size: float
) -> None:
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


@dataclass
class _Chest(Anatomy):
    """A chest being drawn; lengths in in-plane voxels.

    Attributes:
        along: Position along the long axis, from the base of the heart (0) towards its apex,
            (D', H, W).
        a: Position from the left ventricle's axis towards the right ventricle.
        b: Position from that axis towards the front of the chest.
        radius: Outer radius of the left ventricle at its base.
        length: Distance from base to apex.
    """

    along: Tensor
    a: Tensor
    b: Tensor
    radius: float
    length: float

    def towards(self, low: float, high: float) -> Tensor:
        """Return the position along a random direction between two angles in degrees.

        0 points to the right ventricle, 90 to the front of the chest.
        """
        angle = math.radians(uniform(self.grid.generator, low, high))
        return self.a * math.cos(angle) + self.b * math.sin(angle)

    def pipe(self, a: float, b: float, radius: float) -> Tensor:
        """Compute the distance from a line parallel to the long axis, over a radius."""
        return ((self.a - a).square() + (self.b - b).square()).sqrt() / radius

    def ball(self, along: float, a: float, b: float, radius: float) -> Tensor:
        """Compute the distance from a point, over a radius."""
        squares = (self.along - along).square() + (self.a - a).square() + (self.b - b).square()
        return squares.sqrt() / radius


def short_axis(grid: Grid, layout: Layout, xyz: Tensor) -> None:
    """Paint a chest with its heart, with the intensities of cine MR or other cardiac scans.

    The right ventricle is on one side of the left, lung on the other. The chest wall is in front,
    liver and stomach are below, atria and great vessels beyond the base. Cavities include their
    muscles, as in manual annotations. Targets are the wall and both cavities; sometimes wall and
    left cavity together, an atrium or a great vessel.
    """
    g = grid.generator
    chest = _chest(grid, layout, xyz, any_scan(SCANS, g))
    layout.is_natural = True
    # 1. Lung with its vessels as background.
    layout.means[0] = chest.grey("lung")
    branches = grid.noise(max(9 * chest.mm, 1.5), 2).abs().amax(0) < uniform(g, 0.05, 0.3)
    chest.add(branches, chest.grey("vessel"))
    # 2. Masks of the ventricles, since the fat follows them; then the surroundings.
    masks = _ventricles(chest)
    _abdomen(chest)
    _walls(chest)
    _fat(chest, masks["outside"])
    # 3. Atria and vessels, then the ventricles over everything else.
    blood, muscle = chest.grey("blood"), chest.grey("wall")
    _vessels(chest, blood, muscle)
    _paint_ventricles(chest, masks, blood, muscle)
    # 4. Shading from the anterior coils, and a random smooth variation.
    shade = chest.towards(20, 120) / chest.radius * uniform(g, 0.0, 0.3)
    shade = shade + grid.noise(max(2 * chest.radius, 4.0))[0] * uniform(g, 0, 0.2)
    layout.shading = torch.exp(shade.clamp(-1.2, 0.9))


def _chest(grid: Grid, layout: Layout, xyz: Tensor, greys: Greys) -> _Chest:
    """Draw size, position and orientation of a heart."""
    g = grid.generator
    # 1. Scale: the field covers from one ventricle to the whole chest.
    radius_mm = uniform(g, 26, 44)
    mm = grid.size / log_uniform(g, 2.2 * radius_mm, 300)
    radius = radius_mm * mm
    length = radius * uniform(g, 1.9, 3.0)
    # 2. Slices from different breath-holds are shifted against each other.
    offset = xyz - grid.on(random_centre(grid, 0.25))[:, None, None, None]
    if grid.slice_ratio >= 1.9 and chance(g, 0.5):
        shifts = grid.normal((3, grid.depth, 1, 1)) * uniform(g, 0.3, 2.5) * mm
        shifts[0] = 0
        offset = offset + shifts.repeat_interleave(grid.oversampling, dim=1)
    # 3. Small deformation, then transform from the axes of the grid to those of the heart.
    layout.is_upright = grid.slice_ratio >= 1.9 and chance(g, UPRIGHT)
    bend = grid.noise(max(0.8 * radius, 3.0), 3) * uniform(g, 0.0, 0.05) * radius
    if layout.is_upright:
        bend[0] = 0  # no bending along depth, since annotated slices show whole rings
    offset = offset + bend
    frame = _as_it_lies(g) if layout.is_upright else frame_of_heart(grid, tilt=0.15, thick=0.92)
    along, a, b = torch.einsum("ij,j...->i...", grid.on(frame), offset)
    along = along + length * uniform(g, 0.1, 0.85)
    # 4. Oblique long axis: the heart shifts sideways from slice to slice.
    if layout.is_upright:
        a, b = a + uniform(g, -0.3, 0.3) * along, b + uniform(g, -0.3, 0.3) * along
    return _Chest(grid, layout, greys, mm, along, a, b, radius, length)


def _as_it_lies(generator: torch.Generator) -> Tensor:
    """Draw a heart's directions as in most short-axis views: right side left, front up."""
    g = generator
    axis = torch.tensor([1.0 if chance(g, 0.5) else -1.0, 0.0, 0.0])
    bearing = math.radians(uniform(g, -60, 25))  # from the left of the image, clockwise
    side = torch.tensor([0.0, math.sin(bearing), -math.cos(bearing)])
    across = torch.linalg.cross(axis, side, dim=0)
    front = torch.tensor([0.0, -math.cos(bearing), -math.sin(bearing)])
    return torch.stack((axis, side, across if across @ front > 0 else -across))


def _ventricles(chest: _Chest) -> dict[str, Tensor]:
    """Draw masks of both ventricles, depth in the cavities (mm), distance outside both (radii)."""
    g = chest.grid.generator
    mm, radius, length = chest.mm, chest.radius, chest.length
    # 1. Left ventricle: a bowl, sometimes with an oblique opening.
    tilt = 0.25 if chance(g, 0.3) else 0.0
    base = chest.along + uniform(g, -tilt, tilt) * chest.a + uniform(g, -tilt, tilt) * chest.b
    power, squeeze = uniform(g, 1.6, 4.0), uniform(g, 0.88, 1.12)
    distance = ((chest.a * squeeze).square() + (chest.b / squeeze).square()).sqrt()
    shape = cone(base, length, power)
    outer = distance < radius * shape
    # 2. Its cavity, inside a wall of about 4 to 22 mm that is thicker on one side.
    wall = min(max(radius * log_uniform(g, 0.12, 0.5), 4 * mm), 0.75 * radius)
    bearing = torch.atan2(chest.b, chest.a) + uniform(g, 0, 6.3)
    inner = cone(base, length - wall * uniform(g, 0.0, 0.9), power) * radius
    inner = inner - wall * (1 + uniform(g, 0.0, 0.3) * torch.cos(bearing))
    # 3. Right ventricle: bent around the left one, not longer, with a thin wall.
    reach = length * uniform(g, 0.65, 1.0)
    taper = cone(base + uniform(g, -0.1, 0.1) * length, reach, uniform(g, 0.9, 2.0))
    offset = radius * uniform(g, 0.8, 1.35) * taper.clamp_min(0).sqrt()
    u = (chest.a - offset) / (radius * uniform(g, 0.7, 1.5))
    u = u + uniform(g, 0.0, 0.2) * (chest.b / radius).square()
    v = (chest.b - radius * uniform(g, -0.2, 0.45)) / (radius * uniform(g, 0.9, 1.7))
    right = (u.square() + v.square()).sqrt()
    thin = uniform(g, 2.0, 4.5) * mm / radius
    right_depth = torch.minimum((taper - right) * radius, distance - radius * shape) / mm
    return {
        "outer": outer,
        "cavity": (distance < inner) & outer,
        "depth": (inner - distance) / mm,
        "right": (right < taper) & (taper > 0) & ~outer,
        "right depth": right_depth,
        "right wall": (right < taper + thin) & (taper > 0) & ~outer,
        "outside": torch.minimum(distance / radius - shape, right - taper),
        "middle": (base > 0.15 * length) & (base < 0.8 * length),
    }


def _abdomen(chest: _Chest) -> None:
    """Paint liver and stomach below the diaphragm, which rises towards the apex."""
    g = chest.grid.generator
    mm, radius = chest.mm, chest.radius
    lumps = 3 * mm * chest.lumps(25)
    down = chest.towards(-120, -50) + lumps
    dome = chest.towards(140, 220).square() / (uniform(g, 2.5, 6) * radius)
    top = radius * uniform(g, 1.0, 1.6) + dome - uniform(g, 0.0, 0.3) * chest.along.clamp_min(0)
    mask = (down > top) | (chest.along > chest.length + uniform(g, 8, 40) * mm)
    chest.add(mask, chest.grey("liver"))
    if chance(g, 0.7):
        side = chest.towards(100, 260) + 2 * lumps > uniform(g, -0.5, 1.0) * radius
        stomach = mask & side & (down > top + 3 * mm)
        chest.add(stomach, chest.grey("gut"))
        if chance(g, 0.5):
            gas = chest.lumps(15) > uniform(g, 0, 1)
            chest.add(stomach & gas, chest.grey("air"))
    if chance(g, 0.6):
        rim = (down - top).abs() < uniform(g, 1, 4) * mm
        chest.add(rim & ~mask, chest.grey("fat"))


def _walls(chest: _Chest) -> None:
    """Paint spine, aorta, chest wall (muscle, ribs, fat) and the air outside."""
    g = chest.grid.generator
    mm, radius = chest.mm, chest.radius
    # 1. Posterior: back muscles, spine, aorta.
    angle, far = math.radians(uniform(g, 180, 290)), radius * uniform(g, 1.7, 2.6)
    a, b = far * math.cos(angle), far * math.sin(angle)
    chest.add(chest.pipe(1.3 * a, 1.3 * b, 34 * mm) < 1, chest.grey("muscle"))
    chest.add(chest.pipe(1.3 * a, 1.3 * b, 19 * mm) < 1, chest.grey("bone"))
    chest.add(chest.pipe(0.85 * a, 0.85 * b, uniform(g, 8, 14) * mm) < 1, chest.grey("blood"))
    # 2. Anterior: curved layers of the chest wall.
    front = chest.towards(30, 110) + 3 * mm * chest.lumps(25)
    front = front + chest.towards(150, 180).square() / (uniform(g, 3, 8) * radius)
    edge = radius * uniform(g, 1.2, 2.2)
    skin = edge + uniform(g, 6, 16) * mm
    ribs = chest.grid.noise(max(18 * mm, 2.0))[0] > 0.8
    chest.add(front > edge, chest.grey("muscle"))
    chest.add(ribs & (front > edge + 3 * mm) & (front < skin), chest.grey("bone"))
    chest.add(front > skin, chest.grey("fat"))
    chest.add(front > skin + log_uniform(g, 5, 45) * mm, chest.grey("air"))


def _fat(chest: _Chest, outside: Tensor) -> None:
    """Paint pericardial fat in a thin dark sac: mostly in grooves and pads, sometimes all around.

    Elsewhere the lung is adjacent to the wall, with little contrast.
    """
    g = chest.grid.generator
    mm = chest.mm
    least = uniform(g, 0.02, 0.3) if chance(g, 0.2) else uniform(g, -0.4, 0.05)
    thickness = least + uniform(g, 0.1, 0.5) * chest.lumps(22)
    for tissue, more, share in (("muscle", 1.5 * mm, 0.7), ("fat", 0.0, 0.9)):
        mask = outside < thickness + more / chest.radius
        mask &= chest.along > -0.8 * chest.radius
        mask &= chest.along < chest.length + 8 * mm + more
        if chance(g, share):
            chest.add(mask, chest.grey(tissue))


def _vessels(chest: _Chest, blood: float, muscle: float) -> None:
    """Paint the atria, the aorta and the pulmonary trunk, beyond the base."""
    g = chest.grid.generator
    mm, radius = chest.mm, chest.radius
    thin = uniform(g, 1.0, 2.5) * mm
    # 1. Balls (atria) and pipes (vessels), each with its end along the long axis.
    parts = []
    for a, b, deep in ((-0.2, -0.4, 0.55), (1.2, -0.5, 0.5)):
        size = radius * uniform(g, 0.55, 0.95)
        centre = (-size * uniform(g, deep, 1.0), a * radius, b * radius)
        parts.append((chest.ball(*centre, size), size, 0.15 * radius))
    for a, b in ((0.45, 0.3), (0.55, 1.0)):
        size = uniform(g, 10, 16) * mm
        across = a * radius + uniform(g, -5, 5) * mm
        level = chest.pipe(across, b * radius + uniform(g, -5, 5) * mm, size)
        parts.append((level, size, uniform(g, -2, 6) * mm))
    # 2. A thin wall with blood inside.
    for level, size, end in parts:
        chest.add((level < 1 + thin / size) & (chest.along < end), muscle)
        label = chest.add((level < 1) & (chest.along < end), blood * uniform(g, 0.9, 1.05))
        if label and chance(g, 0.3):
            chest.layout.objects.append(label)


def _paint_ventricles(chest: _Chest, masks: dict[str, Tensor], blood: float, muscle: float) -> None:
    """Paint wall and cavities with their muscles, and register them as targets."""
    g = chest.grid.generator
    mm, layout = chest.mm, chest.layout
    right = blood * uniform(g, 0.6, 1.0) if blood > BRIGHT else blood
    # 1. The thin wall of the right ventricle is not a target, as in most annotations.
    chest.add(masks["right wall"], muscle)
    parts = {
        "wall": chest.add(masks["outer"], muscle),
        "cavity": chest.add(masks["cavity"], blood),
        "crescent": chest.add(masks["right"], right),
    }
    # 2. Two papillary muscles and trabeculae along the borders, which belong to the cavities. At
    #    the wall, trabeculae are often dense enough to look like wall, but count as cavity.
    noise = chest.grid.noise(max(uniform(g, 3, 6) * mm, 1.2))[0]
    sparse, dense = uniform(g, 0.3, 1.5), uniform(g, 0.5, 3.0)
    meshes = []
    for depth in (masks["depth"], masks["right depth"]):
        inwards = depth / uniform(g, 4.0, 11.0)  # about 0 at the wall, 1 where trabeculae end
        meshes.append((inwards < 1) & (noise > sparse - dense * (1 - inwards)))
    columns = torch.zeros_like(masks["cavity"])
    for low, high in ((80, 130), (200, 260)):
        angle = math.radians(uniform(g, low, high))
        far = chest.radius * uniform(g, 0.25, 0.5)
        size = uniform(g, 3, 6.5) * mm
        columns |= chest.pipe(far * math.cos(angle), far * math.sin(angle), size) < 1
    left_muscles = masks["cavity"] & (meshes[0] | masks["middle"] & columns)
    right_muscles = masks["right"] & meshes[1]
    for name, inside in (("cavity", left_muscles), ("crescent", right_muscles)):
        if parts[name] and chance(g, 0.8):
            parts[name] += chest.add(inside, muscle * uniform(g, 0.9, 1.4))
    # 3. Targets, the wall most often, because rings are hard to learn.
    for name, times in (("wall", 3), ("cavity", 2), ("crescent", 2)):
        if parts[name]:
            layout.objects += [parts[name]] * times
            layout.names |= dict.fromkeys(parts[name], name)
    if parts["wall"] and parts["cavity"] and chance(g, 0.15):
        layout.objects.append(parts["wall"] + parts["cavity"])
