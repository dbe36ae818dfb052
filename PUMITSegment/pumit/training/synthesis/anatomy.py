"""What hearts in their chest and trunks share: tissues of a scanner, painted one over the other."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pumit.training.synthesis.grid import Grid, uniform
from pumit.training.synthesis.painting import Layout, paint

Greys = dict[str, tuple[float, float]]  # least and most of each tissue; 1 is white
SMALLEST = 4  # voxels of what is painted


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
