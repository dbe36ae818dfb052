"""Undo and redo of segments: their prompts together with their masks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slicer.i18n import tr as _

from PUMITSegmentLib.prompts.snapshot import NodeSnapshot, PromptSnapshot
from PUMITSegmentLib.prompts.tag import PromptKind, PromptTag
from PUMITSegmentLib.segments.packed_mask import PackedMask

DEFAULT_MAX_BYTES = 256 << 20


@dataclass(frozen=True)
class SegmentState:
    """State of a segment at one moment.

    Attributes:
        prompts: Immutable and comparable, such as a `PromptSnapshot`.
        appearance: Further properties that restore a removed segment, such as name, colour and
            terminology. Anything immutable and comparable.
    """

    prompts: Any
    mask: PackedMask | None = None
    appearance: Any = None

    @property
    def byteCount(self) -> int:
        """Approximate memory use."""
        prompts = getattr(self.prompts, "byteCount", 0)
        return int(prompts) + (self.mask.byteCount if self.mask else 0)


# A segment that does not exist (yet or anymore) has state None.
States = dict[str, SegmentState | None]
Changes = dict[str, tuple[SegmentState | None, SegmentState | None]]


@dataclass(eq=False)
class _Moment:
    """State shared by two levels: the end of one and the start of the next."""

    state: SegmentState | None


_Level = dict[str, tuple[_Moment, _Moment]]


class History:
    """Undo history: states of segments, level by level.

    A level is one step of the user and may affect several segments, such as one whose mask grew and
    a neighbour that it overwrote. The caller restores the states that `undo` and `redo` return,
    without recording that as another change.

    Args:
        maxBytes: Memory for all levels. The oldest are dropped first; the last step is always
            kept.
    """

    def __init__(self, maxBytes: int = DEFAULT_MAX_BYTES) -> None:
        self._maxBytes = maxBytes
        self._present: dict[str, _Moment] = {}
        self._past: list[_Level] = []
        self._future: list[_Level] = []

    @property
    def canUndo(self) -> bool:
        """Whether there is a step to undo."""
        return bool(self._past)

    @property
    def canRedo(self) -> bool:
        """Whether there is a step to redo."""
        return bool(self._future)

    @property
    def byteCount(self) -> int:
        """Memory use of all levels; shared states count once."""
        moments = {id(m): m for m in self._present.values()}
        for level in self._past + self._future:
            moments |= {id(m): m for pair in level.values() for m in pair}
        return sum(m.state.byteCount for m in moments.values() if m.state is not None)

    def present(self, segmentID: str) -> SegmentState | None:
        """Return the latest known state of a segment."""
        moment = self._present.get(segmentID)
        return moment.state if moment else None

    @property
    def existing(self) -> list[str]:
        """IDs of the known segments that exist."""
        return [each for each, moment in self._present.items() if moment.state is not None]

    def begin(self, segmentID: str, state: SegmentState | None) -> None:
        """Set a segment's initial state; this is not a step."""
        self._present.setdefault(segmentID, _Moment(None)).state = state

    def record(self, states: Mapping[str, SegmentState | None]) -> bool:
        """Add a level: the states of segments after a step of the user.

        Steps that were undone can then no longer be redone. Unchanged segments are not part of the
        level.

        Args:
            states: States by segment ID; None for a segment that was removed.
        """
        level: _Level = {}
        for segmentID, state in states.items():
            if state != self.present(segmentID):
                before = self._present.get(segmentID) or _Moment(None)
                level[segmentID] = (before, _Moment(state))
        if not level:
            return False
        for segmentID, (_before, after) in level.items():
            self._present[segmentID] = after
        self._future.clear()
        self._past.append(level)
        self._forgetOldest()
        return True

    def amend(self, segmentID: str, state: SegmentState | None) -> None:
        """Complete the segment's present state, such as with the mask that answers its prompts.

        This is not a step: the level that led to the state now leads to the completed one, even if
        other segments have changed since.
        """
        self.begin(segmentID, state)
        self._forgetOldest()

    def upcoming(self, isUndo: bool) -> Changes:
        """Return the states before and after the level that `undo`, or else `redo`, would use."""
        levels = self._past if isUndo else self._future
        level = levels[-1] if levels else {}
        return {each: (before.state, after.state) for each, (before, after) in level.items()}

    def undo(self) -> States | None:
        """Undo the last level.

        Returns:
            States to restore, by segment ID; None if there is nothing to undo.
        """
        return self._move(self._past, self._future, 0)

    def redo(self) -> States | None:
        """Redo the level that was undone last; see `undo`."""
        return self._move(self._future, self._past, 1)

    def clear(self) -> None:
        """Drop all levels and states."""
        self._present.clear()
        self._past.clear()
        self._future.clear()

    def _move(self, source: list[_Level], target: list[_Level], side: int) -> States | None:
        if not source:
            return None
        level = source.pop()
        target.append(level)
        for segmentID, moments in level.items():
            self._present[segmentID] = moments[side]
        return {segmentID: moments[side].state for segmentID, moments in level.items()}

    def _forgetOldest(self) -> None:
        while self.byteCount > self._maxBytes and len(self._past) > 1:
            self._past.pop(0)
        while self.byteCount > self._maxBytes and self._future:
            self._future.pop(0)


def segmentOfStep(changes: Changes) -> str:
    """Return the main segment of a step; others may have lost voxels to it."""
    prompted = [i for i, (a, b) in changes.items() if _promptsOf(a) != _promptsOf(b)]
    return (prompted or list(changes) or [""])[0]


def isOfSeveral(changes: Changes) -> bool:
    """Return whether a step adds or removes several segments, so that no one name describes it."""
    return len(_comingOrGoing(changes)) > 1 and segmentOfStep(changes) in _comingOrGoing(changes)


def stepInWords(changes: Changes) -> str:
    """Describe a step, such as "point outside"; empty if nothing changed."""
    if not changes:
        return ""
    before, after = changes[segmentOfStep(changes)]
    if isOfSeveral(changes):
        words = _("{count} new segments") if before is None else _("removal of {count} segments")
        return words.format(count=len(_comingOrGoing(changes)))
    if before is None or after is None:
        return _("new segment") if before is None else _("removal of the segment")
    old, new = _byKey(before), _byKey(after)
    if old == new:
        return _("change of the segment")
    if old and not new:
        return _("clearing") if sum(map(_count, old.values())) > 1 else _("removal of a prompt")
    for key, node in new.items():
        if key not in old or _count(node) > _count(old[key]):
            return _inWords(node)
    if any(key not in new or _count(new[key]) < _count(node) for key, node in old.items()):
        return _("removal of a prompt")
    changed = next(node for key, node in new.items() if node != old[key])
    if changed.choices != old[changed.key].choices:
        return _("another answer")
    return _inWords(changed) if changed.tag.kind is None else _("move of a prompt")


def _inWords(node: NodeSnapshot) -> str:
    isContinued = node.prior is not None and node.prior.isContinued
    return _("continued from another frame") if isContinued else promptInWords(node.tag)


def promptInWords(tag: PromptTag) -> str:
    """Describe a prompt, such as "point outside"."""
    inside = {
        PromptKind.POINT: _("point inside"),
        PromptKind.BOX_3D: _("3D box"),
        PromptKind.BOX_2D: _("2D box"),
        PromptKind.SCRIBBLE: _("scribble inside"),
        PromptKind.LASSO: _("lasso inside"),
        None: _("edit by hand"),
    }
    outside = {
        PromptKind.POINT: _("point outside"),
        PromptKind.BOX_3D: _("3D box outside"),
        PromptKind.BOX_2D: _("2D box outside"),
        PromptKind.SCRIBBLE: _("scribble outside"),
        PromptKind.LASSO: _("lasso outside"),
    }
    return inside[tag.kind] if tag.isPositive else outside.get(tag.kind, inside[tag.kind])


def _comingOrGoing(changes: Changes) -> list[str]:
    return [i for i, states in changes.items() if None in states]


def _promptsOf(state: SegmentState | None) -> PromptSnapshot | None:
    return state.prompts if state is not None else None


def _byKey(state: SegmentState) -> dict[str, NodeSnapshot]:
    return {node.key: node for node in state.prompts.nodes}


def _count(node: NodeSnapshot) -> int:
    return len(node.points) if node.tag.kind is PromptKind.POINT else 1
