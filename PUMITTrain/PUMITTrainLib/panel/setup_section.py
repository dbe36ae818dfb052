"""Setup area at the top of the panel, for packages that training needs."""

from __future__ import annotations

import slicer
from pumit.errors import PumitError
from PUMITSlicerLib.computing.settings import ComputeMode
from PUMITSlicerLib.installing.installation import InstallationPlan, Installer
from slicer.i18n import tr as _


class SetupSection:
    """Setup area that explains what is missing, and installs it with the user's consent."""

    def __init__(self, ui, logic) -> None:
        self._ui = ui
        self._setup, self._status = logic.setup, logic.status
        self.installer = Installer(logic.background)
        self._plan: InstallationPlan | None = None
        self._isPlanned = False
        ui.setupInstallButton.connect("clicked()", self._onInstall)
        ui.setupDetailsButton.connect("clicked()", self._onDetails)
        ui.setupFrame.hide()

    def close(self) -> None:
        """Stop the installation after the current package."""
        self.installer.cancel()

    def refresh(self) -> None:
        """Explain what is missing, if anything."""
        ui, setup = self._ui, self._setup
        if setup.isMissing and not self._isPlanned and not self.installer.isRunning:
            self._isPlanned = True
            self.installer.plan(ComputeMode.LOCAL, self._onPlan, self._onError, withTorch=True)
        if not setup.isMissing:
            self._isPlanned, self._plan = False, None
        ui.setupFrame.visible = setup.isMissing and not self.installer.isRunning
        plan, text = self._plan, setup.sentence
        if plan is not None and (plan.needs or plan.problems):
            text = "\n".join([plan.explanation, *plan.problems])
        ui.setupLabel.text = _("Before the first training: {what}").format(what=text)
        canInstall = plan is not None and plan.isPossible
        ui.setupInstallButton.enabled = canInstall
        why = plan.problems[0] if plan is not None and plan.problems else text
        ui.setupInstallButton.toolTip = (
            _("Install the missing packages into Slicer's Python")
            if canInstall
            else why or _("Checking what is missing")
        )

    def _onPlan(self, plan: InstallationPlan) -> None:
        self._plan = plan
        self.refresh()

    def _onInstall(self) -> None:
        plan, status = self._plan, self._status
        if plan is None:
            return
        try:
            self.installer.install(
                plan,
                self._onInstalled,
                self._onError,
                onProgress=lambda text, fraction: status.working(
                    text, fraction, self.installer.cancel
                ),
            )
        except PumitError as error:
            status.problem(str(error))
        self.refresh()

    def _onInstalled(self) -> None:
        self._status.done(_("Installed. Add cases, and press Start."))
        self._isPlanned = False
        self._setup.check()
        self.refresh()

    def _onError(self, error: Exception) -> None:
        self._status.problem(str(error))
        self.refresh()

    def _onDetails(self) -> None:
        """Open section Compute of PUMITSegment, which can also install from an offline folder."""
        slicer.util.selectModule("PUMITSegment")
        ui = slicer.util.getModuleWidget("PUMITSegment").panel.ui
        ui.withTorchCheckBox.checked = True
        ui.computeSection.collapsed = False
