"""Answers of several fields support each other where they mean the same structure."""

import numpy as np
import pytest
from pumit.inference.interactive.field_consensus import averaged, consensus, smaller_answer
from pumit.inference.interactive.index_prompts import IndexPrompts
from pumit.inference.interactive.solver_state import FieldAnswer
from pumit.preprocessing.fields import Field

SPACING = (2.0, 1.0, 1.0)
CLICK = (15.0, 40.0, 40.0)


def field(step: float, size: int = 32) -> Field:
    shape = (size // 2, size, size)
    return Field(CLICK, (step, step, step), shape, 2.0, 1)


def ball(where: Field, radius_mm: float) -> np.ndarray:
    """Logits of a ball around the click."""
    index = np.stack(np.indices(where.shape), -1)
    offset = (where.to_volume(index) - CLICK) * SPACING
    return (radius_mm - np.linalg.norm(offset, axis=-1)).astype(np.float32)


def test_what_no_other_field_sees_has_less_support():
    fine, coarse = field(1.0), field(2.0)
    answers = [(fine, [ball(fine, 3.0), ball(fine, 10.0)]), (coarse, [ball(coarse, 10.0)])]
    (small, large), (same,) = consensus(answers, CLICK, SPACING)
    assert small < 0.2 < 0.7 < large
    assert same == pytest.approx(large)


def test_one_field_and_empty_answers_support_nothing():
    fine, coarse = field(1.0), field(2.0)
    one, nothing = [ball(fine, 5.0)], [np.full(coarse.shape, -1.0, np.float32)]
    assert consensus([(fine, one)], CLICK, SPACING) == [[0.0]]
    assert consensus([(fine, one), (coarse, nothing)], CLICK, SPACING) == [[0.0], [0.0]]


def test_a_planar_image_is_compared_in_its_plane():
    click = (0.0, 40.0, 40.0)
    fields = [Field(click, (1.0, s, s), (1, 32, 32), 40.0, 5) for s in (1.0, 2.0)]
    discs = []
    for where in fields:
        index = np.stack(np.indices(where.shape), -1)
        offset = np.linalg.norm((where.to_volume(index) - click)[..., 1:], axis=-1)
        discs.append([(10.0 - offset).astype(np.float32)])
    support = consensus(list(zip(fields, discs, strict=True)), click, (1.0, 1.0, 1.0))
    assert min(support) > [0.8]


def test_a_fine_field_corrects_the_border_of_a_coarse_one():
    fine, coarse = field(1.0, 48), field(2.0)
    truth = ball(coarse, 10.0)
    large = truth + 1.5  # its ball is 1.5 mm too large
    found = averaged(large, coarse, [(fine, [ball(fine, 10.0)])])
    assert np.abs(found - truth).mean() < 0.8 * np.abs(large - truth).mean()


def test_an_answer_that_means_something_else_does_not_count():
    fine, coarse = field(1.0), field(2.0)
    own = ball(coarse, 10.0)
    found = averaged(own, coarse, [(fine, [ball(fine, 3.0), -np.ones(fine.shape, np.float32)])])
    np.testing.assert_array_equal(found, own)


def test_beyond_another_field_an_answer_stays():
    fine, coarse = field(1.0), field(2.0)
    own = ball(coarse, 30.0)
    found = averaged(own, coarse, [(fine, [np.ones(fine.shape, np.float32)])])
    np.testing.assert_array_equal(found[0], own[0])
    assert (found != own).any()


def test_a_large_answer_that_no_field_supports_gives_way_to_a_smaller_one():
    fine, coarse = field(1.0), field(2.0)
    prompts = IndexPrompts(points=[(*CLICK, True)])
    small = FieldAnswer(fine, ball(fine, 4.0), iou=0.2)
    finest = [
        small,
        FieldAnswer(fine, ball(fine, 6.0), iou=0.1),
        FieldAnswer(fine, -ball(fine, 4.0), iou=0.9),
    ]
    chosen = FieldAnswer(coarse, ball(coarse, 20.0), score=2.0, iou=0.2, support=0.5)
    assert smaller_answer(chosen, finest, prompts) is small
    chosen.support = 0.7
    assert smaller_answer(chosen, finest, prompts) is None
    chosen.support, chosen.iou = 0.5, 0.3
    assert smaller_answer(chosen, finest, prompts) is None
