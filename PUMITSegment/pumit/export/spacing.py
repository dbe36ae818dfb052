"""Voxel spacing in written files."""

from pumit.geometry import PLANAR_SLICE_SPACING_MM, Triple
from pumit.volume import Volume

# A planar image without a stated thickness still needs one in a file.
PLANAR_THICKNESS_MM = 1.0


def written_spacing_mm(volume: Volume) -> Triple:
    """Return the spacing (D, H, W) for files; a planar image gets its thickness, or 1 mm."""
    d, h, w = volume.spacing_mm
    thickness = volume.thickness_mm or PLANAR_THICKNESS_MM
    return (thickness if d >= PLANAR_SLICE_SPACING_MM else d, h, w)
