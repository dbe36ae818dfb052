"""Label maps and how objects get onto them."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class Layout:
    """A label map and what belongs together in it.

    Attributes:
        labels: Integer label per voxel, shape (D', H, W); 0 is the outside.
        objects: For every object that can be a target, the labels it consists of.
        parents: What an object was painted on: label -> most frequent label underneath.
        twins: Labels of the same tissue: label -> an earlier label it looks like.
        contrasts: Labels that must differ from what lies underneath by at least so much.
        means: Labels whose mean intensity the layout itself decides, in [0, 1].
    """

    labels: Tensor
    objects: list[list[int]] = field(default_factory=list)
    parents: dict[int, int] = field(default_factory=dict)
    twins: dict[int, int] = field(default_factory=dict)
    contrasts: dict[int, float] = field(default_factory=dict)
    means: dict[int, float] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Number of labels in use."""
        return max(int(self.labels.max()), *self.parents, 0) + 1


def paint(layout: Layout, mask: Tensor) -> int:
    """Give the voxels of `mask` a new label; returns it."""
    label = layout.count
    under = layout.labels[mask]
    layout.parents[label] = int(under.mode().values) if under.numel() else 0
    layout.labels = torch.where(mask, label, layout.labels)
    return label
