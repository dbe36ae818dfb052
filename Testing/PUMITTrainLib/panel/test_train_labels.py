"""Labels as labs have them: missing in some scans, made by a model, drawn in part."""

from pathlib import Path

from train_module import TrainModule, addFolder, chooseFolder, site
from train_scene import goodCase

CASE, REMARKS, LABELLED = range(3)
NAME = 1  # of the classes
AMBER, GREY = "#c77700", "#888888"


def remarks(module: TrainModule) -> list[str]:
    table = module.ui.caseTable
    return [module.cell(table, row, REMARKS).text() for row in range(table.rowCount)]


def test_scans_without_labels_are_grey_and_stop_nothing(module, tmp_path):
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
    # Where none is labelled there is nothing to train on.
    (folder / "labels" / "case_001.nii.gz").unlink()
    addFolder(module, folder)
    assert "No scan has labels" in module.logic.runs.whyNoStart


BY_HIPPO = "made by hippo, not reviewed"


def predicted(module: TrainModule, folder: Path, count: int = 2) -> None:
    """A folder of three cases, of which a model labelled the last ones."""
    site(folder, 3)
    chooseFolder(module, folder)
    records = []
    for number in (1, 2, 3):
        doubts = [BY_HIPPO] if number > 3 - count else []
        name = f"case_{number:03}"
        record = {**goodCase(name), "doubts": doubts, "folder": str(folder), "in_folder": name}
        records.append({**record, "unreviewed": BY_HIPPO if doubts else ""})
    module.answerRead(*records, classes=[{"name": "liver", "value": 1}])


def tick(module: TrainModule, row: int, isOn: bool = True) -> None:
    from Qt import QtCore

    state = QtCore.Qt.Checked if isOn else QtCore.Qt.Unchecked
    module.cell(module.ui.caseTable, row, CASE).setCheckState(state)
    module.process()


def test_a_models_own_labels_are_amber_and_not_used_until_they_are_ticked(module, tmp_path):
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
    assert "Unreviewed labels, not used: 2." in module.ui.caseSummaryLabel.text
    assert module.logic.runs.whyNoStart == ""
    assert "use_unreviewed" not in module.logic.cases.config()["folders"][0]
    tick(module, 1)
    assert remarks(module) == ["ready", BY_HIPPO, said]
    assert module.logic.cases.config()["folders"][0]["use_unreviewed"] == ["case_002"]
    tick(module, 1, False)
    assert remarks(module) == ["ready", said, said]
    assert module.logic.cases.config()["folders"] == [{"folder": str(folder)}]


def test_all_unreviewed_labels_are_confirmed_by_one_press(module, tmp_path):
    predicted(module, tmp_path / "site", 3)
    assert "All labels are unreviewed" in module.logic.runs.whyNoStart
    assert module.ui.confirmCasesButton.text == "Use unreviewed labels (3)"
    module.press(module.ui.confirmCasesButton)
    assert module.logic.runs.whyNoStart == ""
    assert not module.ui.confirmCasesButton.isVisible()
    names = module.logic.cases.config()["folders"][0]["use_unreviewed"]
    assert names == ["case_001", "case_002", "case_003"]


# --- labels that were drawn in part ---------------------------------------------------------------


def readTwo(
    module: TrainModule, folder: Path, *, names: list[str], pairs: list[list[str]] | None = None
) -> None:
    """Read a folder of two cases with some classes."""
    if not folder.exists():
        site(folder, 2)
    chooseFolder(module, folder)
    answerTwo(module, folder, names=names, pairs=pairs)


def answerTwo(
    module: TrainModule, folder: Path, *, names: list[str], pairs: list[list[str]] | None = None
) -> None:
    records = []
    for number in (1, 2):
        name = f"case_{number:03}"
        record = {**goodCase(name), "folder": str(folder), "in_folder": name}
        part = "12 % known, spleen not drawn" if number == 2 else ""
        records.append({**record, "classes": dict.fromkeys(names, 9), "part": part})
    classes = [{"name": name, "value": n} for n, name in enumerate(names, start=1)]
    module.answerRead(*records, classes=classes, may_be_same=pairs or [])


def test_how_much_of_a_case_is_known_is_said_and_not_amber(module, tmp_path):
    readTwo(module, tmp_path / "site", names=["liver", "spleen"])
    assert remarks(module) == ["ready", "ready"]
    table = module.ui.caseTable
    shown = module.cell(table, 1, LABELLED).text()
    assert shown == "liver: 9; spleen: 9; 12 % known, spleen not drawn"
    table.selectRow(1)
    module.process()
    assert "Labelled in part: 12 % known" in module.ui.caseDetailLabel.text


def test_the_table_says_which_classes_were_drawn(module, tmp_path):
    folder = tmp_path / "site"
    readTwo(module, folder, names=["liver", "spleen"])
    assert not module.ui.drawnFrame.isVisible()

    def say(row: int, text: str) -> dict[str, object]:
        module.ui.caseTable.selectRow(row)
        module.process()
        assert module.ui.drawnFrame.isVisible()
        module.ui.drawnEdit.text = text
        module.ui.drawnEdit.editingFinished.emit()
        module.process()
        return module.logic.cases.config()["folders"][0].get("drawn", {})

    say(0, "Liver")
    assert say(1, "all") == {"case_001": ["Liver"], "case_002": "all"}
    assert say(0, "livr")["case_001"] == ["Liver"]
    assert "No class is called livr; known: liver, spleen." in module.status
    assert module.ui.drawnEdit.text == "Liver"
    say(0, "spleen")
    module.edit(module.ui.classTable, 1, NAME, "Milz")
    assert module.logic.cases.config()["folders"][0]["drawn"]["case_001"] == ["Milz"]
    assert say(0, "") == {"case_002": "all"}


# --- names of classes -----------------------------------------------------------------------------


def classNames(module: TrainModule) -> list[str]:
    return [row.name for row in module.logic.cases.classes]


def test_renamed_classes_stay_renamed_when_a_folder_is_added_again(module, tmp_path):
    """F6: in the second round one structure was two classes."""
    folder = tmp_path / "site"
    readTwo(module, folder, names=["class 1", "class 2"])
    module.edit(module.ui.classTable, 0, NAME, "anterior")
    module.edit(module.ui.classTable, 1, NAME, "posterior")
    module.logic.cases.clear()
    module.settle()
    assert classNames(module) == []
    names = ["class 1", "class 2", "anterior", "posterior"]
    readTwo(module, folder, names=names)
    assert classNames(module) == ["anterior", "posterior"]
    rows = module.logic.cases.config()["classes"]
    assert [(row["name"], row["value"]) for row in rows] == [("anterior", 1), ("posterior", 2)]
    module.press(module.ui.resetClassesButton)
    assert classNames(module) == names
    module.logic.cases.clear()
    readTwo(module, folder, names=names)
    assert classNames(module) == names  # nothing is remembered that was taken back


def test_other_names_are_asked_about_once_and_the_answer_is_remembered(module, tmp_path):
    folder, ui = tmp_path / "site", module.ui
    names = ["class 1", "class 2", "anterior", "hinten"]
    pairs = [["anterior", "class 1"], ["hinten", "class 2"]]
    assert not ui.sameClassFrame.isVisible()
    readTwo(module, folder, names=names, pairs=pairs)
    ui.casesSection.collapsed = False
    module.process()
    assert "Labels anterior and" in ui.sameClassLabel.text
    module.press(ui.sameClassButton)
    assert classNames(module) == ["anterior", "class 2", "hinten"]
    assert module.logic.cases.classes[0].values == (1,)
    assert "Labels hinten and" in ui.sameClassLabel.text
    module.press(ui.otherClassButton)
    assert not ui.sameClassFrame.isVisible()
    assert classNames(module) == ["anterior", "class 2", "hinten"]
    module.logic.cases.clear()
    readTwo(module, folder, names=names, pairs=pairs)
    assert classNames(module) == ["anterior", "class 2", "hinten"]
    assert module.logic.cases.classQuestion is None


def test_a_name_that_no_class_has_becomes_one_of_its_other_names(module, tmp_path):
    folder = tmp_path / "site"
    readTwo(module, folder, names=["liver", "spleen"])
    module.edit(module.ui.classTable, 0, NAME, "Leber")
    module.press(module.ui.checkCasesButton)
    answerTwo(module, folder, names=["Leber", "spleen"], pairs=[["hepar", "Leber"]])
    module.press(module.ui.sameClassButton)
    assert module.logic.cases.config()["classes"][0]["segments"] == ["liver", "hepar"]
    assert module.logic.cases.classQuestion is None
