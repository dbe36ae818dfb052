"""A structure is found by its name, with the model that knows it, where it is."""

from dataclasses import replace
from typing import Any

import numpy as np
import pumit
import pytest
from known_networks import REGIONS
from own_models import ABDOMEN, KIDNEYS, RESTRICTED, add_model, ship_model, two_balls
from pumit.errors import (
    CheckpointError,
    ConsentNeeded,
    StructureError,
    UnfamiliarScan,
)
from pumit.export.dicom_series import write_dicom_series
from pumit.export.volume_file import write_volume_file
from pumit.inference.automatic.segmentation import load_automatic
from pumit.models.consent import accept
from pumit.structures import find as finding
from pumit.structures.find import Search, find_structure
from pumit.system.watch import Watch
from pumit.volume import Volume


@pytest.fixture(autouse=True)
def no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    """The familiarity score has its own test."""
    monkeypatch.setattr(finding, "unfamiliar", lambda *_a, **_k: "")


def test_one_call_finds_a_structure(tmp_path):
    model = add_model(tmp_path / "w", "organs", KIDNEYS)
    volume = two_balls()
    shares: list[float] = []
    found = pumit.find_structure(
        volume, "kidney right", device="cpu", watch=Watch(progress=shares.append)
    )
    truth = volume.array > 70
    assert (found.mask & truth).sum() > 0.95 * truth.sum()
    assert (found.mask & ~truth).sum() < 0.05 * truth.sum()
    assert (found.model, found.version, found.remarks) == (model, "3", ())
    (label,) = found.found.classes
    assert label.name == "Kidney right"
    assert "24028007" in label.terminology
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.parametrize("structure", ["kidney right", "everything"])
def test_a_model_that_is_less_certain_than_usual_says_so(tmp_path, structure):
    add_model(tmp_path / "w", "organs", KIDNEYS, expected_dice=[2.0] * len(KIDNEYS))
    found = pumit.find_structure(two_balls(), structure, device="cpu")
    assert "organs is less certain" in found.remarks[-1]
    assert found.found.remark == found.remarks[-1]


def test_both_sides_are_two_segments(tmp_path):
    """Friction 8: a report needs two, and "kidneys" gave one."""
    add_model(tmp_path / "w", "organs", KIDNEYS)
    found = find_structure(two_balls(), "kidneys", device="cpu")
    assert [label.name for label in found.found.classes] == ["Left kidney", "Right kidney"]
    assert found.found.mask(1)[5, 15, 15]
    assert found.found.mask(2)[10, 42, 44]
    assert found.mask[5, 15, 15]
    assert found.mask[10, 42, 44]


def test_only_what_is_needed_is_inspected_closely(tmp_path, monkeypatch):
    add_model(tmp_path / "w", "organs", KIDNEYS)
    passes: list[Any] = []
    whole = finding.InstalledModels.automatic

    def watched(self: Any, name: str) -> Any:
        segmenter = whole(self, name)

        class Watched:
            def segment(self, volume: Volume, **options: Any) -> Any:
                passes.append((options["roi_corners_lps"], options["overlap"]))
                return segmenter.segment(volume, **options)

        return Watched()

    monkeypatch.setattr(finding.InstalledModels, "automatic", watched)
    found = find_structure(two_balls(), "right kidney", device="cpu")
    assert found.mask.any()
    (first, coarse), (second, fine) = passes
    assert first is None
    assert coarse < fine
    index = two_balls().world_to_index(second)
    size = np.ptp(index, axis=0)
    assert (size[1:] < 45).all()  # not all of the 60 voxels


def test_everything_that_a_model_knows(tmp_path):
    add_model(tmp_path / "w", "organs", ABDOMEN)
    found = find_structure(two_balls(), "everything", device="cpu")
    assert [label.name for label in found.found.classes] == ["Leber", "my own thing"]
    assert "10200004" in found.found.classes[0].terminology
    add_model(tmp_path / "w", "others", KIDNEYS)
    with pytest.raises(StructureError, match="choose one of organs, others"):
        find_structure(two_balls(), "everything", device="cpu")
    found = find_structure(two_balls(), "everything", model="others", device="cpu")
    assert len(found.found.classes) == 2


def test_what_is_not_there_is_said(tmp_path):
    add_model(tmp_path / "w", "organs", KIDNEYS)
    dark = replace(two_balls(), array=two_balls().array / 10)
    found = find_structure(dark, "left kidney", device="cpu")
    assert not found.mask.any()
    assert "No left kidney found" in found.remarks[-1]


def test_a_model_of_another_modality_is_reported_before_it_runs(tmp_path):
    add_model(tmp_path / "w", "organs-mr", ABDOMEN)
    series = tmp_path / "series"
    volume = two_balls()
    write_dicom_series(replace(volume, array=volume.array.astype(np.int16)), series, patient_id="X")
    scan = Volume.read(series)
    with pytest.raises(StructureError, match=r"organs-mr .* MR, .* CT"):
        find_structure(scan, "my own thing", device="cpu")
    searches: list[Search] = []
    found = find_structure(
        scan, "my own thing", device="cpu", anyway=True, on_search=searches.append
    )
    assert found.mask.any()
    assert "was trained on MR" in searches[0].remarks[0]
    add_model(tmp_path / "w", "organs-ct", ABDOMEN)  # registered, it takes part at once
    assert find_structure(scan, "my own thing", device="cpu").model == "organs-ct"


def hounsfield(low: float) -> Volume:
    """A crop of a body: fat, soft tissue, and some voxels of a lowest value."""
    array = np.random.default_rng(0).normal(40, 15, (16, 60, 60)).astype(np.float32)
    array[:, :10] = -100
    array[0, 0, 0] = low
    return Volume(array, (2.0, 1.0, 1.0))


@pytest.mark.parametrize("low", [-1000.0, -140.0])
def test_hounsfield_units_tell_a_ct_with_air_or_without(low):
    assert finding.modality_of_scan(hounsfield(low)) == "CT"


@pytest.mark.parametrize("offset", [200.0, 1024.0])
def test_other_units_tell_nothing(offset):
    volume = hounsfield(-140.0)
    assert finding.modality_of_scan(replace(volume, array=volume.array + offset)) == ""


def test_on_an_odd_scan_no_model_runs_without_a_word(tmp_path, monkeypatch):
    add_model(tmp_path / "w", "organs", KIDNEYS)
    monkeypatch.undo()
    monkeypatch.setenv("PUMIT_MODELS", str(tmp_path / "models"))
    from known_networks import know_networks

    know_networks(monkeypatch)
    noise = np.random.default_rng(0).normal(50, 30, (16, 60, 60)).astype(np.float32)
    with pytest.raises(UnfamiliarScan, match=r"nfamiliar \(.* organs may be wrong on this scan"):
        find_structure(Volume(noise, (2.0, 1.0, 1.0)), "left kidney", device="cpu")
    volume = Volume(noise, (2.0, 1.0, 1.0))
    assert find_structure(volume, "left kidney", device="cpu", anyway=True).model == "organs"


def test_a_licence_is_requested_everywhere(tmp_path, own_index):
    ship_model(own_index, "organs-ct", KIDNEYS, RESTRICTED)
    with pytest.raises(StructureError, match="pumit models accept organs-ct"):
        find_structure(two_balls(), "left kidney", model="organs-ct", device="cpu")
    with pytest.raises(CheckpointError, match="pumit models accept organs-ct"):
        load_automatic("organs-ct", "cpu")
    accept("organs-ct")
    found = find_structure(two_balls(), "left kidney", model="organs-ct", device="cpu")
    assert found.licence == RESTRICTED


def test_consent_is_asked_for_the_model_that_suits_the_scan_alone(own_index):
    """F12: after "No" for the model of CT there was a second question, for that of MR."""
    for name in ("organs-ct", "organs-mr"):
        ship_model(own_index, name, ABDOMEN, RESTRICTED)
    with pytest.raises(ConsentNeeded) as caught:
        find_structure(two_balls(), "my own thing", modality="MR", device="cpu")
    assert "organs-mr" in str(caught.value)
    assert "organs-ct" not in str(caught.value)


@pytest.mark.parametrize("text", ["whole, core", "core, whole"])
def test_a_structure_within_another_one_takes_nothing_from_it(tmp_path, text):
    changes: dict[str, Any] = {"network": "nested", **REGIONS}
    add_model(tmp_path / "w", "regions", changes.pop("classes"), **changes)
    volume = two_balls()
    whole = find_structure(volume, "whole", device="cpu").mask
    core = find_structure(volume, "core", device="cpu").mask
    found = find_structure(volume, text, device="cpu").found
    numbers = {label.name: number for number, label in enumerate(found.classes, start=1)}
    assert (whole & core).any()
    assert np.array_equal(found.mask(numbers["Whole"]), whole)
    assert np.array_equal(found.mask(numbers["Core"]), core)
    # A label map has room for one of them: the inner one, which the model has last.
    assert np.array_equal(found.labels == numbers["Core"], core)


def test_a_structure_is_found_in_a_file(tmp_path):
    add_model(tmp_path / "w", "organs", KIDNEYS)
    volume = two_balls()
    write_volume_file(volume.array, volume, tmp_path / "scan.nii.gz")
    found = pumit.find_structure(tmp_path / "scan.nii.gz", "left kidney", device="cpu")
    assert found.mask[5, 15, 15]
