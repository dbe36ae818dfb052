"""A volume knows where each voxel is, and refuses what cannot be a scan."""

import numpy as np
import pytest
import SimpleITK
from hypothesis import given, settings
from hypothesis import strategies as st
from pumit import Volume
from pumit.errors import PumitError, VolumeError
from pumit.geometry import PLANAR_SLICE_SPACING_MM
from scipy.spatial.transform import Rotation

angle = st.floats(-180, 180)
size_mm = st.floats(0.05, 20)


@st.composite
def volumes(draw: st.DrawFn) -> Volume:
    direction = Rotation.from_euler("xyz", draw(st.tuples(angle, angle, angle)), degrees=True)
    matrix = direction.as_matrix() * np.array([1, 1, draw(st.sampled_from([1, -1]))])
    spacing = draw(st.tuples(size_mm, size_mm, size_mm))
    origin = draw(st.tuples(*[st.floats(-500, 500)] * 3))
    return Volume(np.zeros((3, 4, 5), np.int16), spacing, origin, matrix)


@settings(max_examples=50, deadline=None)
@given(volumes(), st.tuples(*[st.floats(-10, 500)] * 3))
def test_world_position_is_itks_and_leads_back(volume, index):
    image = SimpleITK.GetImageFromArray(volume.array)
    image.SetSpacing(volume.spacing_mm[::-1])
    image.SetOrigin(volume.origin_lps)
    image.SetDirection(volume.direction.ravel().tolist())
    points = volume.index_to_world([(2, 3, 4), index])
    np.testing.assert_allclose(points[0], image.TransformIndexToPhysicalPoint((4, 3, 2)), atol=1e-9)
    np.testing.assert_allclose(volume.world_to_index(points[1]), index, atol=1e-6)


def test_border_voxels_and_points_next_to_a_plane_belong_to_the_volume():
    volume = Volume(np.zeros((3, 4, 5)), (3, 2, 1), (0, 0, 0))
    assert volume.contains((4.5, 7, 7.5))
    assert volume.contains((-0.5, -1, -1.5))
    assert not volume.contains((4.6, 0, 0))
    assert not volume.contains((0, 0, 7.6))
    planar = Volume(np.zeros((3, 1, 4, 5), np.uint8), (PLANAR_SLICE_SPACING_MM, 1, 1))
    assert (planar.channels, planar.shape, planar.is_planar) == (3, (1, 4, 5), True)
    assert planar.contains((1, 1, 1e9))
    assert not planar.contains((9, 1, 0))


@pytest.mark.parametrize(
    ("array", "spacing", "direction", "reason"),
    [
        (np.zeros((4, 5)), (1, 1, 1), np.eye(3), "shape"),
        (np.zeros((0, 4, 5)), (1, 1, 1), np.eye(3), "empty"),
        (np.zeros((3, 4, 5), complex), (1, 1, 1), np.eye(3), "real numbers"),
        (np.zeros((3, 4, 5)), (0, 1, 1), np.eye(3), "Spacing"),
        (np.zeros((3, 4, 5)), (1, -1, 1), np.eye(3), "Spacing"),
        (np.zeros((3, 4, 5)), (1, 1, np.nan), np.eye(3), "Spacing"),
        (np.zeros((3, 4, 5)), (1, 1, 1), np.ones((3, 3)), "perpendicular"),
        (np.zeros((3, 4, 5)), (1, 1, 1), np.eye(2), "3 x 3"),
    ],
)
def test_impossible_volume_is_refused_in_one_line(array, spacing, direction, reason):
    with pytest.raises(VolumeError, match=reason) as caught:
        Volume(array, spacing, (0, 0, 0), direction)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, PumitError)
