"""A score that nothing unusual raises, with its reasons."""

import json
import math
from typing import Any

import pytest
from familiarity_scale import TOKENS, reference
from pumit.inference.tokenizer.familiarity import (
    SAYINGS,
    Familiarity,
    FamiliarityScale,
    distances,
)


def scale(**weights: tuple[float, float]) -> FamiliarityScale:
    return FamiliarityScale.from_reference(reference(**weights), TOKENS)


def test_the_score_is_that_of_the_logistic_regression():
    judged = scale().rate({"detail_lost_db": 1.5, "slice_step": -0.5})
    assert judged.score == pytest.approx(100 / (1 + math.exp(2 * 1.5 + 1 * 0.5 - 3)))
    assert [part.cost for part in judged.parts] == [3.0, 0.5]


def test_nothing_unusual_makes_an_image_more_familiar():
    made = scale()
    for name in ("detail_lost_db", "slice_step"):
        for sign in (-1, 1):
            scores = [made.rate({name: sign * v}).score for v in (0, 1, 4, 1e300)]
            assert scores == sorted(scores, reverse=True)
            assert scores[-1] > 0


def test_distances_are_one_at_the_outer_percentiles_of_a_lopsided_figure():
    usual = (-4.0, 0.0, 1.0)
    assert distances(-4.0, usual) == (1.0, 0.0)
    assert distances(1.0, usual) == (0.0, 1.0)
    assert distances(0.0, usual) == (0.0, 0.0)
    assert distances(9e9, usual) == (0.0, 4.0)
    assert distances(3.0, (2.0, 2.0, 2.0)) == (0.0, 4.0)  # nothing but 2 was ever seen


def test_the_sentence_gives_the_reasons_dearest_first():
    judged = scale().rate({"detail_lost_db": 2.0, "slice_step": 3.0})
    assert judged.score < 20
    detail, step = SAYINGS["detail_lost_db"][1], SAYINGS["slice_step"][1]
    assert judged.sentence.startswith(f"Unfamiliar (2 %): {detail}; {step}.")
    partly = scale().rate({"slice_step": -3.5})
    assert partly.sentence.startswith(f"Partly familiar (38 %): {SAYINGS['slice_step'][0]}.")
    assert scale().rate({}).sentence.startswith("Familiar (95 %)")


def test_it_travels_as_json():
    judged = scale().rate({"detail_lost_db": 1.0, "slice_step": 0.25})
    sent = json.loads(json.dumps(judged.as_json()))
    assert sent["parts"][0]["says"] == SAYINGS["detail_lost_db"][1]
    back = Familiarity.from_json(sent)
    assert back.score == pytest.approx(judged.score, abs=0.05)
    assert back.parts == judged.parts
    sent["parts"].append({"name": "of a later version"})
    assert Familiarity.from_json(sent).parts == judged.parts
    for bad in ({}, {"score": 101}, {"score": math.nan}, {"score": 5, "parts": [{}]}):
        with pytest.raises((KeyError, ValueError)):
            Familiarity.from_json(bad)


def changed(path: str, value: Any) -> dict[str, Any]:
    made = reference()
    *keys, last = path.split("/")
    place = made
    for key in keys:
        place = place[key]
    place[last] = value
    return made


@pytest.mark.parametrize(
    "given",
    [
        None,
        {"psnr_db": [1, 2]},
        changed("usual_shares", [0.5, 0.5]),
        changed("usual_shares", [math.nan] * TOKENS),
        changed("usual_shares", [0.0] * TOKENS),
        changed("familiarity/bias", math.nan),
        changed("familiarity/figures", [1]),
        changed("familiarity/figures/slice_step", {"usual": [2, 1, 0], "weight": [1, 1]}),
        changed("familiarity/figures/slice_step", {"usual": [0, 1, 2], "weight": [-1, 1]}),
        changed("familiarity/figures/slice_step", {"usual": [0, 1, 2], "weight": [math.nan, 1]}),
        changed("familiarity/figures/later", {"usual": [0, 1, 2], "weight": [1, 1]}),
    ],
)
def test_a_recipe_without_a_usable_scale_has_none(given):
    assert FamiliarityScale.from_reference(given, TOKENS) is None
