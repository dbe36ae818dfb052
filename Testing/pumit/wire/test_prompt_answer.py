"""Masks travel as packed bits of their bounding box, and an answer keeps its word."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp
from pumit.segmentation import QUALITIES, AnswerChoice, PromptAnswer
from pumit.wire import prompt_answer
from pumit.wire.arrays import pack_array
from pumit.wire.prompt_answer import (
    bounding_box,
    pack_answer,
    pack_mask,
    unpack_answer,
    unpack_mask,
)
from pumit.wire.protocol import ArrayError


@settings(max_examples=80, deadline=None)
@given(hnp.arrays(bool, hnp.array_shapes(min_dims=3, max_dims=3, max_side=9)))
def test_any_mask_comes_back_exactly(mask):
    box, bits = pack_mask(mask)
    np.testing.assert_array_equal(unpack_mask(box, bits, mask.shape), mask)


def test_the_box_is_tight_and_half_open():
    mask = np.zeros((10, 20, 30), dtype=bool)
    mask[3, 5:9, 29] = True
    assert bounding_box(mask) == [[3, 4], [5, 9], [29, 30]]
    assert bounding_box(np.zeros((2, 2, 2), dtype=bool)) is None


def test_a_mask_needs_at_most_one_bit_for_each_voxel_of_its_box():
    mask = np.zeros((100, 200, 200), dtype=bool)
    mask[40:60, 50:90, 50:90] = np.random.default_rng(0).random((20, 40, 40)) > 0.5
    mask[40, 50, 50] = mask[59, 89, 89] = True
    assert len(pack_mask(mask)[1]) < 20 * 40 * 40 / 8 + 200


@pytest.mark.parametrize(
    "box",
    [
        [[0, 5], [0, 4], [0, 4]],
        [[-1, 2], [0, 4], [0, 4]],
        [[2, 2], [0, 4], [0, 4]],
        [[3, 1], [0, 4], [0, 4]],
        [[0, 4], [0, 4]],
    ],
)
def test_a_box_outside_the_grid_is_refused(box):
    with pytest.raises(ArrayError, match="grid"):
        unpack_mask(box, b"", (4, 4, 4))


@pytest.mark.parametrize(
    "bits",
    [np.zeros(7, np.uint8), np.zeros(9, np.uint8), np.zeros(8, bool), np.zeros((2, 4), "u1")],
)
def test_bits_that_do_not_fill_the_box_are_refused(bits):
    with pytest.raises(ArrayError):
        unpack_mask([[0, 4], [0, 4], [0, 4]], pack_array(bits), (4, 4, 4))


def test_voxels_without_a_box_are_refused():
    with pytest.raises(ArrayError):
        unpack_mask(None, b"x", (4, 4, 4))


ANSWER = PromptAnswer(np.eye(3, dtype=bool)[None], 0.5, 0.75, (), "check")


@pytest.mark.parametrize("quality", [*QUALITIES, None])
def test_number_and_word_travel(quality):
    found = unpack_answer(pack_answer(replace(ANSWER, quality=quality)), (1, 3, 3))  # type: ignore[arg-type]
    assert (found.expected_dice, found.quality) == (0.75, quality)
    np.testing.assert_array_equal(found.mask, ANSWER.mask)


def test_words_and_numbers_of_other_versions_are_understood(monkeypatch):
    def read(answer: PromptAnswer) -> PromptAnswer:
        return unpack_answer(pack_answer(answer), (1, 3, 3))

    assert read(replace(ANSWER, quality="superb")).quality is None  # type: ignore[arg-type]
    older = replace(ANSWER, quality="check well")  # type: ignore[arg-type]
    assert read(older).quality == "check carefully"
    assert read(replace(ANSWER, choice=AnswerChoice(2, 3))).choice == AnswerChoice(2, 3)
    empty = read(replace(ANSWER, mask=np.zeros((1, 3, 3), bool), expected_dice=None))
    assert not empty.mask.any()
    assert empty.expected_dice is None
    pack = prompt_answer.pack_bundle

    def pack_less(meta: dict[str, object], *rest: object, **more: object) -> bytes:
        known = {k: v for k, v in meta.items() if k not in ("quality", "choice")}
        return pack(known, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(prompt_answer, "pack_bundle", pack_less)
    assert (read(ANSWER).quality, read(ANSWER).choice) == (None, AnswerChoice(1, 1))
