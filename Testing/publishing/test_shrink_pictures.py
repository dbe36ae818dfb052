"""The script that shrinks the repository's pictures: what is seen stays."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from repository_scripts import script


def with_outline(ramp):
    """Return a picture of smooth colours with a thin purple line in it, shape (H, W, 3)."""
    pixels = np.array(np.broadcast_to(ramp, (300, 300, 3)), np.uint8)
    pixels[100, 100:140] = 160, 60, 200
    return pixels


ACROSS, DOWN = np.meshgrid(np.linspace(0, 255, 300), np.linspace(0, 255, 300))
GREYS = ACROSS[..., None]
COLOURS = np.stack([ACROSS, DOWN, ACROSS * 8 % 256], axis=-1)


@pytest.mark.parametrize(("ramp", "mode"), [(GREYS, "P"), (COLOURS, "RGB")])
def test_an_outline_keeps_its_colour(ramp, mode):
    pixels = with_outline(ramp)
    few = script("shrink_pictures").few_colours(Image.fromarray(pixels))
    assert few.mode == mode
    assert np.abs(np.asarray(few.convert("RGB"), int) - pixels).max() <= 20
