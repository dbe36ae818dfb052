"""What a training began with is known by fingerprint, never by the name of a file."""

import hashlib

import pytest
from pumit.errors import CheckpointError
from pumit.models.checkpoint import read_recipe
from pumit.models.user_index import register
from pumit.training.run.origin import origin_of


def test_a_file_is_reported_by_its_weights_and_a_model_by_its_name_too(
    tmp_path, monkeypatch, tiny_checkpoint
):
    monkeypatch.setenv("PUMIT_MODELS", str(tmp_path / "home"))
    name = register(tiny_checkpoint)
    path = tiny_checkpoint.rename(tmp_path / "doe_jane.safetensors")
    weights = {"sha256": read_recipe(path)[1]}
    assert origin_of(path) == weights
    assert origin_of(name) == {"name": name, **weights}
    (tmp_path / "eva02.bin").write_bytes(b"weights")  # another program's file
    of_bytes = hashlib.sha256(b"weights").hexdigest()
    assert origin_of(tmp_path / "eva02.bin") == {"sha256": of_bytes}
    with pytest.raises(CheckpointError):
        origin_of(tmp_path / "none.safetensors")
