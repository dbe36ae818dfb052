"""Draw the icons of the panel's buttons: kinds of prompts, polarity and history."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from PIL import Image, ImageDraw

FOLDER = Path(__file__).resolve().parents[2] / "PUMITSegment" / "Resources" / "Icons"
SIZE = 48
# Supersampling factor, for smooth edges.
SCALE = 8
# Visible on light and on dark panels.
GREEN = (38, 166, 91, 255)
RED = (214, 69, 65, 255)
BLUE = (58, 134, 219, 255)
GREY = (128, 136, 148, 255)

Points = list[tuple[float, float]]


class Pen:
    """Draws on a square of 48 units."""

    def __init__(self, image: Image.Image) -> None:
        self._draw = ImageDraw.Draw(image)

    def line(self, points: Points, colour: tuple[int, ...], width: float = 3.5) -> None:
        """Draw a line with round joints and ends."""
        scaled = [(x * SCALE, y * SCALE) for x, y in points]
        self._draw.line(scaled, fill=colour, width=round(width * SCALE), joint="curve")
        for x, y in (points[0], points[-1]):
            self.disc(x, y, width / 2, colour)

    def disc(self, x: float, y: float, radius: float, colour: tuple[int, ...]) -> None:
        """Draw a filled circle."""
        box = [(x - radius) * SCALE, (y - radius) * SCALE, (x + radius) * SCALE]
        self._draw.ellipse([*box, (y + radius) * SCALE], fill=colour)

    def polygon(self, points: Points, colour: tuple[int, ...]) -> None:
        """Draw a filled polygon."""
        self._draw.polygon([(x * SCALE, y * SCALE) for x, y in points], fill=colour)


def arc(x: float, y: float, radius: float, start: float, end: float) -> Points:
    """Return points on a circle, angles in degrees, clockwise from the right."""
    steps = [math.radians(start + (end - start) * i / 40) for i in range(41)]
    return [(x + radius * math.cos(a), y + radius * math.sin(a)) for a in steps]


def _point(pen: Pen) -> None:
    pen.line([(24, 5), (24, 43)], BLUE, 2.5)
    pen.line([(5, 24), (43, 24)], BLUE, 2.5)
    pen.disc(24, 24, 9, BLUE)
    pen.disc(24, 24, 4, (255, 255, 255, 255))


def _box3d(pen: Pen) -> None:
    front = [(7, 17), (31, 17), (31, 41), (7, 41), (7, 17)]
    pen.line(front, BLUE)
    pen.line([(7, 17), (17, 7), (41, 7), (41, 31), (31, 41)], BLUE)
    pen.line([(31, 17), (41, 7)], BLUE)


def _box2d(pen: Pen) -> None:
    pen.line([(7, 11), (41, 11), (41, 37), (7, 37), (7, 11)], BLUE)
    for x, y in ((7, 11), (41, 11), (41, 37), (7, 37)):
        pen.disc(x, y, 4.5, BLUE)


def _scribble(pen: Pen) -> None:
    wave = [(5 + x, 24 + 11 * math.sin(x / 6.2)) for x in range(39)]
    pen.line([(float(x), y) for x, y in wave], BLUE, 5)


def _lasso(pen: Pen) -> None:
    outline = [
        (24 + 17 * math.cos(a), 20 + (12 + 2 * math.sin(3 * a)) * math.sin(a))
        for a in (math.radians(6 * i) for i in range(61))
    ]
    pen.line(outline, BLUE)
    pen.line([(15, 32), (13, 38), (18, 44)], BLUE)
    pen.disc(15, 32, 3.5, BLUE)


def _inside(pen: Pen) -> None:
    pen.disc(24, 24, 20, GREEN)
    pen.line([(24, 14), (24, 34)], (255, 255, 255, 255), 5)
    pen.line([(14, 24), (34, 24)], (255, 255, 255, 255), 5)


def _outside(pen: Pen) -> None:
    pen.disc(24, 24, 20, RED)
    pen.line([(14, 24), (34, 24)], (255, 255, 255, 255), 5)


def _undo(pen: Pen) -> None:
    pen.line(arc(25, 27, 14, -125, 120), GREY, 4.5)
    pen.polygon([(4, 19), (22, 6), (22, 27)], GREY)


def _redo(pen: Pen) -> None:
    pen.line([(48 - x, y) for x, y in arc(25, 27, 14, -125, 120)], GREY, 4.5)
    pen.polygon([(44, 19), (26, 6), (26, 27)], GREY)


def _reset(pen: Pen) -> None:
    pen.line([(12, 12), (36, 36)], GREY, 5)
    pen.line([(36, 12), (12, 36)], GREY, 5)


def _resetall(pen: Pen) -> None:
    pen.line([(6, 8), (20, 22)], GREY, 4)
    pen.line([(20, 8), (6, 22)], GREY, 4)
    pen.line([(26, 24), (42, 40)], GREY, 5)
    pen.line([(42, 24), (26, 40)], GREY, 5)


def _add(pen: Pen) -> None:
    pen.line([(24, 9), (24, 39)], GREEN, 6)
    pen.line([(9, 24), (39, 24)], GREEN, 6)


def _remove(pen: Pen) -> None:
    pen.line([(9, 24), (39, 24)], RED, 6)


ICONS: tuple[Callable[[Pen], None], ...] = (
    *(_point, _box3d, _box2d, _scribble, _lasso, _inside, _outside),
    *(_undo, _redo, _reset, _resetall, _add, _remove),
)


if __name__ == "__main__":
    for draw in ICONS:
        icon = Image.new("RGBA", (SIZE * SCALE, SIZE * SCALE))
        draw(Pen(icon))
        small = icon.resize((SIZE, SIZE), Image.Resampling.LANCZOS)
        small.save(FOLDER / f"{draw.__name__[1:]}.png", optimize=True)
