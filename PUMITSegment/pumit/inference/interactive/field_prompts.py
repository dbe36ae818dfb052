"""Prompts in one field as the network wants them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pumit.inference.interactive.index_prompts import IndexPrompts
from pumit.networks.promptable.prompt_encoder import NEGATIVE, NO_LABEL, POSITIVE, PromptBatch
from pumit.preprocessing.fields import Field


def for_network(prompts: IndexPrompts, where: Field, prior: Tensor | None) -> PromptBatch:
    """Collate the prompts of one field; see `PromptBatch` for the coordinates.

    Clicks outside of the field are left out: they are another field's.

    Args:
        prompts: Volume indices.
        where: The field.
        prior: Earlier answer in this field, probabilities (D, H, W), or None.
    """
    ratio = where.prompt_ratio
    scale = np.array([ratio, 1.0, 1.0])
    inside = []
    for d, h, w, is_positive in prompts.points:
        at = where.to_field((d, h, w))
        if ((at > -0.5) & (at < np.asarray(where.shape) - 0.5)).all():
            inside.append((at * scale, POSITIVE if is_positive else NEGATIVE))
    count = max(1, len(inside))
    points = torch.zeros(1, count, 3)
    labels = torch.full((1, count), NO_LABEL, dtype=torch.long)
    for i, (place, label) in enumerate(inside):
        points[0, i] = torch.from_numpy(place)
        labels[0, i] = label
    boxes = torch.zeros(1, 2, 3)
    if prompts.box is not None:
        corners = [where.to_field(c) * scale for c in prompts.box]
        boxes[0] = torch.from_numpy(np.stack(corners))
    blank = torch.zeros(1, 1, *where.shape)
    return PromptBatch(
        points,
        labels,
        boxes,
        torch.tensor([prompts.box is not None]),
        blank if prior is None else prior[None, None],
        torch.tensor([prior is not None]),
        torch.tensor([ratio], dtype=torch.float32),
    )
