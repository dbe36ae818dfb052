"""Fixtures of the tests of the module: prompts, logic and panel."""

from collections.abc import Iterator
from typing import Any

import pytest
from bare_slicer import prepare

# Texts go through Slicer's translation, also in tests that ask for no scene.
prepare()


@pytest.fixture
def prompted(scene: Any) -> Iterator[Any]:
    """A scan, a segmentation with two segments and its prompts; see `PromptScene`."""
    from prompt_scene import PromptScene

    made = PromptScene()
    yield made
    made.prompts.close()


@pytest.fixture
def view(prompted: Any, sliceView: Any) -> Any:
    """A slice view of the scan, oblique to all its axes."""
    from prompt_scene import ORIENTATION

    made = sliceView("Red", ORIENTATION)
    made.show(prompted.volumeNode)
    prompted.letDraw(made)
    return made


@pytest.fixture
def axial(prompted: Any, sliceView: Any) -> Any:
    """An axial view of the scan."""
    made = sliceView("Red", "Axial")
    made.show(prompted.volumeNode)
    return made


@pytest.fixture
def made(slicerApp: Any) -> Iterator[Any]:
    """The logic on a small scan, with answers that a test gives; see `LogicScene`."""
    from scripted_worker import LogicScene

    made = LogicScene()
    yield made
    made.logic.close()


@pytest.fixture
def panel(loadModule: Any) -> Iterator[Any]:
    """The unmodified module's panel, with answers that a test gives; see `Panel`."""
    from panel_scene import Panel

    panel = Panel(loadModule)
    yield panel
    panel.close()


@pytest.fixture
def daily(loadModule: Any, sliceView: Any) -> Iterator[Any]:
    """The panel with a view, with an answered click; see `Daily`."""
    from daily_panel import Daily

    made = Daily(loadModule, sliceView)
    yield made
    made.close()


@pytest.fixture
def w(scene: Any) -> Any:
    """Scans and segmentations to write into; see `writing_scene`."""
    import writing_scene

    return writing_scene


@pytest.fixture
def writer(scene: Any) -> Any:
    from PUMITSegmentLib.segments.writer import SegmentWriter

    return SegmentWriter()
