"""Application-wide shortcuts, active while installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import qt
import slicer


@dataclass(frozen=True)
class Shortcut:
    """Action and its keys.

    Attributes:
        keys: Key sequences as Qt writes them.
        repeats: Whether the action repeats while the key is held.
    """

    keys: tuple[str, ...]
    text: str
    action: Callable[[], object]
    repeats: bool = True


class _HeldKey(qt.QObject):
    """Event filter that tracks whether a key is held, application-wide."""

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
    texts = ("QLineEdit", "QPlainTextEdit", "QTextEdit", "QAbstractSpinBox")
    # `isinstance` knows no base classes: each class of PythonQt derives from its wrapper only.
    return focus is not None and any(focus.inherits(kind) for kind in texts)


class ShortcutKeys:
    """Shortcuts that work in every window of the application while installed."""

    def __init__(
        self, shortcuts: list[Shortcut], onHideKey: Callable[[bool], None] = lambda isHeld: None
    ) -> None:
        self.shortcuts = shortcuts
        self._keys: list = []
        self._held = _HeldKey(int(qt.Qt.Key_H), onHideKey)

    def install(self, parent=None) -> None:
        """Install the shortcuts.

        Args:
            parent: Parent window; Slicer's main window by default.
        """
        parent = parent or slicer.util.mainWindow()
        if self._keys or parent is None:
            return
        for shortcut in self.shortcuts:
            for sequence in shortcut.keys:
                key = qt.QShortcut(qt.QKeySequence(sequence), parent)
                key.setContext(qt.Qt.ApplicationShortcut)  # views may be in a second window
                key.setAutoRepeat(shortcut.repeats)
                # Ambiguous if another module left the same key installed: the open module gets it.
                for signal in ("activated()", "activatedAmbiguously()"):
                    key.connect(signal, lambda action=shortcut.action: action())
                self._keys.append(key)
        slicer.app.installEventFilter(self._held)

    def remove(self) -> None:
        """Remove all shortcuts."""
        if self._keys:
            slicer.app.removeEventFilter(self._held)
        for key in self._keys:
            # At once, since another module may install the same keys next.
            key.enabled = False
            key.setParent(None)
            key.deleteLater()
        self._keys = []
