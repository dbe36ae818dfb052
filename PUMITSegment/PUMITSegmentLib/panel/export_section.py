"""Section 7 of the panel: export of the segmentation."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ctk
import qt
import slicer
from pumit.errors import ExportError, PumitError
from PUMITSlicerLib.single_shot import singleShot
from slicer.i18n import tr as _

from PUMITSegmentLib.collaborators import Collaborators
from PUMITSegmentLib.exporting.checks import Problem, findProblems
from PUMITSegmentLib.exporting.dicom_source import addToDatabase, databaseName, nameDicomFiles
from PUMITSegmentLib.exporting.export import (
    Collected,
    ExportChoice,
    Exported,
    Format,
    collect,
    write,
)
from PUMITSegmentLib.scene.selection import Selection

_FOLDER_KEY = "PUMIT/exportFolder"
_SOON_MS = 200


class ExportSection:
    """Widgets of the export, which lists problems and writes on a thread."""

    def __init__(self, ui, selection: Selection, parts: Collaborators) -> None:
        self._ui = ui
        self._selection = selection
        self._parts = parts
        self._status = selection.status
        self._job: Any = None
        self._latestFolder = Path()
        # The last problems of either kind, and the running check of files, for which choice.
        self._ofScene: list[Problem] = []
        self._ofFiles: list[Problem] = []
        self._check: Any = None
        self._checked: ExportChoice | None = None
        self._isOutdated = False
        # The checks take too long to run at each of many changes.
        self._timer = singleShot(self.refresh, _SOON_MS)
        for format_, text in formatTexts().items():
            ui.exportFormatSelector.addItem(text, format_.name)
        self._preselected = ui.exportFormatSelector.currentIndex
        ui.exportFolderEdit.filters = ctk.ctkPathLineEdit.Dirs
        ui.exportFolderEdit.currentPath = str(
            slicer.app.userSettings().value(_FOLDER_KEY, "") or Path.home()
        )
        ui.exportFormatSelector.connect("currentIndexChanged(int)", self.refresh)
        ui.exportFolderEdit.connect("currentPathChanged(QString)", self.refresh)
        ui.openFolderButton.connect("clicked()", self._onOpenFolder)
        for checkBox in (ui.exportVisibleCheckBox, ui.exportDatabaseCheckBox):
            checkBox.connect("toggled(bool)", self.refresh)
        ui.exportSection.connect("contentsCollapsed(bool)", self.refresh)
        ui.exportButton.connect("clicked()", self._onExport)

    @property
    def choice(self) -> ExportChoice:
        """The user's choices."""
        ui = self._ui
        folder = ui.exportFolderEdit.currentPath.strip()
        return ExportChoice(
            list(formatTexts())[ui.exportFormatSelector.currentIndex],
            # A relative path depends on the working directory, which users do not know.
            Path(folder).expanduser().absolute() if folder else Path(),
            fileName=ui.exportNameEdit.text.strip(),
            onlyVisible=ui.exportVisibleCheckBox.checked,
        )

    def refresh(self, *_arguments) -> None:
        """Show the problems, while the section is open."""
        ui = self._ui
        if ui.exportSection.collapsed:
            return
        self._preselect()
        choice = self.choice
        isDicom = choice.format.isDicom
        node = self._selection.segmentationNode
        ui.exportNameEdit.placeholderText = node.GetName() if node is not None else ""
        ui.exportDatabaseCheckBox.enabled = isDicom
        ui.exportDatabaseCheckBox.toolTip = (
            _("Also import the written file into {database}").format(database=databaseName())
            if isDicom
            else _("Only DICOM files can be in the DICOM database; choose DICOM-SEG or RTSTRUCT")
        )
        problems, checkFiles = self._findProblems(choice)
        self._show(problems)
        # The folder or the files may be on a slow share, and one look at it at a time is enough.
        if self._check is not None and self._checked == choice:
            self._isOutdated = True
            return
        if self._check is not None:
            self._check.cancel()
        if self._checked != choice:
            self._ofFiles = []
        self._checked, self._isOutdated = choice, False
        self._check = self._parts.background.submit(
            checkFiles, self._onChecked, lambda _error: self._onChecked([])
        )

    def _findProblems(
        self, choice: ExportChoice
    ) -> tuple[list[Problem], Callable[[], list[Problem]]]:
        return findProblems(
            self._selection.segmentationNode,
            self._selection.volumeNode,
            choice,
            addToDatabase=choice.format.isDicom and self._ui.exportDatabaseCheckBox.checked,
        )

    def _onChecked(self, found: list[Problem]) -> None:
        self._check, self._ofFiles = None, found
        if self._isOutdated:
            self.refresh()
        else:
            self._show(self._ofScene)

    def _show(self, ofScene: list[Problem]) -> None:
        """Show the problems in the scene, and those of the files when they were last checked."""
        ui, self._ofScene = self._ui, ofScene
        problems = sorted([*ofScene, *self._ofFiles], key=lambda p: not p.isStop)
        ui.exportMissingLabel.text = "\n".join(f"• {problem.sentence}" for problem in problems)
        ui.exportMissingLabel.visible = bool(problems)
        stops = [p.sentence for p in problems if p.isStop]
        ui.exportButton.enabled = not stops and self._job is None
        ui.exportButton.toolTip = (
            _("Write the segmentation")
            if not stops
            else _("Not possible yet: {why}").format(why=stops[0])
        )

    def refreshSoon(self) -> None:
        """Refresh once the scene has settled."""
        if not self._ui.exportSection.collapsed:
            self._timer.start()

    def _preselect(self) -> None:
        """Select the format that fits the scan, unless the user selected another one."""
        selector = self._ui.exportFormatSelector
        if selector.currentIndex == self._preselected:
            isDicom = nameDicomFiles(self._selection.volumeNode).areNamedLikeDicom
            fitting = Format.DICOM_SEG if isDicom else Format.SEG_NRRD
            self._preselected = list(formatTexts()).index(fitting)
            selector.currentIndex = self._preselected

    def close(self) -> None:
        """Cancel a running export."""
        self._timer.stop()
        for job in (self._job, self._check):
            if job is not None:
                job.cancel()

    def _onExport(self) -> None:
        choice = self.choice
        isAdded = choice.format.isDicom and self._ui.exportDatabaseCheckBox.checked
        slicer.app.userSettings().setValue(_FOLDER_KEY, str(choice.folder))
        try:
            collected = collect(
                self._selection.segmentationNode, self._selection.volumeNode, choice
            )
        except PumitError as error:
            self._status.problem(str(error))
            return
        # What is shown may be of the scan before.
        problems, checkFiles = self._findProblems(choice)
        stops = [problem.sentence for problem in problems if problem.isStop]
        if stops:
            self._status.problem(stops[0])
            return
        cancelled = threading.Event()
        self._job = self._parts.background.submit(
            lambda: _writeChecked(checkFiles, collected, cancelled.is_set),
            lambda exported: self._onWritten(exported, isAdded),
            self._onError,
            onCancel=cancelled.set,
        )
        self._status.working(_("Writing the segmentation..."), cancel=self._cancel)
        self.refresh()

    def _cancel(self) -> None:
        self._job.cancel()
        self._job = None
        self._status.waiting(_("Cancelled; nothing was written."))
        self.refresh()

    def _onWritten(self, exported: Exported, isAdded: bool) -> None:
        self._job = None
        self._latestFolder = exported.path.parent
        self._ui.openFolderButton.enabled = True
        words = _("Written: {path}")
        with self._status.showingErrors():
            if isAdded:
                addToDatabase(exported.path)
                words = _("Written, and added to {database}: {path}")
            self._status.done(words.format(path=exported.path, database=databaseName()))
        self.refresh()

    def _onOpenFolder(self) -> None:
        url = qt.QUrl.fromLocalFile(str(self._latestFolder))
        if not qt.QDesktopServices.openUrl(url):
            self._status.problem(_("The folder cannot be shown; it may be gone."))

    def _onError(self, error: Exception) -> None:
        self._job = None
        self._status.showError(error)
        self.refresh()


def _writeChecked(
    checkFiles: Callable[[], list[Problem]], collected: Collected, isCancelled: Callable[[], bool]
) -> Exported:
    """Write the file unless its folder or the scan's files forbid it; for a thread."""
    for problem in checkFiles():
        if problem.isStop:
            raise ExportError(problem.sentence)
    return write(collected, isCancelled)


def formatTexts() -> dict[Format, str]:
    """Return the display names of the file formats."""
    return {
        Format.DICOM_SEG: _("DICOM-SEG (.dcm)"),
        Format.SEG_NRRD: _("Slicer segmentation (.seg.nrrd)"),
        Format.NIFTI: _("Label map, NIfTI (.nii.gz)"),
        Format.NRRD: _("Label map, NRRD (.nrrd)"),
        Format.RT_STRUCT: _("RTSTRUCT (.rtstruct.dcm)"),
        Format.DICOM_LABELMAP: _("DICOM LABELMAP (.labelmap.dcm)"),
        Format.STATISTICS_CSV: _("Statistics (.statistics.csv)"),
        Format.STATISTICS_JSON: _("Statistics (.statistics.json)"),
    }
