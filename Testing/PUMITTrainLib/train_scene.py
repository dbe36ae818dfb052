"""The training logic on a scene, with programs and processes that a test plays."""

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import slicer
from fake_compute import MemoryStore
from PUMITSlicerLib.computing.availability import Availability, AvailableDevice
from PUMITSlicerLib.computing.background import Background
from PUMITSlicerLib.mrml import ijkToRas, orientedImage
from PUMITTrainLib.collaborators import Collaborators


@dataclass
class Call:
    """A command that was to run."""

    arguments: list[str]
    onLine: Callable[[str], None]
    onEnd: Callable[[int, str], None]
    isCancelled: bool = False

    def emit(self, *records: dict[str, Any]) -> None:
        """Print records, one a line; no one hears a command that was cancelled."""
        for record in records:
            if not self.isCancelled:
                self.onLine(json.dumps(record))

    def end(self, status: int = 0, message: str = "") -> None:
        """End."""
        if not self.isCancelled:
            self.onEnd(status, message)

    @property
    def config(self) -> dict[str, Any]:
        """The configuration that it was given."""
        return json.loads(Path(self.arguments[1]).read_text(encoding="utf-8"))

    @property
    def output(self) -> Path:
        """What it shall write."""
        return Path(self.arguments[self.arguments.index("-o") + 1])


class ScriptedPrograms:
    """Keeps the requests; the test answers."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def run(self, arguments: Sequence[str], onLine: Any, onEnd: Any) -> Callable[[], None]:
        call = Call(list(arguments), onLine, onEnd)
        self.calls.append(call)

        def cancel() -> None:
            call.isCancelled = True

        return cancel

    @property
    def last(self) -> Call:
        return self.calls[-1]


class ScriptedLauncher:
    """Keeps what was started; the process is the test's own."""

    def __init__(self) -> None:
        self.launched: list[tuple[Path, list[str]]] = []

    def launch(self, folder: Path, arguments: Sequence[str]) -> int:
        self.launched.append((folder, list(arguments)))
        return os.getpid()


class ScriptedChecker:
    """Keeps the texts to check; the test answers the last."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.answer: Callable[[str], None] = lambda sentence: None
        self.isClosed = False

    def check(self, text: str, onAnswer: Callable[[str], None]) -> None:
        self.texts.append(text)
        self.answer = onAnswer

    def cancel(self) -> None:
        self.answer = lambda sentence: None

    def close(self) -> None:
        self.isClosed = True


@dataclass
class ManualTimer:
    """Rings when the test says so."""

    callback: Callable[[], None]
    isSingle: bool
    interval: int = 0
    isRunning: bool = False

    def start(self, interval_ms: int) -> None:
        self.interval, self.isRunning = interval_ms, True

    def stop(self) -> None:
        self.isRunning = False

    def ring(self) -> None:
        if self.isRunning:
            self.callback()


@dataclass
class ManualTimers:
    """All timers that were made."""

    made: list[ManualTimer] = field(default_factory=list)

    def __call__(self, callback: Callable[[], None], isSingle: bool) -> ManualTimer:
        self.made.append(ManualTimer(callback, isSingle))
        return self.made[-1]

    def ring(self) -> None:
        for timer in self.made:
            timer.ring()


class TrainScene:
    """The logic, opened on an empty scene.

    Attributes:
        root: Where runs lie.
        programs: Requests to `pumit data`, `plan` and `models`.
        launcher: What is started.
        checker: Recipes to check.
        missing: What the setup finds missing.
        logic: The logic.
    """

    def __init__(self, root: Path, **replaced: Any) -> None:
        self.root = root
        self.programs, self.launcher = ScriptedPrograms(), ScriptedLauncher()
        self.checker = ScriptedChecker()
        self.timers, self.store = ManualTimers(), MemoryStore()
        self.missing = ""
        parts: dict[str, Any] = {
            "background": Background(),
            "programs": self.programs,
            "launcher": self.launcher,
            "checker": self.checker,
            "makeTimer": self.timers,
            "store": self.store,
            "whyNotInstalled": lambda: self.missing,
            "readAvailability": lambda: Availability((AvailableDevice("cpu", "Processor"),), ()),
            "root": root,
        }
        self.parts = Collaborators(**{**parts, **replaced})
        self.background = self.parts.background
        self.open()

    def reopen(self) -> None:
        """Close the logic and open another one, as after the module was reloaded."""
        self.logic.close()
        self.settle()
        self.background = Background()
        self.parts = replace(self.parts, background=self.background)
        self.open()

    def open(self) -> None:
        """Open a logic."""
        from PUMITTrainLib.logic import PUMITTrainLogic

        self.logic = PUMITTrainLogic(self.parts)
        self.logic.open()
        self.settle()

    def settle(self) -> None:
        assert self.background.drain(60)

    def poll(self) -> None:
        """Read the folders of the runs once more, after what is being read."""
        self.settle()
        self.logic.runs.poll()
        self.settle()

    def show(self, folder: Path) -> None:
        """Select a run, and read its folder."""
        self.logic.runs.select(folder)
        self.poll()

    def waitFor(self, condition: Callable[[], object], seconds: float = 120.0) -> None:
        """Look at the runs until something holds."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, self.logic.runs.logText or self.status
            time.sleep(0.3)
            self.background.poll()
            self.poll()

    @property
    def status(self) -> str:
        return self.logic.status.current.text

    def addVolume(self, name: str = "Scan", seed: int = 0, shape: Any = (6, 9, 11)) -> Any:
        array = np.random.default_rng(seed).normal(100, 20, shape).astype(np.int16)
        node = slicer.util.addVolumeFromArray(array)
        node.SetName(name)
        return node

    def addSegmentation(self, volumeNode: Any, name: str = "Segmentation", **masks: Any) -> Any:
        """A segmentation of a volume; by default a box that is called liver."""
        node = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSegmentationNode", name)
        node.SetReferenceImageGeometryParameterFromVolumeNode(volumeNode)
        node.SetAndObserveTransformNodeID(volumeNode.GetTransformNodeID())
        if not masks:
            mask = np.zeros(slicer.util.arrayFromVolume(volumeNode).shape, np.uint8)
            mask[2:5, 3:7, 4:8] = 1
            masks = {"liver": mask}
        for segmentName, mask in masks.items():
            segment = slicer.vtkSegment()
            segment.SetName(segmentName)
            image = slicer.vtkOrientedImageData()
            image.DeepCopy(orientedImage(mask.astype(bool), ijkToRas(volumeNode)))
            segment.AddRepresentation("Binary labelmap", image)
            node.GetSegmentation().AddSegment(segment, segmentName)
        return node

    def addCases(self, count: int = 2) -> None:
        """Cases of the scene, in the list."""
        for number in range(count):
            self.addSegmentation(self.addVolume(f"scan{number}", seed=number), f"label{number}")
        assert self.logic.cases.addAllOffered() == count

    def read(self) -> None:
        """Begin to read the cases."""
        self.logic.cases.check()
        self.settle()

    def answerRead(self, *records: dict[str, Any], **summary: Any) -> None:
        """Answer `pumit data` with what it says of each case, and of all."""
        call = self.programs.last
        assert call.arguments[0] == "data"
        call.emit(*records, {"summary": summary})
        call.end()
        self.settle()

    def answerCheck(self) -> None:
        """Answer `pumit data`: every case is fine."""
        names = [row["name"] for row in self.programs.last.config["data"]["cases"]]
        self.answerRead(*map(goodCase, names), classes=[{"name": "liver", "value": 1}])

    def plan(self) -> None:
        """Begin to plan."""
        self.logic.planning.make()
        self.settle()

    def answerPlan(self, text: str = "task: segmentation\nschedule:\n  steps: 40\n") -> None:
        """Answer `pumit plan`."""
        call = self.programs.last
        assert call.arguments[0] == "plan"
        call.output.write_text(text, encoding="utf-8")
        estimate = {"seconds": 60.0, "memory_gib": 1.5, "disk_gib": 0.2, "sentence": "A minute."}
        call.emit({"estimate": estimate, "recipe": {}, "warnings": ["Few cases."]})
        call.end()
        self.settle()

    def start(self, **options: Any) -> None:
        """Begin to start a run, as the button does."""
        self.logic.runs.start(**options)
        self.settle()

    def startRun(self) -> Path:
        """Add cases where there are none, plan, and start; returns the run's folder."""
        if not self.logic.cases.rows:
            self.addCases()
        self.start()
        self.answerPlan()
        return self.launcher.launched[-1][0]

    def answerModels(self, state: str = "here", *, status: int = 0) -> None:
        """Answer `pumit models list`."""
        call = self.programs.last
        assert call.arguments[:2] == ["models", "list"]
        if status == 0:
            call.onLine(json.dumps([{"name": call.arguments[2], "state": state}]))
        call.end(status, "Unknown model; known: default." if status else "")

    def close(self) -> None:
        self.logic.close()
        assert self.background.drain(20)


def goodCase(name: str) -> dict[str, Any]:
    """What `pumit data` says of a case that is fine."""
    return {
        "case": name,
        "patient": "",
        "thumbnail": None,
        "spacing_mm": [1.0, 1.0, 1.0],
        "shape": [6, 9, 11],
        "channels": 1,
        "classes": {"liver": 48},
        "problems": [],
        "doubts": [],
    }
