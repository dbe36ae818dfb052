"""Two patients on each other, and whatever is done in any order: neither changes the other's."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from found_structures import found
from panel_scene import Panel
from scripted_worker import SHAPE

SEQUENCES = int(os.environ.get("PUMIT_SEQUENCES", "40"))
STEPS = 30
NAMES = ("Miller", "Smith")
VIEWS = ("Red", "Yellow", "Green")
OPACITIES = (0.0, 0.01, 0.5, 1.0)
# What DICOM states of the two: two patients, nothing, placeholders, or nothing of one of them.
IDENTITIES = (("P-7710", "P-7711"), ("", ""), ("Anonymous", "Anonymous"), ("P-7710", ""))
FRAME = "1.2.840.99.1.2.3"
# What may bring a scan back into the views, and go on with what was asked before.
SHOWING = ("choose", "load", "show", "lay over", "answer a question", "save and reopen")
# What Slicer's libraries log where a script's point is taken back while it is added, and where the
# stand-in of the hierarchy's plugins lists a node that is not saved, such as an unfinished prompt.
HARMLESS = re.compile("GetNthControlPointPositionStatus|ResolveUnresolvedItems|DataNodeCache")
Voxels = dict[str, dict[str, bytes]]


class Walk(Panel):
    """Somebody with two patients in one scene.

    Masks of the first patient have even slices only, of the second odd ones: no voxel of one can
    be in a segmentation of the other unseen.
    """

    def __init__(self, loadModule: Any, sliceView: Any, folder: Path) -> None:
        super().__init__(loadModule)
        self.logic.permission.confirm = lambda question: False
        self.views = {name: sliceView(name, "Axial") for name in VIEWS}
        self.folder = folder
        self.random = np.random.default_rng(0)
        self.done: list[str] = []
        self.written = 0

    def begin(self, seed: int) -> None:
        import slicer

        slicer.mrmlScene.Clear()
        self.process()
        self.random = np.random.default_rng(seed)
        self.identities = IDENTITIES[seed % len(IDENTITIES)]
        self.done = [f"identities {self.identities}"]
        self.load()

    def actions(self) -> dict[str, tuple[float, Callable[[], None]]]:
        return {
            "choose": (0.7, self.choose),
            "load": (0.7, self.load),
            "show": (0.7, self.show),
            "lay over": (0.5, self.layOver),
            "press a tool": (2, self.pressATool),
            "press": (1, lambda: self.pressIfOffered(*BUTTONS)),
            "answer a question": (3, lambda: self.pressIfOffered(*CHOICES)),
            "click": (6, self.click),
            "drag": (1, self.drag),
            "script": (1, self.script),
            "find": (0.5, self.find),
            "answer": (5, self.answer),
            "another segmentation": (0.5, self.anotherSegmentation),
            "save and reopen": (0.25, self.saveAndReopen),
        }

    def step(self) -> None:
        actions = self.actions()
        names = list(actions)
        weights = np.array([actions[name][0] for name in names])
        name = str(self.random.choice(names, p=weights / weights.sum()))
        self.done.append(name)
        before, seen = self.voxels(), {each for view in VIEWS for each in self.seenIn(view)}
        self.here: set[str] | None = None  # what the view shows in which the step is done
        actions[name][1]()
        self.process()
        after = self.voxels()
        self.written += before != after
        for patient in NAMES:
            isKept = before.get(patient, {}) == after.get(patient, {})
            assert isKept or name in SHOWING or patient in seen, f"{patient} is in no view"
            assert isKept or self.here is None or patient in self.here, f"{patient} is not there"
        if name == "save and reopen":
            assert before == after

    # What is done

    def scans(self) -> list[Any]:
        import slicer

        nodes = slicer.util.getNodesByClass("vtkMRMLScalarVolumeNode")
        return [node for node in nodes if node.GetName() in NAMES]

    def someScan(self) -> Any:
        scans = self.scans()
        return scans[self.random.integers(len(scans))]

    def someView(self) -> Any:
        name = str(self.random.choice(VIEWS))
        self.here = self.seenIn(name)
        self.done[-1] += f" ({name})"
        return self.views[name]

    def load(self) -> None:
        """Add the next patient as Slicer does: it becomes active, and all views show it."""
        import slicer

        number = len(self.scans())
        if number == len(NAMES):
            return
        values = np.random.default_rng(number).normal(100 + 900 * number, 20, SHAPE)
        node = slicer.util.addVolumeFromArray(values.astype(np.int16))
        node.SetName(NAMES[number])
        # Not by the hierarchy: the stand-in of its plugins cannot read patients from a file.
        node.SetAttribute("DICOM.PatientID", self.identities[number])
        node.SetAttribute("DICOM.FrameOfReferenceUID", FRAME)
        application = slicer.app.applicationLogic()
        application.GetSelectionNode().SetActiveVolumeID(node.GetID())
        application.PropagateVolumeSelection()
        for view in self.views.values():
            view.show(node)

    def choose(self) -> None:
        self.ui.sourceVolumeSelector.setCurrentNode(self.someScan())

    def show(self) -> None:
        view = self.someView()
        self.here = None
        view.show(self.someScan())
        view.compositeNode.SetForegroundVolumeID(None)

    def layOver(self) -> None:
        view = self.someView()
        self.here = None
        view.compositeNode.SetForegroundVolumeID(self.someScan().GetID())
        view.compositeNode.SetForegroundOpacity(float(self.random.choice(OPACITIES)))

    def pressIfOffered(self, *names: str) -> None:
        widget = getattr(self.ui, str(self.random.choice(names)))
        if widget.isVisible() and widget.enabled:
            self.done[-1] += f" ({widget.text})"
            self.press(widget)

    def pressATool(self) -> None:
        if not self.logic.isPlacing:
            self.pressIfOffered("pointButton")

    def click(self) -> None:
        place = tuple(float(each) for each in self.random.integers(2, 18, 3))
        self.someView().clickAt(place, control=bool(self.random.random() < 0.2))

    def drag(self) -> None:
        view = self.someView()
        places = [view.rasToXy(tuple(self.random.uniform(2, 18, 3)))[:2] for _ in range(2)]
        view.drag(*places)

    def script(self) -> None:
        import slicer

        nodes = slicer.util.getNodesByClass("vtkMRMLMarkupsFiducialNode")
        if nodes:
            node = nodes[self.random.integers(len(nodes))]
            node.AddControlPoint(*self.random.uniform(2, 18, 3).tolist())

    def find(self) -> None:
        if self.logic.volumeNode is not None:
            self.logic.addFound(found(self.maskOf(self.logic.volumeNode.GetName())))

    def answer(self, mask: Any = None) -> None:
        if self.worker.requests and not self.worker.requests[-1].isOver:
            request = self.worker.requests[-1]
            request.answer(self.maskOf(NAMES[int(request.volume.array.mean() > 500)]))

    def anotherSegmentation(self) -> None:
        import slicer

        nodes = slicer.util.getNodesByClass("vtkMRMLSegmentationNode")
        nodes = [node for node in nodes if not node.GetHideFromEditors()]
        if nodes:
            node = nodes[self.random.integers(len(nodes))]
            self.ui.segmentationSelector.setCurrentNode(node)

    def saveAndReopen(self) -> None:
        import slicer

        path = str(self.folder / "scene.mrb")
        assert slicer.util.saveScene(path)
        slicer.mrmlScene.Clear()
        self.process()
        slicer.util.loadScene(path)

    # What holds

    def maskOf(self, name: str) -> np.ndarray:
        mask = np.zeros(SHAPE, dtype=bool)
        low = self.random.integers(0, 12, 3)
        mask[tuple(slice(a, a + 8) for a in low)] = True
        mask[1 - NAMES.index(name) :: 2] = False
        return mask

    def seenIn(self, name: str) -> set[str]:
        """Patients that a person sees in a view."""
        import slicer

        layers = self.views[name].compositeNode
        ids = (layers.GetBackgroundVolumeID(), layers.GetForegroundVolumeID())
        below, above = (slicer.mrmlScene.GetNodeByID(each) if each else None for each in ids)
        opacity = layers.GetForegroundOpacity()
        seen = {above.GetName()} if above is not None and opacity > 0.1 else set()
        if below is not None and (above is None or opacity < 0.9):
            seen.add(below.GetName())
        return seen

    def voxels(self) -> Voxels:
        """Voxels of each patient's segments, by the scan that they are of."""
        import slicer
        from PUMITSegmentLib.segments.scan_of import scanOf

        held: Voxels = {}
        for node in slicer.util.getNodesByClass("vtkMRMLSegmentationNode"):
            scan = scanOf(node)
            if node.GetHideFromEditors() or scan is None:
                continue
            name = scan.GetName()
            for segmentID in node.GetSegmentation().GetSegmentIDs():
                array = slicer.util.arrayFromSegmentBinaryLabelmap(node, segmentID, scan)
                if array is None or not array.any():
                    continue
                others = array[1 - NAMES.index(name) :: 2]
                assert not others.any(), f"{name} holds voxels of the other patient"
                held.setdefault(name, {})[f"{node.GetName()} {segmentID}"] = array.tobytes()
        return held


CHOICES = ("firstChoiceButton", "secondChoiceButton")
BUTTONS = (
    *("undoButton", "redoButton", "resetSegmentButton", "updateButton", "newSegmentButton"),
    *("removeSegmentButton", "negativeButton"),
)


@pytest.fixture
def walk(loadModule: Any, sliceView: Any, tmp_path: Path) -> Iterator[Walk]:
    made = Walk(loadModule, sliceView, tmp_path)
    yield made
    made.close()


def test_no_sequence_changes_a_voxel_of_the_patient_that_is_not_shown(
    walk: Walk, failures: Any
) -> None:
    steps = 0
    for seed in range(SEQUENCES):
        walk.begin(seed)
        for _ in range(STEPS):
            try:
                walk.step()
            except BaseException as error:
                error.add_note(f"sequence {seed}: " + "\n".join(walk.done))
                raise
            steps += 1
    print(f"{SEQUENCES} sequences, {steps} steps, {walk.written} of them wrote voxels")
    assert walk.written > SEQUENCES
    failures.found[:] = [text for text in failures.found if not HARMLESS.search(text)]
