"""Draw the extension's icon: three slices of a scan, a click and its segment."""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageDraw

ROOT = Path(__file__).resolve().parents[2]
TARGETS = (
    ROOT / "Resources" / "PUMIT.png",
    ROOT / "PUMITSegment" / "Resources" / "Icons" / "PUMITSegment.png",
)
SIZE = 128
# Supersampling factor, for smooth edges.
SCALE = 8


def draw() -> Image.Image:
    """Return the icon, 128 x 128 with a transparent background."""
    image = Image.new("RGBA", (SIZE * SCALE, SIZE * SCALE))
    pen = ImageDraw.Draw(image)

    def box(left: float, top: float, right: float, bottom: float) -> tuple[float, ...]:
        return (left * SCALE, top * SCALE, right * SCALE, bottom * SCALE)

    # Back slices first, each a step further up and right.
    for step, grey in ((2, 90), (1, 60), (0, 28)):
        dx, dy = 14 * step, -14 * step
        pen.rounded_rectangle(
            box(6 + dx, 34 + dy, 94 + dx, 122 + dy),
            radius=9 * SCALE,
            fill=(grey, grey + 8, grey + 22, 255),
            outline=(225, 232, 240, 255),
            width=3 * SCALE,
        )
    pen.ellipse(box(15, 48, 85, 110), fill=(118, 126, 140, 255))
    pen.ellipse(box(52, 58, 78, 92), fill=(160, 168, 180, 255))
    # The segment and the click in it.
    pen.ellipse(box(24, 60, 56, 98), fill=(46, 190, 110, 255), outline=(190, 255, 215, 255))
    pen.ellipse(box(33, 72, 47, 86), fill=(255, 255, 255, 255))
    pen.ellipse(box(36.5, 75.5, 43.5, 82.5), fill=(220, 60, 60, 255))
    return image.resize((SIZE, SIZE), Image.Resampling.LANCZOS)


if __name__ == "__main__":
    icon = draw()
    for target in TARGETS:
        icon.save(target, optimize=True)
