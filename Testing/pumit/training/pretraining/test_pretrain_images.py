"""`pumit pretrain` makes a tokenizer that reconstructs, and a ViT with it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK
from pretraining_runs import IMAGES, VIT_SIZES, written
from pumit.errors import CheckpointError, PumitError
from pumit.inference.tokenizer.reconstruction import load_tokenizer
from pumit.models.card import kind_of
from pumit.models.checkpoint import load_checkpoint
from pumit.training.pretrain import pretrain
from pumit.training.pretraining.image_recipe import find_images
from pumit.training.recipes.pretraining import ImagePattern
from pumit.volume import Volume

TOKENIZER: dict[str, Any] = {
    **IMAGES,
    "name": "tiny_tokenizer",
    "network": "pumit_tokenizer_small",
    "network_sizes": {"widths": [8, 8, 16], "num_tokens": 32, "groups": 4},
    "codebook_range": 1.0,
    "logit_gain": 4.0,
    "discriminator_sizes": {"widths": [4, 8, 8], "groups": 4},
}
VIT: dict[str, Any] = {
    **IMAGES,
    "name": "tiny_vit",
    "network": "pumit_vit_small_mim",
    "network_sizes": VIT_SIZES,
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    return pretrain(written(folder, TOKENIZER), folder / "run")


def test_a_trained_tokenizer_reconstructs(tokenizer):
    rng = np.random.default_rng(0)
    volume = Volume(rng.random((20, 40, 36), np.float32), (1.0, 1.0, 1.0))
    loaded = load_tokenizer(tokenizer, device="cpu")
    answer = loaded.reconstruct(volume)
    assert answer.image.shape == volume.shape
    assert len(answer.use.shares) == 32
    names = load_checkpoint(tokenizer).state
    assert not any(name.startswith(("discriminator", "running")) for name in names)


def test_a_vit_is_trained_with_a_tokenizer(tmp_path, tokenizer, capsys):
    recipe = {**VIT, "tokenizer": str(tokenizer)}
    path = pretrain(written(tmp_path, recipe), tmp_path / "run")
    checkpoint = load_checkpoint(path)
    assert kind_of(checkpoint.recipe) == "encoder"
    assert checkpoint.recipe["tokenizer"]["name"] == "tiny_tokenizer"
    assert {"mask_token", "vit.cls_token"} <= checkpoint.state.keys()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(line["kl"] > 0 for line in lines if "loss" in line)
    other = {"network_sizes": {**VIT["network_sizes"], "num_tokens": 64}}
    for change, reason in (
        (other, r"32 tokens, .* 64"),
        ({"mask_ratio": 1.0}, "mask_ratio in .* must be below 1"),
        ({"initial": "a", "eva02": "b"}, "both initial and eva02"),
    ):
        with pytest.raises(PumitError, match=reason):
            pretrain(written(tmp_path, recipe, **change), tmp_path / "other")


def test_training_goes_on_from_an_earlier_model_of_the_same_kind(tmp_path, tokenizer):
    still = {**TOKENIZER, "initial": str(tokenizer)}
    still["schedule"] = {**IMAGES["schedule"], "learning_rate": 0.0}
    again = pretrain(written(tmp_path, still), tmp_path / "run")
    before, after = load_checkpoint(tokenizer).state, load_checkpoint(again).state
    assert all(np.allclose(after[k], v, atol=1e-2) for k, v in before.items())
    with pytest.raises(CheckpointError, match="holds the network 'promptable'"):
        pretrain(written(tmp_path, still, initial="default"), tmp_path / "d")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"crop": {"depth": 20}}, "multiples of 16"),
        ({"crop": {"dept": 16}}, "did you mean 'depth'"),
        ({"crop": [{"depth": 16}, {"in_plane": 17}]}, "multiples of 16"),
        ({"crop": [16]}, "needs depth and in_plane"),
        ({"crop": []}, "crop is empty"),
        ({"degrees": {7: 1.0}}, "Degrees of anisotropy are 0 to 5"),
        ({"degrees": {0: 0.0}}, "share above zero"),
        ({"loss": {"evn": 1.0}}, "did you mean 'even'"),
        ({"loss": {"sharp": -1.0}}, "sharp in loss"),
        ({"perceptual": "vgg"}, "vgg16"),
        ({"real_images": ["*.nii"]}, "no real_folder"),
        ({"real_images": ["*.nii"], "real_folder": "none"}, "no folder none of scans .*unlabelled"),
        ({"real_images": [{"patern": "*"}]}, "did you mean 'pattern'"),
        ({"real_images": [{"weight": 2}]}, "is a pattern, or has one"),
        ({"targets_per_field": 2}, "Unknown key 'targets_per_field'"),
    ],
    ids=str,
)
def test_what_is_wrong_with_a_recipe_is_named(tmp_path, change, reason):
    path = written(tmp_path, TOKENIZER, **change)
    with pytest.raises(PumitError, match=reason) as caught:
        pretrain(path, tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_images_are_found_by_patterns_each_once(tmp_path):
    image = SimpleITK.GetImageFromArray(np.zeros((2, 2, 2), np.uint8))
    for name in ("cases/a/image.nii.gz", "cases/b/image.nii.gz", "more/c.nii.gz"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        SimpleITK.WriteImage(image, str(tmp_path / name))
    heavy = ImagePattern(pattern="../more/*.nii.gz", weight=5, depth_axis="axial")
    plain = [ImagePattern(pattern=pattern) for pattern in ("*/image.nii.gz", "a/*")]
    found = find_images(tmp_path / "cases", [*plain, heavy])
    assert [f.name for f in found] == ["a/image.nii.gz", "b/image.nii.gz", "more/c.nii.gz"]
    assert [f.weight for f in found] == [1.0, 1.0, 5.0]
    assert found[2].depth_axis == "axial"
    with pytest.raises(PumitError, match="No image matches 'z/"):
        find_images(tmp_path / "cases", [ImagePattern(pattern="z/*.nii.gz")])
