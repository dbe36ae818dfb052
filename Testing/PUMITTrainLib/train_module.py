"""The unmodified module with its panel, whose programs and processes a test plays."""

from pathlib import Path
from typing import Any

import slicer
from pumit.runs import RunStatus, write_status
from pumit.training.data.labelled_set import find_cases
from pumit.training.recipes.labelled import LabelledData
from PUMITSlicerLib.computing.background import Background
from PUMITTrainLib.panel.setup_section import SetupSection
from shown_panel import WIDTH, ShownPanel
from train_scene import TrainScene, goodCase

SECTIONS = (*("casesSection", "learnSection", "runSection", "resultSection", "compareSection"),)
MODULE = Path(__file__).resolve().parents[2] / "PUMITTrain" / "PUMITTrain.py"


class TrainModule(TrainScene, ShownPanel):
    """The module as Slicer loads it.

    Attributes:
        gui: The object that Slicer asks to enter, exit and clean up.
    """

    def __init__(self, root: Path, loadModule: Any, monkeypatch: Any) -> None:
        import PUMITTrainLib.logic

        self._loadModule = loadModule
        # The module makes its own logic, and this what it computes with.
        monkeypatch.setattr(PUMITTrainLib.logic, "localCollaborators", lambda: self.parts)
        TrainScene.__init__(self, root)

    def open(self) -> None:
        self.module = self._loadModule(MODULE)
        self.frame = self.module.widgetRepresentation()
        self.gui = slicer.util.getModuleWidget("PUMITTrain")
        self.panel, self.logic = self.gui.panel, self.gui.logic
        self.ui, self.pressed = self.panel.ui, None
        assert isinstance(self.panel.setupSection, SetupSection)
        self.frame.resize(WIDTH, 1600)
        self.frame.show()
        self.gui.enter()
        self.settle()

    def settle(self) -> None:
        TrainScene.settle(self)
        self.process()

    def press(self, widget: Any) -> None:
        """Click a widget, and let what that began end or wait for an answer."""
        super().press(widget)
        TrainModule.settle(self)

    def refresh(self) -> None:
        self.logic._notifyChanged()
        self.process()

    def reopen(self) -> None:
        """Close the module, and open it again in the same Slicer: the runs continue."""
        from harness.program.modules import unloadModule

        self.gui.exit()
        unloadModule("PUMITTrain")
        assert self.background.drain(20)
        # What was closed takes no more work.
        self.background = Background()
        object.__setattr__(self.parts, "background", self.background)
        self.open()

    def close(self) -> None:
        """Leave the module; after a reload the panel is another one."""
        self.module.widgetRepresentation().self().exit()


def addToTable(module: TrainModule, count: int = 2) -> None:
    """Cases of the scene, by the button, and read."""
    for number in range(count):
        module.addSegmentation(module.addVolume(f"scan{number}", seed=number), f"label{number}")
    module.process()
    module.press(module.ui.addCasesButton)
    module.answerCheck()


def start(module: TrainModule) -> Path:
    """Press Start, answer the plan, and let the process say that it trains."""
    module.press(module.ui.startButton)
    module.answerPlan()
    folder = module.launcher.launched[-1][0]
    writeRun(module, folder)
    return folder


def writeRun(module: TrainModule, folder: Path, state: str = "training", **more: Any) -> None:
    """Let the process of a run say something."""
    given = {"sentence": "Step 10 of 40.", "name": "mine", "step": 10, "steps": 40}
    write_status(folder, RunStatus(state, **{**given, **more}))
    module.poll()
    module.process()


def answerFound(module: TrainModule) -> None:
    """Answer `pumit data` with the cases that the core finds; every one is fine."""
    found = find_cases(LabelledData(**module.programs.last.config["data"]), Path)
    cases = sorted(found.data.cases, key=lambda case: case.name)
    unlabelled = [p.case for p in found.problems if p.is_unlabelled]
    records = [{**goodCase(case.name), "patient": case.patient} for case in cases]
    records += [{"case": case, "is_unlabelled": True} for case in unlabelled]
    for record in records:
        record["folder"], record["in_folder"] = found.origins.get(record["case"], ("", ""))
    classes = [{"name": "liver", "value": 1}] if found.data.cases else []
    problems = [str(p) for p in found.problems if not p.is_unlabelled]
    module.answerRead(*records, classes=classes, problems=problems)


def site(folder: Path, count: int = 2) -> Path:
    """A folder of pairs; such names repeat in every lab."""
    for kind in ("images", "labels"):
        (folder / kind).mkdir(parents=True)
        for number in range(1, count + 1):
            (folder / kind / f"case_{number:03}.nii.gz").touch()
    return folder


def addFolder(module: TrainModule, folder: Path) -> None:
    """Choose a folder and press the button, as a person does; it is read."""
    chooseFolder(module, folder)
    answerFound(module)


def chooseFolder(module: TrainModule, folder: Path) -> None:
    """Choose a folder and press the button; the test answers what was read."""
    module.choose(module.ui.sourceSelector, "folder")
    module.ui.sourcePathEdit.currentPath = str(folder)
    module.process()
    module.press(module.ui.addCasesButton)


def check(module: TrainModule, file: Path, section: str = "") -> None:
    """Find nothing wrong with the panel, whose sections but one are closed."""
    from harness.widgets.layout_faults import inModulePanel, layoutFaults

    for each in SECTIONS if section else ():
        getattr(module.ui, each).collapsed = each != section
    inModulePanel(module.frame)
    module.frame.grab().save(str(file))
    assert layoutFaults(module.frame) == []
    assert module.frame.minimumSizeHint.width() <= module.frame.width
