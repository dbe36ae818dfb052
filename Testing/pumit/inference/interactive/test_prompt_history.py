"""Everything can be undone, and memory does not grow without bound."""

from __future__ import annotations

import numpy as np
import pytest
from pumit.errors import PromptError
from pumit.inference.interactive.prompted_session import PromptHistory, prompt_bytes
from pumit.prompts import BoxPrompt, MaskPrompt, PointPrompt, Prompt, ScribblePrompt


def point(number: int) -> PointPrompt:
    return PointPrompt((float(number), 0.0, 0.0))


def noise(number: int) -> Prompt:
    return MaskPrompt(np.random.default_rng(number).random((16, 32, 32)) > 0.5)


def test_states_go_back_and_forth() -> None:
    history = PromptHistory()
    assert not history.undo()
    states = [{"1": tuple(point(n) for n in range(count))} for count in range(1, 5)]
    for state in states:
        history.commit(state)
    assert not history.redo()
    for state in states[-2::-1]:
        assert history.undo()
        assert history.state is state
    assert history.undo()
    assert history.state == {}
    assert history.redo()
    history.commit({"2": (point(9),)})
    assert not history.redo()
    history.replace({"1": (point(0),)})
    assert not history.undo()


def test_what_is_gone_is_not_counted() -> None:
    history = PromptHistory()
    history.commit({"1": (noise(0),)})
    one = history.nbytes
    assert one > prompt_bytes(noise(0))
    for number in range(5):
        history.commit({"1": (noise(number),)})
        history.undo()
    history.commit({})
    assert history.nbytes < 1.5 * one
    history.replace({})
    assert history.nbytes < 1000


def test_the_oldest_states_are_forgotten_first() -> None:
    history = PromptHistory(max_bytes=20 * prompt_bytes(noise(0)))
    for number in range(100):
        history.commit({"1": (noise(number),)})
        assert history.nbytes <= 20 * prompt_bytes(noise(0))
    steps = 0
    while history.undo():
        steps += 1
    assert 5 <= steps < 20


def test_a_state_too_large_by_itself_is_refused() -> None:
    history = PromptHistory(max_bytes=10 * prompt_bytes(noise(0)))
    prompts = tuple(map(noise, range(11)))
    for count in range(1, 9):
        history.commit({"1": prompts[:count]})
    with pytest.raises(PromptError, match="memory limit of a session"):
        history.commit({"1": prompts})
    assert history.state == {"1": prompts[:8]}
    history.commit({"1": history.state["1"][:1]})
    assert history.undo()


def test_the_latest_change_can_always_be_undone() -> None:
    history = PromptHistory(max_bytes=3 * prompt_bytes(noise(0)))
    for number in range(6):
        history.commit({"1": (noise(2 * number), noise(2 * number + 1))})
    latest = history.state
    assert history.undo()
    assert history.redo()
    assert history.state is latest


def test_every_prompt_has_a_size() -> None:
    points = tuple((float(n), 0.0, 0.0) for n in range(1000))
    mask = np.ones((10, 10, 10), dtype=bool)
    assert prompt_bytes(ScribblePrompt(points)) > 100 * 1000
    assert prompt_bytes(BoxPrompt.from_bounds((0, 0, 0), (1, 1, 1))) > prompt_bytes(point(0))
    assert prompt_bytes(MaskPrompt(mask)) > 125
