"""The heading of a section with its state in a few words."""

from __future__ import annotations

import qt

# Pixels of a heading in the narrowest panel. In no case more: a heading asks for the width of its
# text, so that a panel that once was wide could never be made narrow again.
_MOST = 300


class SectionTitle:
    """Keeps the heading of a collapsible section up to date.

    Args:
        section: The ctkCollapsibleButton, whose text names it.
    """

    def __init__(self, section) -> None:
        self._section = section
        self._name = section.text

    def showState(self, state: str) -> None:
        """Say how things stand; empty for only the name."""
        text = f"{self._name}: {state}" if state else self._name
        section = self._section
        shown = section.fontMetrics().elidedText(text, qt.Qt.ElideRight, _MOST)
        if section.text != shown:
            section.text = shown
        if section.toolTip != text:
            section.toolTip = text
