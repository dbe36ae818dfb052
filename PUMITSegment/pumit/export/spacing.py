"""The spacing that files hold."""

from __future__ import annotations

from pumit.geometry import PLANAR_SLICE_SPACING_MM, Triple
from pumit.volume import Volume

# An image without depth still needs some thickness in a file.
PLANAR_THICKNESS_MM = 1.0


def written_spacing_mm(volume: Volume) -> Triple:
    """Spacing (D, H, W) as files hold it; of a planar image what its file states, or 1 mm."""
    d, h, w = volume.spacing_mm
    thickness = volume.thickness_mm or PLANAR_THICKNESS_MM
    return (thickness if d >= PLANAR_SLICE_SPACING_MM else d, h, w)
