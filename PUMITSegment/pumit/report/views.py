"""Axial, coronal and sagittal slices in radiological orientation, and the style of all figures."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt

from pumit.export.spacing import written_spacing_mm
from pumit.geometry import Floats
from pumit.volume import Volume

# Okabe and Ito's colours without black and yellow: distinct for colour-blind readers, and visible
# on white and on black.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C")
# Pictures of scans have a dark background.
BACKGROUND = "#0d1014"
TEXT = "#e8ebef"
FAINT_TEXT = "#8b949e"

_PLOT = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "figure.titlesize": 11,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "pumit",
}
_INKED = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")


def plot_style(ink: str = "black") -> AbstractContextManager[None]:
    """Return a context with matplotlib's settings for plots created and saved within it."""
    style: AbstractContextManager[None] = matplotlib.rc_context(_PLOT | dict.fromkeys(_INKED, ink))
    return style


@dataclass(frozen=True)
class View:
    """One slice of a volume, rows downwards and columns to the right.

    Attributes:
        name: "Axial", "Coronal" or "Sagittal"; empty for a 2D image.
        down: Array axis along rows, and whether it is reversed.
        right: Array axis along columns, and whether it is reversed.
        index: Index of the slice along `normal`.
        edges: Directions of the left, right, top and bottom edge: one of L R A P S I.
    """

    name: str
    normal: int
    down: tuple[int, bool]
    right: tuple[int, bool]
    index: int
    spacing_mm: tuple[float, float]
    edges: tuple[str, str, str, str]

    def cut(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the slice of an array (..., D, H, W), shape (..., rows, columns)."""
        lead = array.ndim - 3
        plane = np.take(array, self.index, axis=lead + self.normal)
        if self.down[0] > self.right[0]:
            plane = np.swapaxes(plane, -1, -2)
        rows = slice(None, None, -1 if self.down[1] else 1)
        columns = slice(None, None, -1 if self.right[1] else 1)
        return plane[..., rows, columns]

    def size_mm(self, shape: Sequence[int]) -> tuple[float, float]:
        """Return the width and height of the slice of an array (D, H, W)."""
        rows_mm, columns_mm = self.spacing_mm
        return shape[self.right[0]] * columns_mm, shape[self.down[0]] * rows_mm

    def to_mm(self, indices: npt.ArrayLike, shape: tuple[int, int, int]) -> Floats:
        """Map (d, h, w) indices, (N, 3), to (x, y, depth) mm, (N, 3).

        x and y count from the upper left corner of the slice, depth from the slice itself; its
        unit is slices, as a 2D image has no thickness.
        """
        index = np.atleast_2d(np.asarray(indices, dtype=np.float64))
        y, x = (
            (shape[axis] - 1 - index[:, axis] if is_reversed else index[:, axis]) + 0.5
            for axis, is_reversed in (self.down, self.right)
        )
        depth = index[:, self.normal] - self.index
        return np.stack([x * self.spacing_mm[1], y * self.spacing_mm[0], depth], axis=-1)


def views_through(volume: Volume, index: tuple[int, int, int]) -> list[View]:
    """Return the slices through a voxel: three views of a volume, or a 2D image itself.

    The views follow the volume's own axes, named and oriented by the nearest anatomical ones:
    patient left is on the right, anterior and superior are at the top, and a sagittal view looks
    from the left side.
    """
    spacing = written_spacing_mm(volume)
    if volume.is_planar:
        return [View("", 0, (1, False), (2, False), 0, spacing[1:], ("", "", "", ""))]
    axes_lps = volume.direction[:, ::-1]  # columns D, H, W
    # The array axis nearest to L, to P and to S, each used once.
    nearest = max(
        permutations(range(3)), key=lambda p: sum(abs(axes_lps[i, p[i]]) for i in range(3))
    )
    left, posterior, superior = nearest

    def towards(anatomical: int, sign: int) -> tuple[int, bool]:
        axis = nearest[anatomical]
        return (axis, bool(axes_lps[anatomical, axis] * sign < 0))

    to_left, to_posterior, to_inferior = towards(0, 1), towards(1, 1), towards(2, -1)

    def view(
        name: str, normal: int, down: tuple[int, bool], right: tuple[int, bool], edges: str
    ) -> View:
        size = (spacing[down[0]], spacing[right[0]])
        beyond = (edges[0], edges[1], edges[2], edges[3])
        return View(name, normal, down, right, index[normal], size, beyond)

    return [
        view("Axial", superior, to_posterior, to_left, "RLAP"),
        view("Coronal", posterior, to_inferior, to_left, "RLSI"),
        view("Sagittal", left, to_inferior, to_posterior, "APSI"),
    ]
