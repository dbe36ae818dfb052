"""Labels as labs have them: missing in some scans, made by a model, drawn in part."""

from __future__ import annotations

from pathlib import Path

from train_module import TrainModule, addFolder, chooseFolder, site
from train_scene import goodCase

CASE, REMARKS = range(2)
AMBER, GREY = "#c77700", "#888888"


def remarks(module: TrainModule) -> list[str]:
    table = module.ui.caseTable
    return [module.cell(table, row, REMARKS).text() for row in range(table.rowCount)]


def test_scans_without_labels_are_grey_and_stop_nothing(
    module: TrainModule, tmp_path: Path
) -> None:
    """F7: four labelled scans of twelve could not be trained on until eight rows were removed."""
    folder = site(tmp_path / "site", 3)
    for number in (2, 3):
        (folder / "labels" / f"case_{number:03}.nii.gz").unlink()
    addFolder(module, folder)
    assert remarks(module) == ["ready", "no labels: not used", "no labels: not used"]
    cell = module.cell(module.ui.caseTable, 1, CASE)
    assert cell.foreground().color().name() == GREY
    assert "Scans without labels, not used for training: 2." in module.ui.caseSummaryLabel.text
    assert module.logic.runs.whyNoStart == ""
    assert module.ui.startButton.enabled


def test_only_scans_without_labels_are_nothing_to_train_on(
    module: TrainModule, tmp_path: Path
) -> None:
    folder = site(tmp_path / "site", 2)
    for label in (folder / "labels").iterdir():
        label.unlink()
    addFolder(module, folder)
    assert "No scan has labels" in module.logic.runs.whyNoStart


BY_HIPPO = "made by hippo, not reviewed"


def predicted(module: TrainModule, folder: Path, count: int = 2) -> None:
    """A folder of three cases, of which a model labelled the last ones."""
    site(folder, 3)
    chooseFolder(module, folder)
    call = module.programs.last
    for number in (1, 2, 3):
        doubts = [BY_HIPPO] if number > 3 - count else []
        name = f"case_{number:03}"
        record = {**goodCase(name), "doubts": doubts, "folder": str(folder), "in_folder": name}
        call.emit({**record, "unreviewed": BY_HIPPO if doubts else ""})
    call.emit({"summary": {"classes": [{"name": "liver", "value": 1}]}})
    call.end()
    module.settle()


def tick(module: TrainModule, row: int, isOn: bool = True) -> None:
    from Qt import QtCore

    state = QtCore.Qt.Checked if isOn else QtCore.Qt.Unchecked
    module.cell(module.ui.caseTable, row, CASE).setCheckState(state)
    module.process()


def test_a_models_own_labels_are_amber_and_not_used_until_they_are_ticked(
    module: TrainModule, tmp_path: Path
) -> None:
    """F5: "12 of 12 good", of what a model had just written."""
    from Qt import QtCore

    folder = tmp_path / "site"
    predicted(module, folder)
    said = f"Not used: {BY_HIPPO}. Tick to use it."
    assert remarks(module) == ["ready", said, said]
    cell = module.cell(module.ui.caseTable, 1, CASE)
    assert cell.foreground().color().name() == AMBER
    assert cell.checkState() == QtCore.Qt.Unchecked
    assert "Cases: 1; patients: 1; usable: 1." in module.ui.caseSummaryLabel.text
    assert "Labels that nobody reviewed, not used: 2." in module.ui.caseSummaryLabel.text
    assert module.logic.runs.whyNoStart == ""
    assert "use_unreviewed" not in module.logic.cases.config()["folders"][0]
    tick(module, 1)
    assert remarks(module) == ["ready", BY_HIPPO, said]
    assert module.logic.cases.config()["folders"][0]["use_unreviewed"] == ["case_002"]
    tick(module, 1, False)
    assert remarks(module) == ["ready", said, said]
    assert module.logic.cases.config()["folders"] == [{"folder": str(folder)}]


def test_all_unreviewed_labels_are_confirmed_by_one_press(
    module: TrainModule, tmp_path: Path
) -> None:
    predicted(module, tmp_path / "site", 3)
    assert "Nobody reviewed the labels" in module.logic.runs.whyNoStart
    assert module.ui.confirmCasesButton.text == "Use labels that nobody reviewed (3)"
    module.press(module.ui.confirmCasesButton)
    assert module.logic.runs.whyNoStart == ""
    assert not module.ui.confirmCasesButton.isVisible()
    names = module.logic.cases.config()["folders"][0]["use_unreviewed"]
    assert names == ["case_001", "case_002", "case_003"]
