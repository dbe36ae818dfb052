"""Label maps for generated scans, and functions to paint objects on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pumit.training.synthesis.grid import Grid, uniform

Greys = dict[str, tuple[float, float]]  # intensity range of each tissue; 1 is white
SMALLEST = 4  # fewest voxels to paint


@dataclass
class Layout:
    """A label map with its possible targets and intensity constraints.

    Attributes:
        labels: Integer label per voxel, shape (D', H, W); 0 is the outside.
        objects: Possible targets, each a list of labels.
        parents: Label -> most frequent label underneath.
        twins: Label -> earlier label with the same intensity.
        contrasts: Label -> smallest difference in mean intensity from the label underneath.
        means: Label -> fixed mean intensity in [0, 1].
        names: Label -> name of its structure, for labels with a class.
        is_natural: Whether intensities imitate a real scanner, and must not be inverted.
        is_upright: Whether it has the usual orientation of its scanner's images.
        shading: Factor on the intensity of each voxel, (D', H, W), or None.
        count: Number of labels in use, including the outside; 0 means to count them.
    """

    labels: Tensor
    objects: list[list[int]] = field(default_factory=list)
    parents: dict[int, int] = field(default_factory=dict)
    twins: dict[int, int] = field(default_factory=dict)
    contrasts: dict[int, float] = field(default_factory=dict)
    means: dict[int, float] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    is_natural: bool = False
    is_upright: bool = False
    shading: Tensor | None = None
    count: int = 0

    def __post_init__(self) -> None:
        if self.count == 0:
            self.count = int(self.labels.max()) + 1

    def shows(self, parts: Sequence[int]) -> Tensor:
        """Return the mask of the given labels, bool (D', H, W)."""
        return any_of(self.labels, parts)


def any_of(labels: Tensor, parts: Sequence[int]) -> Tensor:
    """Return the mask of the labels `parts`; faster than `torch.isin` for a few labels."""
    mask = torch.zeros_like(labels, dtype=torch.bool)
    for part in parts:
        mask |= labels == part
    return mask


def paint(layout: Layout, mask: Tensor) -> int:
    """Paint a mask with a new label, and return the label."""
    label = layout.count
    under = torch.bincount(layout.labels[mask], minlength=1).cpu().numpy()
    layout.parents[label] = int(under.argmax())
    layout.labels = layout.labels.masked_fill(mask, label)
    layout.count += 1
    return label


def any_scan(scans: tuple[tuple[float, Greys], ...], generator: torch.Generator) -> Greys:
    """Draw one of several kinds of scans, given as (share, intensity ranges)."""
    shares = torch.tensor([share for share, _ in scans])
    return scans[int(torch.multinomial(shares, 1, generator=generator))][1]


@dataclass
class Anatomy:
    """Base class of body regions being drawn.

    Attributes:
        greys: Intensity range of each tissue.
        mm: In-plane voxels per mm.
    """

    grid: Grid
    layout: Layout
    greys: Greys
    mm: float

    def grey(self, tissue: str) -> float:
        """Draw an intensity for a tissue."""
        return uniform(self.grid.generator, *self.greys[tissue])

    def add(self, mask: Tensor, grey: float) -> list[int]:
        """Paint a mask with one intensity; return the new label, or none if the mask is tiny."""
        if int(mask.sum()) < SMALLEST:
            return []
        label = paint(self.layout, mask)
        self.layout.means[label] = grey
        return [label]

    def lumps(self, mm: float) -> Tensor:
        """Draw fractal noise, of about unit variance, with a correlation length in mm."""
        return self.grid.fractal(max(mm * self.mm, 3.0))
