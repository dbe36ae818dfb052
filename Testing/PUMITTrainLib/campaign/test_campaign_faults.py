"""What goes wrong in a campaign is one line, and nothing that was drawn is lost."""

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from campaign_module import CLASSES, CampaignModules, makeLab, makeScan, train, truthOf
from pumit.campaign import Campaign, ShareLock
from pumit.errors import DiskFullError, PumitError


@pytest.fixture
def opened(modules: CampaignModules, tmp_path: Path) -> CampaignModules:
    """A campaign of six scans; the first is open in PUMIT Segment."""
    lab = makeLab(tmp_path / "lab", 6)
    Campaign.create(modules.folder, [lab], CLASSES).change_settings(order="list")
    modules.logic.campaign.open(modules.folder)
    modules.look()
    modules.pressAction()
    assert modules.checked.given.name == "scan00"
    return modules


def rename(opened: CampaignModules, name: str) -> None:
    """Call the segment that is worked on otherwise."""
    logic = opened.segment.logic
    logic.segmentationNode.GetSegmentation().GetSegment(logic.segmentID).SetName(name)


def keysOn() -> list[str]:
    import slicer
    from Qt import QtGui

    window = slicer.util.mainWindow()
    return [key.key.toString() for key in window.findChildren(QtGui.QShortcut)]


def test_keys_act_only_while_a_scan_is_checked(modules, tmp_path, loadModule):
    import slicer
    from Qt import QtGui

    loadModule("Testing/harness/sample_module/BrightVoxels.py")

    modules.create(makeLab(tmp_path / "lab", 2))
    slicer.util.selectModule("PUMITSegment")
    assert not {"A", "J"} & set(keysOn())
    slicer.util.selectModule("PUMITTrain")
    assert not {"A", "J"} & set(keysOn())
    modules.check()
    assert {"A", "J"} <= set(keysOn())
    keys = {
        key.key.toString(): key for key in slicer.util.mainWindow().findChildren(QtGui.QShortcut)
    }
    # One that is held decides once; one looks through segments with the other.
    assert not keys["A"].autoRepeat
    assert not keys["J"].autoRepeat
    assert keys["."].autoRepeat
    slicer.util.selectModule("BrightVoxels")  # where A may be another key
    assert not {"A", "J"} & set(keysOn())
    slicer.util.selectModule("PUMITTrain")
    assert sorted(keysOn()) == ["A", "J"]
    modules.logic.checking.putAway()
    modules.settle()
    assert keysOn() == []
    modules.key("A")
    assert not [s for s in modules.campaign.scans() if s.stored_state == "accepted"]


def test_nothing_is_decided_on_a_scan_that_the_views_do_not_show(opened):
    """F1: another scan is loaded, and shown in every view, while this one is chosen."""
    import slicer

    opened.draw()
    other = slicer.util.addVolumeFromArray(np.ones((8, 9, 10), np.int16))
    other.SetName("Another patient")
    slicer.util.setSliceViewerLayers(background=other)
    for key in ("A", "J", "A"):
        opened.key(key)
        opened.settle()
    stored = {scan.stored_state for scan in opened.campaign.scans()}
    assert not stored & {"accepted", "later"}
    assert opened.logic.checking.currentID
    assert "Another patient" in str(opened.segment.status)
    # The scan is shown first, and decided on by who has seen it.
    choices = opened.segment.logic.status.current.choices
    next(choice for choice in choices if choice.text.startswith("Show")).act()
    opened.look()
    assert opened.campaign.scan("scan00").stored_state == "open"
    opened.key("J")
    assert opened.campaign.scan("scan00").stored_state == "later"


def test_an_answer_accepts_the_scan_that_it_was_asked_for(opened):
    """The next scan was opened between question and answer, and was accepted by the answer."""
    opened.draw()
    rename(opened, "nucleus")
    opened.key("A")
    work = opened.logic.campaign
    asked = work.question
    opened.check("scan01")
    assert work.question is None
    opened.draw()
    work.question = asked  # as it is where an answer is still being written
    work.answer("inner")
    opened.look()
    assert not [s for s in opened.campaign.scans() if s.stored_state == "accepted"]


def test_an_empty_scan_is_accepted_only_by_who_insists_each_time_that_it_is_opened(opened):
    opened.key("A")
    words = "Nothing is drawn in scan00. If it holds none of the classes, press Accept again."
    assert opened.segment.status == words
    for name in ("scan01", "scan00"):
        opened.check(name)
    opened.key("A")
    assert opened.segment.status == words
    assert opened.campaign.scan("scan00").stored_state == "open"
    opened.key("A")
    assert opened.campaign.scan("scan00").stored_state == "accepted"
    # Scan01 may still have been locked, while it was put away, when the next scan was read ahead.
    assert opened.checked.given.name in ("scan01", "scan02")


def test_a_scan_that_somebody_else_has_is_passed_over(opened):
    lock = opened.campaign.lock("scan01", "Ada")
    opened.accept()
    assert opened.checked.given.name == "scan02"
    opened.logic.checking.goBack()
    opened.look()
    assert opened.row("scan01")[1] == "open elsewhere"
    opened.check("scan01")
    assert opened.status == "Ada has scan01 open; take another."
    lock.release()


def test_the_next_scan_comes_with_what_another_person_drew_meanwhile(opened):
    """It was read before that, and opened as it had been."""
    opened.campaign.save_draft("scan01", truthOf("scan01"))
    opened.key("J")
    assert opened.checked.given.name == "scan01"
    assert {name for name, _mask in opened.segment.logic.reviewing.masks()} == set(CLASSES)


@pytest.mark.parametrize("how", ["beat", "next", "close"])
def test_who_has_lost_a_scan_does_not_write_over_the_draft_of_who_has_it(opened, how):
    campaign = opened.campaign
    home = campaign.home(campaign.scan("scan00"))
    (home / "lock").unlink()  # silent for long, as of a computer that slept
    lock = campaign.lock("scan00", "Bob")
    campaign.save_draft("scan00", truthOf("scan00", ("inner", "outer")))
    theirs = (home / "draft.seg.nrrd").read_bytes()
    opened.draw()
    if how == "beat":
        opened.ring()
    elif how == "next":
        opened.logic.checking.open(campaign.scan("scan01").id)
        opened.look()
    else:
        opened.logic.checking.keepAtOnce()
    assert (home / "draft.seg.nrrd").read_bytes() == theirs
    (mine,) = home.glob("conflict-*.seg.nrrd")
    assert mine.name in opened.status
    assert lock.is_held


def test_acceptance_leaves_the_draft_of_who_has_the_scan_by_now(opened):
    campaign = opened.campaign
    home = campaign.home(campaign.scan("scan00"))
    (home / "lock").unlink()
    with campaign.lock("scan00", "Bob"):
        campaign.save_draft("scan00", truthOf("scan00", ("inner", "outer")))
        theirs = (home / "draft.seg.nrrd").read_bytes()
        opened.accept()
    assert opened.campaign.scan("scan00").stored_state == "accepted"
    assert (home / "draft.seg.nrrd").read_bytes() == theirs


def test_what_is_erased_stays_erased(modules, tmp_path):
    """No draft was written of nothing, and the wrong prediction was back."""
    modules.checkPredicted(makeLab(tmp_path / "lab", 6, labelled=range(4)))
    logic, key = modules.segment.logic, modules.logic.checking.currentID
    assert len(logic.reviewing.masks()) == 2
    for name in ("outer", "inner"):
        segmentation = logic.segmentationNode.GetSegmentation()
        segmentation.RemoveSegment(segmentation.GetSegmentIdBySegmentName(name))
    modules.ring()
    assert (modules.campaign.home(modules.campaign.scan(key)) / "draft.seg.nrrd").exists()
    modules.logic.checking.putAway()
    modules.look()
    modules.logic.checking.open(key)
    modules.look()
    assert logic.reviewing.masks() == []


def test_a_draft_that_is_still_being_written_does_not_outlive_acceptance(opened, monkeypatch):
    accepted, save, accept = threading.Event(), Campaign.save_draft, Campaign.accept

    def saveSlowly(*arguments: Any, **options: Any) -> Any:
        accepted.wait(1.0)
        return save(*arguments, **options)

    def acceptAtOnce(*arguments: Any, **options: Any) -> Any:
        made = accept(*arguments, **options)
        accepted.set()
        return made

    monkeypatch.setattr(Campaign, "save_draft", saveSlowly)
    monkeypatch.setattr(Campaign, "accept", acceptAtOnce)
    opened.draw()
    opened.timers.ring()
    opened.key("A")
    opened.settle()
    scan = opened.campaign.scan("scan00")
    assert scan.stored_state == "accepted"
    assert not (opened.campaign.home(scan) / "draft.seg.nrrd").exists()


def test_an_accepted_scan_is_not_put_off_or_left_out(opened):
    """The core refuses that: the scan stayed in the scene, unsaved, and the next one came."""
    opened.draw()
    rename(opened, "ignore")  # what is unknown is accepted without a question
    opened.key("A")
    opened.check("scan00")
    row = opened.segment.panel.reviewRow
    assert row.acceptButton.enabled
    assert not row.laterButton.enabled
    assert not row.leaveOutButton.enabled
    opened.key("J")
    assert opened.status == "scan00 is accepted; undo that first."
    assert opened.checked.given.name == "scan00"
    assert opened.logic.checking.isChecking


def test_what_is_drawn_after_acceptance_is_kept_as_a_draft(opened, monkeypatch):
    """The scan is still in the views until the next one is read."""
    opened.draw(["outer"])
    checking = opened.logic.checking
    monkeypatch.setattr(checking, "openNext", lambda: None)
    checking.accept()
    opened.draw()
    opened.settle()
    scan = opened.campaign.scan("scan00")
    assert scan.stored_state == "accepted"
    checking.open(scan.id)
    opened.look()
    assert {name for name, _mask in opened.segment.logic.reviewing.masks()} == set(CLASSES)


def test_what_is_drawn_after_acceptance_stays_in_the_scene_until_it_is_written(
    opened, tmp_path, monkeypatch
):
    """The scan was removed before its draft was written to a share that went away."""
    opened.draw(["outer"])
    checking, accept = opened.logic.checking, Campaign.accept

    def andGoAway(campaign: Campaign, *arguments: Any, **named: Any) -> Any:
        made = accept(campaign, *arguments, **named)
        opened.folder.rename(tmp_path / "away")
        return made

    monkeypatch.setattr(checking, "openNext", lambda: None)
    with monkeypatch.context() as patch:
        patch.setattr(Campaign, "accept", andGoAway)
        checking.accept()
        opened.draw()
        opened.settle()
    assert "is not there any more" in opened.status
    assert checking.undoText == "scan00"
    (tmp_path / "away").rename(opened.folder)
    checking.undo()
    checking.putAway()
    opened.look()
    scan = opened.campaign.scan("scan00")
    assert scan.stored_state == "accepted"
    checking.open(scan.id)
    opened.look()
    assert {name for name, _mask in opened.segment.logic.reviewing.masks()} == set(CLASSES)


@pytest.mark.parametrize("how", ["scene", "draft", "modules"])
def test_what_is_drawn_after_acceptance_is_kept_when_something_closes(opened, monkeypatch, how):
    """Also what is drawn while the draft of what was drawn after acceptance is written."""
    import slicer

    checking, answers = opened.logic.checking, threading.Event()
    monkeypatch.setattr(checking, "openNext", lambda: None)
    name = "save_draft" if how == "draft" else "accept"
    write = getattr(Campaign, name)

    def writeLate(*arguments: Any, **options: Any) -> Any:
        answers.wait(60)
        return write(*arguments, **options)

    opened.draw(["outer"])
    checking.accept()
    if how == "draft":
        opened.draw(["inner"])
    with monkeypatch.context() as patch:
        patch.setattr(Campaign, name, writeLate)
        opened.process()
        opened.draw()
        if how == "modules":
            answers.set()
            opened.reopen()
        else:
            slicer.mrmlScene.Clear(0)
            answers.set()
        opened.settle()
    scan = opened.campaign.scan("scan00")
    assert (scan.state, scan.stored_state) == ("accepted", "accepted")
    opened.logic.checking.open(scan.id)
    opened.look()
    assert {name for name, _mask in opened.segment.logic.reviewing.masks()} == set(CLASSES)


def test_what_is_drawn_after_acceptance_is_kept_though_another_person_was_first(
    opened, monkeypatch
):
    """The scan was removed from the scene, and only what was accepted was in a file."""
    checking, accept = opened.logic.checking, Campaign.accept

    def afterAda(campaign: Campaign, scan: Any, *arguments: Any, **options: Any) -> Any:
        accept(campaign, scan.id, truthOf(scan.name, ["outer"]), "Ada")
        return accept(campaign, scan, *arguments, **options)

    opened.draw(["outer"])
    monkeypatch.setattr(checking, "openNext", lambda: None)
    with monkeypatch.context() as patch:
        patch.setattr(Campaign, "accept", afterAda)
        checking.accept()
        opened.draw()
        opened.settle()
    scan = opened.campaign.scan("scan00")
    assert (scan.state, scan.reviewer) == ("accepted", "Ada")
    assert "conflict-" in opened.status
    assert checking.undoText == ""
    checking.open(scan.id)
    opened.look()
    assert {name for name, _mask in opened.segment.logic.reviewing.masks()} == set(CLASSES)


@pytest.mark.parametrize("last", [["outer"], CLASSES])
def test_what_could_not_be_accepted_is_a_draft_if_the_scene_is_closed(opened, monkeypatch, last):
    import slicer

    checking, answers = opened.logic.checking, threading.Event()
    monkeypatch.setattr(checking, "openNext", lambda: None)

    def fail(*_arguments: Any, **_options: Any) -> Any:
        answers.wait(60)
        raise DiskFullError("The disk is full.")

    opened.draw(["outer"])
    with monkeypatch.context() as patch:
        patch.setattr(Campaign, "accept", fail)
        checking.accept()
        opened.process()
        if last != ["outer"]:
            opened.draw(last)
        slicer.mrmlScene.Clear(0)
        answers.set()
        opened.settle()
    assert opened.status == "The disk is full."
    scan = opened.campaign.scan("scan00")
    assert (scan.state, scan.stored_state) == ("open", "open")
    checking.open(scan.id)
    opened.look()
    assert {name for name, _mask in opened.segment.logic.reviewing.masks()} == {*last}


def test_what_cannot_be_read_after_acceptance_stays_in_the_scene(opened, monkeypatch):
    checking, reviewing = opened.logic.checking, opened.segment.logic.reviewing
    monkeypatch.setattr(checking, "openNext", lambda: None)

    def fail(_scan: Any) -> Any:
        raise PumitError("The segments cannot be read.")

    opened.draw(["outer"])
    checking.accept()
    opened.draw()
    with monkeypatch.context() as patch:
        patch.setattr(reviewing, "masks", fail)
        opened.settle()
    assert opened.status == "The segments cannot be read."
    assert checking.sentence == "scan00 is not saved yet: Undo opens it again."
    checking.undo()
    checking.putAway()
    opened.look()
    checking.open(opened.campaign.scan("scan00").id)
    opened.look()
    assert {name for name, _mask in reviewing.masks()} == set(CLASSES)


def test_a_label_with_other_names_asks_once_and_remembers(modules, tmp_path):
    from pumit.export.seg_nrrd import write_seg_nrrd

    lab = makeLab(tmp_path / "lab", 4)
    for name in ("scan00", "scan01"):
        label = lab / "labels" / f"{name}.seg.nrrd"
        write_seg_nrrd(truthOf(name, ("outer", "core")), label, is_reviewed=True)
    modules.create(lab)
    assert modules.pressAction() == "Say what 'core' is (2 scans)"
    ui = modules.ui
    words = "Which class is the label 'core' (in 2 scans)? The answer is saved."
    assert ui.campaignQuestionLabel.text == words
    modules.choose(ui.campaignAnswerSelector, "inner")
    modules.press(ui.campaignAnswerButton)
    modules.look()
    assert not ui.campaignQuestionFrame.visible
    assert modules.campaign.unknown_names() == {}
    assert "core" in modules.campaign.classes[1].other_names


def test_a_segment_of_no_class_is_asked_about_and_can_rename_its_class(opened):
    opened.draw()
    rename(opened, "nucleus")
    opened.key("A")
    words = "'nucleus' is no class of the campaign: choose the class it stands for."
    assert opened.status == words
    opened.choose(opened.ui.campaignAnswerSelector, "inner")
    opened.press(opened.ui.campaignAnswerButton)
    opened.look()
    assert opened.campaign.scan("scan00").stored_state == "accepted"
    assert opened.checked.given.name == "scan01"
    opened.draw()
    rename(opened, "core")
    opened.key("A")
    selector = opened.ui.campaignAnswerSelector
    words = [selector.itemText(i) for i in range(selector.count)]
    selector.setCurrentIndex(words.index("inner, called 'core' from now on"))
    opened.press(opened.ui.campaignAnswerButton)
    opened.look()
    assert [c.name for c in opened.campaign.classes] == ["outer", "core"]
    assert opened.campaign.scan("scan01").stored_state == "accepted"
    assert [s.name for s in opened.checked.given.segments] == ["outer", "core"]


def test_what_is_passed_over_in_a_new_campaign_is_said(modules, tmp_path):
    lab = makeLab(tmp_path / "lab", 3, (0, 1))
    (lab / "images" / "scan01.nii.gz").unlink()
    modules.create(lab)
    assert "labels/scan01 is a label for which no scan is left" in modules.status


def test_a_campaign_without_classes_takes_what_is_drawn_as_one(modules, tmp_path):
    modules.create(makeLab(tmp_path / "lab", 2), classes="")
    modules.pressAction()
    logic = modules.segment.logic
    logic.newSegment("liver")
    modules.segment.click(modules._ras(10, 12, 14))
    modules.segment.answer(makeScan(0)[1] == 1)
    logic.stopPlacing()
    modules.process()
    modules.key("A")
    modules.choose(modules.ui.campaignAnswerSelector, "liver")
    modules.press(modules.ui.campaignAnswerButton)
    modules.look()
    assert [c.name for c in modules.campaign.classes] == ["liver"]
    assert sum(s.state == "accepted" for s in modules.campaign.scans()) == 1


def test_a_scan_that_is_gone_is_one_line_and_the_next_one_comes(opened, tmp_path):
    (tmp_path / "lab" / "images" / "scan02.nii.gz").unlink()
    opened.accept()
    assert opened.checked.given.name == "scan01"
    opened.accept()
    assert opened.status.startswith("scan02 is not where it was;")
    assert "\n" not in opened.status
    assert opened.checked.given.name == "scan03"


def test_a_share_that_went_away_is_said_once(opened, tmp_path):
    opened.draw()
    opened.folder.rename(tmp_path / "away")
    opened.look()
    opened.key("A")
    assert "is not there any more" in opened.status
    assert "\n" not in opened.status
    assert opened.segment.status == opened.status
    row = opened.segment.panel.reviewRow
    assert row.label.text == "scan00 is not saved yet: Undo opens it again."
    # It comes back: what was drawn is still there, and can be accepted.
    (tmp_path / "away").rename(opened.folder)
    opened.look()
    assert opened.status == "The large button says what comes next."
    opened.segment.press(row.undoButton)
    opened.look()
    assert opened.checked.given.name == "scan00"
    opened.key("A")
    assert opened.campaign.scan("scan00").stored_state == "accepted"


@pytest.mark.parametrize("isExpired", [False, True])
def test_a_scan_that_is_not_saved_yet_is_not_opened_a_second_time(opened, tmp_path, isExpired):
    """It was refused as open elsewhere, or after two minutes opened without what was drawn."""
    opened.draw()
    scan, checking = opened.campaign.scan("scan00"), opened.logic.checking
    opened.folder.rename(tmp_path / "away")
    opened.key("A")
    (tmp_path / "away").rename(opened.folder)
    if isExpired:
        (opened.campaign.home(scan) / "lock").unlink()
    opened.look()
    checking.openNext()
    opened.look()
    assert opened.checked.given.name == "scan01"
    assert checking.undoText == "scan00"
    checking.open(scan.id)
    opened.look()
    assert opened.checked.given.name == "scan00"
    assert {name for name, _mask in opened.segment.logic.reviewing.masks()} == set(CLASSES)
    opened.key("A")
    assert opened.campaign.scan("scan00").stored_state == "accepted"
    assert opened.campaign.scan("scan01").stored_state == "open"


@pytest.mark.parametrize("node", ["volumeNode", "segmentationNode"])
@pytest.mark.parametrize("how", ["undo", "open"])
def test_a_scan_that_is_not_saved_yet_may_be_removed_from_the_scene(opened, tmp_path, node, how):
    """Undo failed, again each time, and to open it was refused as another person's."""
    import slicer

    opened.draw()
    scan, checking = opened.campaign.scan("scan00"), opened.logic.checking
    opened.folder.rename(tmp_path / "away")
    opened.key("A")
    (tmp_path / "away").rename(opened.folder)
    opened.look()
    slicer.mrmlScene.RemoveNode(getattr(checking._unsaved[0].scan, node))
    if how == "undo":
        checking.undo()
        opened.look()
        assert "scan00 was removed from the scene" in opened.status
        assert checking.undoText == ""
    checking.open(scan.id)
    opened.look()
    assert opened.checked.given.name == "scan00"


def test_a_decision_that_could_not_be_undone_is_the_next_one_to_undo(opened, tmp_path):
    undo = opened.segment.panel.reviewRow.undoButton
    for _ in range(2):
        opened.accept()
    opened.folder.rename(tmp_path / "away")
    opened.segment.press(undo)
    opened.settle()
    assert "is not there any more" in opened.segment.status
    (tmp_path / "away").rename(opened.folder)
    assert undo.toolTip == "Undo the decision on scan01, and open it again"
    # Twice, before the first has ended.
    opened.segment.press(undo)
    opened.segment.press(undo)
    opened.look()
    states = [opened.campaign.scan(name).stored_state for name in ("scan00", "scan01")]
    assert states == ["accepted", "open"]


@pytest.mark.parametrize("how", ["scene", "modules", "back"])
def test_what_is_drawn_is_kept_when_something_closes(opened, how):
    import slicer

    opened.draw()
    if how == "scene":
        slicer.mrmlScene.Clear(0)
    elif how == "modules":
        slicer.util.selectModule("PUMITTrain")
        opened.reopen()
    else:
        opened.logic.checking.open(opened.campaign.scan("scan03").id)
    opened.look()
    scan = opened.campaign.scan("scan00")
    assert (scan.state, scan.stored_state) == ("open", "open")
    opened.logic.checking.open(scan.id)
    opened.look()
    _volume, labels = makeScan(0)
    masks = dict(opened.segment.logic.reviewing.masks())
    assert {name: int(mask.voxels.sum()) for name, mask in masks.items()} == {
        "outer": int((labels == 1).sum()),
        "inner": int((labels == 2).sum()),
    }


def test_a_share_that_hangs_does_not_hang_slicer_when_it_closes(opened, monkeypatch):
    import slicer

    answers, kept, save = threading.Event(), threading.Event(), Campaign.save_draft

    def saveLate(*arguments: Any, **options: Any) -> None:
        answers.wait(60)
        save(*arguments, **options)
        kept.set()

    monkeypatch.setattr(Campaign, "save_draft", saveLate)
    monkeypatch.setattr("PUMITTrainLib.campaign.checking._PATIENCE_S", 0.1)
    opened.draw()
    slicer.mrmlScene.Clear(0)
    assert not kept.is_set()
    assert opened.status == (
        "The campaign's folder does not answer: the draft of scan00 may be lost."
    )
    answers.set()
    assert kept.wait(60)
    assert (opened.campaign.home(opened.campaign.scan("scan00")) / "draft.seg.nrrd").exists()


@pytest.mark.parametrize("isDrawn", [False, True])
def test_no_draft_is_called_lost_that_is_written_or_was_never_drawn(opened, monkeypatch, isDrawn):
    import slicer

    answers, asked = threading.Event(), threading.Event()

    def releaseLate(lock: ShareLock) -> None:
        asked.set()
        answers.wait(60)

    monkeypatch.setattr(ShareLock, "release", releaseLate)
    monkeypatch.setattr("PUMITTrainLib.campaign.checking._PATIENCE_S", 3.0 if isDrawn else 0.1)
    if isDrawn:
        opened.draw()
    slicer.mrmlScene.Clear(0)
    assert asked.is_set()
    assert "may be lost" not in opened.status
    answers.set()


def test_closing_waits_only_once_for_a_share_that_hangs(opened, monkeypatch):
    """It waited for drafts, and then as long again for decisions."""
    answers, checking = threading.Event(), opened.logic.checking
    monkeypatch.setattr(Campaign, "save_draft", lambda *_, **__: answers.wait(60))
    monkeypatch.setattr("PUMITTrainLib.campaign.checking._PATIENCE_S", 2.0)
    opened.draw()
    checking._keep(lambda: answers.wait(60), lambda _result: None)
    since = time.monotonic()
    checking.close()
    waited = time.monotonic() - since
    answers.set()
    assert 2.0 <= waited < 3.9


def test_drafts_of_a_share_that_hangs_do_not_queue_up(opened, monkeypatch):
    """Once it answered, the older one could be written last."""
    answers, beats = threading.Event(), []

    def beatLate(lock: ShareLock) -> bool:
        beats.append(lock)
        return answers.wait(60)

    monkeypatch.setattr(ShareLock, "beat", beatLate)
    opened.draw()
    for _ in range(3):
        opened.timers.ring()
        opened.process()
    answers.set()
    opened.settle()
    assert len(beats) == 1
    opened.ring()
    assert len(beats) == 2


def test_buttons_of_a_campaign_touch_its_folder_only_on_threads(modules, tmp_path, monkeypatch):
    """A share that hangs would freeze Slicer."""
    modules.create(makeLab(tmp_path / "lab", 6, labelled=range(4)))
    touched = []

    def noting(name: str, function: Any) -> Any:
        def note(*arguments: Any) -> Any:
            touched.append((name, threading.current_thread() is threading.main_thread()))
            return function(*arguments)

        return note

    place = "PUMITTrainLib.campaign.campaign_work"
    modules.training.launch = noting("launch", modules.training.launch)
    monkeypatch.setattr(f"{place}.last_words", noting("last words", lambda folder: ""))
    monkeypatch.setattr(f"{place}.send_command", noting("command", lambda folder, word: None))
    assert modules.pressAction().startswith("Train")
    modules.logic.campaign.command("pause")
    modules.settle()
    assert touched == [("launch", False), ("last words", False), ("command", False)]


def test_a_training_that_hangs_at_its_start_does_not_block_another_campaign(modules, tmp_path):
    lab, work = makeLab(tmp_path / "lab", 6, labelled=range(4)), modules.logic.campaign
    modules.create(lab)
    Campaign.create(tmp_path / "other", [lab], CLASSES)
    answers, launch = threading.Event(), modules.training.launch

    def launchLate(*arguments: Any) -> int:
        answers.wait(60)
        return launch(*arguments)

    modules.training.launch, modules.training.isAlive = launchLate, True
    work.train()
    assert work.isRunning
    work.open(tmp_path / "other")
    end = time.monotonic() + 30
    while (work.view is None or work.view.folder != tmp_path / "other") and time.monotonic() < end:
        modules.logic.background.poll()
    assert not work.isRunning
    answers.set()
    modules.settle()
    assert modules.training.launched
    assert not work.isRunning  # the late answer is of the other campaign's process


def test_the_newest_command_to_a_training_is_written_last(modules, tmp_path, monkeypatch):
    """A Pause that a slow share had held up replaced the Stop."""
    modules.create(makeLab(tmp_path / "lab", 6, labelled=range(4)))
    modules.pressAction()
    work, begun, answers = modules.logic.campaign, threading.Event(), threading.Event()
    written: list[str] = []

    def send(_folder: Path, word: str) -> None:
        if word == "pause":
            begun.set()
            answers.wait(60)
        written.append(word)

    monkeypatch.setattr("PUMITTrainLib.campaign.campaign_work.send_command", send)
    work.export("nnunet", tmp_path / "out")
    work.command("pause")
    assert begun.wait(60)
    work.command("resume")
    work.command("stop")
    answers.set()
    modules.settle()
    assert written == ["pause", "stop"]
    assert work.isBusy  # the export still runs


def test_the_newest_setting_is_written_last(modules, tmp_path, monkeypatch):
    """A value that a slow share had held up replaced those that followed it."""
    modules.create(makeLab(tmp_path / "lab", 2))
    work, begun, answers = modules.logic.campaign, threading.Event(), threading.Event()
    change = Campaign.change_settings

    def slow(campaign: Campaign, **settings: Any) -> None:
        if settings["train_after"] == 4:
            begun.set()
            answers.wait(60)
        change(campaign, **settings)

    monkeypatch.setattr(Campaign, "change_settings", slow)
    work.change(train_after=4)
    assert begun.wait(60)
    work.change(train_after=5)
    work.change(train_after=6, order="list")
    time.sleep(0.05)
    answers.set()
    modules.settle()
    settings = modules.campaign.settings
    assert (settings.train_after, settings.order) == (6, "list")


def test_what_is_drawn_is_kept_now_and_then(opened):
    opened.draw()
    home = opened.campaign.home(opened.campaign.scan("scan00"))
    opened.ring()
    assert (home / "draft.seg.nrrd").exists()
    changed = (home / "draft.seg.nrrd").stat().st_mtime_ns
    opened.ring()
    assert (home / "draft.seg.nrrd").stat().st_mtime_ns == changed


def test_a_scene_that_is_added_does_not_end_the_check_and_a_scan_removed_does(opened, tmp_path):
    """The scan stayed in the scene without Accept, and what was drawn then was not kept."""
    import slicer

    added = slicer.vtkMRMLScene()
    added.AddNode(slicer.vtkMRMLLinearTransformNode())
    added.Commit(str(tmp_path / "added.mrml"))
    slicer.mrmlScene.SetURL(str(tmp_path / "added.mrml"))
    slicer.mrmlScene.Import()
    opened.settle()
    assert opened.logic.checking.isChecking
    assert opened.campaign.scan("scan00").state == "checking"
    opened.accept()
    assert opened.campaign.scan("scan00").stored_state == "accepted"
    slicer.mrmlScene.RemoveNode(opened.checked.volumeNode)
    opened.look()
    assert opened.status.startswith("scan01 was removed from the scene;")
    assert not opened.logic.checking.isChecking
    assert opened.campaign.scan("scan01").state == "open"
    assert not opened.segment.panel.reviewRow.frame.visible


def test_another_scan_in_segment_is_not_accepted(opened):
    other = opened.segment.addScan("Another")
    opened.draw()
    opened.segment.logic.parameters.sourceVolume = other
    opened.process()
    row = opened.segment.panel.reviewRow
    assert row.acceptButton.toolTip == row.leaveOutButton.toolTip == opened.logic.checking.whyNot
    opened.key("A")
    assert opened.status.startswith("Choose scan00 and its segmentation")
    assert opened.campaign.scan("scan00").stored_state == "open"
    opened.logic.checking.goBack()
    opened.look()
    assert opened.pressAction() == "Back to the scan that is open"
    opened.key("A")
    assert opened.campaign.scan("scan00").stored_state == "accepted"
    assert other.GetScene() is not None


def test_a_failed_training_says_why_in_one_line(modules, tmp_path, monkeypatch):
    modules.create(makeLab(tmp_path / "lab", 4, labelled=(0, 1)))
    modules.training.isAlive = True
    modules.logic.campaign.train()
    modules.look()
    assert modules.logic.campaign.isRunning
    assert modules.ui.campaignTrainingLabel.text == "Getting ready to train."
    words = "pumit campaign: The disk is full: make room.\n"
    (modules.folder / "output.txt").write_text(words, encoding="utf-8")
    monkeypatch.setattr("PUMITTrainLib.campaign.campaign_work.is_process_alive", lambda *_: False)
    modules.look()
    assert modules.status == "The disk is full: make room."
    assert not modules.ui.campaignTrainingFrame.visible


def test_it_does_not_train_by_itself_where_that_is_off(modules, tmp_path):
    modules.create(makeLab(tmp_path / "lab", 6, labelled=(0, 1, 2)))
    modules.ui.campaignOptionsBox.collapsed = False
    modules.process()
    modules.press(modules.ui.campaignTrainsCheckBox)
    assert modules.ui.campaignMinutesSpin.value == 3
    modules.ui.campaignMinutesSpin.value = 10
    modules.check()
    modules.accept()
    assert modules.campaign.is_training_due
    assert modules.campaign.settings.training_seconds == 600
    assert modules.training.launched == []
    modules.logic.checking.goBack()
    modules.look()
    assert modules.logic.campaign.action.sentence == "Train on 4"


def test_clicks_in_the_chart_are_numbered(modules: CampaignModules) -> None:
    from pumit.campaign import CampaignChart
    from PUMITTrainLib.panel.campaign_section import chartCurves
    from PUMITTrainLib.panel.curves import drawCurves

    chart = CampaignChart(rounds=(0, 1, 2), dice=(None, 0.8, 0.9), clicks=(8.0, 4.0, None))
    curves = chartCurves(chart)
    assert [curve.labels for curve in curves] == [("8.0", "4.0"), ()]
    plain = [replace(curve, labels=()) for curve in curves]
    label = modules.ui.campaignChartLabel
    drawn = [
        drawCurves("Round", each, (300, 84), isShare=True, widget=label).toImage()
        for each in (curves, plain)
    ]
    assert drawn[0] != drawn[1]


def test_the_selected_scan_stays_selected_when_the_list_is_sorted_again(modules, tmp_path):
    """Leave out was done to the scan that was in its row by then."""
    modules.create(makeLab(tmp_path / "lab", 3))
    table, ui = modules.ui.campaignTable, modules.ui
    table.selectRow(0)
    modules.process()
    name = table.item(0, 0).text().split("\n")[0]
    modules.campaign.later(name)  # another person moves it to the end of the queue
    modules.look()
    assert table.item(0, 0).text().split("\n")[0] != name
    assert ui.campaignLeaveOutButton.text == "Include"
    modules.press(ui.campaignLeaveOutButton)
    modules.look()
    assert {scan.stored_state for scan in modules.campaign.scans()} == {"open"}


# --- where scans come from ------------------------------------------------------------------------


def createOf(
    modules: CampaignModules, source: str, classes: str = "liver", series: str = ""
) -> Campaign:
    """Make a campaign of the scene, or of series of Slicer's DICOM database."""
    ui = modules.ui
    modules.press(ui.campaignNewButton)
    modules.choose(ui.campaignSourceSelector, source)
    # As a user may type it.
    folder = modules.folder.parent / ".." / modules.folder.parent.name / modules.folder.name
    ui.campaignFolderEdit.currentPath = str(folder)
    ui.campaignSeriesEdit.text, ui.campaignClassesEdit.text = series, classes
    modules.press(ui.campaignCreateButton)
    modules.look()
    return modules.campaign


def test_a_campaign_of_the_scene_keeps_what_is_drawn_as_drafts(modules):
    """All of what is drawn; only the last segmentation was kept."""
    names = ("first", "second")
    node = modules.addVolume("first")
    modules.addVolume("second", seed=1)
    modules.addSegmentation(node, "one")
    part = np.zeros((6, 9, 11), np.uint8)
    part[0, :2, :2] = 1
    modules.addSegmentation(node, "two", spleen=part, liver=part)
    campaign = createOf(modules, "scene")
    assert [s.name for s in campaign.scans()] == list(names)
    first, second = campaign.scans()
    assert campaign.files(first).shown is not None
    assert campaign.files(second).shown is None
    modules.logic.checking.open(first.id)
    modules.look()
    found = modules.segment.logic.reviewing.masks()
    sizes = {name: int(mask.voxels.sum()) for name, mask in found}
    assert sizes == {"liver": 48 + 4, "spleen": 4}


def test_a_scan_under_a_transform_is_taken_where_its_segments_are(modules):
    import slicer
    from pumit.io.labels.label_source import read_labels

    node = modules.addVolume("moved")
    transform = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLLinearTransformNode", "Moved")
    matrix = np.eye(4)
    matrix[:3, 3] = (20, -30, 40)
    transform.SetMatrixTransformToParent(slicer.util.vtkMatrixFromArray(matrix))
    node.SetAndObserveTransformNodeID(transform.GetID())
    modules.addSegmentation(node, "drawn")
    campaign = createOf(modules, "scene")
    (scan,) = campaign.scans()
    shown = campaign.files(scan).shown
    assert shown is not None
    labels = read_labels(shown, campaign.volume(scan))
    assert (labels.doubts, int((labels.volume.array > 0).sum())) == ((), 48)


def test_a_scan_of_many_dicom_files_is_taken_whole(modules, tmp_path):
    """As added by its files, without Slicer's DICOM database: it was its first slice."""
    from export_scene import loadSeries
    from pumit.export.dicom_series import write_dicom_series

    volume, _labels = makeScan(0)
    write_dicom_series(volume, tmp_path / "series")
    modules.addSegmentation(loadSeries(tmp_path / "series", None), "drawn")
    campaign = createOf(modules, "scene")
    (scan,) = campaign.scans()
    assert (campaign.volume(scan).shape, scan.state) == (volume.shape, "open")
    assert campaign.files(scan).shown is not None


def test_series_of_one_folder_keep_their_own_segments(modules, dicomDatabase, tmp_path):
    from export_scene import loadSeries
    from harness.storage.ctk_dicom_database import indexFolder
    from pumit.export.dicom_series import write_dicom_series
    from pumit.io.labels.label_file import read_label_file
    from pydicom import dcmread

    shared = tmp_path / "shared"
    shared.mkdir()
    for number in range(2):
        volume, _labels = makeScan(number)
        folder = tmp_path / f"series{number}"
        files = write_dicom_series(volume, folder).source.files
        node = loadSeries(folder, None)
        node.SetAttribute("DICOM.instanceUIDs", str(dcmread(files[0]).SOPInstanceUID))
        if not number:
            modules.addSegmentation(node, "drawn")
        for file in folder.glob("*.dcm"):
            file.rename(shared / f"{number}-{file.name}")
    indexFolder(dicomDatabase, shared)
    campaign = createOf(modules, "scene")
    assert all(s.series for s in campaign.scans())
    drawn = [s for s in campaign.scans() if campaign.files(s).shown is not None]
    assert [len(campaign.scans()), len(drawn)] == [2, 1]
    assert read_label_file(campaign.files(drawn[0]).shown).volume.array.any()


def test_a_campaign_of_the_scene_overwrites_no_scan_of_another_one(modules):
    """Its labels would have been those of the other patient."""
    import slicer

    modules.addVolume("CT")
    (scan,) = createOf(modules, "scene").scans()
    before = scan.path.read_bytes()
    modules.press(modules.ui.campaignNewButton)
    slicer.mrmlScene.Clear()
    modules.addVolume("CT", seed=1)
    createOf(modules, "scene")
    assert "There is a campaign" in modules.status
    assert scan.path.read_bytes() == before
    assert [file.name for file in modules.folder.rglob("*.nrrd")] == ["CT.nrrd"]


def test_scans_of_the_scene_overwrite_no_file_of_the_user_or_of_another_scan(modules):
    own = modules.folder / "scene" / "CT.nrrd"
    own.parent.mkdir(parents=True)
    own.write_text("mine", encoding="utf-8")
    for seed, name in enumerate(("CT", "ct", "CT")):  # some file systems ignore case
        modules.addVolume(name, seed=seed)
    scans = createOf(modules, "scene").scans()
    assert own.read_text(encoding="utf-8") == "mine"
    assert len({scan.name.lower() for scan in scans}) == 3


def test_what_is_missing_for_a_campaign_is_said(modules, tmp_path):
    ui = modules.ui
    modules.press(ui.campaignNewButton)
    modules.press(ui.campaignCreateButton)
    assert modules.status == "Choose a folder for the campaign first."
    ui.campaignFolderEdit.currentPath = str(modules.folder)
    modules.press(ui.campaignCreateButton)
    assert modules.status == "Choose the folder of the scans first."
    ui.campaignScansEdit.currentPath = str(tmp_path)
    modules.press(ui.campaignCreateButton)
    assert modules.status.startswith("No scan was found")
    modules.press(ui.campaignNewButton)
    modules.choose(ui.campaignSourceSelector, "scene")
    modules.press(ui.campaignCreateButton)
    assert modules.status == "The open scene has no scan; load some, or choose a folder."
    modules.choose(ui.campaignSourceSelector, "database")
    modules.press(ui.campaignCreateButton)
    assert modules.status == "None of the 0 series of Slicer's DICOM database fits."
    assert not (modules.folder / "campaign.json").exists()


def test_series_of_slicers_dicom_database_are_found_without_their_files(
    dicomDatabase, tmp_path, monkeypatch
):
    """The header of a file of each series of a large database takes minutes."""
    from harness.storage.ctk_dicom_database import indexFolder
    from pumit.export.dicom_series import write_dicom_series
    from PUMITTrainLib.campaign.scan_sources import databaseSeries

    volume, _labels = makeScan(0)
    write_dicom_series(volume, tmp_path / "study", patient_name="Doe^J", patient_id="77")
    indexFolder(dicomDatabase, tmp_path / "study")
    monkeypatch.delattr(type(dicomDatabase), "fileValue")
    found, count = databaseSeries("ct")
    assert (list(found.values()), count) == ([tmp_path / "study"], 1)
    assert databaseSeries("no such words") == ({}, 1)


def test_series_that_only_share_a_folder_are_left_out(modules, dicomDatabase, tmp_path):
    """All patients of the folder were in the campaign."""
    import pydicom
    from harness.storage.ctk_dicom_database import indexFolder
    from pumit.export.dicom_series import write_dicom_series

    (tmp_path / "pacs").mkdir()
    for number in range(2):
        volume, _labels = makeScan(number)
        files = write_dicom_series(volume, tmp_path / f"series{number}").source.files
        for file in files:
            dataset = pydicom.dcmread(file)
            dataset.SeriesDescription = f"phase {number}"
            dataset.save_as(tmp_path / "pacs" / f"{number}-{file.name}")
    indexFolder(dicomDatabase, tmp_path / "pacs")
    createOf(modules, "database", "outer", "phase 1")
    assert modules.ui.campaignTitleLabel.text == "2 scans: 1 open, 1 left out"
    assert "1 series" in modules.status


def test_a_campaign_of_slicers_dicom_database_writes_dicom_seg(modules, dicomDatabase, tmp_path):
    import pydicom
    from harness.storage.ctk_dicom_database import indexFolder
    from pumit.export.dicom_series import write_dicom_series

    for number in range(2):
        volume, _labels = makeScan(number)
        folder = tmp_path / "pacs" / f"study{number}"
        folder.parent.mkdir(exist_ok=True)
        write_dicom_series(volume, folder, patient_name="Doe^J", patient_id=f"77-{number}")
        indexFolder(dicomDatabase, folder)
    modules.ui.campaignReviewerEdit.text = "Ada"
    modules.ui.campaignReviewerEdit.editingFinished.emit()
    createOf(modules, "database", "outer, inner")
    assert modules.ui.campaignTitleLabel.text == "2 scans: 2 open"
    modules.pressAction()
    logic = modules.segment.logic
    _volume, labels = makeScan(0)
    logic.newSegment("outer 2")  # a segment that is renamed by hand
    segment = logic.segmentationNode.GetSegmentation().GetSegment(logic.segmentID)
    segment.SetName("outer")
    modules.segment.click(modules._ras(10, 12, 14))
    modules.segment.answer(labels == 2)
    logic.stopPlacing()
    key = modules.logic.checking.currentID
    modules.key("A")
    (file,) = modules.campaign.home(modules.campaign.scan(key)).glob("*.dcm")
    written = pydicom.dcmread(file)
    assert written.Modality == "SEG"
    assert [item.SegmentLabel for item in written.SegmentSequence] == ["outer"]
    assert written.ContentCreatorName == "Ada"


def test_predictions_that_are_being_made_are_seen_after_a_restart(modules, tmp_path):
    from pumit.campaign.shared_file import working_alone

    modules.create(makeLab(tmp_path / "lab", 6, labelled=range(4)))
    train(modules.campaign)
    modules.look()
    assert modules.ui.campaignActionButton.text == "Predict 2"
    with working_alone(modules.folder, "predict"):  # by the process that outlived Slicer
        modules.reopen()
        modules.look()
        assert modules.ui.campaignTrainingLabel.text == "Predicting: 2 left"
        assert modules.ui.campaignActionButton.text == "Open the next scan"
        modules.logic.campaign.predict()
        assert not modules.training.launched
    modules.look()
    assert modules.ui.campaignActionButton.text == "Predict 2"


def test_the_picture_in_the_list_follows_what_is_accepted(opened):
    key = opened.logic.checking.currentID
    for _ in range(8):
        opened.look()
    before = opened.logic.campaign.view.thumbnails[key]
    opened.accept()
    for _ in range(8):
        opened.look()
    after = opened.logic.campaign.view.thumbnails[key]
    assert after != before


def test_pictures_in_the_list_are_read_with_the_campaign(opened, monkeypatch):
    """Slicer froze where a share was slow: their files were opened as the list was filled."""
    from pumit.campaign.thumbnail import draw_thumbnail
    from PUMITTrainLib.campaign import campaign_work

    read = campaign_work.readCampaign

    def readAndLose(campaign: Campaign, *before: Any) -> Any:
        view = read(campaign, *before)
        for file in campaign.folder.glob("scans/*/thumbnail-*.png"):
            file.unlink()
        return view

    for scan in opened.campaign.scans():
        draw_thumbnail(opened.campaign, scan)
    monkeypatch.setattr(campaign_work, "readCampaign", readAndLose)
    opened.look()
    table = opened.ui.campaignTable
    icons = [table.item(row, 0).icon() for row in range(table.rowCount)]
    assert [icon.pixmap(32, 32).isNull() for icon in icons] == [False] * 6


def test_check_here_leads_through_a_prediction_without_clicks(modules, tmp_path):
    """It said that a prompt has to be added first, or asked the clicks' model, which knows less."""
    modules.checkPredicted(makeLab(tmp_path / "lab", 6, labelled=range(4)))
    logic = modules.segment.logic
    row, mark = modules.segment.panel.reviewRow, logic.checkHere.mark
    for number, ras in ((1, (-5, -8, 9)), (2, (-11, -8, 7)), (1, (-5, -8, 9))):
        modules.segment.press(row.placesButton)
        assert f"doubtful place {number} of 2" in modules.segment.status
        assert tuple(mark.node.GetNthControlPointPositionWorld(0)) == ras
    assert not modules.segment.worker.requests
    modules.draw(["outer"])
    assert mark.node is None
    assert logic.reviewing.places(logic.segmentID) == ()
