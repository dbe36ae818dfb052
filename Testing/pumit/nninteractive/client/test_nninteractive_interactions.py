"""World prompts fall on the right voxels, whatever way the grid is turned."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pumit.errors import PromptError
from pumit.gestures.prompts import box_prompts
from pumit.nninteractive.client.interactions import bounds_of, interactions_of, scribble_voxels
from pumit.nninteractive.remote_capabilities import read_remote_capabilities
from pumit.prompts import BoxPrompt, MaskPrompt, PointPrompt, ScribblePrompt
from pumit.volume import Volume
from scipy.spatial.transform import Rotation

SHAPE = (9, 30, 28)
OFFER = {
    "supported_interactions": {"points": True, "bbox2d": True, "bbox3d": True, "scribble": True},
    "inference_session_version": "2.6.0",
}


def remote(**options):
    return read_remote_capabilities({**OFFER, **options}, "http://x")


turned = st.builds(
    lambda seed: Volume(
        np.zeros(SHAPE, dtype=np.int16),
        (5.0, 0.8, 0.9),
        (-20.0, 7.0, 100.0),
        Rotation.random(random_state=seed).as_matrix(),
    ),
    st.integers(0, 1000),
)


def spans(size):
    pair = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1))
    return pair.map(lambda ends: (min(ends), max(ends) + 1))


@given(turned, st.tuples(*map(spans, SHAPE)))
def test_a_box_of_voxels_or_of_their_borders_is_the_same_box_again(volume, bounds):
    (prompt,) = box_prompts(bounds, volume, is_positive=True)
    if isinstance(prompt, BoxPrompt):
        assert bounds_of(prompt, volume) == bounds
    corners = np.stack(np.meshgrid(*bounds, indexing="ij"), -1).reshape(-1, 3) - 0.5
    prompt = BoxPrompt(tuple(map(tuple, volume.index_to_world(corners))))
    assert bounds_of(prompt, volume) == bounds


@given(turned, st.tuples(*(st.floats(-0.49, n - 0.51) for n in SHAPE)), st.booleans())
def test_a_click_is_the_voxel_that_it_lies_in(volume, index, is_positive):
    prompt = PointPrompt(tuple(volume.index_to_world(index)), is_positive)
    (said,) = interactions_of(prompt, volume, remote())
    place = np.array(said.meta["coordinates"])
    assert (np.abs(place - index) <= 0.5 + 1e-6).all()
    assert said.meta["include_interaction"] is is_positive


@given(turned, st.lists(st.tuples(*(st.integers(2, n - 3) for n in SHAPE)), min_size=1, max_size=5))
def test_a_scribble_is_one_piece_through_all_of_its_points(volume, indices):
    prompt = ScribblePrompt(tuple(map(tuple, volume.index_to_world(indices))))
    drawn, bounds = scribble_voxels(prompt, volume, (1, 1, 1))
    assert drawn.shape == tuple(stop - start for start, stop in bounds)
    low = np.array([start for start, _ in bounds])
    assert all(drawn[tuple(np.array(index) - low)] for index in indices)
    assert set(np.unique(drawn)) <= {0, 1}
    ndimage = pytest.importorskip("scipy.ndimage")
    _, pieces = ndimage.label(drawn, np.ones((3, 3, 3)))
    assert pieces == 1


@pytest.mark.parametrize("thickness", [(1, 1, 1), (2, 2, 2), (1, 3, 5)])
def test_a_scribble_is_as_thick_as_the_model_wants_within_its_slice(thickness):
    volume = Volume(np.zeros(SHAPE, dtype=np.int16), (5.0, 0.8, 0.9))
    line = [(4, 10, 5), (4, 10, 20)]
    prompt = ScribblePrompt(tuple(map(tuple, volume.index_to_world(line))))
    drawn, bounds = scribble_voxels(prompt, volume, thickness)
    assert drawn.all()
    assert drawn.shape == (1, thickness[1], 15 + thickness[2])
    assert bounds[0] == (4, 5)


def test_a_scribble_at_the_very_border_stays_in_the_volume():
    volume = Volume(np.zeros(SHAPE, dtype=np.int16))
    ends = volume.index_to_world([(-0.5, -0.5, -0.5), (8.5, 29.5, 27.5)])
    drawn, bounds = scribble_voxels(ScribblePrompt(tuple(map(tuple, ends))), volume, (3, 3, 3))
    assert bounds == ((0, 9), (0, 30), (0, 28))
    assert drawn[0, 0, 0]
    assert drawn[-1, -1, -1]


def test_a_flat_box_is_on_one_slice_and_a_large_one_ends_at_the_border():
    volume = Volume(np.zeros(SHAPE, dtype=np.int16), (5.0, 0.8, 0.9))
    corners = [(3.5, h, w) for h in (2, 8) for w in (4, 9)]
    prompt = BoxPrompt(tuple(map(tuple, volume.index_to_world(corners))))
    (a, b), *rest = bounds_of(prompt, volume)
    assert (b - a, *rest) == (1, (2, 9), (4, 10))
    assert a in (3, 4)
    leaving = BoxPrompt.from_bounds(*volume.index_to_world([(-9, 3, 3), (99, 5, 99)]))
    assert bounds_of(leaving, volume) == ((0, 9), (3, 6), (3, 28))


def test_a_planar_image_has_no_thickness_to_miss():
    volume = Volume(np.zeros((1, 30, 28), dtype=np.uint8), (1e8, 1.0, 1.0))
    x, y, _ = volume.index_to_world((0, 10, 12))
    (said,) = interactions_of(PointPrompt((x, y, 400.0)), volume, remote())
    assert said.meta["coordinates"] == [0, 10, 12]


def test_a_mask_to_start_from_is_sent_whole_and_not_refined():
    volume = Volume(np.zeros(SHAPE, dtype=np.int16))
    mask = np.zeros(SHAPE, dtype=bool)
    mask[3, 4, 5] = True
    (said,) = interactions_of(MaskPrompt(mask), volume, remote())
    assert said.meta == {"run_prediction": False}
    np.testing.assert_array_equal(said.drawn, mask)
    with pytest.raises(PromptError, match="no initial mask"):
        interactions_of(MaskPrompt(mask), volume, remote(supports_initial_label=False))


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        *(([2, 3, 4], (2, 3, 4)), (3, (3, 3, 3)), (0, (1, 1, 1)), (None, (1, 1, 1))),
        *(([1], (1, 1, 1)), (float("inf"), (1, 1, 1)), ([1e9, 2, 2], (32, 2, 2))),
    ],
)
def test_the_thickness_is_read_however_it_is_stated(stated, expected):
    assert remote(preferred_scribble_thickness=stated).scribble_thickness == expected
