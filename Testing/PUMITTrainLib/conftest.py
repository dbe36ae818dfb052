"""Fixtures of the tests of the training module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bare_slicer import prepare

# Texts go through Slicer's translation, also in tests that ask for no scene.
prepare()


@pytest.fixture
def train(scene: Any, tmp_path: Path) -> Iterator[Any]:
    """The logic on an empty scene, with programs that the test plays; see `TrainScene`."""
    from train_scene import TrainScene

    made = TrainScene(tmp_path / "runs")
    yield made
    made.close()
