"""Snapshot of a segment's prompts, taken from its nodes and restored to them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import slicer
from pumit.segmentation import AnswerChoice

from PUMITSegmentLib.prompts.box_on_slice import planeText, setPlaneText
from PUMITSegmentLib.prompts.geometry import definedPoints
from PUMITSegmentLib.prompts.mask_prior import MaskPrior
from PUMITSegmentLib.prompts.tag import (
    BOXES,
    PromptKind,
    PromptTag,
    choicesOf,
    keysOf,
    numbersOf,
    setChoices,
    setNumbers,
)

Point = tuple[float, float, float]
_BYTES_PER_POINT = 100  # three Python floats and their tuple


@dataclass(frozen=True)
class BoxShape:
    """Region of interest: its size, its 4 x 4 matrix and, for a flat one, its plane."""

    size: tuple[float, ...]
    objectToNode: tuple[float, ...]
    plane: str

    @staticmethod
    def of(node) -> BoxShape:
        """Return the shape of a node."""
        matrix = slicer.util.arrayFromVTKMatrix(node.GetObjectToNodeMatrix())
        return BoxShape(tuple(node.GetSize()), tuple(matrix.ravel().tolist()), planeText(node))

    def apply(self, node) -> None:
        """Set a node's shape."""
        matrix = np.array(self.objectToNode).reshape(4, 4)
        setPlaneText(node, self.plane)
        node.SetAndObserveObjectToNodeMatrix(slicer.util.vtkMatrixFromArray(matrix))
        node.SetSize(*self.size)


@dataclass(frozen=True)
class NodeSnapshot:
    """State of a prompt node.

    Attributes:
        numbers: Numbers in the order, one per point of a list or one for the node.
        points: Control points of a list or curve, in the node's own coordinates.
        box: Shape of a box; None for other kinds.
        prior: Mask of a prior; None for other kinds.
        choices: Number in the order and choice of each prompt that has several answers.
        transformID: Parent transform for a deleted node that is restored.
    """

    key: str
    tag: PromptTag
    numbers: tuple[int, ...]
    points: tuple[Point, ...] = ()
    box: BoxShape | None = None
    prior: MaskPrior | None = None
    choices: tuple[tuple[int, AnswerChoice], ...] = ()
    name: str = field(default="", compare=False)
    transformID: str = field(default="", compare=False)

    @staticmethod
    def of(key: str, node, tag: PromptTag) -> NodeSnapshot:
        """Take the snapshot of a node with finished, numbered prompts."""
        known = numbersOf(node)
        isDrawn = tag.kind is not None and tag.kind not in BOXES
        numbers = [known[each] for each in keysOf(node)]
        choices = {key: each for key, each in choicesOf(node).items() if key in known}
        points = [(x, y, z) for x, y, z in definedPoints(node).tolist()] if isDrawn else []
        if tag.kind is PromptKind.POINT:
            # A restored point is last in its list, but its number keeps its place in the order.
            points = [point for _, point in sorted(zip(numbers, points, strict=True))]
            numbers.sort()
        return NodeSnapshot(
            key,
            tag,
            numbers=tuple(numbers),
            points=tuple(points),
            box=BoxShape.of(node) if tag.kind in BOXES else None,
            prior=MaskPrior.read(node) if tag.kind is None else None,
            choices=tuple((known[key], choices[key]) for key in sorted(choices, key=known.get)),
            name=node.GetName(),
            transformID=(node.GetTransformNodeID() or "") if tag.kind else "",
        )

    @property
    def byteCount(self) -> int:
        """Approximate memory use."""
        return _BYTES_PER_POINT * len(self.points) + (self.prior.byteCount if self.prior else 0)

    def apply(self, node) -> None:
        """Restore a node; remaining control points are moved, not replaced."""
        modified = node.StartModify()
        if self.tag.kind is PromptKind.POINT:
            self._applyList(node)
        elif self.prior is not None:
            self.prior.write(node)
        elif self.box is not None:
            self.box.apply(node)
        else:
            node.RemoveAllControlPoints()
            for point in self.points:
                node.AddControlPoint(list(point))
        if self.tag.kind is not PromptKind.POINT:
            setNumbers(node, dict(zip(keysOf(node), self.numbers, strict=True)))
        keys = {number: key for key, number in numbersOf(node).items()}
        setChoices(node, {keys[number]: each for number, each in self.choices})
        node.EndModify(modified)

    def _applyList(self, node) -> None:
        keys = {number: key for key, number in numbersOf(node).items()}
        removePoints(node, {key for number, key in keys.items() if number not in self.numbers})
        numbers: dict[str, int] = {}
        for number, point in zip(self.numbers, self.points, strict=True):
            index = node.GetNthControlPointIndexByID(keys[number]) if number in keys else -1
            if index < 0:
                index = node.AddControlPoint(list(point))
            elif tuple(node.GetNthControlPointPosition(index)) != point:
                node.SetNthControlPointPosition(index, *point)
            numbers[node.GetNthControlPointID(index)] = number
        removePoints(node, set(keysOf(node)) - set(numbers))
        setNumbers(node, numbers)


def removePoints(node, keys: set[str]) -> None:
    """Remove placed control points of a list by ID; the one being placed stays."""
    for index in reversed(range(node.GetNumberOfControlPoints())):
        if node.GetNthControlPointID(index) in keys:
            node.RemoveNthControlPoint(index)


@dataclass(frozen=True)
class PromptSnapshot:
    """All prompts of a segment; immutable and compared by value."""

    nodes: tuple[NodeSnapshot, ...] = ()

    @property
    def byteCount(self) -> int:
        """Approximate memory use."""
        return sum(node.byteCount for node in self.nodes)

    @property
    def isContinued(self) -> bool:
        """Whether the only prompt is the mask of another frame."""
        priors = [node.prior for node in self.nodes]
        return len(priors) == 1 and priors[0] is not None and priors[0].isContinued

    @property
    def isOneClick(self) -> bool:
        """Whether a single positive click made the whole mask, in this frame or an earlier one."""
        if len(self.nodes) != 1:
            return False
        (node,) = self.nodes
        if node.prior is not None:
            return node.prior.isClicked
        if any(choice.number > 1 for _, choice in node.choices):
            return False  # the user chose another answer
        return node.tag.kind is PromptKind.POINT and node.tag.isPositive and len(node.points) == 1

    def __bool__(self) -> bool:
        """Return whether there is any prompt."""
        return bool(self.nodes)
