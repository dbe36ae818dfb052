"""No patient is trained and validated on, and a split depends on nothing but names and seed."""

from typing import Any

import pytest
from pumit.errors import PumitError
from pumit.training.data.split import Split, guessed_pattern, matched_patients, split_cases
from pumit.training.recipes.labelled import LabelledData

NAMES = [f"p{i // 2}_{i % 2}" for i in range(20)]  # ten patients with two scans each


def divided(names: list[str], data: dict[str, Any], **more: Any) -> Split:
    return split_cases(names, LabelledData(**data), **more)


def test_share_of_the_patients_is_held_out():
    split = divided(NAMES, {"validation": 0.3, "patient": r"^p\d+"}, seed=4)
    assert len(split.validation) == 6
    assert {*split.training} | {*split.validation} == {*NAMES}
    patients = [
        {name.split("_")[0] for name in part} for part in (split.training, split.validation)
    ]
    assert not patients[0] & patients[1]
    assert split == divided(NAMES, {"validation": 0.3, "patient": "(p[0-9]+)_"}, seed=4)
    assert split != divided(NAMES, {"validation": 0.3, "patient": r"^p\d+"}, seed=5)


def test_folds_hold_out_every_case_once():
    folds = [divided(NAMES, {"fold": f"{k} of 4"}, seed=1).validation for k in range(1, 5)]
    assert sorted(name for fold in folds for name in fold) == sorted(NAMES)


def test_smaller_share_is_contained_in_a_larger_one():
    held = {"validation": ["p1_0", "p1_1"]}
    parts = [
        {*divided(NAMES, {**held, "share": share}, seed=2).training} for share in (0.2, 0.6, 1.0)
    ]
    assert [len(part) for part in parts] == [4, 10, 18]
    assert parts[0] < parts[1] < parts[2]


def test_the_only_case_is_validated_on_and_that_is_said():
    split = divided(["one"], {}, seed=0)
    assert split.training == split.validation == ("one",)
    assert "only case" in split.warnings[0]
    with pytest.raises(PumitError):
        divided(["one"], {"fold": "1 of 5"}, seed=0)
    split = divided(["a", "b"], {}, seed=0)
    assert len(split.training) == len(split.validation) == 1


@pytest.mark.parametrize("nobody", [0.0, []])
def test_all_can_be_trained_on(nobody):
    split = divided(NAMES, {"validation": nobody}, seed=0)
    assert split.training == tuple(sorted(NAMES))
    assert split.validation == ()
    assert "stays unknown" in split.warnings[-1]


def test_patients_that_the_data_tell_stay_together():
    names = [f"scan{i}" for i in range(8)]
    patient_of = {name: f"id{i // 2}" for i, name in enumerate(names)}
    split = divided(names, {"validation": 0.5}, seed=3, patients=patient_of)
    assert not {patient_of[n] for n in split.training} & {patient_of[n] for n in split.validation}
    assert len(split.validation) == 4
    assert not split.warnings


def test_patients_are_guessed_from_the_names_and_that_is_said():
    names = [f"acdc_patient{i:03d}_frame{f:02d}" for i in range(6) for f in (1, 12)]
    split = divided(names, {"validation": 0.34}, seed=0)
    assert len({n.split("_")[1] for n in split.validation}) == 2
    assert len(split.validation) == 4
    assert "6 patients are guessed" in split.warnings[0]
    assert "patient000 (acdc_patient000_frame01, acdc_patient000_frame12)" in split.warnings[0]


def test_patients_are_guessed_where_the_data_tell_only_some():
    names = ["a", "b", *(f"sub-{i}_ses-{j}" for i in range(4) for j in (1, 2))]
    split = divided(names, {"validation": 0.5}, seed=0, patients={"a": "x", "b": "x"})
    for side in (split.training, split.validation):
        assert ("a" in side) == ("b" in side)
        assert all((f"sub-{i}_ses-1" in side) == (f"sub-{i}_ses-2" in side) for i in range(4))
    (warning,) = split.warnings
    assert warning.startswith("4 patients are guessed from the names of 8 cases")


def test_patient_on_both_sides_is_reported_of():
    data = {"validation": ["p1_0"], "patient": r"^p\d+"}
    split = divided(NAMES, {**data, "training": ["p2_0", "p3_1"]}, seed=0)
    assert (split.training, split.validation) == (("p2_0", "p3_1"), ("p1_0",))
    (warning,) = divided(NAMES, data, seed=0).warnings
    assert warning == "p1_0, p1_1 are of one patient, trained and validated on"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"validation": ["p1_3"]}, "near: 'p1_1'"),
        ({"training": []}, "empty"),
        ({"validation": 1.0}, "from 0 to below 1"),
        ({"validation": ["p1_0"], "training": ["p1_0"]}, "trained and validated on"),
        ({"validation": NAMES}, "No case is left"),
        ({"validation": ["p1_0"], "fold": "1 of 2"}, "not both"),
        ({"fold": "3 of 2"}, "like '1 of 5'"),
        ({"fold": "1 of 50"}, "need 50 patients"),
        ({"patient": "("}, "no regular expression"),
        ({"patient": "q"}, "matches nothing in 'p0_0'"),
        ({"patient": "p"}, "same patient in all"),
        ({"share": 0.0}, "data.share"),
    ],
)
def test_impossible_split_is_refused(data, message):
    with pytest.raises(PumitError) as raised:
        divided(NAMES, data, seed=0)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("names", "patients"),
    [
        (["patient001_frame01", "patient001_frame12", "patient011_frame01"], 2),
        (["sub-01_ses-1_T1w", "sub-01_ses-2_T1w", "sub-02_ses-1_T1w"], 2),
        (["BraTS-GLI-00003-000", "BraTS-GLI-00003-001", "BraTS-GLI-00005-000"], 2),
        (["hip_12_left", "hip_12_right", "hip_7_left"], 2),
        (["a_visit1", "a_visit2", "b_visit1"], 2),
        (["p0_0", "p0_1", "p1_0"], 2),
        (["case0/t1", "case0/t2", "case1/t1"], 2),
        (["sub-01/ses-1/T1w", "sub-01/ses-2/T1w", "sub-02/ses-1/T1w"], 2),
        (["A/ct", "A/pet", "B/ct"], 2),
    ],
)
def test_several_scans_of_a_patient_are_found(names, patients):
    pattern = guessed_pattern(names)
    assert len(matched_patients(names, pattern)) == patients


def test_a_name_that_differs_keeps_no_others_apart():
    names = [f"p{i // 2}_{i % 2}" for i in range(12)]
    others = ["phantom", "x_visit1", "x_visit2", "y_visit1"]
    for more in ([], ["phantom"], others):
        split = divided([*names, *more], {"validation": 0.5}, seed=0)
        torn = {n[:3] for n in split.training if n in names}
        assert torn.isdisjoint(n[:3] for n in split.validation if n in names)
        assert "guessed" in split.warnings[0]


@pytest.mark.parametrize(
    "names",
    [
        ["case_0", "case_1", "case_2"],
        ["hippocampus_001", "hippocampus_004", "hippocampus_017"],
        ["liver_1", "liver_2", "spleen_1", "spleen_2"],
        ["patient1", "patient2", "patient3"],
        [f"site{s}_scan{i}" for s in range(2) for i in range(40)],
        ["a", "b"],
        ["imagesTr/a", "imagesTr/b", "imagesTs/c"],
        [f"{site}/scan{i:02d}" for site in "ab" for i in range(4)],
    ],
)
def test_names_that_show_no_patient_are_left_alone(names):
    assert guessed_pattern(names) is None
