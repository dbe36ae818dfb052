"""Classes are read off the labels, and names that may mean the same are found."""

import pytest
from pumit.errors import PumitError
from pumit.io.labels.label_file import LabelledSegment
from pumit.training.data.class_proposal import ClassProposal
from pumit.training.data.classes import classes_from

LIVER = "~SCT^123037004^Anatomical Structure~SCT^10200004^Liver~^^~~^^~^^"
TISSUE = "~SCT^85756007^Tissue~SCT^85756007^Tissue~^^~~^^~^^"


def proposed(**cases: list[tuple[str, int]]) -> ClassProposal:
    made = ClassProposal()
    for case, segments in cases.items():
        made.add(case, [LabelledSegment(value, 0, name) for name, value in segments])
    return made


def test_spellings_of_one_name_are_one_class_and_are_reported():
    made = proposed(a=[("Liver", 1)], b=[("liver ", 4)], c=[("LIVER", 1)], d=[("Spleen", 1)])
    liver, spleen = made.classes()
    assert (liver.label.name, liver.value, liver.segments) == ("Liver", 1, ("liver ", "LIVER"))
    assert (spleen.label.name, spleen.value) == ("Spleen", 2)
    (problem,) = made.problems()
    assert problem.startswith("'Liver' is also spelt 'liver ' (b), 'LIVER' (c)")
    assert "under its segments" in problem


def test_meaning_and_colour_come_from_the_segments():
    made = ClassProposal()
    made.add("a", [LabelledSegment(1, 0, "L", TISSUE, None), LabelledSegment(2, 0, "S", "~~~")])
    made.add("b", [LabelledSegment(1, 0, "L", LIVER, (0.5, 0.2, 0.1))])
    first, second = made.classes()
    assert (first.label.terminology, first.label.color_rgb) == (LIVER, (0.5, 0.2, 0.1))
    assert second.label.terminology == ""
    # What is proposed can be written into a recipe.
    assert classes_from([c.as_row() for c in made.classes()]) == made.classes()


def test_near_names_of_different_cases_are_doubted_but_not_sides_and_numbers():
    made = proposed(a=[("pancreas", 1)], b=[("pancreas", 1)], c=[("pancraes", 1)])
    (doubt,) = made.doubts()
    assert doubt.startswith("'pancraes' (c) may mean 'pancreas'")
    made = proposed(
        a=[("left kidney", 1), ("vertebra L1", 2)], b=[("right kidney", 1), ("vertebra L2", 2)]
    )
    assert made.doubts() == []
    # Names of one case are two things.
    assert proposed(a=[("tumour core", 1), ("tumour cores", 2)]).doubts() == []


def test_too_many_classes_are_refused_and_leave_the_others():
    made = proposed(a=[("", 1), ("", 2)])
    many = [LabelledSegment(value) for value in range(1, 301)]
    with pytest.raises(PumitError, match="more than 254 classes"):
        made.add("b", many)
    assert [c.value for c in made.classes()] == [1, 2]
    assert made.problems() == made.doubts() == []


def test_a_name_may_mean_a_value_that_other_cases_leave_without_one():
    """F6: a model's corrected results made four classes of two."""
    made = proposed(
        a=[("", 1), ("", 2)], b=[("", 1), ("", 2)], c=[("anterior", 1), ("posterior", 2)]
    )
    assert [c.label.name for c in made.classes()] == ["class 1", "class 2", "anterior", "posterior"]
    assert made.may_be_same() == [("anterior", "class 1"), ("posterior", "class 2")]
    assert made.doubts()[0].startswith("'anterior' (c) may mean 'class 1'")
    other = proposed(a=[("", 1)], b=[("liver", 7)])
    assert other.may_be_same() == []
