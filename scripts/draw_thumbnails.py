"""Draw both thumbnails of the module's sample data, from the generated scan."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
ICONS = ROOT / "PUMITSegment" / "Resources" / "Icons"
sys.path.insert(0, str(ROOT / "PUMITSegment"))

from pumit.segmentation import Mask  # noqa: E402
from PUMITSlicerLib.generated_scan import SPACING_MM, generatedScan  # noqa: E402

# Slicer's thumbnails are a little wider than high.
SIZE = (192, 128)
LOW_HU, HIGH_HU = -160.0, 240.0
COLORS = {
    "liver": (221, 130, 101),
    "spleen": (157, 108, 162),
    "left kidney": (225, 190, 60),
    "right kidney": (225, 190, 60),
    "aorta": (216, 60, 60),
    "liver tumour": (144, 220, 144),
}


def slice_picture(
    plane: np.ndarray, masks: dict[str, Mask], spacing_mm: tuple[float, float]
) -> Image.Image:
    """Draw masks over a slice, (rows, columns), cropped to the thumbnail's shape."""
    grey = np.clip((plane - LOW_HU) / (HIGH_HU - LOW_HU), 0, 1) * 255
    rgb = np.repeat(grey[..., None], 3, axis=-1)
    for name, mask in masks.items():
        rgb[mask] = 0.45 * rgb[mask] + 0.55 * np.array(COLORS[name])
    image = Image.fromarray(rgb.astype(np.uint8))
    height = round(plane.shape[0] * spacing_mm[0] / spacing_mm[1])
    image = image.resize((plane.shape[1], height))
    scale = max(SIZE[0] / image.width, SIZE[1] / image.height)
    image = image.resize(
        (round(image.width * scale), round(image.height * scale)), Image.Resampling.LANCZOS
    )
    left, top = (image.width - SIZE[0]) // 2, (image.height - SIZE[1]) // 2
    return image.crop((left, top, left + SIZE[0], top + SIZE[1]))


def main() -> None:
    """Write both pictures."""
    scan = generatedScan()
    axial = int(np.argmax(scan.masks["liver tumour"].sum(axis=(1, 2))))
    plane = scan.volume.array[axial]
    shown = {name: scan.masks[name][axial] for name in COLORS}
    every = slice_picture(plane, shown, SPACING_MM[1:])
    every.save(ICONS / "PUMITGeneratedAbdomen.png", optimize=True)
    coronal = int(np.argmax(scan.masks["liver"].sum(axis=(0, 2))))
    # Superior at the top.
    plane = scan.volume.array[::-1, coronal]
    liver = {"liver": scan.masks["liver"][::-1, coronal]}
    only = slice_picture(plane, liver, (SPACING_MM[0], SPACING_MM[2]))
    only.save(ICONS / "PUMITCTLiver.png", optimize=True)


if __name__ == "__main__":
    main()
