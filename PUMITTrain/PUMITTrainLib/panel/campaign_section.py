"""Campaign section of the panel."""

from __future__ import annotations

from pathlib import Path

import ctk
import qt
from pumit.campaign import CampaignChart, ScanEntry
from pumit.errors import PumitError
from PUMITSlicerLib.review import ReviewRow
from slicer.i18n import tr as _

from PUMITTrainLib.campaign.campaign_work import CampaignView
from PUMITTrainLib.campaign.scan_sources import SceneScans, databaseSeries, leaveOutOthers
from PUMITTrainLib.panel.curves import Color, Curve, drawCurves
from PUMITTrainLib.panel.widgets import (
    AMBER,
    GREY,
    Cell,
    FileDialogs,
    SectionTitle,
    TableCells,
    inWords,
)

_SCAN, _STATE, _ROW_CLICKS, _AGREEMENT = range(4)
_WIDTHS = {_STATE: 102, _ROW_CLICKS: 42, _AGREEMENT: 38}
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
            (_ROW_CLICKS, _("Clicks and other prompts that it took")),
            (_AGREEMENT, _("Dice of the prediction with the accepted segmentation (1: identical)")),
        ):
            table.horizontalHeaderItem(column).setToolTip(tip)
        table.connect("itemSelectionChanged()", self._showButtons)
        table.connect("cellDoubleClicked(int,int)", self._onDoubleClicked)
        ui.campaignScanButton.connect("clicked()", self._onOpen)
        ui.campaignLeaveOutButton.connect("clicked()", self._onLeaveOut)

    def refresh(self) -> None:
        """Show the scans."""
        view, selected = self._campaign.view, self.selected
        self._shown = view.scans if view is not None else ()
        if view is not None:
            patients = _numbered(view)
            openID = self._checking.currentID
            self._cells.show(
                [
                    scanCells(scan, view.thumbnails.get(scan.id, ("", b""))[1], patients, openID)
                    for scan in self._shown
                ]
            )
            ids = [scan.id for scan in self._shown]
            if selected is not None and selected.id in ids:  # its row may be another scan's now
                self._cells.select(ids.index(selected.id))
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
    scan: ScanEntry, picture: bytes, patients: dict[str, int], openID: str
) -> tuple[Cell, ...]:
    """Return the cells of a scan, in the order of the columns.

    Args:
        picture: The thumbnail, PNG; empty for none.
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
        return _("open elsewhere"), _("{who} has it open").format(who=scan.checked_by), AMBER
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


_FOLDER, _SCENE, _DATABASE = "folder", "scene", "database"
_ORDERS = ("uncertain", "random", "list")
_RENAMED = "\n"  # prefix of a class name to rename; names have no newline
_DICE: Color = (0.9, 0.2, 0.2)
_CLICKS: Color = (0.12, 0.47, 0.71)
_CHART_HEIGHT, _MARGINS = 84, 24


class CampaignSection:
    """Widgets of a campaign: a list, a button for the next step, and a chart."""

    def __init__(self, ui, logic, dialogs: FileDialogs) -> None:
        self._ui = ui
        self._campaign, self._checking, self._status = logic.campaign, logic.checking, logic.status
        self._dialogs = dialogs
        self._isShowing = False
        self._drawn: tuple[object, ...] = ()
        self._title = SectionTitle(ui.campaignSection)
        self.list = CampaignList(ui, logic)
        self.reviewRow = ReviewRow(
            ui.statusFrame, lambda: logic.checking if logic.checking.isChecking else None
        )
        ui.campaignActionButton.setStyleSheet("font-weight: bold; padding: 6px;")
        ui.campaignNewFrame.hide()
        ui.campaignClassesEdit.placeholderText = _("those of the existing labels")
        ui.campaignSeriesEdit.placeholderText = _("all series")
        ui.campaignReviewerEdit.placeholderText = _("not written")
        for key, text in (
            (_FOLDER, _("A folder")),
            (_SCENE, _("The open scene")),
            (_DATABASE, _("Slicer's DICOM database")),
        ):
            ui.campaignSourceSelector.addItem(text, key)
        for key, text in zip(
            _ORDERS, (_("Uncertain first"), _("Random order"), _("As listed")), strict=True
        ):
            ui.campaignOrderSelector.addItem(text, key)
        for path in (ui.campaignFolderEdit, ui.campaignScansEdit):
            path.filters = ctk.ctkPathLineEdit.Dirs
        self._addMenu()
        self._connect()
        self._showSource()

    def _addMenu(self) -> None:
        ui, self._menu = self._ui, qt.QMenu(self._ui.campaignMoreButton)
        self._menu.addAction(_("Add scans...")).connect("triggered()", self._onAdd)
        for kind, text in (
            ("nnunet", _("Export as nnU-Net data set...")),
            ("msd", _("Export as Decathlon data set...")),
            ("dicom", _("Export as DICOM-SEG...")),
            ("model", _("Export the model...")),
            ("page", _("Export report (HTML)...")),
        ):
            action = self._menu.addAction(text)
            action.connect("triggered()", lambda kind=kind: self._onExport(kind))
        self._menu.addAction(_("Close the campaign")).connect("triggered()", self._onClose)
        ui.campaignMoreButton.setMenu(self._menu)

    def _connect(self) -> None:
        ui, work = self._ui, self._campaign
        ui.campaignNewButton.connect("clicked()", lambda: self._showNew(True))
        ui.campaignCancelButton.connect("clicked()", lambda: self._showNew(False))
        ui.campaignCreateButton.connect("clicked()", self._onCreate)
        ui.campaignOpenButton.connect("clicked()", self._onOpen)
        ui.campaignSourceSelector.connect("currentIndexChanged(int)", self._showSource)
        ui.campaignActionButton.connect("clicked()", self._onAction)
        ui.campaignAnswerButton.connect("clicked()", self._onAnswer)
        ui.campaignPauseButton.connect("clicked()", self._onPause)
        ui.campaignStopButton.connect("clicked()", lambda: work.command("stop"))
        ui.campaignOrderSelector.connect("currentIndexChanged(int)", self._onOrder)
        ui.campaignTrainsCheckBox.connect("toggled(bool)", self._onTrains)
        ui.campaignTrainAfterSpin.connect("valueChanged(int)", self._onTrainAfter)
        ui.campaignMinutesSpin.connect("valueChanged(double)", self._onMinutes)
        ui.campaignCopiesCheckBox.connect("toggled(bool)", self._onCopies)
        ui.campaignReviewerEdit.connect("editingFinished()", self._onReviewer)

    def refresh(self) -> None:
        """Show the campaign."""
        ui, work, view = self._ui, self._campaign, self._campaign.view
        self.reviewRow.refresh()
        isOpen = view is not None
        for name in (
            *("campaignTitleLabel", "campaignActionButton", "campaignTable", "campaignScanButton"),
            *("campaignLeaveOutButton", "campaignOrderSelector", "campaignOptionsBox"),
        ):
            getattr(ui, name).visible = isOpen
        ui.campaignMoreButton.enabled = isOpen and not work.isBusy
        ui.campaignCreateButton.enabled = not work.isBusy
        self._title.showState(view.name if view is not None else _("none is open"))
        self._showQuestion()
        self._showTraining()
        self._showChart(view)
        self.list.refresh()
        if view is None:
            return
        _say(ui.campaignTitleLabel, titleOf(view), ui.campaignFrame.width)
        self._showAction()
        self._showOptions(view)

    def _showAction(self) -> None:
        ui, work, checking = self._ui, self._campaign, self._checking
        action = work.action
        assert action is not None
        button, sentence = ui.campaignActionButton, action.sentence
        isChecking = checking.isChecking and action.kind in ("open", "check", "stop", "wait")
        if isChecking:
            sentence = _("Back to the scan that is open")
        button.text = sentence
        isBusy = work.isBusy or checking.isOpening
        button.enabled = isChecking or not (isBusy or action.kind == "wait")
        tips = {
            "train": _("Train on the accepted scans in the background, and predict the others"),
            "predict": _("Predict the open scans, in the background"),
            "wait": _("Please wait"),
            "done": _("Choose what to export"),
        }
        button.toolTip = tips.get(action.kind, _("Next step"))

    def _showQuestion(self) -> None:
        ui, work = self._ui, self._campaign
        question = work.question
        ui.campaignQuestionFrame.visible = question is not None and work.view is not None
        if question is None or work.view is None:
            return
        words = _("Which class is the label {name!r} (in {count} scans)? The answer is saved.")
        if question.count == 1:
            words = _("Which class is the label {name!r}? The answer is saved.")
        _say(
            ui.campaignQuestionLabel,
            words.format(name=question.name, count=question.count),
            ui.campaignFrame.width - _MARGINS,
        )
        names = [one.name for one in work.view.classes]
        isNew = not any(scan.is_truth for scan in work.view.scans)
        words = _("{name}, called {new!r} from now on")
        answers = [(name, name) for name in names]
        answers += [(_("A new class"), question.name)] if isNew else []
        answers += [(words.format(name=n, new=question.name), _RENAMED + n) for n in names]
        answers.append((_("None of the classes"), ""))
        selector = ui.campaignAnswerSelector
        if [selector.itemText(i) for i in range(selector.count)] != [text for text, _d in answers]:
            selector.clear()
            for text, data in answers:
                selector.addItem(text, data)

    def _showTraining(self) -> None:
        ui, work = self._ui, self._campaign
        text, share = work.progress
        ui.campaignTrainingFrame.visible = bool(text)
        if not text:
            return
        _say(ui.campaignTrainingLabel, text, ui.campaignFrame.width)
        ui.campaignTrainingBar.maximum = 0 if share is None else 1000
        if share is not None:
            ui.campaignTrainingBar.value = round(1000 * share)
        training = work.view.training if work.view is not None and work.view.isTraining else None
        for button in (ui.campaignPauseButton, ui.campaignStopButton):
            button.enabled = training is not None
        isPaused = training is not None and training.state == "paused"
        ui.campaignPauseButton.text = _("Resume") if isPaused else _("Pause")

    def _showChart(self, view: CampaignView | None) -> None:
        ui = self._ui
        chart = view.chart if view is not None else CampaignChart()
        _say(ui.campaignChartSentence, chart.sentence, ui.campaignFrame.width)
        ui.campaignChartSentence.visible = bool(chart.sentence)
        curves = chartCurves(chart)
        ui.campaignChartLabel.visible = bool(curves)
        width = max(ui.campaignFrame.width - _MARGINS, 80)
        if not curves or self._drawn == (chart, width):
            return
        self._drawn = (chart, width)
        picture = drawCurves(
            *(_("Round"), curves, (width, _CHART_HEIGHT)),
            isShare=True,
            widget=ui.campaignChartLabel,
        )
        ui.campaignChartLabel.setPixmap(picture)
        ui.campaignChartLabel.setMinimumHeight(_CHART_HEIGHT)

    def _showOptions(self, view: CampaignView) -> None:
        ui, work = self._ui, self._campaign
        self._isShowing = True
        try:
            order = _ORDERS.index(view.settings.order)
            if ui.campaignOrderSelector.currentIndex != order:
                ui.campaignOrderSelector.currentIndex = order
            ui.campaignTrainsCheckBox.checked = work.trainsByItself
            if not ui.campaignTrainAfterSpin.hasFocus():
                ui.campaignTrainAfterSpin.value = view.settings.train_after
            ui.campaignTrainAfterSpin.enabled = work.trainsByItself
            if not ui.campaignMinutesSpin.hasFocus():
                ui.campaignMinutesSpin.value = view.settings.training_seconds / 60
            ui.campaignCopiesCheckBox.checked = view.settings.copies_beside
            if not ui.campaignReviewerEdit.hasFocus():
                ui.campaignReviewerEdit.text = work.reviewer
        finally:
            self._isShowing = False

    # New and Open

    def _showNew(self, isShown: bool) -> None:
        self._ui.campaignNewFrame.visible = isShown

    def _showSource(self, *_arguments) -> None:
        ui = self._ui
        source = ui.campaignSourceSelector.itemData(ui.campaignSourceSelector.currentIndex)
        for name, isShown in (
            ("campaignScans", source == _FOLDER),
            ("campaignSeries", source == _DATABASE),
        ):
            getattr(ui, f"{name}Edit").visible = isShown
            getattr(ui, f"{name}Label").visible = isShown

    def _onCreate(self) -> None:
        ui, work, status = self._ui, self._campaign, self._status
        text = ui.campaignFolderEdit.currentPath.strip()
        if not text:
            status.problem(_("Choose a folder for the campaign first."))
            return
        folder = Path(text)
        source = ui.campaignSourceSelector.itemData(ui.campaignSourceSelector.currentIndex)
        names = [name.strip() for name in ui.campaignClassesEdit.text.split(",")]
        classes = [name for name in names if name]
        self._checking.putAway()
        if source == _SCENE:
            try:
                scene = SceneScans(folder)
            except PumitError as error:
                status.problem(str(error))
                return
            if not scene.scans:
                status.problem(_("The open scene has no scan; load some, or choose a folder."))
                return
            work.create(folder, scene.paths, classes, scene.keepDrawn)
        elif source == _DATABASE:
            found, count = databaseSeries(ui.campaignSeriesEdit.text.strip())
            if not found:
                words = _("None of the {count} series of Slicer's DICOM database fits.")
                status.problem(words.format(count=count))
                return
            folders = list(dict.fromkeys(found.values()))
            work.create(
                *(folder, lambda: folders, classes),
                lambda campaign: leaveOutOthers(
                    campaign, lambda entry: entry.series.partition("#")[0] in found
                ),
            )
        else:
            scans = ui.campaignScansEdit.currentPath.strip()
            if not scans:
                status.problem(_("Choose the folder of the scans first."))
                return
            work.create(folder, lambda: [Path(scans)], classes)
        self._showNew(False)

    def _onOpen(self) -> None:
        folder = self._dialogs.folder(_("Open a campaign"))
        if folder:
            self._checking.putAway()
            self._campaign.open(Path(folder))

    def _onAdd(self) -> None:
        folder = self._dialogs.folder(_("Add scans"))
        if folder:
            self._campaign.add([Path(folder)])

    def _onExport(self, kind: str) -> None:
        folder = self._dialogs.folder(_("Export into a folder"))
        view = self._campaign.view
        if not folder or view is None:
            return
        ending = {"model": ".pumit.zip", "page": ".html"}.get(kind, f"-{kind}")
        self._campaign.export(kind, Path(folder) / f"{view.name}{ending}")

    def _onClose(self) -> None:
        self._checking.putAway()
        self._campaign.close()

    # Action button

    def _onAction(self) -> None:
        self._onReviewer()  # on macOS, a press of a button does not end the editing
        work, checking = self._campaign, self._checking
        action = work.action
        if action is None:
            return
        if action.kind == "train":
            work.train()
        elif action.kind == "predict":
            work.predict()
        elif action.kind == "add":
            self._onAdd()
        elif action.kind == "done":
            self._menu.popup(qt.QCursor.pos())
        elif action.kind == "name" and work.view is not None:
            name, scans = next(iter(work.view.unknownNames.items()))
            work.ask(name, len(scans))
        else:
            checking.openNext()

    def _onAnswer(self) -> None:
        selector = self._ui.campaignAnswerSelector
        name = str(selector.itemData(selector.currentIndex) or "")
        renames = name.startswith(_RENAMED)
        self._campaign.answer(name.removeprefix(_RENAMED) or None, renames)

    def _onPause(self) -> None:
        view = self._campaign.view
        isPaused = view is not None and view.training is not None
        isPaused = isPaused and view.training.state == "paused"
        self._campaign.command("resume" if isPaused else "pause")

    # Options

    def _onOrder(self, index: int) -> None:
        if not self._isShowing and 0 <= index < len(_ORDERS):
            self._campaign.change(order=_ORDERS[index])

    def _onTrains(self, isOn: bool) -> None:
        if not self._isShowing:
            self._campaign.trainsByItself = isOn
            self._ui.campaignTrainAfterSpin.enabled = isOn

    def _onTrainAfter(self, count: int) -> None:
        if not self._isShowing:
            self._campaign.change(train_after=count)

    def _onMinutes(self, minutes: float) -> None:
        if not self._isShowing:
            self._campaign.change(training_seconds=60 * minutes)

    def _onCopies(self, isOn: bool) -> None:
        if not self._isShowing:
            self._campaign.change(copies_beside=isOn)

    def _onReviewer(self) -> None:
        self._campaign.reviewer = self._ui.campaignReviewerEdit.text


def titleOf(view: CampaignView) -> str:
    """Summarize a campaign's progress: "12 scans: 4 labelled, 3 accepted, 5 open"."""
    words = [
        text.format(count=count)
        for text, count in (
            (_("{count} labelled"), view.count("labelled")),
            (_("{count} accepted"), view.count("accepted")),
            (_("{count} predicted"), view.count("predicted")),
            (_("{count} open"), view.count("open")),
            (_("{count} later"), view.count("later")),
            (_("{count} left out"), view.count("left_out")),
        )
        if count
    ]
    return _("{count} scans: {what}").format(count=len(view.scans), what=", ".join(words))


def chartCurves(chart: CampaignChart) -> list[Curve]:
    """Return the Dice of the validation patients, and the labelled clicks per scan.

    Clicks are drawn relative to their maximum.
    """
    dice = [(n, d) for n, d in zip(chart.rounds, chart.dice, strict=True) if d is not None]
    clicks = [(n, c) for n, c in zip(chart.rounds, chart.clicks, strict=True) if c is not None]
    curves = []
    if clicks:
        most = max(max(c for _n, c in clicks), 1.0)
        labels = tuple(f"{c:.1f}" for _n, c in clicks)
        points = [(n, c / most) for n, c in clicks]
        curves.append(Curve(_("clicks per scan"), points, _CLICKS, labels=labels))
    if dice:
        name = _("Dice {dice:.2f}").format(dice=dice[-1][1])
        curves.append(Curve(name, dice, _DICE, isStrong=True))
    return curves


def _say(label, text: str, room: int) -> None:
    """Show a wrapped text at its full height, at least two lines, so that the layout is stable.

    Args:
        room: Width of the section, pixels, because a hidden label has no width yet.
    """
    label.text = text
    needed = label.heightForWidth(max(room - _MARGINS, 80))
    label.setMinimumHeight(max(needed, 2 * qt.QFontMetrics(label.font).lineSpacing()))
