"""Keys that work while the module is open, and only then.

They avoid keys that Slicer's own views take (B, F, G, R, T, V, space, brackets, arrows) and those
of the Segment Editor, except that undo and redo are where everybody looks for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import qt
import slicer
from slicer.i18n import tr as _

from PUMITSegmentLib.prompts.kinds import PromptKind


@dataclass(frozen=True)
class Shortcut:
    """One action and its keys.

    Attributes:
        keys: Key sequences as Qt writes them.
        text: What it does, translated.
        action: What is called.
    """

    keys: tuple[str, ...]
    text: str
    action: Callable[[], None]


def shortcutsOf(logic, toggle: Callable[[PromptKind], None]) -> list[Shortcut]:
    """All shortcuts of the module.

    Args:
        logic: The module's logic.
        toggle: Starts or stops to place prompts of a kind.
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
        Shortcut(("C",), _("Check here, and the next place"), logic.checkHere.showNext),
        Shortcut(("N",), _("New segment"), logic.newSegment),
        Shortcut((".",), _("Next segment"), lambda: logic.selectFollowingSegment(1)),
        Shortcut((",",), _("Previous segment"), lambda: logic.selectFollowingSegment(-1)),
        Shortcut(("Ctrl+Z",), _("Undo"), logic.undo),
        Shortcut(("Ctrl+Y", "Ctrl+Shift+Z"), _("Redo"), logic.redo),
        Shortcut(("Ctrl+Backspace",), _("Reset the segment"), resetSegment),
    ]


class ShortcutKeys:
    """Puts shortcuts on the main window while the module is open.

    Args:
        shortcuts: What is put there.
    """

    def __init__(self, shortcuts: list[Shortcut]) -> None:
        self.shortcuts = shortcuts
        self._keys: list = []

    @property
    def isInstalled(self) -> bool:
        """Whether the keys work now."""
        return bool(self._keys)

    def install(self, parent=None) -> None:
        """Make the keys work.

        Args:
            parent: Window in which they work; Slicer's main window by default.
        """
        parent = parent or slicer.util.mainWindow()
        if self._keys or parent is None:
            return
        for shortcut in self.shortcuts:
            for sequence in shortcut.keys:
                key = qt.QShortcut(qt.QKeySequence(sequence), parent)
                # Ambiguous where another module left the same key behind: it is meant for the
                # module that is open.
                for signal in ("activated()", "activatedAmbiguously()"):
                    key.connect(signal, lambda action=shortcut.action: action())
                self._keys.append(key)

    def remove(self) -> None:
        """Leave nothing on the window."""
        for key in self._keys:
            # Not later: the same keys may be another module's a moment from now.
            key.enabled = False
            key.setParent(None)
            key.deleteLater()
        self._keys = []
