"""The model that ships finds the organs of the generated scan."""

from typing import Any

import numpy as np
import pytest
from ball_scan import box_of, session_on
from pumit.evaluation.metrics import dice
from pumit.inference.interactive.segmenter import Segmenter
from pumit.inference.interactive.session import InteractiveSession
from pumit.training.synthesis.phantom import torso_phantom


@pytest.fixture(scope="module")
def phantom_session(default_segmenter: Segmenter) -> tuple[InteractiveSession, Any]:
    phantom = torso_phantom()
    session = session_on(phantom.volume, default_segmenter)
    return session, phantom


# A floor that a broken path misses and an honest model clears, organ by organ.
FLOORS = {"liver": 0.5, "left kidney": 0.4}


@pytest.mark.slow
@pytest.mark.parametrize("organ", FLOORS)
def test_one_click_with_the_default_model(phantom_session, organ):
    session, phantom = phantom_session
    session.add_point(phantom.centre_lps(organ), segment=organ)
    assert dice(session.predict(organ), phantom.masks[organ]) > FLOORS[organ]


@pytest.mark.slow
def test_one_box_with_the_default_model(phantom_session):
    session, phantom = phantom_session
    where = np.argwhere(phantom.masks["left kidney"])
    low, high = tuple(where.min(0)), tuple(where.max(0))
    session.add_prompt(box_of(phantom.volume, low, high), "box")  # type: ignore[arg-type]
    assert dice(session.predict("box"), phantom.masks["left kidney"]) > 0.7


@pytest.mark.slow
def test_corrections_do_not_make_it_worse_with_the_default_model(phantom_session):
    from pumit.evaluation.simulated_user import dice_after_clicks

    session, phantom = phantom_session
    session.reset()
    scores, _ = dice_after_clicks(session, phantom.masks["spleen"], 3)
    assert scores[0] > 0.5
    assert max(scores[1:]) >= scores[0]
    assert scores[-1] > 0.6
