"""What the panel says is so: of classes, folders, runs, and before anything is done."""

import json
from typing import Any

from pumit.export.classes import class_terminology
from pumit.training.data.classes import classes_from
from PUMITSlicerLib.terms import Term, TermSearch
from train_module import TrainModule, addFolder, addToTable, chooseFolder, site, start, writeRun
from train_scene import goodCase

LABELLED = 2
COLOR, NAME, VALUES, SEGMENTS, CODE, IN_CASES = range(6)


def readTwoClasses(module: TrainModule) -> None:
    """Cases of the scene whose segments are called liver and spleen."""
    for number in range(2):
        module.addSegmentation(module.addVolume(f"scan{number}", seed=number), f"label{number}")
    module.process()
    module.press(module.ui.addCasesButton)
    sizes = {"liver": 48, "spleen": 12}
    records = [{**goodCase(name), "classes": sizes} for name in ("scan0", "scan1")]
    classes = [{"name": name, "value": value} for value, name in enumerate(sizes, 1)]
    module.answerRead(*records, classes=classes)


# --- classes --------------------------------------------------------------------------------------


def test_a_renamed_class_is_still_found_in_its_cases(module):
    readTwoClasses(module)
    table = module.ui.classTable
    assert module.cell(table, 0, IN_CASES).text() == "2 of 2"
    before = module.cell(table, 0, IN_CASES).foreground().color().name()
    module.edit(table, 0, NAME, "Leber")
    assert module.cell(table, 0, IN_CASES).text() == "2 of 2"
    assert module.cell(table, 0, IN_CASES).foreground().color().name() == before
    labelled = module.cell(module.ui.caseTable, 0, LABELLED).text()
    assert labelled == "Leber: 48; spleen: 12"
    # Its segments are called liver still, and have to be found in training, too.
    assert module.cell(table, 0, SEGMENTS).text() == "liver"
    assert module.logic.cases.config()["classes"][0] == {
        "name": "Leber",
        "value": 1,
        "segments": ["liver"],
    }
    module.edit(table, 0, NAME, "liver")
    assert module.cell(table, 0, SEGMENTS).text() == ""


def test_a_class_of_several_values_is_found_in_the_cases_of_each(module):
    readTwoClasses(module)
    module.press(module.ui.addClassButton)
    module.edit(module.ui.classTable, 2, VALUES, "1, 2")
    assert module.cell(module.ui.classTable, 2, IN_CASES).text() == "2 of 2"


def shownColor(module: TrainModule, row: int) -> tuple[int, int, int]:
    color = module.ui.classTable.cellWidget(row, COLOR).color
    return color.red(), color.green(), color.blue()


def test_a_term_without_a_recommended_colour_leaves_the_class_its_own(module, monkeypatch):
    readTwoClasses(module)
    before = shownColor(module, 1)
    grey = (127 / 255, 127 / 255, 127 / 255)
    entry = "~SCT^123037004^Anatomical Structure~SCT^1^Thing~^^~~^^~^^"
    found = [Term("Thing", entry, grey)]
    monkeypatch.setattr(TermSearch, "search", lambda _self, _text, limit=30: found)
    monkeypatch.setattr(TermSearch, "isSure", lambda _self, _text: True)
    module.ui.classTable.selectRow(1)
    module.type(module.ui.classTermEdit, "Thing")
    assert shownColor(module, 1) not in ((127, 127, 127), (128, 128, 128))
    assert "color_rgb" not in module.logic.cases.config()["classes"][1]
    assert before not in ((127, 127, 127), (128, 128, 128))


def test_table_and_pictures_have_the_same_colours(module):
    addToTable(module, 1)
    for name in ("thing", "other thing"):
        module.press(module.ui.addClassButton)
        row = module.ui.classTable.rowCount - 1
        module.edit(module.ui.classTable, row, NAME, name)
        module.edit(module.ui.classTable, row, VALUES, str(row + 1))
    classes = classes_from(module.logic.cases.config()["classes"])
    pictured = class_terminology([c.label for c in classes])
    assert module.cell(module.ui.classTable, 1, SEGMENTS).text() == ""  # no case says "new class"
    expected = [tuple(round(255 * part) for part in meaning.color_rgb) for meaning in pictured]
    assert [shownColor(module, row) for row in range(3)] == expected


def test_the_legend_has_the_colours_of_the_run_that_is_shown(module):
    """The classes in the table may be others by now, or none."""
    folder = module.root / "earlier"
    folder.mkdir(parents=True)
    records: list[dict[str, Any]] = [
        {"data": {"cases": 2, "classes": {"thing": 1}, "colors": {"thing": [0.25, 0.5, 0.75]}}},
        *({"step": n, "validation": {"score": 0.5, "dice_thing": 0.5}} for n in (1, 2)),
    ]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "log.jsonl").write_text(lines, encoding="utf-8")
    writeRun(module, folder)
    module.show(folder)
    assert module.panel.runSection._colors()["thing"] == (0.25, 0.5, 0.75)


# --- folders --------------------------------------------------------------------------------------


def test_a_folder_that_does_not_exist_is_not_ready(module, tmp_path):
    ui = module.ui
    chooseFolder(module, tmp_path / "nowhere")
    assert "nowhere" in ui.statusLabel.text
    assert not ui.startButton.enabled
    assert ui.runSentenceLabel.text == "Add cases first."
    assert ui.sourceTable.rowCount == 0


def test_a_reading_that_was_stopped_is_not_ready(module, tmp_path):
    chooseFolder(module, site(tmp_path / "site"))
    module.press(module.ui.checkCasesButton)
    assert not module.ui.startButton.enabled
    assert "not read" in module.ui.runSentenceLabel.text


def test_an_error_of_an_earlier_folder_does_not_appear_over_another(module, tmp_path):
    ui = module.ui
    chooseFolder(module, site(tmp_path / "slow"))
    earlier = module.programs.last
    addFolder(module, site(tmp_path / "second"))
    said = ui.statusLabel.text
    earlier.end(2, "The data set holds no case; check the folder and its patterns.")
    module.settle()
    assert ui.statusLabel.text == said
    assert earlier.isCancelled
    assert ui.caseTable.rowCount == 4


# --- runs -----------------------------------------------------------------------------------------


def test_while_a_run_pauses_nobody_says_that_it_runs(module):
    addToTable(module)
    folder = start(module)
    assert module.ui.statusLabel.text.startswith("Training;")
    writeRun(module, folder, "paused", sentence="Paused; resume it to go on.")
    assert module.ui.statusLabel.text.startswith("mine: Paused")
    writeRun(module, folder, step=11)
    assert module.ui.statusLabel.text.startswith("Training;")


def test_the_panel_says_on_opening_what_to_do(module):
    assert "press Add" in module.ui.statusLabel.text
    addToTable(module)
    module.reopen()
    assert "press Start" in module.ui.statusLabel.text
    folder = start(module)
    module.reopen()
    assert module.ui.statusLabel.text == "mine: Step 10 of 40."
    writeRun(module, folder, "finished", step=40)
    module.reopen()
    assert module.ui.statusLabel.text
