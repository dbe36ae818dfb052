"""Draw the icon of PUMITTrain: scans with a segment, and a training curve."""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageDraw

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "PUMITTrain" / "Resources" / "Icons" / "PUMITTrain.png"
SIZE = 128
# Supersampling factor, for smooth edges.
SCALE = 8
# Points (x, y) of the curve in pixels, rising like a Dice score.
CURVE = ((12, 108), (24, 88), (36, 74), (50, 66), (66, 62), (84, 60))


def draw() -> Image.Image:
    """Return the icon, 128 x 128 with a transparent background."""
    image = Image.new("RGBA", (SIZE * SCALE, SIZE * SCALE))
    pen = ImageDraw.Draw(image)

    def box(left: float, top: float, right: float, bottom: float) -> tuple[float, ...]:
        return (left * SCALE, top * SCALE, right * SCALE, bottom * SCALE)

    # Back cases first, each a step further up and right.
    for step, grey in ((2, 90), (1, 60), (0, 28)):
        dx, dy = 14 * step, -14 * step
        pen.rounded_rectangle(
            box(6 + dx, 34 + dy, 94 + dx, 122 + dy),
            radius=9 * SCALE,
            fill=(grey, grey + 8, grey + 22, 255),
            outline=(225, 232, 240, 255),
            width=3 * SCALE,
        )
    pen.ellipse(box(44, 78, 86, 114), fill=(46, 190, 110, 255), outline=(190, 255, 215, 255))
    points = [(x * SCALE, y * SCALE) for x, y in CURVE]
    pen.line(points, fill=(255, 190, 70, 255), width=6 * SCALE, joint="curve")
    for x, y in CURVE[1::2]:
        pen.ellipse(box(x - 5, y - 5, x + 5, y + 5), fill=(255, 255, 255, 255))
    return image.resize((SIZE, SIZE), Image.Resampling.LANCZOS)


if __name__ == "__main__":
    draw().save(TARGET, optimize=True)
