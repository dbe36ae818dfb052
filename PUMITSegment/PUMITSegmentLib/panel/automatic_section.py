"""Section 4 of the panel: segmentation without prompts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pumit.errors import (
    PumitError,
)
from PUMITSlicerLib.computing.compute import ComputeState
from PUMITSlicerLib.computing.connection import answers_prompts_only, is_nninteractive
from PUMITSlicerLib.computing.settings import ComputeMode
from slicer.i18n import tr as _

from PUMITSegmentLib.automatic import (
    FoundStructures,
    closedModels,
    labelOf,
    prepareStructures,
    regionCorners,
    requestConsent,
)
from PUMITSegmentLib.panel.question import confirm
from PUMITSegmentLib.parameters import nodeOf
from PUMITSegmentLib.scene.selection import Selection
from PUMITSegmentLib.session_work import SessionWork

_MOST_CLASSES = 12
# States after a worker or server was lost, in which its models stay listed.
_AGAIN = (ComputeState.FAILED, ComputeState.STARTING)


class ModelSection:
    """Part of the section that runs a model on the whole scan and adds what it finds."""

    def __init__(
        self,
        ui,
        selection: Selection,
        work: SessionWork,
        addFound: Callable[[FoundStructures], bool],
    ) -> None:
        self._ui = ui
        self._selection = selection
        self._addFound = addFound
        self._status = selection.status
        self._work, self._compute = work, work.compute

    def close(self) -> None:
        """Cancel the work."""
        self._work.close()


class AutomaticSection(ModelSection):
    """Widgets to choose and run an automatic model."""

    def __init__(self, ui, selection: Selection, work: SessionWork, addFound) -> None:
        super().__init__(ui, selection, work, addFound)
        self._models: list[dict[str, Any]] = []
        self._serverModels: list[dict[str, Any]] = []
        self._closed: list[dict[str, Any]] = []
        self._isListing = False
        self._isFilling = False
        ui.automaticButton.connect("clicked()", self._onRun)
        ui.automaticModelSelector.connect("currentIndexChanged(int)", self._onChosen)
        ui.automaticSection.connect("contentsCollapsed(bool)", self._onCollapsed)
        work.open(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show the available models, and whether one can run."""
        ui, compute = self._ui, self._compute
        known = compute.capabilities or {}
        if compute.capabilities is None and compute.state in _AGAIN:
            known = {"models": self._serverModels}  # Segment starts the same worker again
        self._serverModels = serverModels = known.get("models") or []
        models = [
            model for model in serverModels if model.get("kind") in ("automatic", "promptable")
        ]
        # Automatic models first, then promptable ones, which without prompts segment whatever
        # stands out. Local models whose licence is not accepted yet are appended.
        listed = {model["name"] for model in models}
        models += [model for model in self._closed if models and model["name"] not in listed]
        models.sort(key=lambda model: model.get("kind") == "promptable")
        if models != self._models:
            self._models = models
            self._fill()
        reason = self._whyNot()
        ui.automaticButton.enabled = not reason
        ui.automaticButton.toolTip = reason or _(
            "Segment the scan with this model; the segments appear in the segmentation"
        )
        ui.automaticModelSelector.enabled = bool(models)
        ui.automaticModelSelector.toolTip = (
            _("A model that segments without a click")
            if models
            else _notOffered(compute)
            or _("Models are listed after the first click, or after Test in section 6")
        )
        self._explain()

    def _whyNot(self) -> str:
        if self._work.whyNot:
            return self._work.whyNot
        isLost = self._compute.state is ComputeState.FAILED and self._models
        if not isLost and self._compute.state is not ComputeState.READY:
            return self._compute.sentence
        if self._models:
            return ""
        return _notOffered(self._compute) or _("No automatic model is installed")

    def _fill(self) -> None:
        """List the models; select the one chosen before, here or by PUMITTrain."""
        selector, parameters = self._ui.automaticModelSelector, self._selection.parameters
        names = [model["name"] for model in self._models]
        chosen = parameters.automaticModel if parameters is not None else ""
        self._isFilling = True
        selector.clear()
        for model in self._models:
            selector.addItem(labelOf(model), model["name"])
        if chosen in names:
            selector.currentIndex = names.index(chosen)
        self._isFilling = False

    def _onChosen(self, *_arguments) -> None:
        model, parameters = self._model(), self._selection.parameters
        if model is not None and parameters is not None and not self._isFilling:
            parameters.automaticModel = model["name"]
        self._explain()

    def _explain(self) -> None:
        model = self._model()
        if model is None:
            text = self._whyNot()
        elif model.get("kind") == "promptable":
            text = _(
                "This model is made for prompts. Without prompts it segments whatever stands out."
            )
        else:
            names = list(model.get("classes", []))
            more = ", ..." if len(names) > _MOST_CLASSES else ""
            text = model.get("description", "")
            if names:
                found = ", ".join(names[:_MOST_CLASSES]) + more
                isList = text.startswith(f"Segments {names[0]}")  # a model without a description
                words = _("Finds: {names}") if isList else _("{description} Finds: {names}")
                text = words.format(description=text, names=found)
        self._ui.automaticLabel.text = text

    def _model(self) -> dict[str, Any] | None:
        place = self._ui.automaticModelSelector.currentIndex
        return self._models[place] if 0 <= place < len(self._models) else None

    def _onCollapsed(self, isCollapsed: bool) -> None:
        compute = self._compute
        if not isCollapsed and compute.state in (ComputeState.STOPPED, ComputeState.FAILED):
            # Only a running worker or server can list its models.
            compute.ensureReady(self.refresh, self._status.showError)
        isLocal = compute.settings.mode is ComputeMode.LOCAL
        if not isCollapsed:
            compute.refreshCapabilities()  # a model may have been added since
        if not isCollapsed and isLocal and not self._isListing:
            self._isListing = True
            # On failure, the models that the worker lists still work.
            compute.listAvailable(self._onAvailability, self._onNoAvailability)
        self.refresh()

    def _onNoAvailability(self, error: Exception) -> None:
        self._isListing = False

    def _onAvailability(self, available) -> None:
        self._isListing = False
        self._closed = [
            {"name": m.name, "kind": m.kind, "description": m.description, "licence": m.licence}
            for m in closedModels(available)
        ]
        self.refresh()

    def _onRun(self) -> None:
        model = self._model()
        if model is None:
            return
        name, region = model["name"], nodeOf(self._selection.parameters, "automaticRegion")
        try:
            if not requestConsent(name, model.get("licence", ""), confirm):
                return
            corners = regionCorners(region, self._selection.volumeNode)
        except PumitError as error:
            self._status.problem(str(error))
            return

        def request(session, watch) -> FoundStructures:
            return prepareStructures(session.segment_automatically(name, corners, watch=watch))

        self._work.start(
            _("{model} segments the scan...").format(model=name), request, self._addFound
        )


def _notOffered(compute) -> str:
    """Return that the server has no such model, or "" if it may have one."""
    if not is_nninteractive(compute.capabilities):
        return ""
    return answers_prompts_only(_("models that segment without prompts"))
