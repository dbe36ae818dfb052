"""Presses, clicks and answers in an order that no one thought of: what must hold after each."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import slicer
from daily_panel import Daily
from draws import draws
from pumit.errors import ServiceError
from scripted_worker import SHAPE

STEPS = 40
# The walks leave layouts and views behind, which other tests of the same process would find.
ALONE = "PUMIT_TEST_ANY_ORDER"
in_a_process_of_its_own = pytest.mark.skipif(
    ALONE not in os.environ, reason="runs in the process of test_walks_in_any_order"
)
TOOLS = {
    "pointButton": "POINT",
    "box3dButton": "BOX_3D",
    "box2dButton": "BOX_2D",
    "scribbleButton": "SCRIBBLE",
    "lassoButton": "LASSO",
}
OTHER_BUTTONS = (
    *("positiveButton", "negativeButton", "undoButton", "redoButton", "resetSegmentButton"),
    *("resetAllButton", "updateButton", "checkHereButton", "newSegmentButton", "show3DButton"),
    *("removeSegmentButton", "cancelButton", "anotherAnswerButton"),
)


class Careless(Daily):
    """Someone who presses and clicks whatever there is."""

    def __init__(self, loadModule: Any, sliceView: Any, seed: int) -> None:
        super().__init__(loadModule, sliceView)
        self.random = np.random.default_rng(seed)
        self.done: list[str] = []
        self.logic.permission.confirm = lambda question: bool(self.random.integers(2))
        self.actions: dict[str, tuple[float, Callable[[], None]]] = {
            "press a tool": (4, self.pressTool),
            "press a button": (5, self.pressButton),
            "click": (5, self.clickSomewhere),
            "drag": (2, self.dragSomewhere),
            "answer": (6, self.answerSomething),
            "fail": (0.6, self.fail),
            "rename": (0.5, self.rename),
            "select": (1, self.select),
            "remove a segment elsewhere": (0.5, self.removeElsewhere),
            "delete prompts": (0.5, self.deletePrompts),
            "another segmentation": (0.7, self.anotherSegmentation),
            "another scan": (0.5, self.anotherScan),
            "delete the segmentation": (0.3, self.deleteSegmentation),
            "delete the scan": (0.3, self.deleteScan),
            "close the scene": (0.15, self.closeScene),
            "another layout": (0.5, self.anotherLayout),
            "another slice": (1, self.anotherSlice),
            "leave and come back": (0.5, self.leave),
            "escape": (0.7, self.escape),
            "mouse toolbar": (0.4, self.mouseToolbar),
        }

    def step(self) -> None:
        names = list(self.actions)
        weights = np.array([self.actions[name][0] for name in names])
        name = str(self.random.choice(names, p=weights / weights.sum()))
        self.done.append(name)
        self.actions[name][1]()
        self.process()

    # What is done

    def pressIfOffered(self, name: str) -> None:
        widget = getattr(self.ui, name)
        self.done[-1] += f" ({name})"
        if widget.isVisible() and widget.enabled:
            self.press(widget)

    def pressTool(self) -> None:
        self.pressIfOffered(str(self.random.choice(list(TOOLS))))

    def pressButton(self) -> None:
        self.pressIfOffered(str(self.random.choice(OTHER_BUTTONS)))

    def place(self) -> tuple[float, float]:
        x, y = self.view.rasToXy(tuple(self.random.uniform(-2, 24, 3)))[:2]
        return float(x), float(y)

    def clickSomewhere(self) -> None:
        self.view.click(*self.place(), control=bool(self.random.random() < 0.15))

    def dragSomewhere(self) -> None:
        self.view.drag(self.place(), self.place(), self.place())

    def answerSomething(self) -> None:
        if self.worker.requests:
            mask = np.zeros(SHAPE, bool)
            low = self.random.integers(0, 12, 3)
            if self.random.random() < 0.9:
                mask[tuple(slice(a, a + self.random.integers(1, 9)) for a in low)] = True
            count = int(self.random.integers(1, 5))
            number = int(self.random.integers(1, count + 1))
            self.worker.requests[-1].answer(mask, choice=(number, count))

    def fail(self) -> None:
        if self.worker.requests and not self.worker.requests[-1].isOver:
            self.worker.requests[-1].onError(ServiceError("The server failed."))

    def segments(self) -> Any:
        node = self.logic.segmentationNode
        return None if node is None else node.GetSegmentation()

    def someSegment(self) -> str:
        segments = self.segments()
        ids = list(segments.GetSegmentIDs()) if segments is not None else []
        return str(self.random.choice(ids)) if ids else ""

    def rename(self) -> None:
        segmentID = self.someSegment()
        if segmentID:
            self.segments().GetSegment(segmentID).SetName(f"Name {len(self.done)}")

    def select(self) -> None:
        self.logic.selectSegment(self.someSegment())

    def removeElsewhere(self) -> None:
        segmentID = self.someSegment()
        if segmentID:
            self.segments().RemoveSegment(segmentID)

    def deletePrompts(self) -> None:
        nodes = slicer.util.getNodesByClass("vtkMRMLMarkupsNode")
        if nodes:
            slicer.mrmlScene.RemoveNode(nodes[self.random.integers(len(nodes))])

    def anotherSegmentation(self) -> None:
        nodes = slicer.util.getNodesByClass("vtkMRMLSegmentationNode")
        if len(nodes) < 3:
            nodes.append(slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSegmentationNode", "Other"))
        if self.logic.parameters is not None:
            self.logic.parameters.segmentation = nodes[self.random.integers(len(nodes))]

    def anotherScan(self) -> None:
        nodes = slicer.util.getNodesByClass("vtkMRMLScalarVolumeNode")
        if len(nodes) < 2:
            nodes.append(self.addScan("Another"))
        chosen = nodes[self.random.integers(len(nodes))]
        self.logic.parameters.sourceVolume = chosen
        self.view.show(chosen)

    def deleteSegmentation(self) -> None:
        if self.logic.segmentationNode is not None:
            slicer.mrmlScene.RemoveNode(self.logic.segmentationNode)

    def deleteScan(self) -> None:
        if self.logic.volumeNode is not None:
            slicer.mrmlScene.RemoveNode(self.logic.volumeNode)
        self.addScan("Next patient")

    def closeScene(self) -> None:
        slicer.mrmlScene.Clear()
        self.process()
        self.view.show(self.addScan("After all"))

    def anotherLayout(self) -> None:
        kinds = slicer.vtkMRMLLayoutNode
        layouts = (kinds.SlicerLayoutFourUpView, kinds.SlicerLayoutOneUpRedSliceView)
        slicer.app.layoutManager().setLayout(layouts[self.random.integers(2)])

    def anotherSlice(self) -> None:
        offset = self.view.sliceLogic.GetSliceOffset() + float(self.random.integers(-3, 4))
        self.view.sliceLogic.SetSliceOffset(min(max(offset, 0.0), 19.0))

    def leave(self) -> None:
        self.gui.exit()
        self.process()
        self.gui.enter()

    def escape(self) -> None:
        self.view.key("Escape")

    def mouseToolbar(self) -> None:
        slicer.app.applicationLogic().GetInteractionNode().SwitchToViewTransformMode()

    # What must hold

    def check(self) -> None:
        assert "Internal error" not in self.status
        interaction = slicer.app.applicationLogic().GetInteractionNode()
        isSlicerPlacing = interaction.GetCurrentInteractionMode() == interaction.Place
        placed = self.logic.placed
        pressed = {kind for name, kind in TOOLS.items() if getattr(self.ui, name).checked}
        expected = set() if placed is None else {placed.kind.name}
        assert pressed == expected, "tools are pressed that place nothing, or the other way round"
        if placed is not None:
            drawn = (
                placed.kind.name in ("LASSO", "SCRIBBLE") or self.logic.working.prompts.isDepthNext
            )
            assert isSlicerPlacing or drawn, "a tool is pressed and Slicer places nothing"
            assert placed.segmentID == self.logic.segmentID
            assert self.ui.positiveButton.checked == placed.isPositive
        assert self.ui.undoButton.enabled == self.logic.canUndo
        assert self.ui.redoButton.enabled == self.logic.canRedo
        assert self.view.sliceNode.GetFieldOfView()[0] < 1e6
        segments = self.segments()
        if segments is None or self.logic.segmentID:
            assert segments is None or segments.GetSegment(self.logic.segmentID) is not None

    def masks(self) -> dict[str, bytes]:
        segments = self.segments()
        ids = list(segments.GetSegmentIDs()) if segments is not None else []
        return {each: self.mask(each).tobytes() for each in ids}


@pytest.fixture
def careless(loadModule: Any, sliceView: Any, request: pytest.FixtureRequest) -> Iterator[Careless]:
    made = Careless(loadModule, sliceView, request.param)
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.skipif(ALONE in os.environ, reason="starts the others")
def test_walks_in_any_order():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    run = subprocess.run(
        command, env={**environment, ALONE: "1"}, capture_output=True, text=True, timeout=7200
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    assert "..." in run.stdout  # three passed


@in_a_process_of_its_own
@pytest.mark.parametrize("careless", range(draws(2)), indirect=True)
def test_any_order_of_presses_leaves_panel_and_scene_agreed(careless):
    for _ in range(STEPS):
        try:
            careless.step()
            careless.check()
        except BaseException as error:
            error.add_note("\n".join(careless.done[-25:]))
            raise


@in_a_process_of_its_own
@pytest.mark.parametrize("careless", range(draws(1)), indirect=True)
def test_undo_to_the_beginning_and_redo_give_the_same_masks(careless):
    for name in ("another scan", "delete the scan", "close the scene", "another segmentation"):
        del careless.actions[name]
    for name in ("delete the segmentation", "remove a segment elsewhere", "delete prompts"):
        del careless.actions[name]
    for _ in range(STEPS):
        careless.step()
    careless.logic.stopPlacing()
    careless.logic.parameters.updateAutomatically = False
    while careless.worker.requests and not careless.worker.requests[-1].isOver:
        careless.worker.requests[-1].answer(np.zeros(SHAPE, bool))
    masks = careless.masks()
    steps = 0
    while careless.logic.canUndo:
        careless.logic.undo()
        steps += 1
    for _ in range(steps):
        careless.logic.redo()
    assert careless.masks() == masks, careless.done
