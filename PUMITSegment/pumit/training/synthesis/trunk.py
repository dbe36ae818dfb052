"""Generated trunks with organs, in the intensities of CT or MR, or random ones."""

from __future__ import annotations

import torch
from torch import Tensor

from pumit.training.synthesis.body import Body, Triple, chest, spine, wall
from pumit.training.synthesis.grid import Grid, chance, integer, log_uniform, uniform
from pumit.training.synthesis.shapes import Greys, Layout, any_scan

# Intensity ranges of tissues in the display window; "vein of the liver" is a factor on the liver's
# intensity.
VENOUS_CT: Greys = {
    "air": (0.0, 0.02),
    "lung": (0.0, 0.04),
    "lung vessel": (0.2, 0.6),
    "fat": (0.08, 0.22),
    "muscle": (0.42, 0.56),
    "bone": (0.6, 1.0),
    "disc": (0.45, 0.6),
    "cord": (0.4, 0.5),
    "fluid": (0.3, 0.42),
    "liver": (0.5, 0.7),
    "vein of the liver": (1.0, 1.3),
    "spleen": (0.52, 0.8),
    "kidney": (0.55, 1.0),
    "pyramid": (0.5, 0.95),
    "pancreas": (0.4, 0.65),
    "gut": (0.25, 0.75),
    "wall of the gut": (0.4, 0.65),
    "blood": (0.6, 1.0),
}
# In a wide window, soft tissues have similar intensities.
WIDE_CT: Greys = VENOUS_CT | {
    "lung": (0.05, 0.2),
    "fat": (0.42, 0.47),
    "muscle": (0.51, 0.56),
    "bone": (0.65, 1.0),
    "disc": (0.52, 0.57),
    "cord": (0.5, 0.54),
    "fluid": (0.48, 0.51),
    "liver": (0.53, 0.59),
    "vein of the liver": (1.0, 1.08),
    "spleen": (0.53, 0.6),
    "kidney": (0.54, 0.68),
    "pyramid": (0.53, 0.66),
    "pancreas": (0.5, 0.57),
    "gut": (0.45, 0.6),
    "wall of the gut": (0.5, 0.56),
    "blood": (0.54, 0.68),
}
PLAIN_CT: Greys = VENOUS_CT | {
    "liver": (0.48, 0.62),
    "vein of the liver": (0.8, 0.97),
    "spleen": (0.45, 0.55),
    "kidney": (0.4, 0.52),
    "pyramid": (0.4, 0.52),
    "pancreas": (0.38, 0.5),
    "blood": (0.42, 0.55),
}
# T2-weighted, fat-suppressed: fluid is white, the liver dark with bright veins.
T2: Greys = {
    "air": (0.0, 0.04),
    "lung": (0.0, 0.1),
    "lung vessel": (0.05, 0.3),
    "fat": (0.08, 0.35),
    "muscle": (0.06, 0.2),
    "bone": (0.08, 0.35),
    "disc": (0.1, 0.7),
    "cord": (0.3, 0.5),
    "fluid": (0.75, 1.0),
    "liver": (0.1, 0.42),
    "vein of the liver": (1.2, 2.6),
    "spleen": (0.35, 0.9),
    "kidney": (0.4, 1.0),
    "pyramid": (0.45, 1.0),
    "pancreas": (0.25, 0.6),
    "gut": (0.05, 1.0),
    "wall of the gut": (0.15, 0.5),
    "blood": (0.02, 0.6),
}
T1: Greys = T2 | {
    "fat": (0.6, 1.0),
    "muscle": (0.25, 0.42),
    "bone": (0.35, 0.8),
    "disc": (0.2, 0.4),
    "fluid": (0.03, 0.2),
    "liver": (0.35, 0.65),
    "vein of the liver": (0.4, 0.95),
    "spleen": (0.2, 0.4),
    "kidney": (0.25, 0.5),
    "pyramid": (0.2, 0.4),
    "pancreas": (0.35, 0.65),
    "wall of the gut": (0.25, 0.45),
    "blood": (0.05, 0.4),
}
# T1-weighted, fat-suppressed, contrast-enhanced.
CONTRAST_T1: Greys = T1 | {
    "fat": (0.08, 0.3),
    "bone": (0.1, 0.3),
    "liver": (0.4, 0.7),
    "vein of the liver": (1.05, 1.5),
    "spleen": (0.4, 0.75),
    "kidney": (0.55, 1.0),
    "pyramid": (0.4, 1.0),
    "blood": (0.6, 1.0),
}
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
# Relative frequency of a structure as the centre of a field, and how often it counts as a target.
MIDDLES = {
    "liver": 3.0,
    "stomach": 2.5,
    "spleen": 1.5,
    "left kidney": 1.0,
    "right kidney": 1.0,
    "gallbladder": 0.4,
    "pancreas": 0.8,
    "colon": 0.5,
    "bladder": 0.3,
}
TIMES = {"liver": 2, "stomach": 2}
# Approximate centre of each organ: towards superior, posterior and left.
CENTRES: dict[str, Triple] = {
    "liver": (25, -5, -75),
    "stomach": (30, -25, 65),
    "spleen": (30, 45, 105),
    "left kidney": (-22, 42, 66),
    "right kidney": (-32, 42, -66),
    "gallbladder": (-28, -45, -48),
    "pancreas": (2, -8, 20),
    "colon": (-40, -30, 60),
    "bladder": (-235, -25, 0),
}


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
    centre = body.moved(CENTRES["left kidney" if side > 0 else "right kidney"], 8)
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
    level = body.ball(body.moved(CENTRES["gallbladder"], 8), radii) + 0.06 * body.lumps(20)
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
    level = body.ball(body.moved(CENTRES["bladder"], 8), radii) + 0.05 * body.lumps(30)
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
    names = list(MIDDLES)
    name = names[int(torch.multinomial(torch.tensor(list(MIDDLES.values())), 1, generator=g))]
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
    middle = torch.tensor(CENTRES[name]) + 20 * torch.randn(3, generator=g)
    middle[1:] *= max(1 - across / 400, 0.0) ** 0.5  # wide fields are centred on the body
    points = points * grid.on(stretch)[:, None, None, None]
    points = points + grid.on(middle)[:, None, None, None]
    points = points + grid.noise(max(70 * mm, 4.0), 3) * uniform(g, 0, 9)
    z, y, x = points
    width = uniform(g, 140, 200)
    return Body(grid, layout, greys, mm, z, y, x, width, width * uniform(g, 0.6, 0.75))
