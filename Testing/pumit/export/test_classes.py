"""Classes of an automatic answer become segments with their own codes and colours."""

import numpy as np
import pytest
from pumit.errors import ExportError
from pumit.export.classes import class_terminology, distinct_color, segments_of
from pumit.segmentation import TISSUE, ClassLabel, LabelMap


def test_a_class_is_coded_by_its_terminology_or_its_name():
    classes = [
        ClassLabel("Structure of interest", "SCT:10200004"),
        ClassLabel("left_kidney"),
        ClassLabel("Region 7", "no such thing"),
    ]
    liver, kidney, unknown = class_terminology(classes)
    assert liver.type.meaning == "Liver"
    assert kidney.type.meaning == "Kidney"
    assert kidney.type_modifier.meaning == "Left"
    assert unknown.type == TISSUE


def test_colours_differ_unless_the_model_chose_them():
    named = [
        ClassLabel("left kidney"),
        ClassLabel("right kidney"),
        ClassLabel("a"),
        ClassLabel("b"),
    ]
    colors = [meaning.color_rgb for meaning in class_terminology(named)]
    assert len(set(colors)) == 4
    chosen = [ClassLabel("a", color_rgb=(1, 0, 0)), ClassLabel("b", color_rgb=(1, 0, 0))]
    assert [m.color_rgb for m in class_terminology(chosen)] == [(1, 0, 0)] * 2
    many = {tuple(round(c, 2) for c in distinct_color(i)) for i in range(100)}
    assert len(many) > 95


def test_classes_that_do_not_occur_are_left_out_and_names_differ():
    labels = np.zeros((2, 3, 4), dtype=np.uint8)
    labels[0], labels[1, 0] = 1, 3
    answer = LabelMap(labels, (ClassLabel("spot"), ClassLabel("liver"), ClassLabel("spot")))
    first, second = segments_of(answer)
    assert (first.name, second.name) == ("spot", "spot 2")
    np.testing.assert_array_equal(second.mask, labels == 3)
    with pytest.raises(ExportError, match="finds nothing"):
        segments_of(LabelMap(np.zeros_like(labels), answer.classes))
