"""Models are chosen by what they know; where none does, the answer says what comes near."""

import pytest
from pumit.errors import StructureError
from pumit.models.card import ModelCard
from pumit.segmentation import ClassLabel
from pumit.structures.names import requested_structure
from pumit.structures.search import (
    accepted,
    candidates_for,
    known_candidates,
    known_structures,
)


def card(name: str, *classes: str, **facts: object) -> ModelCard:
    labels = tuple(ClassLabel(text.partition("=")[0], text.partition("=")[2]) for text in classes)
    return ModelCard(name, "automatic", "1", "", labels, **facts)  # type: ignore[arg-type]


ABDOMEN = card("abdomen-ct", "spleen", "right kidney", "left kidney", "Leber=liver")
LEFT = card("one-side", "left kidney")
HIPPO = card("hippo", "anterior hippocampus=hippocampus", "posterior hippocampus=hippocampus")
HEART = card("heart", "RV cavity=right ventricle", "myocardium", "LV cavity=left ventricle")


def labels(text: str, of: ModelCard) -> tuple[int, ...]:
    found = candidates_for(requested_structure(text), [of])
    return found[0].labels if found else ()


@pytest.mark.parametrize(
    ("text", "of", "expected"),
    [
        ("left kidney", ABDOMEN, (3,)),
        ("kidneys", ABDOMEN, (2, 3)),
        ("kidney", ABDOMEN, (2, 3)),
        ("liver", ABDOMEN, (4,)),  # by its code, whatever the model calls it
        ("leber", ABDOMEN, (4,)),  # and by the model's own name
        ("kidneys", LEFT, ()),
        ("right kidney", LEFT, ()),
        ("hippocampus", HIPPO, (1, 2)),
        ("anterior hippocampus", HIPPO, (1,)),
        ("left hippocampus", HIPPO, ()),
        ("heart ventricles", HEART, (1, 3)),
        ("rv", HEART, (1,)),
        ("heart chambers", HEART, ()),
        ("everything", HEART, (1, 2, 3)),
    ],
)
def test_classes_that_make_up_a_structure(text, of, expected):
    assert labels(text, of) == expected


def test_several_names_are_found_by_a_model_that_knows_all():
    _, (found,) = known_candidates("spleen, kidneys", [ABDOMEN, HEART])
    names = [label.name for label, _numbers in found.segments("spleen, kidneys")]
    assert names == ["Spleen", "Right kidney", "Left kidney"]
    with pytest.raises(StructureError, match="No model finds all of 'spleen, rv'"):
        known_candidates("spleen, rv", [ABDOMEN, HEART])
    with pytest.raises(StructureError, match="finds 'uvula'"):
        known_candidates("spleen, uvula", [ABDOMEN, HEART])


def test_a_model_of_the_users_own_is_requested_first():
    own = card("mine", "spleen", is_own=True)
    _, found = known_candidates("spleen", [ABDOMEN, own])
    assert [c.card.name for c in found] == ["mine", "abdomen-ct"]
    _, found = known_candidates("spleen", [ABDOMEN, own], model="abdomen-ct")
    assert [c.card.name for c in found] == ["abdomen-ct"]


def test_where_none_knows_it_the_nearest_names_are_reported():
    with pytest.raises(StructureError) as caught:
        known_candidates("left kidny", [ABDOMEN])
    assert "left kidney (abdomen-ct)" in str(caught.value)
    assert str(caught.value).endswith("Click on it instead.")
    assert caught.value.near[0] == "left kidney"


def test_a_known_structure_that_no_model_knows_is_said_plainly():
    with pytest.raises(StructureError, match=r"'pancreas'\. Click on it"):
        known_candidates("pancreas", [ABDOMEN])


def test_a_side_that_is_missing_is_said():
    with pytest.raises(StructureError, match="one-side knows left kidney"):
        known_candidates("right kidney", [LEFT])


def test_a_model_without_consent_is_named_and_not_used():
    shut = card("abdomen-ct", "spleen", licence="CC BY-NC-SA 4.0")
    with pytest.raises(StructureError, match="pumit models accept abdomen-ct"):
        accepted(*known_candidates("spleen", [shut]))
    found = accepted(*known_candidates("spleen", [shut, card("free", "spleen")]))
    assert [c.card.name for c in found] == ["free"]


def test_without_models_everything_is_refused_in_words():
    with pytest.raises(StructureError, match="No automatic model"):
        known_candidates("everything", [ModelCard("default", "promptable", "1", "")])
    with pytest.raises(StructureError, match="no automatic model 'x'"):
        known_candidates("liver", [ABDOMEN], model="x")


def test_what_is_known_is_listed_with_codes_and_sides():
    known = known_structures([ABDOMEN, card("own", "my thing")])
    assert (known[2].name, known[2].code, known[2].side) == ("left kidney", "SCT:64033007", "left")
    assert (known[-1].name, known[-1].code, known[-1].model) == ("my thing", "", "own")
