"""A scan, a segmentation with two segments and its prompts, for tests of prompts."""

from __future__ import annotations

import numpy as np
import slicer
from PUMITSegmentLib.prompts.drawing.freehand import DrawnView
from PUMITSegmentLib.prompts.folder import removeNode
from PUMITSegmentLib.prompts.kinds import PromptKind
from PUMITSegmentLib.prompts.nodes import PromptNodes
from PUMITSegmentLib.prompts.order import numbersOf
from PUMITSegmentLib.prompts.snapshot import removePoints
from PUMITSegmentLib.prompts.tag import tagOf
from PUMITSlicerLib.mrml import VolumeFrame

LIVER, SPLEEN = "liver", "spleen"


def rotation(degrees: float, axis: int) -> np.ndarray:
    """Rotation matrix (3, 3) about a RAS axis."""
    c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    turned = np.array([[c, -s], [s, c]])
    others = [i for i in range(3) if i != axis]
    matrix = np.eye(3)
    matrix[np.ix_(others, others)] = turned
    return matrix


OBLIQUE = rotation(25, 2) @ rotation(-20, 0)
# As the slice views' presets, and one of no preset.
ORIENTATIONS = {
    "axial": "Axial",
    "sagittal": "Sagittal",
    "coronal": "Coronal",
    "oblique": rotation(30, 0) @ rotation(20, 1) @ np.diag([-1.0, 1.0, -1.0]),
}


def addScan(shape=(40, 60, 70), spacing_dhw=(2.5, 1.1, 0.9), axes=OBLIQUE):
    """A volume node of smooth noise; `axes` are the directions of i, j and k in RAS."""
    array = np.random.default_rng(0).normal(100, 20, shape).astype(np.int16)
    node = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLScalarVolumeNode", "Scan")
    slicer.util.updateVolumeFromArray(node, array)
    matrix = np.eye(4)
    matrix[:3, :3] = axes @ np.diag(spacing_dhw[::-1])
    matrix[:3, 3] = (-20.0, 10.0, 5.0)
    node.SetIJKToRASMatrix(slicer.util.vtkMatrixFromArray(matrix))
    node.CreateDefaultDisplayNodes()
    return node


class PromptScene:
    """What the tests of prompts start from.

    Attributes:
        volumeNode: An oblique scan.
        segmentationNode: Two segments, "Liver" and "Spleen".
        changed: Segment IDs in the order in which `prompts` reported them.
        prompts: What is tested.
    """

    def __init__(self) -> None:
        self.volumeNode = addScan()
        self.segmentationNode = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSegmentationNode", "S")
        self.segmentationNode.CreateDefaultDisplayNodes()
        self.segmentationNode.SetReferenceImageGeometryParameterFromVolumeNode(self.volumeNode)
        for segmentID, name in ((LIVER, "Liver"), (SPLEEN, "Spleen")):
            self.segmentationNode.GetSegmentation().AddEmptySegment(segmentID, name)
        self.changed: list[str] = []
        # Slice views that can be drawn in; fixtures fill it.
        self.views: list[DrawnView] = []
        self.prompts = PromptNodes(self.segmentationNode, self.changed.append, lambda: self.views)
        self.frame = VolumeFrame(self.volumeNode)

    def place(self, kind="POINT", segmentID=LIVER, isPositive=True, **more) -> None:
        """Begin to place a prompt of a kind, given by its name."""
        self.prompts.startPlacing(PromptKind[kind], segmentID, isPositive, **more)

    def placeOneOfEach(self, view) -> None:
        """A point, a 2D box, a scribble, a mask prior, a negative point, a 3D box and a lasso."""
        self.place()
        view.click(220, 260)
        self.place("BOX_2D")
        view.click(180, 200)
        view.click(300, 280)
        for kind, isPositive in (("SCRIBBLE", True), ("LASSO", False)):
            self.place(kind, isPositive=isPositive)
            for xy in ((150, 200), (200, 260), (260, 240)):
                view.click(*xy)
            view.click(260, 240, button="Right")
            if kind == "SCRIBBLE":
                self.prompts.setMaskPrior("liver", self.blob(), self.volumeNode)
                self.place(isPositive=False)
                view.click(300, 240)
                self.place("BOX_3D")
                view.click(150, 150)
                view.click(250, 220)
        self.prompts.stopPlacing()

    def removeLast(self, segmentID: str = LIVER) -> None:
        """Remove the prompt of a segment that was given last, if there is any."""
        nodes = self.prompts._watch.finished(segmentID)
        numbered = [(n, key, node) for node in nodes for key, n in numbersOf(node).items()]
        if not numbered:
            return
        _number, key, node = max(numbered, key=lambda entry: entry[0])
        with self.prompts._watch.quietly():
            if tagOf(node, self.segmentationNode).kind is PromptKind.POINT:
                removePoints(node, {key})
            else:
                removeNode(node)

    def blob(self) -> np.ndarray:
        """A mask on the scan's grid, with a hole."""
        mask = np.zeros(slicer.util.arrayFromVolume(self.volumeNode).shape, dtype=bool)
        mask[5:15, 20:40, 10:60] = True
        mask[8, 25, 30] = False
        return mask

    def letDraw(self, view) -> None:
        """Let curves be drawn by strokes in a slice view."""
        self.views.append(DrawnView(view.interactor, view.sliceNode))

    def of(self, segmentID: str = LIVER) -> list:
        """Prompts of a segment as the core gets them."""
        return self.prompts.prompts(segmentID, self.frame)


def markups() -> list:
    """All markups nodes of the scene."""
    return slicer.util.getNodesByClass("vtkMRMLMarkupsNode")
