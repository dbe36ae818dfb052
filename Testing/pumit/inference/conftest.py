"""A session on the ball."""

import pytest
from ball_scan import Opened, scan, session_on
from pumit.inference.interactive.segmenter import Segmenter


@pytest.fixture
def opened(tiny_segmenter: Segmenter) -> Opened:
    """A session of the tiny network on the ball."""
    volume, _ = scan()
    session = session_on(volume, tiny_segmenter)
    return session, volume
