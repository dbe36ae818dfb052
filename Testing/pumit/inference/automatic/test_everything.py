"""What stands out is found by itself: each once, the largest first, inside the region."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from pumit.errors import Cancelled
from pumit.inference.automatic import everything
from pumit.inference.automatic.everything import (
    _distinct,
    _MaskBox,
    _painted,
    body_mask,
    segment_everything,
)
from pumit.inference.engine.engine import Engine
from pumit.inference.interactive.segmenter import Segmenter
from pumit.inference.interactive.session import InteractiveSession
from pumit.prompts import BoxPrompt
from pumit.system.watch import Watch
from pumit.volume import Volume
from scipy.ndimage import label as components


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {"POINTS_PER_SIDE": 8, "LEVELS": 1, "MIN_IOU": 0.5, "MAX_CONTACT": 1.0}
    for name, value in (chosen | {"MAX_SHARE": 1.0}).items():
        monkeypatch.setattr(everything, name, value)


class AroundTheClick:
    """Answers with the bright component under the click, and doubts what is dark."""

    def __init__(self, inner: Engine) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def decode(self, embedding: object, prompts: object) -> tuple[np.ndarray, np.ndarray]:
        bright = embedding.image[0, 0].numpy() > 0.5  # type: ignore[attr-defined]
        parts, _ = components(bright)
        d, h, w = np.rint(prompts.points[0]).astype(int)  # type: ignore[attr-defined]
        hit = parts[d, h, w]
        mask = (parts == hit) & (hit > 0)
        logits = np.where(mask, 8.0, -8.0).astype(np.float32)[None]
        return logits, np.array([0.9 if hit else 0.0])


def balls() -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    d, h, w = np.indices((40, 44, 48))
    big = (d - 14) ** 2 + (h - 15) ** 2 + (w - 16) ** 2 < 9**2
    small = (d - 28) ** 2 + (h - 30) ** 2 + (w - 33) ** 2 < 6**2
    return big, small


@pytest.fixture
def session(bright_segmenter: Segmenter) -> InteractiveSession:
    big, small = balls()
    array = np.where(big | small, 200.0, 50.0) + np.random.default_rng(0).normal(0, 2, big.shape)
    engine: Any = AroundTheClick(bright_segmenter.engine)
    session = InteractiveSession(replace(bright_segmenter, engine=engine))
    session.set_volume(Volume(array.astype(np.float32)))
    return session


def test_two_balls_become_two_structures_the_larger_first(session, monkeypatch):
    answer = segment_everything(session)
    assert [c.name for c in answer.classes] == ["Structure 1", "Structure 2"]
    for number, ball in enumerate(balls(), start=1):
        found = answer.labels == number
        assert 2 * (found & ball).sum() / (found.sum() + ball.sum()) > 0.9
    assert session.segments == []
    monkeypatch.setattr(everything, "MAX_SEGMENTS", 1)
    assert segment_everything(session).labels.max() == 1


def test_a_damaged_header_costs_no_memory(session):
    damaged = replace(session.volume, spacing_mm=(1e9, 1e-6, 1e-6))
    session.set_volume(damaged)
    assert segment_everything(session).labels.shape == damaged.shape


def test_each_very_thick_slice_is_searched(session):
    disc = balls()[0][14]
    array = np.where(disc, 200.0, 50.0) + np.random.default_rng(0).normal(0, 2, (5, *disc.shape))
    volume = Volume(array.astype(np.float32), (50.0, 1.0, 1.0))
    session.set_volume(volume)
    found = segment_everything(session).labels
    assert [bool((plane > 0)[disc].mean() > 0.9) for plane in found] == [True] * 5
    ends = [volume.index_to_world(index) for index in ((3.7, 0, 0), (4.3, 43, 47))]
    corners = BoxPrompt.from_bounds(*ends).corners_lps
    found = segment_everything(session, roi_corners_lps=corners).labels
    assert [bool(plane.any()) for plane in found] == [False] * 4 + [True]


def test_a_smaller_segment_lies_on_top_unless_it_is_mostly_the_same(monkeypatch):
    def found(start: int, size: int, score: float) -> _MaskBox:
        return _MaskBox((slice(start, start + size),) * 3, np.ones((size,) * 3, bool), score)

    good, same, other, crumb = (
        found(0, 10, 0.9),
        found(1, 10, 0.8),
        found(8, 6, 0.7),
        found(15, 1, 0.6),
    )
    monkeypatch.setattr(everything, "MIN_VOXELS", 5)
    kept = _distinct([other, crumb, same, good])
    assert kept == [good, other, crumb]
    labels = _painted(kept, np.ones((16, 16, 16), dtype=bool))
    assert [(labels == number).sum() for number in (1, 2, 3)] == [1000 - 8, 216, 0]
    assert _distinct([good, found(1, 4, 0.5)]) == [good]


def test_a_region_holds_the_answer(session):
    _, small = balls()
    low, high = (np.argwhere(small).min(0) - 2), (np.argwhere(small).max(0) + 2)
    bounds = np.stack([low, high])
    index = np.stack(np.meshgrid(*bounds.T, indexing="ij"), -1).reshape(-1, 3)
    corners = session.volume.index_to_world(index)
    answer = segment_everything(session, roi_corners_lps=corners)
    assert len(answer.classes) == 1
    where = np.argwhere(answer.labels)
    assert (where >= low).all()
    assert (where <= high).all()


def test_progress_rises_to_one_and_cancelling_stops(session):
    seen: list[float] = []
    segment_everything(session, watch=Watch(progress=seen.append))
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    shares: list[float] = []
    with pytest.raises(Cancelled):
        segment_everything(session, watch=Watch(lambda: len(shares) >= 3, shares.append))
    assert len(shares) == 3


def test_the_body_has_no_holes_and_no_air(session):
    _, h, w = np.indices((20, 60, 60))
    body = (h - 30) ** 2 + (w - 28) ** 2 < 22**2
    lung = (h - 30) ** 2 + (w - 20) ** 2 < 8**2
    array = np.where(body & ~lung, 40.0, -900.0)
    array += np.random.default_rng(1).normal(0, 10, array.shape)
    session.set_volume(Volume(array.astype(np.float32)))
    found = body_mask(session.solver)
    assert np.mean(found == body) > 0.95
    assert found[10, 30, 20]
