"""What a training began with is known by fingerprint, never by the name of a file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from pumit.errors import CheckpointError
from pumit.models.checkpoint import read_recipe
from pumit.models.user_index import register
from pumit.training.run.origin import origin_of


def test_a_file_is_reported_by_its_weights_alone(tmp_path: Path, tiny_checkpoint: Path) -> None:
    path = tiny_checkpoint.rename(tmp_path / "doe_jane.safetensors")
    assert origin_of(path) == {"sha256": read_recipe(path)[1]}


def test_a_model_of_the_index_is_reported_by_its_name_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_checkpoint: Path
) -> None:
    monkeypatch.setenv("PUMIT_MODELS", str(tmp_path / "home"))
    name = register(tiny_checkpoint)
    assert origin_of(name) == {"name": name, "sha256": read_recipe(tiny_checkpoint)[1]}


def test_another_program_s_file_is_reported_by_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "eva02.bin"
    path.write_bytes(b"weights")
    assert origin_of(path) == {"sha256": hashlib.sha256(b"weights").hexdigest()}


def test_nothing_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError):
        origin_of(tmp_path / "none.safetensors")
