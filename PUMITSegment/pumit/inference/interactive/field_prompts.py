"""Prompts in one field as an engine wants them."""

from __future__ import annotations

import numpy as np

from pumit.inference.engine.engine import FieldPrompts, Floats
from pumit.inference.interactive.index_prompts import IndexPrompts
from pumit.preprocessing.fields import Field


def in_field(prompts: IndexPrompts, where: Field, prior: Floats | None) -> FieldPrompts:
    """The prompts of one field; see `FieldPrompts` for the coordinates.

    Clicks outside of the field are left out: they are another field's.

    Args:
        prompts: Volume indices.
        where: The field.
        prior: Earlier answer in this field, probabilities (D, H, W), or None.
    """
    ratio = where.prompt_ratio
    scale = np.array([ratio, 1.0, 1.0])
    points, signs = [], []
    for d, h, w, is_positive in prompts.points:
        at = where.to_field((d, h, w))
        if ((at > -0.5) & (at < np.asarray(where.shape) - 0.5)).all():
            points.append(at * scale)
            signs.append(is_positive)
    box = None
    if prompts.box is not None:
        corners = np.stack([where.to_field(corner) * scale for corner in prompts.box])
        box = corners.astype(np.float32)
    return FieldPrompts(
        np.array(points, dtype=np.float32).reshape(-1, 3),
        np.array(signs, dtype=bool),
        box,
        prior,
        float(np.float32(ratio)),
    )
