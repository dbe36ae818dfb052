"""Which fields are tried around a click."""

from __future__ import annotations

import numpy as np
import pytest
from pumit.inference.interactive.field_planner import FieldPlanner


def in_plane_mm(planner: FieldPlanner) -> list[float]:
    fields = planner.around_click((np.asarray(planner.shape) - 1) / 2)
    return [field.step[1] * planner.spacing_mm[1] for field in fields]


def test_fine_scan_is_looked_at_from_its_own_voxels_on() -> None:
    tried = in_plane_mm(FieldPlanner((78, 512, 512), (2.0, 0.75, 0.75), 64))
    assert tried[0] == pytest.approx(0.75)
    assert tried == sorted(tried)


def test_coarse_scan_is_looked_at_between_its_voxels() -> None:
    tried = in_plane_mm(FieldPlanner((30, 101, 122), (3.0, 3.0, 3.0), 64))
    assert tried[:2] == pytest.approx([1.5, 3.0])


def test_coarse_image_is_not() -> None:
    assert in_plane_mm(FieldPlanner((1, 101, 122), (1e8, 3.0, 3.0), 64))[0] == pytest.approx(3.0)
