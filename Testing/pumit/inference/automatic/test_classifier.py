"""A classifier's checkpoint answers with probabilities, or says why it cannot."""

import numpy as np
import pytest
import torch
from made_classifier import RECIPE, SIZES, save
from pumit.errors import CheckpointError, VolumeError
from pumit.inference.automatic.classifier import load_classifier
from pumit.inference.automatic.segmentation import load_automatic
from pumit.models.checkpoint import save_checkpoint
from pumit.models.consent import accept
from pumit.models.user_index import register
from pumit.networks.build import build_network
from pumit.volume import Volume


def scan(rng: np.random.Generator, channels: int = 1) -> Volume:
    array = rng.normal(size=(channels, 6, 12, 9))
    return Volume(array[0] if channels == 1 else array, (2.0, 1.0, 1.0))


def test_probabilities_are_those_of_the_logits(tmp_path, rng):
    model = load_classifier(save(tmp_path, bias=(0.0, 1.5)), device="cpu")
    found = model.classify(scan(rng))
    assert list(found.probabilities) == ["healthy", "sick"]
    assert found.most_probable == "sick"
    assert found.probabilities["sick"] == pytest.approx(1 / (1 + np.exp(-1.5)), abs=5e-3)
    assert sum(found.probabilities.values()) == pytest.approx(1)
    assert (model.name, model.version) == ("made", "7")
    path = save(tmp_path, bias=(2.0, 2.0), is_multi_label=True)
    found = load_classifier(path, device="cpu").classify(scan(rng))
    assert found.is_multi_label
    assert list(found.probabilities.values()) == pytest.approx([1 / (1 + np.exp(-2))] * 2, abs=5e-3)


def test_the_image_is_multiplied_by_the_factor(tmp_path, rng):
    """Half the intensities with the factor 1 are all of them with 0.5."""
    form = {**RECIPE["input"], "intensity": {"method": "range", "source": [0, 1]}}
    path = tmp_path / "made.safetensors"
    torch.manual_seed(0)
    state = build_network("pumit_classifier_small", **SIZES).state_dict()
    array = rng.random((8, 8, 8))
    answers = []
    for factor, share in ((1.0, 0.5), (0.5, 1.0), (1.0, 1.0)):
        save_checkpoint(path, state, {**RECIPE, "input": {**form, "factor": factor}})
        found = load_classifier(path, device="cpu").classify(Volume(share * array))
        answers.append(found.probabilities["sick"])
    assert answers[0] == pytest.approx(answers[1], abs=1e-6)
    assert answers[0] != answers[2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input": None}, "does not describe the classifier's input"),
        ({"classes": [{}]}, "no usable classes"),
        ({"sizes": {**SIZES, "position_table": [2, 2, 3]}, "state": "old"}, "do not fit"),
        ({"input": {**RECIPE["input"], "size": [8, 8, 6]}}, "not a multiple of its patch size"),
        ({"kind": "automatic"}, "tells no classes of a whole scan"),
    ],
)
def test_a_checkpoint_that_cannot_classify_is_refused(tmp_path, changes, message):
    path = save(tmp_path, **{k: v for k, v in changes.items() if k != "state"})
    if "state" in changes:
        state = build_network("pumit_classifier_small", **SIZES).state_dict()
        save_checkpoint(path, state, {**RECIPE, **changes})
    with pytest.raises(CheckpointError, match=message):
        load_classifier(path, device="cpu")


def test_a_scan_or_a_recipe_with_other_numbers_is_refused(tmp_path, rng):
    model = load_classifier(save(tmp_path), device="cpu")
    with pytest.raises(VolumeError, match="2 channels, but the classifier needs 3"):
        model.classify(scan(rng, channels=2))
    three = [{"name": name} for name in "abc"]
    model = load_classifier(save(tmp_path, classes=three), device="cpu")
    with pytest.raises(CheckpointError, match="2 outputs for 3 classes"):
        model.classify(scan(rng))


def test_a_classifier_of_research_data_needs_consent(tmp_path, monkeypatch):
    monkeypatch.setenv("PUMIT_MODELS", str(tmp_path / "models"))
    register(save(tmp_path, licence="CC BY-NC-SA 4.0"), name="mine")
    with pytest.raises(CheckpointError, match="pumit models accept mine"):
        load_classifier("mine", device="cpu")
    accept("mine")
    assert load_classifier("mine", device="cpu").name == "mine"


def test_a_classifier_is_no_segmenter(tmp_path):
    with pytest.raises(CheckpointError, match="choose an automatic model"):
        load_automatic(save(tmp_path), device="cpu")
