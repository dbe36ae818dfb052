"""Shortcuts that work only while the module is open.

They avoid the keys of Slicer's own views (B, F, G, R, T, V, space, brackets, arrows) and those of
the Segment Editor; only undo and redo use the customary keys.
"""

from __future__ import annotations

from collections.abc import Callable

from PUMITSlicerLib.shortcut_keys import Shortcut
from slicer.i18n import tr as _

from PUMITSegmentLib.prompts.kinds import PromptKind


def shortcutsOf(
    logic, toggle: Callable[[PromptKind], None], editByHand: Callable[[], None]
) -> list[Shortcut]:
    """Return all shortcuts of the module.

    Args:
        toggle: Function that starts or stops placing prompts of a kind.
        editByHand: Callback that opens the Segment Editor.
    """

    def changePolarity() -> None:
        if logic.parameters is not None:
            logic.setPositive(not logic.parameters.isPositive)

    def resetSegment() -> None:
        if logic.segmentID:
            logic.reset(logic.segmentID)

    return [
        Shortcut(("P",), _("Point"), lambda: toggle(PromptKind.POINT)),
        Shortcut(("X",), _("3D box"), lambda: toggle(PromptKind.BOX_3D)),
        Shortcut(("D",), _("2D box"), lambda: toggle(PromptKind.BOX_2D)),
        Shortcut(("S",), _("Scribble"), lambda: toggle(PromptKind.SCRIBBLE)),
        Shortcut(("L",), _("Lasso"), lambda: toggle(PromptKind.LASSO)),
        Shortcut(("Esc",), _("Stop placing"), logic.stopPlacing),
        Shortcut(("I",), _("Inside or outside"), changePolarity),
        Shortcut(("U",), _("Update now"), logic.update),
        Shortcut(("O",), _("Another answer"), logic.showAnotherAnswer),
        Shortcut(("C",), _("Next doubtful place"), logic.checkHere.showNext),
        Shortcut(("N",), _("New segment"), logic.newSegment),
        Shortcut((".",), _("Next segment"), lambda: logic.selectFollowingSegment(1)),
        Shortcut((",",), _("Previous segment"), lambda: logic.selectFollowingSegment(-1)),
        Shortcut(("M",), _("Segment Editor"), editByHand),
        Shortcut(("Ctrl+Z",), _("Undo"), logic.undo),
        Shortcut(("Ctrl+Y", "Ctrl+Shift+Z"), _("Redo"), logic.redo),
        Shortcut(("Ctrl+Backspace",), _("Reset the segment"), resetSegment),
    ]
