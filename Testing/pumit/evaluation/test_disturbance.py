"""Disturbances change what the model gets, and nothing of where things are."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from pumit.evaluation.metrics import dice
from pumit.evaluation.simulated_user import dice_after_clicks, simulate_gesture
from pumit.inference.interactive.segmenter import Segmenter
from pumit.volume import Volume
from tilted_ball import ball_scan

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "lab" / "accuracy"))
from disturbance import (
    AS_IT_IS,
    DISTURBANCES,
    Disturbance,
    DisturbedSession,
    cropped,
    flipped,
    noisy,
    permuted,
    with_gamma,
    with_slices,
)

GRIDS = [d for d in DISTURBANCES if d.name.startswith(("flipped", "axes", "cropped"))]


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def named(disturbances: list[Disturbance]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("disturbance", disturbances, ids=lambda d: d.name)


@named(GRIDS)
def test_every_voxel_stays_where_it_is_in_the_world(disturbance: Disturbance) -> None:
    volume, mask = ball_scan()
    scene = disturbance.scene_of(volume, mask, rng())
    assert scene is not None
    given = scene.given
    assert given.shape != volume.shape or not np.array_equal(given.array, volume.array)
    places = np.argwhere(np.ones(given.shape, dtype=bool))[::97]
    there = np.round(volume.world_to_index(given.index_to_world(places))).astype(int)
    np.testing.assert_array_equal(given.array[tuple(places.T)], volume.array[tuple(there.T)])
    np.testing.assert_array_equal(scene.back(given.array > 50), volume.array > 50)


def test_a_crop_keeps_half_of_the_volume_with_the_target() -> None:
    volume, mask = ball_scan()
    scene = cropped(volume, mask, rng())
    assert scene.given.array.size == pytest.approx(volume.array.size / 2, rel=0.1)
    np.testing.assert_array_equal(scene.back(np.ones(scene.given.shape, dtype=bool)) & mask, mask)


def test_slices_are_averaged_where_they_are_thinner() -> None:
    volume, mask = ball_scan()
    scene = with_slices(6.0)(volume, mask, rng())
    assert scene is not None
    assert scene.given.shape == (8, 40, 44)
    assert scene.given.spacing_mm == (6.0, 1.0, 1.0)
    np.testing.assert_allclose(scene.given.array[1], volume.array[3:6].mean(0), atol=1e-4)
    np.testing.assert_array_equal(scene.target[1], mask[3:6].mean(0) > 0.5)
    # The middle of the first thick slice is that of the second thin one.
    np.testing.assert_allclose(
        scene.given.index_to_world((0, 0, 0)), volume.index_to_world((1, 0, 0))
    )
    assert with_slices(2.0)(volume, mask, rng()) is None


def test_a_target_in_hardly_any_thick_slice_is_left_out() -> None:
    volume, mask = ball_scan()
    assert with_slices(6.0)(volume, mask, rng()) is not None
    flat = mask.copy()
    flat[:9] = flat[12:] = False
    assert with_slices(6.0)(volume, flat, rng()) is None


def test_slices_of_a_broken_number_of_slices_keep_the_mean() -> None:
    volume = Volume(
        np.arange(30, dtype=np.float32).reshape(30, 1, 1) * np.ones((1, 2, 2)), (2, 1, 1)
    )
    scene = with_slices(5.0)(volume, np.ones(volume.shape, dtype=bool), rng())
    assert scene is not None
    assert scene.given.shape[0] == 12
    middles = scene.given.index_to_world(np.argwhere(scene.target)[::4])[:, 2] / 2.0
    np.testing.assert_allclose(scene.given.array[:, 0, 0], middles, atol=0.11)


def test_gamma_keeps_the_order_of_intensities() -> None:
    volume, mask = ball_scan()
    given = with_gamma(0.7)(volume, mask, rng()).given
    order = np.argsort(volume.array, axis=None, kind="stable")
    assert (np.diff(given.array.ravel()[order]) >= 0).all()
    assert given.array.ravel()[order][-1] > given.array.ravel()[order][0]


def test_noise_is_small_against_the_contrast() -> None:
    volume, mask = ball_scan()
    added = noisy(volume, mask, rng()).given.array - volume.array
    assert 5 < added.std() < 15


@pytest.mark.parametrize("spot", [(10, 18, 24), (10, 18, 14)])
def test_clicks_move_within_the_target_and_negative_ones_without(
    bright_segmenter: Segmenter, spot: tuple[int, int, int]
) -> None:
    volume, mask = ball_scan()
    random = rng()
    scene = AS_IT_IS.scene_of(volume, mask, random)
    assert scene is not None
    session = DisturbedSession(bright_segmenter, scene, 3.0, random)
    x, y, z = volume.index_to_world(spot).tolist()
    for _ in range(20):
        session.add_point((x, y, z), positive=True)
    outside = volume.index_to_world((10, 18, 11)).tolist()
    for _ in range(20):
        session.add_point(tuple(outside), positive=False)
    moved = []
    for prompt in session._session.prompts():
        index = np.round(volume.world_to_index(prompt.point_lps)).astype(int)  # type: ignore[union-attr]
        assert mask[tuple(index)] == prompt.is_positive  # type: ignore[union-attr]
        start = (x, y, z) if prompt.is_positive else outside  # type: ignore[union-attr]
        moved.append(np.linalg.norm(np.subtract(prompt.point_lps, start)))  # type: ignore[union-attr]
    assert max(moved) == pytest.approx(3.0)
    assert len(set(np.round(moved, 6))) > 1 or spot == (10, 18, 24)


def test_faces_of_a_box_move_by_at_most_the_jitter(bright_segmenter: Segmenter) -> None:
    volume, mask = ball_scan()
    random = rng()
    scene = AS_IT_IS.scene_of(volume, mask, random)
    assert scene is not None
    still = DisturbedSession(bright_segmenter, scene, 0.0, random)
    moved = DisturbedSession(bright_segmenter, scene, 3.0, random)
    ends = []
    for session in (still, moved):
        simulate_gesture(session, mask, "box")
        (prompt,) = session._session.prompts()
        index = volume.world_to_index(prompt.corners_lps)  # type: ignore[union-attr]
        ends.append(np.concatenate((index.min(0), index.max(0))) * np.tile(volume.spacing_mm, 2))
    difference = np.abs(ends[0] - ends[1])
    assert (difference <= 3.0 + 1e-6).all()
    assert (difference > 0.01).sum() >= 5


@named(list(DISTURBANCES))
def test_a_model_that_takes_what_is_bright_loses_nothing(
    bright_segmenter: Segmenter, disturbance: Disturbance
) -> None:
    volume, mask = ball_scan()
    random = rng()
    scene = disturbance.scene_of(volume, mask, random)
    assert scene is not None
    session = DisturbedSession(bright_segmenter, scene, disturbance.jitter_mm, random)
    assert dice(simulate_gesture(session, scene.target, "box"), scene.target) > 0.9
    session.reset()
    scores, _ = dice_after_clicks(session, scene.target, 2)
    assert min(scores) > 0.9


def test_axes_may_be_put_in_any_order() -> None:
    volume, mask = ball_scan()
    scene = permuted((1, 2, 0))(volume, mask, rng())
    assert scene.given.shape == (40, 44, 24)
    assert scene.given.spacing_mm == (1.0, 1.0, 2.0)
    np.testing.assert_array_equal(scene.back(scene.given.array > 50), volume.array > 50)


def test_a_flip_twice_is_the_scan() -> None:
    volume, mask = ball_scan()
    once = flipped(2)(volume, mask, rng()).given
    twice = flipped(2)(once, np.flip(mask, 2), rng()).given
    np.testing.assert_array_equal(twice.array, volume.array)
    np.testing.assert_allclose(twice.origin_lps, volume.origin_lps)
    np.testing.assert_allclose(twice.direction, volume.direction)
