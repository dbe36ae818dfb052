"""A click is one request: its segment's prompts go with it, and each mask prior goes once."""

from queue import SimpleQueue

import numpy as np
import pytest
from fake_engine import FakeSession
from pumit.client.remote_session import RemoteSession
from pumit.prompts import MaskPrompt, PointPrompt, Prompt
from pumit.server.sessions import leases
from pumit.volume import Volume
from pumit.wire import protocol


def point(volume: Volume, d: int, h: int, w: int, positive: bool = True) -> PointPrompt:
    return PointPrompt(tuple(volume.index_to_world((d, h, w))), positive)


def mask_of(volume: Volume, start: int) -> MaskPrompt:
    mask = np.zeros(volume.shape, dtype=bool)
    mask[start : start + 2, 3:9] = True
    return MaskPrompt(mask)


@pytest.fixture
def requests(session: RemoteSession, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the requests, signs of life left out."""
    paths: list[str] = []
    call = session._client.call

    def record(method: str, path: str, **options: object) -> object:
        if path != protocol.PATH_HEARTBEAT:
            paths.append(path)
        return call(method, path, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(session._client, "call", record)
    return paths


def test_a_click_is_one_request_and_one_turn(session, server, requests, volume):
    turns: SimpleQueue[str] = SimpleQueue()
    server.state.queue.on_done = lambda kind, *times: turns.put(kind)
    session.add_point(tuple(volume.index_to_world((4, 5, 5))))
    answer = session.answer(session.prompts(), place_count=2)
    assert requests == [protocol.PATH_PREDICT]
    assert turns.get(timeout=60) == "click"  # counted after the answer was sent
    assert turns.empty() or turns.get() == "foresight"
    assert turns.empty()
    assert answer.mask.any()
    assert answer.estimated_iou == 1 / 2
    assert answer.expected_dice == pytest.approx(2 / 3)
    assert len(answer.places) == 2


def test_prompts_are_changed_undone_and_redone_without_a_request(session, requests, volume):
    masks = []
    for index in (5, 15, 25):
        session.add_prompt(point(volume, 4, index, index))
        masks.append(session.predict())
    requests.clear()
    assert session.undo()
    assert session.undo()
    assert session.redo()
    session.remove_prompt(0)
    session.reset()
    assert session.undo()
    assert session.undo()
    assert requests == []
    np.testing.assert_array_equal(session.predict(), masks[1])
    assert requests == [protocol.PATH_PREDICT]


def test_what_an_answer_said_is_kept_with_its_prompts(session, requests, volume):
    session.add_prompt(point(volume, 4, 5, 5))
    session.predict()
    requests.clear()
    assert session.estimated_iou() == 1 / 2
    assert session.expected_dice() == pytest.approx(2 / 3)
    assert requests == []
    session.add_prompt(point(volume, 4, 9, 9))
    assert session.estimated_iou() == 1 / 3
    assert requests == [protocol.PATH_PREDICT]


def test_the_server_answers_the_prompts_of_the_request_whatever_came_before(
    session, server, volume
):
    random = np.random.default_rng(5)
    masks = [mask_of(volume, start) for start in (1, 3, 5)]
    library = FakeSession()
    library.set_volume(volume)
    for _ in range(40):
        places = random.integers((9, 30, 28), size=(random.integers(3), 3)).tolist()
        prompts: list[Prompt] = [point(volume, *place) for place in places]
        prompts += [masks[random.integers(3)]]
        segment = str(random.integers(2))
        answer = session.answer(prompts, segment)
        np.testing.assert_array_equal(answer.mask, library.answer(prompts, segment).mask)
    assert session.segments == []
    assert server.engine.sessions[0].segments == []


def test_a_mask_prior_is_sent_once(session, requests, volume):
    first, second = mask_of(volume, 2), mask_of(volume, 4)
    for segment in ("liver", "spleen"):
        for prompts in ([first], [MaskPrompt(first.mask.copy()), point(volume, 4, 9, 9)]):
            session.answer(prompts, segment)
    assert requests == [protocol.PATH_MASK_PRIOR, *[protocol.PATH_PREDICT] * 4]
    requests.clear()
    session.answer([first, second])
    assert requests == [protocol.PATH_MASK_PRIOR, protocol.PATH_PREDICT]


def test_a_mask_prior_that_the_server_forgot_is_sent_again(session, requests, volume, monkeypatch):
    monkeypatch.setattr(leases, "_MAX_BYTES", 1)  # it holds the newest alone
    first, second = mask_of(volume, 2), mask_of(volume, 4)
    expected = session.answer([first]).mask
    session.answer([second])
    requests.clear()
    np.testing.assert_array_equal(session.answer([first]).mask, expected)
    predict, prior = protocol.PATH_PREDICT, protocol.PATH_MASK_PRIOR
    assert requests == [predict, prior, predict]


def test_after_a_restart_of_the_server_volume_and_mask_priors_are_sent_again(serving, volume):
    first, second = serving(), serving()  # type: ignore[operator]
    prompts = [mask_of(volume, 2), point(volume, 4, 20, 20)]
    with first.client() as client, second.client() as other:
        session = RemoteSession(client)
        session.set_volume(volume)
        expected = session.answer(prompts).mask
        session.rebuild(other)
        np.testing.assert_array_equal(session.answer(prompts).mask, expected)
        assert len(second.engine.sessions[0].answered) == 1
        # A new volume holds none of the priors of the earlier one either.
        session.set_volume(volume)
        np.testing.assert_array_equal(session.answer(prompts).mask, expected)
        session.close()
