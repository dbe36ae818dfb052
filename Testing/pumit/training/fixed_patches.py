"""Patches and a network whose answers are known."""

from __future__ import annotations

import numpy as np
from labelled_scans import ball_and_box
from pumit.training.recipes.segmentation import AugmentationSettings
from pumit.training.segmentation.patches import Augmentation, SegmentationSource
from pumit.training.segmentation.prepared_cases import PreparedCase
from torch import Tensor, nn

PATCH = (16, 32, 32)


def made_source() -> SegmentationSource:
    image, labels = ball_and_box(0)
    places = {c: np.argwhere(labels == c).astype(np.int32) for c in (1, 2)}
    case = PreparedCase("a", image[None] / 50, labels, places, float(image.min()) / 50)
    plain = Augmentation(AugmentationSettings.model_validate(False), PATCH, (1.0, 1.0, 1.0), ())
    return SegmentationSource(
        [case], patch=PATCH, batch_size=2, balanced_share=0.75, augmentation=plain
    )


class Fixed(nn.Module):
    """Answers with logits that are given, at several scales."""

    def __init__(self, levels: list[Tensor]) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Identity() for _ in levels)
        self.levels = nn.ParameterList(levels)

    def forward(self, x: Tensor, *, deep_supervision: bool = False) -> list[Tensor] | Tensor:
        return list(self.levels) if deep_supervision else self.levels[0]
