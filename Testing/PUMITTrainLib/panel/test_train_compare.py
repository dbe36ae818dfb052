"""Two segmentations of the scene are compared, and the views go to where they differ."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import slicer
from pumit.cli.main import main
from pumit.evaluation.segmentation_metrics import compared_metrics
from train_module import TrainModule

CLASS, DICE, NSD, HD95, VOLUME = range(5)
SHAPE = (12, 30, 32)


def masks(shift: int = 0) -> dict[str, np.ndarray]:
    """A liver and a kidney, the kidney shifted; and a lump that only one of the two has."""
    liver, kidney = (np.zeros(SHAPE, np.uint8) for _ in range(2))
    liver[2:10, 4:16, 4:16] = 1
    kidney[3:8, 18 + shift : 26 + shift, 6:14] = 1
    if shift:
        liver[4:9, 4:10, 22:28] = 1
    return {"liver": liver, "kidney": kidney}


def addTwo(module: TrainModule) -> tuple[Any, Any]:
    volume = module.addVolume("scan", shape=SHAPE)
    volume.SetSpacing(1.0, 1.5, 3.0)
    reference = module.addSegmentation(volume, "by hand", **masks())
    compared = module.addSegmentation(volume, "by model", **masks(2))
    module.process()
    ui = module.ui
    ui.referenceSelector.setCurrentNode(reference)
    ui.comparedSelector.setCurrentNode(compared)
    module.process()
    return reference, compared


def compare(module: TrainModule, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Press Compare, and let `pumit evaluate` itself answer; returns what it printed."""
    module.press(module.ui.compareButton)
    call = module.programs.last
    assert call.arguments[0] == "evaluate"
    capsys.readouterr()
    status = main(call.arguments)
    printed = capsys.readouterr()
    for line in printed.out.splitlines():
        call.onLine(line)
    lines = printed.err.strip().splitlines()
    call.end(status, lines[-1] if lines else "")
    module.settle()
    return [json.loads(line) for line in printed.out.splitlines()]


def column(module: TrainModule, name: str, number: int) -> list[str]:
    table = getattr(module.ui, name)
    return [module.cell(table, row, number).text() for row in range(table.rowCount)]


def test_the_panel_shows_the_figures_of_the_metrics(module, capsys):
    addTwo(module)
    module.ui.compareSection.collapsed = False
    module.ui.toleranceSpinBox.value = 1.0
    compare(module, capsys)
    assert column(module, "agreementTable", CLASS) == ["kidney", "liver"]
    truth, prediction = masks(), masks(2)
    for row, name in enumerate(("kidney", "liver")):
        expected = compared_metrics(
            prediction[name] > 0, truth[name] > 0, (3.0, 1.5, 1.0), tolerance_mm=1.0
        )
        shown = [column(module, "agreementTable", number)[row] for number in (DICE, NSD, HD95)]
        assert shown == [f"{expected.dice:.3f}", f"{expected.nsd:.3f}", f"{expected.hd95_mm:.1f}"]
    assert column(module, "agreementTable", VOLUME) == ["+0 mL", "+0.81 mL"]
    assert module.ui.compareSection.text.startswith("Compare two segmentations: by model against")


def test_the_same_two_files_give_the_same_figures_on_the_command_line(module, tmp_path, capsys):
    reference, compared = addTwo(module)
    printed = compare(module, capsys)
    files = {}
    for node, option in ((compared, "--predictions"), (reference, "--labels")):
        files[option] = tmp_path / f"{node.GetName()}.seg.nrrd"
        assert slicer.util.saveNode(node, str(files[option]))
    options = [str(part) for pair in files.items() for part in pair]
    assert main(["evaluate", *options, "--nsd", "2", "--places", "6", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for row in (*rows[:-1], *printed[:-1]):
        row.pop("case")
        row.pop("mae")  # a share of the grid, which Slicer's files cut to the segments
    assert rows[:-1] == printed[:-1]
    assert rows[-1]["mean"] == printed[-1]["mean"]
    found = module.logic.comparison
    assert [each.dice for each in found.classes] == [row["dice"] for row in rows[:-1]]


def test_a_press_on_a_difference_moves_the_views_there(module, capsys):
    addTwo(module)
    red = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSliceNode", "Red")
    compare(module, capsys)
    assert column(module, "differenceTable", 0)[0] == "liver: too much"
    place = module.logic.comparison.places[0]
    # The middle of the lump: indices (6, 7, 25) at 3, 1.5 and 1 mm; arrays are added in RAS.
    assert place.ras == pytest.approx((25.0, 10.5, 18.0), abs=3.1)
    module.ui.differenceTable.cellClicked.emit(0, 0)
    module.process()
    assert red.GetSliceOffset() == pytest.approx(place.ras[2], abs=0.1)


def test_a_label_map_is_the_reference_of_segments_in_their_order(module, capsys):
    _reference, compared = addTwo(module)
    image = compared.GetSegmentation().GetNthSegment(0).GetRepresentation("Binary labelmap")
    assert image.GetScalarRange()[1] == 1  # each segment is 1 in a separate layer
    truth = masks()
    labels = truth["liver"] + 2 * truth["kidney"]
    node = slicer.util.addVolumeFromArray(labels, nodeClassName="vtkMRMLLabelMapVolumeNode")
    node.SetSpacing(1.0, 1.5, 3.0)
    module.ui.referenceSelector.setCurrentNode(node)
    module.process()
    compare(module, capsys)
    assert column(module, "agreementTable", CLASS) == ["liver", "kidney"]
    dice = {
        name: compared_metrics(
            masks(2)[name] > 0, truth[name] > 0, (3.0, 1.5, 1.0), tolerance_mm=2.0
        ).dice
        for name in truth
    }
    shown = [f"{dice[name]:.3f}" for name in ("liver", "kidney")]
    assert column(module, "agreementTable", DICE) == shown


def test_segments_with_other_names_are_said(module, capsys):
    reference, _compared = addTwo(module)
    for index in range(2):
        reference.GetSegmentation().GetNthSegment(index).SetName(f"Segment_{index + 1}")
    compare(module, capsys)
    assert module.status == (
        "No class has voxels in both: give segments that belong together the same name."
    )
    for index in range(2):
        reference.GetSegmentation().GetNthSegment(index).SetName("same")
    compare(module, capsys)
    # The prefix is the command's own; `CorePrograms` removes it.
    assert module.status == (
        "pumit evaluate: Several segments have the name 'same' and cannot be distinguished; give "
        "each its own."
    )


def test_what_cannot_be_compared_is_said(module, capsys):
    ui = module.ui
    assert not ui.compareButton.enabled
    reference, compared = addTwo(module)
    module.logic.comparison.start(reference, reference, 2.0)
    assert "Choose two different segmentations" in module.status
    for node in (reference, compared):
        node.SetNodeReferenceID(node.GetReferenceImageGeometryReferenceRole(), None)
    module.press(ui.compareButton)
    assert "on which scan it was drawn" in module.status
    assert not module.programs.calls


def test_a_refused_comparison_shows_no_figures_of_the_one_before(module, capsys):
    _reference, compared = addTwo(module)
    compare(module, capsys)
    assert column(module, "agreementTable", CLASS) == ["kidney", "liver"]
    compared.GetSegmentation().RemoveAllSegments()
    module.press(module.ui.compareButton)
    assert "by model has no segment" in module.status
    assert column(module, "agreementTable", CLASS) == []
    assert "against" not in module.ui.compareSection.text


def test_a_comparison_that_is_cancelled_leaves_no_file(module):
    addTwo(module)
    module.press(module.ui.compareButton)
    folder = Path(module.programs.last.arguments[2]).parent
    assert folder.is_dir()
    assert module.ui.compareButton.text == "Cancel"
    module.press(module.ui.compareButton)
    assert module.programs.last.isCancelled
    assert not folder.exists()
    assert module.ui.compareButton.text == "Compare"
