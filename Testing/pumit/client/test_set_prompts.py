"""A session's prompts are made equal to a list, at the cost of what differs only."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from loopback_server import Running
from pumit.client.remote_session import RemoteSession
from pumit.errors import PromptError
from pumit.prompts import MaskPrompt, PointPrompt, Prompt
from pumit.volume import Volume
from pumit.wire import protocol


def point(volume: Volume, d: int, h: int, w: int, positive: bool = True) -> PointPrompt:
    return PointPrompt(tuple(volume.index_to_world((d, h, w))), positive)


@pytest.fixture
def session(server: Running, volume: Volume) -> Iterator[RemoteSession]:
    with server.client() as client, RemoteSession(client) as remote:
        remote.set_volume(volume)
        yield remote


@pytest.fixture
def calls(session: RemoteSession, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths that were asked for."""
    asked: list[str] = []
    call = session._client.call

    def record(method: str, path: str, **options: object) -> object:
        if path != protocol.PATH_HEARTBEAT:
            asked.append(path)
        return call(method, path, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(session._client, "call", record)
    return asked


def test_only_what_differs_is_sent(
    session: RemoteSession, calls: list[str], volume: Volume
) -> None:
    a, b, c, d = (point(volume, 4, i, i) for i in (5, 10, 15, 20))
    session.set_prompts([a, b], "1")
    assert calls == [protocol.PATH_ADD_PROMPT] * 2
    calls.clear()
    session.set_prompts([point(volume, 4, 5, 5), b], "1")  # equal ones, not the same objects
    assert calls == []
    session.set_prompts([a, b, c], "1")
    assert calls == [protocol.PATH_ADD_PROMPT]
    calls.clear()
    session.set_prompts([a, d], "1")
    assert calls == [protocol.PATH_KEEP_PROMPTS, protocol.PATH_ADD_PROMPT]
    calls.clear()
    session.set_prompts([], "1")
    assert calls == [protocol.PATH_KEEP_PROMPTS]
    assert session.segments == []


def test_the_server_has_the_list_whatever_there_was_before(
    session: RemoteSession, server: Running, volume: Volume
) -> None:
    random = np.random.default_rng(5)
    masks = [MaskPrompt(random.random(volume.shape) > 0.5) for _ in range(3)]
    wanted: dict[str, list[Prompt]] = {}
    actual = server.engine.sessions[0]
    for _ in range(40):
        segment = str(random.integers(2))
        prompts: list[Prompt] = list(wanted.get(segment, ()))[: random.integers(4)]
        for _ in range(random.integers(3)):
            index = random.integers((9, 30, 28))
            prompts.append(point(volume, *map(int, index)))
        if random.random() < 0.3:
            prompts.append(masks[random.integers(3)])
        wanted[segment] = prompts
        session.set_prompts(prompts, segment)
        for name, expected in wanted.items():
            arrived = actual.prompts(name)
            assert len(arrived) == len(expected)
            for got, want in zip(arrived, expected, strict=True):
                if isinstance(want, MaskPrompt):
                    np.testing.assert_array_equal(got.mask, want.mask)
                else:
                    assert got == want


def test_an_equal_mask_is_not_sent_again(
    session: RemoteSession, calls: list[str], volume: Volume
) -> None:
    mask = np.zeros(volume.shape, dtype=bool)
    mask[2:4] = True
    session.set_prompts([MaskPrompt(mask)], "1")
    calls.clear()
    session.set_prompts([MaskPrompt(mask.copy())], "1")
    assert calls == []
    mask = mask.copy()
    mask[5] = True
    session.set_prompts([MaskPrompt(mask)], "1")
    assert calls == [protocol.PATH_KEEP_PROMPTS, protocol.PATH_MASK_PRIOR]


def test_another_segment_is_left_alone(session: RemoteSession, volume: Volume) -> None:
    session.set_prompts([point(volume, 4, 5, 5)], "1")
    session.set_prompts([point(volume, 4, 9, 9), point(volume, 4, 12, 12)], "2")
    expected = session.predict("2")
    session.set_prompts([], "1")
    session.rebuild()
    assert session.segments == ["2"]
    np.testing.assert_array_equal(session.predict("2"), expected)


def test_a_refused_prompt_leaves_those_before_it(session: RemoteSession, volume: Volume) -> None:
    good = point(volume, 4, 5, 5)
    with pytest.raises(PromptError, match="outside"):
        session.set_prompts([good, PointPrompt((1e6, 0, 0))], "1")
    assert session.prompts("1") == [good]
    session.set_prompts([good, point(volume, 4, 9, 9)], "1")
    assert session.predict("1").any()


def test_setting_again_and_again_fills_no_limit_and_no_history(
    serving: object, volume: Volume
) -> None:
    server = serving(max_prompts=20)  # type: ignore[operator]
    with server.client() as client, RemoteSession(client) as session:
        session.set_volume(volume)
        for i in range(25):
            session.set_prompts([point(volume, 4, i, 1), point(volume, 4, i, 2)], "1")
        assert len(server.engine.sessions[0].past) <= 2
        assert len(session._log.changes) == 2
