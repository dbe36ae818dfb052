"""Generated trunks with organs, in the intensities of CT or MR, or random ones."""

from __future__ import annotations

import torch
from torch import Tensor

from pumit.training.synthesis import organs
from pumit.training.synthesis.body import Body, chest, spine, wall
from pumit.training.synthesis.grid import Grid, chance, log_uniform, uniform
from pumit.training.synthesis.painting import Greys, Layout, any_scan

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
    found = {"colon": organs.bowel(body), "heart": heart}
    found["pancreas"] = organs.pancreas(body)
    found["stomach"] = organs.stomach(body)
    found["spleen"] = organs.spleen(body)
    found["liver"] = organs.liver(body)
    found["gallbladder"] = organs.gallbladder(body)
    kidneys = [organs.kidney(body, side) for side in (-1, 1)]
    found["bladder"] = organs.bladder(body)
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
    middle = torch.tensor(organs.CENTRES[name]) + 20 * torch.randn(3, generator=g)
    middle[1:] *= max(1 - across / 400, 0.0) ** 0.5  # wide fields are centred on the body
    points = points * grid.on(stretch)[:, None, None, None]
    points = points + grid.on(middle)[:, None, None, None]
    points = points + grid.noise(max(70 * mm, 4.0), 3) * uniform(g, 0, 9)
    z, y, x = points
    width = uniform(g, 140, 200)
    return Body(grid, layout, greys, mm, z, y, x, width, width * uniform(g, 0.6, 0.75))
