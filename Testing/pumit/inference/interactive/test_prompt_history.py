"""Everything can be undone, and memory does not grow without bound."""

import numpy as np
import pytest
from pumit.errors import PromptError
from pumit.inference.interactive import prompted_session
from pumit.inference.interactive.prompted_session import PromptHistory, prompt_bytes
from pumit.prompts import BoxPrompt, MaskPrompt, PointPrompt, Prompt, ScribblePrompt


def point(number: int) -> PointPrompt:
    return PointPrompt((float(number), 0.0, 0.0))


def noise(number: int) -> Prompt:
    return MaskPrompt(np.random.default_rng(number).random((16, 32, 32)) > 0.5)


def test_what_is_gone_is_not_counted():
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
    assert not history.undo()


@pytest.mark.parametrize(("room", "least"), [(20, 5), (1.5, 1)])
def test_the_oldest_states_are_forgotten_first(room, least):
    """The latest change can always be undone, however large it is."""
    history = PromptHistory(max_bytes=int(room * prompt_bytes(noise(0))))
    for number in range(60):
        history.commit({"1": (noise(number),)})
        assert history.nbytes <= max(room, 3) * prompt_bytes(noise(0))
    latest, steps = history.state, 0
    while history.undo():
        steps += 1
    assert least <= steps < 20
    while history.redo():
        pass
    assert history.state is latest


def test_a_state_too_large_by_itself_is_refused():
    history = PromptHistory(max_bytes=10 * prompt_bytes(noise(0)))
    prompts = tuple(map(noise, range(11)))
    for count in range(1, 9):
        history.commit({"1": prompts[:count]})
    with pytest.raises(PromptError, match="memory limit of a session"):
        history.commit({"1": prompts})
    assert history.state == {"1": prompts[:8]}
    history.commit({"1": history.state["1"][:1]})
    assert history.undo()


def test_other_threads_see_the_former_state_until_the_new_one_is_there(monkeypatch):
    """A prediction reads the prompts while a click is added, and old states are forgotten."""
    history = PromptHistory(max_bytes=3 * prompt_bytes(noise(0)))
    count = prompted_session._added_bytes
    former, seen = history.state, []

    def read_meanwhile(before: prompted_session.State, after: prompted_session.State) -> int:
        seen.append(history.state is former)
        return count(before, after)

    monkeypatch.setattr(prompted_session, "_added_bytes", read_meanwhile)
    for number in range(20):
        former = history.state
        history.commit({"1": (noise(number),)})
    assert len(seen) > 20, "nothing was forgotten"
    assert all(seen)


def test_every_prompt_has_a_size():
    points = tuple((float(n), 0.0, 0.0) for n in range(1000))
    mask = np.ones((10, 10, 10), dtype=bool)
    assert prompt_bytes(ScribblePrompt(points)) > 100 * 1000
    assert prompt_bytes(BoxPrompt.from_bounds((0, 0, 0), (1, 1, 1))) > prompt_bytes(point(0))
    assert prompt_bytes(MaskPrompt(mask)) > 125
