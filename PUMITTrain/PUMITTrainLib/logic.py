"""Logic of PUMIT Train: from cases to a plan, a run and a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import slicer
import vtk
from PUMITSlicerLib.scene_observer import SceneObserver, readableParameters
from PUMITSlicerLib.status import StatusBoard
from slicer.ScriptedLoadableModule import ScriptedLoadableModuleLogic

from PUMITTrainLib.campaign.campaign_work import CampaignWork
from PUMITTrainLib.campaign.checking import Checking
from PUMITTrainLib.cases.case_edits import ClassMemory
from PUMITTrainLib.cases.case_table import CaseTable
from PUMITTrainLib.cases.checks import CaseCheck, removeAbandonedDrafts
from PUMITTrainLib.cases.scan_classes import ScanClasses
from PUMITTrainLib.collaborators import Collaborators, localCollaborators
from PUMITTrainLib.pair_comparison import PairComparison
from PUMITTrainLib.parameters import TrainParameters
from PUMITTrainLib.plan.planning import Planning
from PUMITTrainLib.plan.starter import Starter
from PUMITTrainLib.runs.results import Results
from PUMITTrainLib.runs.runs import Runs
from PUMITTrainLib.setup import Setup


class SceneFollower(SceneObserver):
    """Observer of the scene and the parameter node."""

    def open(self) -> None:
        """Start observing the scene."""
        self.watchScene()
        scene = slicer.mrmlScene
        self.addObserver(scene, scene.NodeRemovedEvent, self._onNodeRemoved)
        self.addObserver(scene, scene.NodeAddedEvent, self._onNodeAdded)

    @vtk.calldata_type(vtk.VTK_OBJECT)
    def _onNodeRemoved(self, caller: object, event: str, node: Any) -> None:
        if node is not None and node is self._parameterNode:
            self._listener.onSceneAboutToChange()
            self._listener.onSceneChanged()
        elif _isOfCase(node):
            self._listener.onNodesChanged()

    @vtk.calldata_type(vtk.VTK_OBJECT)
    def _onNodeAdded(self, caller: object, event: str, node: Any) -> None:
        if _isOfCase(node):
            self._listener.onNodesChanged()


def _isOfCase(node: Any) -> bool:
    isImage = node is not None and node.IsA("vtkMRMLVolumeNode")
    return isImage or (node is not None and node.IsA("vtkMRMLSegmentationNode"))


class PUMITTrainLogic(ScriptedLoadableModuleLogic):
    """Coordinator of cases, planning, runs and results, without widgets.

    The user's choices are in the parameter node, runs are in folders: both persist when the module
    is closed. All methods return at once. Problems are reported in `status`, not raised.

    Args:
        collaborators: Parts that compute; by default programs on this computer.

    Attributes:
        listeners: Callbacks after any change that a panel shows.
        parameters: Parameter node; None while the scene changes or nothing is open.
        setup: State of the installation.
        scans: Scans of a classification.
        planning: Estimate of the effort, and the recipe.
        results: Results of the run that is shown.
        comparison: Comparison of two segmentations of the scene.
        campaign: The open campaign.
        checking: Review of its scans in PUMIT Segment, one after another.
    """

    def __init__(self, collaborators: Collaborators | None = None) -> None:
        super().__init__()
        self._parts = parts = collaborators or localCollaborators()
        self.status = StatusBoard()
        self.background = parts.background
        self.listeners: list[Callable[[], None]] = []
        self.parameters: TrainParameters | None = None
        self._follower = SceneFollower(self)
        self._check = CaseCheck(parts, self.status)
        self.setup = Setup(parts, self._notifyChanged)
        self.cases = CaseTable(
            self._check,
            parts.background,
            self.status,
            parameters=lambda: self.parameters,
            onChanged=self._notifyChanged,
            memory=ClassMemory(parts.store),
        )
        self.scans = ScanClasses(parts, self.status, lambda: self.parameters, self._notifyChanged)
        self.planning = Planning(
            parts,
            self.status,
            self.cases,
            self._check,
            parameters=lambda: self.parameters,
            onChanged=self._notifyChanged,
        )
        starter = Starter(
            self.status, self.setup, self.cases, self.scans, self._check, self.planning
        )
        self.runs = Runs(parts, self.status, starter, self._notifyChanged, self._remember)
        self.results = Results(parts, self.status, self.runs, self._notifyChanged)
        self.comparison = PairComparison(parts, self.status, self.setup, self._notifyChanged)
        self.campaign = CampaignWork(parts, self.status, self._notifyChanged)
        self.checking = Checking(parts, self.status, self.campaign, self._notifyChanged)

    # Lifetime

    def open(self) -> None:
        """Read the scene and the run folders, and observe them."""
        self._follower.open()
        self._attach()
        self.setup.check()
        self.background.submit(lambda: removeAbandonedDrafts(self._parts.root))
        self.runs.poll()
        self.campaign.reopen()

    def enter(self) -> None:
        """Watch the runs while the module is shown."""
        self.setup.check()
        self.runs.watch()
        self.campaign.watch()

    def exit(self) -> None:
        """Stop watching when the module is left; running work continues."""
        self.runs.stopWatching()
        if not self.checking.isChecking:
            self.campaign.stopWatching()

    def close(self) -> None:
        """Close what belongs to the module, and remove all observers; trainings continue."""
        self.checking.close()
        self.campaign.stopWatching()
        self.listeners.clear()
        self.status.listeners.clear()
        self.planning.close()
        self._check.discard(waits=True)
        self.scans.cancel()
        self.runs.close()
        self.results.close()
        self.comparison.close()
        self._follower.close()
        self.parameters = None
        self._parts.close()

    def getParameterNode(self) -> TrainParameters:
        """Return the parameter node wrapper."""
        return readableParameters(TrainParameters, super().getParameterNode(), self.status)

    def cancel(self) -> None:
        """Cancel reading, planning, export or installation; a training continues."""
        self.status.cancel()

    # Scene events

    def onSceneAboutToChange(self) -> None:
        """Detach from the scene; runs continue, and stay shown."""
        if slicer.mrmlScene.IsClosing():  # a scene that is added leaves the checked scan there
            self.checking.keepAtOnce()
        self.planning.cancel()
        # Files written from this scene do not apply to the next one.
        self._check.discard()
        self.scans.cancel()
        self.comparison.forget()
        self._follower.watchParameterNode(None)
        self.parameters = None
        self.cases.forgetRead()

    def onSceneChanged(self) -> None:
        """Attach to the scene."""
        if self.parameters is None:
            self._attach()

    def onNodesChanged(self) -> None:
        """Update the offered pairs."""
        if self.parameters is not None:
            self._notifyChanged()

    def onParametersModified(self) -> None:
        """Apply changed parameters."""
        if self.parameters is None:
            return
        folder = self.parameters.runFolder
        if folder and folder != str(self.runs.folder or ""):
            self.runs.select(Path(folder))
        self._notifyChanged()

    def _attach(self) -> None:
        self.parameters = self.getParameterNode()
        self._follower.watchParameterNode(self.parameters.parameterNode)
        self.onParametersModified()

    def _remember(self, folder: Path | None) -> None:
        if self.parameters is not None:
            self.parameters.runFolder = "" if folder is None else str(folder)

    def _notifyChanged(self) -> None:
        with self.cases.telling():
            for listener in list(self.listeners):
                listener()
