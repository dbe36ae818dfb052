"""`pumit pretrain` makes a tokenizer that reconstructs, and a ViT with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK
import yaml
from pumit.errors import CheckpointError, PumitError
from pumit.inference.tokenizer.reconstruction import load_tokenizer
from pumit.models.card import kind_of
from pumit.models.checkpoint import load_checkpoint
from pumit.training.pretrain import pretrain, read_recipe_file
from pumit.training.pretraining.image_recipe import find_images
from pumit.training.recipes.pretraining import ImagePattern
from pumit.volume import Volume

COMMON: dict[str, Any] = {
    "seed": 3,
    "threads": 1,
    "device": "cpu",
    "batch_size": 1,
    "crop": {"depth": 16, "in_plane": 32},
    "generated_size": 16,
    "schedule": {"steps": 2, "warm_up": 1, "decay": 1, "log_every": 1},
}
TOKENIZER: dict[str, Any] = {
    **COMMON,
    "name": "tiny_tokenizer",
    "network": "pumit_tokenizer_small",
    "network_sizes": {"widths": [8, 8, 16], "num_tokens": 32, "groups": 4},
    "codebook_range": 1.0,
    "logit_gain": 4.0,
    "discriminator_sizes": {"widths": [4, 8, 8], "groups": 4},
}
VIT: dict[str, Any] = {
    **COMMON,
    "name": "tiny_vit",
    "network": "pumit_vit_small_mim",
    "network_sizes": {
        "dim": 16,
        "depth": 2,
        "num_heads": 2,
        "hidden": 24,
        "position_table": [1, 2, 2],
        "num_tokens": 32,
    },
}


def write(path: Path, content: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    return pretrain(write(folder / "r.yaml", TOKENIZER), folder / "run")


def test_a_trained_tokenizer_reconstructs(tokenizer: Path) -> None:
    rng = np.random.default_rng(0)
    volume = Volume(rng.random((20, 40, 36), np.float32), (1.0, 1.0, 1.0))
    loaded = load_tokenizer(tokenizer, device="cpu")
    answer = loaded.reconstruct(volume)
    assert answer.image.shape == volume.shape
    assert len(answer.use.shares) == 32
    names = load_checkpoint(tokenizer).state
    assert not any(name.startswith(("discriminator", "running")) for name in names)


def test_a_vit_is_trained_with_a_tokenizer(
    tmp_path: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = {**VIT, "tokenizer": str(tokenizer)}
    path = pretrain(write(tmp_path / "r.yaml", recipe), tmp_path / "run")
    checkpoint = load_checkpoint(path)
    assert kind_of(checkpoint.recipe) == "encoder"
    assert checkpoint.recipe["tokenizer"]["name"] == "tiny_tokenizer"
    assert {"mask_token", "vit.cls_token"} <= checkpoint.state.keys()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(line["kl"] > 0 for line in lines if "loss" in line)


def test_training_goes_on_from_an_earlier_model_of_the_same_kind(
    tmp_path: Path, tokenizer: Path
) -> None:
    still = {**TOKENIZER, "initial": str(tokenizer)}
    still["schedule"] = {**COMMON["schedule"], "learning_rate": 0.0}
    again = pretrain(write(tmp_path / "r.yaml", still), tmp_path / "run")
    before, after = load_checkpoint(tokenizer).state, load_checkpoint(again).state
    assert all(np.allclose(after[k], v, atol=1e-2) for k, v in before.items())
    with pytest.raises(CheckpointError, match="holds the network 'promptable'"):
        pretrain(write(tmp_path / "d.yaml", {**still, "initial": "default"}), tmp_path / "d")


def test_a_tokenizer_with_another_codebook_is_refused(tmp_path: Path, tokenizer: Path) -> None:
    recipe = {**VIT, "tokenizer": str(tokenizer)}
    recipe["network_sizes"] = {**VIT["network_sizes"], "num_tokens": 64}
    with pytest.raises(CheckpointError, match=r"32 tokens, .* 64"):
        pretrain(write(tmp_path / "r.yaml", recipe), tmp_path / "run")


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
        ({"real_images": ["*.nii"], "real_folder": "none"}, "real_folder none is missing"),
        ({"real_images": [{"patern": "*"}]}, "did you mean 'pattern'"),
        ({"real_images": [{"weight": 2}]}, "is a pattern, or has one"),
        ({"targets_per_field": 2}, "Unknown key 'targets_per_field'"),
    ],
    ids=str,
)
def test_what_is_wrong_with_a_recipe_is_named(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    path = write(tmp_path / "r.yaml", {**TOKENIZER, **change})
    with pytest.raises(PumitError, match=reason) as caught:
        pretrain(path, tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"mask_ratio": 1.0}, "mask_ratio in .* must be below 1"),
        ({"initial": "a", "eva02": "b"}, "both initial and eva02"),
    ],
    ids=str,
)
def test_what_is_wrong_with_a_vit_recipe_is_named(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    with pytest.raises(PumitError, match=reason):
        read_recipe_file(write(tmp_path / "r.yaml", {**VIT, **change}))


def test_images_are_found_by_patterns_each_once(tmp_path: Path) -> None:
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
