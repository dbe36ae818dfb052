"""Section 1 of the panel: adding cases from a source."""

from __future__ import annotations

import enum
from collections.abc import Callable
from pathlib import Path

import ctk
import qt
from slicer.i18n import tr as _

from PUMITTrainLib.cases.case_list import SourceRow
from PUMITTrainLib.cases.case_row import CaseKey, CaseState
from PUMITTrainLib.cases.example_cases import ExampleCases
from PUMITTrainLib.panel.widgets import Cell, TableCells
from PUMITTrainLib.parameters import CaseSource, Goal

_SOURCE, _COUNT, _REMOVE = range(3)
_WIDTHS = {_SOURCE: 166, _COUNT: 50, _REMOVE: 80}
_ROW_HEIGHT = 26
_MOST_ROWS = 4


class SourceList:
    """Table of the sources of cases, which removes all cases of a source."""

    def __init__(self, ui, logic) -> None:
        self._ui = ui
        self._cases = logic.cases
        self._shown: tuple[SourceRow, ...] = ()
        # References that keep the cells' widgets alive.
        self._buttons: list[_RemoveButton] = []
        table = ui.sourceTable
        self._cells = TableCells(table, [_("Cases from"), _("Cases"), ""])
        for column, width in _WIDTHS.items():
            table.setColumnWidth(column, width)
        table.verticalHeader().setDefaultSectionSize(_ROW_HEIGHT)
        table.horizontalHeader().setStretchLastSection(True)

    def refresh(self) -> None:
        """Show the sources."""
        table = self._ui.sourceTable
        self._shown = tuple(self._cases.sources)
        self._cells.show([sourceCells(row, self._cases.isUnread) for row in self._shown])
        self._cells.fitHeight(_MOST_ROWS)
        while len(self._buttons) < len(self._shown):
            self._buttons.append(_RemoveButton(table, len(self._buttons), self._onRemove))
        # The table deletes the widgets of removed rows.
        del self._buttons[len(self._shown) :]
        table.visible = bool(self._shown)

    def _onRemove(self, index: int) -> None:
        if index < len(self._shown):
            self._cases.removeSource(self._shown[index])
            if self._cases.rows:
                # Cases are compared with each other, so the findings on the others may change.
                self._cases.check()


class _RemoveButton:
    """Button in a row that removes its source."""

    def __init__(self, table, index: int, onRemove: Callable[[int], None]) -> None:
        self._index = index
        self._onRemove = onRemove
        self._button = qt.QPushButton(_("Remove"))
        self._button.toolTip = _(
            "Remove all cases of this source from the table; files and scene stay as they are"
        )
        self._button.connect("clicked()", self._onClicked)
        table.setCellWidget(index, _REMOVE, self._button)

    def _onClicked(self) -> None:
        self._onRemove(self._index)


def sourceCells(row: SourceRow, isUnread: bool) -> tuple[Cell, ...]:
    """Return the cells of a source, in the order of the columns.

    Args:
        isUnread: Whether the cases of some folder were not read yet.
    """
    names = {CaseSource.SCENE: _("The open scene"), CaseSource.FILES: _("Files")}
    return (
        Cell(names.get(row.kind, row.name), row.folder),
        Cell("?", _("Not read yet")) if isUnread and not row.count else Cell(str(row.count)),
        Cell(),
    )


class SourceKind(enum.Enum):
    """Entry of the list of sources; for the logic, files and scene bundles are one source."""

    SCENE = "scene"
    FOLDER = "folder"
    FILES = "files"
    BUNDLE = "bundle"
    CLASSES = "classes"


# Form rows of each source.
_ROWS = {
    SourceKind.SCENE: ("sceneVolumeSelector", "sceneLabelSelector"),
    SourceKind.FOLDER: ("sourcePathEdit", "imagePatternEdit", "labelPatternEdit"),
    SourceKind.FILES: ("sourcePathEdit", "labelPathEdit"),
    SourceKind.BUNDLE: ("sourcePathEdit",),
    SourceKind.CLASSES: ("sourcePathEdit",),
}
_ALL_ROWS = (
    *("sceneVolumeSelector", "sceneLabelSelector", "sourcePathEdit", "labelPathEdit"),
    *("imagePatternEdit", "labelPatternEdit"),
)
# Separator of the channel files of a case.
_SEPARATOR = ";"


class SourceSection:
    """Choice of a source, its fields, and the button that adds its cases."""

    def __init__(self, ui, logic) -> None:
        self._ui = ui
        self._cases, self._scans, self._status = logic.cases, logic.scans, logic.status
        self._readParameters = lambda: logic.parameters
        self._isShowing = False
        self._offered: tuple = ()
        self._otherGoal = Goal.CLICKS
        # The cases of a bundle are known only after it was read. New cases are read when they
        # appear, once per list of cases, so that a cancelled check does not restart.
        self._wantsReading = False
        self._readKeys: tuple[CaseKey, ...] = ()
        for place, text in _placeTexts().items():
            ui.sourceSelector.addItem(text, place.value)
        self._place = SourceKind.SCENE
        ui.sourceSelector.connect("currentIndexChanged(int)", self._onPlace)
        ui.sourcePathEdit.connect("currentPathChanged(QString)", self._onPath)
        ui.labelPathEdit.connect("currentPathChanged(QString)", self.refresh)
        for edit in (ui.imagePatternEdit, ui.labelPatternEdit):
            edit.connect("editingFinished()", self._onPatterns)
        for selector in (ui.sceneVolumeSelector, ui.sceneLabelSelector):
            selector.connect("currentNodeChanged(vtkMRMLNode*)", self.refresh)
        ui.addCasesButton.connect("clicked()", self._onAdd)
        self.example = ExampleCases(logic.background, logic.status, self.refresh)
        ui.exampleButton.connect("clicked()", self.example.add)
        self._showRows()

    def close(self) -> None:
        """Stop adding example cases."""
        self.example.cancel()

    def showSource(self) -> None:
        """Show the parameter node's source, after the node changed."""
        self.example.cancel()  # it would be added to another scene
        parameters = self._readParameters()
        if parameters is None:
            return
        if parameters.goal is Goal.CLASSIFICATION:
            return  # `refresh` shows it
        isListed = self._place in (SourceKind.FILES, SourceKind.BUNDLE)
        if parameters.source is CaseSource.FILES and isListed:
            return
        self._choose(SourceKind(parameters.source.value))
        if parameters.source is CaseSource.FOLDER:
            self._isShowing = True
            self._ui.sourcePathEdit.currentPath = parameters.folder
            self._isShowing = False

    def refresh(self, *_arguments) -> None:
        """Show what the source offers, and whether it can be added."""
        ui, cases = self._ui, self._cases
        parameters = self._readParameters()
        self._followGoal(parameters)
        self._readWhatIsNew()
        self._offered = cases.offeredPairs() if self._place is SourceKind.SCENE else ()
        if parameters is not None:
            for edit, text in (
                (ui.imagePatternEdit, parameters.imagePattern),
                (ui.labelPatternEdit, parameters.labelPattern),
            ):
                if not edit.hasFocus():
                    edit.text = text
                edit.placeholderText = _("found automatically")
        reason = self._whyNot()
        isClasses = self._place is SourceKind.CLASSES
        ui.addCasesButton.enabled = not reason
        ui.addCasesButton.text = _("Read") if isClasses else _("Add")
        ui.addCasesButton.toolTip = reason or (
            _("Read every scan, and count those of each class")
            if isClasses
            else _("Add the cases of this source to the table; each is read and checked")
        )
        ui.sourceHintLabel.text = self._hint()
        # Only for users who try the module without data.
        isEmpty = not self._offered and not cases.rows
        ui.exampleButton.visible = self._place is SourceKind.SCENE and isEmpty
        ui.exampleButton.enabled = not self.example.isRunning and parameters is not None

    def _followGoal(self, parameters) -> None:
        """Show the source of a classification if that is the goal, and no other source."""
        if parameters is None:
            return
        if parameters.goal is not Goal.CLASSIFICATION:
            self._otherGoal = parameters.goal
            if self._place is SourceKind.CLASSES:
                self._choose(SourceKind(parameters.source.value))
        elif self._place is not SourceKind.CLASSES:
            self._choose(SourceKind.CLASSES)

    def _readWhatIsNew(self) -> None:
        cases = self._cases
        if not self._wantsReading or cases.isChecking or self._scans.isChosen:
            return
        rows = [row for row in cases.rows if not row.folder]  # a folder is read when it is added
        keys = tuple(row.key for row in rows)
        isNew = any(row.state is CaseState.UNCHECKED for row in rows)
        if isNew and keys != self._readKeys:
            self._readKeys = keys
            cases.check()

    def _choose(self, place: SourceKind) -> None:
        if place is not self._place:
            self._ui.sourceSelector.currentIndex = list(SourceKind).index(place)

    def _onPlace(self, index: int) -> None:
        self._place = list(SourceKind)[index]
        parameters, isClasses = self._readParameters(), self._place is SourceKind.CLASSES
        if parameters is not None and isClasses != self._scans.isChosen:
            parameters.goal = Goal.CLASSIFICATION if isClasses else self._otherGoal
        if parameters is not None and isClasses and parameters.classFolder:
            self._ui.sourcePathEdit.currentPath = parameters.classFolder
        self._showRows()
        self.refresh()

    def _showRows(self) -> None:
        ui, isFolder = self._ui, self._place in (SourceKind.FOLDER, SourceKind.CLASSES)
        for name in _ALL_ROWS:
            isShown = name in _ROWS[self._place]
            getattr(ui, name).visible = isShown
            getattr(ui, f"{name}Label").visible = isShown
        kinds = ctk.ctkPathLineEdit
        ui.sourcePathEdit.filters = kinds.Dirs if isFolder else kinds.Files
        ui.sourcePathEditLabel.text = {
            SourceKind.FOLDER: _("Folder:"),
            SourceKind.FILES: _("Scan:"),
            SourceKind.BUNDLE: _("Scene file:"),
        }.get(self._place, _("Folder:"))

    def _onPath(self, path: str) -> None:
        parameters = self._readParameters()
        if parameters is not None and self._place is SourceKind.CLASSES:
            parameters.classFolder = path.strip()  # another one has to be read first
        if not self._isShowing:
            self.refresh()

    def _onPatterns(self) -> None:
        parameters = self._readParameters()
        if parameters is None:
            return
        parameters.imagePattern = self._ui.imagePatternEdit.text.strip()
        parameters.labelPattern = self._ui.labelPatternEdit.text.strip()

    @property
    def _path(self) -> str:
        return self._ui.sourcePathEdit.currentPath.strip()

    def _whyNot(self) -> str:
        ui, place = self._ui, self._place
        if self._readParameters() is None:
            return _("The scene is changing; wait a moment")
        if place is SourceKind.SCENE:
            isChosen = ui.sceneVolumeSelector.currentNode() and ui.sceneLabelSelector.currentNode()
            if isChosen or self._offered:
                return ""
            return _("The open scene has no scan with a segmentation that is not in the table yet")
        if not self._path:
            isFolder = place in (SourceKind.FOLDER, SourceKind.CLASSES)
            return _("Choose the folder first") if isFolder else _("Choose it first")
        if place is SourceKind.CLASSES and self._scans.isReading:
            return _("The scans are being read")
        if place is SourceKind.FILES and not ui.labelPathEdit.currentPath.strip():
            return _("Choose the file with the annotation, too")
        return ""

    def _hint(self) -> str:
        place = self._place
        if place is SourceKind.SCENE:
            if not self._offered and self._cases.rows:
                return _("Every annotated scan of the scene is in the table.")
            if not self._offered:
                return _(
                    "Load scans and their segmentations, or label maps; they are then offered here."
                )
            titles = ", ".join(pair.title for pair in self._offered[:3])
            more = ", ..." if len(self._offered) > 3 else ""
            return _("{count} to add: {titles}").format(
                count=len(self._offered), titles=titles + more
            )
        if place is SourceKind.FOLDER:
            return self._cases.sourceSentence or _(
                "Folders of nnU-Net and of the Medical Segmentation Decathlon, images/ and "
                "labels/, or DICOM series with DICOM-SEG or RTSTRUCT."
            )
        if place is SourceKind.FILES:
            return _(
                "Several channels of one case: their files, separated by semicolons (;). A DICOM "
                "folder counts as a scan, too."
            )
        if place is SourceKind.CLASSES:
            return _(
                "A folder with a folder of scans for each class, such as normal/ and tumour/, or "
                "the path of a MedMNIST file (.npz). No labels are needed. Scans of a patient stay "
                "together: in a folder, or with names such as p7_visit1 and p7_visit2."
            )
        return _("A Slicer scene (.mrb): every segmentation in it with the scan it was drawn on.")

    def _onAdd(self) -> None:
        ui, place = self._ui, self._place
        if self._whyNot():
            return
        self._onPatterns()  # on macOS, a press of a button does not end the editing
        cases = self._cases
        # Reading after each addition would read the first cases many times.
        self._wantsReading = False
        if place is SourceKind.SCENE:
            volume = ui.sceneVolumeSelector.currentNode()
            label = ui.sceneLabelSelector.currentNode()
            if volume is not None and label is not None:
                cases.addScenePair((volume,), label)
                ui.sceneLabelSelector.setCurrentNode(None)
            else:
                cases.addAllOffered()
        elif place is SourceKind.CLASSES:
            self._scans.read(self._path)
        elif place is SourceKind.FOLDER and not Path(self._path).exists():
            self._status.problem(
                _("There is no folder {path}; choose another one.").format(path=self._path)
            )
        elif place is SourceKind.FOLDER:
            cases.setFolder(self._path)
            cases.check()
        elif place is SourceKind.FILES:
            images = [part.strip() for part in self._path.split(_SEPARATOR) if part.strip()]
            cases.addFiles(images, ui.labelPathEdit.currentPath.strip())
            ui.labelPathEdit.currentPath = ""
        else:
            cases.addBundle(self._path)
        self._wantsReading = place not in (SourceKind.FOLDER, SourceKind.CLASSES)
        self.refresh()


def _placeTexts() -> dict[SourceKind, str]:
    return {
        SourceKind.SCENE: _("The open scene"),
        SourceKind.FOLDER: _("A folder (pairs, nnU-Net, Decathlon, DICOM)"),
        SourceKind.FILES: _("Files of one case"),
        SourceKind.BUNDLE: _("A Slicer scene file (.mrb)"),
        SourceKind.CLASSES: _("Folders of classes (classification)"),
    }
