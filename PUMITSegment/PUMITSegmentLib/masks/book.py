"""Current segmentation: its prompts, its masks, and their undo history."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from pumit.errors import VolumeError
from pumit.segmentation import AnswerChoice, Quality
from PUMITSlicerLib.label_layers import isEmptySegment
from PUMITSlicerLib.mrml import ijkToRas

from PUMITSegmentLib.automatic import FoundStructures, addStructures
from PUMITSegmentLib.masks.history import Changes, History, SegmentState
from PUMITSegmentLib.prompts.nodes import PromptNodes
from PUMITSegmentLib.prompts.segment_prompts import SegmentPrompts, isExcluding, withoutBoxes
from PUMITSegmentLib.segments.appearance import Appearance
from PUMITSegmentLib.segments.as_voxels import canRead
from PUMITSegmentLib.segments.editable_area import editingAnywhere
from PUMITSegmentLib.segments.packed_mask import PackedMask, PreparedMask, prepare, unpacked
from PUMITSegmentLib.segments.provenance import byModel, editedByHand, setProvenance
from PUMITSegmentLib.segments.rating import Rating, rate, restoreRating, review
from PUMITSegmentLib.segments.segment_list import segmentIDs
from PUMITSegmentLib.segments.writer import OverwriteMode, SegmentWriter, noVoxels

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Answer:
    """Mask in the forms of the writer and of the history, made on a thread.

    Attributes:
        choice: Which of the answers to the prompts it is, and of how many.
    """

    prepared: PreparedMask
    packed: PackedMask
    choice: AnswerChoice = field(default_factory=AnswerChoice)

    @staticmethod
    def of(mask: Mask, choice: AnswerChoice | None = None) -> Answer:
        """Prepare a mask, bool (D, H, W); needs no scene."""
        return Answer(prepare(mask), PackedMask.of(mask), choice or AnswerChoice())


def emptyMask(volumeNode) -> PackedMask:
    """Return an empty mask on a scan's grid.

    Raises:
        VolumeError: If the scan has no voxels.
    """
    image = volumeNode.GetImageData()
    if image is None:
        raise VolumeError(noVoxels())
    width, height, depth = image.GetDimensions()
    return PackedMask((depth, height, width), None, b"")


def gridOf(volumeNode) -> tuple:
    """Return a key of a scan's grid; masks are interchangeable between scans with equal keys."""
    if volumeNode is None or volumeNode.GetImageData() is None:
        return ()
    return (volumeNode.GetImageData().GetDimensions(), *ijkToRas(volumeNode).ravel().tolist())


# Steps of one frame of a sequence: its history, and the states that were never answered.
Steps = tuple[History, list[SegmentState]]


@dataclass(frozen=True)
class BookState:
    """Steps of a book that is closed, and the scan that they were made on."""

    volumeNode: Any
    grid: tuple
    steps: Steps


class SegmentBook:
    """Prompts, masks and history of one segmentation node, kept consistent.

    Masks are read only if another part of Slicer may have changed them: reading is slow.
    """

    def __init__(
        self,
        node,
        volumeNode,
        writer: SegmentWriter,
        onPromptsChanged: Callable[[str], None],
        onPlacing: Callable[[], None],
    ) -> None:
        self.node = node
        self.volumeNode = None
        self._grid: tuple = ()
        self.prompts = PromptNodes(
            *(node, onPromptsChanged), onPlacing=onPlacing, onHardened=self._onHardened
        )
        self._writer = writer
        self._history = History()
        # Segments whose masks may have been changed elsewhere since they were last read.
        self._dirtySegments: set[str] = set()
        # Names, colours and terms of removed segments.
        self._appearances: dict[str, Appearance] = {}
        # States whose prompts were never answered.
        self._unanswered: list[SegmentState] = []
        # Segment whose prompts the latest step changed; empty for another kind of step.
        self._latest = ""
        self._isRestoring = False
        self.setVolume(volumeNode)

    def setVolume(self, volumeNode) -> None:
        """Use another scan, or note that the current one changed.

        On another grid the history is cleared: its masks do not fit.
        """
        grid = gridOf(volumeNode)
        if grid != self._grid:
            self._forget()
        self.volumeNode, self._grid = volumeNode, grid

    @property
    def isOnGrid(self) -> bool:
        """Whether the scan is still on the grid that the steps were made on."""
        return gridOf(self.volumeNode) == self._grid

    def _forget(self) -> None:
        self._history.clear()
        self._unanswered.clear()
        self._dirtySegments.clear()

    def _onHardened(self) -> None:
        """Forget the steps: they hold the prompts' positions under the transform."""
        self.adoptAllEdits()
        known = self._history.existing
        self._forget()
        self._grid = gridOf(self.volumeNode)
        for segmentID in known:
            self.snapshot(segmentID)

    def swapHistory(self, steps: Steps | None) -> Steps:
        """Switch to the history of another frame, or an empty one; return the previous one."""
        left = (self._history, self._unanswered)
        self._history, self._unanswered = steps or (History(), [])
        self.noteChange()  # such as by an edit after its last step
        self._latest = ""
        return left

    def close(self) -> None:
        """Remove all observers; prompts, masks and `state` stay as they are."""
        self.prompts.close()

    @property
    def state(self) -> BookState:
        """The history, for a later `resume`."""
        return BookState(self.volumeNode, self._grid, (self._history, self._unanswered))

    def resume(self, state: BookState) -> bool:
        """Continue with the history of the same segmentation, if scan and grid are still the same.

        Masks may have been changed elsewhere since then: call `recordRemoved` afterwards.
        """
        isSame = (state.volumeNode, state.grid) == (self.volumeNode, self._grid)
        if isSame:
            self.swapHistory(state.steps)
        return isSame

    # Prompts and masks

    def read(self, segmentID: str) -> SegmentPrompts:
        """Return the prompts of a segment on the scan."""
        return self.prompts.read(segmentID, self.volumeNode)

    def mask(self, segmentID: str) -> Mask:
        """Return the current mask of a segment, bool (D, H, W)."""
        return self._writer.read(self.node, segmentID, self.volumeNode)

    def noteChange(self) -> bool:
        """Note that masks may have been changed.

        Returns:
            Whether the change was made outside this class.
        """
        if self._writer.isWriting or self._isRestoring:
            return False
        self._dirtySegments = set(segmentIDs(self.node))
        return True

    def snapshot(self, segmentID: str) -> None:
        """Record a segment's initial state before its first step."""
        if self._isRestoring:
            return
        if canRead(self.node, self.volumeNode) and self._history.present(segmentID) is None:
            packed = self._read(segmentID)
            self._history.begin(segmentID, self._state(segmentID, packed))
            self._dirtySegments.discard(segmentID)

    def adoptManualEdits(
        self, segmentID: str, *, isPrompted: bool = False, isStep: bool = True
    ) -> bool:
        """Turn a manually edited mask into the prompt from which the next prediction starts.

        A non-empty mask without prompts, such as a loaded one, is treated likewise.

        Args:
            isPrompted: Whether its prompts have just changed; then it had prompts.
            isStep: Whether an edit is a step; if not, it is part of the segment's latest step.

        Returns:
            Whether it was edited since it was last read.
        """
        if not canRead(self.node, self.volumeNode):
            return False
        self.snapshot(segmentID)
        known = self._history.present(segmentID).mask
        packed = known
        if segmentID in self._dirtySegments:
            self._dirtySegments.discard(segmentID)
            packed = self._read(segmentID)
        if packed != known:
            editedByHand(self._segment(segmentID))
            rate(self._segment(segmentID), None)
            if packed.box is not None:
                self.prompts.setMaskPrior(segmentID, packed.mask(), self.volumeNode)
            state = self._state(segmentID, packed)
            if isStep:
                self._record({segmentID: state})
            else:
                self._history.amend(segmentID, state)
            return True
        if not isPrompted and packed.box is not None and not self.read(segmentID).count:
            self.prompts.setMaskPrior(segmentID, packed.mask(), self.volumeNode)
            # The user did nothing yet that could be undone.
            self._history.amend(segmentID, self._state(segmentID, packed))
        return False

    def adoptAllEdits(self) -> None:
        """Record manual edits of all segments that have steps, before others of their steps."""
        for segmentID in segmentIDs(self.node):
            if self.present(segmentID) is not None:
                self.adoptManualEdits(segmentID, isPrompted=True)

    def answer(
        self,
        segmentID: str,
        answer: Answer,
        overwrite: OverwriteMode,
        model: dict[str, str],
        quality: Quality | None = None,
    ) -> float:
        """Write the mask that answers a segment's current prompts, and rate the result.

        Args:
            quality: Estimated quality of the whole answer; None if unknown.

        Returns:
            Fraction of the mask that the segment covers now, 0 to 1; 0 for an empty mask. It is
                less than 1 if other segments keep voxels, the editable area excludes some, or the
                segmentation's voxels are larger than the scan's.
        """
        self._noteOthers(segmentID, overwrite)
        with self._writer.writing(self.node):
            isWhole = self._writer.write(
                self.node, segmentID, answer.prepared, self.volumeNode, overwrite
            )
            setProvenance(
                self._segment(segmentID),
                byModel("SEMIAUTOMATIC", model.get("name", ""), model.get("version", "")),
            )
            # A restricted or resampled mask has to be read back.
            packed = answer.packed if isWhole else self._read(segmentID)
            kept = (
                float(answer.packed.box is not None) if isWhole else _share(packed, answer.packed)
            )
            isFilled = packed.box is not None and not isEmptySegment(self.node, segmentID)
            rate(self._segment(segmentID), Rating.ofAnswer(quality, kept) if isFilled else None)
        snapshot = self.read(segmentID).snapshot
        if packed.box is not None and snapshot.isContinued:
            # Later clicks correct this answer and not the mask of the previous frame.
            origin = {"isContinued": True, "isClicked": snapshot.isOneClick}
            self.prompts.setMaskPrior(segmentID, packed, self.volumeNode, **origin)
        else:
            self.prompts.choose(segmentID, answer.choice)
        state = self._state(segmentID, packed)
        self._close(self._history.present(segmentID))
        others = self._overwritten(segmentID) if overwrite.takesFromOthers else {}
        if not others:
            self._history.amend(segmentID, state)
        else:
            if self._latest == segmentID:
                # Merge placing the prompt and overwriting others into one step.
                self._history.undo()
            self._record({segmentID: state, **others})
        return kept if isFilled else 0.0

    def holders(self, segmentID: str, answer: Answer) -> dict[str, float]:
        """Return the fractions of an answer, 0 to 1, that only others cover, largest first."""
        found = answer.packed.mask()
        count = max(int(np.count_nonzero(found)), 1)
        found &= ~self.mask(segmentID)
        others = [each for each in segmentIDs(self.node) if each != segmentID]
        held = {each: np.count_nonzero(found & self.mask(each)) / count for each in others}
        return {i: share for i, share in sorted(held.items(), key=lambda e: -e[1]) if share}

    def chooseAnother(self, segmentID: str) -> bool:
        """Choose the next answer to a segment's prompts as a step; False if there is only one."""
        choice = self.prompts.choice(segmentID)
        if choice.count < 2:
            return False
        following = AnswerChoice(choice.number % choice.count + 1, choice.count)
        self.prompts.choose(segmentID, following)
        self.recordPrompts(segmentID)
        return True

    def refusePrompts(self, segmentID: str) -> None:
        """Restore a segment's prompts to the state before their latest change; not a step."""
        present = self._history.present(segmentID)
        if present is not None:  # else its earlier prompts are not known: keep all
            self.prompts.restore(segmentID, present.prompts, isInEvent=True)

    def isOnlyExcluded(self, segmentID: str, prompts: SegmentPrompts) -> bool:
        """Return whether only negative boxes were added since the segment's last step.

        Then no new prediction is needed: its mask already answers all other prompts.
        """
        present = self._history.present(segmentID)
        if present is None or present.mask is None or present in self._unanswered:
            return False
        before = {node.key: node for node in present.prompts.nodes}
        now = {node.key: node for node in prompts.snapshot.nodes}
        added = [node for key, node in now.items() if key not in before]
        isKept = all(now.get(key) == node for key, node in before.items())
        return isKept and bool(added) and all(isExcluding(node.tag) for node in added)

    def exclude(self, segmentID: str) -> bool:
        """Remove the negative boxes from the current mask; part of the latest step.

        Returns:
            Whether the segment still has voxels.
        """
        answer = Answer.of(withoutBoxes(self.mask(segmentID), self.read(segmentID).boxes))
        self._writer.write(self.node, segmentID, answer.prepared, self.volumeNode)
        editedByHand(self._segment(segmentID))
        self._close(self._history.present(segmentID))
        packed = self._read(segmentID)
        self._history.amend(segmentID, self._state(segmentID, packed))
        return packed.box is not None

    def edit(self, segmentID: str, change: Callable[[Mask], Mask]) -> bool:
        """Apply a manual edit as one step; False if it changes nothing or leaves no voxel."""
        self.adoptManualEdits(segmentID)
        before = self.mask(segmentID)
        after = change(before)
        if not after.any() or np.array_equal(before, after):
            return False
        self._writer.write(self.node, segmentID, after, self.volumeNode)
        self._dirtySegments.add(segmentID)
        self.adoptManualEdits(segmentID)
        return True

    def empty(self, segmentID: str) -> None:
        """Erase a segment whose last prompt was removed; part of the same step."""
        rate(self._segment(segmentID), None)
        self._restoreMask(segmentID, emptyMask(self.volumeNode))
        self._history.amend(segmentID, self._state(segmentID, emptyMask(self.volumeNode)))

    def reset(self, ids: Iterable[str]) -> None:
        """Remove prompts and masks of segments as one step."""
        states = {}
        for segmentID in ids:
            self.adoptManualEdits(segmentID)
            self.prompts.clear(segmentID)
            self._restoreMask(segmentID, emptyMask(self.volumeNode))
            states[segmentID] = self._state(segmentID, emptyMask(self.volumeNode))
        self._record(states)

    # Steps

    @property
    def canUndo(self) -> bool:
        """Whether there is a step to undo."""
        return self._history.canUndo

    @property
    def canRedo(self) -> bool:
        """Whether there is a step to redo."""
        return self._history.canRedo

    def isUnanswered(self, segmentID: str) -> bool:
        """Return whether a segment's latest prompts were never answered."""
        return self._history.present(segmentID) in self._unanswered

    def recordPrompts(self, segmentID: str) -> None:
        """Record a change of prompts; the mask that answers them completes the step."""
        before = self._history.present(segmentID)
        state = self._state(segmentID, before.mask if before else None)
        if self._record({segmentID: state}):
            self._latest = segmentID
            self._unanswered.append(state)

    def recordNew(self, segmentID: str) -> None:
        """Record that a segment was added."""
        # It may have a state already, since it was selected.
        self._history.begin(segmentID, None)
        self._record({segmentID: self._state(segmentID, emptyMask(self.volumeNode))})

    def addFound(self, found: FoundStructures, overwrite: OverwriteMode) -> list[str]:
        """Add an automatic model's result as one step.

        Raises:
            PumitError: If one cannot be written; then none is added.
        """
        if overwrite is OverwriteMode.STOP:  # results may overlap existing segments, for comparison
            overwrite = OverwriteMode.NONE
        self._noteOthers("", overwrite)
        added = addStructures(found, self.node, self.volumeNode, self._writer, overwrite)
        for segmentID in added:
            self._history.begin(segmentID, None)
        states = {segmentID: self._state(segmentID, self._read(segmentID)) for segmentID in added}
        others = self._overwritten("") if overwrite.takesFromOthers else {}
        self._record({**states, **{i: s for i, s in others.items() if i not in states}})
        return added

    def removeSegment(self, segmentID: str) -> None:
        """Remove a segment with its prompts."""
        self.adoptManualEdits(segmentID)
        # Undo restores its current name, even if it was renamed since.
        self._history.amend(segmentID, self._state(segmentID, self._read(segmentID)))
        self._drop(segmentID)
        self._record({segmentID: None})

    def recordRemoved(self) -> None:
        """Record segments that were removed elsewhere as a step, so that undo restores them."""
        if self._isRestoring:  # one after another
            return
        ids = self._history.existing
        self._record({i: None for i in ids if self._segment(i) is None})

    def upcoming(self, isUndo: bool) -> Changes:
        """Return what the next undo, or else redo, would change."""
        return self._history.upcoming(isUndo)

    def present(self, segmentID: str) -> PackedMask | None:
        """Return a segment's last known mask."""
        state = self._history.present(segmentID)
        return state.mask if state is not None else None

    def undo(self) -> list[str] | None:
        """Undo the last step.

        Returns:
            Segments whose prompts were never answered; None if there is nothing to undo.
        """
        return self._restore(self._history.undo())

    def redo(self) -> list[str] | None:
        """Redo the step that was undone last; see `undo`."""
        return self._restore(self._history.redo())

    def _restore(self, states) -> list[str] | None:
        if states is None:
            return None
        self._latest = ""
        # Removing a segment selects the next one, which may be removed too: that is not a new step.
        self._isRestoring = True
        try:
            self._restoreEach(states)
        finally:
            self._isRestoring = False
        return [i for i, state in states.items() if state in self._unanswered]

    def _restoreEach(self, states) -> None:
        # Last first: a segment's place, which restores it, must not depend on those before it.
        for segmentID in reversed([i for i, state in states.items() if state is None]):
            self._drop(segmentID)
        for segmentID, state in states.items():
            if state is None:
                continue
            if self._segment(segmentID) is None:
                self._appearances.get(segmentID, state.appearance).addTo(self.node, segmentID)
            self.prompts.restore(segmentID, state.prompts)
            if state.mask is not None:
                self._restoreMask(segmentID, state.mask)
                restoreRating(self._segment(segmentID), state.appearance.rating)
            self._dirtySegments.discard(segmentID)

    def _close(self, answered: SegmentState | None) -> None:
        """Mark a state's prompts as answered."""
        self._unanswered = [other for other in self._unanswered if other != answered]

    def _record(self, states: dict[str, SegmentState | None]) -> bool:
        if not states:
            return False
        self._latest = ""
        return self._history.record(states)

    def _noteOthers(self, segmentID: str, overwrite: OverwriteMode) -> None:
        """Note the masks of others as they are, for the undo of a step that may change them."""
        if not overwrite.takesFromOthers:
            return
        for other in segmentIDs(self.node):
            if other != segmentID:
                self.adoptManualEdits(other, isPrompted=True, isStep=False)

    def _overwritten(self, segmentID: str) -> dict[str, SegmentState]:
        """Return the states of segments that lost voxels to one, if their masks are known."""
        changed = {}
        for other in segmentIDs(self.node):
            present = self._history.present(other)
            if other != segmentID and present is not None and present.mask is not None:
                packed = self._read(other)
                if packed != present.mask:
                    review(self._segment(other), None)
                    changed[other] = self._state(other, packed)
        return changed

    def _state(self, segmentID: str, packed: PackedMask | None) -> SegmentState:
        return SegmentState(
            self.prompts.snapshot(segmentID), packed, Appearance.of(self.node, segmentID)
        )

    def _segment(self, segmentID: str):
        return self.node.GetSegmentation().GetSegment(segmentID)

    def _drop(self, segmentID: str) -> None:
        self.prompts.removeSegment(segmentID)
        if self._segment(segmentID) is not None:
            # It may have been renamed since the state that restores it.
            self._appearances[segmentID] = Appearance.of(self.node, segmentID)
            self.node.GetSegmentation().RemoveSegment(segmentID)
        self._dirtySegments.discard(segmentID)

    def _read(self, segmentID: str) -> PackedMask:
        if isEmptySegment(self.node, segmentID):
            return emptyMask(self.volumeNode)  # without reading every voxel of the scan
        packed = PackedMask.of(self.mask(segmentID))
        own = self._writer.readOwn(self.node, segmentID, self.volumeNode)
        return packed if own is None else replace(packed, own=(own[0], PackedMask.of(own[1])))

    def _restoreMask(self, segmentID: str, packed: PackedMask) -> None:
        # The editable area set since then must not prevent the undo.
        with editingAnywhere():
            if packed.own is not None:
                box, own = packed.own
                self._writer.writeOwn(self.node, segmentID, box, own.mask(), self.volumeNode)
                if self._read(segmentID) == packed:
                    return  # else the segmentation has moved, or is on another grid
            self._writer.write(self.node, segmentID, unpacked(packed), self.volumeNode)


def _share(written: PackedMask, answer: PackedMask) -> float:
    """Return the fraction of an answer that was written, 0 to 1."""
    found = answer.mask()
    return float(np.count_nonzero(found & written.mask()) / max(int(np.count_nonzero(found)), 1))
