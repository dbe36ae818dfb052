"""Whole sessions over a real server on loopback."""

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from asking import Asking
from fake_engine import FakeSession
from pumit.client.http_client import UnexpectedResponse, Unreachable
from pumit.client.recoverable_session import Heartbeat
from pumit.client.remote_session import RemoteSession
from pumit.errors import Cancelled, PromptError, ServiceError, VolumeError
from pumit.prompts import AnswerPrompt, BoxPrompt, MaskPrompt, PointPrompt, ScribblePrompt
from pumit.segmentation import AnswerChoice, PromptAnswer
from pumit.system.watch import Watch
from pumit.volume import Volume
from pumit.wire.protocol import TooLarge


def _same_as_library(volume, changes, segment="1"):
    session = FakeSession()
    session.set_volume(volume)
    for name, prompt in changes:
        session.add_prompt(prompt, name)
    return session.predict(segment)


def _centre(volume: Volume, *index: float):
    return tuple(volume.index_to_world(index))


class Interrupt(KeyboardInterrupt):
    """Ctrl-C."""


def _one(volume: Volume):
    mask = np.zeros(volume.shape, dtype=bool)
    mask[4, 10, 10] = True
    return mask


def test_masks_equal_those_of_the_library_for_every_kind_of_prompt(session, volume):
    corners = volume.index_to_world([(d, h, w) for d in (1, 4) for h in (3, 9) for w in (5, 20)])
    prior = np.zeros(volume.shape, dtype=bool)
    prior[2:4, 5:7, 1:28] = True
    changes = [
        ("1", PointPrompt(_centre(volume, 4, 10, 10))),
        ("1", PointPrompt(_centre(volume, 4, 12, 10), False)),
        ("1", BoxPrompt(tuple(map(tuple, corners)))),
        ("1", ScribblePrompt((_centre(volume, 8, 29, 27), _centre(volume, 7, 20, 20)))),
        ("1", MaskPrompt(prior)),
        ("liver", PointPrompt(_centre(volume, 0, 0, 0))),
    ]
    for segment, prompt in changes:
        session.add_prompt(prompt, segment)
    for segment in ("1", "liver"):
        mask = session.predict(segment)
        assert mask.dtype == bool
        assert mask.shape == volume.shape
        assert mask.any()
        np.testing.assert_array_equal(mask, _same_as_library(volume, changes, segment))


def test_geometry_and_intensities_arrive_unchanged(session, server, volume):
    arrived = server.engine.sessions[0].volume
    np.testing.assert_array_equal(arrived.array, volume.array)
    assert arrived.array.dtype == volume.array.dtype
    assert arrived.spacing_mm == volume.spacing_mm
    assert arrived.origin_lps == volume.origin_lps
    np.testing.assert_array_equal(arrived.direction, volume.direction)


@pytest.mark.parametrize("shape", [(1, 40, 50), (3, 1, 20, 20)])
def test_a_2d_image_and_a_colour_image_can_be_sent(server, shape):
    image = np.random.default_rng(1).integers(0, 255, shape).astype(np.uint8)
    planar = Volume(image, (1e8, 1.0, 1.0))
    with server.client() as client, RemoteSession(client) as remote:
        remote.set_volume(planar)
        remote.add_point(_centre(planar, 0, 10, 10))
        assert remote.predict().shape == planar.shape


def test_another_answer_comes_from_the_server_and_is_undone(session, volume, server):
    session.add_point(_centre(volume, 4, 5, 5))
    first = session.predict()
    assert session.answer_count() == 3
    session.choose_answer(3)
    assert server.engine.sessions[0].answered[-1][1] == tuple(session.prompts()[:1])  # not yet
    chosen = session.predict()
    np.testing.assert_array_equal(chosen, np.roll(first, 2, axis=2))
    assert session.answer(session.prompts()).choice == AnswerChoice(3, 3)
    session.choose_answer(2)
    assert session.prompts()[1:] == [AnswerPrompt(2)]
    session.undo()
    np.testing.assert_array_equal(session.predict(), chosen)
    session.undo()
    np.testing.assert_array_equal(session.predict(), first)
    session.add_point(_centre(volume, 4, 9, 9))
    with pytest.raises(PromptError, match="have one answer"):
        session.choose_answer(2)


def test_a_choice_is_refused_by_a_server_that_knows_none(session, volume, monkeypatch):
    """As of a saved scene that is opened with an older server."""
    capabilities = {**session._client.capabilities(), "prompts": ["point", "box"]}
    monkeypatch.setattr(session._client, "capabilities", lambda: capabilities)
    session.rebuild()
    session.add_point(_centre(volume, 4, 5, 5))
    prompts = session.prompts()
    with pytest.raises(PromptError, match="older"):
        session.answer([*prompts, AnswerPrompt(2)])
    assert session.answer(prompts).mask.any()


def test_uncertain_regions_arrive_as_the_library_finds_them(session, volume, server):
    with pytest.raises(PromptError):
        session.uncertain_regions()
    session.add_point(_centre(volume, 4, 5, 5))
    expected = list(server.engine.sessions[0].answer(session.prompts(), place_count=5).places)
    assert session.uncertain_regions() == expected
    assert len(expected) == 2
    assert session.uncertain_regions(count=1) == expected[:1]


def test_without_a_volume_the_session_says_so(server):
    with server.client() as client, RemoteSession(client) as session:
        for act in (
            session.predict,
            session.reconstruct,
            lambda: session.segment_automatically("organs"),
            lambda: session.add_point((0, 0, 0)),
        ):
            with pytest.raises(VolumeError, match="No volume is open"):
                act()
        assert not session.undo()


@pytest.mark.parametrize("error", [Unreachable("lost"), UnexpectedResponse("", 504), Interrupt()])
def test_an_answer_that_was_lost_leaves_no_doubt_behind(
    session, server, volume, monkeypatch, error
):
    """A volume whose answer is lost may have arrived: the session is opened again.

    A gateway gives up (504) while the server still reads, or Ctrl-C comes in a notebook.
    """
    session.add_point(_centre(volume, 4, 10, 10))
    expected = session.predict()
    call = session._client.call

    def lose_answer(*arguments, **options):
        call(*arguments, **options)
        raise error

    other = replace(volume, array=volume.array[::-1].copy())
    with monkeypatch.context() as patch:
        patch.setattr(session._client, "call", lose_answer)
        with pytest.raises(type(error)):
            session.predict()
        with pytest.raises(type(error)):
            session.set_volume(other)
    np.testing.assert_array_equal(session.predict(), expected)
    assert len(server.engine.sessions) == 2
    np.testing.assert_array_equal(server.engine.sessions[1].volume.array, volume.array)


@pytest.mark.parametrize("error", [VolumeError("constant"), TooLarge("large")])
def test_a_volume_that_is_refused_leaves_the_session_as_it_was(
    session, server, volume, monkeypatch, error
):
    session.add_point(_centre(volume, 4, 10, 10))
    expected = session.predict()

    def refuse(*_):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(session, "_upload", refuse)
        with pytest.raises(type(error)):
            session.set_volume(volume)
    np.testing.assert_array_equal(session.predict(), expected)
    assert len(server.engine.sessions) == 1


def test_an_estimate_is_not_that_of_the_scan_before(session, volume, monkeypatch):
    session.add_point(_centre(volume, 4, 10, 10))
    session.predict()
    session.set_volume(replace(volume, array=volume.array[::-1].copy()))
    session.add_point(_centre(volume, 4, 10, 10))
    second = PromptAnswer(_one(volume), 0.25, None)
    monkeypatch.setattr(FakeSession, "answer", lambda *_, **__: second)
    assert session.estimated_iou() == 0.25


def test_a_channel_is_chosen_here_and_after_a_rebuild(server):
    image = Volume(np.random.default_rng(1).normal(size=(2, 4, 20, 20)))
    with server.client() as client, RemoteSession(client) as remote:
        remote.set_volume(image, channel=1)
        remote.rebuild()
    assert [session.channel for session in server.engine.sessions] == [1, 1]


def test_cancelling_stops_the_computation_and_keeps_the_session(session, server, volume):
    session.add_point(_centre(volume, 4, 10, 10), segment="slow")
    seen: list[float] = []
    with pytest.raises(Cancelled):
        session.predict("slow", watch=Watch(lambda: len(seen) > 1, seen.append))
    assert 0 < seen[-1] < 1
    session.add_point(_centre(volume, 4, 10, 10))
    assert session.predict().any()


@pytest.mark.parametrize("newer", ["predict", "change", "volume", "cancel"])
def test_the_newest_request_wins(session, server, volume, asking, newer):
    session.add_point(_centre(volume, 4, 10, 10), segment="slow")
    older = asking(lambda: session.predict("slow"))
    if newer == "volume":
        session.set_volume(volume)
    elif newer == "cancel":
        session.cancel()
    else:
        if newer == "change":  # leaves the prediction to the next request
            session.add_point(_centre(volume, 4, 12, 12), segment="slow")
            session.undo()
            assert server.is_predicting(session._lease)
        threading.Thread(target=pytest.raises, args=(Cancelled, session.predict, "slow")).start()
    assert older.error(5) is Cancelled
    session.cancel()


def test_another_segment_does_not_cancel_a_prediction(session, volume, asking):
    session.add_point(_centre(volume, 4, 10, 10), segment="slow")
    session.add_point(_centre(volume, 4, 10, 10))
    first = asking(lambda: session.predict("slow"))
    second = threading.Thread(target=session.predict)
    second.start()
    time.sleep(0.1)
    assert first.is_alive()
    session.cancel("slow")
    assert first.error(5) is Cancelled
    second.join(5)


def test_a_request_about_one_patient_is_not_answered_with_the_scan_of_another(
    session, volume, monkeypatch
):
    """A click and an automatic segmentation, asked while another scan of the same size is sent."""
    session.add_point(_centre(volume, 4, 10, 10))
    prompts = session.prompts()
    sending, may_end, upload = threading.Event(), threading.Event(), session._upload

    def slow(*arguments):
        sending.set()
        may_end.wait(20)
        upload(*arguments)

    monkeypatch.setattr(session, "_upload", slow)
    other = replace(volume, array=volume.array[::-1].copy())
    opening = threading.Thread(target=session.set_volume, args=(other,))
    opening.start()
    assert sending.wait(20)
    requests = (lambda: session.answer(prompts), lambda: session.segment_automatically("organs"))
    started = [Asking(request) for request in requests]
    time.sleep(0.2)  # to be asked before the other scan has arrived
    may_end.set()
    opening.join(20)
    assert [request.error(20) for request in started] == [Cancelled, Cancelled]
    assert session.answer(prompts).mask.any()  # about the other scan, which it now is


def test_an_expired_session_is_opened_again_with_what_was_undone(session, server, volume):
    session.add_point(_centre(volume, 4, 5, 5))
    session.reset()
    session.add_point(_centre(volume, 4, 10, 10))
    expected = session.predict()
    session.add_point(_centre(volume, 4, 20, 20))
    session.undo()
    server.state.leases.release(session._lease)
    np.testing.assert_array_equal(session.predict(), expected)
    assert len(server.engine.sessions) == 2
    assert session.redo()
    assert session.predict().sum() > expected.sum()


def test_closing_frees_the_session_and_its_memory(serving, volume):
    server = serving(max_sessions=1)
    with server.client() as client:
        first = RemoteSession(client)
        first.set_volume(volume)
        with pytest.raises(ServiceError, match="All 1 sessions"):
            RemoteSession(client)
        first.close()
        first.close()
        with RemoteSession(client) as second:
            second.set_volume(volume)


def test_a_session_continues_on_another_server(serving, volume):
    first, second = serving(), serving()
    with first.client() as client, second.client() as other:
        session = RemoteSession(client, heartbeat_s=0.1)
        session.set_volume(volume)
        session.set_mask_prior(np.eye(28, dtype=bool)[None, :1].repeat(9, 0).repeat(30, 1), "2")
        session.add_box(_centre(volume, 1, 2, 3), _centre(volume, 5, 8, 9))
        expected = [session.predict("1"), session.predict("2")]
        first.stop()
        with pytest.raises(ServiceError):
            session.predict()
        session.rebuild(other)
        np.testing.assert_array_equal(session.predict("1"), expected[0])
        np.testing.assert_array_equal(session.predict("2"), expected[1])
        session.close()


@pytest.mark.parametrize(
    "ask",
    [
        lambda session, volume: session.set_volume(replace(volume, array=volume.array[::-1])),
        lambda session, volume: session.answer([MaskPrompt(_one(volume))]),
    ],
)
def test_the_wait_after_an_upload_ends_when_the_server_is_gone(session, volume, monkeypatch, ask):
    """A tunnel that has vanished leaves a connection that never answers."""
    call, may_end = session._client.call, threading.Event()

    def call_then_vanish(method, path, **options):
        if "array" not in options:
            return call(method, path, **options)
        list(options["array"])
        may_end.wait(60)
        raise Unreachable("gone")

    monkeypatch.setattr(session._client, "call", call_then_vanish)
    monkeypatch.setattr(Heartbeat, "is_server_alive", property(lambda self: may_end.is_set()))
    try:
        with pytest.raises(ServiceError, match="The server stopped"):
            ask(session, volume)
    finally:
        may_end.set()


def test_heartbeats_that_wait_behind_an_upload_do_not_count(session, volume, monkeypatch):
    """A slow network takes minutes to send a scan, and answers nothing else in that time."""
    call, heartbeat = session._client.call, session._heartbeat
    monkeypatch.setattr(session._client, "is_loopback", False)

    def call_slowly(method, path, **options):
        if "array" in options:
            heartbeat._unanswered = 1000
            while heartbeat._unanswered:
                time.sleep(0.01)
        return call(method, path, **options)

    monkeypatch.setattr(session._client, "call", call_slowly)
    session.set_volume(volume)


def test_a_scan_is_not_sent_to_a_host_that_is_lost(session, volume, monkeypatch):
    """Each part of it has 90 s to be sent, and none of the few bytes before."""
    sent: list[dict[str, object]] = []

    def lose(method, path, **options):
        sent.append(options)
        raise Unreachable("Nothing answers.")

    monkeypatch.setattr(session._client, "is_loopback", False)
    monkeypatch.setattr(session._client, "call", lose)
    with pytest.raises(Unreachable):
        session.set_volume(volume)
    assert not any("array" in options for options in sent)
