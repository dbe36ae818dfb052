"""Fixtures of the tests of prompts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def prompted(scene: Any) -> Iterator[Any]:
    """A scan, a segmentation with two segments and its prompts; see `PromptScene`."""
    from prompt_scene import PromptScene

    made = PromptScene()
    yield made
    made.prompts.close()


@pytest.fixture(params=["axial", "sagittal", "coronal", "oblique"])
def view(request: pytest.FixtureRequest, prompted: Any, sliceView: Any) -> Any:
    """A slice view of the scan, in each orientation."""
    from prompt_scene import ORIENTATIONS

    made = sliceView("Red", ORIENTATIONS[request.param])
    made.show(prompted.volumeNode)
    prompted.letDraw(made)
    return made


@pytest.fixture
def axial(prompted: Any, sliceView: Any) -> Any:
    """An axial view of the scan."""
    made = sliceView("Red", "Axial")
    made.show(prompted.volumeNode)
    return made
