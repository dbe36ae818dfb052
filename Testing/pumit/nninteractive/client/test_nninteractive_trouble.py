"""An nnInteractive server that is full, refuses, fails, forgets or goes; the session continues."""

import time
from urllib.parse import urlsplit

import numpy as np
import pytest
from nninteractive_server import serve_nninteractive, start_nninteractive
from painting_session import painted, point
from pumit.errors import PromptError, ServiceError, VolumeError
from pumit.nninteractive.client.session import NNInteractiveSession
from pumit.volume import Volume
from pumit.wire.protocol import BusyError


def test_an_expired_session_is_opened_again_by_itself(volume):
    with (
        serve_nninteractive(idle_timeout_seconds=0.3, sweep_interval_seconds=0.05) as server,
        server.client() as client,
        NNInteractiveSession(client) as session,
    ):
        session.set_volume(volume)
        session.add_prompt(point(volume, 4, 10, 10))
        first = session.predict()
        time.sleep(0.8)
        np.testing.assert_array_equal(session.predict(), first)
        assert len(server.sessions) == 2  # what is known needs no server
        session.add_prompt(point(volume, 4, 20, 20))
        expected = painted(volume, ((4, 10, 10), True), ((4, 20, 20), True))
        np.testing.assert_array_equal(session.predict(), expected)
        assert len(server.sessions) == 3


def test_a_living_session_outlives_the_servers_patience_with_dead_ones(volume):
    with (
        serve_nninteractive(liveness_timeout_seconds=0.6, sweep_interval_seconds=0.05) as server,
        server.client() as client,
        NNInteractiveSession(client) as session,
    ):
        session.set_volume(volume)
        time.sleep(1.5)
        session.add_prompt(point(volume, 4, 10, 10))
        session.predict()
        assert len(server.sessions) == 2


def test_a_server_that_was_started_again_continues_with_all_prompts(volume):
    first = start_nninteractive()
    port = urlsplit(first.url).port
    try:
        with first.client() as client, NNInteractiveSession(client) as session:
            session.set_volume(volume)
            session.add_prompt(point(volume, 4, 10, 10))
            session.predict()
            first.stop()
            session.add_prompt(point(volume, 4, 20, 20))
            # Whichever notices first: the request, or the heartbeat.
            with pytest.raises(ServiceError, match=r"Nothing answers|server stopped"):
                session.predict()
            with serve_nninteractive(port=port) as second:
                expected = painted(volume, ((4, 10, 10), True), ((4, 20, 20), True))
                np.testing.assert_array_equal(session.predict(), expected)
                assert [entry[0] for entry in second.said] == ["point", "point"]
    finally:
        first.stop()


def test_a_session_continues_on_another_server(session, volume, theirs):
    session.add_prompt(point(volume, 4, 10, 10))
    expected = session.predict()
    with serve_nninteractive(license="MIT") as other, other.client() as client:
        session.rebuild(client)
        np.testing.assert_array_equal(session.predict(), expected)
        assert other.said == [("point", (4, 10, 10), True)]  # another model: sent again
        session.close()


def test_a_full_server_says_so_and_frees_the_place_of_who_left(volume):
    with serve_nninteractive(max_sessions=1) as server, server.client() as client:
        first = NNInteractiveSession(client)
        with pytest.raises(BusyError, match=r"at capacity \(1 sessions\)"):
            NNInteractiveSession(client)
        first.close()
        first.close()
        with NNInteractiveSession(client) as second:
            second.set_volume(volume)


@pytest.mark.parametrize(("key", "said"), [("", "asks for a token"), ("x", "not accept this")])
def test_a_missing_and_a_wrong_key_are_named(theirs, key, said):
    with theirs.client(key) as client, pytest.raises(ServiceError, match=said):
        NNInteractiveSession(client)


def test_what_the_server_refuses_is_said_in_its_words_and_the_session_goes_on(
    session, volume, theirs, monkeypatch
):
    def refuse(*_arguments, **_options):
        raise ValueError("No such thing.")

    with monkeypatch.context() as patch:
        patch.setattr(theirs.sessions[-1], "add_point_interaction", refuse)
        session.add_prompt(point(volume, 4, 10, 10))
        with pytest.raises(PromptError, match=r"No such thing\.$"):
            session.predict()
    assert session.predict().any()


def test_a_volume_that_the_server_refuses_leaves_the_earlier_one(
    session, volume, theirs, monkeypatch
):
    session.add_prompt(point(volume, 4, 10, 10))
    session.predict()

    def refuse(made, image, properties):
        made._reset_session()
        raise ValueError("Too large for this server.")

    with monkeypatch.context() as patch:
        patch.setattr(type(theirs.sessions[-1]), "set_image", refuse)
        with pytest.raises(VolumeError, match=r"rejected the request: Too large"):
            session.set_volume(Volume(np.random.default_rng(0).normal(size=(3, 4, 5))))
    session.add_prompt(point(volume, 4, 20, 20))
    expected = painted(volume, ((4, 10, 10), True), ((4, 20, 20), True))
    np.testing.assert_array_equal(session.predict(), expected)


def test_a_server_that_fails_is_one_sentence_and_the_session_goes_on(session, volume):
    session.add_prompt(point(volume, 4, 10, 10))
    session.predict()
    session.add_prompt(point(volume, 0, 0, 0))
    with pytest.raises(ServiceError, match=r"server failed \(HTTP 500\).*prompts are kept"):
        session.predict()
    session.undo()
    session.add_prompt(point(volume, 4, 20, 20))
    expected = painted(volume, ((4, 10, 10), True), ((4, 20, 20), True))
    np.testing.assert_array_equal(session.predict(), expected)
