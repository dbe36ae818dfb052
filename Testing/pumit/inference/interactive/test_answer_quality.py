"""A word on an answer comes from evidence about it, and from none where none was measured."""

import numpy as np
import pytest
from ball_scan import BALL, Opened, at, box_of, scan, session_on
from pumit.inference.interactive import session as session_module
from pumit.inference.interactive.segmenter import Segmenter
from pumit.models.overlap import OverlapModel
from pumit.prompts import PointPrompt, ScribblePrompt
from pumit.volume import Volume
from scipy import ndimage


@pytest.fixture
def measured(bright_segmenter: Segmenter, monkeypatch: pytest.MonkeyPatch) -> Segmenter:
    """A model that finds what is bright, and of whose answers something is known."""
    known = {bright_segmenter.sha256: OverlapModel({"constant": 2.0}, 0.85, 0.6, 0.4)}
    monkeypatch.setattr(session_module, "overlap_models", lambda: known)
    return bright_segmenter


def opened(segmenter: Segmenter) -> Opened:
    volume, _ = scan()
    session = session_on(volume, segmenter)
    return session, volume


def test_an_answer_to_clicks_has_a_word_next_to_the_number(measured):
    session, volume = opened(measured)
    session.add_point(at(volume, BALL))
    answer = session.answer(session.prompts())
    assert answer.expected_dice == pytest.approx(1 / (1 + np.exp(-2.0)))
    assert answer.quality == session.quality() == "good"


def test_other_prompts_other_weights_and_images_have_none(measured, bright_segmenter, monkeypatch):
    session, volume = opened(measured)
    session.add_prompt(box_of(volume, (2, 8, 14), (9, 26, 36)))
    assert (session.expected_dice(), session.quality()) == (None, None)
    session.reset()
    session.add_prompt(ScribblePrompt((at(volume, BALL), at(volume, (6, 18, 26))), True))
    assert session.quality() is None
    flat = Volume(volume.array[5:6], (1.0, 1.0, 1.0))
    session.set_volume(flat)
    session.add_point(at(flat, (0, *BALL[1:])))
    assert session.quality() is None
    monkeypatch.setattr(session_module, "overlap_models", dict)
    session, volume = opened(bright_segmenter)
    session.add_point(at(volume, BALL))
    assert session.answer(session.prompts()).quality is None


def test_evidence_is_what_it_says(measured):
    session, volume = opened(measured)
    session.add_point(at(volume, BALL))
    mask = session.predict()
    (point,) = session.prompts()
    first = session.evidence([point])
    assert first.agreement is None
    assert first.voxels == int(mask.sum())
    in_slice = np.array([[0, 1, 0], [1, 1, 1], [0, 1, 0]])[None]
    rim = mask & ~ndimage.binary_erosion(mask, in_slice)
    assert first.width == pytest.approx(2 * mask.sum() / rim.sum())
    outside = PointPrompt(at(volume, (6, 18, 39)), False)
    later = session.answer([point, outside]).mask
    second = session.evidence([point, outside])
    both = 2 * (mask & later).sum() / (mask.sum() + later.sum())
    assert second.agreement == pytest.approx(both, abs=0.01)
    assert 0 <= second.doubt < 1
    # Clicks that come before the first inside give nothing to agree with.
    turned = session.evidence([outside, point])
    assert turned.agreement is None
