"""A scale of familiarity as a recipe brings it, for tests."""

from typing import Any

TOKENS = 16


def reference(**weights: tuple[float, float]) -> dict[str, Any]:
    """A tokenizer's `reference` with figures that are usual from -1 to 1 about 0."""
    given = weights or {"detail_lost_db": (0.0, 2.0), "slice_step": (1.0, 1.0)}
    return {
        "psnr_db": [28.0, 33.0],
        "usual_shares": [1 / TOKENS] * TOKENS,
        "familiarity": {
            "bias": 3.0,
            "figures": {
                name: {"usual": [-1.0, 0.0, 1.0], "weight": list(pair)}
                for name, pair in given.items()
            },
            "known": 10,
            "odd": 20,
        },
    }
