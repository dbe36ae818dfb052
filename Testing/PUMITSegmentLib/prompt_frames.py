"""Frames as the tests of prompts expect them, without Slicer; and comparisons of prompts."""

from __future__ import annotations

import numpy as np
from pumit.prompts import BoxPrompt, MaskPrompt, PointPrompt, ScribblePrompt

# What `PromptScene.placeOneOfEach` makes, in this order.
KINDS = [
    PointPrompt,
    BoxPrompt,
    ScribblePrompt,
    MaskPrompt,
    PointPrompt,
    BoxPrompt,
    ScribblePrompt,
]


def lps(ras) -> tuple[float, float, float]:
    """World RAS as LPS, where the scan is under no transform."""
    return (-ras[0], -ras[1], ras[2])


def assertSame(first, second, tolerance=1e-3) -> None:
    """Two lists of prompts are equal, positions within a tolerance in mm."""
    assert [type(p) for p in first] == [type(p) for p in second]
    for a, b in zip(first, second, strict=True):
        if isinstance(a, MaskPrompt):
            np.testing.assert_array_equal(a.mask, b.mask)
        else:
            x, y = a.to_dict(), b.to_dict()
            for field in ("point_lps", "points_lps", "corners_lps"):
                if field in x:
                    np.testing.assert_allclose(x.pop(field), y.pop(field), atol=tolerance)
            assert x == y
