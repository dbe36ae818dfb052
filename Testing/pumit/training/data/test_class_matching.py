"""Segments are the classes whose names they have; overlaps and strangers are reported."""

from typing import Any

import numpy as np
import pytest
from pumit.errors import VolumeError
from pumit.io.labels.label_file import LabelFile, LabelledSegment
from pumit.training.data.class_matching import class_indices, class_labels
from pumit.training.data.classes import classes_from
from pumit.volume import Volume


def labels_of(segments: dict[str, int], classes: Any, *layers: list[int]) -> tuple[Any, Any]:
    """Classes and doubts of a row of voxels, whose segments lie in one layer or one in each."""
    made = [
        LabelledSegment(value, i if layers else 0, name)
        for i, (name, value) in enumerate(segments.items())
    ]
    voxels = np.array([[[row]] for row in layers] or [[[0, 1, 2, 3]]], dtype=np.uint8)
    found = class_labels(LabelFile(Volume(voxels), tuple(made)), classes_from(classes))
    return found.labels.ravel().tolist(), found.doubts


@pytest.mark.parametrize(
    ("segments", "classes", "found", "doubts"),
    [
        (  # names decide, whatever the values are
            {"Tumour ": 1, "Left_Kidney": 2, "SPLEEN": 3},
            {"spleen": 1, "left kidney": 2, "tumour": 3},
            [0, 3, 2, 1],
            [],
        ),
        (
            {"leber": 1, "Milz": 3, "spleen": 2},
            [{"name": "liver", "segments": ["Leber", "foie"]}, {"name": "spleen"}],
            [0, 1, 2, 0],
            ["segments of no class, taken as background: Milz"],
        ),
        (
            {"spleen": 1, "livr": 2, "Box": 3},
            {"liver": 1, "spleen": 2},
            [0, 2, 0, 0],
            ["livr (is it liver? name it under its segments), Box"],
        ),
        (  # names that say nothing
            {"Segment_1": 1, "liver": 2, "3": 3},
            {"box": 1, "liver": 2, "x": 3},
            [0, 1, 2, 3],
            [],
        ),
        (
            {"Leber": 1, "Milz": 2, "Niere": 3},
            {"liver": 1, "spleen": 2, "k": 3},
            [0, 1, 2, 3],
            ["by their values: Leber as liver, Milz as spleen, Niere as k"],
        ),
        (  # a liver must not be learnt as a spleen because both are 1
            {"Liver": 1, "Kidney": 2, "x": 3},
            {"spleen": 1, "kidney": 2},
            [0, 0, 2, 0],
            ["Liver"],
        ),
    ],
)
def test_names_come_before_values(segments, classes, found, doubts):
    labels, told = labels_of(segments, classes)
    assert labels == found
    assert len(told) == len(doubts)
    assert all(said in doubt for said, doubt in zip(doubts, told, strict=True))


def test_overlap_goes_to_the_later_class_and_is_counted():
    classes = {"liver": 1, "tumour": 2}
    found = labels_of({"tumour": 1, "liver": 2}, classes, [1, 1, 1, 0], [0, 2, 2, 2])
    assert found == ([2, 2, 2, 1], ("liver and tumour share 2 voxels, given to tumour",))


def test_regions_are_put_together_from_overlapping_segments():
    found, doubts = labels_of(
        {"Whole": 1, "Core": 2, "Enhancing": 3},
        {"whole": [1, 2, 3], "core": [2, 3], "enhancing": [3]},
        *([1, 1, 1, 0, 0], [0, 2, 2, 0, 2], [0, 0, 3, 0, 0]),
    )
    # The last voxel is core outside of the whole, which no value stands for.
    assert found == [1, 2, 3, 0, 2]
    assert "1 voxels lie in a combination of regions" in doubts[0]


def test_voxels_that_the_header_does_not_name_are_refused():
    with pytest.raises(VolumeError, match="names no segment for its values 2, 3"):
        labels_of({"liver": 1}, {"liver": 1})


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.float32])
def test_values_of_any_type_become_numbers_of_classes(dtype):
    values = np.array([[[0, 205, 7]]]).astype(dtype)
    classes = classes_from({"a": 7, "b": 205})
    assert class_indices(values, classes).ravel().tolist() == [0, 2, 1]
    with pytest.raises(VolumeError, match="label values 7, 205"):
        class_indices(values, classes_from({"a": 1}))
    with pytest.raises(VolumeError, match="label values -1"):
        class_indices(np.array([[[0, -1]]], dtype=np.int16), classes)
