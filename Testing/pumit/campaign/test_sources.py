"""Scans and labels are found in whatever folders labs have, and nothing is passed over silently."""

import gzip
import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK
from label_objects_made import write_bundle
from pumit.campaign import Campaign, TrainingRound
from pumit.campaign.exporting import export
from pumit.errors import PumitError, VolumeError
from pumit.export.labelmap import write_labels
from pumit.export.nifti import nifti_parts
from pumit.export.seg_nrrd import write_seg_nrrd
from pumit.export.volume_file import write_volume_file
from pumit.io.labels.label_file import read_label_file
from pumit.segmentation import Algorithm, Segment, Segmentation
from pumit.volume import Volume
from two_balls import make_scan


def write_scan(path: Path, number: int, label: Path | None = None) -> None:
    volume, labels = make_scan(number)
    for each in (path, *([label] if label else [])):
        each.parent.mkdir(parents=True, exist_ok=True)
    write_volume_file(volume.array, volume, path)
    if label is not None:
        write_labels(labels, volume, label)


def states(campaign: Campaign) -> dict[str, str]:
    return {scan.name: scan.state for scan in campaign.scans()}


def test_labels_beside_scans_of_a_tree_are_theirs(tmp_path):
    lab = tmp_path / "lab"
    for number in range(4):
        home = lab / f"site{number % 2}" / f"p{number}" / "mr"
        write_scan(home / "T1.nii.gz", number, home / "T1_seg.nii.gz" if number < 2 else None)
    campaign = Campaign.create(tmp_path / "c", [lab])
    assert states(campaign) == {
        "site0/p0/mr/T1": "labelled",
        "site0/p2/mr/T1": "open",
        "site1/p1/mr/T1": "labelled",
        "site1/p3/mr/T1": "open",
    }
    assert [c.value for c in campaign.classes] == [1, 2]
    assert campaign.problems == []


def test_a_loose_file_hides_no_scan_of_the_tree(tmp_path):
    lab = tmp_path / "lab"
    write_scan(lab / "x.nii.gz", 0, lab / "labels" / "x.nii.gz")
    write_scan(lab / "siteA" / "x.nii.gz", 1, lab / "siteA" / "x-label.nii.gz")
    write_scan(lab / "siteB" / "images" / "x.nii.gz", 2, lab / "siteB" / "masks" / "x.nii.gz")
    write_scan(lab / "siteC" / "y.nii.gz", 3)
    campaign = Campaign.create(tmp_path / "c", [lab])
    assert states(campaign) == {
        "x": "labelled",
        "siteA/x": "labelled",
        "siteB/images/x": "labelled",
        "y": "open",
    }


def test_scans_in_another_campaign_are_not_taken_for_a_labs(make_campaign, truth_of):
    campaign = make_campaign(3, labelled=1)
    scan = campaign.scans()[1]
    campaign.accept(scan, truth_of(scan))
    write_scan(campaign.folder / "scene" / "copy.nrrd", 7)
    other = Campaign.create(campaign.folder.parent / "other", [campaign.folder.parent])
    assert len(other.scans()) == 3


def data_set(
    folder: Path, labels: dict[str, Any], change: Any = None, first: int = 0, **more: Any
) -> Path:
    """Make a data set of nnU-Net, two of its three scans labelled, the scans from a number on."""
    for number in range(3):
        write_scan(folder / "imagesTr" / f"s{number}_0000.nii.gz", first + number)
        volume, values = make_scan(number)
        if number < 2:
            (folder / "labelsTr").mkdir(exist_ok=True)
            values = values if change is None else change(values)
            write_labels(values, volume, folder / "labelsTr" / f"s{number}.nii.gz")
    content = {"channel_names": {"0": "CT"}, "labels": labels, "file_ending": ".nii.gz", **more}
    (folder / "dataset.json").write_text(json.dumps({"numTraining": 2, **content}))
    return folder


def exported(campaign: Campaign, target: Path) -> tuple[dict[str, Any], np.ndarray]:
    """Export a data set; its dataset.json and first label map."""
    export(campaign, "nnunet", target)
    first = min((target / "labelsTr").iterdir())
    content = json.loads((target / "dataset.json").read_text())
    return content, read_label_file(first).volume.array


def blank(values: np.ndarray) -> np.ndarray:
    changed = values.copy()
    changed[:3] = 3
    return changed


def test_the_ignore_label_of_nnunet_is_unknown_everywhere(tmp_path):
    labels = {"background": 0, "outer": 1, "inner": 2, "ignore": 3}
    campaign = Campaign.create(tmp_path / "c", [data_set(tmp_path / "d", labels, blank)])
    assert [c.name for c in campaign.classes] == ["outer", "inner"]
    assert campaign.unknown_names() == {}
    content, values = exported(campaign, tmp_path / "e")
    assert content["labels"] == labels
    assert (values[:3] == 3).all()
    again = Campaign.create(tmp_path / "again", [tmp_path / "e"])
    assert again.unknown_names() == {}
    volume, _ = make_scan(0)
    assert again.truth(again.scans()[0], volume)["ignore"][:3].all()


def test_a_class_of_several_values_has_all_of_them(tmp_path):
    labels = {"background": 0, "whole": [1, 2], "core": 2}
    more = {"regions_class_order": [1, 2]}
    campaign = Campaign.create(tmp_path / "c", [data_set(tmp_path / "d", labels, **more)])
    volume, values = make_scan(0)
    truth = campaign.truth(campaign.scans()[0], volume)
    assert np.array_equal(truth["whole"], values > 0)
    assert np.array_equal(truth["core"], values == 2)
    content, written = exported(campaign, tmp_path / "e")
    assert content["labels"] == labels
    assert content["regions_class_order"] == [1, 2]
    assert content["channel_names"] == {"0": "CT"}  # by which nnU-Net knows Hounsfield units
    assert np.array_equal(written, values)


def test_a_value_that_no_class_has_is_asked_about_once(tmp_path):
    labels = {"background": 0, "outer": 1}
    campaign = Campaign.create(tmp_path / "c", [data_set(tmp_path / "d", labels)])
    action = campaign.next_action()
    assert (action.kind, action.sentence) == ("name", "Say what '2' is (2 scans)")
    campaign.remember_name("2", "outer")
    assert campaign.unknown_names() == {}
    volume, values = make_scan(0)
    truth = campaign.truth(campaign.scans()[0], volume)
    assert np.array_equal(truth["outer"], values > 0)
    other = Campaign.create(tmp_path / "c2", [tmp_path / "d"])
    other.remember_name("2", None)
    truth = other.truth(other.scans()[0], volume)
    assert np.array_equal(truth["outer"], values == 1)


def test_what_a_data_set_says_was_drawn_is_kept(tmp_path):
    labels = {"background": 0, "outer": 1, "inner": 2}
    more: dict[str, Any] = {"drawn": {"s0": ["outer"]}, "known": "slices"}
    campaign = Campaign.create(tmp_path / "c", [data_set(tmp_path / "d", labels, **more)])
    first, second, third = campaign.scans()
    assert (first.drawn, first.known) == (("outer",), "slices")
    assert (second.drawn, second.known) == ((), "slices")
    assert (third.drawn, third.known) == ((), "all")
    made = campaign.accept(first, None)
    assert (made.drawn, made.known) == ((), "all")
    undone = campaign.undo_accept(made)
    assert (undone.drawn, undone.known) == (("outer",), "slices")
    # Accepting what was not drawn before does not make it background.
    volume, labels = campaign.volume(first), make_scan(0)[1]

    def drawing(*names: str) -> Segmentation:
        masks = {"outer": labels == 1, "inner": labels == 2}
        segments = tuple(Segment(name, masks[name]) for name in names)
        return Segmentation(volume, segments, Algorithm("PUMIT default", "1"))

    made = campaign.accept(first.id, drawing("outer"))
    assert (made.drawn, made.known) == (("outer",), "slices")
    assert campaign.accept(made.id, drawing("outer")).drawn == ("outer",)
    made = campaign.accept(first.id, drawing("outer", "inner"), known="all")
    assert (made.drawn, made.known) == ((), "all")


def test_a_class_that_a_named_label_lacks_is_unknown_in_it(tmp_path, truth_of):
    lab = tmp_path / "lab"
    for number in range(2):
        write_scan(lab / f"scan{number:02d}.nii.gz", number)
    campaign = Campaign.create(tmp_path / "c", [lab], ["outer", "inner"])
    for scan, names in zip(campaign.scans(), (("outer",), ("outer", "inner")), strict=True):
        found = truth_of(scan, names)
        write_seg_nrrd(found, lab / f"{scan.name}.seg.nrrd", is_reviewed=True)
    campaign = Campaign.create(tmp_path / "d", [lab], ["outer", "inner"])
    first, second = campaign.scans()
    assert (first.state, first.drawn) == ("labelled", ("outer",))
    assert (second.state, second.drawn) == ("labelled", ())
    content, values = exported(campaign, tmp_path / "e")
    assert content["labels"]["ignore"] == 3
    assert set(np.unique(values)) == {1, 3}


def test_a_class_can_be_renamed_and_stays_renamed(make_campaign, truth_of):
    campaign = make_campaign(3)
    scan = campaign.scans()[0]
    campaign.set_prediction(scan, number=0, word="good", expected={"outer": 0.9, "inner": 0.5})
    campaign.accept(scan.id, truth_of(scan), drawn=["outer"])
    campaign.rename_class("outer", "left atrium")
    now = campaign.scan(scan.id)
    assert now.drawn == ("left atrium",)
    assert set(now.expected) == {"left atrium", "inner"}
    volume, _ = make_scan(0)
    assert set(campaign.truth(now, volume)) == {"left atrium", "inner"}
    with pytest.raises(Exception, match="share the name 'inner'"):
        campaign.rename_class("left atrium", "Inner")


def test_a_second_spelling_joins_the_class_that_is_meant(tmp_path, truth_of):
    lab = tmp_path / "lab2"
    for number in range(2):
        write_scan(lab / f"scan{number:02d}.nii.gz", number)
    scans = Campaign.create(tmp_path / "c", [lab], ["outer"]).scans()
    for scan, inner in zip(scans, ("inner", "core"), strict=True):
        found = truth_of(scan, ("outer", inner))
        write_seg_nrrd(found, lab / f"{scan.name}.seg.nrrd", is_reviewed=True)
    campaign = Campaign.create(tmp_path / "d", [lab])
    assert [c.name for c in campaign.classes] == ["outer", "inner", "core"]
    campaign.remember_name("core", "inner")
    assert [c.name for c in campaign.classes] == ["outer", "inner"]
    assert [s.drawn for s in campaign.scans()] == [(), ()]  # else all background is unknown
    assert campaign.unknown_names() == {}
    assert set(campaign.truth(campaign.scans()[1], make_scan(1)[0])) == {"outer", "inner"}
    campaign.save_round(TrainingRound(1, "finished", "rounds/001"))
    with pytest.raises(PumitError, match="'inner' is a class that a training knows already"):
        campaign.remember_name("inner", "outer")


def test_a_label_that_cannot_be_exported_is_named(make_campaign, tmp_path):
    campaign = make_campaign(2, 2)
    volume, labels = make_scan(1)
    write_labels(
        labels[1:],
        replace(volume, array=volume.array[1:]),
        tmp_path / "lab" / "labels" / "scan01.nii.gz",
    )
    with pytest.raises(PumitError, match="scan01: the label map is off the image's grid"):
        export(campaign, "nnunet", tmp_path / "e")


def test_data_sets_that_name_values_differently_are_not_mixed_up(tmp_path):
    lab = tmp_path / "lab"
    data_set(lab / "Dataset001", {"background": 0, "outer": 1, "inner": 2})
    other = data_set(lab / "Dataset002", {"background": 0, "inner": 1, "rim": 2}, first=5)
    write_scan(other / "imagesTs" / "t_0000.nii.gz", 9, other / "labelsTs" / "t.nii.gz")
    campaign = Campaign.create(tmp_path / "c", [lab])
    assert [c.name for c in campaign.classes] == ["outer", "inner"]
    assert {k: len(v) for k, v in campaign.unknown_names().items()} == {"rim": 2}
    tested = next(s for s in campaign.scans() if s.name == "t")
    assert not tested.given_labels  # a test set's label is not learnt from
    campaign.remember_name("rim", "outer")
    scan = next(s for s in campaign.scans() if s.given_values)
    volume = campaign.volume(scan)
    values = read_label_file(campaign.label_paths(scan)[0]).volume.array
    truth = campaign.truth(scan, volume)
    assert np.array_equal(truth["inner"], values == 1)
    assert np.array_equal(truth["outer"], values == 2)
    (path,) = campaign.training_labels(scan)
    file = read_label_file(path)
    assert {s.name: int(file.mask(s).sum()) for s in file.segments} == {
        "outer": int((values == 2).sum()),
        "inner": int((values == 1).sum()),
    }


def test_all_label_files_of_a_scan_are_shown_and_accepted(tmp_path, truth_of):
    lab = tmp_path / "lab"
    home = lab / "site" / "a" / "ct"
    write_scan(home / "scan00.nii.gz", 0)
    begun = Campaign.create(tmp_path / "b", [lab], ["outer", "inner"])
    whole = truth_of(begun.scans()[0])
    for segment in whole.segments:
        one = replace(whole, segments=(segment,))
        name = {"outer": "scan00", "inner": "scan00_label"}[segment.name]
        write_seg_nrrd(one, home / f"{name}.seg.nrrd", is_reviewed=True)
    (home / "scan00_label.seg.nrrd").rename(home / "scan00-label.nrrd")
    campaign = Campaign.create(tmp_path / "c", [lab], ["outer", "inner"])
    (scan,) = campaign.scans()
    files = campaign.files(scan)
    assert (len(files.drawn), scan.drawn) == (2, ())
    made = campaign.accept(scan, files.drawn)
    volume = campaign.volume(made)
    assert set(campaign.truth(made, volume)) == {"outer", "inner"}


def test_two_people_who_change_a_campaign_at_once_lose_nothing(tmp_path):
    write_scan(tmp_path / "lab" / "a.nii.gz", 0)
    one = Campaign.create(tmp_path / "c", [tmp_path / "lab"], ["outer", "inner"])
    other = Campaign.open(one.folder)
    one.remember_name("x", "outer")
    other.remember_name("y", "inner")
    one.remember_name("p", None)
    other.remember_name("q", None)
    one.change_settings(train_after=5)
    other.change_settings(copies_beside=True)
    now = Campaign.open(one.folder)
    assert [c.other_names for c in now.classes] == [("x",), ("y",)]
    assert now.ignored_names == ("p", "q")
    assert (now.settings.train_after, now.settings.copies_beside) == (5, True)


def test_labels_that_are_made_later_are_taken_where_no_person_has_worked(tmp_path):
    lab = tmp_path / "lab"
    for number, name in enumerate("abcdef"):
        write_scan(lab / "images" / f"{name}.nii.gz", number)
    campaign = Campaign.create(tmp_path / "c", [lab], ["outer", "inner"])
    ids = {scan.name: scan.id for scan in campaign.scans()}
    campaign.set_prediction(ids["b"], number=1, word="good", expected={"outer": 0.9})
    campaign.accept(ids["c"], None)
    campaign.later(ids["d"])
    for number, name in enumerate("abcdef"):
        write_scan(lab / "images" / f"{name}.nii.gz", number, lab / "labels" / f"{name}.nii.gz")
    campaign.save_draft(ids["f"], lab / "labels" / "f.nii.gz")
    with campaign.lock(ids["e"], "Ann"):
        campaign.add_scans([lab])
        expected = ("labelled", "labelled", "accepted", "later", "checking", "open")
        assert states(campaign) == dict(zip("abcdef", expected, strict=True))
    first, second = campaign.scans()[:2]
    assert (second.word, second.expected) == ("", {})
    assert np.array_equal(
        campaign.truth(first, campaign.volume(first))["inner"], make_scan(0)[1] == 2
    )
    campaign.add_scans([lab])
    assert states(campaign)["e"] == "labelled"
    assert campaign.scans()[0] == first


@pytest.mark.parametrize("suffix", [".nii.gz", ".nrrd", ".mha"])
def test_a_label_on_another_grid_is_told_and_taken_once_it_fits(tmp_path, suffix):
    lab = tmp_path / "lab"
    for number, name in enumerate("ab"):
        file = f"{name}{suffix}"
        write_scan(lab / "images" / file, number, lab / "labels" / file)
    volume, labels = make_scan(0)
    moved = replace(volume, array=volume.array, origin_lps=(30.0, 0.0, 0.0))
    write_labels(labels, moved, lab / "labels" / f"a{suffix}")
    campaign = Campaign.create(tmp_path / "c", [lab])
    assert states(campaign) == {"a": "open", "b": "labelled"}
    (problem,) = campaign.problems
    assert problem.startswith("a: its label cannot be used: the label map is off the image's grid")
    write_labels(labels, volume, lab / "labels" / f"a{suffix}")
    assert campaign.add_scans([lab]) == ["Scans of the campaign have a label now: a."]
    assert states(campaign) == {"a": "labelled", "b": "labelled"}


def test_a_cropped_label_is_taken_if_its_colour_table_names_every_value(tmp_path):
    lab = tmp_path / "lab"
    for number, name in enumerate("ab"):
        file = f"{name}.nii.gz"
        write_scan(lab / "images" / file, number, lab / "labels" / file)
        volume, labels = make_scan(number)
        cropped = replace(volume, array=volume.array[:-1])
        write_labels(labels[:-1], cropped, lab / "labels" / file)
    (lab / "labels" / "a_ColorTable.ctbl").write_text("1 outer\n2 inner\n")
    (lab / "labels" / "b_ColorTable.ctbl").write_text("1 outer\n")
    campaign = Campaign.create(tmp_path / "c", [lab])
    assert states(campaign) == {"a": "labelled", "b": "open"}
    (problem,) = campaign.problems
    assert problem.startswith("b: its label cannot be used: The colour table")
    assert set(campaign.truth(campaign.scans()[0], make_scan(0)[0])) == {"outer", "inner"}


def test_what_another_person_does_while_scans_are_added_stays(tmp_path):
    more = tmp_path / "more"
    write_scan(tmp_path / "lab" / "a.nii.gz", 0)
    for number, name in enumerate("de", start=3):
        write_scan(more / f"{name}.nii.gz", number)
    campaign = Campaign.create(tmp_path / "c", [tmp_path / "lab"], ["outer", "inner"])

    def work_too(what: str, share: float) -> None:
        if what == "e":
            other = Campaign.open(campaign.folder)
            other.rename_class("outer", "organ")
            other.add_scans([more])
            other.accept("d", None)

    campaign.add_scans([more], progress=work_too)
    assert states(campaign) == {"a": "open", "d": "accepted", "e": "open"}
    assert [c.name for c in campaign.classes] == ["organ", "inner"]


def test_no_class_takes_the_former_name_of_another(make_campaign):
    campaign = make_campaign(2)
    campaign.rename_class("outer", "organ")
    with pytest.raises(PumitError, match="'Outer' is another name of 'organ'"):
        campaign.rename_class("inner", "Outer")
    campaign.rename_class("organ", "outer")
    assert [c.name for c in campaign.classes] == ["outer", "inner"]


def test_no_scan_gets_the_label_of_another_patient(tmp_path):
    lab = tmp_path / "lab"
    write_scan(lab / "images" / "p1" / "mr.nii.gz", 1, lab / "labels" / "p1" / "mr.nii.gz")
    write_scan(lab / "images" / "p2" / "ct.nii.gz", 2)
    write_scan(tmp_path / "gone.nii.gz", 3, lab / "labels" / "p3" / "ct.nii.gz")
    write_scan(lab / "images" / "a.nii.gz", 4, lab / "labels" / "predictions" / "a.nii.gz")
    write_scan(lab / "images" / "b.nii.gz", 5, lab / "predictions" / "b.nii.gz")
    write_scan(lab / "images" / "t.nii.gz", 6, lab / "labels" / "labelsTs" / "t.nii.gz")
    campaign = Campaign.create(tmp_path / "c", [lab])
    expected = {"mr": "labelled", **dict.fromkeys(("ct", "a", "b", "t"), "open")}
    assert states(campaign) == expected
    # Both folders may be given one by one.
    again = Campaign.create(tmp_path / "d", [lab / "images", lab / "labels"])
    assert states(again)["mr"] == "labelled"
    words = "is a label for which no scan is left and is not used."
    unused = "is a test label or a prediction and is not used."
    assert set(campaign.problems) == {
        f"labels/p3/ct {words}",
        f"labels/predictions/a {unused}",
        f"predictions/b {unused}",
        f"labels/labelsTs/t {unused}",
    }


def test_the_innermost_data_set_says_what_its_values_are(tmp_path):
    lab = data_set(tmp_path / "lab", {"background": 0, "outer": 1, "inner": 2})
    home = data_set(lab / "other", {"background": 0, "inner": 1, "outer": 2}) / "more"
    write_scan(home / "q.nii.gz", 20, home / "q_seg.nii.gz")
    campaign = Campaign.create(tmp_path / "c", [lab])
    assert campaign.scan("q").given_values == {"1": ["inner"], "2": ["outer"]}


def test_a_given_label_keeps_its_values_by_whichever_path_it_is_accepted(tmp_path, monkeypatch):
    folder = data_set(tmp_path / "lab", {"background": 0, "inner": 1, "outer": 2})
    campaign = Campaign.create(tmp_path / "c", [folder], ["outer", "inner"])
    first, second, _ = campaign.scans()
    monkeypatch.chdir(folder / "labelsTr")
    made = campaign.accept(first, Path("s0.nii.gz"))
    (tmp_path / "link").symlink_to(folder, target_is_directory=True)
    other = campaign.accept(second, str(tmp_path / "link" / "labelsTr" / "s1.nii.gz"))
    for scan, number in ((made, 0), (other, 1)):
        volume, values = make_scan(number)
        assert np.array_equal(campaign.truth(scan, volume)["inner"], values == 1)


def test_a_campaign_may_be_in_the_folder_of_its_scans(tmp_path, truth_of):
    lab = tmp_path / "lab"
    for number in range(2):
        write_scan(lab / "scans" / f"scan{number:02d}.nii.gz", number)
    campaign = Campaign.create(lab, [lab], ["outer", "inner"])
    assert states(campaign) == {"scan00": "open", "scan01": "open"}
    scan = campaign.scans()[0]
    campaign.accept(scan, truth_of(scan))
    write_scan(lab / "rounds" / "001" / "picture.nii.gz", 5)
    write_scan(lab / "scan02.nii.gz", 2)
    assert campaign.add_scans([lab]) == []
    assert [s.name for s in campaign.scans()] == ["scan00", "scan01", "scan02"]


def test_a_class_that_a_data_set_does_not_name_is_unknown_in_it(tmp_path):
    data_set(tmp_path / "lab" / "d1", {"background": 0, "outer": 1, "inner": 2})
    other = tmp_path / "lab" / "d2"
    data_set(other, {"background": 0, "inner": 2}, lambda values: values // 2 * 2, first=5)
    campaign = Campaign.create(tmp_path / "c", [tmp_path / "lab"])
    drawn = {Path(s.images[0]).parts[-3]: s.drawn for s in campaign.scans() if s.given_labels}
    assert drawn == {"d1": (), "d2": ("inner",)}
    campaign.rename_class("inner", "core")
    assert campaign.scans()[2].drawn == ("core",)


def test_a_label_of_other_structures_tells_nothing_of_the_classes(tmp_path, truth_of):
    lab = tmp_path / "lab"
    for number in range(2):
        write_scan(lab / f"scan{number:02d}.nii.gz", number)
    begun = Campaign.create(tmp_path / "b", [lab], ["outer"])
    found = truth_of(begun.scans()[0], ["vessel"])
    write_seg_nrrd(found, lab / "scan00.seg.nrrd", is_reviewed=True)
    campaign = Campaign.create(tmp_path / "c", [lab], ["outer"])
    campaign.remember_name("vessel", None)
    content, values = exported(campaign, tmp_path / "e")
    assert content["labels"]["ignore"] == 2
    assert set(np.unique(values)) == {2}


@pytest.mark.parametrize(
    ("labels", "order"),
    [
        ({"background": 0, "core": 2, "whole": [1, 2]}, [2, 1]),
        ({"background": 0, "whole": [1, 2], "rest": [2, 3]}, [1, 3]),
    ],
)
def test_overlapping_classes_keep_their_values_in_any_order(tmp_path, labels, order):
    def change(values: np.ndarray) -> np.ndarray:
        return blank(values) if "rest" in labels else values

    more = {"regions_class_order": order}
    folder = data_set(tmp_path / "d", labels, change, **more)
    campaign = Campaign.create(tmp_path / "c", [folder])
    content, values = exported(campaign, tmp_path / "e")
    assert np.array_equal(values, change(make_scan(0)[1]))
    names = [name for name in content["labels"] if name != "background"]
    assert names.index("whole") < names.index("core" if "core" in labels else "rest")


@pytest.mark.parametrize("suffix", [".mhd", ".nhdr"])
def test_scans_with_the_same_detached_header_are_two(tmp_path, suffix):
    for number in range(2):
        folder = tmp_path / "lab" / f"p{number}"
        folder.mkdir(parents=True)
        image = SimpleITK.GetImageFromArray(make_scan(number)[0].array)
        SimpleITK.WriteImage(image, str(folder / f"ct{suffix}"))
    one, other = (tmp_path / "lab" / f"p{number}" for number in range(2))
    assert (one / f"ct{suffix}").read_bytes() == (other / f"ct{suffix}").read_bytes()
    campaign = Campaign.create(tmp_path / "c", [tmp_path / "lab"], ["ball"])
    assert [scan.name for scan in campaign.scans()] == ["p0/ct", "p1/ct"]
    assert campaign.problems == []
    for file in other.iterdir():
        file.replace(one / file.name)
    with pytest.raises(VolumeError, match="p0/ct is not the scan that it was"):
        campaign.locate("p0/ct")


def test_an_exported_image_is_on_the_grid_of_its_label_and_names_no_patient(tmp_path):
    folder = tmp_path / "lab"
    folder.mkdir()
    volume, _ = make_scan(0)
    head, *slices = nifti_parts(volume.array, volume, note="PAT^NAME")
    sheared = bytearray(head)
    struct.pack_into("<f", sheared, 280 + 16 + 8, volume.spacing_mm[0] / 4)  # a gantry tilt
    with (
        (folder / "a.nii.gz").open("wb") as packed,
        gzip.GzipFile("PATNAME.nii", "wb", fileobj=packed) as file,
    ):
        file.write(bytes(sheared) + b"".join(slices))
    campaign = Campaign.create(tmp_path / "c", [folder], ["ball"])
    scan = campaign.scans()[0]
    volume = campaign.volume(scan)
    ball = Segment("ball", np.ones(volume.shape, bool))
    campaign.accept(scan, Segmentation(volume, (ball,), Algorithm("PUMIT default", "1")))
    export(campaign, "nnunet", tmp_path / "e")
    image = tmp_path / "e" / "imagesTr" / "c_001_0000.nii.gz"
    assert Volume.read(image).shape == Volume.read(tmp_path / "e/labelsTr/c_001.nii.gz").shape
    assert b"PATNAME" not in image.read_bytes()
    assert b"PAT^NAME" not in gzip.decompress(image.read_bytes())


def test_a_part_of_a_class_that_was_not_drawn_is_unknown_in_an_export(tmp_path):
    labels = {"background": 0, "whole": [1, 2], "core": 2}
    more = {"regions_class_order": [1, 2], "drawn": {"s0": ["whole"], "s1": ["core"]}}
    campaign = Campaign.create(tmp_path / "c", [data_set(tmp_path / "d", labels, **more)])
    content, values = exported(campaign, tmp_path / "e")
    assert content["labels"]["ignore"] == 3
    assert set(np.unique(values)) == {3}  # its whole may be of the core or not


def test_the_background_of_annotated_slices_is_known_in_an_export(tmp_path):
    labels = {"background": 0, "outer": 1, "inner": 2}

    def sparse(values: np.ndarray) -> np.ndarray:
        return np.where(np.arange(len(values))[:, None, None] % 2 > 0, np.uint8(0), values)

    folder = data_set(tmp_path / "d", labels, sparse, known="slices")
    content, values = exported(Campaign.create(tmp_path / "c", [folder]), tmp_path / "e")
    truth = sparse(make_scan(0)[1])
    is_annotated = truth.any(axis=(1, 2))
    assert content["labels"]["ignore"] == 3
    assert np.array_equal(values[is_annotated], truth[is_annotated])
    assert np.all(values[~is_annotated] == 3)


def test_values_of_a_lab_are_exported_without_gaps_and_not_cut_off(tmp_path):
    labels = {"background": 0, "outer": 420, "inner": 550}
    table = np.array([0, 420, 550], np.uint16)
    folder = data_set(tmp_path / "d", labels, lambda values: table[values], known="slices")
    campaign = Campaign.create(tmp_path / "c", [folder])
    content, values = exported(campaign, tmp_path / "e")
    assert content["labels"] == {"background": 0, "outer": 1, "inner": 2, "ignore": 3}
    truth = make_scan(0)[1]
    assert np.array_equal(np.where(values == 3, 0, values), truth)
    export(campaign, "msd", tmp_path / "m")
    content = json.loads((tmp_path / "m" / "dataset.json").read_text())
    assert content["labels"] == {"0": "background", "420": "outer", "550": "inner", "551": "ignore"}
    values = read_label_file(min((tmp_path / "m" / "labelsTr").iterdir())).volume.array
    assert np.array_equal(np.where(values == 551, 0, values), table[truth])


def test_channels_are_named_only_where_all_data_sets_name_them_so(tmp_path):
    labels = {"background": 0, "outer": 1, "inner": 2}
    ct = data_set(tmp_path / "lab" / "ct", labels)
    data_set(tmp_path / "lab" / ".snapshot" / "ct", labels, first=7, channel_names={"0": "MR"})
    one = Campaign.create(tmp_path / "one", [tmp_path / "lab"])
    assert one.channels == ("CT",)
    assert len(one.scans()) == 3  # none of the hidden folder
    mr = data_set(tmp_path / "lab" / "mr", labels, first=5, channel_names={"0": "MR"})
    write_scan(tmp_path / "plain" / "a.nii.gz", 9)
    both = Campaign.create(tmp_path / "both", [tmp_path / "lab"])
    later = Campaign.create(tmp_path / "later", [ct])
    assert later.channels == ("CT",)
    later.add_scans([mr])
    unnamed = Campaign.create(tmp_path / "unnamed", [tmp_path / "plain"], ["outer", "inner"])
    unnamed.add_scans([ct])
    assert both.channels == later.channels == unnamed.channels == ()


def test_a_second_label_of_a_scan_is_no_scan(tmp_path):
    lab = tmp_path / "lab"
    for number in range(2):
        write_scan(lab / f"s{number}.nii.gz", number, lab / f"s{number}_seg.nii.gz")
    write_scan(lab / "s0.nii.gz", 0, lab / "s0_label.nii.gz")
    campaign = Campaign.create(tmp_path / "c", [lab])
    assert states(campaign) == {"s0": "labelled", "s1": "labelled"}
    assert [Path(s.given_labels[0]).name for s in campaign.scans()] == [
        "s0_seg.nii.gz",
        "s1_seg.nii.gz",
    ]
    words = "s0_label is a label for which no scan is left and is not used."
    assert campaign.problems == [words]


def test_values_that_a_damaged_data_set_cannot_name_are_of_no_class(tmp_path):
    data_set(tmp_path / "lab" / "d1", {"background": 0, "outer": 1, "inner": 2})
    other = data_set(tmp_path / "lab" / "d2", {"background": 0, "inner": 1, "outer": 2}, first=5)
    (other / "dataset.json").write_text("{")
    campaign = Campaign.create(tmp_path / "c", [tmp_path / "lab"])
    found = [Path(s.images[0]).parts[-3] for s in campaign.scans() if s.given_labels]
    assert (found, len(campaign.scans())) == (["d1", "d1"], 6)
    assert "dataset.json cannot be used" in campaign.problems[0]


def test_a_scan_in_a_slicer_scene_is_told_and_not_taken(tmp_path):
    lab = tmp_path / "lab"
    lab.mkdir()
    write_scan(lab / "b.nii.gz", 1)
    volume, labels = make_scan(0)
    write_volume_file(volume.array, volume, tmp_path / "scan.nrrd")
    segments = (Segment("outer", labels > 0),)
    write_seg_nrrd(Segmentation(volume, segments, Algorithm("a", "1")), tmp_path / "s.seg.nrrd")
    write_bundle(lab / "a.mrb", tmp_path / "scan.nrrd", tmp_path / "s.seg.nrrd")
    campaign = Campaign.create(tmp_path / "c", [lab])
    assert states(campaign) == {"b": "open"}
    assert [p.partition(";")[0] for p in campaign.problems] == [
        "a is in a Slicer scene and is not used"
    ]


def test_photographs_are_exported_with_a_thickness_that_other_programs_accept(tmp_path):
    pixels = np.zeros((24, 32, 3), np.uint8)
    pixels[4:12, 6:20] = 200
    (tmp_path / "scans").mkdir()
    SimpleITK.WriteImage(
        SimpleITK.GetImageFromArray(pixels, isVector=True), str(tmp_path / "scans" / "a.png")
    )
    campaign = Campaign.create(tmp_path / "c", [tmp_path / "scans"], ["spot"])
    (scan,) = campaign.scans()
    volume = campaign.volume(scan)
    spot = Segment("spot", volume.array[0] > 0)
    campaign.accept(scan, Segmentation(volume, (spot,), Algorithm("A", "1")))
    export(campaign, "msd", tmp_path / "m")
    (image,) = (tmp_path / "m" / "imagesTr").iterdir()
    assert SimpleITK.ReadImage(str(image)).GetSpacing() == (1.0, 1.0, 1.0, 1.0)
