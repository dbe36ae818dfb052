"""Heading of a section with its state in a few words."""

from __future__ import annotations

import qt

# Maximum width of a heading in pixels, for the narrowest panel: a heading requests the width of its
# text, so a panel that was once wide could otherwise not be narrowed again.
_MOST = 300


class SectionTitle:
    """Heading of a collapsible section.

    Args:
        section: The ctkCollapsibleButton, whose text is its name.
    """

    def __init__(self, section) -> None:
        self._section = section
        self._name = section.text

    def showState(self, state: str) -> None:
        """Show the state; empty for the name only."""
        text = f"{self._name}: {state}" if state else self._name
        section = self._section
        shown = qt.QFontMetrics(section.font).elidedText(text, qt.Qt.ElideRight, _MOST)
        if section.text != shown:
            section.text = shown
        if section.toolTip != text:
            section.toolTip = text
