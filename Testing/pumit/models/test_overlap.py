"""What is expected of an answer follows from evidence, and only for measured weights."""

from dataclasses import replace

import pytest
from pumit.errors import CheckpointError
from pumit.models import overlap
from pumit.models.card import classes_of
from pumit.models.checkpoint import load_checkpoint
from pumit.models.index import find_model
from pumit.models.overlap import (
    Evidence,
    OverlapModel,
    is_doubtful,
    overlap_models,
    usual_dice,
)

GOOD = Evidence(
    estimate=0.9, doubt=0.1, voxels=50_000, width=30.0, agreement=0.99, confidence=0.98, edge=0.95
)
POOR = Evidence(
    estimate=0.3, doubt=0.9, voxels=900, width=3.0, agreement=0.5, confidence=0.7, edge=0.4
)


def test_the_expected_dice_is_the_logistic_of_weighed_evidence():
    model = OverlapModel({"constant": 0.5, "estimate": 1.0}, 0.8, 0.6, 0.4)
    half = replace(GOOD, estimate=0.5)
    assert model.expected_dice(half) == pytest.approx(1 / (1 + 2.718281828**-0.5))
    assert model.expected_dice(GOOD) > model.expected_dice(half)


@pytest.mark.parametrize(
    ("dice", "word"),
    [
        *((1.0, "good"), (0.8, "good"), (0.79, "check"), (0.6, "check")),
        *((0.59, "check carefully"), (0.4, "check carefully"), (0.39, "unreliable")),
    ],
)
def test_four_words(dice, word):
    assert OverlapModel({}, 0.8, 0.6, 0.4).quality(dice) == word


def test_evidence_is_finite_whatever_the_answer():
    for evidence in (
        Evidence(-1.0, 0.0, 1, 0.5, None, 0.0, 0.0),
        Evidence(2.0, 1e9, 10**9, 1e5, 0.0, 2.0, 1.0),
    ):
        for model in overlap_models().values():
            assert 0 <= model.expected_dice(evidence) <= 1


def test_the_weights_that_ship_were_measured():
    model = overlap_models()[load_checkpoint(find_model("default")).sha256]
    assert model.carefully < model.check < model.good < 1
    assert model.quality(model.expected_dice(GOOD)) == "good"
    assert model.quality(model.expected_dice(POOR)) == "unreliable"


def test_a_damaged_file_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(overlap, "package_folder", lambda: tmp_path)
    for text in (
        "[",
        "a: 3",
        "a: {weights: {x: y}, good: 1, check: 0, carefully: 0}",
        "a: {weights: {}, good: 1}",
    ):
        (tmp_path / overlap.OVERLAP_FILE).write_text(text)
        overlap_models.cache_clear()
        with pytest.raises(CheckpointError, match="damaged"):
            overlap_models()
    overlap_models.cache_clear()


@pytest.mark.parametrize("name", ["abdomen-ct", "abdomen-mr", "heart-mr", "hippocampus-mr"])
def test_usual_dice_of_shipped_automatic_models(name):
    model = load_checkpoint(find_model(name))
    usual = usual_dice(model)
    assert len(usual) == len(classes_of(model.recipe))
    assert all(value is not None and 0.6 < value < 1 for value in usual)


@pytest.mark.parametrize("damaged", ["0.9", [0.9, "0.8"], {"liver": 0.9}])
def test_unusable_usual_dice_is_unknown(damaged):
    model = load_checkpoint(find_model("default"))
    told = {**model.recipe, "expected_dice": damaged}
    assert usual_dice(replace(model, recipe=told)) == ()
    assert usual_dice(model) == ()


def test_a_scan_is_doubted_by_its_large_structures():
    usual = (0.95, 0.9, None)
    assert not is_doubtful((0.9, 0.85, 0.1), usual, (1000.0, 100.0, 1.0))
    assert is_doubtful((0.8, 0.8, 0.9), usual, (1000.0, 100.0, 1.0))
    assert not is_doubtful((0.9, 0.1, None), usual, (1000.0, 0.1, 0.0))
    assert not is_doubtful((None, None, None), usual, (0.0, 0.0, 0.0))
    assert not is_doubtful((0.1, 0.1, 0.1), (), (1000.0, 100.0, 1.0))
