"""Whatever goes wrong is one line, and no accepted label is lost."""

import errno
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pumit.campaign import Campaign, CampaignConflict
from pumit.errors import DiskFullError, PumitError, VolumeError
from pumit.export.labelmap import write_labels
from pumit.export.seg_nrrd import write_seg_nrrd
from pumit.export.volume_file import write_volume_file
from pumit.io.labels.label_file import read_label_file
from pumit.volume import Volume

Make = Callable[..., Campaign]


def one_line(error: BaseException) -> bool:
    return "\n" not in str(error)


def test_label_off_the_grid_is_refused(make_campaign, truth_of, tmp_path):
    campaign = make_campaign(2)
    scan = campaign.scans()[0]
    right = truth_of(scan)
    smaller = replace(right.volume, array=right.volume.array[1:])
    parts = tuple(replace(s, mask=s.mask[1:]) for s in right.segments)
    turned = right.volume.direction @ np.diag([-1.0, 1.0, 1.0])
    moved = replace(right, volume=replace(right.volume, origin_lps=(3, 0, 0)))
    for wrong in (
        replace(right, volume=smaller, segments=parts),
        replace(right, volume=replace(right.volume, direction=turned)),
        moved,
    ):
        with pytest.raises(VolumeError, match="cannot be accepted: it is off the image's grid"):
            campaign.accept(scan, wrong)
    far = replace(right.volume, origin_lps=(40, 0, 0))
    write_labels(right.segments[0].mask.astype(np.uint8), far, tmp_path / "off.nii.gz")
    with pytest.raises(VolumeError, match="cannot be accepted") as raised:
        campaign.accept(scan, tmp_path / "off.nii.gz")
    assert one_line(raised.value)
    assert campaign.scan(scan).state == "open"
    assert [f.name for f in campaign.home(scan).iterdir()] == ["state.json"]


def test_label_that_reaches_beyond_its_scan_is_refused(make_campaign, truth_of, tmp_path):
    campaign = make_campaign(2)
    scan = campaign.scans()[0]
    right = truth_of(scan)
    beyond = replace(right.volume, origin_lps=(8, 0, 0))
    write_seg_nrrd(replace(right, volume=beyond), tmp_path / "cut.seg.nrrd")
    with pytest.raises(VolumeError, match="labelled voxels are outside of the image"):
        campaign.accept(scan, tmp_path / "cut.seg.nrrd")
    nearly = replace(right.volume, origin_lps=(0.2, 0, 0))
    write_seg_nrrd(replace(right, volume=nearly), tmp_path / "off.seg.nrrd")
    assert campaign.accept(scan, tmp_path / "off.seg.nrrd").state == "accepted"
    (problem,) = campaign.problems
    assert "scan00: the grid of the segmentation is 0.20 voxels off" in problem


def test_label_with_the_name_of_another_scan_is_refused(make_campaign, truth_of, tmp_path):
    """Scans of one grid are alike, so a label of the wrong patient is known by its name alone."""
    campaign = make_campaign(2)
    first, second = campaign.scans()
    for name in ("scan01.nii.gz", "scan01_seg.nii.gz", "scan00.nii.gz"):
        write_labels(truth_of(second).segments[0].mask.astype(np.uint8), truth_of(first).volume,
                     tmp_path / name)  # fmt: skip
    for name in ("scan01.nii.gz", "scan01_seg.nii.gz"):
        with pytest.raises(VolumeError, match="the name of another scan, scan01") as raised:
            campaign.accept(first, tmp_path / name)
        assert one_line(raised.value)
    assert campaign.scan(first).state == "open"
    assert campaign.accept(first, tmp_path / "scan00.nii.gz").state == "accepted"


def test_two_segments_of_one_class_are_one_label(make_campaign, truth_of):
    campaign = make_campaign(2)
    campaign.remember_name("rest", "outer")
    scan = campaign.scans()[0]
    truth = truth_of(scan, ("outer", "rest"))
    campaign.accept(scan, truth)
    file = read_label_file(campaign.home(scan) / "label.seg.nrrd")
    (kept,) = (file.mask(s) for s in file.segments)
    assert np.array_equal(kept, truth.segments[0].mask | truth.segments[1].mask)


def test_scans_that_differ_only_in_the_middle_are_three_and_copies_are_told(tmp_path):
    folder = tmp_path / "lab"
    folder.mkdir()
    for number in range(3):
        array = np.zeros((60, 64, 64), np.int16)
        array[30, 30:34, 30:34] = 100 + number
        write_volume_file(array, Volume(array, (1.0, 1.0, 1.0)), folder / f"p{number}.nii")
    shutil.copyfile(folder / "p1.nii", folder / "again.nii")
    campaign = Campaign.create(tmp_path / "c", [folder], ["outer"])
    assert len(campaign.scans()) == 3
    assert campaign.problems == ["p1 is a copy of again and counts once."]
    shutil.copyfile(folder / "p0.nii", folder / "p2.nii")
    with pytest.raises(PumitError, match="p2 is not the scan that it was"):
        campaign.locate("p2")


def test_scan_that_cannot_be_read_is_one_line(make_campaign, make_folder):
    folder = make_folder(2, name="odd")
    (folder / "images" / "scan00.nii.gz").write_bytes(b"no scan" * 100)
    campaign = Campaign.create(folder.parent / "c", [folder], ["outer"])
    broken = next(s for s in campaign.scans() if s.name == "scan00")
    with pytest.raises(VolumeError, match=r"^scan00 cannot be read: ") as raised:
        campaign.volume(broken)
    assert one_line(raised.value)


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def no_room(*_: object) -> None:
    raise DiskFullError("The result cannot be written: the disk is full.")


@pytest.mark.parametrize(
    ("place", "failure"),
    [
        ("pumit.system.files._is_full", lambda folder: True),
        ("pumit.campaign.labels.shutil.copyfile", full),
        ("pumit.campaign.folder.write_shared", no_room),
    ],
    ids=["before", "copy of the label", "state"],
)
def test_full_disk_changes_nothing(make_campaign, truth_of, monkeypatch, place, failure):
    campaign = make_campaign(2)
    first, second = campaign.scans()
    accepted = campaign.accept(first, truth_of(first), "Ada")
    before = (campaign.home(first) / "label.seg.nrrd").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(place, failure)
        with pytest.raises(DiskFullError, match="disk is full") as raised:
            campaign.accept(accepted, None, "Bob")
        if failure is not full:  # of a scan without a label none is copied
            with pytest.raises(DiskFullError):
                campaign.accept(second, None)
            assert not (campaign.home(second) / "label.seg.nrrd").exists()
    assert one_line(raised.value)
    assert (campaign.home(first) / "label.seg.nrrd").read_bytes() == before
    assert campaign.scan(first).reviewer == "Ada"
    assert not list(campaign.home(first).glob(".accepted-*"))


@pytest.mark.parametrize("is_written", [False, True])
def test_label_and_state_stay_together_when_either_fails(
    make_campaign, truth_of, monkeypatch, is_written
):
    from pumit.campaign.shared_file import write_shared

    campaign = make_campaign(2)
    scan = campaign.accept(campaign.scans()[0], truth_of(campaign.scans()[0]), "Ada")
    label = campaign.home(scan) / "label.seg.nrrd"
    before = label.read_bytes()

    def fail(path: Path, content: dict) -> None:
        if is_written:
            write_shared(path, content)
        raise OSError(errno.EIO, "The share went away")

    monkeypatch.setattr("pumit.campaign.folder.write_shared", fail)
    with pytest.raises(OSError, match="went away"):
        campaign.accept(scan, None, "Bob")
    now = campaign.scan(scan.id)
    assert now.reviewer == ("Bob" if is_written else "Ada")
    assert (label.read_bytes() == before) != is_written
    with pytest.raises(OSError, match="went away"):
        campaign.undo_accept(now.id)
    assert (campaign.scan(scan.id).state == "accepted") == label.is_file() == (not is_written)


def test_of_many_acceptances_at_once_one_counts(make_campaign, truth_of):
    campaign = make_campaign(2)
    scan = campaign.scans()[0]
    ends: list[str] = []

    def accept(name: str) -> None:
        own = Campaign.open(campaign.folder)
        try:
            ends.append(own.accept(scan, truth_of(scan), name).reviewer)
        except CampaignConflict:
            ends.append("conflict")

    threads = [threading.Thread(target=accept, args=(f"p{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ends.count("conflict") == 3
    assert len(list(campaign.home(scan).glob("conflict-*"))) == 3


def test_clock_that_is_wrong_orders_nothing(make_campaign, truth_of, monkeypatch):
    campaign = make_campaign(2)
    first = campaign.scans()[0]
    accepted = campaign.accept(first, truth_of(first), "Ada")
    state = campaign.home(first) / "state.json"
    os.utime(state, (4e9, 4e9))
    again = Campaign.open(campaign.folder)
    made = again.accept(again.scan(first), None, "Bob")
    assert made.revision > accepted.revision
    assert campaign.scan(first).reviewer == "Bob"


def test_writer_that_was_killed_blocks_nobody_for_long(make_campaign, truth_of):
    campaign = make_campaign(2)
    scan = campaign.scans()[0]
    left = campaign.home(scan) / "state.json.writing"
    left.write_text("")
    os.utime(left, (1e9, 1e9))
    assert campaign.accept(scan, truth_of(scan)).state == "accepted"
    assert not left.exists()


def test_a_lock_that_does_not_fit_on_a_full_disk_blocks_no_one(
    make_campaign, truth_of, monkeypatch
):
    campaign = make_campaign(2)
    scan = campaign.scans()[0]

    monkeypatch.setattr("pumit.campaign.shared_file.json.dump", full)
    with pytest.raises(PumitError, match="No space left"):
        campaign.lock(scan)
    with pytest.raises(PumitError, match="No space left"):
        campaign.leave_out(scan)
    monkeypatch.undo()
    assert [f.name for f in campaign.home(scan).iterdir()] == ["state.json"]
    with campaign.lock(scan):
        assert campaign.scan(scan).state == "checking"


def test_a_lock_is_kept_through_a_full_disk(make_campaign, monkeypatch):
    """What is opened for writing is emptied, and then there is no room for it."""
    campaign = make_campaign(1)
    opened = Path.open

    def open_full(self: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        file = opened(self, mode, *arguments, **options)
        if "w" in mode:
            file.close()
            full()
        return file

    lock = campaign.lock(campaign.scans()[0])
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", open_full)
        assert lock.beat()
    assert lock.is_held
    lock.release()


def test_read_only_scans_are_labelled_all_the_same(make_campaign, truth_of):
    campaign = make_campaign(1)
    scan = campaign.scans()[0]
    scan.path.chmod(0o400)
    scan.path.parent.chmod(0o500)
    try:
        assert campaign.accept(scan, truth_of(scan)).state == "accepted"
    finally:
        scan.path.parent.chmod(0o700)


def test_campaign_that_is_none_or_there_already_is_one_line(make_campaign, tmp_path):
    campaign = make_campaign(1)
    with pytest.raises(PumitError, match="There is a campaign in 'campaign' already"):
        Campaign.create(campaign.folder, [tmp_path / "lab"])
    (tmp_path / "plain").mkdir()
    with pytest.raises(PumitError, match="There is no campaign in 'plain'"):
        Campaign.open(tmp_path / "plain")
    with pytest.raises(PumitError, match="There is no file or folder 'nowhere'"):
        Campaign.create(tmp_path / "new", [tmp_path / "nowhere"])
    assert not (tmp_path / "new").exists()


def test_two_classes_of_one_name_are_refused(make_folder, tmp_path):
    folder = make_folder(1)
    with pytest.raises(PumitError, match="share the name"):
        Campaign.create(tmp_path / "c", [folder], ["liver", "Liver"])
    with pytest.raises(PumitError, match="nonsense"):
        Campaign.create(tmp_path / "c", [folder], [{"name": "a", "terminology": "nonsense"}])


@pytest.mark.parametrize("name", ["ignore", "Unknown", "background"])
def test_class_that_means_no_class_is_refused(make_campaign, make_folder, tmp_path, name):
    """Segments of these names are unknown or background, so an accepted class would be lost."""
    campaign = make_campaign(2)
    words = f"{name!r} cannot be a class"
    with pytest.raises(PumitError, match=words):
        campaign.rename_class("outer", name)
    with pytest.raises(PumitError, match=words):
        campaign.remember_name(name, name)
    assert [c.name for c in campaign.classes] == ["outer", "inner"]
    with pytest.raises(PumitError, match=words):
        Campaign.create(tmp_path / "other", [make_folder(1, 0, "more")], [name])
    assert not (tmp_path / "other").exists()
