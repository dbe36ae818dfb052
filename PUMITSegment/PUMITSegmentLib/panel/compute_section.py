"""Section 6 of the panel: compute settings."""

from __future__ import annotations

from dataclasses import replace

import qt
from pumit.errors import PumitError
from pumit.system.consent import give_consent, has_consent, is_restricted, terms_of
from PUMITSlicerLib.computing.availability import Availability
from PUMITSlicerLib.computing.compute import ComputeState
from PUMITSlicerLib.computing.connection import describe_memory, is_in_the_clear, is_nninteractive
from PUMITSlicerLib.computing.settings import ComputeMode
from slicer.i18n import tr as _

from PUMITSegmentLib.panel.question import confirm

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
