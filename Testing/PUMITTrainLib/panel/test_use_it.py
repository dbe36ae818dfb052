"""Use it: from a finished training to PUMIT Segment, with both modules open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import slicer
from panel_scene import Panel
from pumit.runs import RunStatus, write_status
from train_module import TrainModule


@pytest.fixture
def segment(loadModule: Any, mainWindow: Any) -> Iterator[Panel]:
    """The other module, with a scan; it is not shown."""
    panel = Panel(loadModule)
    panel.load()
    panel.gui.exit()
    panel.ui.automaticSection.collapsed = True
    yield panel
    panel.close()


def finish(module: TrainModule, task: str) -> None:
    """A training has ended with a model that the index knows."""
    folder = module.root / "run"
    folder.mkdir(parents=True)
    status = RunStatus(
        "finished", name="hearts", task=task, model="hearts.safetensors", registered="hearts-2"
    )
    write_status(folder, status)
    module.logic.runs.select(folder)
    module.poll()
    module.process()


def test_a_model_for_better_clicks_answers_the_next_click(
    segment: Panel, module: TrainModule
) -> None:
    finish(module, "promptable")
    module.press(module.ui.useButton)
    module.answerModels()
    assert slicer.util.selectedModule() == "PUMITSegment"
    assert segment.logic.compute.settings.model == "hearts-2"
    selector = segment.ui.modelSelector
    assert selector.itemData(selector.currentIndex) == "hearts-2"
    assert segment.status == "hearts-2 answers the prompts now: choose Point and click."


def test_a_model_that_segments_by_itself_is_chosen_where_it_runs(
    segment: Panel, module: TrainModule
) -> None:
    finish(module, "segmentation")
    module.press(module.ui.useButton)
    module.answerModels()
    assert slicer.util.selectedModule() == "PUMITSegment"
    assert not segment.ui.automaticSection.collapsed
    assert segment.logic.parameters.automaticModel == "hearts-2"
    assert segment.status == "hearts-2 is chosen in section 4: press Segment to run it."


@pytest.mark.parametrize("answer", [{"state": "lost"}, {"status": 2}], ids=["file", "index"])
def test_a_model_that_was_deleted_is_not_said_to_answer(
    segment: Panel, module: TrainModule, answer: dict[str, Any]
) -> None:
    finish(module, "promptable")
    before = segment.status
    module.press(module.ui.useButton)
    module.answerModels(**answer)
    assert segment.logic.compute.settings.model == "default"
    assert segment.status == before
    assert module.status == (
        "The model hearts-2 was deleted from this machine; import it from an exported file, or "
        "train again."
    )
    assert module.ui.useButton.enabled
