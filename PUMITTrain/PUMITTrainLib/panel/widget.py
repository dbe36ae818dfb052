"""Panel of the module: loads the UI and keeps its sections up to date."""

from __future__ import annotations

import os

import qt
import slicer
from PUMITSlicerLib.status_line import StatusLine, stepsHtml
from slicer.i18n import tr as _

from PUMITTrainLib.panel.campaign_section import CampaignSection
from PUMITTrainLib.panel.cases_section import CasesSection
from PUMITTrainLib.panel.compare_section import CompareSection
from PUMITTrainLib.panel.learn_section import LearnSection
from PUMITTrainLib.panel.result_section import ResultSection
from PUMITTrainLib.panel.run_section import RunSection
from PUMITTrainLib.panel.setup_section import SetupSection
from PUMITTrainLib.panel.widgets import FileDialogs

TUTORIAL_URL = "https://github.com/pumit/SlicerPUMIT/blob/main/docs/tutorials/first_training.md"


def helpText() -> str:
    """Return short instructions for the panel, as rich text."""
    steps = [
        _("Load scans with their segmentations, or choose a folder of them, and press Add."),
        _("Look at the table: red cases cannot be used, amber ones should be checked."),
        _(
            "Choose what to learn and for how long; Plan estimates time and memory before the "
            "training starts."
        ),
        _(
            "Press Start. You can keep using Slicer, or close it: the run continues, and is found "
            "again."
        ),
        _(
            "Watch the Dice of the test patients: when it stops rising, more training does not "
            "help."
        ),
        _("Press Use it in PUMIT Segment, or Export for another computer."),
    ]
    return stepsHtml(steps, TUTORIAL_URL)


class TrainWidget:
    """Panel of the module."""

    def __init__(self, resources: str, logic) -> None:
        self.logic = logic
        self.widget = slicer.util.loadUI(os.path.join(resources, "UI", "PUMITTrain.ui"))
        self.ui = slicer.util.childWidgetVariables(self.widget)
        self.widget.setMRMLScene(slicer.mrmlScene)
        self.dialogs = FileDialogs(self.widget, slicer.app.userSettings())
        self.statusLine = StatusLine(self.ui, logic.status)
        self.setupSection = SetupSection(self.ui, logic)
        self.campaignSection = CampaignSection(self.ui, logic, self.dialogs)
        self.casesSection = CasesSection(self.ui, logic)
        self.learnSection = LearnSection(self.ui, logic)
        self.runSection = RunSection(self.ui, logic)
        self.resultSection = ResultSection(self.ui, logic, self.dialogs)
        self.compareSection = CompareSection(self.ui, logic)
        self.ui.helpLabel.text = helpText()
        self._parameters = None
        self._isRefreshing = self._isStale = False
        self._again = qt.QTimer()
        self._again.setSingleShot(True)
        self._again.connect("timeout()", self.refresh)
        logic.listeners.append(self.refresh)
        logic.open()
        self.refresh()

    def enter(self) -> None:
        """React when the module is entered."""
        self.logic.enter()
        self.campaignSection.reviewRow.enter()
        self.refresh()
        if not self.logic.status.current.text:
            self.logic.status.waiting(self._firstSentence())

    def _firstSentence(self) -> str:
        """Return what to do first; a run in progress is reported when it is found."""
        if not self.logic.cases.sources and not self.logic.scans.isChosen:
            return _("Choose where your cases are, and press Add.")
        return self.logic.runs.whyNoStart or _("Everything is ready: press Start.")

    def exit(self) -> None:
        """React when the module is left; trainings continue."""
        self.campaignSection.reviewRow.exit()
        self.logic.exit()

    def close(self) -> None:
        """Remove all observers, timers and plots; trainings continue."""
        self._again.stop()
        self.campaignSection.reviewRow.exit()
        self.statusLine.close()
        self.casesSection.source.close()
        self.learnSection.close()
        self.runSection.close()
        self.setupSection.close()
        if self.refresh in self.logic.listeners:
            self.logic.listeners.remove(self.refresh)
        self.logic.close()

    def refresh(self) -> None:
        """Show the state of the logic."""
        if self._isRefreshing:  # filling a widget may set parameters
            self._isStale = True
            return
        self._isRefreshing, self._isStale = True, False
        try:
            if self.logic.parameters is not self._parameters:
                self._parameters = self.logic.parameters
                self.casesSection.source.showSource()
            for section in (
                *(self.setupSection, self.campaignSection, self.casesSection),
                *(self.learnSection, self.runSection, self.resultSection),
                self.compareSection,
            ):
                section.refresh()
        finally:
            self._isRefreshing = False
        if self._isStale:
            self._again.start(0)
