"""A training of its own process, on generated scans of the scene: killed, taken up, stopped."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import slicer
from labelled_scans import TINY_SIZES, ball_and_box
from pumit.runs import list_runs, read_status
from PUMITSlicerLib.computing.python_executable import SlicerPython
from PUMITTrainLib.processes import DetachedLauncher
from train_scene import TrainScene


def addGenerated(train: Any, count: int) -> None:
    """Cases of the scene with a ball and a box, in the list."""
    for number in range(count):
        image, labels = ball_and_box(number)
        node = slicer.util.addVolumeFromArray(image)
        node.SetName(f"made {number}")
        node.SetSpacing(1.0, 1.0, 2.0)
        masks = {"ball": labels == 1, "box": labels == 2}
        assert all(np.any(mask) for mask in masks.values())
        train.addSegmentation(node, f"labels {number}", **masks)
    assert train.logic.cases.addAllOffered() == count


def tinyRecipe(config: dict[str, Any], **schedule: Any) -> str:
    """A recipe for the request to `pumit plan`, with a network that is very small."""
    data = {k: v for k, v in config["data"].items() if k != "validation"}
    data["classes"] = [{"name": "ball", "value": 1}, {"name": "box", "value": 2}]
    recipe = {
        "name": "made",
        "task": "segmentation",
        "network_sizes": TINY_SIZES,
        "data": data,
        "plan": {"patch_size": [16, 32, 32], "batch_size": 1},
        "device": "cpu",
        "threads": 1,
        "register": False,
        "schedule": {
            "steps": 5000,
            "log_every": 1,
            "validate_every": 4000,
            "checkpoint_seconds": 1,
            **schedule,
        },
    }
    return json.dumps(recipe, indent=1)


@pytest.fixture
def real(scene: Any, tmp_path: Path) -> Any:
    """The logic with real trainings; whatever still runs at the end is ended."""
    made = TrainScene(tmp_path / "runs", launcher=DetachedLauncher(SlicerPython(sys.executable)))
    yield made
    made.close()
    for _folder, status in list_runs(made.root):
        if status.is_alive:
            os.kill(status.pid, signal.SIGKILL if sys.platform != "win32" else signal.SIGTERM)


def start(real: Any, **schedule: Any) -> None:
    """Start a training of three cases of the scene."""
    addGenerated(real, 3)
    real.start()
    call = real.programs.last
    real.answerPlan(tinyRecipe(call.config, **schedule))


@pytest.mark.slow
def test_run_outlives_scene_and_module_is_taken_up_after_a_kill_and_finished(real):
    start(real, validate_every=2)
    runs = real.logic.runs
    real.waitFor(lambda: len(runs.curves.loss) > 2)
    folder, pid = runs.folder, read_status(runs.folder).pid
    assert os.getpgid(pid) == pid if sys.platform != "win32" else True
    assert os.getsid(pid) != os.getsid(0) if sys.platform != "win32" else True

    slicer.mrmlScene.Clear(0)
    real.settle()
    assert real.logic.runs.folder == folder
    assert real.logic.parameters is not None

    real.reopen()
    runs = real.logic.runs
    (view,) = runs.all
    assert view.folder == folder
    assert view.isAlive
    runs.select(folder)
    real.waitFor(lambda: (folder / "last.safetensors").is_file())

    os.kill(pid, signal.SIGKILL if sys.platform != "win32" else signal.SIGTERM)
    real.waitFor(lambda: runs.selected.state.value == "died")
    saved = runs.selected.step
    assert runs.selected.canContinue

    runs.continueRun()
    real.settle()
    real.waitFor(lambda: runs.selected.state.value == "training" and runs.selected.step > 0)
    assert runs.selected.step >= min(saved, 1)
    real.waitFor(lambda: runs.selected.bestStep is not None)
    assert read_status(folder).pid != pid

    runs.stop()
    real.settle()
    real.waitFor(lambda: runs.selected.state.value == "stopped")
    assert not runs.selected.isAlive
    steps = [step for step, _loss in runs.curves.loss]
    assert steps == sorted(set(steps))
    # What was best so far is kept.
    results = real.logic.results
    assert runs.selected.canFinish
    best, step = runs.selected.bestStep, runs.selected.step
    assert best is not None
    assert not results.model
    runs.finish()
    real.settle()
    real.waitFor(lambda: runs.selected.state.value == "finished")
    assert runs.selected.bestStep == best
    assert runs.selected.step in (step, step + 1)  # that which ran when it was told to stop
    assert Path(results.model).is_file()
    assert results.scores
    assert results.cardFile is not None
    # It leaves nothing of its own.
    runs.remove(folder)
    real.settle()
    assert not folder.exists(), real.status
