"""Lesions are found again at the next date: the same, grown, shrunk, gone, merged and split."""

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from pumit.errors import PumitError
from pumit.evaluation.metrics import dice
from pumit.followup.files import (
    facts_of,
    read_transform,
    table_of,
    write_registration,
    write_table,
)
from pumit.followup.follow_up import FollowUp, compare_dates, follow_up
from pumit.followup.lesions import Lesion, carried, carried_clicks, lesions_of
from pumit.followup.registration import Registration
from pumit.prompts import BoxPrompt, MaskPrompt, PointPrompt, Prompt, ScribblePrompt
from pumit.segmentation import PromptAnswer
from pumit.training.synthesis.two_dates import TwoDates

CHANGES = {
    "grown": "grown",
    "shrunk": "shrunk",
    "stable": "stable",
    "gone": "gone",
    "merged 1 + merged 2": "merged",
    "split": "split",
}


class Starts:
    """A session that answers the mask that it is given, or for a click a ball around it."""

    def __init__(self, dates: TwoDates) -> None:
        self._dates = dates
        self.asked: list[list[Prompt]] = []

    def answer(self, prompts: Sequence[Prompt], segment: str = "1") -> PromptAnswer:
        self.asked.append(list(prompts))
        first = prompts[0]
        if isinstance(first, MaskPrompt):
            return PromptAnswer(first.mask, 0.9, None)
        return PromptAnswer(self._dates.later_masks["new"], 0.9, None)


@pytest.fixture(scope="module")
def result(dates: TwoDates, registration: Registration) -> FollowUp:
    segments = list(dates.earlier_masks.items())
    return follow_up(dates.earlier, segments, dates.later, registration, Starts(dates))


def test_every_lesion_is_told_as_it_changed(result):
    assert {c.name: c.change for c in result.changes} == CHANGES


def test_lesions_are_found_where_they_are_now(result, dates):
    found = dict(result.segments)
    assert set(found) == {"grown", "shrunk", "stable", "merged", "split"}
    scores = {name: dice(mask, dates.later_masks[name]) for name, mask in found.items()}
    assert min(scores[name] for name in ("grown", "shrunk", "stable")) > 0.88, scores
    assert min(scores.values()) > 0.6, scores


def test_masks_of_both_dates_are_compared(dates, registration):
    earlier, later = (list(m.items()) for m in (dates.earlier_masks, dates.later_masks))
    found = compare_dates(dates.earlier, earlier, dates.later, later, registration)
    assert {c.name: c.change for c in found.changes} == CHANGES | {"new": "new"}
    grown = next(c for c in found.changes if c.name == "grown")
    assert grown.volume_change == pytest.approx((13 / 9) ** 3 - 1, rel=0.1)
    assert grown.before.longest_mm == pytest.approx(18, abs=3)
    assert grown.after.longest_mm == pytest.approx(26, abs=3)


def test_a_click_into_a_new_lesion_makes_it_new(dates, registration):
    session = Starts(dates)
    segments = [("stable", dates.earlier_masks["stable"])]
    click = PointPrompt((0.0, 0.0, 0.0))
    found = follow_up(
        dates.earlier, segments, dates.later, registration, session, new_points=[click]
    )
    assert [(c.name, c.change) for c in found.changes] == [
        ("stable", "stable"),
        ("New lesion", "new"),
    ]


def test_a_new_lesion_does_not_replace_that_of_the_follow_up_before(dates, registration):
    segments = [("New lesion", dates.earlier_masks["stable"])]
    clicks = [PointPrompt((0.0, 0.0, 0.0))]
    found = follow_up(
        dates.earlier, segments, dates.later, registration, Starts(dates), new_points=clicks
    )
    assert [(c.name, c.change) for c in found.changes] == [
        ("New lesion", "stable"),
        ("New lesion (2)", "new"),
    ]


def test_a_lesion_outside_of_the_later_scan_is_not_gone(dates, registration):
    """Such as where the later scan ends above it."""
    low = int(np.argwhere(dates.later_masks["merged"])[:, 0].max()) + 8
    x, y, z = (float(v) for v in dates.later.index_to_world((low, 0, 0)))
    part = replace(dates.later, array=dates.later.array[low:], origin_lps=(x, y, z))
    segments = [(name, dates.earlier_masks[name]) for name in ("merged", "shrunk")]
    found = follow_up(dates.earlier, segments, part, registration, Starts(dates))
    assert {c.name: c.change for c in found.changes} == {
        "merged 1": "not shown",
        "merged 2": "not shown",
        "shrunk": "shrunk",
    }
    rows = table_of(found)
    assert rows[0]["later"]["volume_ml"] is None
    assert rows[-1]["earlier"]["volume_ml"] == rows[2]["earlier"]["volume_ml"]


def test_what_looks_like_its_surroundings_is_brought_over_by_place(dates, registration):
    """A part of even tissue has no look by which it could be found, or be gone."""
    index = np.stack(np.meshgrid(*map(np.arange, dates.earlier.shape), indexing="ij"), -1)
    fat = np.array((0.0, -45.0, -30.0))
    away = np.linalg.norm(dates.earlier.index_to_world(index) - fat, axis=-1)
    lesion = Lesion("part", "part", away < 6)
    (found,) = carried([lesion], dates.earlier, dates.later, registration)
    assert found.found == "by its place"
    true = lesion.mask.sum() * np.prod(dates.earlier.spacing_mm)
    assert found.mask.sum() * np.prod(dates.later.spacing_mm) == pytest.approx(true, rel=0.15)


def test_clicks_that_are_still_true_are_used_again(dates, registration):
    session = Starts(dates)

    def middle(name: str) -> tuple[float, float, float]:
        x, y, z = dates.earlier.index_to_world(np.argwhere(dates.earlier_masks[name])).mean(0)
        return (float(x), float(y), float(z))

    x, y, z = middle("stable")
    prompts = [
        PointPrompt((x, y, z)),
        PointPrompt((x + 16, y, z), is_positive=False),
        PointPrompt(middle("gone")),
    ]
    names = ("stable", "gone")
    segments = [(name, dates.earlier_masks[name]) for name in names]
    found = follow_up(dates.earlier, segments, dates.later, registration, session, prompts=prompts)
    assert (found.prompts_kept, found.prompts_left) == (2, 1)
    (asked,) = session.asked
    assert [type(p) for p in asked] == [MaskPrompt, PointPrompt, PointPrompt]


def test_clicks_move_with_the_scan(dates, registration):
    point, corner = (-40.0, 10.0, 20.0), (-60.0, -10.0, 0.0)
    given: list[Prompt] = [
        PointPrompt(point),
        BoxPrompt.from_bounds(corner, point),
        ScribblePrompt((point, corner), is_positive=False),
        MaskPrompt(dates.earlier_masks["stable"]),
        PointPrompt((0.0, 0.0, 900.0)),
    ]
    (kept,) = carried_clicks(given, dates.later, registration)
    np.testing.assert_allclose(kept.point_lps, registration.to_later(point))


def test_parts_of_a_segment_are_not_called_like_another_segment():
    mask = np.zeros((4, 20, 20), bool)
    mask[1, 2:6, 2:6] = mask[1, 12:16, 12:16] = True
    segments = [("met", mask), ("met 2", ~mask)]
    assert [each.name for each in lesions_of(segments)] == ["met 1", "met (2)", "met 2"]


def test_pieces_of_a_segment_are_lesions_and_specks_are_none():
    mask = np.zeros((10, 20, 20), bool)
    mask[2:5, 2:5, 2:5] = mask[2:6, 10:15, 10:15] = mask[9, 19, 19] = True
    assert [(lesion.name, int(lesion.mask.sum())) for lesion in lesions_of([("met", mask)])] == [
        ("met 1", 100),
        ("met 2", 27),
    ]


def test_nothing_to_follow_is_said(dates, registration):
    nothing = [("lesion", np.zeros(dates.earlier.shape, bool))]
    with pytest.raises(PumitError, match="empty"):
        follow_up(dates.earlier, nothing, dates.later, registration, Starts(dates))


def test_files_hold_what_was_found(result, dates, registration, tmp_path):
    lesions = np.logical_or.reduce(list(dates.earlier_masks.values()))
    write_table(result, tmp_path / "table.csv")
    write_registration(registration, dates.earlier, dates.later, lesions, tmp_path)
    lines = (tmp_path / "table.csv").read_text().splitlines()
    assert len(lines) == len(CHANGES) + 2
    assert lines[1].startswith("grown,grown,3.1")
    facts = json.loads(json.dumps(facts_of(result, model=None)))
    assert facts["registration"]["fit"] == "good"
    assert (tmp_path / "registration.png").read_bytes().startswith(b"\x89PNG")
    np.testing.assert_allclose(
        read_transform(tmp_path / "registration.tfm"), registration.matrix, atol=1e-9
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "registration.png",
        "registration.tfm",
        "table.csv",
    ]
