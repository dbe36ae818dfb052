"""Missing packages: explanation, and installation with the user's consent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import ctk
from pumit.errors import PumitError
from PUMITSlicerLib.computing.compute import Compute, ComputeState
from PUMITSlicerLib.computing.dependencies import TORCH, known_faults
from PUMITSlicerLib.computing.settings import ComputeMode
from PUMITSlicerLib.installing.downloaded import (
    Downloaded,
    findDownloaded,
    removeDownloaded,
    sizeInWords,
)
from PUMITSlicerLib.installing.installation import InstallationPlan, Installer, has_torch_extension
from PUMITSlicerLib.status import StatusBoard
from slicer.i18n import tr as _

from PUMITSegmentLib.collaborators import Collaborators
from PUMITSegmentLib.panel.question import confirm


class InstallSection:
    """Setup area at the top of the panel, and its details in the section Compute."""

    def __init__(self, ui, parts: Collaborators, status: StatusBoard) -> None:
        self._ui = ui
        self._status = status
        self._compute = parts.compute
        self.installer = Installer(parts.background)
        self._plan: InstallationPlan | None = None
        # Packages that Slicer brings with known faults; reading versions takes tens of ms.
        self._knownFaults = known_faults()
        # Key of the plan, which is made again when it changes.
        self._planned: tuple = ()
        ui.wheelFolderEdit.filters = ctk.ctkPathLineEdit.Dirs
        ui.wheelFolderEdit.currentPath = self._compute.settings.wheelFolder
        for button in (ui.setupInstallButton, ui.installButton):
            button.connect("clicked()", self._onInstall)
        ui.setupDetailsButton.connect("clicked()", self._onDetails)
        ui.wheelFolderEdit.connect("currentPathChanged(QString)", self._onWheelFolder)
        ui.torchFromIndexCheckBox.connect("toggled(bool)", self.refresh)
        ui.withTorchCheckBox.checked = self._compute.settings.wantsTorch
        ui.withTorchCheckBox.connect("toggled(bool)", self._onWithTorch)
        ui.computeSection.connect("contentsCollapsed(bool)", self._onCollapsed)
        self._compute.onStateChanged.append(self.refresh)
        ui.setupFrame.hide()
        self._show()

    def enter(self) -> None:
        """Refresh when the module is entered."""
        self.refresh()

    def close(self) -> None:
        """Disconnect; a running installation stops after the current package."""
        if self.refresh in self._compute.onStateChanged:
            self._compute.onStateChanged.remove(self.refresh)
        self.installer.cancel()

    def refresh(self, *_arguments) -> None:
        """Explain what is missing, if anything."""
        isMissing = self._compute.state is ComputeState.NOT_INSTALLED
        settings = self._compute.settings
        allows = self._ui.torchFromIndexCheckBox.checked
        withTorch = settings.wantsTorch and settings.mode is ComputeMode.LOCAL
        planKey = (isMissing, settings.mode, withTorch, settings.wheelFolder, allows)
        if not isMissing and not withTorch:
            self._plan = None
        elif planKey != self._planned and not self.installer.isRunning:
            self.installer.plan(
                settings.mode,
                lambda plan: self._onPlan(plan, planKey),
                self._status.showError,
                withTorch=withTorch,
                wheelFolder=settings.wheelFolder,
                allowsTorchFromIndex=allows,
            )
        self._planned = planKey
        self._show()

    def _onCollapsed(self, isCollapsed: bool) -> None:
        if not isCollapsed:
            self._knownFaults = known_faults()
        self._show()

    def _onPlan(self, plan: InstallationPlan, planKey: tuple) -> None:
        if planKey == self._planned:  # not for earlier settings
            self._plan = plan
            self._show()

    def _show(self, *_arguments) -> None:
        ui, plan = self._ui, self._plan
        isRunning = self.installer.isRunning
        isMissing = self._compute.state is ComputeState.NOT_INSTALLED
        text = self._compute.sentence if isMissing else _("Everything needed is installed.")
        if plan is not None and (plan.needs or plan.problems):
            text = "\n".join([plan.explanation, *plan.problems])
        ui.setupFrame.visible = isMissing and not isRunning
        ui.setupLabel.text = _("Before the first segment: {what}").format(what=text)
        ui.installLabel.text = "\n".join([text, *self._knownFaults])
        canInstall = plan is not None and plan.isPossible and not isRunning
        why = _("Install the missing packages into Slicer's Python")
        if not canInstall:
            why = plan.problems[0] if plan is not None and plan.problems else text
        for button in (ui.setupInstallButton, ui.installButton):
            button.enabled = canInstall
            button.toolTip = why
        ui.withTorchCheckBox.visible = self._compute.settings.mode is ComputeMode.LOCAL
        isTorch = plan is not None and any(need.name == TORCH for need in plan.needs)
        ui.torchFromIndexCheckBox.visible = isTorch and not has_torch_extension()
        ui.logView.visible = bool(self.installer.log)

    def _onInstall(self) -> None:
        plan, status = self._plan, self._status
        if plan is None:
            return
        self._ui.logView.clear()
        try:
            self.installer.install(
                plan,
                self._onInstalled,
                self._onFailed,
                onLine=self._onLine,
                onProgress=lambda text, fraction: status.working(
                    text, fraction, self.installer.cancel
                ),
            )
        except PumitError as error:
            status.problem(str(error))
        self._show()

    def _onLine(self, line: str) -> None:
        self._ui.logView.appendPlainText(line)
        self._ui.logView.visible = True

    def _onInstalled(self) -> None:
        self._status.done(_("Installed. Choose Point and click in a slice view."))
        self._planned = ()
        # A running worker does not see the new packages; the next prompt starts a new one.
        self._compute.stop()
        self._compute.checkInstalled()

    def _onFailed(self, error: Exception) -> None:
        self._status.showError(error)
        self._planned = ()
        self._ui.computeSection.collapsed = False
        self.refresh()

    def _onDetails(self) -> None:
        self._ui.computeSection.collapsed = False

    def _onWithTorch(self, isChecked: bool) -> None:
        self._compute.changeSettings(replace(self._compute.settings, withTorch=isChecked))
        self.refresh()

    def _onWheelFolder(self, path: str) -> None:
        settings = self._compute.settings
        if path.strip() != settings.wheelFolder:
            self._compute.changeSettings(replace(settings, wheelFolder=path.strip()))
            self.refresh()


class DownloadedData:
    """Button that removes downloaded files after confirmation.

    Args:
        compute: Its worker is stopped first.
    """

    def __init__(
        self,
        button,
        compute: Compute,
        status: StatusBoard,
        find: Callable[[], list[Downloaded]] = findDownloaded,
    ) -> None:
        self._compute = compute
        self._status = status
        self.find = find
        button.connect("clicked()", self._onRemove)

    def _onRemove(self) -> None:
        with self._status.showingErrors():
            found = self.find()
            if not found:
                self._status.waiting(_("There is no downloaded data on this computer."))
            elif confirm(questionOf(found)):
                # The worker may have a model file open.
                self._compute.stop()
                size = sizeInWords(removeDownloaded(found))
                self._status.done(_("Removed {size} of downloaded data.").format(size=size))


def questionOf(found: list[Downloaded]) -> str:
    """Return a question that lists what would be removed, the sizes, and what is kept."""
    line = _("{what}: {size}")
    lines = [f"• {line.format(what=d.what, size=sizeInWords(d.byteCount))}" for d in found]
    total = sizeInWords(sum(each.byteCount for each in found))
    return "\n".join(
        [
            _("Remove {size} of downloaded data?").format(size=total),
            *lines,
            _(
                "Your scans, segmentations, exports, trained models and installed packages stay. "
                "Models and packages are downloaded again when they are needed."
            ),
        ]
    )
