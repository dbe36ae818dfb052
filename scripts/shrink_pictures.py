"""Write the large PNG pictures of the repository with few colours, so that a clone stays small.

    python scripts/shrink_pictures.py [PICTURE ...]

A picture above 100 KiB gets 128 colours; it is left as it is where that saves little. With
`pip install pyoxipng` every picture is packed better, too, without loss.
"""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
LARGE = 100 << 10
COLOURS = 128
# A screenshot of few colours keeps each within this; others get the colours that fit best.
CLOSE = 6
WORTH = 0.95


def few_colours(picture: Image.Image) -> Image.Image:
    """Return the picture with a palette, without patterns of dots."""
    none = Image.Dither.NONE
    spread = picture.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=none)
    far = np.abs(np.asarray(spread.convert("RGB"), int) - np.asarray(picture, int)).max()
    if far <= CLOSE:
        return spread
    return picture.quantize(COLOURS, method=Image.Quantize.MEDIANCUT, kmeans=2, dither=none)


def packed(data: bytes) -> bytes:
    """Return the same picture in fewer bytes, without loss, where the tool for it is installed."""
    try:
        import oxipng  # type: ignore[import-not-found]
    except ImportError:
        return data
    return bytes(oxipng.optimize_from_memory(data, level=4))


def shrink(path: Path) -> None:
    """Write a picture again where that saves something, and tell."""
    before = path.stat().st_size
    data = path.read_bytes()
    with Image.open(path) as opened:
        has_few = opened.mode == "P" and len(opened.getcolors() or ()) <= COLOURS
        if before > LARGE and not has_few:
            buffer = io.BytesIO()
            few_colours(opened.convert("RGB")).save(buffer, "PNG", optimize=True)
            data = buffer.getvalue()
    data = packed(data)
    if len(data) < WORTH * before:
        path.write_bytes(data)
        print(f"{path.relative_to(ROOT)}: {before >> 10} KiB to {len(data) >> 10} KiB")


def main() -> int:
    """Shrink the pictures that are named, or all that are tracked."""
    given = [Path(text).resolve() for text in sys.argv[1:]]
    listed = subprocess.run(
        ["git", "ls-files", "*.png"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for path in given or [ROOT / name for name in listed.stdout.splitlines()]:
        shrink(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
