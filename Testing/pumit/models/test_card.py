"""The models of the index tell their kind, version and classes, and never where they lie."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from pumit.errors import CheckpointError
from pumit.models.card import Calibration, calibration_of, classes_of, installed_models, kind_of
from pumit.models.checkpoint import save_checkpoint
from pumit.models.index import package_folder, read_index

SHIPPED = {entry.name for entry in read_index(package_folder(), package_folder())}


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder with an automatic model, a tokenizer and three that cannot be used."""
    recipes: dict[str, dict[str, Any] | None] = {
        "organs": {
            "network": "pumit_segmentation_btcv",
            "version": "7",
            "classes": [{"name": "a"}],
        },
        "tokens": {"network": "pumit_tokenizer"},
        "shapes": {"network": "pumit_classifier_b", "classes": [{"name": "b"}, {"name": "c"}]},
        "future": {"network": "x", "kind": "oracle"},
        "nameless": {"network": "pumit_segmentation_btcv"},
        "absent": None,
    }
    rows = []
    for name, recipe in recipes.items():
        if recipe is not None:
            save_checkpoint(tmp_path / f"{name}.safetensors", {}, recipe)
        rows.append(
            {
                "name": name,
                "file": f"{name}.safetensors",
                "sha256": "0" * 64,
                "kind": "automatic",
                "description": f"Finds {name}.",
                "licence": "CC-BY-4.0",
                "source": "package",
            }
        )
    (tmp_path / "index.yaml").write_text(yaml.safe_dump({"models": rows}))
    monkeypatch.setenv("PUMIT_MODELS", str(tmp_path))
    return tmp_path


def test_models_that_can_be_used_are_reported_without_their_paths(models):
    cards = {card.name: card for card in installed_models()}
    assert set(cards) - SHIPPED == {
        "organs",
        "tokens",
        "shapes",
    }
    assert cards["organs"].kind == "automatic"
    assert cards["organs"].version == "7"
    assert [c.name for c in cards["organs"].classes] == ["a"]
    assert cards["organs"].description == "Finds organs."
    assert cards["tokens"].kind == "tokenizer"
    assert cards["shapes"].kind == "classifier"
    assert [c.name for c in cards["shapes"].classes] == ["b", "c"]
    assert not [card for card in cards.values() if str(models) in str(asdict(card))]


def test_the_kind_follows_from_the_network_unless_the_recipe_says_it():
    assert kind_of({"network": "promptable"}) == "promptable"
    assert kind_of({"network": "pumit_tokenizer"}) == "tokenizer"
    assert kind_of({"network": "swin_unetr"}) == "automatic"
    assert kind_of({"network": "mine", "kind": "tokenizer"}) == "tokenizer"
    with pytest.raises(CheckpointError, match="newer version"):
        kind_of({"kind": "oracle"})


def test_classes_keep_their_order_codes_and_colours():
    rows = [{"name": "b", "terminology": "SCT:1"}, {"name": "a", "color_rgb": [0, 0.5, 1]}]
    first, second = classes_of({"classes": rows})
    assert (first.name, first.terminology, first.color_rgb) == ("b", "SCT:1", None)
    assert second.color_rgb == (0, 0.5, 1)
    for bad in (None, "liver", [1], [{}], [{"name": "a", "color_rgb": [2, 0, 0]}]):
        with pytest.raises(CheckpointError, match="no usable classes"):
            classes_of({"classes": bad})


def test_a_calibration_reads_estimates_along_its_knots_and_never_beyond():
    row = {
        "estimate": [0.2, 0.6, 0.8],
        "iou": [0.1, 0.5, 0.5],
        "answers": 9,
    }
    calibration = calibration_of({"calibration": row})
    assert calibration == Calibration((0.2, 0.6, 0.8), (0.1, 0.5, 0.5), 9)
    assert [calibration(v) for v in (0.0, 0.2, 0.4, 0.7, 1.0)] == pytest.approx(
        [0.1, 0.1, 0.3, 0.5, 0.5]
    )
    assert calibration_of({}) is None


@pytest.mark.parametrize(
    "row",
    [
        None,
        {"estimate": [0, 1]},
        {"estimate": [0.5], "iou": [0.5]},
        {"estimate": [0, 1], "iou": [0.6, 0.5]},
        {"estimate": [0, 1], "iou": [0, 1.5]},
        {"estimate": [0, float("inf")], "iou": [0, 1]},
    ],
)
def test_a_calibration_that_is_no_rising_curve_is_refused(row):
    with pytest.raises(CheckpointError, match="no usable calibration"):
        calibration_of({"calibration": row})
