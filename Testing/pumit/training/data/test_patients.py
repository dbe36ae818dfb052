"""Patients are read off names where they show, and only there."""

from __future__ import annotations

import pytest
from pumit.training.data.split import guessed_pattern, matched_patients


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
def test_several_scans_of_a_patient_are_found(names: list[str], patients: int) -> None:
    pattern = guessed_pattern(names)
    assert pattern is not None
    assert len(matched_patients(names, pattern)) == patients


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
def test_names_that_show_no_patient_are_left_alone(names: list[str]) -> None:
    assert guessed_pattern(names) is None
