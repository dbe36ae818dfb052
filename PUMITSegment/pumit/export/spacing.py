"""The spacing that files hold."""

from __future__ import annotations

from pumit.geometry import PLANAR_SLICE_SPACING_MM, Triple
from pumit.volume import Volume

# An image without depth still needs some thickness in a file.
PLANAR_THICKNESS_MM = 1.0


def written_spacing_mm(volume: Volume) -> Triple:
    """Spacing (D, H, W) as files hold it: a planar image is 1 mm thick, not 1e8."""
    d, h, w = volume.spacing_mm
    return (PLANAR_THICKNESS_MM if d >= PLANAR_SLICE_SPACING_MM else d, h, w)
