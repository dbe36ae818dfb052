"""Label maps, how objects get onto them, and regions of the body that are drawn so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pumit.training.synthesis.grid import Grid, uniform

Greys = dict[str, tuple[float, float]]  # least and most of each tissue; 1 is white
SMALLEST = 4  # voxels of what is painted


@dataclass
class Layout:
    """A label map and what belongs together in it.

    Attributes:
        labels: Integer label per voxel, shape (D', H, W); 0 is the outside.
        objects: Labels that each possible target consists of.
        parents: Structure under each object: label -> most frequent label underneath.
        twins: Labels of the same tissue: label -> an earlier label it looks like.
        contrasts: Labels that must differ from what lies underneath by at least so much.
        means: Labels whose mean intensity the layout itself decides, in [0, 1].
        names: Structures of some labels: label -> name of a structure.
        is_natural: Whether the means are those of a scanner, which nothing turns round.
        is_upright: Whether it lies as its scanner's images always lie.
        shading: Brightness that each voxel's grey is multiplied by, (D', H, W), or None.
        count: Number of labels in use; 0 counts them.
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
        """Where any of some labels is to be seen, bool (D', H, W)."""
        return any_of(self.labels, parts)


def any_of(labels: Tensor, parts: Sequence[int]) -> Tensor:
    """Where a label map shows one of `parts`; faster than `torch.isin` for a few."""
    mask = torch.zeros_like(labels, dtype=torch.bool)
    for part in parts:
        mask |= labels == part
    return mask


def paint(layout: Layout, mask: Tensor) -> int:
    """Give the voxels of `mask` a new label; returns it."""
    label = layout.count
    under = torch.bincount(layout.labels[mask], minlength=1).cpu().numpy()
    layout.parents[label] = int(under.argmax())
    layout.labels = layout.labels.masked_fill(mask, label)
    layout.count += 1
    return label


def any_scan(scans: tuple[tuple[float, Greys], ...], generator: torch.Generator) -> Greys:
    """One of some kinds of scans, by their shares."""
    shares = torch.tensor([share for share, _ in scans])
    return scans[int(torch.multinomial(shares, 1, generator=generator))][1]


@dataclass
class Anatomy:
    """A region of the body that is being drawn.

    Attributes:
        mm: In-plane voxels of a millimetre.
    """

    grid: Grid
    layout: Layout
    greys: Greys
    mm: float

    def grey(self, tissue: str) -> float:
        """Return a grey that the tissue may have."""
        return uniform(self.grid.generator, *self.greys[tissue])

    def add(self, mask: Tensor, grey: float) -> list[int]:
        """Paint one grey; the new label, or none where there is hardly anything to paint."""
        if int(mask.sum()) < SMALLEST:
            return []
        label = paint(self.layout, mask)
        self.layout.means[label] = grey
        return [label]

    def lumps(self, mm: float) -> Tensor:
        """Unevenness of unit variance and this many millimetres."""
        return self.grid.fractal(max(mm * self.mm, 3.0))
