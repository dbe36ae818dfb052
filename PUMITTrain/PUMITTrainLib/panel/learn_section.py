"""Section 2 of the panel: goal, duration and validation of the training."""

from __future__ import annotations

import ctk
from slicer.i18n import tr as _

from PUMITTrainLib.panel.widgets import RecipeEditor, SectionTitle, inWords
from PUMITTrainLib.parameters import ClickPart, Goal, PresetName
from PUMITTrainLib.plan.planning import learnsUnlabelled

# Validation fraction of the patients, and number of cross-validation folds; 0 for none.
_VALIDATIONS = ((0.1, 0), (0.2, 0), (0.3, 0), (0.2, 3), (0.2, 5), (0.2, 10))


class LearnSection:
    """Widgets for goal, preset, validation, name and estimate, and the recipe as text."""

    def __init__(self, ui, logic) -> None:
        self._ui = ui
        self._cases, self._scans = logic.cases, logic.scans
        self._setup, self._planning = logic.setup, logic.planning
        self._readParameters = lambda: logic.parameters
        self._title = SectionTitle(ui.learnSection)
        self._isShowing = False
        self._networks: tuple = ()
        self._devices: tuple = ()
        self.editor = RecipeEditor(ui, logic)
        self._fill()
        self._radios = {
            Goal.CLICKS: ui.clicksRadio,
            Goal.AUTOMATIC: ui.automaticRadio,
            Goal.CLASSIFICATION: ui.classificationRadio,
        }
        for radio in self._radios.values():
            radio.connect("toggled(bool)", self._onGoal)
        for name in (
            *("networkSelector", "adaptSelector", "presetSelector", "validationSelector"),
            "deviceSelector",
        ):
            getattr(ui, name).connect("currentIndexChanged(int)", self._onChanged)
        ui.nameEdit.connect("editingFinished()", self._onChanged)
        ui.unlabelledEdit.filters = ctk.ctkPathLineEdit.Dirs
        ui.unlabelledEdit.connect("currentPathChanged(QString)", self._onChanged)
        ui.planButton.connect("clicked()", self._onPlan)
        # On macOS, a press of a button does not end the editing.
        for button in (ui.planButton, ui.startButton):
            button.connect("pressed()", self._onChanged)
            button.connect("pressed()", self.editor.handOver)

    def close(self) -> None:
        """Close the recipe editor."""
        self.editor.close()

    def refresh(self) -> None:
        """Show the parameters and the resulting plan."""
        parameters = self._readParameters()
        self._ui.learnFrame.enabled = parameters is not None
        if parameters is None:
            self._title.showState("")
            return
        self._isShowing = True
        try:
            self._fillLists()
            self._showChoices(parameters)
        finally:
            self._isShowing = False
        self._showPlan()
        self.editor.refresh()
        if self._hasCases and not self._ui.learnSection.collapsed:
            # Slow subprocess, so only when the user is about to choose.
            self._setup.requestDevices()

    @property
    def _hasCases(self) -> bool:
        return bool(self._scans.classes if self._scans.isChosen else self._cases.rows)

    def _fill(self) -> None:
        ui = self._ui
        for part, text in partTexts().items():
            ui.adaptSelector.addItem(text, part.value)
        for preset, text in presetTexts().items():
            ui.presetSelector.addItem(text, preset.value)
        for share, folds in _VALIDATIONS:
            ui.validationSelector.addItem(_validationText(share, folds))
        ui.networkSelector.addItem(_("PUMIT's own, planned for the cases"), "")
        ui.deviceSelector.addItem(_("Fastest available"), "auto")

    def _fillLists(self) -> None:
        """Fill networks and devices, which are known only once listed."""
        networks, devices = tuple(self._planning.networks), self._setup.devices
        if networks != self._networks:
            self._networks = networks
            for choice in networks:
                _add(self._ui.networkSelector, choice.title, choice.name)
        if devices != self._devices:
            self._devices = devices
            for device in devices:
                _add(self._ui.deviceSelector, device.title, device.name)

    def _showChoices(self, parameters) -> None:
        ui, isAutomatic = self._ui, parameters.goal is Goal.AUTOMATIC
        self._radios[parameters.goal].checked = True
        for name, isShown in (
            ("networkSelector", isAutomatic),
            ("adaptSelector", parameters.goal is Goal.CLICKS),
            ("validationSelector", parameters.goal is not Goal.CLASSIFICATION),
        ):
            getattr(ui, name).visible = isShown
            getattr(ui, f"{name}Label").visible = isShown
        for widget in (ui.unlabelledEditLabel, ui.unlabelledEdit):
            widget.visible = isAutomatic
            widget.enabled = learnsUnlabelled(parameters.network)
        if ui.unlabelledEdit.currentPath.strip() != parameters.unlabelled:
            ui.unlabelledEdit.currentPath = parameters.unlabelled
        _choose(ui.networkSelector, parameters.network)
        _choose(ui.adaptSelector, parameters.part.value)
        _choose(ui.presetSelector, parameters.preset.value)
        _choose(ui.deviceSelector, parameters.device)
        self._showValidation(parameters.validationShare, parameters.folds)
        if not ui.nameEdit.hasFocus():
            ui.nameEdit.text = parameters.name
        ui.goalLabel.text = goalText(parameters.goal)
        chosen = {choice.name: choice.tooltip for choice in self._networks}
        ui.networkSelector.toolTip = chosen.get(parameters.network) or _(
            "The network that is trained; PUMIT's own is a good first choice"
        )
        ui.adaptSelector.toolTip = partTooltips()[parameters.part]

    def _showValidation(self, share: float, folds: int) -> None:
        selector, text = self._ui.validationSelector, _validationText(share, folds)
        if selector.findText(text) < 0:
            # From a script or an older scene.
            selector.addItem(text)
        selector.currentIndex = selector.findText(text)

    def _showPlan(self) -> None:
        ui, planning = self._ui, self._planning
        estimate = planning.estimate
        lines = [estimate.sentence] if estimate is not None else []
        if estimate is not None and planning.isStarted:
            # A started run keeps its plan, whatever is chosen for the next one.
            lines = [_("The run that was started: {text}").format(text=estimate.sentence)]
        elif estimate is not None and not planning.isUpToDate:
            lines = [_("Cases or settings changed since; plan again.")]
        lines += [_("Note: {text}").format(text=text) for text in planning.warnings]
        if planning.isPlanning:
            lines = [_("Planning...")]
        elif not lines:
            lines = [_("Press Plan to see time and memory before anything is trained.")]
        ui.estimateLabel.text = "\n".join(lines)
        isEmpty = not self._hasCases
        ui.planButton.enabled = not isEmpty
        ui.planButton.text = _("Stop planning") if planning.isPlanning else _("Plan")
        ui.planButton.toolTip = (
            _("Add cases first")
            if isEmpty
            else _("Estimate sizes, time and memory from cases and computer; starts no training")
        )
        self._title.showState(self._state())

    def _state(self) -> str:
        parameters, planning = self._readParameters(), self._planning
        goals = {
            Goal.AUTOMATIC: _("automatic"),
            Goal.CLICKS: _("better clicks"),
            Goal.CLASSIFICATION: _("classification"),
        }
        words = [goals[parameters.goal], presetTexts()[parameters.preset].split(":")[0].lower()]
        if planning.recipeProblem is not None:
            words.append(_("a value is wrong"))
        elif planning.isEdited:
            words.append(_("edited"))
        elif planning.isUpToDate and planning.estimate is not None and planning.estimate.seconds:
            words.append(inWords(planning.estimate.seconds))
        return ", ".join(words)

    def _onGoal(self, isChecked: bool) -> None:
        parameters = self._readParameters()
        if isChecked and not self._isShowing and parameters is not None:
            parameters.goal = next(goal for goal, each in self._radios.items() if each.checked)

    def _onChanged(self, *_arguments) -> None:
        parameters, ui = self._readParameters(), self._ui
        if self._isShowing or parameters is None:
            return
        parameters.network = _chosen(ui.networkSelector)
        parameters.part = ClickPart(_chosen(ui.adaptSelector))
        parameters.preset = PresetName(_chosen(ui.presetSelector))
        parameters.device = _chosen(ui.deviceSelector)
        parameters.name = ui.nameEdit.text.strip()
        parameters.unlabelled = ui.unlabelledEdit.currentPath.strip()
        place = ui.validationSelector.currentIndex
        if place < len(_VALIDATIONS):
            parameters.validationShare, parameters.folds = _VALIDATIONS[place]

    def _onPlan(self) -> None:
        planning = self._planning
        if planning.isPlanning:
            planning.cancel()
        else:
            planning.make()


def goalText(goal: Goal) -> str:
    """Return one sentence on the result of a goal."""
    if goal is Goal.AUTOMATIC:
        return _(
            "The model finds every class in a new scan automatically: section 4 of PUMIT Segment."
        )
    if goal is Goal.CLASSIFICATION:
        return _(
            "The model names the class of a whole new scan. It learns from scratch; a part of each "
            "class is set aside to test it."
        )
    return _(
        "The model of PUMIT Segment needs fewer clicks for this anatomy; nothing is found without "
        "a click."
    )


def partTexts() -> dict[ClickPart, str]:
    """Return the display names of the network's parts."""
    return {
        ClickPart.DECODER: _("Quick: the last layers"),
        ClickPart.ADAPTERS: _("Medium: a little of all layers"),
        ClickPart.ALL: _("Thorough: all of it"),
    }


def partTooltips() -> dict[ClickPart, str]:
    """Return tooltips on when to choose which part."""
    return {
        ClickPart.DECODER: _("Learns only how clicks become a segment (the decoder)"),
        ClickPart.ADAPTERS: _("Also learns a little of how your images look (low-rank adapters)"),
        ClickPart.ALL: _("Trains the whole model; takes the most time and memory"),
    }


def presetTexts() -> dict[PresetName, str]:
    """Return the display texts of the presets; the short name precedes the colon."""
    return {
        PresetName.QUICK: _("Quick: a first look"),
        PresetName.BALANCED: _("Balanced: usually good enough"),
        PresetName.THOROUGH: _("Thorough: the best result"),
    }


def _validationText(share: float, folds: int) -> str:
    if folds:
        return _("Each patient once, in {count} trainings").format(count=folds)
    return _("{percent} % of the patients").format(percent=f"{100 * share:.0f}")


def _chosen(selector) -> str:
    return str(selector.itemData(selector.currentIndex))


def _choose(selector, name: str) -> None:
    """Select the current value, adding it to the list if absent."""
    if selector.findData(name) < 0:
        selector.addItem(name, name)
    selector.currentIndex = selector.findData(name)


def _add(selector, title: str, name: str) -> None:
    place = selector.findData(name)
    if place < 0:
        selector.addItem(title, name)
    else:
        selector.setItemText(place, title)
