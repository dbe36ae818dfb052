"""The loop of a campaign through the panels: from a folder of scans to a folder of labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from campaign_module import CampaignModules, makeLab, makeScan
from pumit.io.labels.label_file import read_label_file


def test_the_whole_loop_on_eight_of_sixteen_scans(modules: CampaignModules, tmp_path: Path) -> None:
    import slicer

    ui, segment = modules.ui, modules.segment
    modules.create(makeLab(tmp_path / "lab", 16))
    assert ui.campaignTitleLabel.text == "16 scans: 16 open"
    # Four from nothing: two movements a scan, and its clicks.
    assert modules.pressAction() == "Open the next scan"
    assert slicer.util.selectedModule() == "PUMITSegment"
    row = segment.panel.reviewRow
    for number in range(4):
        assert row.frame.visible
        modules.draw()
        segment.press(row.acceptButton)
        modules.look()
        assert modules.campaign.is_training_due is False
        accepted = [s for s in modules.campaign.scans() if s.stored_state == "accepted"]
        assert len(accepted) == number + 1
        assert {s.clicks for s in accepted} == {2}
    # It trains by itself, and predicts the others.
    assert [words[1] for words in modules.training.launched] == ["train"]
    campaign = modules.campaign
    assert len(campaign.rounds) == 1
    predicted = [s for s in campaign.scans() if s.stored_state == "predicted"]
    assert len(predicted) >= 8
    # The scan that was open until then is finished; the next one comes with its prediction.
    modules.draw()
    segment.press(row.acceptButton)
    modules.look()
    while "predicted" not in row.label.text:  # validation patients are drawn from nothing
        modules.draw()
        modules.decide(segment.logic.reviewing.reviewer.accept)
    name = modules.checked.given.name
    assert name in row.label.text
    _volume, labels = makeScan(int(name[-2:]))
    masks = dict(segment.logic.reviewing.masks())
    assert np.array_equal(masks["outer"].whole(), labels == 1)
    before = sum(s.stored_state == "accepted" for s in modules.campaign.scans())
    modules.key("A")
    scan = modules.campaign.scan(name)
    assert (scan.stored_state, scan.clicks, scan.agreement) == ("accepted", 0, 1.0)
    assert sum(s.stored_state == "accepted" for s in modules.campaign.scans()) == before + 1
    file = read_label_file(modules.campaign.home(scan) / "label.seg.nrrd")
    assert {s.name for s in file.segments} == {"outer", "inner"}
    # Undo: it is open again, as it was.
    following = modules.checked.given.name
    assert row.undoButton.toolTip == f"Undo the decision on {name}, and open it again"
    segment.press(row.undoButton)
    modules.look()
    assert modules.checked.given.name == name
    assert modules.campaign.scan(name).stored_state == "predicted"
    assert not modules.campaign.scan(following).checked_by
    modules.key("J")
    assert modules.campaign.scan(name).stored_state == "later"
    second = modules.checked.given.name
    segment.press(row.leaveOutButton)
    modules.look()
    assert modules.campaign.scan(second).stored_state == "left_out"
    # Undo reverts every decision, the last one first.
    for taken in (second, name):
        assert row.undoButton.toolTip == f"Undo the decision on {taken}, and open it again"
        segment.press(row.undoButton)
        modules.look()
        assert modules.checked.given.name == taken
        assert modules.campaign.scan(taken).stored_state in ("open", "predicted")
    modules.key("J")
    assert modules.campaign.scan(name).stored_state == "later"
    # The scene holds no more than the scan that is open.
    assert slicer.mrmlScene.GetNumberOfNodesByClass("vtkMRMLScalarVolumeNode") == 1
    assert slicer.mrmlScene.GetNumberOfNodesByClass("vtkMRMLSegmentationNode") == 1
    # Slicer is opened again: everything is there.
    segment.press(row.backButton)
    assert slicer.util.selectedModule() == "PUMITTrain"
    states = {s.name: s.stored_state for s in modules.campaign.scans()}
    modules.reopen()
    modules.look()
    assert modules.logic.campaign.view.name == "campaign"
    assert {s.name: s.stored_state for s in modules.logic.campaign.view.scans} == states
    assert modules.row(name)[1].startswith("later")
    assert modules.ui.campaignChartLabel.visible
