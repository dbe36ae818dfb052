"""Simulated users of a server, who open scans, click, think, undo, reset and leave.

Used by `bench_server.py`: PUMIT's own protocol through `RemoteSession`, and the nnInteractive
protocol through its published client.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt
from pumit.client.http_client import Client
from pumit.client.remote_session import RemoteSession
from pumit.volume import Volume

SHAPES = [(12, 64, 64), (16, 80, 72), (24, 64, 80), (24, 96, 96)]
THINK_S = 1.0
# Probabilities of a user's actions once a scan is open.
ACTIONS = {
    "click": 0.66,
    "box": 0.06,
    "scribble": 0.06,
    "undo": 0.1,
    "reset": 0.07,
    "scan": 0.05,
}

Index = tuple[int, int, int]


@dataclass(frozen=True)
class Request:
    """One request of a user.

    Attributes:
        protocol: `pumit`, `nninteractive`, or another name for connecting and monitoring.
        kind: The action.
        at_s: Start time since the start of the run.
        seconds: Duration.
        error: Error message; empty if it succeeded.
    """

    protocol: str
    kind: str
    at_s: float
    seconds: float
    error: str = ""


@dataclass
class Record:
    """All requests of all users so far."""

    begun: float = field(default_factory=time.monotonic)
    requests: list[Request] = field(default_factory=list)

    def time(self, protocol: str, kind: str, work: Callable[[], object]) -> bool:
        """Run work and record its duration; return False if it failed."""
        begun, error = time.monotonic(), ""
        try:
            work()
        except Exception as failure:  # any error is counted
            error = f"{type(failure).__name__}: {failure}"
        seconds = time.monotonic() - begun
        self.requests.append(Request(protocol, kind, begun - self.begun, seconds, error))
        return not error


def scan_of(rng: np.random.Generator) -> tuple[Volume, Index]:
    """Return a noisy scan with a bright blob, and the blob's centre."""
    shape = SHAPES[rng.integers(len(SHAPES))]
    middle = [int(rng.integers(n // 3, n - n // 3)) for n in shape]
    size = [max(3.0, n * rng.uniform(0.12, 0.22)) for n in shape]
    grid = np.ogrid[: shape[0], : shape[1], : shape[2]]
    blob = sum(((g - m) / s) ** 2 for g, m, s in zip(grid, middle, size, strict=True)) < 1
    voxels = rng.normal(0, 25, shape) + 150 * blob
    spacing = (float(rng.uniform(1, 4)), 0.9, 0.9)
    return Volume(voxels.astype(np.int16), spacing), (middle[0], middle[1], middle[2])


class User(Protocol):
    """One client of either protocol."""

    protocol: str

    def open(self, volume: Volume) -> None:
        """Send a scan."""

    def click(self, place: Index, is_positive: bool) -> npt.NDArray[np.bool_]:
        """Click and wait for the answer."""

    def box(self, low: Index, high: Index) -> npt.NDArray[np.bool_]:
        """Draw a box and wait for the answer."""

    def scribble(self, places: list[Index]) -> npt.NDArray[np.bool_]:
        """Draw a stroke and wait for the answer."""

    def undo(self) -> None:
        """Undo the last prompt."""

    def reset(self) -> None:
        """Reset all prompts."""

    def leave(self, *, politely: bool) -> None:
        """Release the session, or vanish."""


class OwnUser:
    """PUMIT's own client."""

    protocol = "pumit"

    def __init__(self, url: str, token: str) -> None:
        self._session = RemoteSession(Client(url, token))

    @property
    def session(self) -> RemoteSession:
        """The session, whose prompts and answers can be compared with the library's."""
        return self._session

    def open(self, volume: Volume) -> None:
        """Send a scan."""
        self._session.set_volume(volume)

    def click(self, place: Index, is_positive: bool) -> npt.NDArray[np.bool_]:
        """Click and wait for the answer."""
        self._session.add_point(self._point(place), positive=is_positive)
        return self._session.predict()

    def box(self, low: Index, high: Index) -> npt.NDArray[np.bool_]:
        """Draw a box and wait for the answer."""
        corners = np.stack([self._point(low), self._point(high)])
        self._session.add_box(tuple(corners.min(0)), tuple(corners.max(0)))
        return self._session.predict()

    def scribble(self, places: list[Index]) -> npt.NDArray[np.bool_]:
        """Draw a stroke and wait for the answer."""
        self._session.add_scribble([self._point(place) for place in places])
        return self._session.predict()

    def undo(self) -> None:
        """Undo the last prompt."""
        self._session.undo()

    def reset(self) -> None:
        """Reset all prompts."""
        self._session.reset()

    def leave(self, *, politely: bool) -> None:
        """Release the session, or vanish."""
        if politely:
            self._session.close()
        else:
            self._session._heartbeat.stop()

    def _point(self, place: Index) -> tuple[float, float, float]:
        x, y, z = self._session.volume.index_to_world(place).tolist()
        return (x, y, z)


class PublishedUser:
    """The published client of the nnInteractive protocol."""

    protocol = "nninteractive"

    def __init__(self, url: str, token: str) -> None:
        from nnInteractive.inference.remote import nnInteractiveRemoteInferenceSession

        self._session = nnInteractiveRemoteInferenceSession(url, api_key=token)

    def open(self, volume: Volume) -> None:
        """Send a scan."""
        self._session.set_image(volume.array[None], {"spacing": list(volume.spacing_mm)})
        self._session.set_target_buffer(np.zeros(volume.shape, np.uint8))

    def click(self, place: Index, is_positive: bool) -> npt.NDArray[np.bool_]:
        """Click and wait for the answer."""
        self._session.add_point_interaction(list(place), is_positive)
        return self._mask()

    def box(self, low: Index, high: Index) -> npt.NDArray[np.bool_]:
        """Draw a box on one slice and wait for the answer."""
        middle = (low[0] + high[0]) // 2
        spans = [[middle, middle + 1], [low[1], high[1] + 1], [low[2], high[2] + 1]]
        self._session.add_bbox_interaction(spans, True)
        return self._mask()

    def scribble(self, places: list[Index]) -> npt.NDArray[np.bool_]:
        """Draw a stroke and wait for the answer."""
        drawn = np.zeros(self._session.target_buffer.shape, np.uint8)
        drawn[tuple(np.array(places).T)] = 1
        self._session.add_scribble_interaction(drawn, True)
        return self._mask()

    def undo(self) -> None:
        """Undo the last prompt."""
        self._session.undo()

    def reset(self) -> None:
        """Reset all prompts."""
        self._session.reset_interactions()

    def leave(self, *, politely: bool) -> None:
        """Release the session, or vanish."""
        if not politely:
            self._session._lease_token = None  # so that `close` cannot release the lease
        self._session.close()

    def _mask(self) -> npt.NDArray[np.bool_]:
        mask: npt.NDArray[np.bool_] = self._session.target_buffer > 0
        return mask


class Visit:
    """A user's scan, number of prompts and random choices.

    Args:
        user: The client.
        seed: Seed of all random choices.
    """

    def __init__(self, user: User, seed: int) -> None:
        self.user = user
        self._rng = np.random.default_rng(seed)
        self._volume, self._middle = scan_of(self._rng)
        self._prompts = 0

    def think(self, stop: threading.Event) -> str:
        """Wait like a user, and choose the next action."""
        stop.wait(float(self._rng.exponential(THINK_S)))
        kind = str(self._rng.choice(list(ACTIONS), p=list(ACTIONS.values())))
        return "click" if self._prompts == 0 and kind in ("undo", "reset") else kind

    def open(self) -> None:
        """Send the scan."""
        self.user.open(self._volume)

    def do(self, kind: str) -> None:
        """Do one of `ACTIONS`.

        Raises:
            AssertionError: If the mask has another shape than the scan.
        """
        if kind == "scan":
            self._volume, self._middle = scan_of(self._rng)
            self._prompts = 0
            self.open()
        elif kind == "undo":
            self._prompts -= 1
            self.user.undo()
        elif kind == "reset":
            self._prompts = 0
            self.user.reset()
        else:
            mask = self._prompt(kind)
            self._prompts += 1
            if mask.shape != self._volume.shape:
                raise AssertionError("a mask of another scan")

    def _prompt(self, kind: str) -> npt.NDArray[np.bool_]:
        shape = self._volume.shape
        if kind == "box":
            low, high = (_shift(self._middle, shape, (s, s, s)) for s in (-8, 8))
            return self.user.box(low, high)
        if kind == "scribble":
            steps = range(-4, 5)
            return self.user.scribble([_shift(self._middle, shape, (0, 0, s)) for s in steps])
        # The first prompt is positive; later ones correct.
        is_positive = self._prompts == 0 or bool(self._rng.random() < 0.7)
        a, b, c = self._rng.integers(-2, 3, 3) * (1 if is_positive else 6)
        return self.user.click(_shift(self._middle, shape, (a, b, c)), is_positive)


def use(
    make: Callable[[], User],
    record: Record,
    *,
    seed: int,
    until_s: float,
    politely: bool = True,
    stop: threading.Event,
) -> User | None:
    """Act like a user until the time is over.

    Args:
        make: Opens the client.
        record: Record of the requests.
        seed: Seed of this user.
        until_s: Time to leave, seconds since the start of the run.
        politely: Whether to leave the client open for the caller; otherwise it vanishes.
        stop: Set when all users should leave.

    Returns:
        The client if it is still open, else None.
    """
    made: list[User] = []
    if not record.time("any", "connect", lambda: made.append(make())):
        return None
    (user,) = made
    visit = Visit(user, seed)
    record.time(user.protocol, "scan", visit.open)
    while not stop.is_set() and time.monotonic() - record.begun < until_s:
        kind = visit.think(stop)
        record.time(user.protocol, kind, partial(visit.do, kind))
    if politely:
        return user
    user.leave(politely=False)
    return None


def _shift(place: Index, shape: Index, steps: Sequence[int]) -> Index:
    d, h, w = (int(min(max(p + s, 0), n - 1)) for p, s, n in zip(place, steps, shape, strict=True))
    return (d, h, w)
