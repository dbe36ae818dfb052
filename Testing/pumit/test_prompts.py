"""Prompts hold world positions, travel as JSON, and refuse what means nothing."""

import json

import numpy as np
import pytest
from pumit.errors import PromptError
from pumit.prompts import (
    AnswerPrompt,
    BoxPrompt,
    MaskPrompt,
    PointPrompt,
    Prompt,
    ScribblePrompt,
    prompt_from_dict,
)

PROMPTS: list[Prompt] = [
    PointPrompt((1, 2.5, -3)),
    PointPrompt((1, 2, 3), is_positive=False),
    BoxPrompt.from_bounds((0, 0, 0), (10, 20, 30)),
    BoxPrompt(((0, 0, 5), (10, 0, 5), (0, 10, 5), (10, 10, 5))),
    ScribblePrompt(((0, 0, 0), (1, 1, 1)), is_positive=False),
    AnswerPrompt(2),
]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_prompt_survives_json(prompt):
    assert not hasattr(prompt, "mask")
    assert prompt_from_dict(json.loads(json.dumps(prompt.to_dict()))) == prompt


def test_a_mask_with_the_same_voxels_on_the_same_grid_is_the_same_prompt():
    mask = np.zeros((3, 4, 5), dtype=bool)
    mask[1, 2, 1:4] = True
    same, other, moved = (MaskPrompt(m) for m in (mask.copy(), ~mask, np.roll(mask, 1, 0)))
    prompt = MaskPrompt(mask)
    assert (prompt, hash(prompt), prompt.to_dict()) == (same, hash(same), same.to_dict())
    assert prompt not in (other, moved, MaskPrompt(np.pad(mask, ((0, 1), (0, 0), (0, 0)))))


def test_box_from_bounds_has_the_eight_corners():
    corners = BoxPrompt.from_bounds((10, 0, 30), (0, 20, 0)).corners_lps
    assert sorted(corners) == [(x, y, z) for x in (0, 10) for y in (0, 20) for z in (0, 30)]


def test_json_may_give_bounds_and_leave_out_what_is_usual():
    box = prompt_from_dict({"kind": "box", "lower_lps": [0, 0, 0], "upper_lps": [1, 2, 3]})
    assert box == BoxPrompt.from_bounds((0, 0, 0), (1, 2, 3))
    assert prompt_from_dict({"kind": "point", "point_lps": [1, 2, 3]}) == PointPrompt((1, 2, 3))


def test_box_of_no_size_is_refused():
    with pytest.raises(PromptError, match="no size"):
        BoxPrompt.from_bounds((1, 1, 0), (1, 1, 1))


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"kind": "lasso"},
        {"kind": "point"},
        {"kind": "point", "point_lps": [1, 2, float("nan")]},
        {"kind": "point", "point_lps": ["a", "b", "c"]},
        {"kind": "point", "point_lps": 3},
        {"kind": "box", "corners_lps": [[0, 0, 0], [1, 1, 1]]},
        {"kind": "box", "lower_lps": [0, 0, 0]},
        {"kind": "scribble", "points_lps": []},
    ],
)
def test_malformed_prompt_is_refused_in_one_line(data):
    with pytest.raises(PromptError) as caught:
        prompt_from_dict(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("number", [0, -1, 1.5, True, "2", None])
def test_an_answer_is_numbered_from_one(number):
    with pytest.raises(PromptError, match="numbered from 1"):
        AnswerPrompt(number)


@pytest.mark.parametrize("index", [(0, 0, 0), (-1, -1, -1), (3, slice(None), 5)])
def test_a_mask_is_kept_packed_and_shared_read_only(index):
    mask = np.zeros((5, 6, 7), dtype=bool)
    mask[index] = True
    prompt, turned = MaskPrompt(mask), MaskPrompt(mask.transpose(2, 0, 1))
    expected = mask.copy()
    mask[:] = False  # the caller's own again
    held = prompt.mask
    np.testing.assert_array_equal(held, expected)
    np.testing.assert_array_equal(turned.mask, expected.transpose(2, 0, 1))
    assert prompt.mask is held
    assert prompt.nbytes < mask.size / 8
    with pytest.raises(ValueError, match="read-only"):
        prompt.mask[0, 0, 0] = False
