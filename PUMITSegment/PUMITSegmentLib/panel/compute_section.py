"""Section 6 of the panel: compute settings, missing packages, and downloaded data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ctk
import qt
from pumit.errors import PumitError
from pumit.system.consent import give_consent, has_consent, is_restricted, terms_of
from PUMITSlicerLib.computing.availability import Availability
from PUMITSlicerLib.computing.compute import ComputeState
from PUMITSlicerLib.computing.connection import describe_memory, is_in_the_clear, is_nninteractive
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
        # Packages that Slicer brings with known faults; read when the section is opened, since
        # reading versions takes tens of ms.
        self._knownFaults: list[str] = []
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
    """Button that removes downloaded files after confirmation; they are found on a thread.

    Args:
        parts: Its worker is stopped first.
    """

    def __init__(
        self,
        button,
        parts: Collaborators,
        status: StatusBoard,
        find: Callable[[], list[Downloaded]] = findDownloaded,
    ) -> None:
        self._parts = parts
        self._status = status
        self.find = find
        self._job: Any = None
        button.connect("clicked()", self._onRemove)

    def _onRemove(self) -> None:
        if self._job is None or not self._job.isActive:
            self._submit(self.find, self._onFound)

    def _submit(self, work: Callable[[], Any], onDone: Callable[[Any], None]) -> None:
        self._job = self._parts.background.submit(work, onDone, self._status.showError)

    def _onFound(self, found: list[Downloaded]) -> None:
        if not found:
            self._status.waiting(_("There is no downloaded data on this computer."))
        elif confirm(questionOf(found)):
            # The worker may have a model file open.
            self._parts.compute.stop()
            self._submit(lambda: removeDownloaded(found), self._onRemoved)

    def _onRemoved(self, byteCount: int) -> None:
        words = _("Removed {size} of downloaded data.")
        self._status.done(words.format(size=sizeInWords(byteCount)))


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


_MEMORY_INTERVAL_MS = 5000


class ComputeSection:
    """Widgets for this computer or a server, its device, its memory, and a connection test."""

    def __init__(self, ui, compute, status) -> None:
        self._ui = ui
        self._compute = compute
        self._status = status
        self._isShowing = False
        self._isListing = False
        self._licences: dict[str, str] = {}
        self._fill()
        ui.computeWhereSelector.connect("currentIndexChanged(int)", self._onChanged)
        for selector in (ui.deviceSelector, ui.modelSelector):
            selector.connect("currentIndexChanged(int)", self._onChanged)
        for box in (ui.rememberTokenCheckBox, ui.allowUnencryptedCheckBox):
            box.connect("toggled(bool)", self._onChanged)
        for edit in (ui.remoteUrlEdit, ui.remoteTokenEdit):
            edit.connect("editingFinished()", self._onChanged)
        ui.certificateEdit.connect("currentPathChanged(QString)", self._onChanged)
        ui.testButton.connect("clicked()", self._onTest)
        ui.restartButton.connect("clicked()", compute.stop)
        compute.onStateChanged.append(self.refresh)
        # Expanding a section shows all its widgets, even those that do not apply.
        ui.computeSection.connect("contentsCollapsed(bool)", self._onCollapsed)
        # Free memory changes; it is read only while it is visible.
        self._timer = qt.QTimer()
        self._timer.setInterval(_MEMORY_INTERVAL_MS)
        self._timer.connect("timeout()", self._onTimeout)
        self.refresh()

    def enter(self) -> None:
        """Start reading the free memory when the module is entered."""
        self._timer.start()

    def exit(self) -> None:
        """Stop reading the free memory when the module is left."""
        self._timer.stop()

    def close(self) -> None:
        """Stop all requests."""
        self._timer.stop()
        if self.refresh in self._compute.onStateChanged:
            self._compute.onStateChanged.remove(self.refresh)

    def refresh(self, *_arguments) -> None:
        """Show the current settings and the state."""
        ui, settings = self._ui, self._compute.settings
        self._isShowing = True
        try:
            ui.computeWhereSelector.currentIndex = list(ComputeMode).index(settings.mode)
            _choose(ui.deviceSelector, settings.device)
            _choose(ui.modelSelector, settings.model)
            for edit, text in (
                (ui.remoteUrlEdit, settings.url),
                (ui.remoteTokenEdit, settings.token),
            ):
                if not edit.hasFocus():
                    edit.text = text
            ui.rememberTokenCheckBox.checked = settings.rememberToken
            ui.allowUnencryptedCheckBox.checked = settings.allowUnencrypted
            ui.certificateEdit.currentPath = settings.certificateFile
        finally:
            self._isShowing = False
        isRemote = settings.mode is ComputeMode.REMOTE
        for name in ("remoteUrlEdit", "remoteTokenEdit", "certificateEdit"):
            getattr(ui, name).visible = isRemote
            getattr(ui, f"{name}Label").visible = isRemote
        ui.rememberTokenCheckBox.visible = isRemote
        ui.allowUnencryptedCheckBox.visible = isRemote
        isOpen = isRemote and settings.allowUnencrypted and is_in_the_clear(settings.url)
        ui.unencryptedLabel.visible = isOpen
        for name in ("deviceSelector", "modelSelector"):
            getattr(ui, name).visible = not isRemote
            getattr(ui, f"{name}Label").visible = not isRemote
        ui.computeStateLabel.text = self._compute.sentence
        capabilities = self._compute.capabilities or {}
        unknown = (
            _("Not reported by this server")
            if is_nninteractive(capabilities)
            else _("No GPU in use")
        )
        ui.memoryLabel.text = describe_memory(capabilities) or unknown
        isStarting = self._compute.state is ComputeState.STARTING
        ui.testButton.enabled = not isStarting
        ui.testButton.toolTip = (
            _("Already starting; wait a moment")
            if isStarting
            else _("Test the connection, and show model and device")
        )
        isRunning = isStarting or self._compute.state is ComputeState.READY
        ui.restartButton.enabled = isRunning
        ui.restartButton.toolTip = (
            _(
                "Stop the worker or the connection to the server; the next click starts it "
                "again. Clicks, marks and segments are kept."
            )
            if isRunning
            else _("Nothing is running; the next click starts it")
        )

    def _fill(self) -> None:
        where = {
            ComputeMode.LOCAL: _("This computer"),
            ComputeMode.REMOTE: _("A server (PUMIT or nnInteractive)"),
        }
        for mode in ComputeMode:
            self._ui.computeWhereSelector.addItem(where[mode], mode.value)
        self._ui.deviceSelector.addItem(_("Fastest available"), "auto")
        self._ui.modelSelector.addItem(_("Shipped with PUMIT"), "default")

    def _onCollapsed(self, isCollapsed: bool) -> None:
        """List devices and models each time the section is opened: models come and go."""
        isLocal = self._compute.settings.mode is ComputeMode.LOCAL
        if not isCollapsed and isLocal and not self._isListing:
            self._isListing = True
            self._compute.listAvailable(self._onAvailability, self._onNoAvailability)
        self.refresh()

    def _onAvailability(self, available: Availability) -> None:
        self._isListing = False
        devices = {device.name: device.title for device in available.devices}
        usable = [m for m in available.models if m.kind == "promptable" and m.isHere]
        self._licences = {m.name: m.licence for m in usable}
        models = {
            m.name: f"{m.name} ({m.licence})" if is_restricted(m.licence) else m.name
            for m in usable
        }
        self._isShowing = True
        for selector, choices in (
            (self._ui.deviceSelector, devices),
            (self._ui.modelSelector, models),
        ):
            for place in reversed(range(1, selector.count)):  # the first is always there
                if selector.itemData(place) not in choices:
                    selector.removeItem(place)
            for name, title in choices.items():
                if selector.findData(name) < 0:
                    selector.addItem(title, name)
        self._isShowing = False
        self.refresh()

    def _onNoAvailability(self, error: Exception) -> None:
        # The automatic choice still works; the setup area at the top shows what is missing.
        self._isListing = False

    def _onChanged(self, *_arguments) -> None:
        if self._isShowing:
            return
        ui = self._ui
        settings = replace(
            self._compute.settings,
            mode=list(ComputeMode)[ui.computeWhereSelector.currentIndex],
            device=ui.deviceSelector.itemData(ui.deviceSelector.currentIndex),
            model=ui.modelSelector.itemData(ui.modelSelector.currentIndex),
            url=ui.remoteUrlEdit.text.strip(),
            token=ui.remoteTokenEdit.text.strip(),
            rememberToken=ui.rememberTokenCheckBox.checked,
            allowUnencrypted=ui.allowUnencryptedCheckBox.checked,
            certificateFile=ui.certificateEdit.currentPath.strip(),
        )
        if settings != self._compute.settings:
            if not self._hasConsent(settings.model):
                self.refresh()
                return
            self._compute.changeSettings(settings)
            self.refresh()
            self._compute.checkInstalled()

    def _hasConsent(self, model: str) -> bool:
        """Return whether a model may be used; ask for consent if its licence needs it."""
        licence = self._licences.get(model, "")
        if has_consent(model, licence):
            return True
        question = _("{terms}\n\nDo you agree?").format(terms=terms_of(model, licence))
        if not confirm(question):
            return False
        try:
            give_consent(model, licence)
        except PumitError as error:
            self._status.problem(str(error))
            return False
        return True

    def _onTest(self) -> None:
        self._status.working(_("Testing the connection..."))
        self._compute.testConnection(
            self._status.done, lambda error: self._status.problem(str(error))
        )

    def _onTimeout(self) -> None:
        if not self._ui.computeSection.collapsed:
            self._compute.refreshCapabilities()


def _choose(selector, name: str) -> None:
    """Select the current value, adding it to the list if absent."""
    if selector.findData(name) < 0:
        selector.addItem(name, name)
    selector.currentIndex = selector.findData(name)
