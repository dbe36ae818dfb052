"""Scene, folders and files add up, and what is changed of one of them is its own."""

from typing import Any

from train_module import (
    TrainModule,
    addFolder,
    addToTable,
    answerFound,
    chooseFolder,
    site,
)

CASE, REMARKS = range(2)
SOURCE, COUNT, REMOVE = range(3)


def column(module: TrainModule, table: Any, number: int) -> list[str]:
    return [module.cell(table, row, number).text() for row in range(table.rowCount)]


def untick(module: TrainModule, row: int) -> None:
    from Qt import QtCore

    module.cell(module.ui.caseTable, row, CASE).setCheckState(QtCore.Qt.Unchecked)
    module.process()


def test_what_is_said_of_a_case_of_one_folder_holds_for_no_other(module, tmp_path):
    first, second = site(tmp_path / "first"), site(tmp_path / "second")
    addFolder(module, first)
    untick(module, 0)
    table = module.ui.caseTable
    module.ui.sourcePathEdit.currentPath = str(second)
    module.press(module.ui.addCasesButton)
    assert module.logic.cases.isChecking
    assert table.rowCount == 2  # the cases of before stay meanwhile
    answerFound(module)
    assert column(module, table, CASE) == [
        *("case_001", "folder1-case_002", "folder2-case_001", "folder2-case_002"),
    ]
    assert column(module, table, REMARKS) == ["left out", "ready", "ready", "ready"]
    assert module.logic.cases.config()["folders"] == [
        {"folder": str(first), "leave_out": ["case_001"]},
        {"folder": str(second)},
    ]
    module.edit(table, 2, 3, " P7 ")
    assert module.logic.cases.config()["folders"] == [
        {"folder": str(first), "leave_out": ["case_001"]},
        {"folder": str(second), "patients": {"case_001": "P7"}},
    ]
    module.reopen()
    # The case that was left out is known; the others are in the folders.
    assert column(module, module.ui.sourceTable, COUNT) == ["1", "?"]
    module.press(module.ui.checkCasesButton)
    answerFound(module)
    assert column(module, module.ui.caseTable, REMARKS) == ["left out", "ready", "ready", "ready"]


def test_folders_that_are_not_read_yet_are_not_called_empty(module, tmp_path):
    addFolder(module, site(tmp_path / "first"))
    module.reopen()
    assert column(module, module.ui.sourceTable, COUNT) == ["?"]
    assert module.ui.casesSection.text == "1. Cases: not read yet"
    module.press(module.ui.checkCasesButton)
    answerFound(module)
    assert column(module, module.ui.sourceTable, COUNT) == ["2"]


def test_a_folder_without_cases_is_a_problem_and_not_done(module, tmp_path):
    (tmp_path / "wrong").mkdir()
    chooseFolder(module, tmp_path / "wrong")
    module.answerRead(classes=[], problems=["No files in 'wrong'."], doubts=[])
    assert module.logic.status.current.activity.name == "PROBLEM"
    assert module.status == "The cases were read; section 1 names what cannot be used."
    assert column(module, module.ui.sourceTable, COUNT) == ["0"]
    for label in (module.ui.runSentenceLabel, module.ui.caseSummaryLabel):
        assert "wrong" in label.text
    assert not module.ui.startButton.enabled


def test_a_case_that_is_removed_is_gone_until_its_folder_is_added_again(module, tmp_path):
    ui, folder = module.ui, site(tmp_path / "site", 3)
    addFolder(module, folder)
    module.press(ui.removeCasesButton)
    assert "Select" in ui.statusLabel.text
    ui.caseTable.selectRow(1)
    module.press(ui.removeCasesButton)
    assert column(module, ui.caseTable, CASE) == ["case_001", "case_003"]
    module.press(ui.checkCasesButton)
    answerFound(module)
    assert column(module, ui.caseTable, CASE) == ["case_001", "case_003"]
    assert ui.casesSection.text == "1. Cases: 2 to train on"
    module.reopen()
    ui = module.ui
    module.press(ui.checkCasesButton)
    answerFound(module)
    assert column(module, ui.caseTable, CASE) == ["case_001", "case_003"]
    addFolder(module, folder)
    assert column(module, ui.caseTable, CASE) == ["case_001", "case_002", "case_003"]


def test_sources_add_up_and_each_is_removed_alone(module, tmp_path):
    ui = module.ui
    addToTable(module)
    addFolder(module, site(tmp_path / "site"))
    module.choose(ui.sourceSelector, "files")
    for name in ("x.nii.gz", "x-label.nii.gz"):
        (tmp_path / name).touch()
    ui.sourcePathEdit.currentPath = str(tmp_path / "x.nii.gz")
    ui.labelPathEdit.currentPath = str(tmp_path / "x-label.nii.gz")
    module.press(ui.addCasesButton)
    answerFound(module)
    everything = ["scan0", "scan1", "x", "folder1-case_001", "folder1-case_002"]
    assert column(module, ui.caseTable, CASE) == everything
    assert column(module, ui.sourceTable, SOURCE) == ["The open scene", "Files", "site"]
    assert column(module, ui.sourceTable, COUNT) == ["2", "1", "2"]
    module.press(ui.sourceTable.cellWidget(2, REMOVE))
    assert column(module, ui.caseTable, CASE) == everything[:3]
    module.press(ui.sourceTable.cellWidget(0, REMOVE))
    assert column(module, ui.caseTable, CASE) == ["x"]
    assert column(module, ui.sourceTable, SOURCE) == ["Files"]
    module.press(ui.sourceTable.cellWidget(0, REMOVE))
    assert ui.caseTable.rowCount == 0
    assert not ui.sourceTable.isVisible()
    assert not ui.startButton.enabled
