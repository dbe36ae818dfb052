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
    """An action and its keys.

    Attributes:
        keys: Key sequences as Qt writes them.
        text: Its effect, translated.
        action: Callback.
    """

    keys: tuple[str, ...]
    text: str
    action: Callable[[], None]


def shortcutsOf(
    logic, toggle: Callable[[PromptKind], None], editByHand: Callable[[], None]
) -> list[Shortcut]:
    """All shortcuts of the module.

    Args:
        logic: The module's logic.
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


class _HeldKey(qt.QObject):
    """Event filter for a key that goes down and up again, wherever in the program."""

    def __init__(self, key: int, onHeld: Callable[[bool], None]) -> None:
        super().__init__()
        self._key = key
        self._onHeld = onHeld
        self._isHeld = False

    def eventFilter(self, target, event) -> bool:
        kind = event.type()
        if kind == qt.QEvent.WindowDeactivate and self._isHeld:
            self._notify(False)  # its release goes to another program
        elif kind in (qt.QEvent.KeyPress, qt.QEvent.KeyRelease) and event.key() == self._key:
            isPlain = event.modifiers() == qt.Qt.NoModifier and not _isTyping()
            if not event.isAutoRepeat() and (isPlain or self._isHeld):
                self._notify(kind == qt.QEvent.KeyPress)
        return False

    def _notify(self, isHeld: bool) -> None:
        if isHeld != self._isHeld:
            self._isHeld = isHeld
            self._onHeld(isHeld)


def _isTyping() -> bool:
    focus = qt.QApplication.focusWidget()
    texts = (qt.QLineEdit, qt.QPlainTextEdit, qt.QTextEdit, qt.QAbstractSpinBox)
    return isinstance(focus, texts)


class ShortcutKeys:
    """Shortcuts that work while the module is open, in every window of the program.

    Args:
        shortcuts: Shortcuts to install.
        onHideKey: Callback when the key that hides segments goes down, and up again.
    """

    def __init__(
        self, shortcuts: list[Shortcut], onHideKey: Callable[[bool], None] = lambda isHeld: None
    ) -> None:
        self.shortcuts = shortcuts
        self._keys: list = []
        self._held = _HeldKey(int(qt.Qt.Key_H), onHideKey)

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
                key.setContext(qt.Qt.ApplicationShortcut)  # views may lie in a second window
                # Ambiguous where another module left the same key behind: it is meant for the
                # module that is open.
                for signal in ("activated()", "activatedAmbiguously()"):
                    key.connect(signal, lambda action=shortcut.action: action())
                self._keys.append(key)
        slicer.app.installEventFilter(self._held)

    def remove(self) -> None:
        """Leave nothing behind."""
        if self._keys:
            slicer.app.removeEventFilter(self._held)
        for key in self._keys:
            # Not later: the same keys may be another module's a moment from now.
            key.enabled = False
            key.setParent(None)
            key.deleteLater()
        self._keys = []
