"""The loop of a campaign through the panels: from a folder of scans to a folder of labels."""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from campaign_module import CLASSES, CampaignModules, makeLab, makeScan, predict, train
from planned_runs import StandInTrial
from pumit.campaign import Campaign
from pumit.campaign.training import train_round
from pumit.io.labels.label_file import read_label_file
from pumit.runs import RunStatus, write_status
from pumit.training.planning.request import TrialProcess
from PUMITSegmentLib.segments.rating import ratingOf


def test_the_whole_loop_on_eight_of_sixteen_scans(modules, tmp_path):
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


def check(frame: Any, file: Path) -> None:
    from harness.widgets.layout_faults import WIDTH, inModulePanel, layoutFaults

    inModulePanel(frame)
    frame.grab().save(str(file))
    assert layoutFaults(frame) == []
    assert frame.minimumSizeHint.width() <= WIDTH


def onlyCampaign(modules: CampaignModules) -> None:
    for name in ("casesSection", "learnSection", "runSection", "resultSection"):
        getattr(modules.ui, name).collapsed = True


def test_a_new_campaign_fits(modules, screenshots):
    onlyCampaign(modules)
    check(modules.frame, screenshots / "campaign_none.png")
    modules.press(modules.ui.campaignNewButton)
    for index, name in enumerate(("folder", "scene", "database")):
        modules.ui.campaignSourceSelector.currentIndex = index
        check(modules.frame, screenshots / f"campaign_new_{name}.png")


def test_a_campaign_fits(modules, tmp_path, screenshots):
    onlyCampaign(modules)
    modules.create(makeLab(tmp_path / "lab", 14, labelled=(0, 1, 2, 3)))
    for _ in range(15):
        modules.look()  # pictures are drawn one after the other
    check(modules.frame, screenshots / "campaign_created.png")
    campaign = modules.campaign
    campaign.change_settings(order="list")
    train(campaign)
    predict(campaign)
    for scan, clicks in zip(campaign.scans()[4:7], (9, 4, 2), strict=True):
        label = campaign.home(scan) / "prediction.seg.nrrd"
        label = label if label.exists() else None
        campaign.accept(scan, label, "Dr. Grace Hopper-Feynman", clicks=clicks, seconds=80)
    train(campaign)
    modules.look()
    assert modules.ui.campaignChartLabel.visible
    assert modules.ui.campaignChartSentence.text.startswith("The last round brought")
    campaign.lock(campaign.scans()[9], "Ada")
    campaign.leave_out(campaign.scans()[10])
    folder = campaign.folder / "rounds" / "003"
    folder.mkdir(parents=True)
    from pumit.campaign import TrainingRound

    campaign.save_round(TrainingRound(3, "training", "rounds/003"))
    write_status(
        folder,
        RunStatus("training", "Step 30 of 40: loss 0.52, mean Dice 0.60.", step=30, steps=40),
    )
    modules.look()
    modules.ui.campaignOptionsBox.collapsed = False
    modules.logic.campaign.ask("Hippocampus_head_of_the_second_reader", 12)
    modules.process()
    check(modules.frame, screenshots / "campaign_full.png")


def test_the_row_in_segment_fits(modules, tmp_path, screenshots):
    modules.checkPredicted(makeLab(tmp_path / "lab", 4, labelled=(0, 1)))
    campaign = modules.campaign
    check(modules.segment.frame, screenshots / "campaign_row.png")
    # The table and the row rate a prediction in the same words.
    entry = campaign.scan(modules.logic.checking.currentID)
    node = modules.segment.logic.segmentationNode.GetSegmentation()
    rated = [ratingOf(node.GetNthSegment(i)) for i in range(node.GetNumberOfSegments())]
    assert entry.word in [rating.inWords() for rating in rated]


def leavePlan(campaign: Campaign) -> None:
    """Plan the first round, as its process would, with steps that are not tried."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrialProcess, "_launch", lambda self: None)
        patch.setattr(TrialProcess, "run", lambda self, request: StandInTrial().run(request))
        patch.setattr("pumit.training.train.finetune", lambda *_, **__: sys.exit())
        with pytest.raises(SystemExit):
            train_round(campaign)
    campaign._change(lambda content: {**content, "rounds": []})


@pytest.mark.slow
def test_a_real_training_predicts_the_rest(modules, tmp_path):
    from PUMITTrainLib.processes import DetachedLauncher

    modules.create(makeLab(tmp_path / "lab", 8, labelled=range(4)))
    modules.campaign.change_settings(training_seconds=2.0, refines_clicks=False)
    leavePlan(modules.campaign)
    object.__setattr__(modules.parts, "launcher", DetachedLauncher())
    modules.look()
    said: set[str] = set()
    assert modules.pressAction() == "Train on 4"
    end = time.monotonic() + 600
    while modules.logic.campaign.isRunning:
        assert time.monotonic() < end
        time.sleep(0.7)
        modules.look()
        said.add(modules.logic.campaign.progress[0].split(":")[0])
        # The next scan can be opened while it trains.
        assert modules.ui.campaignActionButton.enabled
    modules.look()
    assert {"Getting ready to train.", "Training"} <= said
    (one,) = modules.campaign.rounds
    assert one.state == "finished", modules.status
    assert modules.status == modules.logic.campaign.view.chart.sentence
    assert modules.logic.campaign.view.count("predicted") >= 1
    assert modules.logic.campaign.action.kind in ("check", "open")


def test_refined_clicks_answer_the_next_scan_and_only_while_it_is_open(modules, tmp_path):
    from dataclasses import replace

    from PUMITSlicerLib.computing.settings import load_settings

    modules.create(makeLab(tmp_path / "lab", 4, labelled=(0, 1)))
    campaign = modules.campaign
    train(campaign)
    model = campaign.folder / "rounds" / "clicks.safetensors"
    model.parent.mkdir()
    model.touch()
    campaign.save_round(replace(campaign.rounds[0], click_model="rounds/clicks.safetensors"))
    modules.look()
    compute: Any = modules.segment.logic.compute
    assert compute.settings.model == "default"
    modules.check()
    assert compute.settings.model == str(model)
    # It is not the user's own setting, for a Slicer that ends before it is put back.
    assert load_settings(compute._store).model == "default"
    modules.logic.checking.putAway()
    modules.look()
    assert compute.settings.model == "default"
    modules.check()
    assert compute.settings.model == str(model)
    assert modules.segment.ui.modelSelector.isVisible() is not None
    modules.logic.checking.goBack()
    modules.press(modules.ui.campaignNewButton)
    modules.logic.campaign.close()
    modules.logic.checking.close()
    assert compute.settings.model == "default"


def test_the_worker_begins_with_the_scan_that_comes_next(modules, tmp_path, monkeypatch):
    begun: list[Any] = []
    monkeypatch.setattr(
        modules.segment.logic.reviewing, "startOn", lambda prepared: begun.append(prepared)
    )
    modules.create(makeLab(tmp_path / "lab", 3))
    modules.campaign.change_settings(order="list")
    modules.look()
    modules.pressAction()
    assert [prepared.given.name for prepared in begun] == ["scan01"]
    ahead = begun[0].given.volume
    modules.accept()
    assert modules.checked.given.volume is ahead  # it was not read again


def test_classes_of_one_colour_are_told_apart_in_the_views(modules, tmp_path):
    # Labels of a program that gives none have Slicer's default colour, all of them.
    color = [128 / 255, 174 / 255, 128 / 255]
    modules.create(makeLab(tmp_path / "lab", 2))
    rows = [{"name": n, "value": v, "color_rgb": color} for v, n in enumerate(CLASSES, 1)]
    modules.campaign._change(lambda content: {**content, "classes": rows})
    modules.look()
    modules.pressAction()
    segmentation = modules.checked.segmentationNode.GetSegmentation()
    first, second = (segmentation.GetNthSegment(i).GetColor() for i in range(2))
    assert max(abs(a - b) for a, b in zip(first, second, strict=True)) > 0.2


def test_a_prediction_that_is_accepted_as_it_is_took_no_clicks(modules, tmp_path):
    import slicer

    modules.checkPredicted(makeLab(tmp_path / "lab", 4, labelled=(0, 1)))
    # To and fro: what was written elsewhere is taken up as a mask that answers start from.
    slicer.util.selectModule("PUMITTrain")
    slicer.util.selectModule("PUMITSegment")
    modules.segment.logic.onSessionChanged()
    modules.look()
    name = modules.checked.given.name
    logic = modules.segment.logic
    assert logic.promptCount(logic.segmentID) == 1  # the mask
    modules.key("A")
    scan = modules.campaign.scan(name)
    assert (scan.stored_state, scan.clicks) == ("accepted", 0)
