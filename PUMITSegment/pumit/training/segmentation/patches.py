"""Batches of patches with their labels, cut at random or so that every class has its turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pumit.training.loop.task import Batch
from pumit.training.segmentation.augmentation import Augmentation, Shape
from pumit.training.segmentation.prepared_cases import PreparedCase


@dataclass(frozen=True, eq=False)
class SegmentationBatch(Batch):
    """Patches.

    Attributes:
        image: (B, C, d, h, w), float32.
        labels: (B, d, h, w), uint8, `UNKNOWN` where that is not known.
        drawn: Classes that were drawn in each patch's case, bool (B, K); None for all in all.
    """

    image: Tensor
    labels: Tensor
    cases: list[str]
    drawn: Tensor | None = None

    def __len__(self) -> int:
        return len(self.image)

    @property
    def voxels(self) -> int:
        """How many voxels it holds, for the log."""
        return self.labels.numel()


@dataclass
class SegmentationSource:
    """Draw batches; a function only of the generator's state.

    Attributes:
        patch: Size of the patches (d, h, w).
        balanced_share: Part of the patches whose middle lies in a class drawn with even chances
            among those of the case; the others lie anywhere, or around a voxel of which it is
            known what it is, where that is not so everywhere.
    """

    cases: Sequence[PreparedCase]
    _: KW_ONLY
    patch: Shape
    batch_size: int
    balanced_share: float
    augmentation: Augmentation

    def draw(
        self, da0: int, generator: torch.Generator, shared: torch.Generator
    ) -> SegmentationBatch:
        """Draw a batch; the network sees one spacing, so its degree of anisotropy is of no use."""
        seed = int(torch.randint(2**31, (), generator=generator))
        rng = np.random.RandomState(seed)
        images, labels, cases = [], [], []
        for _ in range(self.batch_size):
            case = self.cases[rng.randint(len(self.cases))]
            affine = self.augmentation.movement(rng)
            size = self.augmentation.source_size(affine)
            start = self._start(case, size, rng)
            image = torch.from_numpy(cut(case.image, start, size, case.lowest))
            label = torch.from_numpy(cut(case.labels[None], start, size, 0)[0])
            image, label = self.augmentation(image, label, affine, rng)
            images.append(image)
            labels.append(label)
            cases.append(case)
        names = [case.name for case in cases]
        return SegmentationBatch(torch.stack(images), torch.stack(labels), names, _drawn(cases))

    def _start(
        self, case: PreparedCase, size: Shape, rng: np.random.RandomState
    ) -> npt.NDArray[np.int64]:
        """First voxel of a patch: inside of the case, or around it where the case is smaller."""
        slack = np.array(case.labels.shape) - np.array(size)
        low, high = np.minimum(slack, 0), np.maximum(slack, 0)
        anywhere = np.array([rng.randint(a, b + 1) for a, b in zip(low, high, strict=True)])
        if not case.places or rng.rand() >= self.balanced_share:
            if case.known is None or not len(case.known):
                return anywhere
            places = case.known
        else:
            classes = sorted(case.places)
            places = case.places[classes[rng.randint(len(classes))]]
        middle = places[rng.randint(len(places))].astype(np.int64) - np.array(size) // 2
        return np.where(slack > 0, np.clip(middle, low, high), anywhere)


def _drawn(cases: Sequence[PreparedCase]) -> Tensor | None:
    """Classes that were drawn in each case, (B, K); None for all in all."""
    count = next((len(case.drawn) for case in cases if case.drawn is not None), 0)
    if not count:
        return None
    rows = [np.ones(count, dtype=bool) if c.drawn is None else c.drawn for c in cases]
    return torch.from_numpy(np.stack(rows))


def cut(
    array: npt.NDArray[np.generic], start: npt.NDArray[np.int64], size: Shape, beyond: float
) -> npt.NDArray[np.generic]:
    """Copy a box out of (C, d, h, w); what lies beyond the array gets one value.

    Args:
        start: First voxel (d, h, w), which may be negative.
        size: Size (d, h, w).
        beyond: Value outside.

    Returns:
        (C, *size).
    """
    shape = np.array(array.shape[1:])
    low = np.clip(start, 0, shape)
    high = np.clip(start + np.array(size), 0, shape)
    out = np.full((array.shape[0], *size), beyond, dtype=array.dtype)
    source = tuple(slice(a, b) for a, b in zip(low, high, strict=True))
    target = tuple(slice(a, b) for a, b in zip(low - start, high - start, strict=True))
    out[(slice(None), *target)] = array[(slice(None), *source)]
    return out
