"""Another answer is one that was computed already, and a choice is a prompt like any other."""

from itertools import combinations

import numpy as np
import pytest
from ball_scan import BALL, OBLIQUE, SHAPE, at, ball, box_of, scan, session_on
from pumit.errors import PromptError
from pumit.evaluation.metrics import dice
from pumit.inference.interactive.index_prompts import IndexPrompts
from pumit.inference.interactive.other_answers import DISTINCT, MOST_ANSWERS, distinct_answers
from pumit.inference.interactive.segmenter import Segmenter
from pumit.inference.interactive.session import InteractiveSession
from pumit.inference.interactive.solver_state import FieldAnswer
from pumit.preprocessing.fields import Field
from pumit.prompts import AnswerPrompt, MaskPrompt, PointPrompt, Prompt, ScribblePrompt
from pumit.volume import Volume

# Answers are compared at points of a grid: so far may the Dice of all voxels be from that.
SAMPLED = 0.05
AWAY = (10, 33, 4)


def around() -> np.ndarray:
    """A shell that is half as bright, around the ball."""
    d, h, w = np.ogrid[tuple(slice(n) for n in SHAPE)]
    far = ((d - BALL[0]) * 3.0) ** 2 + (h - BALL[1]) ** 2 + (w - BALL[2]) ** 2
    return np.asarray(far < 16**2)


def nested(direction: np.ndarray | None = None) -> Volume:
    volume, _ = scan(direction)
    array = volume.array + 50 * (around() & ~ball())
    return Volume(array, volume.spacing_mm, volume.origin_lps, volume.direction)


def first_prompts(volume: Volume) -> dict[str, Prompt]:
    return {
        "click": PointPrompt(at(volume, BALL)),
        "box": box_of(volume, (2, 5, 12), (10, 30, 38)),
        "scribble": ScribblePrompt((at(volume, (6, 12, 22)), at(volume, (6, 20, 28)))),
    }


@pytest.fixture
def clicked(two_answers_segmenter: Segmenter) -> InteractiveSession:
    """A session with a click in the ball, of which there are two answers."""
    volume = nested()
    session = session_on(volume, two_answers_segmenter)
    session.add_point(at(volume, BALL))
    return session


def masks_of(session: InteractiveSession) -> list[np.ndarray]:
    """All answers to the prompts of a session."""
    masks = []
    for number in range(1, session.answer_count() + 1):
        session.choose_answer(number)
        masks.append(session.predict())
    return masks


@pytest.mark.parametrize("kind", ["click", "box", "scribble"])
def test_the_second_answer_is_the_other_structure(two_answers_segmenter, kind):
    volume = nested(OBLIQUE)
    session = session_on(volume, two_answers_segmenter)
    session.add_prompt(first_prompts(volume)[kind])
    shown = session.predict()
    masks = masks_of(session)
    np.testing.assert_array_equal(masks[0], shown)
    for truth in (ball(), around()):
        assert max(dice(mask, truth) for mask in masks) > 0.9
    assert all(mask[BALL] for mask in masks)


@pytest.mark.parametrize("kind", ["click", "box", "scribble"])
def test_answers_differ_and_are_at_most_four(tiny_segmenter, kind):
    volume, _ = scan()
    session = session_on(volume, tiny_segmenter)
    session.add_prompt(first_prompts(volume)[kind])
    masks = masks_of(session)
    assert 1 <= len(masks) <= MOST_ANSWERS
    # Only the shown answer is refined after it was compared.
    for a, b in combinations(masks[1:], 2):
        assert dice(a, b) < DISTINCT + SAMPLED


def test_an_answer_unlike_the_shown_one_comes_before_one_that_is_like_it():
    where = Field((8.0, 24.0, 24.0), (1.0, 1.0, 1.0), (16, 48, 48), 1.0, 0)
    d, h, w = np.indices(where.shape) - np.reshape((8, 24, 24), (3, 1, 1, 1))
    far = np.sqrt(d**2 + h**2 + w**2)
    shown, like, other = (
        FieldAnswer(where, r - far, score=s) for r, s in ((7, 1.0), (5.5, 0.6), (3, 0.5))
    )
    prompts = IndexPrompts(points=[(8.0, 24.0, 24.0, True)])
    found = distinct_answers(shown, [shown, like, other], prompts, where.shape)
    assert [view.score for view in found] == [0.5, 0.6]


def test_an_answer_that_lacks_the_click_on_the_grid_of_the_scan_is_not_offered():
    """Its voxel of a coarse field was inside, but the scan's voxel was not."""
    where = Field((15.5, 15.5, 15.5), (4.0, 4.0, 4.0), (8, 8, 8), 1.0, 0)
    logits = np.full(where.shape, -1.5, np.float32)
    logits[4, 4, 4] = 1  # the middle of voxels 16 to 19
    shown = FieldAnswer(where, np.ones(where.shape, np.float32))
    small, shape = FieldAnswer(where, logits), (32, 32, 32)
    for place, count in ((17.0, 1), (16.0, 0)):
        prompts = IndexPrompts(points=[(place, place, place, True)])
        assert len(distinct_answers(shown, [small], prompts, shape)) == count


def test_a_choice_decodes_nothing_and_is_undone_and_redone(clicked, monkeypatch):
    first = clicked.predict()
    engine = clicked.segmenter.engine
    monkeypatch.setattr(engine, "decode", lambda *_: pytest.fail("decoded"))
    monkeypatch.setattr(engine, "encode", lambda *_, **__: pytest.fail("encoded"))
    clicked.choose_answer(2)
    second = clicked.predict()
    assert dice(first, second) < DISTINCT + SAMPLED
    assert clicked.undo()
    np.testing.assert_array_equal(clicked.predict(), first)
    assert clicked.redo()
    np.testing.assert_array_equal(clicked.predict(), second)
    assert clicked.answer(clicked.prompts()).choice.number == 2


def test_replayed_prompts_give_the_same_mask(clicked, two_answers_segmenter):
    clicked.choose_answer(2)
    chosen = clicked.predict()
    clicked.add_point(at(clicked.volume, BALL), positive=False)
    expected = clicked.predict()
    again = session_on(clicked.volume, two_answers_segmenter)
    again.add_prompts(clicked.prompts())
    np.testing.assert_array_equal(again.predict(), expected)
    clicked.sleep()
    np.testing.assert_array_equal(clicked.predict(), expected)
    clicked.undo()
    clicked.forget_answers()
    np.testing.assert_array_equal(clicked.predict(), chosen)


def test_a_later_click_changes_the_chosen_answer(clicked):
    first = clicked.predict()
    clicked.choose_answer(2)
    chosen = clicked.predict()
    assert abs(int(chosen.sum()) - int(first.sum())) > 200
    clicked.add_point(at(clicked.volume, AWAY), positive=False)
    np.testing.assert_array_equal(clicked.predict(), chosen)
    assert clicked.answer_count() == 1


def test_choices_one_after_another_are_one_prompt(clicked):
    for number in (2, 1, 2):
        clicked.choose_answer(number)
    assert clicked.prompts()[1:] == [AnswerPrompt(2)]
    expected, click = clicked.predict(), clicked.prompts()[0]
    chain: list[Prompt] = [click, *map(AnswerPrompt, (1, 1, 2))]
    np.testing.assert_array_equal(clicked.answer(chain).mask, expected)
    # Numbers beyond the last begin again.
    answers = [clicked.answer([click, AnswerPrompt(n)]) for n in (1, 2, 3, 4)]
    assert [answer.choice.number for answer in answers] == [1, 2, 1, 2]
    np.testing.assert_array_equal(answers[3].mask, expected)


def test_an_answer_that_is_not_there_is_refused(clicked):
    for number in (0, 3):
        with pytest.raises(PromptError, match="have 2 different answers"):
            clicked.choose_answer(number)
    assert len(clicked.prompts()) == 1
    outside = PointPrompt(at(clicked.volume, AWAY), False)
    for prompts, words in (([], "no prompt yet"), ([outside], "only negative")):
        with pytest.raises(PromptError, match=words):
            clicked.answer([*prompts, AnswerPrompt(1)])


def test_a_removed_prompt_takes_the_choice_with_it(clicked):
    clicked.choose_answer(2)
    clicked.add_point(at(clicked.volume, AWAY), positive=False)
    clicked.remove_prompt(2)
    assert clicked.prompts()[1:] == [AnswerPrompt(2)]
    clicked.remove_prompt(0)
    assert clicked.prompts() == []


def test_a_mask_is_one_answer(clicked):
    clicked.choose_answer(2)
    clicked.add_prompt(MaskPrompt(around()))
    assert clicked.answer_count() == 1
    np.testing.assert_array_equal(clicked.predict(), clicked.answer([MaskPrompt(around())]).mask)
