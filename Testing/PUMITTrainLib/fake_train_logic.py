"""A logic that says what a test tells it, and remembers what the panel asks of it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import slicer
from PUMITSlicerLib.status import StatusBoard
from PUMITTrainLib.cases.case_row import CaseRow
from PUMITTrainLib.parameters import TrainParameters
from PUMITTrainLib.runs.curves import Curves
from PUMITTrainLib.runs.run_view import RunState, RunView

CLASSES = {"liver": 41250, "tumour": 812}


def goodRow(name: str, **changes: Any) -> Any:
    """A case that was read and can be used."""
    given: dict[str, Any] = {
        "title": f"{name}, {name}_seg",
        "isChecked": True,
        "spacingMm": (3.0, 0.8, 0.8),
        "shape": (60, 128, 128),
        "channels": 1,
        "classes": CLASSES,
    }
    return CaseRow(name, **{**given, **changes})


class RecordedCalls(list):
    """Calls in order; `of(name)` makes a method that is remembered."""

    def of(self, name: str, result: Any = None) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            self.append((name, *arguments, *named.items()))
            return result

        return call


class FakeCases:
    """As much of the table of cases as the panel uses."""

    def __init__(self, calls: RecordedCalls) -> None:
        self.rows: tuple[Any, ...] = ()
        self.sources: tuple[Any, ...] = ()
        self.problems: tuple[str, ...] = ()
        self.doubts: tuple[str, ...] = ()
        self.classes: tuple[Any, ...] = ()
        self.isChecking, self.isUnread, self.progress = False, False, (0, None)
        self.sentence, self.sourceSentence = "No case yet.", ""
        self.offered: tuple[Any, ...] = ()
        self.unreviewed: tuple[Any, ...] = ()
        self.classQuestion: tuple[str, str] | None = None
        for name in (
            *("addScenePair", "addAllOffered", "addFiles", "addBundle", "remove", "removeSource"),
            *("setFolder", "setExcluded", "setPatient", "setClass", "check", "cancelCheck"),
            *("resetClasses", "addClass", "removeClass", "confirmUnreviewed"),
            *("setDrawn", "joinClasses", "keepClassesApart"),
        ):
            setattr(self, name, calls.of(name))

    def namesRead(self, row: Any) -> set[str]:
        return {row.name}

    def offeredPairs(self) -> tuple[Any, ...]:
        return self.offered


@dataclass
class FakePlanning:
    """As much of planning as the panel uses."""

    calls: RecordedCalls
    estimate: Any = None
    warnings: tuple[str, ...] = ()
    recipeText: str = ""
    isEdited: bool = False
    recipeProblem: Any = None
    isUpToDate: bool = True
    isStarted: bool = False
    isPlanning: bool = False
    networks: tuple[Any, ...] = ()
    restricted: Any = None

    def __post_init__(self) -> None:
        for name in ("make", "cancel", "resetRecipe"):
            setattr(self, name, self.calls.of(name))

    def setRecipeText(self, text: str) -> None:
        self.calls.append(("setRecipeText", text))
        self.recipeText, self.isEdited = text, True


class FakeRuns:
    """As much of the runs as the panel uses."""

    def __init__(self, calls: RecordedCalls) -> None:
        self.all: tuple[Any, ...] = ()
        self.selected: Any = None
        self.restricted: Any = None
        self.whyNoStart, self.whyBusy, self.needsConfirmation = "Add cases first.", "", False
        self.curves = Curves()
        self.speed = self.memory = self.logText = ""
        for name in ("start", "pause", "resume", "stop", "finish", "continueRun", "remove"):
            setattr(self, name, calls.of(name))
        self._calls = calls

    @property
    def overlays(self) -> tuple[Any, ...]:
        return tuple(self.curves.overlays)

    def select(self, folder: Path | None) -> None:
        self._calls.append(("select", folder))
        self.selected = next((view for view in self.all if view.folder == folder), None)

    def show(self, *views: Any) -> None:
        """Let these runs exist, the first of them selected."""
        self.all = views
        self.selected = views[0] if views else None


class FakeScans:
    """No classification is the goal."""

    isChosen = isReading = False
    classes: tuple[Any, ...] = ()
    problem = whyNot = sentence = ""


@dataclass
class FakeResults:
    """As much of the results as the panel uses."""

    calls: RecordedCalls
    model: str = ""
    cardFile: Path | None = None
    scores: tuple[Any, ...] = ()
    classScores: dict[str, float] = field(default_factory=dict)
    isBusy: bool = False
    answers: tuple[Any, ...] = ()
    whatElse: str = ""

    def __post_init__(self) -> None:
        for name in ("use", "openCard", "exportModel", "importModel"):
            setattr(self, name, self.calls.of(name))


@dataclass
class FakeComparison:
    """Nothing was compared."""

    calls: RecordedCalls
    classes: tuple[Any, ...] = ()
    places: tuple[Any, ...] = ()
    title: str = ""
    isRunning: bool = False

    def __post_init__(self) -> None:
        for name in ("start", "cancel", "show"):
            setattr(self, name, self.calls.of(name))


@dataclass
class FakeSetup:
    """Whether something is missing."""

    isMissing: bool = False
    sentence: str = ""
    devices: tuple[Any, ...] = ()

    def check(self) -> None:
        """Nothing to look for."""

    def requestDevices(self) -> None:
        """None but the automatic choice."""


@dataclass(frozen=True)
class FakeScore:
    """Dice of one case."""

    case: str
    dice: dict[str, float]
    picture: Path | None = None
    before: dict[str, float] = field(default_factory=dict)


class FakeCampaign:
    """A campaign section in which nothing is open."""

    view: Any = None
    question: Any = None
    action: Any = None
    isBusy, trainsByItself, reviewer, progress = False, True, "", ("", None)


class FakeChecking:
    """No scan is checked."""

    isChecking = isOpening = False
    currentID = ""


class FakeTrainLogic:
    """What the panel shows is set by a test; what the panel asks lies in `calls`."""

    def __init__(self, background: Any) -> None:
        self.calls = RecordedCalls()
        self.background = background
        self.status = StatusBoard()
        self.listeners: list[Any] = []
        node = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLScriptedModuleNode", "PUMITTrain")
        self.parameters: Any = TrainParameters(node)
        self.cases, self.planning = FakeCases(self.calls), FakePlanning(self.calls)
        self.scans = FakeScans()
        self.runs, self.results = FakeRuns(self.calls), FakeResults(self.calls)
        self.comparison = FakeComparison(self.calls)
        self.setup = FakeSetup()
        self.campaign, self.checking = FakeCampaign(), FakeChecking()
        for name in ("open", "close", "enter", "exit"):
            setattr(self, name, self.calls.of(name))

    def notify(self) -> None:
        """Tell the panel that something changed."""
        for listener in list(self.listeners):
            listener()

    def callsOf(self, name: str) -> list[tuple[Any, ...]]:
        """Arguments of each call of a method."""
        return [call[1:] for call in self.calls if call[0] == name]


def runView(folder: Path, state: str = "training", **changes: Any) -> Any:
    """A run as the panel shows it."""
    given: dict[str, Any] = {
        "sentence": "It learns.",
        "step": 250,
        "steps": 1000,
        "seconds": 150.0,
        "leftSeconds": 450.0,
    }
    name = changes.pop("name", folder.name)
    return RunView(folder, name, "segmentation", RunState(state), **{**given, **changes})
