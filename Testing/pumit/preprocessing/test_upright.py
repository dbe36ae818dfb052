"""Scans as bodies lie, however they are stored."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import SimpleITK
from pumit.preprocessing.pretraining_image import prepare
from pumit.preprocessing.upright import prepare_upright, upright
from pumit.volume import Volume

BODY = np.random.default_rng(0).random((4, 6, 5)).astype(np.float32)  # (S, P, L)
SPACING = (3.0, 1.0, 1.2)


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (2, 1, 0)])
@pytest.mark.parametrize("signs", list(itertools.product((1, -1), repeat=3)))
def test_a_scan_is_the_same_however_it_is_stored(
    order: tuple[int, int, int], signs: tuple[int, int, int]
) -> None:
    array = BODY.transpose(order)[tuple(slice(None, None, s) for s in signs)]
    spacing = tuple(SPACING[a] for a in order)
    # World direction (L, P, S) of each stored axis; Volume has them as columns W, H, D.
    along = np.eye(3)[::-1][list(order)] * np.array(signs)[:, None]
    direction = along[::-1].T
    image = prepare(Volume(array, spacing, direction=direction))
    expected = prepare(Volume(BODY, SPACING)).array
    found, spacing_mm = upright(image, direction)
    np.testing.assert_allclose(found, expected)
    assert spacing_mm == pytest.approx(SPACING)


def test_a_file_is_put_upright(tmp_path: Path) -> None:
    image = SimpleITK.GetImageFromArray(BODY[:, ::-1])
    image.SetSpacing(SPACING[::-1])
    image.SetDirection((1, 0, 0, 0, -1, 0, 0, 0, 1))
    SimpleITK.WriteImage(image, str(tmp_path / "a.nrrd"))
    found, _ = prepare_upright(tmp_path / "a.nrrd")
    np.testing.assert_allclose(found, prepare(Volume(BODY, SPACING)).array, atol=1e-6)
