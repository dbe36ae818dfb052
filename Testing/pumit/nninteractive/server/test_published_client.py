"""The published nnInteractive client, which no one here wrote, drives whole sessions."""

from collections.abc import Iterator

import numpy as np
import pytest
from loopback_server import TOKEN, Running

remote = pytest.importorskip(
    "nnInteractive.inference.remote", reason="nninteractive-client is not installed"
)
httpx = pytest.importorskip("httpx")

SHAPE = (12, 40, 36)
SPACING = (3.0, 1.0, 0.8)


@pytest.fixture(scope="module")
def image():
    """A bright ball in noise, (1, D, H, W)."""
    z, y, x = np.ogrid[:12, :40, :36]
    ball = ((z - 6) * 3) ** 2 + (y - 20) ** 2 + ((x - 18) * 0.8) ** 2 < 11**2
    noise = np.random.default_rng(0).normal(0, 8, size=SHAPE)
    return (noise + 100 * ball).astype(np.float32)[None]


@pytest.fixture
def connect() -> Iterator:
    """Open the published client's sessions; they end with the test."""
    opened = []

    def make(url: str, image=None, *, api_key: str = TOKEN):
        session = remote.nnInteractiveRemoteInferenceSession(url, api_key=api_key)
        opened.append(session)
        if image is not None:
            session.set_image(image, {"spacing": np.array(SPACING)})
            session.set_target_buffer(np.zeros(image.shape[1:], np.uint8))
        return session

    yield make
    for session in opened:
        session.close()


@pytest.fixture
def session(server: Running, connect, image):
    return connect(server.url, image)


def test_it_learns_what_the_server_can(session):
    assert all(session.supported_interactions[kind] for kind in ("points", "bbox2d", "lasso"))
    assert session.supports_undo
    assert session.channel_mapping["points"] == (3, 4)
    assert session.INFERENCE_SESSION_VERSION == "2.6.0"
    assert session.original_image_shape == (1, *SHAPE)
    assert session.ping()
    assert session.heartbeat() > 0
    assert session.lease_status()["idle_timeout_seconds"] == session.idle_timeout_seconds


def test_a_whole_session_paints_undoes_and_begins_again(session):
    changed = session.add_point_interaction([6, 20, 18], True)
    assert changed == [[4, 9], [18, 23], [16, 21]]
    clicked = session.target_buffer.copy()
    assert clicked.sum() == 125
    session.add_bbox_interaction([[6, 7], [2, 9], [3, 11]], True)
    assert session.target_buffer[6, 2:9, 3:11].all()
    stroke = np.zeros(SHAPE, np.uint8)
    stroke[9, 10:30, 5] = 1
    session.add_scribble_interaction(stroke, True)
    assert (session.target_buffer[9, 10:30, 5]).any()
    area = np.ones((1, 7, 7), np.uint8)
    session.add_lasso_interaction(area, True, interaction_bbox=[[1, 2], [30, 37], [20, 27]])
    assert session.target_buffer[1].any()
    for _ in range(3):
        assert session.undo()
    np.testing.assert_array_equal(session.target_buffer, clicked)
    assert session.undo()
    assert not session.undo()
    assert not session.target_buffer.any()
    session.add_initial_seg_interaction(clicked, run_prediction=False)
    assert session.add_point_interaction([1, 5, 5], True, run_prediction=False) is None
    assert session._predict() is not None
    assert session._predict() is None
    assert session.target_buffer[6, 20, 18]
    assert session.target_buffer[1, 5, 5]
    session.reset_interactions()
    assert not session.target_buffer.any()
    assert not session.undo()


def test_two_sessions_at_once_know_nothing_of_each_other(server, connect, image):
    first, second = connect(server.url, image), connect(server.url, image[:, :, ::-1])
    first.add_point_interaction([6, 20, 18], True)
    second.add_point_interaction([2, 4, 4], True)
    assert first.target_buffer[6, 20, 18]
    assert not first.target_buffer[2, 4, 4]
    assert not second.target_buffer[6, 20, 18]
    assert first.undo()
    assert not first.target_buffer.any()
    assert second.target_buffer.any()


def test_refusals_arrive_as_the_client_knows_them(serving, connect, image):
    server = serving(max_sessions=1)
    with pytest.raises(httpx.HTTPStatusError, match="401"):
        connect(server.url, api_key="wrong-token-wrong-token")
    session = connect(server.url, image)
    with pytest.raises(remote.ServerAtCapacityError, match="sessions"):
        connect(server.url)
    with pytest.raises(httpx.HTTPStatusError, match="400"):
        session.add_point_interaction([100, 0, 0], True)
    with pytest.raises(httpx.HTTPStatusError, match="400"):
        session.set_image(np.full((1, 4, 4, 4), 7.0), {})
    session.close()
    connect(server.url, image).add_point_interaction([6, 20, 18], True)


def test_an_expired_lease_is_reported_and_a_new_one_goes_on(server, session, connect, image):
    session.add_point_interaction([6, 20, 18], True)
    kept = session.target_buffer.copy()
    (lease,) = server.state.leases.open_leases()
    lease.active_at -= 1000
    server.state.leases.sweep()
    with pytest.raises(remote.SessionExpiredError):
        session.add_point_interaction([6, 20, 18], True)
    again = connect(server.url, image)
    again.add_initial_seg_interaction(kept, run_prediction=False)
    again.add_point_interaction([2, 4, 4], True)
    assert again.target_buffer[6, 20, 18]
    assert again.target_buffer[2, 4, 4]
