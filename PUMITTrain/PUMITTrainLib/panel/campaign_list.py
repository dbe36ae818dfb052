"""Table of scans in the campaign section of the panel."""

from __future__ import annotations

import qt
from pumit.campaign import ScanEntry
from slicer.i18n import tr as _

from PUMITTrainLib.campaign.campaign_view import CampaignView
from PUMITTrainLib.panel.widgets.table_cells import AMBER, GREY, Cell, TableCells
from PUMITTrainLib.panel.widgets.times import inWords

_SCAN, _STATE, _CLICKS, _AGREEMENT = range(4)
_WIDTHS = {_STATE: 84, _CLICKS: 42, _AGREEMENT: 38}
_THUMBNAIL = 32
_MOST_ROWS = 6
_GREEN = "#1f8f4e"


class CampaignList:
    """Table of all scans, with buttons to open or exclude the selected one."""

    def __init__(self, ui, logic) -> None:
        self._ui = ui
        self._campaign, self._checking = logic.campaign, logic.checking
        self._shown: tuple[ScanEntry, ...] = ()
        table = ui.campaignTable
        headers = [_("Scan"), _("State"), _("Clicks"), _("Dice")]
        self._cells = TableCells(table, headers)
        self._cells.setWidths(_WIDTHS, (_SCAN,))
        table.setIconSize(qt.QSize(_THUMBNAIL, _THUMBNAIL))
        table.verticalHeader().setDefaultSectionSize(_THUMBNAIL + 4)
        for column, tip in (
            (_SCAN, _("Scans with the same number are of one patient")),
            (_STATE, _("How far it is, and the quality that is expected of its prediction")),
            (_CLICKS, _("Clicks and other prompts that it took")),
            (_AGREEMENT, _("Dice of the prediction with the accepted segmentation (1: identical)")),
        ):
            table.horizontalHeaderItem(column).setToolTip(tip)
        table.connect("itemSelectionChanged()", self._showButtons)
        table.connect("cellDoubleClicked(int,int)", self._onDoubleClicked)
        ui.campaignScanButton.connect("clicked()", self._onOpen)
        ui.campaignLeaveOutButton.connect("clicked()", self._onLeaveOut)

    def refresh(self) -> None:
        """Show the scans."""
        view = self._campaign.view
        self._shown = view.scans if view is not None else ()
        if view is not None:
            patients = _numbered(view)
            openID = self._checking.currentID
            self._cells.show(
                [
                    scanCells(scan, str(view.thumbnails.get(scan.id, "")), patients, openID)
                    for scan in self._shown
                ]
            )
        self._cells.fitHeight(_MOST_ROWS)
        self._showButtons()

    @property
    def selected(self) -> ScanEntry | None:
        """The selected scan, or None."""
        rows = [row for row in self._cells.selectedRows() if row < len(self._shown)]
        return self._shown[rows[0]] if rows else None

    def _showButtons(self) -> None:
        ui, scan, checking = self._ui, self.selected, self._checking
        isMine = scan is not None and scan.id == checking.currentID
        isFree = scan is not None and (isMine or not scan.checked_by)
        ui.campaignScanButton.enabled = isFree and not checking.isOpening
        ui.campaignScanButton.toolTip = (
            _("Open the selected scan in PUMIT Segment")
            if isFree
            else _("Another person has this scan open")
            if scan is not None
            else _("Select a scan first")
        )
        isOut = scan is not None and scan.stored_state in ("left_out", "later")
        canLeaveOut = isFree and not isMine and scan.stored_state != "accepted"
        ui.campaignLeaveOutButton.text = _("Include") if isOut else _("Leave out")
        ui.campaignLeaveOutButton.enabled = canLeaveOut
        ui.campaignLeaveOutButton.toolTip = (
            _("Return the scan to the queue")
            if isOut
            else _("Exclude the selected scan: it is not shown and not used for training")
            if canLeaveOut
            else _("Select a scan that is not accepted, and not open")
        )

    def _onDoubleClicked(self, row: int, column: int) -> None:
        if row < len(self._shown):
            self._checking.open(self._shown[row].id)

    def _onOpen(self) -> None:
        scan = self.selected
        if scan is None:
            return
        if scan.id == self._checking.currentID:
            self._checking.openNext()
        else:
            self._checking.open(scan.id)

    def _onLeaveOut(self) -> None:
        scan = self.selected
        if scan is None:
            return
        isOut = scan.stored_state in ("left_out", "later")
        self._campaign.decide(
            lambda campaign: campaign.take_in(scan) if isOut else campaign.leave_out(scan)
        )


def scanCells(
    scan: ScanEntry, picture: str, patients: dict[str, int], openID: str
) -> tuple[Cell, ...]:
    """Return the cells of a scan, in the order of the columns.

    Args:
        picture: File of the thumbnail; empty for none.
        patients: Patient keys to their numbers.
        openID: Identifier of the scan that is open here.
    """
    state, tip, color = stateInWords(scan, scan.id == openID)
    if scan.stored_state == "predicted" and scan.word == "good":
        color = _GREEN
    isTold = scan.stored_state in ("accepted", "later") or scan.clicks
    seconds = _("{count} clicks, {time}").format(count=scan.clicks, time=inWords(scan.seconds))
    agreement = "" if scan.agreement is None else f"{scan.agreement:.2f}"
    classes = "\n".join(f"{name}: {dice:.2f}" for name, dice in scan.class_agreement.items())
    patient = _("patient {number}").format(number=patients.get(scan.patient, "?"))
    isOut = scan.stored_state == "left_out"
    return (
        Cell(f"{scan.name}\n{patient}", str(scan.path), GREY if isOut else "", picture),
        Cell(f"{state}\n{scan.word}" if scan.word else state, f"{tip}\n{_expected(scan)}", color),
        Cell(str(scan.clicks) if isTold else "", seconds if isTold else ""),
        Cell(agreement, classes),
    )


def stateInWords(scan: ScanEntry, isOpenHere: bool = False) -> tuple[str, str, str]:
    """Return the state of a scan as a word and a sentence, and its colour."""
    if isOpenHere:
        return _("open here"), _("You are checking it"), ""
    if scan.state == "checking":
        return _("checked"), _("{who} has it open").format(who=scan.checked_by), AMBER
    validation = _("; for validation") if scan.is_validation else ""
    if scan.state == "accepted":
        who = scan.reviewer or _("a person")
        words = _("Accepted by {who}, {when}{validation}")
        when = scan.accepted_at[:10]
        return _("accepted"), words.format(who=who, when=when, validation=validation), _GREEN
    texts = {
        "open": (_("open"), _("Nothing is drawn yet")),
        "labelled": (_("labelled"), _("Labelled by a person before the campaign")),
        "predicted": (_("predicted"), _("Predicted, and not reviewed")),
        "later": (_("later"), _("Moved to the end of the queue")),
        "left_out": (_("left out"), _("Not shown and not used for training")),
    }
    word, tip = texts.get(scan.state, (scan.state, ""))
    colors = {"predicted": AMBER, "labelled": _GREEN}
    return word, tip + validation, colors.get(scan.state, GREY)


def _expected(scan: ScanEntry) -> str:
    lines = [_("{name}: about {dice:.2f}").format(name=n, dice=d) for n, d in scan.expected.items()]
    return "\n".join([scan.word, *lines]) if lines else scan.word


def _numbered(view: CampaignView) -> dict[str, int]:
    """Assign numbers to the patient keys, in the order of the scans."""
    marks = dict.fromkeys(s.patient for s in sorted(view.scans, key=lambda s: s.order))
    return {mark: number for number, mark in enumerate(marks, start=1)}
