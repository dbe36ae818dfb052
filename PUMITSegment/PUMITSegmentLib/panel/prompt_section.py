"""Section 3 of the panel: prompts, undo, overwrite mode, shortcuts, and frames of a sequence."""

from __future__ import annotations

import os
from collections.abc import Callable

import qt
from PUMITSlicerLib.shortcut_keys import Shortcut
from slicer.i18n import tr as _

from PUMITSegmentLib.prompts.tag import PromptKind
from PUMITSegmentLib.scene.click_requests import ClickRequests
from PUMITSegmentLib.scene.continuing import Continuing
from PUMITSegmentLib.scene.segment_actions import SegmentActions
from PUMITSegmentLib.scene.selection import Selection
from PUMITSegmentLib.segments.editable_area import maskingInWords
from PUMITSegmentLib.segments.writer import OverwriteMode


class PromptSection:
    """Buttons that place prompts, undo them, and update the segment."""

    def __init__(
        self,
        ui,
        selection: Selection,
        actions: SegmentActions,
        showNextPlace: Callable[[], None],
        iconFolder: str,
    ) -> None:
        self._ui = ui
        self._selection = selection
        self._actions = actions
        self._isShowing = False
        self.kindButtons = {
            PromptKind.POINT: ui.pointButton,
            PromptKind.BOX_3D: ui.box3dButton,
            PromptKind.BOX_2D: ui.box2dButton,
            PromptKind.SCRIBBLE: ui.scribbleButton,
            PromptKind.LASSO: ui.lassoButton,
        }
        icons = {kind.value: button for kind, button in self.kindButtons.items()} | {
            "inside": ui.positiveButton,
            "outside": ui.negativeButton,
            "undo": ui.undoButton,
            "redo": ui.redoButton,
            "reset": ui.resetSegmentButton,
            "resetall": ui.resetAllButton,
        }
        for name, button in icons.items():
            button.icon = qt.QIcon(os.path.join(iconFolder, f"{name}.png"))
        self._tips = {
            button: button.toolTip
            for button in [
                *icons.values(),
                *(ui.updateButton, ui.anotherAnswerButton, ui.checkHereButton),
            ]
        }
        for kind, button in self.kindButtons.items():
            button.connect("clicked(bool)", lambda on, kind=kind: self._onKind(kind, on))
        ui.positiveButton.connect("clicked()", lambda: actions.setPositive(True))
        ui.negativeButton.connect("clicked()", lambda: actions.setPositive(False))
        ui.undoButton.connect("clicked()", lambda: actions.undo())
        ui.redoButton.connect("clicked()", lambda: actions.redo())
        ui.resetSegmentButton.connect("clicked()", self._onReset)
        ui.resetAllButton.connect("clicked()", lambda: actions.reset())
        ui.updateButton.connect("clicked()", lambda: actions.update())
        ui.anotherAnswerButton.connect("clicked()", lambda: actions.showAnotherAnswer())
        ui.checkHereButton.connect("clicked()", showNextPlace)
        for mode, text in overwriteTexts().items():
            ui.overwriteSelector.addItem(text, mode.name)
        ui.overwriteSelector.connect("currentIndexChanged(int)", self._onOverwrite)

    def toggle(self, kind: PromptKind) -> None:
        """Start placing prompts of a kind, or stop if it is active."""
        self._onKind(kind, not self.kindButtons[kind].checked)

    def refresh(self) -> None:
        """Enable the possible actions; tooltips explain why the others are disabled."""
        ui, selection, actions = self._ui, self._selection, self._actions
        parameters = selection.parameters
        noScan = "" if selection.volumeNode is not None else _("Choose a scan first")
        noSegment = noScan or ("" if selection.segmentID else _("Add a segment first"))
        placed = selection.placed
        for kind, button in self.kindButtons.items():
            self._enable(button, noScan)
            button.checked = placed is not None and placed.kind is kind
        for button in (ui.positiveButton, ui.negativeButton):
            self._enable(button, noScan)
        isPositive = parameters is None or parameters.isPositive
        ui.positiveButton.checked = isPositive
        ui.negativeButton.checked = not isPositive
        self._enable(ui.undoButton, "" if actions.canUndo else _("Nothing to undo yet"))
        self._enable(ui.redoButton, "" if actions.canRedo else _("Nothing to redo"))
        self._enable(ui.resetSegmentButton, noSegment)
        self._enable(ui.resetAllButton, noSegment)
        self._enable(ui.updateButton, noSegment)
        isPrompted = bool(noSegment) or selection.promptCount(selection.segmentID) > 0
        noPrompt = noSegment or ("" if isPrompted else _("Add a prompt first"))
        self._enable(ui.checkHereButton, noPrompt)
        isOneAnswer = not noPrompt and self._actions.answerCount < 2
        noOther = _("There is no other answer to these prompts") if isOneAnswer else noPrompt
        self._enable(ui.anotherAnswerButton, noOther)
        self._isShowing = True
        if parameters is not None:
            modes = list(overwriteTexts())
            ui.overwriteSelector.currentIndex = modes.index(parameters.overwriteMode)
        self._isShowing = False
        ui.maskingLabel.text = maskingInWords(selection.segmentationNode)
        ui.maskingLabel.visible = bool(ui.maskingLabel.text)

    def _enable(self, button, reason: str) -> None:
        button.enabled = not reason
        button.toolTip = f"{self._tips[button]}\n{reason}." if reason else self._tips[button]

    def _onKind(self, kind: PromptKind, isChecked: bool) -> None:
        if isChecked:
            self._actions.startPlacing(kind)
        else:
            self._actions.stopPlacing()
        # If placing could not start, the button must not stay checked.
        self.refresh()

    def _onReset(self) -> None:
        self._actions.reset(self._selection.segmentID)

    def _onOverwrite(self, index: int) -> None:
        if not self._isShowing and self._selection.parameters is not None:
            self._selection.parameters.overwriteMode = list(overwriteTexts())[index]


def overwriteTexts() -> dict[OverwriteMode, str]:
    """Return the display texts of the overwrite modes."""
    return {
        OverwriteMode.STOP: _("Keep off other segments"),
        OverwriteMode.NONE: _("May overlap"),
        OverwriteMode.VISIBLE: _("Overwrite visible segments"),
        OverwriteMode.ALL: _("Overwrite all segments"),
    }


def shortcutsOf(
    selection: Selection,
    actions: SegmentActions,
    *,
    toggle: Callable[[PromptKind], None],
    checkHere: Callable[[], None],
    editByHand: Callable[[], None],
) -> list[Shortcut]:
    """Return all shortcuts of the module.

    They avoid the keys of Slicer's own views (B, F, G, R, T, V, space, brackets, arrows) and those
    of the Segment Editor; only undo and redo use the customary keys.
    """

    def changePolarity() -> None:
        if selection.parameters is not None:
            actions.setPositive(not selection.parameters.isPositive)

    def resetSegment() -> None:
        if selection.segmentID:
            actions.reset(selection.segmentID)

    return [
        Shortcut(("P",), _("Point"), lambda: toggle(PromptKind.POINT)),
        Shortcut(("X",), _("3D box"), lambda: toggle(PromptKind.BOX_3D)),
        Shortcut(("D",), _("2D box"), lambda: toggle(PromptKind.BOX_2D)),
        Shortcut(("S",), _("Scribble"), lambda: toggle(PromptKind.SCRIBBLE)),
        Shortcut(("L",), _("Lasso"), lambda: toggle(PromptKind.LASSO)),
        Shortcut(("Esc",), _("Stop placing"), actions.stopPlacing),
        Shortcut(("I",), _("Inside or outside"), changePolarity),
        Shortcut(("U",), _("Update"), actions.update),
        Shortcut(("O",), _("Another answer"), actions.showAnotherAnswer),
        Shortcut(("C",), _("Doubtful places"), checkHere),
        Shortcut(("N",), _("New segment"), lambda: actions.newSegment()),
        Shortcut((".",), _("Next segment"), lambda: selection.selectFollowingSegment(1)),
        Shortcut((",",), _("Previous segment"), lambda: selection.selectFollowingSegment(-1)),
        Shortcut(("M",), _("Segment Editor"), editByHand),
        Shortcut(("Ctrl+Z",), _("Undo"), actions.undo),
        Shortcut(("Ctrl+Y", "Ctrl+Shift+Z"), _("Redo"), actions.redo),
        Shortcut(("Ctrl+Backspace",), _("Clear the segment"), resetSegment),
    ]


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
