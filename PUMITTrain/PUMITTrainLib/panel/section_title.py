"""The heading of a section, which also says in a few words how things stand in it."""

from __future__ import annotations

import qt

# The arrow before the text, and the frame around it.
_BESIDE_TEXT = 52


class SectionTitle:
    """Keeps the heading of a collapsible section up to date.

    Args:
        section: The ctkCollapsibleButton, whose text names it.
    """

    def __init__(self, section) -> None:
        self._section = section
        self._name = section.text
        # The whole sentence, so that a wider panel shows more of it the next time.
        self.state = ""

    def say(self, state: str) -> None:
        """Say how things stand; empty for the name alone."""
        self.state = state
        text = f"{self._name}: {state}" if state else self._name
        section = self._section
        width = max(section.width, 1) - _BESIDE_TEXT
        # Without that, a long text would ask for a wider panel.
        shown = section.fontMetrics().elidedText(text, qt.Qt.ElideRight, width)
        if section.text != shown:
            section.text = shown
        if section.toolTip != text:
            section.toolTip = text
