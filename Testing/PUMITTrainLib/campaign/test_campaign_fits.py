"""The campaign's section at 380 pixels, and its row in PUMIT Segment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from campaign_module import CampaignModules, makeLab, predict, train
from pumit.runs import RunStatus, write_status


def check(frame: Any, file: Path) -> None:
    from harness.widgets.layout_faults import WIDTH, inModulePanel, layoutFaults

    inModulePanel(frame)
    frame.grab().save(str(file))
    assert layoutFaults(frame) == []
    assert frame.minimumSizeHint.width() <= WIDTH


def onlyCampaign(modules: CampaignModules) -> None:
    for name in ("casesSection", "learnSection", "runSection", "resultSection"):
        getattr(modules.ui, name).collapsed = True


def test_a_new_campaign_fits(modules: CampaignModules, screenshots: Path) -> None:
    onlyCampaign(modules)
    check(modules.frame, screenshots / "campaign_none.png")
    modules.press(modules.ui.campaignNewButton)
    for index, name in enumerate(("folder", "scene", "database")):
        modules.ui.campaignSourceSelector.currentIndex = index
        check(modules.frame, screenshots / f"campaign_new_{name}.png")


def test_a_campaign_fits(modules: CampaignModules, tmp_path: Path, screenshots: Path) -> None:
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


def test_the_row_in_segment_fits(
    modules: CampaignModules, tmp_path: Path, screenshots: Path
) -> None:
    modules.create(makeLab(tmp_path / "lab", 4, labelled=(0, 1)))
    campaign = modules.campaign
    train(campaign)
    predict(campaign)
    modules.look()
    modules.logic.checking.openNext()
    modules.look()
    check(modules.segment.frame, screenshots / "campaign_row.png")
