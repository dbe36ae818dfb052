import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from pumit.errors import ExportError
from pumit.export.terminology import (
    SegmentTerminology,
    concept_for,
    known_names,
    serialize_terminology,
)
from pumit.segmentation import TISSUE, CodedConcept
from pydicom.sr._concepts_dict import concepts


def parts_of(meaning: SegmentTerminology) -> tuple[CodedConcept | None, ...]:
    return (
        meaning.category,
        meaning.type,
        meaning.type_modifier,
        meaning.anatomic_region,
        meaning.region_modifier,
    )


ORGAN, LESION = "Anatomical Structure", "Morphologically Altered Structure"


@pytest.mark.parametrize(
    ("text", "meanings"),
    [
        *((text, (ORGAN, "Liver")) for text in ("Liver", "SCT:10200004", "sct: 10200004")),
        *((text, (ORGAN, "Bladder")) for text in ("bladder", "urinary bladder")),
        *(
            (text, (ORGAN, "Kidney", "Left"))
            for text in ("left kidney", "Kidney left", "kidney_left", "KIDNEY-LEFT")
        ),
        ("left atrium", (ORGAN, "Left atrium")),
        ("left lung nodule", (LESION, "Nodule", None, "Lung", "Left")),
    ],
)
def test_a_name_or_code_means_a_structure_its_side_and_its_region(text, meanings):
    parts = parts_of(concept_for(text))
    assert tuple(p and p.meaning for p in parts) == (*meanings, *[None] * (5 - len(meanings)))


@pytest.mark.parametrize(
    ("text", "near"),
    [("livr", "liver"), ("kydney", "left kidney"), ("left liver", "liver"), ("oesofagus", "oeso")],
)
def test_unknown_name_is_answered_with_near_ones(text, near):
    with pytest.raises(ExportError, match=f"similar names: .*{near}"):
        concept_for(text)


@pytest.mark.parametrize("text", ["", "zzzz", "left right kidney", "SCT:1", "a~b", "~~~~~~", ":"])
def test_unusable_text_is_refused(text):
    with pytest.raises(ExportError):
        concept_for(text)
    with pytest.raises(ExportError, match=r"scheme\^code\^meaning"):
        concept_for("x~SCT^1~SCT^2^b~^^~y~^^~^^")


def test_every_name_survives_slicers_entry():
    concepts = {name: concept_for(name) for name in known_names()}
    assert len(concepts) > 100
    lost = [
        n
        for n, concept in concepts.items()
        if concept_for(serialize_terminology(concept)) != concept
    ]
    assert not lost


def test_entry_keeps_every_part():
    entry = "c~SCT^1^a~SCT^2^b~SCT^3^d~r~SCT^4^e~SCT^5^f"
    terminology = concept_for(entry)
    parts = parts_of(terminology)
    assert [p and p.value for p in parts] == ["1", "2", "3", "4", "5"]
    assert serialize_terminology(terminology).split("~")[1:4] == entry.split("~")[1:4]


def test_unnamed_segment_is_tissue():
    segment = SegmentTerminology().segment("1", np.ones((1, 1, 1), dtype=bool))
    assert segment.type == TISSUE
    assert "~SCT^85756007^Tissue~SCT^85756007^Tissue~^^~" in serialize_terminology(segment)


def test_codes_are_those_of_the_dicom_lists():
    spec = importlib.util.find_spec("trame_slicer")
    if spec is None or spec.origin is None:
        pytest.skip("Slicer's terminology lists are absent: pip install --no-deps trame-slicer")
    folder = Path(spec.origin).parent / "resources" / "terminologies"
    meanings: dict[str, set[str]] = {}
    for file in folder.glob("SegmentationCategory*.json"):
        for category in json.loads(file.read_text())["SegmentationCodes"]["Category"]:
            for kind in [category, *category["Type"]]:
                meanings.setdefault(kind["CodeValue"], set()).add(kind["CodeMeaning"].lower())
    # Those of the DICOM standard that Slicer's lists lack, as pydicom has them.
    for codes in concepts["SCT"].values():
        for value, (meaning, _) in codes.items():
            meanings.setdefault(value, set()).add(meaning.partition(" (")[0].lower())
    # SNOMED CT terms that both lack.
    elsewhere = {"74281007", "18234004", "52988006"}
    for name in known_names():
        terminology = concept_for(name)
        for concept in (terminology.category, terminology.type):
            if concept.value not in elsewhere:
                assert concept.meaning.lower() in meanings[concept.value]
