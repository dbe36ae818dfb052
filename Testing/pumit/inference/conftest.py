"""A session on the ball."""

from __future__ import annotations

import pytest
from ball_scan import scan, session_on
from pumit.inference.interactive.segmenter import Segmenter
from pumit.inference.interactive.session import InteractiveSession
from pumit.volume import Volume


@pytest.fixture
def opened(tiny_segmenter: Segmenter) -> tuple[InteractiveSession, Volume]:
    """A session of the tiny network on the ball."""
    volume, _ = scan()
    session = session_on(volume, tiny_segmenter)
    return session, volume
