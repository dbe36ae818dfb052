"""Labels as labs have them: missing in some scans, made by a model, drawn in part."""

from __future__ import annotations

from pathlib import Path

from train_module import TrainModule, addFolder, site

CASE, REMARKS = range(2)
GREY = "#888888"


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
