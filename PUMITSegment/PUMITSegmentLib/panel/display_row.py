"""Display of the current segments: opacity, outline, and a key that hides them."""

from __future__ import annotations

from PUMITSegmentLib.scene.selection import Selection


class DisplayRow:
    """Widgets for the display of the segments."""

    def __init__(self, ui, selection: Selection) -> None:
        self._ui = ui
        self._selection = selection
        self._isShowing = False
        self._hidden = None  # display node that a held key hides
        ui.opacitySlider.connect("valueChanged(int)", self._onOpacity)
        ui.outlineCheckBox.connect("toggled(bool)", self._onOutline)

    def refresh(self) -> None:
        """Show the display node's state."""
        display = self._display()
        self._isShowing = True
        for widget in (self._ui.opacitySlider, self._ui.outlineCheckBox):
            widget.enabled = display is not None
        if display is not None:
            self._ui.opacitySlider.value = round(100 * display.GetOpacity2DFill())
            self._ui.outlineCheckBox.checked = not display.GetVisibility2DFill()
        self._isShowing = False

    def hide(self, isHidden: bool) -> None:
        """Hide all segments while a key is held; show them again on release."""
        if isHidden and self._hidden is None:
            display = self._display()
            if display is not None and display.GetVisibility():
                self._hidden = display
                display.SetVisibility(False)
        elif not isHidden and self._hidden is not None:
            display, self._hidden = self._hidden, None
            display.SetVisibility(True)

    def close(self) -> None:
        """Show the segments if they are hidden."""
        self.hide(False)

    def _display(self):
        node = self._selection.segmentationNode
        return node.GetDisplayNode() if node is not None else None

    def _onOpacity(self, percent: int) -> None:
        display = self._display()
        if not self._isShowing and display is not None:
            display.SetOpacity2DFill(percent / 100)

    def _onOutline(self, isOutline: bool) -> None:
        display = self._display()
        if not self._isShowing and display is not None:
            display.SetVisibility2DFill(not isOutline)
            display.SetVisibility2DOutline(True)
