"""Detection of a scan's depth axis, along which its slices are stacked."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pumit.errors import PumitError
from pumit.volume import Volume

Rule = Literal["single slice", "description", "metadata", "spacing"]

# World axis (L, P, S) across each anatomical plane.
PLANES = {"sagittal": 0, "coronal": 1, "axial": 2, "transverse": 2}
NEARLY_EQUAL = 0.01  # tolerance of log spacings, for rounding in headers
_AXES = {name: axis for axis in range(3) for name in (str(axis), f"axis {axis}")}


@dataclass(frozen=True)
class DepthAxis:
    """The depth axis of a volume.

    Attributes:
        axis: Index in the volume's array (D, H, W).
    """

    axis: int
    rule: Rule

    @property
    def order(self) -> tuple[int, int, int]:
        """Axis order with the depth first and the others in order."""
        h, w = (a for a in range(3) if a != self.axis)
        return (self.axis, h, w)


def find_depth_axis(
    volume: Volume, description: str | None = None, *, scanned_axis: int | None = None
) -> DepthAxis:
    """Find the depth axis by description, then by metadata, then by spacing.

    An axis with a single voxel always is the depth. For a DICOM series, the metadata is its slice
    stack. By spacing, it is the axis that differs most from the others, coarser or finer, since
    slices may be thinner than pixels, as in PET.

    Args:
        description: Publisher's description of the scan: the plane of its slices ("axial",
            "sagittal", "coronal"; the nearest axis of an oblique scan), or an axis of the array
            (D, H, W), "axis 0" to "axis 2". A NIfTI file's third axis is axis 0.
        scanned_axis: Axis according to the scan's file; see `pumit.io.read.scanned_axis`.

    Raises:
        PumitError: If the description is unknown.

    Source:
        PUMIT, appendix "Pre-training Data and Pre-processing".
    """
    described = None if description is None else _described(volume, description)
    if 1 in volume.shape:
        return DepthAxis(volume.shape.index(1), "single slice")
    if described is not None:
        return DepthAxis(described, "description")
    if volume.source is not None:  # a DICOM series, whose slices are stacked along axis 0
        return DepthAxis(0, "metadata")
    if scanned_axis is not None:
        return DepthAxis(scanned_axis, "metadata")
    return DepthAxis(most_anisotropic(volume.spacing_mm), "spacing")


def most_anisotropic(spacing_mm: Sequence[float]) -> int:
    """Return the axis whose spacing differs most from the others' geometric mean, as a ratio.

    The first if all are nearly equal; of two with equal ratios, the coarser. If slices are thinner
    than pixels, this differs from `coarsest_axis.depth_first`, which takes the coarsest axis.
    """
    logs = np.log(np.asarray(spacing_mm, dtype=np.float64))
    if np.ptp(logs) <= NEARLY_EQUAL:
        return 0
    apart = np.abs(logs - (logs.sum() - logs) / 2).round(6)
    return max(range(3), key=lambda axis: (apart[axis], logs[axis]))


def _described(volume: Volume, description: str) -> int:
    name = " ".join(str(description).lower().split())
    if name in _AXES:
        return _AXES[name]
    if name not in PLANES:
        known = [*PLANES, *(f"axis {axis}" for axis in range(3))]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}."
        raise PumitError(f"Unknown depth axis {description!r}{hint}")
    # Columns of the direction are the W, H and D axes.
    across = np.abs(volume.direction[PLANES[name], ::-1])
    return int(np.argmax(across))
