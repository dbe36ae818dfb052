"""Trainings of a campaign by its own process, and its models in PUMIT Segment."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from campaign_module import CLASSES, CampaignModules, makeLab, predict, train


@pytest.mark.slow
def test_a_real_training_predicts_the_rest(modules: CampaignModules, tmp_path: Path) -> None:
    from PUMITTrainLib.processes import DetachedLauncher

    modules.create(makeLab(tmp_path / "lab", 8, labelled=range(4)))
    modules.campaign.change_settings(training_seconds=4.0, refines_clicks=False)
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


def test_refined_clicks_answer_the_next_scan_and_only_while_it_is_open(
    modules: CampaignModules, tmp_path: Path
) -> None:
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
    modules.logic.checking.openNext()
    modules.look()
    assert compute.settings.model == str(model)
    # It is not the user's own setting, for a Slicer that ends before it is put back.
    assert load_settings(compute._store).model == "default"
    modules.logic.checking.putAway()
    modules.look()
    assert compute.settings.model == "default"
    modules.logic.checking.openNext()
    modules.look()
    assert compute.settings.model == str(model)
    assert modules.segment.ui.modelSelector.isVisible() is not None
    modules.logic.checking.goBack()
    modules.press(modules.ui.campaignNewButton)
    modules.logic.campaign.close()
    modules.logic.checking.close()
    assert compute.settings.model == "default"


def test_the_worker_begins_with_the_scan_that_comes_next(
    modules: CampaignModules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    modules.draw()
    modules.key("A")
    assert modules.checked.given.volume is ahead  # it was not read again


def test_classes_of_one_colour_are_told_apart_in_the_views(
    modules: CampaignModules, tmp_path: Path
) -> None:
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


def test_a_prediction_that_is_accepted_as_it_is_took_no_clicks(
    modules: CampaignModules, tmp_path: Path
) -> None:
    import slicer

    modules.create(makeLab(tmp_path / "lab", 4, labelled=(0, 1)))
    campaign = modules.campaign
    train(campaign)
    predict(campaign)
    modules.look()
    modules.logic.checking.openNext()
    modules.look()
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
