"""A class has a value, a region several; what cannot be meant is refused."""

import json

import numpy as np
import pytest
from pumit.errors import PumitError
from pumit.segmentation import ClassLabel
from pumit.training.data.classes import (
    ClassValue,
    base_values,
    classes_from,
    has_regions,
    region_table,
)
from pumit.training.data.dataset_json import read_dataset_json

BRATS = {"whole tumour": [1, 2, 4], "tumour core": [1, 4], "enhancing tumour": 4}


def test_ordinary_classes_have_one_value():
    classes = classes_from({"box": 7, "ball": 2})
    assert [(c.label.name, c.value, c.values) for c in classes] == [
        ("ball", 2, (2,)),
        ("box", 7, (7,)),
    ]
    assert classes[0] == ClassValue(2, ClassLabel("ball"))
    assert not has_regions(classes)
    assert base_values(classes) == (2, 7)
    np.testing.assert_array_equal(region_table(classes), [[0, 1, 0], [0, 0, 1]])
    assert classes[0].as_row() == {"name": "ball", "value": 2}


@pytest.mark.parametrize(
    "given", [BRATS, dict(reversed(BRATS.items()))], ids=["outermost first", "innermost first"]
)
def test_regions_come_before_those_within_them(given):
    classes = classes_from(given)
    assert has_regions(classes)
    assert {c.label.name: c.values for c in classes} == {
        "whole tumour": (1, 2, 4),
        "tumour core": (1, 4),
        "enhancing tumour": (4,),
    }
    assert [c.label.name for c in classes] == list(BRATS)
    assert base_values(classes) == (1, 2, 4)
    table = [[0, 1, 1, 1], [0, 1, 0, 1], [0, 0, 0, 1]]
    np.testing.assert_array_equal(region_table(classes), table)
    assert classes_from([c.as_row() for c in classes]) == classes
    # Those that only meet stay in their order.
    meeting = classes_from({"b": [2, 3], "a": [1, 2], "c": 1})
    assert [c.label.name for c in meeting] == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"a": [1, 2], "b": [2, 1]}, "share the value 1, 2"),
        ([{"name": "a", "values": [1, 2]}, {"name": "a", "value": 1}], "share the name a"),
        ([{"name": "a", "values": [1, 2], "value": 1}], "a value and values"),
        ({"a": [0, 1]}, "0 is the background"),
        ({"a": []}, "from 1 on"),
        ({"a": [1, 1]}, "different whole numbers"),
        ({"a": [1, "two"]}, "valid integer"),
        ({"a": [1.5, 2]}, "valid integer"),
        ([{"name": "a", "valus": [1, 2]}], "did you mean 'values'"),
        ({"a": list(range(1, 300))}, "1 to 254 classes, got 299"),
        ({f"c{i}": [i, i + 1] for i in range(1, 70)}, "64 regions at most, got 69"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_cannot_be_meant_is_refused(given, message):
    with pytest.raises(PumitError, match=message):
        classes_from(given)


def test_nnunet_regions_are_read(tmp_path):
    content = {
        "channel_names": {"0": "T1", "1": "T1ce", "2": "T2", "3": "FLAIR"},
        "labels": {"background": 0, "whole_tumor": [1, 2, 3], "core": [2, 3], "enhancing": [3]},
        "regions_class_order": [1, 2, 3],
        "file_ending": ".nii.gz",
    }
    for name in ("imagesTr/a_0000", "imagesTr/a_0001", "imagesTr/a_0002", "imagesTr/a_0003"):
        (tmp_path / "imagesTr").mkdir(exist_ok=True)
        (tmp_path / f"{name}.nii.gz").touch()
    (tmp_path / "labelsTr").mkdir()
    (tmp_path / "labelsTr" / "a.nii.gz").touch()
    (tmp_path / "dataset.json").write_text(json.dumps(content))
    found = read_dataset_json(tmp_path).data
    assert found.channels == ("T1", "T1ce", "T2", "FLAIR")
    assert [(c.label.name, c.values) for c in found.classes] == [
        ("whole_tumor", (1, 2, 3)),
        ("core", (2, 3)),
        ("enhancing", (3,)),
    ]
