"""Coordinates, body wall, chest and spine of a generated trunk."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pumit.training.synthesis.grid import chance, log_uniform, uniform
from pumit.training.synthesis.shapes import Anatomy

Triple = tuple[float, float, float]  # towards superior, posterior and left


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
