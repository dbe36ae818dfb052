"""A campaign's folder: its scans and their states, by one person and by two."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pumit.campaign import (
    Campaign,
    CampaignConflict,
    CampaignSettings,
    LockTaken,
)
from pumit.campaign.exporting import export
from pumit.campaign.labels import keep_copy
from pumit.campaign.progress import TrainingRound
from pumit.campaign.shared_file import working_alone
from pumit.errors import PumitError
from pumit.export.labelmap import write_labels
from pumit.export.seg_nrrd import write_seg_nrrd
from pumit.export.volume_file import write_volume_file
from pumit.export.write import write_segmentation
from pumit.io.labels.label_file import named_segments, read_label_file
from pumit.segmentation import Algorithm, Segment
from two_balls import make_scan

Make = Callable[..., Campaign]


def test_accepted_label_has_the_classes_codes_and_who_accepted_it(make_campaign, truth_of):
    campaign = make_campaign(2, classes=[{"name": "liver", "terminology": "liver"}, "tumour"])
    scan = campaign.scans()[0]
    made = campaign.accept(scan, truth_of(scan, ("Liver", "tumour")), "Ada", clicks=3, seconds=12)
    assert (made.state, made.clicks, made.seconds, made.reviewer) == ("accepted", 3, 12.0, "Ada")
    label = campaign.home(scan) / "label.seg.nrrd"
    segments = named_segments(label)
    assert [s.name for s in segments] == ["liver", "tumour"]
    assert "10200004" in segments[0].terminology
    assert label.read_bytes().count(b"Segmentation.Status:completed") == 2
    assert b"PUMIT.Reviewer:Ada" in label.read_bytes()


def test_accepting_again_without_any_structure_keeps_the_label_before_as_a_copy(
    make_campaign, truth_of
):
    campaign = make_campaign(2)
    scan = campaign.scans()[0]
    scan = campaign.accept(scan, truth_of(scan))
    label = campaign.home(scan) / "label.seg.nrrd"
    first = label.read_bytes()
    assert campaign.accept(scan, None).state == "accepted"
    assert not read_label_file(label).volume.array.any()
    kept = list((campaign.home(scan) / "previous").iterdir())
    assert [file.read_bytes() for file in kept] == [first]


def test_accepted_label_file_is_brought_to_the_classes(make_campaign, truth_of, tmp_path):
    campaign = make_campaign(2)
    scan = campaign.scans()[0]
    write_segmentation(truth_of(scan, ("Outer", "foo")), tmp_path / "mine.seg.nrrd")
    with pytest.raises(PumitError, match="'foo' is no class of this campaign"):
        campaign.accept(scan, tmp_path / "mine.seg.nrrd")
    campaign.remember_name("foo", "inner")
    campaign.accept(scan, tmp_path / "mine.seg.nrrd")
    names = [s.name for s in named_segments(campaign.home(scan) / "label.seg.nrrd")]
    assert names == ["outer", "inner"]


def test_acceptance_can_be_undone_and_the_label_comes_back_as_a_draft(make_campaign, truth_of):
    campaign = make_campaign(2)
    scan = campaign.accept(campaign.scans()[0], truth_of(campaign.scans()[0]))
    undone = campaign.undo_accept(scan)
    assert undone.state == "open"
    files = campaign.files(undone)
    assert not campaign.label_paths(scan)
    assert files.shown.name == "draft.seg.nrrd"
    assert list((campaign.home(scan) / "previous").iterdir())
    with pytest.raises(PumitError, match="nothing to undo"):
        campaign.undo_accept(undone)
    campaign.accept(undone, files.shown)
    assert not files.shown.exists()


def test_a_label_that_was_accepted_while_another_computer_slept_stays(
    make_campaign, truth_of, monkeypatch
):
    campaign = make_campaign(2)
    scan = campaign.accept(campaign.scans()[0], truth_of(campaign.scans()[0]), "Ada")
    label = campaign.home(scan) / "label.seg.nrrd"

    def slowly(path: Path, revision: int) -> Path | None:
        monkeypatch.undo()
        lock = campaign.home(scan) / "state.json.writing"
        os.utime(lock, (0, 0))  # it has expired
        Campaign.open(campaign.folder).accept(scan.id, truth_of(scan, ("inner",)), "Eve")
        return keep_copy(path, revision)

    monkeypatch.setattr("pumit.campaign.campaign.keep_copy", slowly)
    with pytest.raises(CampaignConflict, match="conflict-"):
        campaign.accept(scan, truth_of(scan), "Bob")
    assert campaign.scan(scan.id).reviewer == "Eve"
    assert [s.name for s in named_segments(label)] == ["inner"]


def test_another_persons_draft_is_kept_as_a_copy_where_a_label_file_is_accepted(
    make_campaign, truth_of
):
    campaign = make_campaign(2)
    scan = campaign.scans()[0]
    campaign.save_draft(scan, truth_of(scan, ("inner", "outer")))
    draft = campaign.home(scan) / "draft.seg.nrrd"
    drawn = draft.read_bytes()
    campaign.accept(scan, truth_of(scan))  # without the lock of who drew
    assert not draft.exists()
    kept = list((campaign.home(scan) / "previous").iterdir())
    assert [file.read_bytes() for file in kept] == [drawn]


def test_undo_keeps_a_draft_that_is_newer_than_the_label(make_campaign, truth_of):
    campaign = make_campaign(2)
    scan = campaign.accept(campaign.scans()[0], truth_of(campaign.scans()[0]))
    home = campaign.home(scan)
    label = (home / "label.seg.nrrd").read_bytes()
    campaign.save_draft(scan, truth_of(scan, ("inner", "outer")))
    newer = (home / "draft.seg.nrrd").read_bytes()
    campaign.undo_accept(scan)
    assert (home / "draft.seg.nrrd").read_bytes() == newer
    assert not (home / "label.seg.nrrd").exists()
    assert [file.read_bytes() for file in (home / "previous").iterdir()] == [label]


def test_second_of_two_acceptances_is_one_line_and_kept(make_campaign, truth_of):
    one = make_campaign(2)
    other = Campaign.open(one.folder)
    mine, theirs = one.scans()[0], other.scans()[0]
    one.accept(mine, truth_of(mine), "Ada")
    with pytest.raises(CampaignConflict, match=r"^Ada has accepted scan00 since you opened it"):
        other.accept(theirs, None, "Bob")
    home = one.home(mine)
    assert len(list(home.glob("conflict-*.seg.nrrd"))) == 1
    assert [s.name for s in named_segments(home / "label.seg.nrrd")] == ["outer", "inner"]
    assert one.scan(mine).reviewer == "Ada"


def test_a_prediction_written_while_a_scan_is_checked_is_no_conflict(make_campaign, truth_of):
    campaign = make_campaign(2)
    scan = campaign.scans()[0]
    campaign.set_prediction(scan, number=1, word="good", expected={"outer": 0.9})
    assert campaign.accept(scan, truth_of(scan)).state == "accepted"


def test_a_prediction_is_not_written_under_a_persons_hands(make_campaign, truth_of):
    campaign = make_campaign(2)
    first, second = campaign.scans()
    campaign.accept(second, truth_of(second))
    written: list[str] = []
    with campaign.lock(first, "Ada"):
        for scan in (first, second):
            with pytest.raises(CampaignConflict):
                campaign.set_prediction(
                    *(scan,), number=1, word="good", expected={"outer": 0.9},
                    place=lambda: written.append("it"),
                )  # fmt: skip
    assert not written
    assert {s.round for s in campaign.scans()} == {0}
    campaign.set_prediction(first, number=1, word="", place=lambda: written.append("it"))
    assert written == ["it"]


def test_scan_with_labels_that_is_put_off_keeps_them(make_campaign):
    campaign = make_campaign(2, 1)
    scan = campaign.later(campaign.scans()[0])
    assert not scan.is_truth
    shown = campaign.files(scan).shown
    assert shown.parent.name == "labels"
    campaign.leave_out(scan)
    assert campaign.take_in(scan.id).state == "labelled"


@pytest.mark.parametrize(
    ("more", "agreement"), [({"drawn": ["outer"]}, 1.0), ({"known": "strokes"}, None)]
)
def test_agreement_is_of_what_was_drawn(make_campaign, truth_of, more, agreement):
    campaign = make_campaign(2)
    scan = campaign.scans()[0]
    truth = truth_of(scan)
    write_seg_nrrd(truth, campaign.home(scan) / "prediction.seg.nrrd")
    drawn = replace(truth, segments=truth.segments[:1])
    assert campaign.accept(scan, drawn, **more).agreement == agreement


def test_locked_scan_is_shown_as_checked_and_not_given_out(make_campaign):
    one = make_campaign(2)
    other = Campaign.open(one.folder)
    first = one.next_scan("list")
    with one.lock(first, "Ada"):
        entry = other.scan(first)
        assert (entry.state, entry.checked_by) == ("checking", "Ada")
        assert other.next_scan("list").id != first.id
        with pytest.raises(LockTaken, match="Ada has scan00 open; take another"):
            other.lock(first, "Bob")
    other.lock(first, "Bob").release()


def test_silent_lock_is_free_by_the_clock_of_the_disk(make_campaign, monkeypatch):
    campaign = make_campaign(2)
    scan = campaign.scans()[0]
    old = campaign.lock(scan, "Ada")
    # The clock of this computer says nothing.
    monkeypatch.setattr("time.time", lambda: 4e9)
    assert campaign.scan(scan).state == "checking"
    os.utime(campaign.home(scan) / "lock", (1e9, 1e9))
    assert campaign.scan(scan).state == "open"
    new = campaign.lock(scan, "Bob")
    assert new.is_held
    assert not old.beat()
    old.release()
    assert new.is_held


def test_later_and_left_out_scans_come_last_or_never(make_campaign):
    campaign = make_campaign(3)
    first, second, third = campaign.scans()
    campaign.later(first)
    campaign.leave_out(second)
    assert campaign.next_scan("list").id == third.id
    campaign.leave_out(third)
    assert campaign.next_scan("list").id == first.id
    assert campaign.take_in(second.id).state == "open"


def test_undoing_ones_own_decision_keeps_a_later_one_of_another_person(make_campaign):
    campaign = make_campaign(3)
    mine = campaign.leave_out(campaign.scans()[0])
    campaign.take_in(mine)
    campaign.leave_out(mine.id)
    with pytest.raises(CampaignConflict):
        campaign.take_in(mine)
    assert campaign.scan(mine.id).state == "left_out"


def test_moved_scan_of_two_channels_is_found_with_its_labels(tmp_path):
    for folder, seed in (("images", 0), ("other", 3)):
        (tmp_path / "lab" / folder).mkdir(parents=True)
        for channel in range(2):
            volume, labels = make_scan(seed + (channel if folder == "images" else 0))
            name = f"scan00_{channel:04d}.nii.gz" if folder == "images" else f"{channel}.nii.gz"
            write_volume_file(volume.array, volume, tmp_path / "lab" / folder / name)
    (tmp_path / "lab" / "labels").mkdir()
    write_labels(labels, volume, tmp_path / "lab" / "labels" / "scan00.nii.gz")
    campaign = Campaign.create(tmp_path / "campaign", [tmp_path / "lab"], ["outer", "inner"])
    scan = next(s for s in campaign.scans() if s.name == "scan00")
    assert (len(scan.images), scan.state) == (2, "labelled")
    (tmp_path / "lab" / "new").mkdir()
    for name in ("images", "labels"):
        shutil.move(tmp_path / "lab" / name, tmp_path / "lab" / "new" / name)
    assert [path.parent.parent.name for path in campaign.locate(scan)] == ["new", "new"]
    (label,) = campaign.label_paths(scan)
    assert label.is_file()
    second = campaign.locate(scan)[1]
    shutil.copyfile(tmp_path / "lab" / "other" / "0.nii.gz", second)
    with pytest.raises(PumitError, match="is not the scan that it was"):
        campaign.locate(scan)


@pytest.mark.parametrize("how", ["renumbered", "folders", "edited", "of an old campaign"])
def test_renamed_scans_keep_their_own_labels(make_campaign, tmp_path, how):
    campaign = make_campaign(3, 3)
    lab = tmp_path / "lab"
    for number in (1, 2):  # scan00 was withdrawn, and the names of the others move up
        for part in ("images", "labels"):
            name = f"scan{number - 1:02d}.nii.gz"
            place = (
                lab / part / str(number) if how == "folders" and part == "labels" else lab / part
            )
            place.mkdir(exist_ok=True)
            shutil.move(lab / part / f"scan{number:02d}.nii.gz", place / name)
    scan = campaign.scans()[1]
    if how in ("edited", "of an old campaign"):
        if how == "edited":
            volume, labels = make_scan(1)
            write_labels(labels // 2, volume, lab / "labels" / "scan00.nii.gz")
        else:  # it has no fingerprints of labels
            state = campaign.home(scan) / "state.json"
            content = json.loads(state.read_text("utf-8"))
            assert content.pop("given_marks")
            state.write_text(json.dumps(content), "utf-8")
        with pytest.raises(
            PumitError, match=r"its label scan01\.nii\.gz is not found or has changed"
        ):
            campaign.files(scan)
        return
    files = campaign.files(scan)
    assert files.images == (lab / "images" / "scan00.nii.gz",)
    masks = campaign.truth(scan, campaign.volume(scan))
    assert np.array_equal(masks["inner"], make_scan(1)[1] == 2)
    assert files.drawn == campaign.label_paths(scan)


def test_scan_that_is_gone_or_replaced_is_one_line(make_campaign):
    campaign = make_campaign(3)
    first, second, third = campaign.scans()
    shutil.copyfile(second.path, third.path)
    with pytest.raises(PumitError, match="scan02 is not the scan that it was"):
        campaign.files(third)
    first.path.unlink()
    with pytest.raises(PumitError, match="scan00 is not where it was"):
        campaign.files(first)


def test_campaign_and_scans_move_as_a_whole(make_campaign, tmp_path):
    make_campaign(2)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    shutil.move(tmp_path / "lab", moved / "lab")
    shutil.move(tmp_path / "campaign", moved / "campaign")
    campaign = Campaign.open(moved / "campaign")
    assert all(s.path.is_file() for s in campaign.scans())


def test_patients_are_guessed_from_paths_and_with_the_scans_that_are_there(tmp_path):
    def write(name: str, seed: int) -> Path:
        volume, _ = make_scan(seed)
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write_volume_file(volume.array, volume, tmp_path / name)
        return tmp_path / name

    for seed, name in enumerate(("case0/t1", "case0/t2", "case1/t1")):
        write(f"lab/{name}.nii.gz", seed)
    campaign = Campaign.create(tmp_path / "campaign", [tmp_path / "lab"], ["outer"])
    campaign.add_scans([write("lab/case1/t2.nii.gz", 3), write("lab/case2/t1.nii.gz", 4)])
    marks = {s.images[0].removeprefix("../lab/"): s.patient for s in campaign.scans()}
    assert marks["case0/t1.nii.gz"] == marks["case0/t2.nii.gz"]
    assert marks["case1/t1.nii.gz"] == marks["case1/t2.nii.gz"]
    assert len(set(marks.values())) == 3


def test_newer_campaign_is_refused_and_stays_as_it_is(make_campaign):
    campaign = make_campaign(1)
    file = campaign.folder / "campaign.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "format": 99}))
    before = file.read_bytes()
    with pytest.raises(PumitError, match=r"newer version of PUMIT \(format 99"):
        Campaign.open(campaign.folder)
    with pytest.raises(PumitError, match="newer version"):
        campaign.change_settings(train_after=5)
    assert file.read_bytes() == before


@pytest.mark.parametrize("number", [0, -1, 1.5, "1", True, None])
def test_campaign_of_no_format_is_one_line(make_campaign, number):
    """The first two ended in a KeyError."""
    file = make_campaign(1).folder / "campaign.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "format": number}))
    with pytest.raises(PumitError, match=r"^The campaign is damaged; take its file"):
        Campaign.open(file.parent)


def test_earlier_format_is_migrated_when_it_is_read(make_campaign, monkeypatch):
    campaign = make_campaign(1)
    monkeypatch.setattr("pumit.campaign.shared_file.FORMATS", {"campaign.json": 3, "state.json": 1})
    monkeypatch.setattr(
        "pumit.campaign.shared_file.MIGRATIONS",
        {("campaign.json", 2): lambda old: {**old, "name": "migrated"}},
    )
    assert Campaign.open(campaign.folder).name == "migrated"


@pytest.mark.parametrize("patients", [None, "scrypt"])
def test_campaign_of_before_keeps_its_marks_and_is_closed_to_version_0_3_when_changed(
    make_campaign, tmp_path, patients
):
    campaign = make_campaign(2)
    file = campaign.folder / "campaign.json"
    content = json.loads(file.read_text())
    assert content["format"] == 2  # 0.3.0, which would mark added patients otherwise, refuses it
    states = [json.loads(path.read_text()) for path in campaign.folder.glob("scans/*/state.json")]
    assert {state["format"] for state in states} == {1}  # 0.3.0 reads scans of campaigns of before
    content = {**content, "format": 1, "patients": patients}
    file.write_text(json.dumps(content))

    again = Campaign.open(campaign.folder)
    again.scans(), again.next_action()
    assert json.loads(file.read_text()) == content  # reading writes nothing
    again.change_settings(train_after=5)
    now = json.loads(file.read_text())
    assert now["format"] == 2
    assert now["patients"] == patients


@pytest.mark.parametrize("content", ["{", '{"format": 99}'])
def test_damaged_or_newer_state_hides_no_other_scan_and_is_not_written_over(make_campaign, content):
    campaign = make_campaign(2)
    first = campaign.scans()[0]
    state = campaign.home(first) / "state.json"
    state.write_text(content)
    again = Campaign.open(campaign.folder)
    found = {s.id: s for s in again.scans()}
    assert len(found) == 2
    assert "damaged" in found[first.id].word or "newer" in found[first.id].word
    for change in (again.take_in, again.later, lambda scan: again.accept(scan, None)):
        with pytest.raises(PumitError):
            change(first)
    assert state.read_text() == content


def test_folder_that_went_away_is_one_line(make_campaign):
    campaign = make_campaign(1)
    shutil.move(campaign.folder, campaign.folder.with_name("away"))
    with pytest.raises(PumitError, match="not there any more"):
        campaign.scans()


def test_the_button_says_what_is_next(make_campaign, truth_of):
    campaign = make_campaign(12, 2)
    assert campaign.next_action().sentence == "Open the next scan"
    for scan in campaign.scans()[2:4]:
        campaign.accept(scan, truth_of(scan))
    assert campaign.next_action().sentence == "Train on 4"
    campaign.draw_validation()
    kept = campaign.validation
    campaign.draw_validation()
    assert campaign.validation == kept  # drawn once
    assert len(kept.patients) == 2
    assert kept.is_rough
    trained = tuple(s.id for s in campaign.scans() if s.is_truth)
    first = TrainingRound(1, "finished", "rounds/1", trained, trained[:1], True, 0.8)
    campaign.save_round(replace(first, is_used=True, model="rounds/1/model.safetensors"))
    assert campaign.next_action().sentence == "Predict 6"
    for scan in campaign.scans_to_predict():
        assert scan.id not in kept.scans
        campaign.set_prediction(scan, number=1, word="check", expected={"outer": 0.7})
    assert campaign.next_action().sentence == "Open the next scan (for validation)"
    scan = campaign.next_scan("uncertain")
    campaign.accept(scan, truth_of(scan), clicks=9)
    assert campaign.next_action().sentence == "Check the next (7 left)"
    for _ in range(4):
        scan = campaign.next_scan("uncertain")
        campaign.accept(scan, truth_of(scan), clicks=4)
    assert not campaign.validation.is_rough
    assert campaign.next_action().sentence.startswith("Train again on ")
    second = TrainingRound(2, "finished", "rounds/2", trained, trained[:1], False, 0.9, 0.895)
    campaign.save_round(second)
    assert campaign.chart().sentence == "The last round brought +0.01: you can stop."
    assert campaign.next_action().kind == "stop"


def test_label_of_a_model_is_taken_once_it_is_reviewed(make_folder, truth_of, tmp_path):
    folder = make_folder(2)
    campaign = Campaign.create(tmp_path / "a", [folder], ["outer", "inner"])
    made = Algorithm("PUMIT hippo", "1", "AUTOMATIC")
    labels = {
        folder / "labels" / f"{s.name}.seg.nrrd": replace(truth_of(s), algorithm=made)
        for s in campaign.scans()
    }
    for path, segments in labels.items():
        write_segmentation(segments, path)
    campaign = Campaign.create(tmp_path / "b", [folder], ["outer", "inner"])
    before = campaign.scans()
    assert [(s.state, s.is_truth) for s in before] == [("predicted", False)] * 2
    assert "not reviewed" in before[0].word
    assert [p.name for p in campaign.files(before[0]).drawn] == ["scan00.seg.nrrd"]
    assert campaign.add_scans([folder]) == []
    assert campaign.scans() == before
    for path, segments in labels.items():
        write_seg_nrrd(segments, path, is_reviewed=True)

    def accept_too(what: str, share: float) -> None:
        if what == before[1].name:  # another person
            campaign.accept(before[1], None)

    problems = campaign.add_scans([folder], progress=accept_too)
    assert problems == ["Scans of the campaign have a label now: scan00."]
    assert [s.state for s in campaign.scans()] == ["labelled", "accepted"]
    assert campaign.scans()[0].word == ""


def test_campaign_without_classes_gets_them_from_what_is_drawn(make_campaign, truth_of, tmp_path):
    campaign = make_campaign(3, classes=[])
    first, _second, third = campaign.scans()
    campaign.accept(third, None)
    with pytest.raises(PumitError, match="has no classes"):
        export(campaign, "nnunet", tmp_path / "set")
    campaign.undo_accept(third.id)
    for name in ("outer", "inner"):
        with pytest.raises(PumitError, match=f"{name!r} is no class"):
            campaign.accept(first, truth_of(first))
        campaign.remember_name(name, name)
    campaign.accept(first, truth_of(first))
    assert [(c.name, c.value) for c in campaign.classes] == [("outer", 1), ("inner", 2)]
    with pytest.raises(PumitError, match="no class 'more'"):
        campaign.remember_name("more", "more")


@pytest.mark.parametrize("kind", ["file", "segments"])
def test_label_that_says_what_is_unknown_is_accepted_with_it(
    make_campaign, truth_of, tmp_path, kind
):
    campaign = make_campaign(2)
    scan = campaign.scans()[0]
    truth = truth_of(scan)
    unknown = np.zeros(truth.volume.shape, bool)
    unknown[:3] = True
    label: Any = replace(truth, segments=(*truth.segments, Segment("Ignore", unknown)))
    if kind == "file":
        write_seg_nrrd(label, tmp_path / "drawn.seg.nrrd")
        label = tmp_path / "drawn.seg.nrrd"
    home = campaign.home(scan)
    write_seg_nrrd(truth, home / "prediction.seg.nrrd")
    made = campaign.accept(scan, label)
    assert made.agreement == 1.0
    file = read_label_file(home / "label.seg.nrrd")
    (kept,) = [file.mask(s) for s in file.segments if s.name == "ignore"]
    assert np.array_equal(kept, unknown)


def test_copy_beside_a_scan_goes_when_its_acceptance_is_undone(make_campaign, truth_of):
    campaign = make_campaign(2, settings=CampaignSettings(copies_beside=True))
    for number, scan in enumerate(campaign.scans()):
        before = set(scan.path.parent.iterdir())
        campaign.accept(scan, truth_of(scan))
        (copy,) = set(scan.path.parent.iterdir()) - before
        if number:  # a person has changed it since
            copy.write_bytes(b"changed")
        campaign.undo_accept(scan.id)
        assert copy.exists() == bool(number)


def test_what_a_killed_acceptance_left_goes_with_a_later_command(make_campaign):
    """It stayed in the folder. Files that another computer may still write are kept."""
    campaign = make_campaign(1)
    home = campaign.home(campaign.scans()[0])
    names = ["half.seg.nrrd", ".accepted-0123456789ab.seg.nrrd", ".0123456789ab-draft.seg.nrrd"]
    for name in names:
        (home / name).write_bytes(b"")
        os.utime(home / name, (0, 0))
    now = ".accepted-ba9876543210.seg.nrrd"
    (home / now).write_bytes(b"")
    with working_alone(campaign.folder, "train"):
        pass
    assert {file.name for file in home.iterdir()} == {"half.seg.nrrd", now, "state.json"}
