"""Description of a step in words, for Undo and Redo."""

from __future__ import annotations

from slicer.i18n import tr as _

from PUMITSegmentLib.masks.history import Changes, SegmentState
from PUMITSegmentLib.prompts.kinds import PromptKind
from PUMITSegmentLib.prompts.snapshot import NodeSnapshot, PromptSnapshot
from PUMITSegmentLib.prompts.tag import PromptTag


def segmentOfStep(changes: Changes) -> str:
    """Return the main segment of a step; others may have lost voxels to it."""
    prompted = [i for i, (a, b) in changes.items() if _promptsOf(a) != _promptsOf(b)]
    return (prompted or list(changes) or [""])[0]


def isOfSeveral(changes: Changes) -> bool:
    """Return whether a step adds or removes several segments, so that no one name describes it."""
    return len(_comingOrGoing(changes)) > 1 and segmentOfStep(changes) in _comingOrGoing(changes)


def stepInWords(changes: Changes) -> str:
    """Describe a step, such as "point outside"; empty if nothing changed.

    Args:
        changes: State of each segment before and after it.
    """
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
