"""Panel of the module: loads the UI and keeps its sections up to date."""

from __future__ import annotations

import os
from functools import partial
from html import escape
from typing import Any

import slicer
from PUMITSlicerLib.review import ReviewRow
from PUMITSlicerLib.shortcut_keys import Shortcut, ShortcutKeys
from PUMITSlicerLib.status_line import StatusLine, stepsHtml
from slicer.i18n import tr as _

from PUMITSegmentLib.change_flash import ChangeFlash
from PUMITSegmentLib.follow_up import FollowUpWork
from PUMITSegmentLib.logic import PUMITSegmentLogic
from PUMITSegmentLib.panel.automatic_section import AutomaticSection
from PUMITSegmentLib.panel.batch_section import BatchSection
from PUMITSegmentLib.panel.compute_section import ComputeSection, DownloadedData, InstallSection
from PUMITSegmentLib.panel.edit_by_hand import EditByHand, addCleanUpMenu
from PUMITSegmentLib.panel.export_section import ExportSection
from PUMITSegmentLib.panel.find_section import FindSection
from PUMITSegmentLib.panel.follow_up_section import FollowUpSection
from PUMITSegmentLib.panel.prompt_section import FrameRow, PromptSection, shortcutsOf
from PUMITSegmentLib.panel.question import confirm
from PUMITSegmentLib.panel.segment_section import DisplayRow, SegmentColumns, SegmentSection
from PUMITSegmentLib.panel.tokenizer_section import TokenizerSection
from PUMITSegmentLib.scene.offered_segmentation import OfferedSegmentation
from PUMITSegmentLib.scene.view_gate import SegmentPicking, ViewCursor, ViewGate
from PUMITSegmentLib.scene.view_status import BoxEdges, ViewStatus
from PUMITSegmentLib.session_work import SessionWork

TUTORIAL_URL = "https://github.com/pumit/SlicerPUMIT/blob/main/docs/tutorials/first_segment.md"


def helpText() -> str:
    """Return short instructions for the panel, as rich text."""
    steps = [
        _("Load a scan and choose it in section 1."),
        _("Press New, then Point, and click inside the structure in any slice view."),
        _(
            "Where the segment is too small, click there; where it is too large, choose Outside "
            "and click there."
        ),
        _("Doubtful places shows where the border is least certain, one after the other."),
        _("Drag a click or mark to move it, or hover over it and press Delete to remove it."),
        _(
            "Edit by hand in the Segment Editor if needed: the next prompt continues from your "
            "edits."
        ),
        _("Export the result in section 7."),
    ]
    return stepsHtml(steps, TUTORIAL_URL)


def shortcutsText(shortcuts: list[Shortcut]) -> str:
    """Return the shortcuts as a table, as rich text."""
    rows = "".join(
        f"<tr><td><b>{escape(_(' or ').join(shortcut.keys))}</b></td>"
        f"<td style='padding-left: 12px;'>{escape(shortcut.text)}</td></tr>"
        for shortcut in [*shortcuts, *_byMouse()]
    )
    return f"<table>{rows}</table>"


def _byMouse() -> list[Shortcut]:
    """Return the actions by held keys and the mouse."""
    return [
        Shortcut((_("Hold H"),), _("Hide the segments"), lambda: None),
        Shortcut((_("Ctrl and click"),), _("Point outside, while placing"), lambda: None),
    ]


class SegmentWidget:
    """Panel of the module."""

    def __init__(self, resources: str, logic: PUMITSegmentLogic) -> None:
        self.logic = logic
        self.widget = slicer.util.loadUI(os.path.join(resources, "UI", "PUMITSegment.ui"))
        self.ui = slicer.util.childWidgetVariables(self.widget)
        self.widget.setMRMLScene(slicer.mrmlScene)
        icons = os.path.join(resources, "Icons")
        selection, actions, parts = logic.selection, logic.actions, logic.parts
        nextPlace = logic.checkHere.showNext
        newWork = partial(SessionWork, selection, parts)
        self._connected = None
        self._guiTag = None
        self._isFollowingLayout = False
        self.promptSection = PromptSection(*(self.ui, selection, actions, nextPlace, icons))
        self.segmentSection = SegmentSection(self.ui, selection, actions, icons)
        self.statusLine = StatusLine(self.ui, logic.status)
        self.reviewRow = ReviewRow(self.ui.statusFrame, lambda: logic.reviewing.reviewer, nextPlace)
        self.computeSection = ComputeSection(self.ui, parts.compute, logic.status)
        self.installSection = InstallSection(self.ui, parts, logic.status)
        self.automaticSection = AutomaticSection(self.ui, selection, newWork(), actions.addFound)
        self.findSection = FindSection(self.ui, selection, newWork(), actions.addFound)
        self.batchSection = BatchSection(self.ui, selection, parts)
        self.followUpSection = FollowUpSection(
            *(self.ui, selection),
            FollowUpWork(selection, parts, actions.addFound, confirm),
        )
        self.tokenizerSection = TokenizerSection(self.ui, selection, newWork())
        self.downloadedData = DownloadedData(self.ui.removeDownloadedButton, parts, logic.status)
        self.exportSection = ExportSection(self.ui, selection, parts)
        self.displayRow = DisplayRow(self.ui, selection)
        self.segmentColumns = SegmentColumns(self.ui, selection)
        self.frameRow = FrameRow(self.ui, logic.requests, logic.continuing)
        self.editByHand = EditByHand(selection)
        self.ui.editByHandButton.connect("clicked()", self.editByHand.start)
        addCleanUpMenu(self.ui.cleanUpButton, selection)
        self.picking = SegmentPicking(selection)
        self.viewStatus = ViewStatus(logic.status, selection.guard)
        self.viewCursor = ViewCursor(selection)
        self.boxEdges = BoxEdges()
        self.offered = OfferedSegmentation(selection)
        self.viewGate = ViewGate(selection, actions, self._onViewsChanged)
        self._inViews: tuple[Any, ...] = (self.viewGate, self.picking, self.viewStatus)
        self._inViews += (self.boxEdges, self.viewCursor)
        self.flash = ChangeFlash(selection)
        logic.onAnswered.append(self.flash.show)
        logic.onAnswered.append(lambda before, now: self.segmentColumns.count())
        self.shortcuts = ShortcutKeys(
            shortcutsOf(
                *(selection, actions),
                toggle=self.promptSection.toggle,
                checkHere=nextPlace,
                editByHand=self.editByHand.start,
            ),
            onHideKey=self.displayRow.hide,
        )
        self.ui.helpLabel.text = helpText()
        self.ui.shortcutsLabel.text = shortcutsText(self.shortcuts.shortcuts)
        selection.guard.permission.confirm = confirm
        selection.listeners.append(self.refresh)
        logic.open()
        self.refresh()

    def enter(self) -> None:
        """React when the module is entered."""
        self.editByHand.close()
        self.shortcuts.install()
        self.reviewRow.enter()
        self.offered.open()
        self._followLayout(True)
        self.logic.enter()
        self.computeSection.enter()
        self.installSection.enter()
        self.refresh()

    def exit(self) -> None:
        """React when the module is left; pending answers are still written."""
        self.shortcuts.remove()
        self.reviewRow.exit()
        self.offered.close()
        self._followLayout(False)
        self.displayRow.hide(False)
        self.flash.clear()
        self.computeSection.exit()
        self.logic.exit()

    def close(self) -> None:
        """Remove all shortcuts, observers and timers, and end the worker."""
        self.followUpSection.close()  # removes its preview from the scene, which others observe
        self.shortcuts.remove()
        self.reviewRow.exit()
        self.offered.close()
        self._followLayout(False)
        self.flash.clear()
        for part in (
            *(self.displayRow, self.segmentColumns, self.editByHand, self.statusLine),
            *(self.computeSection, self.installSection, self.automaticSection, self.findSection),
            *(self.batchSection, self.tokenizerSection, self.exportSection),
        ):
            part.close()
        self._connect(None)
        self.segmentSection.close()
        self.logic.close()

    def refresh(self) -> None:
        """Show the state of the logic."""
        self._connect(self.logic.parameters)
        for part in (
            *(self.reviewRow, self.viewStatus, self.viewCursor, self.segmentSection),
            *(self.displayRow, self.segmentColumns, self.frameRow, self.promptSection),
            *(self.automaticSection, self.findSection, self.batchSection, self.followUpSection),
            self.tokenizerSection,
        ):
            part.refresh()
        self.exportSection.refreshSoon()

    def _followLayout(self, isFollowed: bool) -> None:
        """Observe the slice views, including those of later layouts."""
        manager = slicer.app.layoutManager()
        if manager is not None and isFollowed is not self._isFollowingLayout:
            change = manager.connect if isFollowed else manager.disconnect
            change("layoutChanged(int)", self._onLayout)
        self._isFollowingLayout = isFollowed and manager is not None
        for part in self._inViews:
            if isFollowed:
                part.open()
            else:
                part.close()

    def _onLayout(self, layout: int) -> None:
        for part in self._inViews:
            part.open()

    def _onViewsChanged(self) -> None:
        self.logic.guard.onViewsChanged()
        self.viewStatus.refresh()
        self.viewCursor.refresh()

    def _connect(self, parameters) -> None:
        """Connect the widgets to a parameter node, in both directions."""
        if parameters is self._connected:
            return
        if self._connected is not None:
            self._connected.disconnectGui(self._guiTag)
        self._connected, self._guiTag = parameters, None
        if parameters is not None:
            # Not by `connectGui`: it returns no tag, so it could not be disconnected.
            named = ((w.property("SlicerParameterName"), w) for w in vars(self.ui).values())
            self._guiTag = parameters.connectParametersToGui({n: w for n, w in named if n})
