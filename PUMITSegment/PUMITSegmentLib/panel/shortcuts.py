"""Shortcuts that work only while the module is open.

They avoid the keys of Slicer's own views (B, F, G, R, T, V, space, brackets, arrows) and those of
the Segment Editor; only undo and redo use the customary keys.
"""

from __future__ import annotations

from collections.abc import Callable

from PUMITSlicerLib.shortcut_keys import Shortcut
from slicer.i18n import tr as _

from PUMITSegmentLib.prompts.tag import PromptKind
from PUMITSegmentLib.scene.segment_actions import SegmentActions
from PUMITSegmentLib.scene.selection import Selection


def shortcutsOf(
    selection: Selection,
    actions: SegmentActions,
    *,
    toggle: Callable[[PromptKind], None],
    checkHere: Callable[[], None],
    editByHand: Callable[[], None],
) -> list[Shortcut]:
    """Return all shortcuts of the module."""

    def changePolarity() -> None:
        if selection.parameters is not None:
            actions.setPositive(not selection.parameters.isPositive)

    def resetSegment() -> None:
        if selection.segmentID:
            actions.reset(selection.segmentID)

    return [
        Shortcut(("P",), _("Point"), lambda: toggle(PromptKind.POINT)),
        Shortcut(("X",), _("3D box"), lambda: toggle(PromptKind.BOX_3D)),
        Shortcut(("D",), _("2D box"), lambda: toggle(PromptKind.BOX_2D)),
        Shortcut(("S",), _("Scribble"), lambda: toggle(PromptKind.SCRIBBLE)),
        Shortcut(("L",), _("Lasso"), lambda: toggle(PromptKind.LASSO)),
        Shortcut(("Esc",), _("Stop placing"), actions.stopPlacing),
        Shortcut(("I",), _("Inside or outside"), changePolarity),
        Shortcut(("U",), _("Update now"), actions.update),
        Shortcut(("O",), _("Another answer"), actions.showAnotherAnswer),
        Shortcut(("C",), _("Next doubtful place"), checkHere),
        Shortcut(("N",), _("New segment"), lambda: actions.newSegment()),
        Shortcut((".",), _("Next segment"), lambda: selection.selectFollowingSegment(1)),
        Shortcut((",",), _("Previous segment"), lambda: selection.selectFollowingSegment(-1)),
        Shortcut(("M",), _("Segment Editor"), editByHand),
        Shortcut(("Ctrl+Z",), _("Undo"), actions.undo),
        Shortcut(("Ctrl+Y", "Ctrl+Shift+Z"), _("Redo"), actions.redo),
        Shortcut(("Ctrl+Backspace",), _("Reset the segment"), resetSegment),
    ]
