"""Loading SAM from a folder: what save_pretrained wrote comes back, anything else is refused."""

import json
import pickle
from pathlib import Path

import pytest
import torch
from pumit.errors import CheckpointError
from pumit.inference.sam.folder import load_sam

transformers = pytest.importorskip("transformers", reason="the optional extra `sam` is absent")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    vision = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "mlp_dim": 16}
    vision |= {"image_size": 32, "output_channels": 8, "num_pos_feats": 4}
    prompts = {"hidden_size": 8, "image_size": 32, "image_embedding_size": 2}
    decoder = {"hidden_size": 8, "num_attention_heads": 1, "mlp_dim": 8}
    config = transformers.SamConfig(
        vision_config=vision, prompt_encoder_config=prompts, mask_decoder_config=decoder
    )
    transformers.SamModel(config).save_pretrained(tmp_path / "sam", safe_serialization=True)
    return tmp_path / "sam"


def test_a_saved_model_comes_back(folder: Path) -> None:
    model = load_sam(folder)

    saved = transformers.SamModel.from_pretrained(folder).state_dict()
    assert not model.training
    assert all(torch.equal(saved[key], value) for key, value in model.state_dict().items())


def test_a_pickle_in_disguise_is_refused_and_not_run(folder: Path, tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "ran",))

    (folder / "model.safetensors").write_bytes(pickle.dumps(Trap()))

    with pytest.raises(CheckpointError, match="cannot be read"):
        load_sam(folder)
    assert not (tmp_path / "ran").exists()


def test_pickled_weights_alone_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")

    with pytest.raises(CheckpointError, match=r"no model\.safetensors"):
        load_sam(folder)


def test_damaged_weights_are_refused_without_the_path(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])

    with pytest.raises(CheckpointError, match="cannot be read") as caught:
        load_sam(folder)
    assert str(folder) not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_tensors_are_refused(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    state = load_file(folder / "model.safetensors")
    del state["vision_encoder.layers.0.attn.qkv.weight"]
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(CheckpointError, match="lack 1 tensors"):
        load_sam(folder)


def test_another_kind_of_model_is_refused(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))

    with pytest.raises(CheckpointError, match="type 'bert'"):
        load_sam(folder)


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is a folder"):
        load_sam(tmp_path / "absent")
