"""Reduce the repository's large PNG pictures to few colours, so that a clone stays small.

    python scripts/shrink_pictures.py [PICTURE ...]

A picture above 100 KiB is reduced to 128 colours, unless that saves little or would be seen. With
`pip install pyoxipng` every picture is also recompressed without loss.
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
# Largest error of any pixel's red, green or blue that is not seen beside the original. A mean error
# would allow that a thin outline takes another segment's colour.
UNSEEN = 20
WORTH = 0.95


def few_colours(picture: Image.Image) -> Image.Image:
    """Return the picture with a palette, or as it is if a colour would visibly change."""
    few = picture.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE)
    error = np.abs(np.asarray(few.convert("RGB"), int) - np.asarray(picture, int)).max()
    return few if error <= UNSEEN else picture


def packed(data: bytes) -> bytes:
    """Recompress a picture without loss; unchanged if oxipng is not installed."""
    try:
        import oxipng  # type: ignore[import-not-found]
    except ImportError:
        return data
    return bytes(oxipng.optimize_from_memory(data, level=4))


def shrink(path: Path) -> None:
    """Rewrite a picture if that saves more than 5 %, and print the sizes."""
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
    """Shrink the given pictures, or all tracked ones."""
    given = [Path(text).resolve() for text in sys.argv[1:]]
    listed = subprocess.run(
        ["git", "ls-files", "*.png"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for path in given or [ROOT / name for name in listed.stdout.splitlines()]:
        shrink(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
