import numpy as np
import pytest
from pumit.report.views import views_through
from pumit.volume import Volume
from scipy.spatial.transform import Rotation

TILT = Rotation.from_euler("xyz", [14, -9, 11], degrees=True).as_matrix()
ORIENTATIONS = {
    "axial": np.eye(3),
    "sagittal": np.array([[0.0, 0, -1], [1, 0, 0], [0, -1, 0]]),
    "coronal": np.array([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]]),
    "flipped": np.diag([-1.0, -1.0, 1.0]),
    "left_handed": np.diag([1.0, 1.0, -1.0]),
    "tilted": TILT,
    "tilted_sagittal": TILT @ np.array([[0.0, 0, -1], [1, 0, 0], [0, -1, 0]]),
}
LETTERS = {
    "R": (-1, 0, 0), "L": (1, 0, 0), "A": (0, -1, 0),
    "P": (0, 1, 0), "S": (0, 0, 1), "I": (0, 0, -1),
}  # fmt: skip


@pytest.mark.parametrize("direction", ORIENTATIONS.values(), ids=ORIENTATIONS.keys())
def test_edges_name_where_the_patient_is(direction):
    volume = Volume(np.zeros((11, 14, 17)), (2.0, 1.0, 0.5), (3, 4, 5), direction)
    # Every voxel holds its own position, so a view shows which way it looks.
    positions = volume.index_to_world(np.moveaxis(np.indices(volume.shape), 0, -1))
    views = views_through(volume, (5, 6, 7))
    assert [v.name for v in views] == ["Axial", "Coronal", "Sagittal"]
    assert [v.edges for v in views] == [tuple("RLAP"), tuple("RLSI"), tuple("APSI")]
    for view in views:
        shown = view.cut(np.moveaxis(positions, -1, 0))  # (3, rows, columns)
        left, right, top, bottom = (np.array(LETTERS[letter]) for letter in view.edges)
        across = shown[:, 0, -1] - shown[:, 0, 0]
        down = shown[:, -1, 0] - shown[:, 0, 0]
        for step, start, end in ((across, left, right), (down, top, bottom)):
            assert step @ end > 0.8 * np.linalg.norm(step)
            assert step @ start < 0
        columns, rows = shown.shape[2] - 1, shown.shape[1] - 1
        assert np.linalg.norm(across) == pytest.approx(columns * view.spacing_mm[1])
        assert np.linalg.norm(down) == pytest.approx(rows * view.spacing_mm[0])


@pytest.mark.parametrize("direction", ORIENTATIONS.values(), ids=ORIENTATIONS.keys())
def test_voxel_is_drawn_where_it_is_shown(direction):
    volume = Volume(np.zeros((11, 14, 17)), (2.0, 1.0, 0.5), (3, 4, 5), direction)
    index = (3, 9, 4)
    marked = np.zeros(volume.shape)
    marked[index] = 1
    for view in views_through(volume, index):
        ((row, column),) = np.argwhere(view.cut(marked))
        ((x, y, depth),) = view.to_mm(index, volume.shape)
        assert depth == 0
        assert x == pytest.approx((column + 0.5) * view.spacing_mm[1])
        assert y == pytest.approx((row + 0.5) * view.spacing_mm[0])


def test_planar_image_is_shown_as_it_is():
    image = np.arange(12.0).reshape(1, 3, 4)
    (view,) = views_through(Volume(image, (1e8, 0.5, 0.25), direction=TILT), (0, 1, 1))
    np.testing.assert_array_equal(view.cut(image), image[0])
    assert view.spacing_mm == (0.5, 0.25)
