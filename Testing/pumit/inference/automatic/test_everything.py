"""What stands out is found by itself: each once, the largest first, inside the region."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from pumit.errors import Cancelled
from pumit.inference.automatic.everything import (
    EverythingSettings,
    _distinct,
    _MaskBox,
    _painted,
    body_mask,
    segment_everything,
    stability,
)
from pumit.inference.interactive.segmenter import Segmenter
from pumit.inference.interactive.session import InteractiveSession
from pumit.system.watch import Watch
from pumit.volume import Volume
from scipy.ndimage import label as components

SETTINGS = EverythingSettings(8, 1, min_iou=0.5, max_contact=1.0, max_share=1.0)


class AroundTheClick:
    """Answers with the bright component under the click, and doubts what is dark."""

    def __init__(self, inner: Segmenter) -> None:
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
    session = InteractiveSession(AroundTheClick(bright_segmenter))  # type: ignore[arg-type]
    session.set_volume(Volume(array.astype(np.float32)))
    return session


def test_two_balls_become_two_structures_the_larger_first(session: InteractiveSession) -> None:
    answer = segment_everything(session, settings=SETTINGS)
    assert [c.name for c in answer.classes] == ["Structure 1", "Structure 2"]
    for number, ball in enumerate(balls(), start=1):
        found = answer.labels == number
        assert 2 * (found & ball).sum() / (found.sum() + ball.sum()) > 0.9
    assert session.segments == []


def test_a_region_holds_the_answer(session: InteractiveSession) -> None:
    _, small = balls()
    low, high = (np.argwhere(small).min(0) - 2), (np.argwhere(small).max(0) + 2)
    bounds = np.stack([low, high])
    index = np.stack(np.meshgrid(*bounds.T, indexing="ij"), -1).reshape(-1, 3)
    corners = session.volume.index_to_world(index)
    answer = segment_everything(session, roi_corners_lps=corners, settings=SETTINGS)
    assert len(answer.classes) == 1
    where = np.argwhere(answer.labels)
    assert (where >= low).all()
    assert (where <= high).all()


def test_progress_rises_to_one_and_cancelling_stops(session: InteractiveSession) -> None:
    seen: list[float] = []
    segment_everything(session, settings=SETTINGS, watch=Watch(progress=seen.append))
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    shares: list[float] = []
    with pytest.raises(Cancelled):
        segment_everything(
            session,
            settings=SETTINGS,
            watch=Watch(lambda: len(shares) >= 3, shares.append),
        )
    assert len(shares) == 3


def test_a_segment_count_is_kept(session: InteractiveSession) -> None:
    few = replace(SETTINGS, max_segments=1)
    assert segment_everything(session, settings=few).labels.max() == 1


def test_stability_compares_a_stricter_and_a_looser_cut() -> None:
    logits = np.array([-3.0, -0.5, 0.5, 3.0, 4.0])
    assert stability(logits) == 2 / 4
    assert stability(np.full((4,), -9.0)) == 0.0


def test_of_masks_that_overlap_much_the_better_stays() -> None:
    def found(start: int, score: float) -> _MaskBox:
        return _MaskBox(np.array([start, 0, 0]), np.ones((10, 10, 10), dtype=bool), score)

    good, same, other = found(0, 0.9), found(2, 0.8), found(8, 0.7)
    assert good.shared(same) == 800
    assert good.shared(found(20, 0.1)) == 0
    assert _distinct([other, same, good], SETTINGS) == [good, other]
    part = _MaskBox(np.array([1, 1, 1]), np.ones((4, 4, 4), dtype=bool), 0.5)
    assert _distinct([good, part], SETTINGS) == [good]
    assert _distinct([good, part], replace(SETTINGS, max_inside=1.0)) == [good, part]


def test_a_smaller_segment_lies_on_top_and_crumbs_vanish() -> None:
    allowed = np.ones((10, 10, 10), dtype=bool)
    whole = _MaskBox(np.array([0, 0, 0]), np.ones((6, 6, 6), dtype=bool), 0.5)
    part = _MaskBox(np.array([1, 1, 1]), np.ones((3, 3, 3), dtype=bool), 0.9)
    crumb = _MaskBox(np.array([9, 9, 9]), np.ones((1, 1, 1), dtype=bool), 0.9)
    labels = _painted([crumb, part, whole], allowed, min_voxels=5)
    assert labels.max() == 2
    assert (labels == 2).sum() == 27
    assert (labels == 1).sum() == 216 - 27


def test_the_body_has_no_holes_and_no_air(session: InteractiveSession) -> None:
    _, h, w = np.indices((20, 60, 60))
    body = (h - 30) ** 2 + (w - 28) ** 2 < 22**2
    lung = (h - 30) ** 2 + (w - 20) ** 2 < 8**2
    array = np.where(body & ~lung, 40.0, -900.0)
    array += np.random.default_rng(1).normal(0, 10, array.shape)
    session.set_volume(Volume(array.astype(np.float32)))
    found = body_mask(session.solver)
    assert np.mean(found == body) > 0.95
    assert found[10, 30, 20]
