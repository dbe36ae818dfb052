"""A corrective click changes what is connected to it, and nothing elsewhere."""

import numpy as np
import pytest
from ball_scan import session_on
from pumit.inference.interactive.grid_transfer import LogitBox, patch_of
from pumit.inference.interactive.index_prompts import IndexPrompts
from pumit.inference.interactive.local_change import (
    MOST_BONUS,
    apply_change,
    change_at,
    changed_at,
    far_bonus,
    follow_click,
    forced,
    near_places,
)
from pumit.inference.interactive.prompt_solver import PromptSolver
from pumit.inference.interactive.segmenter import Segmenter
from pumit.inference.interactive.solver_state import SolverState
from pumit.preprocessing.fields import Field
from pumit.prompts import MaskPrompt, PointPrompt
from pumit.volume import Volume

SHAPE = (12, 40, 40)
# Half the volume's resolution in-plane, all of it.
FIELD = Field((5.5, 19.5, 19.5), (1.0, 2.0, 2.0), (12, 20, 20), 2.0, 1)


def logits(*blocks: tuple[slice, slice, slice], shape: tuple[int, ...] = (12, 20, 20)):
    out = np.full(shape, -3.0, np.float32)
    for block in blocks:
        out[block] = 3.0
    return out


NEAR = (slice(2, 8), slice(2, 8), slice(2, 8))
FAR = (slice(2, 8), slice(13, 18), slice(13, 18))
WIDER = (slice(2, 8), slice(2, 8), slice(2, 11))


@pytest.mark.parametrize(
    ("place", "ratio"),
    [((4, 4, 9), 2.0), ((4, 4, 12), 2.0), ((7.5, 4, 9), 10.0)],
    ids=["in it", "next to it", "half-way between thick slices"],
)
def test_only_the_change_at_the_click_is_taken(place, ratio):
    """The far block disappears from the new answer; the click was in the near one."""
    change = change_at(logits(NEAR, FAR), logits(WIDER), place, ratio, is_positive=True)
    expected = np.zeros((12, 20, 20), bool)
    expected[2:8, 2:8, 8:11] = True
    np.testing.assert_array_equal(change, expected)


@pytest.mark.parametrize("place", [(4, 15, 15), (11, 4, 9)], ids=["in-plane", "slices away"])
def test_nothing_changed_there(place):
    assert change_at(logits(NEAR), logits(WIDER), place, 2.0, is_positive=True) is None
    assert change_at(logits(NEAR), logits(NEAR), (4, 4, 4), 2.0, is_positive=True) is None


@pytest.mark.parametrize("is_positive", [True, False])
def test_a_click_that_is_not_followed_is_insisted_on(is_positive):
    """A click in the next slice moves logits from -6 to -2 around it, hardly beyond."""
    sign = 1 if is_positive else -1
    before = np.full((4, 20, 20), -6.0, np.float32)
    after = before + 0.5
    after[1, 5:10, 5:10] = -2.0
    after[3, 15:18, 15:18] = -2.0  # moved as far, elsewhere
    followed = forced(sign * before, sign * after, (1, 7, 7), is_positive=is_positive)
    expected = np.zeros(before.shape, bool)
    expected[1, 5:10, 5:10] = True
    assert np.array_equal(sign * followed > 0, expected)
    assert np.array_equal(followed[~expected], (sign * after)[~expected])
    change = change_at(sign * before, followed, (1, 7, 7), 4.0, is_positive=is_positive)
    assert np.array_equal(change, expected)


@pytest.mark.parametrize(
    ("place", "expected"),
    [((1, 7.2, 7), [[1, 7, 7], [1, 8, 7]]), ((-0.6, 19.7, 0), [[0, 19, 0]])],
    ids=["between voxels", "at the rim of the field"],
)
def test_where_nothing_moved_the_voxels_around_the_click_alone_follow(place, expected):
    before = np.full((4, 20, 20), -6.0, np.float32)
    followed = forced(before, before.copy(), place, is_positive=True)
    assert np.argwhere(followed > 0).tolist() == expected


@pytest.mark.parametrize(
    ("place", "ratio", "share"),
    [
        ((5, 5, 7), 2.0, 0.0),  # in the earlier answer
        ((5, 5, 9), 2.0, 0.0),  # at its border
        ((5, 5, 12), 2.0, 0.5),
        ((5, 5, 17), 2.0, 1.0),
        ((11, 5, 5), 1.25, 0.5),  # four slices of 1.25 in-plane voxels
        ((11, 5, 5), 2.0, 1.0),
        ((8, 5, 5), 8.0, 1.0),  # the next slice
    ],
)
def test_a_click_means_more_the_farther_it_is_from_the_answer(place, ratio, share):
    assert float(far_bonus(logits(NEAR), place, ratio)) == pytest.approx(share * MOST_BONUS)
    assert float(far_bonus(logits(), place, ratio)) == pytest.approx(MOST_BONUS)


def test_a_click_in_the_middle_of_what_is_missing_brings_what_the_network_doubts():
    """The new answer believes in the half of a block around the click, and doubts the other."""
    before, after = logits(NEAR), logits(NEAR, FAR)
    doubted = (slice(2, 8), slice(13, 18), slice(16, 18))
    after[doubted] = -1.0
    followed, change = follow_click(
        before, after, (5, 15, 15), 2.0, is_positive=True, must_change=True
    )
    assert bool(change[FAR].all())
    assert int(change.sum()) == int((logits(FAR) > 0).sum())
    assert bool((followed[doubted] > 0).all())
    # A click that removes is taken as it is.
    same, change = follow_click(
        after, before, (5, 15, 15), 2.0, is_positive=False, must_change=True
    )
    assert same is before
    assert int(change.sum()) == int((after > 0).sum() - (before > 0).sum())


@pytest.mark.parametrize("moved", [0.0, 1.9, 2.5])
@pytest.mark.parametrize("rest", [-5.0, -8.5])
def test_a_far_click_that_is_not_followed_changes_what_is_around_it_alone(moved, rest):
    """The shown mask is surer of the background than the network, more so beyond its own box."""
    before = np.full((12, 40, 40), -9.2, np.float32)
    before[0:10, 0:10, 0:10] = -4
    before[NEAR] = 3
    after = np.where(before > 0, before, np.float32(rest))
    around = (slice(4, 7), slice(28, 33), slice(28, 33))
    after[around] += np.float32(moved)
    _, change = follow_click(before, after, (5, 30, 30), 2.0, is_positive=True, must_change=True)
    assert change[5, 30, 30]
    change[around] = False
    assert not change.any()
    # What the answer agrees with is not insisted on.
    _, change = follow_click(before, before, (5, 9, 5), 2.0, is_positive=True, must_change=False)
    assert change is None


def test_a_click_inside_removes_nothing_and_one_outside_adds_nothing():
    """The new answer moves the block: a part appears on one side and goes on the other."""
    moved = (slice(2, 8), slice(2, 8), slice(4, 10))
    before, after = logits(NEAR), logits(moved)
    added = change_at(before, after, (4, 4, 8), 2.0, is_positive=True)
    removed = change_at(before, after, (4, 4, 3), 2.0, is_positive=False)
    assert bool((after[added] > 0).all())
    assert bool((after[removed] < 0).all())
    assert change_at(before, after, (4, 4, 3), 2.0, is_positive=True) is None


def test_of_a_border_that_shrinks_everywhere_a_part_near_the_click_is_taken():
    """A shell of one voxel around a good answer, and an excess, deep, where the click is."""
    body, wider, part = slice(8, 56), slice(7, 57), (slice(28, 31), slice(28, 31), slice(56, 61))
    before = logits((wider, wider, wider), part, shape=(64, 64, 64))
    after = logits((body, body, body), shape=(64, 64, 64))
    change = change_at(before, after, (29, 29, 59), 1.0, is_positive=False)
    assert bool(change[part].all())
    shell = (before > 0) & (after < 0)
    assert int((change & shell).sum()) < 0.1 * int(shell.sum())


def test_a_missing_part_comes_as_a_whole_however_far_it_reaches():
    """A vessel of which a piece was shown."""
    piece, vessel = (slice(4, 7), slice(4, 7), slice(0, 8)), (slice(4, 7), slice(4, 7), slice(60))
    before, after = logits(piece, shape=(12, 12, 64)), logits(vessel, shape=(12, 12, 64))
    change = change_at(before, after, (5, 5, 12), 1.0, is_positive=True)
    assert int(change.sum()) == 3 * 3 * 52


def test_the_rest_of_the_answer_stays_bit_by_bit():
    noise = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    patch = LogitBox((0, 0, 0), noise.copy())
    after = logits(WIDER)
    change = np.zeros((12, 20, 20), bool)
    change[2:8, 2:8, 8:11] = True
    merged = apply_change(patch, after, change, FIELD, SHAPE)
    assert merged.start == (0, 0, 0)
    assert merged.logits.shape == SHAPE
    assert bool((merged.logits[2:8, 5:15, 17:21] > 0).all())
    outside = np.ones(SHAPE, bool)
    outside[0:10, 0:20, 12:26] = False
    assert np.array_equal(merged.logits[outside], noise[outside])
    assert np.array_equal(patch.logits, noise)  # the earlier answer is kept for undo


# On the volume's grid: what a later prompt leaves as it is


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
def test_what_is_connected_to_a_place_changes(before, after, places, expected):
    new = None if after is None else patch_of(mask(*after))
    merged = changed_at(patch_of(mask(*before)), new, places, SPACING_MM)
    np.testing.assert_array_equal(voxels(merged), mask(*expected))


@pytest.mark.parametrize("place", [(10, 40, 40), (0, 0, 0), (19, 79, 79), (-3, 90, 5)])
def test_nothing_changes_where_the_new_answer_is_the_same_at_the_place(place):
    before = patch_of(mask(LIVER))
    for after in (patch_of(mask(LIVER, HEART)), None):
        assert changed_at(before, after, [place], SPACING_MM) is before


def test_a_click_on_a_given_mask_moves_only_the_border_next_to_it():
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


def test_a_click_near_the_border_of_a_given_mask_leaves_what_is_deep():
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


def test_the_edge_of_the_scan_is_no_border_of_a_given_mask():
    """A mask that the scan cuts off: the last slice is no end of it."""
    given = mask((slice(4, 20), slice(4, 24), slice(4, 24)))
    half = mask((slice(4, 20), slice(4, 24), slice(4, 12)))
    click = (19.0, 14.0, 18.0, False)
    found = voxels(near_places(patch_of(given), patch_of(half), [click], SPACING_MM, GRID))
    assert (given & ~found).sum() > 800


def test_a_click_in_a_large_part_that_is_missing_brings_most_of_it():
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


def test_an_outside_where_nothing_is_segmented_changes_nothing(solver):
    liver = patch_of(mask(LIVER))
    first = solver.answer(IndexPrompts([LIVER_CLICK]), None)
    before = SolverState(first.views, first.chosen, liver, first.iou, None, 1)
    after = solver.answer(IndexPrompts([LIVER_CLICK, (10.0, 50.0, 50.0, False)]), before)
    assert after.patch is not None
    np.testing.assert_array_equal(voxels(after.patch), mask(LIVER))
    assert after.num_points == 2


def test_an_inside_in_another_organ_adds_that_and_keeps_the_first(solver):
    """The network answers both; what the user had cut out of the first one stays out."""
    cut = mask(LIVER)
    cut[4:16, 4:14, 4:24] = False
    first = solver.answer(IndexPrompts([LIVER_CLICK]), None)
    before = SolverState(first.views, first.chosen, patch_of(cut), first.iou, None, 1)
    after = solver.answer(IndexPrompts([LIVER_CLICK, (10.0, 68.0, 68.0, True)]), before)
    found = voxels(after.patch)
    np.testing.assert_array_equal(found[LIVER], cut[LIVER])
    assert found[HEART].mean() > 0.9


def test_a_painted_mask_stays_but_for_what_a_click_changes(bright_segmenter, opened_scan):
    """The model sees the two bright boxes; what was painted elsewhere is no mistake to it."""
    painted = (slice(8, 12), slice(30, 36), slice(30, 36))
    session = session_on(opened_scan, bright_segmenter)
    x, y, z = opened_scan.index_to_world((10, 68, 68))
    answer = session.answer([MaskPrompt(mask(LIVER, painted)), PointPrompt((x, y, z))])
    np.testing.assert_array_equal(answer.mask[painted], mask(painted)[painted])
    np.testing.assert_array_equal(answer.mask[LIVER], mask(LIVER)[LIVER])
    assert answer.mask[HEART].mean() > 0.9
