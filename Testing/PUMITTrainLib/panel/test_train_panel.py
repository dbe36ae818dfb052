"""The panel as a whole: opening, tooltips, width, and a scene that comes and goes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fake_train_logic import FakeScore, goodRow, runView
from PUMITTrainLib.cases.case_list import SourceRow
from PUMITTrainLib.cases.case_row import ClassRow
from PUMITTrainLib.parameters import CaseSource
from shown_panel import ShownPanel


def fill(shown: ShownPanel, tmp_path: Path) -> None:
    """Let there be something of everything."""
    logic = shown.logic
    logic.cases.sources = (SourceRow(CaseSource.FOLDER, 4, "/scans/liver"),)
    problem = "Image and label are on different grids: 128 x 128 x 60 and 64 x 64 x 60 voxels."
    logic.cases.rows = (
        goodRow("case_00"),
        goodRow("case_01", problems=(problem,)),
        goodRow("case_02", doubts=("It holds the same voxels as case_00.",)),
        goodRow("case_03", isExcluded=True),
    )
    logic.cases.classes = (
        ClassRow("liver", (1,), (), "", (0.87, 0.51, 0.4)),
        ClassRow("tumour", (2,), ("lesion", "metastasis")),
    )
    logic.cases.sentence = "4 cases of 4 patients, 2 can be used."
    logic.planning.estimate = SimpleNamespace(
        sentence="About 11 minutes on 2 processor cores, 1.8 GiB of memory, 0.1 GiB of disk.",
        seconds=660.0,
    )
    logic.planning.recipeText = "name: liver\nschedule:\n  steps: 400\n"
    logic.planning.recipeProblem = SimpleNamespace(line=2, sentence="'shedule' is no key.")
    logic.planning.isEdited = True
    sentence = "Step 250 of 1000; Dice of the test patients is 0.71."
    logic.runs.show(runView(tmp_path / "liver-mr", sentence=sentence))
    logic.runs.curves.loss = [(step, 2.0 - step / 300) for step in range(250)]
    points = [(50 * i, 0.1 * i) for i in range(6)]
    logic.runs.curves.scores = {"mean": points, "liver": points, "tumour": points}
    logic.runs.curves.version = 1
    logic.runs.speed, logic.runs.memory = "3.1 steps a second", "1.2 GiB"
    logic.runs.logText = "20:31:12 It reads 4 cases.\n"
    logic.results.model = "liver-mr"
    logic.results.classScores = {"mean": 0.71, "liver": 0.85, "tumour": 0.57}
    logic.results.scores = (FakeScore("case_02", {"liver": 0.8, "tumour": 0.3}),)
    logic.setup.isMissing, logic.setup.sentence = True, "torch is not installed."


def controls(shown: ShownPanel) -> list[Any]:
    from Qt import QtWidgets

    kinds = (
        *(QtWidgets.QAbstractButton, QtWidgets.QComboBox, QtWidgets.QLineEdit),
        *(QtWidgets.QPlainTextEdit, QtWidgets.QTableWidget, QtWidgets.QProgressBar),
    )
    return [
        child
        for child in shown.panel.widget.findChildren(QtWidgets.QWidget)
        if isinstance(child, kinds) and child.name in vars(shown.ui)
    ]


def test_every_control_has_a_tooltip_whatever_is_shown(shown: ShownPanel, tmp_path: Path) -> None:
    def missing() -> list[str]:
        return [
            child.name
            for child in controls(shown)
            if not (child.toolTip or child.name[:3] == "qt_")
        ]

    shown.ui.showValuesButton.checked = True
    assert missing() == []
    fill(shown, tmp_path)
    shown.refresh()
    assert missing() == []


def test_buttons_that_cannot_be_pressed_say_why(shown: ShownPanel) -> None:
    from Qt import QtWidgets

    shown.ui.resultSection.collapsed = False
    shown.ui.showValuesButton.checked = True
    disabled = [
        child
        for child in controls(shown)
        if isinstance(child, QtWidgets.QPushButton) and child.isVisible() and not child.enabled
    ]
    assert len(disabled) > 6
    for button in disabled:
        assert len(button.toolTip) > 10, button.name


def test_headings_say_how_things_stand(shown: ShownPanel, tmp_path: Path) -> None:
    fill(shown, tmp_path)
    shown.refresh()
    assert "2 to train on, 1 with problems" in shown.ui.casesSection.toolTip
    assert "better clicks, balanced, a value is wrong" in shown.ui.learnSection.toolTip
    assert shown.ui.runSection.text == "3. Run: training, 25 %"
    assert "liver-mr, Dice 0.71" in shown.ui.resultSection.text


def test_what_is_shown_already_is_neither_hidden_nor_shown_again(
    shown: ShownPanel, tmp_path: Path
) -> None:
    from Qt import QtCore

    class Watch(QtCore.QObject):
        def eventFilter(self, target: Any, event: Any) -> bool:
            if event.type() in (event.Type.ShowToParent, event.Type.HideToParent):
                moved.append(target.name)
            return False

    moved: list[str] = []
    fill(shown, tmp_path)
    shown.refresh()
    watch = Watch()
    for widget in vars(shown.ui).values():
        widget.installEventFilter(watch)
    shown.refresh()
    assert moved == []


def test_what_is_missing_is_explained_before_anything_can_be_pressed(shown: ShownPanel) -> None:
    assert not shown.ui.setupFrame.isVisible()
    shown.logic.setup.isMissing, shown.logic.setup.sentence = True, "torch is not installed."
    shown.refresh()
    assert shown.ui.setupFrame.isVisible()
    assert "torch" in shown.ui.setupLabel.text
    assert shown.logic.background.drain(30)
    shown.logic.setup.isMissing = False
    shown.refresh()
    assert not shown.ui.setupFrame.isVisible()


def test_while_the_scene_changes_nothing_can_be_chosen(shown: ShownPanel) -> None:
    parameters, shown.logic.parameters = shown.logic.parameters, None
    shown.refresh()
    assert not shown.ui.learnFrame.enabled
    assert not shown.ui.addCasesButton.enabled
    shown.logic.parameters = parameters
    shown.refresh()
    assert shown.ui.learnFrame.enabled


def test_a_panel_that_is_closed_is_reported_nothing_more(shown: ShownPanel) -> None:
    shown.panel.close()
    assert shown.logic.listeners == []
    assert shown.logic.callsOf("close")
    assert shown.logic.status.listeners == []
