"""Segments are the classes whose names they have; overlaps and strangers are reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pumit.errors import VolumeError
from pumit.io.labels.label_file import LabelFile, LabelledSegment
from pumit.training.data.class_matching import class_indices, class_labels
from pumit.training.data.classes import classes_from
from pumit.volume import Volume

LAYER = np.array([[[0, 1, 2, 3]]], dtype=np.uint8)


def labels_of(segments: dict[str, int], classes: Any, layer: Any = LAYER) -> tuple[list[int], Any]:
    made = [LabelledSegment(value, 0, name) for name, value in segments.items()]
    found = class_labels(LabelFile(Volume(layer), tuple(made)), classes_from(classes))
    return found.labels.ravel().tolist(), found.doubts


def test_names_decide_whatever_the_values_are() -> None:
    classes = {"spleen": 1, "left kidney": 2, "tumour": 3}
    segments = {"Tumour ": 1, "Left_Kidney": 2, "SPLEEN": 3}
    assert labels_of(segments, classes) == ([0, 3, 2, 1], ())


def test_other_names_of_a_class_count() -> None:
    classes = [{"name": "liver", "segments": ["Leber", "foie"]}, {"name": "spleen"}]
    segments = {"leber": 1, "Milz": 3, "spleen": 2}
    found, doubts = labels_of(segments, classes)
    assert found == [0, 1, 2, 0]
    assert doubts == ("segments of no class, taken as background: Milz",)


def test_misspelt_name_is_reported_with_the_class_it_may_be() -> None:
    _, doubts = labels_of({"spleen": 1, "livr": 2, "Box": 3}, {"liver": 1, "spleen": 2})
    assert "livr (is it liver? name it under its segments), Box" in doubts[0]


def test_names_that_say_nothing_are_matched_by_value() -> None:
    found, doubts = labels_of({"Segment_1": 1, "liver": 2, "3": 3}, {"box": 1, "liver": 2, "x": 3})
    assert (found, doubts) == ([0, 1, 2, 3], ())


def test_names_that_no_class_knows_are_matched_by_value_and_told() -> None:
    found, doubts = labels_of(
        {"Leber": 1, "Milz": 2, "Niere": 3}, {"liver": 1, "spleen": 2, "k": 3}
    )
    assert found == [0, 1, 2, 3]
    assert "by their values: Leber as liver, Milz as spleen, Niere as k" in doubts[0]


def test_known_name_keeps_others_from_being_matched_by_value() -> None:
    """A liver must not be learnt as a spleen because both are 1."""
    found, doubts = labels_of({"Liver": 1, "Kidney": 2, "x": 3}, {"spleen": 1, "kidney": 2})
    assert found == [0, 0, 2, 0]
    assert "Liver" in doubts[0]


def test_overlap_goes_to_the_later_class_and_is_counted() -> None:
    layers = np.array([[[[1, 1, 1, 0]]], [[[0, 2, 2, 2]]]], dtype=np.uint8)
    segments = (LabelledSegment(1, 0, "tumour"), LabelledSegment(2, 1, "liver"))
    file = LabelFile(Volume(layers), segments)
    found = class_labels(file, classes_from({"liver": 1, "tumour": 2}))
    assert found.labels.ravel().tolist() == [2, 2, 2, 1]
    assert found.doubts == ("liver and tumour share 2 voxels, given to tumour",)


def test_regions_are_put_together_from_overlapping_segments() -> None:
    layers = np.array([[[[1, 1, 1, 0, 0]]], [[[0, 2, 2, 0, 2]]], [[[0, 0, 3, 0, 0]]]], np.uint8)
    names = ("Whole", "Core", "Enhancing")
    segments = tuple(LabelledSegment(i + 1, i, name) for i, name in enumerate(names))
    classes = classes_from({"whole": [1, 2, 3], "core": [2, 3], "enhancing": [3]})
    found = class_labels(LabelFile(Volume(layers), segments), classes)
    # The last voxel is core outside of the whole, which no value stands for.
    assert found.labels.ravel().tolist() == [1, 2, 3, 0, 2]
    assert "1 voxels lie in a combination of regions" in found.doubts[0]


def test_voxels_that_the_header_does_not_name_are_refused() -> None:
    with pytest.raises(VolumeError, match="names no segment for its values 2, 3"):
        labels_of({"liver": 1}, {"liver": 1})


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.float32])
def test_values_of_any_type_become_numbers_of_classes(dtype: Any) -> None:
    values = np.array([[[0, 205, 7]]]).astype(dtype)
    classes = classes_from({"a": 7, "b": 205})
    assert class_indices(values, classes).ravel().tolist() == [0, 2, 1]
    with pytest.raises(VolumeError, match="label values 7, 205"):
        class_indices(values, classes_from({"a": 1}))


def test_negative_value_is_no_class() -> None:
    with pytest.raises(VolumeError, match="label values -1"):
        class_indices(np.array([[[0, -1]]], dtype=np.int16), classes_from({"a": 1}))
