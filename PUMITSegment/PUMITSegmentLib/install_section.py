"""What is needed and not there yet: explained, and installed when the user says so."""

from __future__ import annotations


class InstallSection:
    """The area for the first run.

    Args:
        ui: Named widgets of the panel.
        compute: What computes.
        status: Told how installing goes.
    """

    def __init__(self, ui, compute, status) -> None:
        self._ui = ui
        ui.setupFrame.hide()

    def enter(self) -> None:
        """The panel is open."""

    def close(self) -> None:
        """Show nothing more."""
