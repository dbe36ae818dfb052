"""What people call a structure is read as what it is."""

import pytest
from pumit.errors import StructureError
from pumit.export.terminology import concept_for, serialize_terminology
from pumit.structures.names import (
    meaning_key,
    meaning_of_name,
    nearest_names,
    parts_of,
    requested_structure,
    words_of,
)


def keys(text: str) -> list[tuple[str, ...]]:
    return [meaning_key(meaning) for meaning in requested_structure(text).meanings]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("Left Kidney", "left kidney"),
        ("kidney, left", "left kidney"),
        ("L kidney", "left kidney"),
        ("the_left_kidney", "left kidney"),
        ("IVC", "inferior vena cava"),
        ("gall bladder", "gallbladder"),
        ("Left adrenalgland", "left adrenal gland"),
        ("Oesophagus", "esophagus"),
        ("kidneys", "kidney"),
        ("both kidneys", "kidney"),
        ("left and right kidney", "kidney"),
        ("ovaries", "ovary"),
        ("left ventricle", "lv"),
        ("SCT:64033007", "kidney"),
        (serialize_terminology(concept_for("right kidney")), "right kidney"),
    ],
)
def test_names_of_one_structure_mean_the_same(text, same):
    assert keys(text) == [meaning_key(concept_for(same))]


def test_a_group_is_all_of_its_members():
    left, right = (meaning_key(concept_for(f"{side} ventricle")) for side in ("left", "right"))
    assert keys("heart ventricles") == [left, right]


def test_a_name_without_a_code_is_compared_by_its_words():
    requested = requested_structure("My own thing")
    assert not requested.meanings
    assert requested.words == words_of("my_own  THING")


def test_everything_is_no_structure():
    assert requested_structure(" Everything ").is_everything


@pytest.mark.parametrize("text", ["", "  ", "x" * 81])
def test_no_name_is_refused(text):
    with pytest.raises(StructureError, match="Name a structure"):
        requested_structure(text)


def test_the_names_that_models_know_come_first():
    assert nearest_names("left kidny", ["Left kidney", "Spleen"])[0] == "left kidney"
    assert nearest_names("splene", ["Liver"]) == ["spleen"]
    assert nearest_names("qqqq", ["Liver"]) == []


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("liver and spleen", ["liver", "spleen"]),
        ("liver, spleen; IVC", ["liver", "spleen", "IVC"]),
        ("kidney, left", ["kidney, left"]),
        ("kidneys", ["kidneys"]),
        ("liver, liver", ["liver"]),
        ("", []),
    ],
)
def test_several_structures_may_be_named_at_once(text, parts):
    assert parts_of(text) == parts


def test_other_words_are_compared_with_no_names(monkeypatch):
    """Labels of a lab are looked up each time that a scan is opened."""
    monkeypatch.setattr("difflib.get_close_matches", None)
    for words in ("outer", "left right kidney", "liver outer"):
        assert meaning_of_name(words) is None
