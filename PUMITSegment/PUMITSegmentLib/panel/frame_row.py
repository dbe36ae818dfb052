"""Frame of a sequence in the panel, and propagation to the next frames."""

from __future__ import annotations

from slicer.i18n import tr as _

from PUMITSegmentLib.scene.click_requests import ClickRequests
from PUMITSegmentLib.scene.continuing import Continuing


class FrameRow:
    """Row for the current frame, for sequences only."""

    def __init__(self, ui, requests: ClickRequests, continuing: Continuing) -> None:
        self._ui = ui
        self._requests = requests
        self._continuing = continuing
        ui.continueButton.connect("clicked()", continuing.continueOnce)
        ui.continueAllButton.connect("clicked()", continuing.continueToEnd)

    def refresh(self) -> None:
        """Show the frame, and what can be propagated."""
        ui, frame = self._ui, self._continuing.frame
        for widget in (ui.frameLabel, ui.frameRow):
            widget.visible = frame is not None
        if frame is None:
            return
        ui.frameLabel.text = _("Frame {number} of {count}:").format(
            number=frame.number + 1, count=frame.count
        )
        source, following = self._continuing.source, self._continuing.following
        ui.continueButton.text = _("Continue")
        tip = _("Segment this frame, starting from the segments of that one; clicks correct it")
        if source is not None:
            ui.continueButton.text = _("Continue from {number}").format(number=source + 1)
        elif following is not None:
            ui.continueButton.text = _("Continue to {number}").format(number=following + 1)
            tip = _("Show the next frame, and segment it, starting from the segments of this one")
        ui.continueAllButton.text = _("To the end")
        isFollowed = frame.number + 1 < frame.count or source is not None
        wait = _("Wait for the answer, or cancel it above") if self._requests.isComputing else ""
        nothing = _("No neighbouring frame has segments to continue from")
        canContinue = source is not None or following is not None
        _enable(ui.continueButton, wait or ("" if canContinue else nothing), tip)
        nothing = (
            ""
            if source is not None or self._continuing.isSegmented
            else _("Segment this frame first")
        )
        _enable(
            ui.continueAllButton,
            wait or nothing or ("" if isFollowed else _("No frame follows")),
            _(
                "Segment all frames that follow, each starting from the one before; stops at one "
                "that has segments"
            ),
        )


def _enable(button, why: str, tip: str) -> None:
    button.enabled = not why
    button.toolTip = why or tip
