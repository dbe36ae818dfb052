"""Prompts and history of the frames of a sequence that are not shown."""

from __future__ import annotations

from dataclasses import dataclass

from PUMITSegmentLib.masks.book import SegmentBook, Steps
from PUMITSegmentLib.prompts.snapshot import PromptSnapshot
from PUMITSegmentLib.prompts.tag import promptNodesOf, tagOf
from PUMITSegmentLib.scene.frames import frameOf, promptedFrame, setPromptedFrame
from PUMITSegmentLib.segments.appearance import Appearance
from PUMITSegmentLib.segments.segment_list import segmentIDs
from PUMITSegmentLib.segments.surface_refresh import CLOSED_SURFACE


@dataclass(frozen=True)
class _Kept:
    """Prompts and history of a frame that is not shown."""

    steps: Steps
    prompts: dict[str, PromptSnapshot]


class KeptFrames:
    """Store of the prompts and history of the frames that are not shown.

    Masks are in the sequence browser and not here. This store is not saved with the scene; the
    masks are, and clicks can correct them.

    Attributes:
        latest: The frame that was shown before this one; None if unknown.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], _Kept] = {}
        self.latest: int | None = None

    def prompts(self, segmentationNode, number: int, segmentID: str) -> PromptSnapshot:
        """Return the stored prompts of a segment in a frame that is not shown, if any."""
        kept = self._kept.get((segmentationNode.GetID(), number))
        prompts = kept.prompts if kept is not None else {}
        return prompts.get(segmentID, PromptSnapshot())

    def follow(self, book: SegmentBook) -> bool:
        """Switch to the frame that is shown now; return whether it changed."""
        node, frame = book.node, frameOf(book.volumeNode)
        left = promptedFrame(node, frame) if frame is not None else None
        if frame is None or left is None or left == frame.number:
            return False
        self.latest = left
        prompted = {tag.segmentID for each in promptNodesOf(node) if (tag := tagOf(each, node))}
        prompts = {each: book.prompts.snapshot(each) for each in prompted}
        kept = self._kept.pop((node.GetID(), frame.number), None)
        steps = book.swapHistory(kept.steps if kept is not None else None)
        self._kept[node.GetID(), left] = _Kept(steps, prompts)
        before = frame.segmentationAt(node, left)
        _bringSegments(node, before)
        _bringSurfaces(node, before)
        snapshots = kept.prompts if kept is not None else {}
        for segmentID in prompted | snapshots.keys():
            book.prompts.restore(segmentID, snapshots.get(segmentID, PromptSnapshot()))
        setPromptedFrame(node, frame)
        return True


def _bringSegments(node, left) -> None:
    """Add the previous frame's segments to a frame, empty if it lacks them."""
    existing = segmentIDs(node)
    for segmentID in segmentIDs(left):
        if segmentID not in existing:
            Appearance.of(left, segmentID).addTo(node, segmentID)


def _bringSurfaces(node, left) -> None:
    """Show a frame in 3D if and only if the previous one was."""
    wasShown, isShown = (
        each.GetSegmentation().ContainsRepresentation(CLOSED_SURFACE) for each in (left, node)
    )
    if wasShown and not isShown:
        node.CreateClosedSurfaceRepresentation()
    elif isShown and not wasShown:
        node.RemoveClosedSurfaceRepresentation()
