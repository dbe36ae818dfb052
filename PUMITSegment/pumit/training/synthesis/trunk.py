"""Generated trunks with organs, in the intensities of CT or MR, or random ones."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pumit.training.synthesis.grid import Grid, chance, integer, log_uniform, pick, uniform
from pumit.training.synthesis.shapes import (
    Anatomy,
    Greys,
    GreyTable,
    Layout,
    any_scan,
    kinds_of_scan,
)

Triple = tuple[float, float, float]  # towards superior, posterior and left

# Intensity ranges of tissues in the display window, percent, by kind of scan: CT with contrast, in
# a usual and in a wide window (where soft tissues are alike), and without; MR, T2-weighted with
# suppressed fat (fluid is white, the liver dark with bright veins), T1-weighted, and the same with
# suppressed fat and contrast. "vein of the liver" is a factor on the liver's intensity.
_TISSUES: GreyTable = {
    "air": ((0, 2), (0, 2), (0, 2), (0, 4), (0, 4), (0, 4)),
    "lung": ((0, 4), (5, 20), (0, 4), (0, 10), (0, 10), (0, 10)),
    "lung vessel": ((20, 60), (20, 60), (20, 60), (5, 30), (5, 30), (5, 30)),
    "fat": ((8, 22), (42, 47), (8, 22), (8, 35), (60, 100), (8, 30)),
    "muscle": ((42, 56), (51, 56), (42, 56), (6, 20), (25, 42), (25, 42)),
    "bone": ((60, 100), (65, 100), (60, 100), (8, 35), (35, 80), (10, 30)),
    "disc": ((45, 60), (52, 57), (45, 60), (10, 70), (20, 40), (20, 40)),
    "cord": ((40, 50), (50, 54), (40, 50), (30, 50), (30, 50), (30, 50)),
    "fluid": ((30, 42), (48, 51), (30, 42), (75, 100), (3, 20), (3, 20)),
    "liver": ((50, 70), (53, 59), (48, 62), (10, 42), (35, 65), (40, 70)),
    "vein of the liver": ((100, 130), (100, 108), (80, 97), (120, 260), (40, 95), (105, 150)),
    "spleen": ((52, 80), (53, 60), (45, 55), (35, 90), (20, 40), (40, 75)),
    "kidney": ((55, 100), (54, 68), (40, 52), (40, 100), (25, 50), (55, 100)),
    "pyramid": ((50, 95), (53, 66), (40, 52), (45, 100), (20, 40), (40, 100)),
    "pancreas": ((40, 65), (50, 57), (38, 50), (25, 60), (35, 65), (35, 65)),
    "gut": ((25, 75), (45, 60), (25, 75), (5, 100), (5, 100), (5, 100)),
    "wall of the gut": ((40, 65), (50, 56), (40, 65), (15, 50), (25, 45), (25, 45)),
    "blood": ((60, 100), (54, 68), (42, 55), (2, 60), (5, 40), (60, 100)),
}
VENOUS_CT, WIDE_CT, PLAIN_CT, T2, T1, CONTRAST_T1 = kinds_of_scan(_TISSUES)
ANY = dict.fromkeys(VENOUS_CT, (0.0, 1.0)) | {"vein of the liver": (0.4, 1.8)}
SCANS = (  # kinds of scans with their shares
    (0.26, VENOUS_CT),
    (0.08, WIDE_CT),
    (0.06, PLAIN_CT),
    (0.3, T2),
    (0.08, T1),
    (0.1, CONTRAST_T1),
    (0.12, ANY),
)
UPRIGHT = 0.6  # share of trunks in the usual orientation
# Class names of a trunk; left and right share a class, since some scenes are mirrored.
TRUNK = (
    "lung",
    "heart",
    "stomach",
    "spleen",
    "liver",
    "gallbladder",
    "pancreas",
    "kidney",
    "bladder",
    "vertebra",
    "canal",
    "aorta",
    "vena cava",
    "colon",
)
TIMES = {"liver": 2, "stomach": 2}  # how often a structure counts as a target
# Relative frequency of each organ as the centre of a field, and its approximate centre: towards
# superior, posterior and left.
ORGANS: dict[str, tuple[float, Triple]] = {
    "liver": (3.0, (25, -5, -75)),
    "stomach": (2.5, (30, -25, 65)),
    "spleen": (1.5, (30, 45, 105)),
    "left kidney": (1.0, (-22, 42, 66)),
    "right kidney": (1.0, (-32, 42, -66)),
    "gallbladder": (0.4, (-28, -45, -48)),
    "pancreas": (0.8, (2, -8, 20)),
    "colon": (0.5, (-40, -30, 60)),
    "bladder": (0.3, (-235, -25, 0)),
}


@dataclass
class Body(Anatomy):
    """A trunk being drawn; lengths in mm.

    Attributes:
        z: Position towards superior, from about the level of the kidneys, (D', H, W).
        y: Position towards posterior, from the centre of the body, (D', H, W).
        x: Position towards left, from the centre of the body, (D', H, W).
        cavity: Region inside the body wall, (D', H, W), bool; set by `wall`.
        diaphragm: Height of the diaphragm at each position, (D', H, W); set by `wall`.
    """

    z: Tensor
    y: Tensor
    x: Tensor
    width: float
    thickness: float
    cavity: Tensor = field(init=False)
    diaphragm: Tensor = field(init=False)

    def ball(self, centre: Triple, radii: Triple) -> Tensor:
        """Compute the distance from a point, normalised by the radii along z, y and x."""
        parts = zip((self.z, self.y, self.x), centre, radii, strict=True)
        return torch.stack([((p - c) / r).square() for p, c, r in parts]).sum(0).sqrt()

    def pipe(self, y: float, x: float, radii: tuple[float, float], sway: float) -> Tensor:
        """Compute the distance from a swaying line along z, normalised by the radii (y, x)."""
        bent = self.x - x - sway * torch.sin(self.z / 60)
        return ((bent / radii[1]).square() + ((self.y - y) / radii[0]).square()).sqrt()

    def tube(self, points: Sequence[Triple], radii: Sequence[float]) -> Tensor:
        """Compute the distance from a polyline, normalised by its local radius."""
        best = torch.full_like(self.z, torch.inf)
        for i in range(len(points) - 1):
            # 1. Position of the nearest point along the segment, 0 to 1.
            away = [p - c for p, c in zip((self.z, self.y, self.x), points[i], strict=True)]
            piece = [b - a for a, b in zip(points[i], points[i + 1], strict=True)]
            length = sum(p * p for p in piece)
            along = torch.stack([a * p for a, p in zip(away, piece, strict=True)]).sum(0)
            part = (along / length).clamp(0, 1)
            # 2. Distance from that point over the radius there.
            offsets = [(a - part * p).square() for a, p in zip(away, piece, strict=True)]
            radius = radii[i] + (radii[i + 1] - radii[i]) * part
            best = torch.minimum(best, torch.stack(offsets).sum(0) / radius.square())
        return best.sqrt()

    def moved(self, point: Triple, mm: float) -> Triple:
        """Move a point by Gaussian offsets with a standard deviation of `mm` per axis."""
        z, y, x = (float(torch.randn((), generator=self.grid.generator)) * mm for _ in range(3))
        return (point[0] + z, point[1] + y, point[2] + x)

    def scaled(self, *lengths: float, by: float = 1.25) -> Triple:
        """Scale three lengths, each by a random factor between 1 / `by` and `by`."""
        z, y, x = (length * log_uniform(self.grid.generator, 1 / by, by) for length in lengths)
        return (z, y, x)


def wall(body: Body) -> None:
    """Paint skin, fat, muscle and ribs, and set the cavity and the diaphragm."""
    g = body.grid.generator
    # 1. Layers of a rounded box, of uneven thickness.
    power = uniform(g, 2.0, 2.8)
    outline = (body.x / body.width).abs() ** power + (body.y / body.thickness).abs() ** power
    outline = outline ** (1 / power) + 0.015 * body.lumps(50)
    mean = (body.width + body.thickness) / 2
    fat = log_uniform(g, 5, 40) / mean
    muscle = uniform(g, 8, 18) / mean
    # Fat is thickest on two opposite sides.
    uneven = fat * (1 + 0.4 * torch.cos(2 * torch.atan2(body.y, body.x) + uniform(g, 0, 6.3)))
    body.add(outline < 1, body.grey("fat"))
    if chance(g, 0.5):
        body.add((outline < 1) & (outline > 1 - 2.5 / mean), body.grey("muscle"))
    body.add(outline < 1 - uneven, body.grey("muscle"))
    if chance(g, 0.7):  # fat between muscle layers
        between = (outline - (1 - uneven - 0.5 * muscle)).abs() < uniform(g, 0.6, 1.5) / mean
        body.add(between & (body.z < 40), body.grey("fat"))
    # 2. Ribs, which slope down to the front, without cartilage.
    slope = body.z - uniform(g, 0.3, 0.8) * body.y
    band = torch.sin(slope * (2 * math.pi / uniform(g, 26, 36))) > 0.35
    rib = (outline - (1 - uneven - 0.45 * muscle)).abs() < 4.5 / mean
    body.add(rib & band & (body.y > -0.6 * body.thickness) & (body.z > -50), body.grey("bone"))
    # 3. Cavity, filled with fat, and the diaphragm with its two domes.
    body.cavity = outline < 1 - uneven - muscle
    body.add(body.cavity, body.grey("fat"))
    height = uniform(g, 45, 85)
    right = torch.exp(-(((body.x + 75) / 70).square() + (body.y / 75).square()))
    left = torch.exp(-(((body.x - 80) / 60).square() + (body.y / 75).square()))
    body.diaphragm = uniform(g, 15, 45) + height * (right + uniform(g, 0.75, 0.95) * left)


def chest(body: Body) -> tuple[list[int], list[int], list[int]]:
    """Paint lungs and heart above the diaphragm; return labels of right and left lung and heart."""
    g = body.grid.generator
    # 1. Lungs with vessels, separated by the mediastinum.
    above = body.cavity & (body.z > body.diaphragm)
    between = (body.x - 8).abs() < uniform(g, 25, 40) - 0.15 * body.y
    branches = body.grid.noise(max(11 * body.mm, 1.5), 2).abs().amax(0) < uniform(g, 0.05, 0.25)
    lungs = []
    for side in (body.x < 0, body.x >= 0):
        lung = above & side & ~between
        parts = body.add(lung, body.grey("lung"))
        if parts:
            parts += body.add(lung & branches, body.grey("lung vessel"))
        lungs.append(parts)
    # 2. Heart: muscle with blood inside.
    centre, radii = body.moved((118, -28, 22), 6), body.scaled(48, 46, 58)
    level = body.ball(centre, radii) + 0.05 * body.lumps(25)
    inside = body.cavity & (body.z > body.diaphragm - 4)
    heart = body.add((level < 1) & inside, body.grey("muscle"))
    if heart:
        heart += body.add((level < 0.78) & (body.lumps(30) > -0.4) & inside, body.grey("blood"))
    return lungs[0], lungs[1], heart


def spine(body: Body) -> dict[str, list[int]]:
    """Paint the back muscles, the spine and the great vessels in front of it."""
    g = body.grid.generator
    sway = uniform(g, -6, 6)
    back = 0.5 * body.thickness + uniform(g, -6, 6)
    labels = {}
    # 1. Psoas, and the paraspinal muscles with streaks of fat.
    for side in (-1, 1):
        size = uniform(g, 10, 20)
        psoas = body.pipe(back, side * 36, (size, size * 0.9), sway) + 0.004 * (body.z + 30)
        body.add((psoas < 1) & (body.z < 20), body.grey("muscle"))
        long = body.pipe(back + 40, side * 32, (20, 27), sway)
        body.add((long < 1) & ~(body.lumps(8) > uniform(g, 1.2, 2.5)), body.grey("muscle"))
    # 2. Vertebral arches, vertebrae with discs, and the canal.
    body.add((body.pipe(back + 32, 0, (26, 24), sway) < 1), body.grey("bone"))
    column = body.pipe(back, 0, (17, 21), sway) + 0.03 * body.lumps(12)
    disc = torch.sin(body.z * (2 * math.pi / uniform(g, 28, 38))) > uniform(g, 0.75, 0.95)
    labels["vertebra"] = body.add((column < 1) & ~disc, body.grey("bone"))
    body.add((column < 1) & disc, body.grey("disc"))
    canal = body.pipe(back + 24, 0, (9, 10.5), sway)
    labels["canal"] = body.add(canal < 1, body.grey("fluid"))
    if labels["canal"]:
        labels["canal"] += body.add((canal < 0.55) & (body.z > -20), body.grey("cord"))
    # 3. Aorta on the left, vena cava on the right, each in a thin layer of fat.
    front = back - uniform(g, 24, 30)
    size, flat = uniform(g, 8, 13), log_uniform(g, 0.8, 1.25)
    blood = body.grey("blood")
    for name, y, x, radii in (
        ("aorta", front, uniform(g, 2, 16), (size, size)),
        ("vena cava", front - uniform(g, -2, 8), -uniform(g, 14, 26), (9 * flat, 11 / flat)),
    ):
        level = body.pipe(y, x, radii, sway) + 0.04 * body.lumps(20)
        below = body.z < (300 if name == "aorta" else 100)
        body.add((level < 1 + 3 / radii[0]) & below & (body.z < 20), body.grey("fat"))
        grey = blood if chance(g, 0.6) else body.grey("blood")
        labels[name] = body.add((level < 1) & below, grey)
    return labels


def _below_the_diaphragm(body: Body) -> Tensor:
    """Return the mask of the abdominal cavity."""
    return body.cavity & (body.z < body.diaphragm - 3)


def liver(body: Body) -> list[int]:
    """Paint the liver: a wedge under the right dome with a left lobe, veins, and maybe a cleft."""
    g = body.grid.generator
    # 1. Inferior, left and posterior borders, each uneven by about 5 mm.
    low, slope = uniform(g, -115, -35), uniform(g, 0.45, 0.95)
    floor = low + slope * (body.x + 135) + uniform(g, 0.1, 0.5) * (body.y - 15).clamp_min(0)
    mask = _below_the_diaphragm(body) & (body.z > floor + 5 * body.lumps(35))
    mask &= body.x < uniform(g, 15, 110) + 5 * body.lumps(35)
    behind = uniform(g, 10, 30) - uniform(g, 0.2, 0.6) * (body.x + 30).clamp_min(0)
    mask &= (body.x < -30) | (body.y < behind + 5 * body.lumps(35))
    mask &= body.ball((0, 0.55 * body.thickness, 0), (1e4, 42, 45)) > 1
    grey = body.grey("liver")
    parts = body.add(mask, grey)
    if not parts:
        return []
    # 2. Veins as thick and thin branches, brighter or darker than the liver.
    vein = min(grey * body.grey("vein of the liver"), 1.0)
    bare = chance(g, 0.12)
    for length, thick in ((40, uniform(g, 0.1, 0.3)), (17, uniform(g, 0.1, 0.35))):
        branches = body.grid.noise(max(length * body.mm, 1.5), 2).abs().amax(0) < thick
        if not bare:
            parts += body.add(mask & branches, vein)
    # 3. Fat in the cleft between the lobes, not part of the liver in annotations.
    if chance(g, 0.4):
        cleft = (body.x + uniform(g, 0, 25) + 0.3 * body.y + 4 * body.lumps(25)).abs()
        below = body.z < floor + uniform(g, 10, 35)
        body.add(mask & (cleft < uniform(g, 1, 4)) & below, body.grey("fat"))
    return parts


def stomach(body: Body) -> list[int]:
    """Paint the stomach: a bent sack from the left dome to the middle, with contents."""
    g = body.grid.generator
    size = log_uniform(g, 18, 62)
    path = [
        body.moved((65, 32, 62), 8),
        body.moved((35, -10, 78), 10),
        body.moved((0, -45, 50), 12),
        body.moved((-18, -50, -5), 10),
        body.moved((-5, -25, -35), 6),
    ]
    radii = [size, size * uniform(g, 0.8, 1.1), size * uniform(g, 0.5, 0.9)]
    radii += [max(0.4 * size, 10), max(0.25 * size, 8)]
    level = body.tube(path, radii) + uniform(g, 0.03, 0.12) * body.lumps(25)
    mask = (level < 1) & _below_the_diaphragm(body)
    parts = body.add(mask, body.grey("wall of the gut"))
    if not parts:
        return []
    # 1. Contents inside the folded wall.
    thick = uniform(g, 2, 6) / size
    inside = mask & (level + uniform(g, 0.0, 0.12) * body.lumps(9) < 1 - thick)
    parts += body.add(inside, body.grey("gut"))
    # 2. Lumps of food, and air in front.
    if chance(g, 0.6):
        food = body.lumps(uniform(g, 5, 25)) > uniform(g, -0.5, 1.0)
        parts += body.add(inside & food, body.grey("gut"))
    if chance(g, 0.65) and bool(inside.any()):
        top = float(body.y[inside].quantile(uniform(g, 0.1, 0.7)))
        parts += body.add(inside & (body.y < top), body.grey("air"))
    return parts


def spleen(body: Body) -> list[int]:
    """Paint the spleen: a bowl against the left body wall."""
    g = body.grid.generator
    level = body.ball(body.moved((30, 42, 104), 6), body.scaled(52, 46, 40)) + 0.06 * body.lumps(25)
    hollow = body.ball(body.moved((15, 5, 62), 8), (60, 52, 48)) > 1
    mask = (level < 1) & hollow & _below_the_diaphragm(body)
    parts = body.add(mask, body.grey("spleen"))
    if parts and chance(g, 0.2):  # striped in the early arterial phase
        stripes = torch.sin(0.35 * (body.z + body.x) + 2 * body.lumps(12)) > 0
        parts += body.add(mask & stripes, body.grey("spleen"))
    return parts


def kidney(body: Body, side: int) -> list[int]:
    """Paint a kidney: cortex and pyramids around the sinus, in perirenal fat."""
    g = body.grid.generator
    centre = body.moved(ORGANS["left kidney" if side > 0 else "right kidney"][1], 8)
    radii = body.scaled(54, 27, 27, by=1.2)
    # 1. The lower pole lies further lateral.
    tilt = uniform(g, 0.05, 0.4) * side
    across = body.x - centre[2] + tilt * (body.z - centre[0])
    back, along = body.y - centre[1], body.z - centre[0]
    level = torch.stack((along / radii[0], back / radii[1], across / radii[2])).square().sum(0)
    level = level.sqrt() + 0.05 * body.lumps(15)
    body.add((level < 1 + uniform(g, 1, 12) / 27) & body.cavity, body.grey("fat"))
    # 2. The sinus opens medially.
    inner = across + side * uniform(g, 12, 18)
    hollow = (along / (0.5 * radii[0])).square() + (back / 11).square() + (inner / 16).square() < 1
    mask = (level < 1) & body.cavity
    parts = body.add(mask, body.grey("kidney"))
    if not parts:
        return []
    if chance(g, 0.7):
        pyramids = (level < uniform(g, 0.65, 0.8)) & (body.lumps(10) > uniform(g, -0.8, 0.5))
        parts += body.add(mask & pyramids, body.grey("pyramid"))
    sinus = body.add(mask & hollow, body.grey("fat"))
    pelvis = body.lumps(8) > uniform(g, -0.3, 1.0)
    sinus += body.add(mask & hollow & pelvis, body.grey("fluid"))
    if chance(g, 0.4):  # some annotators include the sinus
        parts += sinus
    # 3. Sometimes a cyst, which counts as kidney.
    if chance(g, 0.15):
        size = uniform(g, 5, 18)
        cyst = body.ball(body.moved(centre, 15), (size, size, size)) < 1
        parts += body.add(cyst & (level < 1.3) & body.cavity, body.grey("fluid"))
    return parts


def gallbladder(body: Body) -> list[int]:
    """Paint the gallbladder: an ellipsoid under the liver."""
    radii = body.scaled(28, 15, 14, by=1.4)
    level = body.ball(body.moved(ORGANS["gallbladder"][1], 8), radii) + 0.06 * body.lumps(20)
    return body.add((level < 1) & body.cavity, body.grey("fluid"))


def pancreas(body: Body) -> list[int]:
    """Paint the pancreas: a lobed band from the right side to the spleen."""
    g = body.grid.generator
    path = [body.moved(p, 6) for p in ((-22, 2, -34), (0, -12, -5), (14, 8, 45), (26, 32, 88))]
    thick = uniform(g, 7, 13)
    radii = [1.4 * thick, thick, thick, 0.8 * thick]
    level = body.tube(path, radii) + uniform(g, 0.1, 0.3) * body.lumps(8)
    return body.add((level < 1) & body.cavity, body.grey("pancreas"))


def bladder(body: Body) -> list[int]:
    """Paint the bladder: wall and urine."""
    radii = body.scaled(35, 35, 44, by=1.5)
    level = body.ball(body.moved(ORGANS["bladder"][1], 8), radii) + 0.05 * body.lumps(30)
    parts = body.add((level < 1) & body.cavity, body.grey("muscle"))
    return parts + body.add((level < 0.93) & body.cavity, body.grey("fluid")) if parts else []


def bowel(body: Body) -> list[int]:
    """Paint small bowel loops, and the colon around them; return the labels of the colon."""
    g = body.grid.generator
    # 1. Small bowel: cells of random noise, each with wall and content.
    room = body.cavity & (body.z < uniform(g, -40, 10)) & (body.y < 30)
    cells = body.grid.noise(max(uniform(g, 14, 24) * body.mm, 2.0), 2)
    loops = room & (cells.abs().amin(0) > uniform(g, 0.08, 0.3))
    body.add(loops, body.grey("wall of the gut"))
    for level in cells:
        content = loops & (level > uniform(g, 0.3, 0.9)) & (cells.abs().amin(0) > 0.35)
        body.add(content, body.grey("gut"))
    # 2. Colon: ascending on the right, transverse in front, descending on the left.
    side, front = 0.68 * body.width, -0.62 * body.thickness
    path = [
        (-170.0, 0.0, -side),
        (-60.0, 15.0, -side),
        (-30.0, front, -0.5 * side),
        (-45.0 + uniform(g, -40, 20), front, 0.0),
        (0.0, 0.6 * front, 0.75 * side),
        (20.0, 25.0, side),
        (-80.0, 30.0, side),
        (-190.0, 10.0, 0.7 * side),
    ]
    path = [body.moved(point, 8) for point in path]
    radii = [uniform(g, 12, 30) for _ in path]
    pouches = uniform(g, 0.05, 0.15) * torch.sin((body.z + body.x) / 7)
    level = body.tube(path, radii) + pouches + 0.08 * body.lumps(20)
    mask = (level < 1) & body.cavity & (body.z < body.diaphragm - 8)
    parts = body.add(mask, body.grey("wall of the gut"))
    if not parts:
        return []
    inside = mask & (level < uniform(g, 0.8, 0.92))
    parts += body.add(inside, body.grey("gut"))
    for _ in range(integer(g, 0, 2)):
        stool = body.lumps(uniform(g, 4, 15)) > uniform(g, -0.3, 1.0)
        parts += body.add(inside & stool, body.grey("gut"))
    if chance(g, 0.6):
        parts += body.add(inside & (body.y < uniform(g, -60, 40)), body.grey("air"))
    return parts


def trunk(grid: Grid, layout: Layout, xyz: Tensor) -> None:
    """Paint a trunk and register its organs."""
    g = grid.generator
    greys = any_scan(SCANS, g)
    layout.is_natural = greys is not ANY
    body = _body(grid, layout, xyz, greys)
    layout.means[0] = body.grey("air")
    # 1. Paint from the outside inwards; later structures overwrite earlier ones.
    wall(body)
    right, left, heart = chest(body)
    found = {"colon": bowel(body), "heart": heart}
    found["pancreas"] = pancreas(body)
    found["stomach"] = stomach(body)
    found["spleen"] = spleen(body)
    found["liver"] = liver(body)
    found["gallbladder"] = gallbladder(body)
    kidneys = [kidney(body, side) for side in (-1, 1)]
    found["bladder"] = bladder(body)
    found |= spine(body)
    # 2. Targets: each organ; of paired organs each side, and sometimes both.
    for name, pair in (("lung", [left, right]), ("kidney", kidneys)):
        layout.objects += [parts for parts in pair if parts]
        if all(pair) and chance(g, 0.15):
            layout.objects.append(pair[0] + pair[1])
        found[name] = pair[0] + pair[1]
    for name, parts in found.items():
        layout.names |= dict.fromkeys(parts, name)
        if parts and name not in ("lung", "kidney"):
            layout.objects += [parts] * TIMES.get(name, 1)
    # 3. Coil shading, except in CT.
    if greys not in (VENOUS_CT, WIDE_CT, PLAIN_CT):
        shade = grid.noise(max(150 * body.mm, 4.0))[0] * uniform(g, 0, 0.25)
        layout.shading = torch.exp(shade.clamp(-0.9, 0.6))


def _body(grid: Grid, layout: Layout, xyz: Tensor, greys: Greys) -> Body:
    """Draw size, position and orientation of a trunk."""
    g = grid.generator
    # 1. A field around one of the organs, between about organ and body width.
    centre = pick(g, {centre: share for share, centre in ORGANS.values()})
    across = log_uniform(g, 90, 400)
    mm = grid.size / across
    points = xyz / mm
    # 2. Axial orientation, or coronal or sagittal, or an affine variation of axial.
    layout.is_upright = chance(g, UPRIGHT)
    if not layout.is_upright and chance(g, 0.35):
        points = points[[1, 0, 2]] if chance(g, 0.6) else points[[1, 2, 0]]
    elif not layout.is_upright:
        slope = torch.eye(3) + 0.15 * torch.randn((3, 3), generator=g)
        points = torch.einsum("ij,j...->i...", grid.on(slope), points)
    # 3. Anatomical variation: stretch, offset and deformation.
    stretch = torch.tensor([log_uniform(g, 0.85, 1.18) for _ in range(3)])
    middle = torch.tensor(centre) + 20 * torch.randn(3, generator=g)
    middle[1:] *= max(1 - across / 400, 0.0) ** 0.5  # wide fields are centred on the body
    points = points * grid.on(stretch)[:, None, None, None]
    points = points + grid.on(middle)[:, None, None, None]
    points = points + grid.noise(max(70 * mm, 4.0), 3) * uniform(g, 0, 9)
    z, y, x = points
    width = uniform(g, 140, 200)
    return Body(grid, layout, greys, mm, z, y, x, width, width * uniform(g, 0.6, 0.75))
