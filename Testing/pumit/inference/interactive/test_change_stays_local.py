"""What a later prompt leaves as it is: everything that is not connected to it."""

from __future__ import annotations

import numpy as np
import pytest
from ball_scan import session_on
from pumit.inference.interactive.grid_transfer import LogitBox, patch_of
from pumit.inference.interactive.index_prompts import IndexPrompts
from pumit.inference.interactive.local_change import changed_at, near_places
from pumit.inference.interactive.prompt_solver import PromptSolver
from pumit.inference.interactive.segmenter import Segmenter
from pumit.inference.interactive.solver_state import SolverState
from pumit.prompts import MaskPrompt, PointPrompt
from pumit.volume import Volume

# Two organs, 5 cm apart, in a scan of 2 mm slices.
LIVER = (slice(4, 16), slice(4, 24), slice(4, 24))
HEART = (slice(4, 16), slice(60, 76), slice(60, 76))
GRID, SPACING_MM = (20, 80, 80), (2.0, 1.0, 1.0)


def mask(*blocks: tuple[slice, ...]) -> np.ndarray:
    out = np.zeros(GRID, dtype=bool)
    for block in blocks:
        out[block] = True
    return out


def voxels(patch: LogitBox | None, shape: tuple[int, ...] = GRID) -> np.ndarray:
    out = np.zeros(shape, dtype=bool)
    if patch is not None:
        out[patch.window] = np.asarray(patch.logits) > 0
    return out


SHRUNK = (slice(6, 12), slice(8, 16), slice(8, 16))


@pytest.mark.parametrize(
    ("before", "after", "places", "expected"),
    [
        ([LIVER, HEART], [SHRUNK], [(10, 68, 68)], [LIVER]),
        ([LIVER, HEART], None, [(10, 68, 68)], [LIVER]),
        ([LIVER], [HEART], [(10, 68, 68), (10, 40, 40), (10, 10, 10)], [HEART]),
    ],
    ids=["an outside in the heart", "all of it vanishes", "every point of a stroke"],
)
def test_what_is_connected_to_a_place_changes(before, after, places, expected) -> None:
    new = None if after is None else patch_of(mask(*after))
    merged = changed_at(patch_of(mask(*before)), new, places, SPACING_MM)
    np.testing.assert_array_equal(voxels(merged), mask(*expected))


@pytest.mark.parametrize("place", [(10, 40, 40), (0, 0, 0), (19, 79, 79), (-3, 90, 5)])
def test_nothing_changes_where_the_new_answer_is_the_same_at_the_place(place) -> None:
    before = patch_of(mask(LIVER))
    for after in (patch_of(mask(LIVER, HEART)), None):
        assert changed_at(before, after, [place], SPACING_MM) is before


def test_a_click_on_a_given_mask_moves_only_the_border_next_to_it() -> None:
    """The network would make all of it one voxel larger, and cut off a part: one shell."""
    wider = mask((slice(3, 14), slice(3, 25), slice(3, 25)))
    click = (10.0, 14.0, 24.0, True)
    found = voxels(near_places(patch_of(mask(LIVER)), patch_of(wider), [click], SPACING_MM, GRID))
    assert found[10, 14, 24]
    assert (found >= mask(LIVER)).all()
    assert found.sum() - mask(LIVER).sum() < 30
    click = (15.0, 14.0, 14.0, False)
    found = voxels(near_places(patch_of(mask(LIVER)), patch_of(wider), [click], SPACING_MM, GRID))
    assert (found <= mask(LIVER)).all()
    assert not found[15, 14, 14]
    assert found[15, 4, 4]


def test_a_click_near_the_border_of_a_given_mask_leaves_what_is_deep() -> None:
    """The network would remove half of the mask; the user removes a shell of two voxels."""
    half = mask((slice(4, 16), slice(4, 24), slice(4, 12)))
    click = (10.0, 14.0, 22.0, False)
    found = voxels(near_places(patch_of(mask(LIVER)), patch_of(half), [click], SPACING_MM, GRID))
    removed = mask(LIVER) & ~found
    assert removed[10, 14, 22]
    assert not removed[:, :, :16].any()
    click = (10.0, 14.0, 16.0, False)  # in the middle of what is too much
    found = voxels(near_places(patch_of(mask(LIVER)), patch_of(half), [click], SPACING_MM, GRID))
    assert (found & ~half).sum() < 0.3 * (mask(LIVER) & ~half).sum()


def test_the_edge_of_the_scan_is_no_border_of_a_given_mask() -> None:
    """A mask that the scan cuts off: the last slice is no end of it."""
    given = mask((slice(4, 20), slice(4, 24), slice(4, 24)))
    half = mask((slice(4, 20), slice(4, 24), slice(4, 12)))
    click = (19.0, 14.0, 18.0, False)
    found = voxels(near_places(patch_of(given), patch_of(half), [click], SPACING_MM, GRID))
    assert (given & ~found).sum() > 800


def test_a_click_in_a_large_part_that_is_missing_brings_most_of_it() -> None:
    half = mask((slice(4, 16), slice(4, 24), slice(4, 12)))
    click = (10.0, 14.0, 18.0, True)
    found = voxels(near_places(patch_of(half), patch_of(mask(LIVER)), [click], SPACING_MM, GRID))
    assert (found & ~half).sum() > 0.7 * (mask(LIVER) & ~half).sum()
    assert not (found & ~mask(LIVER)).any()


@pytest.fixture
def solver(bright_segmenter: Segmenter, opened_scan: Volume) -> PromptSolver:
    """Answers every bright voxel of a field, whatever the prompts."""
    return session_on(opened_scan, bright_segmenter).solver


@pytest.fixture
def opened_scan() -> Volume:
    """Two bright boxes, 5 cm apart."""
    noise = np.random.default_rng(0).normal(0, 4, GRID)
    array = (100 * mask(LIVER, HEART) + noise).astype(np.int16)
    return Volume(array, SPACING_MM, (0.0, 0.0, 0.0), np.eye(3))


LIVER_CLICK = (10.0, 14.0, 14.0, True)


def test_an_outside_where_nothing_is_segmented_changes_nothing(solver: PromptSolver) -> None:
    liver = patch_of(mask(LIVER))
    first = solver.answer(IndexPrompts([LIVER_CLICK]), None)
    before = SolverState(first.views, first.chosen, liver, first.iou, None, 1)
    after = solver.answer(IndexPrompts([LIVER_CLICK, (10.0, 50.0, 50.0, False)]), before)
    assert after.patch is not None
    np.testing.assert_array_equal(voxels(after.patch), mask(LIVER))
    assert after.num_points == 2


def test_an_inside_in_another_organ_adds_that_and_keeps_the_first(solver: PromptSolver) -> None:
    """The network answers both; what the user had cut out of the first one stays out."""
    cut = mask(LIVER)
    cut[4:16, 4:14, 4:24] = False
    first = solver.answer(IndexPrompts([LIVER_CLICK]), None)
    before = SolverState(first.views, first.chosen, patch_of(cut), first.iou, None, 1)
    after = solver.answer(IndexPrompts([LIVER_CLICK, (10.0, 68.0, 68.0, True)]), before)
    found = voxels(after.patch)
    np.testing.assert_array_equal(found[LIVER], cut[LIVER])
    assert found[HEART].mean() > 0.9


def test_a_painted_mask_stays_but_for_what_a_click_changes(
    bright_segmenter: Segmenter, opened_scan: Volume
) -> None:
    """The model sees the two bright boxes; what was painted elsewhere is no mistake to it."""
    painted = (slice(8, 12), slice(30, 36), slice(30, 36))
    session = session_on(opened_scan, bright_segmenter)
    x, y, z = opened_scan.index_to_world((10, 68, 68))
    answer = session.answer([MaskPrompt(mask(LIVER, painted)), PointPrompt((x, y, z))])
    np.testing.assert_array_equal(answer.mask[painted], mask(painted)[painted])
    np.testing.assert_array_equal(answer.mask[LIVER], mask(LIVER)[LIVER])
    assert answer.mask[HEART].mean() > 0.9
