"""World prompts become the network's own coordinates, whatever the volume's orientation."""

from __future__ import annotations

import numpy as np
import pytest
from ball_scan import OBLIQUE, at, box_of
from pumit.errors import PromptError
from pumit.inference.interactive.index_prompts import (
    SCRIBBLE_POINTS,
    IndexPrompts,
    check_prompt,
    in_field,
    points_along,
    to_index,
)
from pumit.preprocessing.fields import Field
from pumit.prompts import MaskPrompt, PointPrompt, ScribblePrompt
from pumit.volume import Volume


@pytest.fixture
def volume() -> Volume:
    array = np.zeros((10, 20, 30), np.int16)
    return Volume(array, (3.0, 1.0, 0.5), (5.0, -7.0, 11.0), OBLIQUE @ np.diag([1, 1, -1.0]))


# To indices


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 0, 1)])
def test_points_become_indices_in_the_given_order(
    volume: Volume, order: tuple[int, int, int]
) -> None:
    index = (2.5, 7.25, 21.0)
    prompts = [PointPrompt(at(volume, index)), PointPrompt(at(volume, (1, 2, 3)), False)]
    out = to_index(prompts, volume, order)
    np.testing.assert_allclose(out.points[0][:3], [index[a] for a in order], atol=1e-9)
    assert [p[3] for p in out.points] == [True, False]
    np.testing.assert_allclose(out.positives, [[index[a] for a in order]], atol=1e-9)


@pytest.mark.parametrize("face", [(-0.5, 3.0, 3.0), (9.5, 3.0, 3.0), (4.0, 19.5, 29.5)])
def test_a_click_on_the_outer_face_means_the_voxel_there(
    volume: Volume, face: tuple[float, float, float]
) -> None:
    """Fields and masks end with the outermost voxels: beyond these a click would be dropped."""
    stroke = ScribblePrompt(np.array([at(volume, (4.0, 3.0, 3.0)), at(volume, face)]))
    out = to_index([PointPrompt(at(volume, face)), stroke], volume, (0, 1, 2))
    last = np.array(volume.shape) - 1
    np.testing.assert_allclose(out.points[0][:3], np.clip(face, 0, last), atol=1e-9)
    np.testing.assert_allclose(out.points[-1][:3], np.clip(face, 0, last), atol=1e-9)


def test_a_box_on_an_oblique_volume_keeps_its_size_and_is_cut_at_the_volume(
    volume: Volume,
) -> None:
    for given, kept in (
        (((2, 3, 4), (7, 12, 20)), ((2, 3, 4), (7, 12, 20))),
        (((-5, -5, 4), (50, 12, 20)), ((0, 0, 4), (9, 12, 20))),
    ):
        out = to_index([box_of(volume, *given)], volume, (0, 1, 2))  # type: ignore[arg-type]
        assert out.box is not None
        np.testing.assert_allclose(out.box, kept, atol=1e-9)


def test_a_mask_replaces_what_was_said_before_it(volume: Volume) -> None:
    mask = np.zeros(volume.shape, bool)
    mask[1, 2, 3] = True
    point = PointPrompt(at(volume, (1, 2, 3)))
    box = box_of(volume, (0, 0, 0), (5, 5, 5))
    out = to_index([point, box, MaskPrompt(mask), point], volume, (2, 0, 1))
    assert len(out.points) == 1
    assert out.box is None
    assert out.mask is not None
    assert out.mask[3, 1, 2]
    assert out.mask.shape == (30, 10, 20)


def test_what_can_be_answered(volume: Volume) -> None:
    negative = PointPrompt(at(volume, (1, 2, 3)), False)
    mask = MaskPrompt(np.ones(volume.shape, bool))
    for prompts, expected in (
        ([], False),
        ([negative], False),
        ([negative, PointPrompt(at(volume, (1, 2, 3)))], True),
        ([negative, box_of(volume, (0, 0, 0), (5, 5, 5))], True),
        ([negative, mask, negative], True),
    ):
        assert to_index(prompts, volume, (0, 1, 2)).is_answerable is expected  # type: ignore[arg-type]


# Scribbles


def test_a_scribble_becomes_points_at_equal_distances() -> None:
    points = points_along(np.array([[0.0, 0, 0], [0, 4, 0], [0, 4, 20]]), 8)
    steps = np.linalg.norm(np.diff(points, axis=0), axis=1)
    assert len(points) == 8
    np.testing.assert_allclose(points[[0, -1]], [[0, 0, 0], [0, 4, 20]])
    assert steps.max() / steps.min() < 1.6  # one step cuts the corner


def test_a_scribble_within_a_voxel_is_one_point_or_two() -> None:
    assert len(points_along(np.array([[1.0, 2, 3]]), 8)) == 1
    assert len(points_along(np.array([[1.0, 2, 3]] * 5), 8)) == 1
    assert len(points_along(np.array([[1.0, 2, 3], [1, 2, 3.5]]), 8)) == 2


def test_a_long_scribble_stays_affordable(volume: Volume) -> None:
    rng = np.random.default_rng(0)
    places = rng.uniform(0, 1, (5000, 3)) * (np.array(volume.shape) - 1)
    scribble = ScribblePrompt(tuple(map(tuple, volume.index_to_world(places))), False)  # type: ignore[arg-type]
    out = to_index([scribble], volume, (0, 1, 2))
    assert len(out.points) == SCRIBBLE_POINTS
    assert not any(p[3] for p in out.points)


# What is refused


def test_a_box_that_touches_the_border_is_accepted(volume: Volume) -> None:
    check_prompt(box_of(volume, (8, 15, 25), (40, 40, 60)), volume)
    with pytest.raises(PromptError, match="outside"):
        check_prompt(box_of(volume, (11, 5, 5), (15, 9, 9)), volume)


# In a field


def field(ratio: float = 3.0, da0: int = 1) -> Field:
    return Field((5.0, 10.0, 15.0), (1.0, 2.0, 2.0), (4 if da0 < 5 else 1, 8, 8), ratio, da0)


def test_points_count_in_plane_voxels_from_the_first_one() -> None:
    where = field()
    prompts = in_field(IndexPrompts([(5.0, 10.0, 15.0, True)]), where, None)
    np.testing.assert_allclose(prompts.points[0], (1.5 * 3.0, 3.5, 3.5))
    assert prompts.is_positive.tolist() == [True]
    assert prompts.slice_ratio == 3.0
    assert prompts.box is None
    assert prompts.prior is None


def test_clicks_of_another_field_are_left_out() -> None:
    given = IndexPrompts(
        [(5, 10, 15, False), (5, 9, 15, True), (5, 100, 15, True), (9, 10, 15, False)]
    )
    prior = np.ones((4, 8, 8), np.float32)
    prompts = in_field(given, field(), prior)
    assert prompts.is_positive.tolist() == [False, True]
    assert prompts.prior is prior
    nothing = in_field(IndexPrompts([(5, 100, 15, True)]), field(), None)
    assert nothing.points.shape == (0, 3)


def test_boxes_may_reach_beyond_the_field() -> None:
    box = (np.array([0.0, 0, 0]), np.array([9.0, 19, 29]))
    prompts = in_field(IndexPrompts(box=box), field(), None)
    assert prompts.box is not None
    np.testing.assert_allclose(prompts.box[0], ((1.5 - 5) * 3, 3.5 - 5, 3.5 - 7.5))
    np.testing.assert_allclose(prompts.box[1], ((1.5 + 4) * 3, 3.5 + 4.5, 3.5 + 7))


def test_depth_has_no_scale_in_one_slice() -> None:
    prompts = in_field(IndexPrompts([(5.0, 10.0, 15.0, True)]), field(64.0, 5), None)
    assert prompts.slice_ratio == 0.0
    assert float(prompts.points[0, 0]) == 0.0
