"""Fixtures of the tests of the training module."""

import os
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


@pytest.fixture
def pictures() -> Path:
    """Where the pictures of a tutorial go."""
    if "PUMIT_SCREENSHOTS" not in os.environ:
        pytest.skip("a real training takes minutes: set PUMIT_SCREENSHOTS to a folder")
    folder = Path(os.environ["PUMIT_SCREENSHOTS"])
    folder.mkdir(parents=True, exist_ok=True)
    return folder
