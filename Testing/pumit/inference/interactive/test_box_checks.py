"""An answer to a box is believed where it fills that box, and not beyond."""

import numpy as np
import pytest
from pumit.inference.interactive.box_checks import (
    box_bonus,
    box_fit,
    clicked_in_box,
    deepest_in_box,
    gaps_in_box,
    mutual_support,
)
from pumit.inference.interactive.grid_transfer import Floats
from pumit.inference.interactive.index_prompts import IndexPrompts
from pumit.inference.interactive.solver_state import BoxWeights
from pumit.preprocessing.fields import Field

FIELD = Field((10.0, 20.0, 20.0), (1.0, 2.0, 2.0), (8, 16, 16), 1.0, 0)


def volume_box(low: tuple[int, ...], high: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Outer faces of field voxels low .. high, as voxel indices of the volume."""
    half = 0.5 / np.asarray(FIELD.step)
    return (
        FIELD.to_volume(np.asarray(low) - 0.5 + half),
        FIELD.to_volume(np.asarray(high) + 0.5 - half),
    )


def filled(low: tuple[int, ...], high: tuple[int, ...]) -> np.ndarray:
    mask = np.zeros(FIELD.shape, bool)
    mask[tuple(slice(a, b + 1) for a, b in zip(low, high, strict=True))] = True
    return mask


def logits_of(masks: np.ndarray) -> Floats:
    return np.where(masks, 3, -3).astype(np.float32)


BOX = volume_box((2, 4, 4), (5, 11, 11))
WHOLE = filled((2, 4, 4), (5, 11, 11))
CENTRE = filled((2, 6, 6), (5, 9, 9))


@pytest.mark.parametrize(
    ("mask", "box", "fit"),
    [
        (WHOLE, BOX, 1.0),
        (WHOLE & ~CENTRE, BOX, 1.0),
        (CENTRE, BOX, 0.25),
        (np.zeros(FIELD.shape, bool), BOX, 0.0),
        # A box drawn on a slice is as deep as someone guessed.
        (filled((0, 4, 4), (7, 11, 11)), volume_box((3, 4, 4), (4, 11, 11)), 1.0),
        # Of a box that reaches beyond the field the rest counts.
        (filled((2, 4, 4), (5, 15, 11)), (BOX[0], BOX[1] + np.array([0, 90, 0])), 1.0),
    ],
    ids=["whole", "ring", "centre", "nothing", "any depth", "beyond the field"],
)
def test_a_mask_fits_as_far_as_it_reaches_the_sides_of_the_box(mask, box, fit):
    assert box_fit(mask, FIELD, box) == pytest.approx(fit)


def test_to_reach_beyond_a_box_is_worse_than_not_to_fill_it():
    """Boxes are drawn loosely; no one draws one smaller than the structure."""
    masks = np.stack([filled((2, 2, 2), (5, 13, 13)), filled((2, 6, 6), (5, 9, 9))])
    bonus = box_bonus(logits_of(masks), FIELD, BOX, BoxWeights(consensus=0.0))
    assert bonus[0] < bonus[1] < 0


def test_the_deepest_voxel_within_a_box_is_one_of_the_mask():
    ring = WHOLE & ~filled((2, 5, 5), (5, 8, 8))  # two sides are thick
    place = deepest_in_box(ring, FIELD, BOX)
    at = np.round(FIELD.to_field(place)).astype(int)
    assert ring[tuple(at)]
    assert at[1:].max() == 10  # in the middle of the thick sides
    # What lies outside the box is no place in it.
    box, outside = volume_box((2, 4, 4), (5, 6, 6)), filled((0, 8, 8), (7, 15, 15))
    place = deepest_in_box(filled((2, 4, 4), (3, 5, 5)) | outside, FIELD, box)
    assert (FIELD.to_field(place)[1:] <= 5.5).all()
    assert deepest_in_box(outside, FIELD, box) is None


@pytest.mark.parametrize("slices", [1, 8])
def test_in_one_slice_the_deepest_voxel_is_in_the_middle(slices):
    """In an image, and in a box that is one slice of a scan."""
    field = Field(
        (0.0, 20.0, 20.0), (1.0, 2.0, 2.0), (slices, 16, 16), 1.0, 5 if slices == 1 else 0
    )
    h, w = np.indices((16, 16))
    disc = np.broadcast_to((h - 7) ** 2 + (w - 8) ** 2 <= 25, field.shape)
    low, high = (field.to_volume(np.array(at)) for at in ((0, 1, 1), (0, 14, 14)))
    place = deepest_in_box(disc, field, (low, high))
    assert np.allclose(field.to_field(place), (0, 7, 8))


def test_support_is_the_mean_overlap_with_the_others():
    half, elsewhere = filled((2, 4, 4), (5, 7, 11)), filled((0, 0, 0), (1, 1, 1))
    support = mutual_support(np.stack([WHOLE, half, elsewhere]))
    assert support == pytest.approx([1 / 3, 1 / 3, 0])  # Dice of the whole and its half is 2 / 3
    for masks in (WHOLE[None], np.zeros((3, *FIELD.shape), bool)):
        assert mutual_support(masks) == pytest.approx(np.zeros(len(masks)))


def test_what_an_answer_leaves_free_of_its_box_is_found_at_each_face():
    box = volume_box((2, 2, 2), (5, 13, 13))
    cavity = filled((2, 5, 5), (5, 10, 10))
    places = np.array([FIELD.to_field(place) for place in gaps_in_box(cavity, FIELD, box)])
    # Half-way from the mask's faces at 4.5 and 10.5 to those of the box at 1.5 and 13.5.
    expected = [[3.5, 3.0, 7.5], [3.5, 12.0, 7.5], [3.5, 7.5, 3.0], [3.5, 7.5, 12.0]]
    assert places == pytest.approx(np.array(expected), abs=1e-6)
    for mask in (WHOLE, filled((0, 2, 2), (7, 15, 15)), np.zeros(FIELD.shape, bool)):
        assert gaps_in_box(mask, FIELD, BOX) == []


def test_faces_that_an_answer_leaves_free_are_clicked_on_together():
    """The network knows the cavity only; asked with clicks in the wall it answers the wall."""
    cavity = filled((2, 5, 5), (5, 10, 10))
    wall = filled((2, 2, 2), (5, 13, 13)) & ~cavity
    requests: list[IndexPrompts] = []

    def decode(prompts: IndexPrompts) -> tuple[Floats, Floats]:
        requests.append(prompts)
        answer = wall if len(prompts.points) == 4 else cavity
        return logits_of(np.stack([answer, answer])), np.array([0.7, 0.1], np.float32)

    alone = IndexPrompts(box=volume_box((2, 2, 2), (5, 13, 13)))
    first = logits_of(cavity[None]), np.array([0.7], np.float32)
    logits, iou = clicked_in_box(decode, first, FIELD, alone, BoxWeights())
    assert [len(prompts.points) for prompts in requests] == [1, 4]
    assert all(is_positive for *_, is_positive in requests[1].points)
    assert iou == pytest.approx([0.7, 0.7, 0.7])
    assert [np.array_equal(answer > 0, wall) for answer in logits] == [False, False, True]
    # An answer that fits its box, but for a voxel at one face, is not asked for what is around it.
    requests.clear()
    first = logits_of(filled((2, 4, 5), (5, 11, 11))[None]), np.array([0.7], np.float32)
    clicked_in_box(decode, first, FIELD, IndexPrompts(box=BOX), BoxWeights())
    assert [len(prompts.points) for prompts in requests] == [1]


def test_a_cavity_that_most_answers_mean_is_preferred_to_the_part_of_its_wall_in_the_box():
    """The part of the wall touches all faces of the box; the cavity leaves a voxel at each."""
    box = volume_box((2, 3, 3), (5, 12, 12))
    cavity = WHOLE
    wall = filled((2, 3, 3), (5, 12, 12)) & ~cavity
    masks = np.stack([cavity, wall, cavity, cavity])
    bonus = box_bonus(logits_of(masks), FIELD, box, BoxWeights())
    assert box_fit(wall, FIELD, box) > box_fit(cavity, FIELD, box)
    assert bonus[0] > bonus[1]
