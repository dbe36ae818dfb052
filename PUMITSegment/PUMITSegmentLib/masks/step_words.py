"""What a step changed, in words: for Undo and Redo, which name what they take back."""

from __future__ import annotations

from slicer.i18n import tr as _

from PUMITSegmentLib.masks.history import Changes, SegmentState
from PUMITSegmentLib.prompts.kinds import PromptKind
from PUMITSegmentLib.prompts.snapshot import NodeSnapshot, PromptSnapshot
from PUMITSegmentLib.prompts.tag import PromptTag


def segmentOfStep(changes: Changes) -> str:
    """Return the segment that a step is about; others may have lost voxels to it."""
    prompted = [i for i, (a, b) in changes.items() if _promptsOf(a) != _promptsOf(b)]
    return (prompted or list(changes) or [""])[0]


def stepInWords(changes: Changes) -> str:
    """Return what a step was, such as "point outside"; empty where nothing changed.

    Args:
        changes: Segments before and after it.
    """
    if not changes:
        return ""
    before, after = changes[segmentOfStep(changes)]
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
    """Return a prompt, such as "point outside"."""
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


def _promptsOf(state: SegmentState | None) -> PromptSnapshot | None:
    return state.prompts if state is not None else None


def _byKey(state: SegmentState) -> dict[str, NodeSnapshot]:
    return {node.key: node for node in state.prompts.nodes}


def _count(node: NodeSnapshot) -> int:
    return len(node.points) if node.tag.kind is PromptKind.POINT else 1
