"""World prompts become the network's own coordinates, whatever the volume's orientation."""

import numpy as np
import pytest
from ball_scan import OBLIQUE, at, box_of
from pumit.errors import PromptError
from pumit.inference.interactive.index_prompts import (
    SCRIBBLE_POINTS,
    IndexPrompts,
    check_prompt,
    extrude_flat_box,
    in_field,
    points_along,
    to_index,
)
from pumit.preprocessing.fields import Field
from pumit.prompts import BoxPrompt, MaskPrompt, PointPrompt, ScribblePrompt
from pumit.volume import Volume


@pytest.fixture
def volume() -> Volume:
    array = np.zeros((10, 20, 30), np.int16)
    return Volume(array, (3.0, 1.0, 0.5), (5.0, -7.0, 11.0), OBLIQUE @ np.diag([1, 1, -1.0]))


# To indices


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 0, 1)])
def test_points_become_indices_in_the_given_order(volume, order):
    index = (2.5, 7.25, 21.0)
    prompts = [PointPrompt(at(volume, index)), PointPrompt(at(volume, (1, 2, 3)), False)]
    out = to_index(prompts, volume, order)
    np.testing.assert_allclose(out.points[0][:3], [index[a] for a in order], atol=1e-9)
    assert [p[3] for p in out.points] == [True, False]
    np.testing.assert_allclose(out.positives, [[index[a] for a in order]], atol=1e-9)


@pytest.mark.parametrize("face", [(-0.5, 3.0, 3.0), (9.5, 3.0, 3.0), (4.0, 19.5, 29.5)])
def test_a_click_on_the_outer_face_means_the_voxel_there(volume, face):
    """Fields and masks end with the outermost voxels: beyond these a click would be dropped."""
    stroke = ScribblePrompt(np.array([at(volume, (4.0, 3.0, 3.0)), at(volume, face)]))
    out = to_index([PointPrompt(at(volume, face)), stroke], volume, (0, 1, 2))
    last = np.array(volume.shape) - 1
    np.testing.assert_allclose(out.points[0][:3], np.clip(face, 0, last), atol=1e-9)
    np.testing.assert_allclose(out.points[-1][:3], np.clip(face, 0, last), atol=1e-9)


def test_a_box_on_an_oblique_volume_keeps_its_size_and_is_cut_at_the_volume(volume):
    for given, kept in (
        (((2, 3, 4), (7, 12, 20)), ((2, 3, 4), (7, 12, 20))),
        (((-5, -5, 4), (50, 12, 20)), ((0, 0, 4), (9, 12, 20))),
    ):
        out = to_index([box_of(volume, *given)], volume, (0, 1, 2))  # type: ignore[arg-type]
        np.testing.assert_allclose(out.box, kept, atol=1e-9)


def test_a_mask_replaces_what_was_said_before_it(volume):
    mask = np.zeros(volume.shape, bool)
    mask[1, 2, 3] = True
    point = PointPrompt(at(volume, (1, 2, 3)))
    box = box_of(volume, (0, 0, 0), (5, 5, 5))
    out = to_index([point, box, MaskPrompt(mask), point], volume, (2, 0, 1))
    assert len(out.points) == 1
    assert out.box is None
    assert out.mask[3, 1, 2]
    assert out.mask.shape == (30, 10, 20)


# Scribbles


def test_a_scribble_becomes_points_at_equal_distances():
    points = points_along(np.array([[0.0, 0, 0], [0, 4, 0], [0, 4, 20]]), 8)
    steps = np.linalg.norm(np.diff(points, axis=0), axis=1)
    assert len(points) == 8
    np.testing.assert_allclose(points[[0, -1]], [[0, 0, 0], [0, 4, 20]])
    assert steps.max() / steps.min() < 1.6  # one step cuts the corner
    for within_a_voxel, count in (([[1.0, 2, 3]] * 5, 1), ([[1.0, 2, 3], [1, 2, 3.5]], 2)):
        assert len(points_along(np.array(within_a_voxel), 8)) == count


def test_a_long_scribble_stays_affordable(volume):
    rng = np.random.default_rng(0)
    places = rng.uniform(0, 1, (5000, 3)) * (np.array(volume.shape) - 1)
    scribble = ScribblePrompt(tuple(map(tuple, volume.index_to_world(places))), False)  # type: ignore[arg-type]
    out = to_index([scribble], volume, (0, 1, 2))
    assert len(out.points) == SCRIBBLE_POINTS
    assert not any(p[3] for p in out.points)


# What is refused


def test_a_box_that_touches_the_border_is_accepted(volume):
    check_prompt(box_of(volume, (8, 15, 25), (40, 40, 60)), volume)
    with pytest.raises(PromptError, match="outside"):
        check_prompt(box_of(volume, (11, 5, 5), (15, 9, 9)), volume)


# In a field


def field(ratio: float = 3.0, da0: int = 1) -> Field:
    return Field((5.0, 10.0, 15.0), (1.0, 2.0, 2.0), (4 if da0 < 5 else 1, 8, 8), ratio, da0)


def test_points_count_in_plane_voxels_from_the_first_one():
    where = field()
    prompts = in_field(IndexPrompts([(5.0, 10.0, 15.0, True)]), where, None)
    np.testing.assert_allclose(prompts.points[0], (1.5 * 3.0, 3.5, 3.5))
    assert prompts.is_positive.tolist() == [True]
    assert (prompts.slice_ratio, prompts.box, prompts.prior) == (3.0, None, None)
    flat = in_field(IndexPrompts([(5.0, 10.0, 15.0, True)]), field(64.0, 5), None)
    assert (flat.slice_ratio, float(flat.points[0, 0])) == (0.0, 0.0)  # depth has no scale


def test_clicks_of_another_field_are_left_out():
    given = IndexPrompts(
        [(5, 10, 15, False), (5, 9, 15, True), (5, 100, 15, True), (9, 10, 15, False)]
    )
    prior = np.ones((4, 8, 8), np.float32)
    prompts = in_field(given, field(), prior)
    assert prompts.is_positive.tolist() == [False, True]
    assert prompts.prior is prior
    nothing = in_field(IndexPrompts([(5, 100, 15, True)]), field(), None)
    assert nothing.points.shape == (0, 3)


def test_boxes_may_reach_beyond_the_field():
    box = (np.array([0.0, 0, 0]), np.array([9.0, 19, 29]))
    prompts = in_field(IndexPrompts(box=box), field(), None)
    expected = (((1.5 - 5) * 3, 3.5 - 5, 3.5 - 7.5), ((1.5 + 4) * 3, 3.5 + 4.5, 3.5 + 7))
    np.testing.assert_allclose(prompts.box, expected)


# Boxes on a slice


SQUARE = np.array([(0.0, 0.0, 0.0), (20.0, 0.0, 0.0), (20.0, 10.0, 0.0), (0.0, 10.0, 0.0)])


def rotation(seed: int) -> np.ndarray:
    q, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))
    return q


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 0, 3, 1)])
@pytest.mark.parametrize("seed", range(3))
def test_flat_box_is_as_deep_as_its_sides_mean(order, seed):
    turned = SQUARE[list(order)] @ rotation(seed).T + 30.0
    found = extrude_flat_box(turned)
    assert found.shape == (8, 3)
    upright = (found - 30.0) @ rotation(seed)
    np.testing.assert_allclose(upright.min(0), (0, 0, -7.5), atol=1e-9)
    np.testing.assert_allclose(upright.max(0), (20, 10, 7.5), atol=1e-9)


@pytest.mark.parametrize("axis", range(3))
def test_flat_box_of_two_corners_is_extruded_as_well(axis):
    upper = np.array([20.0, 20.0, 20.0])
    upper[axis] = 0.0
    found = extrude_flat_box(BoxPrompt.from_bounds((0, 0, 0), upper).corners_lps)
    assert np.ptp(found, axis=0) == pytest.approx((20, 20, 20))
    assert found.mean(axis=0) == pytest.approx(upper / 2)


def test_box_with_depth_stays_as_it_is():
    corners = BoxPrompt.from_bounds((0, 0, 0), (20, 10, 3)).corners_lps
    assert np.array_equal(extrude_flat_box(corners), np.array(corners))


def test_flat_box_on_a_volume_spans_slices_and_on_an_image_does_not():
    volume = Volume(np.zeros((20, 40, 40), np.int16), (2.0, 1.0, 1.0))
    box = BoxPrompt.from_bounds((10, 10, 18), (22, 22, 18))
    deep = BoxPrompt.from_bounds((10, 10, 10), (22, 22, 22))
    found = to_index([box], volume, (0, 1, 2))
    np.testing.assert_allclose(found.box, ((6, 10, 10), (12, 22, 22)))
    assert found.is_depth_guessed
    assert not to_index([box, deep], volume, (0, 1, 2)).is_depth_guessed
    image = Volume(np.zeros((1, 40, 40), np.int16), (1e8, 1.0, 1.0))
    found = to_index([box], image, (0, 1, 2))
    np.testing.assert_allclose(np.ptp(found.box, axis=0), (0, 12, 12))
    assert not found.is_depth_guessed
