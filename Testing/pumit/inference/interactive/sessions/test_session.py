"""Every change of the prompts can be undone; what is unusable is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ball_scan import BALL, SHAPE, Opened, at, ball, box_of
from pumit.errors import PromptError, VolumeError
from pumit.inference.interactive.segmenter import Segmenter
from pumit.inference.interactive.session import InteractiveSession
from pumit.prompts import MaskPrompt, PointPrompt
from pumit.volume import Volume


def test_undo_and_redo_reach_every_level(opened: Opened) -> None:
    session, volume = opened
    steps: list[Callable[[], None]] = [
        lambda: session.add_point(at(volume, BALL)),
        lambda: session.add_point(at(volume, (1, 2, 3)), positive=False),
        lambda: session.add_prompt(box_of(volume, (2, 8, 14), (9, 26, 36)), "2"),
        lambda: session.add_scribble([at(volume, (6, 12, 20)), at(volume, (6, 20, 30))]),
        lambda: session.set_mask_prior(ball(), "2"),
        lambda: session.remove_prompt(1),
        lambda: session.reset("2"),
        lambda: session.reset(),
    ]

    def state() -> dict[str, Any]:
        return {name: session.prompts(name) for name in session.segments}

    states = [state()]
    for step in steps:
        step()
        states.append(state())
    assert states[-1] == {}
    assert len({str(s) for s in states}) == len(states) - 1  # the first and the last are empty
    for expected in states[-2::-1]:
        assert session.undo() is True
        assert state() == expected
    assert session.undo() is False
    for expected in states[1:]:
        assert session.redo() is True
        assert state() == expected
    assert session.redo() is False


def test_what_changes_nothing_is_no_step(opened: Opened) -> None:
    session, volume = opened
    session.reset()
    session.reset("unknown")
    with pytest.raises(PromptError):
        session.add_point((1e6, 0, 0))
    for mask, words in ((np.ones((2, 3, 4), bool), "grid"), (np.zeros(SHAPE, bool), "empty")):
        with pytest.raises(PromptError, match=words):
            session.set_mask_prior(mask)
    assert session.undo() is False
    assert session.segments == []
    session.add_point(at(volume, BALL), segment="a")
    session.remove_prompt(0, "a")
    assert session.segments == []
    session.undo()
    assert session.segments == ["a"]


def test_a_new_volume_starts_afresh(opened: Opened) -> None:
    session, volume = opened
    session.add_point(at(volume, BALL))
    session.predict()
    session.set_volume(Volume(-volume.array, volume.spacing_mm))
    assert session.segments == []
    assert session.undo() is False
    with pytest.raises(PromptError, match="no prompt"):
        session.predict()


# What is refused


def test_only_negative_points_are_refused(opened: Opened) -> None:
    session, volume = opened
    session.add_point(at(volume, BALL), positive=False)
    session.add_scribble([at(volume, (6, 10, 10))], positive=False)
    for ask in (session.predict, session.estimated_iou):
        with pytest.raises(PromptError, match="only negative"):
            ask()
    session.add_point(at(volume, (6, 18, 26)))
    assert session.predict().shape == volume.shape


def test_no_volume_is_refused(tiny_segmenter: Segmenter) -> None:
    session = InteractiveSession(tiny_segmenter)
    session.sleep()
    session.wake()
    assert not session.is_asleep
    for ask in (lambda: session.add_point((0, 0, 0)), session.predict, lambda: session.volume):
        with pytest.raises(VolumeError, match="No volume"):
            ask()
    session.close()


@pytest.mark.parametrize("index", [(-1, 5, 5), (5, 36, 5), (5, 5, 44)], ids=str)
def test_points_outside_are_refused(opened: Opened, index: tuple[int, int, int]) -> None:
    session, volume = opened
    for positive in (True, False):
        with pytest.raises(PromptError, match="outside of the volume"):
            session.add_point(at(volume, index), positive)
        with pytest.raises(PromptError, match="leaves the volume"):
            session.add_scribble([at(volume, BALL), at(volume, index)], positive)
    far = tuple(200 * (i - 10) for i in index)
    with pytest.raises(PromptError, match="outside of the volume"):
        session.add_prompt(box_of(volume, far, tuple(f + 5 for f in far)))  # type: ignore[arg-type]


@pytest.mark.parametrize("index", [(-0.5, -0.5, -0.5), (11.5, 35.5, 43.5)])
def test_points_on_the_border_are_accepted(
    opened: Opened, index: tuple[float, float, float]
) -> None:
    session, volume = opened
    session.add_point(at(volume, index))
    assert session.predict().shape == volume.shape


@pytest.mark.parametrize("point", [(1, 2), (1, 2, 3, 4), (np.nan, 0, 0), "abc", None, ("a", 1, 2)])
def test_malformed_points_are_refused(opened: Opened, point: Any) -> None:
    session, _ = opened
    with pytest.raises(PromptError, match="three"):
        session.add_point(point)
    with pytest.raises(PromptError, match="three"):
        session.add_box(point, (1, 2, 3))


def test_removing_what_is_not_there_is_refused(opened: Opened) -> None:
    session, volume = opened
    session.add_point(at(volume, BALL))
    for position, segment in ((-1, "1"), (1, "1"), (0, "unknown")):
        with pytest.raises(PromptError, match="no prompt"):
            session.remove_prompt(position, segment)


def test_a_constant_image_is_refused_and_the_open_one_kept(opened: Opened) -> None:
    session, volume = opened
    session.add_point(at(volume, BALL))
    for value in (0, 7):
        with pytest.raises(VolumeError, match=f"same value \\({value}\\)"):
            session.set_volume(Volume(np.full((4, 8, 8), value, np.int16)))
    assert session.volume is volume
    assert session.predict().shape == volume.shape


@pytest.mark.parametrize("value", [np.nan, -np.inf, 1e300])
def test_voxels_that_are_no_numbers_are_refused_wherever_they_lie(
    tiny_segmenter: Segmenter, value: float
) -> None:
    session = InteractiveSession(tiny_segmenter)
    for place in ((0, 0, 0), (7, 13, 15)):
        array = np.random.default_rng(0).normal(size=(8, 16, 16))
        array[place] = value
        with pytest.raises(VolumeError, match="NaN"):
            session.set_volume(Volume(array))


def test_prompts_that_the_caller_keeps_are_answered_as_those_of_the_session(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, volume = opened
    a, b, c = (PointPrompt(at(volume, i)) for i in (BALL, (6, 18, 26), (2, 5, 6)))
    given = session.answer([MaskPrompt(ball())]).mask
    first = session.answer([a, b], place_count=3)
    session.answer([a, c])
    assert session.segments == []
    monkeypatch.setattr(session._solver, "answer", None)  # nothing is computed again
    np.testing.assert_array_equal(session.answer([MaskPrompt(ball())]).mask, given)
    again = session.answer([a, b], "other")
    np.testing.assert_array_equal(again.mask, first.mask)
    assert again.places == ()
    session.add_prompts([a, b])
    np.testing.assert_array_equal(session.predict(), first.mask)
    assert session.estimated_iou() == first.estimated_iou
    assert session.expected_dice() == first.expected_dice
    assert tuple(session.uncertain_regions(count=3)) == first.places


def test_prompts_of_the_caller_are_checked_too(opened: Opened) -> None:
    session, volume = opened
    refused = {
        "outside": [PointPrompt(at(volume, BALL)), PointPrompt((1e6, 0.0, 0.0))],
        "grid": [MaskPrompt(np.ones((2, 2, 2), bool))],
        "only negative": [PointPrompt(at(volume, BALL), False)],
        "no prompt": [],
    }
    for message, prompts in refused.items():
        with pytest.raises(PromptError, match=message):
            session.answer(prompts)
