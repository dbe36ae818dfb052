"""Where an answer is to be checked: on its border, where it is likely to be wrong."""

import numpy as np
import pytest
from ball_scan import BALL, OBLIQUE, at, scan, session_on
from pumit.errors import PromptError
from pumit.inference.interactive.grid_transfer import LogitBox
from pumit.inference.interactive.solver_state import FieldAnswer, SolverState
from pumit.inference.interactive.uncertainty import (
    SAMPLED_VOXELS,
    doubtful_places,
    uncertain_regions,
)
from pumit.preprocessing.fields import Field
from pumit.volume import Volume

SHAPE, SPACING = (24, 40, 40), (2.0, 1.0, 1.0)


def distance(shape: tuple[int, int, int], centre: tuple[float, float, float]) -> np.ndarray:
    axes = np.ogrid[tuple(slice(n) for n in shape)]
    return np.sqrt(
        sum(((a - c) * s) ** 2 for a, c, s in zip(axes, centre, SPACING, strict=True))
    ).astype(np.float32)


def ball_logits(sharpness: np.ndarray | float = 4.0) -> np.ndarray:
    """A ball of 14 mm about the middle."""
    return np.asarray((14 - distance(SHAPE, (11.5, 19.5, 19.5))) * sharpness)


def answer_of(logits: np.ndarray, views: list[FieldAnswer] | None = None) -> SolverState:
    patch = LogitBox((0, 0, 0), logits.astype(np.float32))
    return SolverState(views or [], 0, patch, 0.8)


def is_on_border(mask: np.ndarray, index: np.ndarray) -> bool:
    d, h, w = index
    around = mask[max(d - 1, 0) : d + 2, max(h - 1, 0) : h + 2, max(w - 1, 0) : w + 2]
    return bool(mask[d, h, w]) and not bool(around.all())


def test_places_are_where_the_border_is_vague():
    w = np.arange(SHAPE[2])
    logits = ball_logits(np.where(w > 25, 0.2, 4.0))  # vague towards one side
    found = uncertain_regions(answer_of(logits), SHAPE, SPACING)
    assert all(f.index[2] > 25 for f in found)
    sharp = uncertain_regions(answer_of(ball_logits()), SHAPE, SPACING)
    assert found[0].share > 2 * sharp[0].share
    assert [f.share for f in found] == sorted((f.share for f in found), reverse=True)


def test_places_lie_apart_on_the_border_and_are_no_more_than_asked():
    logits = ball_logits()
    found = uncertain_regions(answer_of(logits), SHAPE, SPACING, count=4)
    assert len(found) == 4
    points = np.array([f.index * SPACING for f in found])
    gaps = np.linalg.norm(points[:, None] - points[None], axis=-1)[np.triu_indices(4, 1)]
    assert gaps.min() > 2 * found[0].reach_mm
    assert all(is_on_border(logits > 0, f.index) for f in found)
    assert uncertain_regions(answer_of(logits), SHAPE, SPACING, count=0) == []
    for empty in (SolverState(), answer_of(np.full(SHAPE, -3.0))):
        assert uncertain_regions(empty, SHAPE, SPACING) == []


def test_a_place_is_shown_in_the_slice_with_most_uncertainty():
    sharpness = np.full(SHAPE, 4.0)
    sharpness[13, :, 24:] = 0.1
    found = uncertain_regions(answer_of(ball_logits(sharpness)), SHAPE, SPACING)
    assert found[0].index[0] == 13


def test_a_field_that_disagrees_puts_its_side_uncertain():
    field = Field((11.5, 19.5, 19.5), (1.0, 1.0, 1.0), SHAPE, 2.0, 1)
    other = ball_logits().copy()
    other[:, :14] = -8.0  # it sees nothing there
    view = FieldAnswer(field, other.astype(np.float32))
    found = uncertain_regions(answer_of(ball_logits(), [view]), SHAPE, SPACING)
    assert found[0].index[1] < 14
    assert found[0].share > 0.15


def test_a_damaged_header_costs_no_memory():
    found = uncertain_regions(answer_of(ball_logits()), SHAPE, (1e9, 1e9, 1e-6))
    assert is_on_border(ball_logits() > 0, found[0].index)


def test_a_large_answer_is_sampled_and_the_place_still_on_its_border():
    shape = (60, 120, 120)
    assert np.prod(shape) > 2 * SAMPLED_VOXELS
    logits = 40 - distance(shape, (29.5, 59.5, 59.5))
    for found in uncertain_regions(answer_of(logits), shape, SPACING):
        assert is_on_border(logits > 0, found.index)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_a_session_tells_places_in_the_world(bright_segmenter, order):
    volume, truth = scan(OBLIQUE, order)
    session = session_on(volume, bright_segmenter)
    with pytest.raises(PromptError):
        session.uncertain_regions()
    centre = tuple(float(BALL[a]) for a in order)
    session.add_point(at(volume, centre))  # type: ignore[arg-type]
    mask = session.predict()
    places = session.uncertain_regions(count=3)
    assert len(places) == 3
    for place in places:
        index = volume.world_to_index(place.point_lps)
        np.testing.assert_allclose(index, index.round(), atol=1e-6)
        assert is_on_border(mask, index.round().astype(int))
        assert 0 <= place.error_share <= 1
        assert 0 <= place.expected_error_ml < truth.sum() * 3 / 1000


def test_an_image_has_places_too_and_no_volume_in_ml(bright_segmenter):
    h, w = np.ogrid[:60, :50]
    image = (100.0 * ((h - 30) ** 2 + (w - 20) ** 2 < 144)).astype(np.float32)
    session = session_on(Volume(image[None], (1e8, 1.0, 1.0)), bright_segmenter)
    session.add_point((20.0, 30.0, 0.0))
    places = session.uncertain_regions(count=2)
    assert len(places) == 2
    for place in places:
        x, y, _ = place.point_lps
        assert np.hypot(x - 20, y - 30) == pytest.approx(12, abs=2)
        assert place.expected_error_ml is None


def test_doubtful_places_are_on_the_border_where_the_model_doubts_most():
    grid = np.indices((40, 60, 60)) - np.array([20, 30, 30])[:, None, None, None]
    distance = np.sqrt((grid * np.array([2, 1, 1])[:, None, None, None] ** 1.0) ** 2).sum(0)
    mask = distance < 24
    doubt = np.zeros(mask.shape, np.uint8)
    doubt[:, 40:] = 200
    doubt[:, :12] = 90
    places = doubtful_places(mask, doubt, (2.0, 1.0, 1.0))
    assert len(places) == 5
    assert all(mask[tuple(at)] for at in places)
    assert places[0][1] >= 40
    assert doubtful_places(np.zeros_like(mask), doubt, (2.0, 1.0, 1.0)) == []
    # A mask of more voxels than are looked at.
    large = np.repeat(np.repeat(mask, 4, 1), 4, 2)
    (first, *_) = doubtful_places(large, np.repeat(np.repeat(doubt, 4, 1), 4, 2), (2.0, 0.25, 0.25))
    assert large[tuple(first)]
    assert first[1] >= 160
