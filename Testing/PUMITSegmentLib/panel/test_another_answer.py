"""Another answer to a first prompt: by button and key, undone, saved, and corrected by a click."""

import numpy as np
import pytest
import slicer
from daily_panel import Daily
from pumit.prompts import AnswerPrompt, BoxPrompt, PointPrompt, ScribblePrompt
from PUMITSegmentLib.prompts.tag import promptNodesOf
from PUMITSegmentLib.segments.writer import OverwriteMode
from scripted_worker import LogicScene, box

SMALL, LARGE = box((6, 6, 6), (10, 10, 10)), box((3, 3, 3), (16, 16, 16))
ANSWERS = [SMALL, LARGE, box((4, 4, 4), (13, 13, 13))]
CORNERS = (6.5, 6.5, 8.0), (12.5, 12.5, 8.0)


def asked(made: LogicScene) -> list[type]:
    return [type(prompt) for prompt in made.worker.requests[-1].prompts]


def tool_of(daily: Daily) -> str:
    return str(daily.ui.anotherAnswerButton.toolTip)


@pytest.fixture
def clicked(daily: Daily) -> Daily:
    """An answered click in a new segment, of which there are three answers."""
    daily.logic.parameters.overwriteMode = OverwriteMode.NONE  # there is another segment
    daily.logic.newSegment("Kidney")
    daily.view.clickAt((8, 8, 8))
    daily.answer(ANSWERS[0], choice=(1, 3))
    return daily


def another(daily: Daily, number: int) -> None:
    daily.press(daily.ui.anotherAnswerButton)
    daily.answer(ANSWERS[number - 1], choice=(number, 3))


def test_the_button_goes_round_the_answers(clicked, screenshots):
    from harness.views.picture import compose

    segmentID = clicked.logic.segmentID
    assert "Answer 1 of 3" in clicked.status
    for number in (2, 3, 1, 2):
        clicked.press(clicked.ui.anotherAnswerButton)
        chosen = [p.number for p in clicked.worker.requests[-1].prompts[1:]]
        assert chosen == ([number] if number > 1 else [])
        clicked.answer(ANSWERS[number - 1], choice=(number, 3))
        np.testing.assert_array_equal(clicked.mask(segmentID), ANSWERS[number - 1])
        assert f"Answer {number} of 3" in clicked.status
        (line, *_) = clicked.panel.viewStatus.actors
        assert f"{number} of 3" in line.GetInput().replace("\n", " ")
    assert clicked.logic.promptCount(segmentID) == 1
    compose(clicked.frame, [clicked.view], screenshots / "another_answer.png")


def test_a_choice_is_a_step(clicked):
    segmentID = clicked.logic.segmentID
    another(clicked, 2)
    another(clicked, 3)
    count = len(clicked.worker.requests)
    clicked.press(clicked.ui.undoButton)
    assert clicked.status == "Undone: another answer, Kidney."
    np.testing.assert_array_equal(clicked.mask(segmentID), ANSWERS[1])
    clicked.press(clicked.ui.undoButton)
    np.testing.assert_array_equal(clicked.mask(segmentID), ANSWERS[0])
    clicked.press(clicked.ui.redoButton)
    np.testing.assert_array_equal(clicked.mask(segmentID), ANSWERS[1])
    assert len(clicked.worker.requests) == count  # nothing is computed for them
    another(clicked, 3)
    assert clicked.worker.answered[-1][1:] == [AnswerPrompt(3)]


def test_the_next_click_follows_the_choice_and_has_no_other_answer(clicked):
    another(clicked, 2)
    clicked.view.clickAt((12, 12, 8), control=True)
    assert asked(clicked) == [PointPrompt, AnswerPrompt, PointPrompt]
    clicked.answer(LARGE, choice=(1, 1))
    assert not clicked.ui.anotherAnswerButton.enabled
    assert "no other answer" in tool_of(clicked)
    clicked.press(clicked.ui.undoButton)
    assert clicked.ui.anotherAnswerButton.enabled


def test_a_deleted_click_takes_its_choice_with_it(clicked):
    another(clicked, 2)
    clicked.clickAt((12, 12, 8), LARGE)
    node = next(
        each
        for each in slicer.util.getNodesByClass("vtkMRMLMarkupsFiducialNode")
        if each.GetNumberOfDefinedControlPoints() == 2
    )
    node.RemoveNthControlPoint(0)
    assert asked(clicked) == [PointPrompt]


def test_a_box_and_a_scribble_have_other_answers(daily):
    for button, kind in (("box2dButton", BoxPrompt), ("scribbleButton", ScribblePrompt)):
        daily.logic.newSegment("Kidney")
        daily.press(getattr(daily.ui, button))
        daily.view.drag(*(daily.view.rasToXy(corner)[:2] for corner in CORNERS))
        daily.answer(SMALL, choice=(1, 2))
        daily.press(daily.ui.anotherAnswerButton)
        assert asked(daily) == [kind, AnswerPrompt]
        daily.answer(LARGE, choice=(2, 2))


def test_there_is_none_on_a_server_that_knows_none(daily):
    assert not daily.ui.anotherAnswerButton.enabled
    assert "no other answer" in tool_of(daily)
    daily.logic.showAnotherAnswer()
    assert "no other answer" in daily.status


def test_an_edit_by_hand_ends_the_choice(clicked):
    segmentID = clicked.logic.segmentID
    another(clicked, 2)
    clicked.editByHand(segmentID, ANSWERS[2])
    count = len(clicked.worker.requests)
    clicked.press(clicked.ui.anotherAnswerButton)
    assert len(clicked.worker.requests) == count
    np.testing.assert_array_equal(clicked.mask(segmentID), ANSWERS[2])
    assert not clicked.ui.anotherAnswerButton.enabled


def test_a_saved_scene_keeps_the_choice(made, tmp_path):
    made.click()
    made.answer(SMALL, choice=(1, 3))
    made.logic.showAnotherAnswer()
    made.answer(LARGE, choice=(2, 3))
    made.reopen(tmp_path / "scene.mrb")
    assert made.logic.answerCount == 3
    made.logic.update()
    assert asked(made) == [PointPrompt, AnswerPrompt]
    made.answer(LARGE, choice=(2, 3))
    made.logic.showAnotherAnswer()
    assert made.worker.requests[-1].prompts[1:] == [AnswerPrompt(3)]


def test_what_was_edited_by_hand_in_a_scene_is_no_choice(made):
    made.click()
    made.answer(SMALL, choice=(2, 3))
    (node,) = promptNodesOf(made.logic.segmentationNode)
    for text in ("{", "[]", '{"": 3}', '{"": [0, 3]}', '{"": [4, 3]}'):
        node.SetAttribute("PUMITSegment.Answers", text)
        assert made.logic.answerCount == 1
        made.logic.update()
        assert asked(made) == [PointPrompt]
