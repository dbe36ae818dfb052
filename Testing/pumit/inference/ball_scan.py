"""A scan with a bright ball, in any orientation, and prompts on it."""

from typing import Any

import numpy as np
from pumit.inference.interactive.segmenter import Segmenter
from pumit.inference.interactive.session import InteractiveSession
from pumit.prompts import BoxPrompt, MaskPrompt, PointPrompt, ScribblePrompt
from pumit.volume import Volume

Opened = tuple[InteractiveSession, Volume]

SHAPE, SPACING = (12, 36, 44), (3.0, 1.0, 1.0)
BALL = (6, 17, 25)  # (d, h, w)


def rotation(degrees: tuple[float, float, float]) -> np.ndarray:
    matrix = np.eye(3)
    for axis, angle in enumerate(np.radians(degrees)):
        c, s = np.cos(angle), np.sin(angle)
        turn = np.eye(3)
        i, j = [k for k in range(3) if k != axis]
        turn[i, i], turn[j, j], turn[i, j], turn[j, i] = c, c, -s, s
        matrix = turn @ matrix
    return matrix


OBLIQUE = rotation((20.0, -35.0, 50.0))


def ball() -> np.ndarray:
    d, h, w = np.ogrid[tuple(slice(n) for n in SHAPE)]
    c = BALL
    return np.asarray(((d - c[0]) * 3.0) ** 2 + (h - c[1]) ** 2 + (w - c[2]) ** 2 < 11**2)


def scan(
    direction: np.ndarray | None = None, order: tuple[int, int, int] = (0, 1, 2)
) -> tuple[Volume, np.ndarray]:
    """A bright ball in noise and its mask, array axes in `order`, at one place in the world."""
    noise = np.random.default_rng(0).normal(0, 4, SHAPE)
    array = (100 * ball() + noise).astype(np.int16)
    direction = np.eye(3) if direction is None else direction
    # Columns are the W, H and D axes: reversed they follow the array's order.
    columns = direction[:, ::-1][:, list(order)][:, ::-1]
    spacing = tuple(SPACING[a] for a in order)
    volume = Volume(array.transpose(order), spacing, (-30.0, 12.0, 70.0), columns)  # type: ignore[arg-type]
    return volume, ball().transpose(order)


def session_on(volume: Volume, segmenter: Segmenter, **options: Any) -> InteractiveSession:
    session = InteractiveSession(segmenter)
    session.set_volume(volume, **options)
    return session


def at(volume: Volume, index: tuple[float, float, float]) -> tuple[float, float, float]:
    x, y, z = volume.index_to_world(index)
    return (x, y, z)


def box_of(
    volume: Volume, low: tuple[float, float, float], high: tuple[float, float, float]
) -> BoxPrompt:
    """The eight corners of a box along the volume's axes."""
    ends = list(zip(low, high, strict=True))
    corners = [at(volume, (d, h, w)) for d in ends[0] for h in ends[1] for w in ends[2]]
    return BoxPrompt(tuple(corners))


def many_prompts(volume: Volume) -> list[Any]:
    """One of each kind, and clicks near and far."""
    rng = np.random.default_rng(1)
    places = [tuple(rng.uniform(0, np.array(SHAPE) - 1)) for _ in range(3)]
    return [
        PointPrompt(at(volume, (1, 3, 5)), False),
        PointPrompt(at(volume, BALL)),
        *[PointPrompt(at(volume, p), bool(i % 2)) for i, p in enumerate(places)],  # type: ignore[arg-type]
        ScribblePrompt((at(volume, (5, 10, 20)), at(volume, (5, 20, 30)))),
        box_of(volume, (2, 8, 14), (9, 26, 36)),
        MaskPrompt(ball()),
        PointPrompt(at(volume, (6, 30, 8)), False),
    ]
