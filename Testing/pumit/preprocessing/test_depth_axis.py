"""The depth axis is found by description, then by metadata, then by spacing."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from pumit.errors import PumitError
from pumit.file_image import DicomSource
from pumit.preprocessing.pretraining_image import find_depth_axis, most_anisotropic
from pumit.volume import Volume
from scipy.spatial.transform import Rotation

ORDERS = list(permutations(range(3)))


def volume(
    spacing: tuple[float, float, float] = (1.0, 1.0, 1.0),
    shape: tuple[int, int, int] = (4, 5, 6),
    direction: np.ndarray | None = None,
    source: DicomSource | None = None,
) -> Volume:
    turned = np.eye(3) if direction is None else direction
    return Volume(np.zeros(shape), spacing, (0, 0, 0), turned, source)


def stored(axes: tuple[int, ...], tilt_degrees: float = 0.0) -> Volume:
    """Array axes (D, H, W) along these world axes (0 L, 1 P, 2 S), turned, one backwards."""
    columns = np.eye(3)[:, list(axes)[::-1]]  # W, H, D
    columns[:, 1] *= -1
    tilt = Rotation.from_euler("xyz", [tilt_degrees] * 3, degrees=True).as_matrix()
    return volume(direction=tilt @ columns)


@pytest.mark.parametrize("axes", ORDERS)
@pytest.mark.parametrize("tilt", [0.0, 20.0])
@pytest.mark.parametrize(
    ("name", "world"), [("sagittal", 0), ("Coronal", 1), ("axial", 2), ("transverse", 2)]
)
def test_a_plane_finds_its_normal_however_the_scan_is_stored(
    axes: tuple[int, ...], tilt: float, name: str, world: int
) -> None:
    found = find_depth_axis(stored(axes, tilt), name)
    assert found.axis == axes.index(world)
    assert found.rule == "description"


@pytest.mark.parametrize("axis", range(3))
def test_an_axis_may_be_named_by_its_number(axis: int) -> None:
    assert find_depth_axis(volume((5, 1, 1)), f"axis {axis}").axis == axis
    assert find_depth_axis(volume((5, 1, 1)), f"{axis}").axis == axis


def test_the_rules_come_in_order() -> None:
    series = DicomSource((), "1.2.3")
    thin = (1.0, 4.0, 1.0)
    found = find_depth_axis(volume(thin, source=series), "axis 2", scanned_axis=1)
    assert (found.axis, found.rule) == (2, "description")
    found = find_depth_axis(volume(thin, source=series), scanned_axis=1)
    assert (found.axis, found.rule) == (0, "metadata")
    found = find_depth_axis(volume(thin), scanned_axis=2)
    assert (found.axis, found.rule) == (2, "metadata")
    found = find_depth_axis(volume(thin))
    assert (found.axis, found.rule) == (1, "spacing")
    found = find_depth_axis(volume())
    assert (found.axis, found.rule) == (0, "spacing")


@pytest.mark.parametrize(
    ("spacing", "axis"),
    [
        ((5.0, 0.7, 0.7), 0),  # thick CT
        ((0.7, 0.7, 5.0), 2),
        ((3.27, 4.69, 4.69), 0),  # PET: slices thinner than pixels are wide
        ((4.69, 4.69, 3.27), 2),
        ((0.9, 0.35, 0.4), 0),
        ((1.0, 1.005, 1.0), 0),  # isotropic but for rounding
        ((1.0, 2.0, 4.0), 2),
    ],
)
def test_the_spacing_unlike_the_others_is_the_depths(
    spacing: tuple[float, float, float], axis: int
) -> None:
    assert most_anisotropic(spacing) == axis


@pytest.mark.parametrize("axis", range(3))
def test_a_single_slice_is_its_own_depth_whatever_is_said(axis: int) -> None:
    shape = [8, 9, 10]
    shape[axis] = 1
    flat = volume((1, 2, 3), (shape[0], shape[1], shape[2]))
    found = find_depth_axis(flat, "axial", scanned_axis=0)
    assert (found.axis, found.rule) == (axis, "single slice")


def test_the_others_stay_in_order() -> None:
    assert find_depth_axis(volume(), "axis 1").order == (1, 0, 2)


def test_a_misspelt_plane_is_named_with_the_nearest_right_one() -> None:
    with pytest.raises(PumitError, match="did you mean 'axial'"):
        find_depth_axis(volume(), "axal")
    with pytest.raises(PumitError, match=r"known: .*coronal.*axis 2"):
        find_depth_axis(volume(), "7")
