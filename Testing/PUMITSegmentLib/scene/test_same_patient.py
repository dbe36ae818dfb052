"""What is known of two scans: one patient in one position, two patients, or neither."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import slicer
from PUMITSegmentLib.scene.same_patient import kinship, vouch
from two_patients import FRAME, OTHER_FRAME, stateDicom

PLACEHOLDERS = [
    *(
        "",
        " ",
        "Anonymous",
        "ANONYMIZED^PATIENT",
        "anon",
        "0",
        "0000",
        "unknown",
        "UNKNOWN^",
        "N/A",
    ),
    *("none", "XXXX", "1", "123456", "PatientID", "de-identified", "No Name", "test"),
]


@pytest.fixture
def scans(scene: Any) -> list[Any]:
    return [
        slicer.util.addVolumeFromArray(np.zeros((2, 3, 4), np.int16), name=name)
        for name in ("First", "Second")
    ]


def relation(scans: list[Any]) -> str:
    there, back = kinship(*scans), kinship(*reversed(scans))
    assert there is back
    return there.name


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (("P-7710", FRAME), ("P-7710", FRAME), "SAME"),
        (("P-7710", FRAME), ("P-7710", OTHER_FRAME), "UNKNOWN"),
        (("P-7710", FRAME), ("P-7711", FRAME), "OTHER"),
        (("P-7710", FRAME), ("P-7711", ""), "OTHER"),
        (("P-7710", FRAME), ("", FRAME), "UNKNOWN"),
    ],
)
def test_dicom_decides(
    scans: list[Any], first: tuple[str, str], second: tuple[str, str], expected: str
) -> None:
    stateDicom(scans[0], *first)
    stateDicom(scans[1], *second)
    assert relation(scans) == expected


@pytest.mark.parametrize("text", PLACEHOLDERS)
def test_a_placeholder_states_nothing(scans: list[Any], text: str) -> None:
    for node in scans:
        stateDicom(node, text, FRAME)
    assert relation(scans) == "UNKNOWN"


def test_headers_in_the_database_are_asked_and_two_statements_are_none(
    scans: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stated = {"0010,0020": "P-7710", "0020,0052": FRAME}
    database = SimpleNamespace(isOpen=True, instanceValue=lambda uid, tag: stated.get(tag, ""))
    monkeypatch.setattr(slicer, "dicomDatabase", database, raising=False)
    for node in scans:
        node.SetAttribute("DICOM.instanceUIDs", "1.2.3.4 1.2.3.5")
    assert relation(scans) == "SAME"
    stateDicom(scans[1], "P-7711", FRAME)  # moved below another patient by hand
    assert relation(scans) == "UNKNOWN"


def test_the_word_of_the_user_is_saved_with_the_scene(scans: list[Any], tmp_path: Path) -> None:
    assert relation(scans) == "UNKNOWN"
    vouch(*scans)
    vouch(*scans)
    assert relation(scans) == "SAME"
    path = str(tmp_path / "scene.mrb")
    assert slicer.util.saveScene(path)
    slicer.mrmlScene.Clear()
    slicer.util.loadScene(path)
    assert relation([slicer.util.getNode(name) for name in ("First", "Second")]) == "SAME"


def test_the_word_of_the_user_does_not_join_two_patients(scans: list[Any]) -> None:
    vouch(*scans)
    stateDicom(scans[0], "P-7710", FRAME)
    stateDicom(scans[1], "P-7711", FRAME)
    assert relation(scans) == "OTHER"
