"""`pumit models` lists, verifies and fetches."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

CONTENT = b"weights"
SHIPPED = ("default", "tokenizer", "vit")


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    row = {
        "name": "mine",
        "file": "mine.safetensors",
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
        "kind": "automatic",
        "description": "My own.",
        "licence": "CC-BY-4.0",
        "source": "https://example.org/mine.safetensors",
    }
    (folder / "index.yaml").write_text(yaml.safe_dump({"models": [row]}))
    monkeypatch.setenv("PUMIT_MODELS", str(folder))
    return folder


@pytest.mark.usefixtures("models")
def test_list_shows_every_model_with_its_licence(run: Any) -> None:
    ran = run("models", "list")
    assert ran.status == 0
    lines = ran.out.splitlines()
    assert [line.split()[0] for line in lines] == [*SHIPPED, "mine"]
    assert "to be fetched" in lines[-1]
    assert "CC-BY-4.0" in lines[-1]
    assert [line.split()[1] for line in lines] == [
        "promptable",
        "tokenizer",
        "encoder",
        "automatic",
    ]


@pytest.mark.usefixtures("models")
def test_list_as_json(run: Any) -> None:
    rows = json.loads(run("models", "list", "--json").out)
    assert [row["name"] for row in rows] == [*SHIPPED, "mine"]
    assert rows[-1]["state"] == "to be fetched"


def test_verify_tells_whole_models_from_damaged_ones(run: Any, refused: Any, models: Path) -> None:
    assert "not on this machine" in refused("models", "verify", "mine")
    (models / "mine.safetensors").write_bytes(CONTENT)
    assert "verified" in run("models", "verify", "mine").out
    (models / "mine.safetensors").write_bytes(b"other")
    assert "differs from its checksum" in refused("models", "verify", "mine")


@pytest.mark.usefixtures("models", "default_segmenter")
def test_verify_of_all_passes_over_what_was_never_fetched(run: Any) -> None:
    ran = run("models", "verify", "--json")
    assert ran.status == 0, ran.err
    states = {row["name"]: row["state"] for row in json.loads(ran.out)}
    assert states == {**dict.fromkeys(SHIPPED, "verified"), "mine": "to be fetched"}


def test_fetch_without_a_network_is_one_line(
    refused: Any, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(*args: object, **kwargs: object) -> None:
        raise requests.ConnectionError("https://example.org refused")

    monkeypatch.setattr(requests, "get", get)
    assert "cannot be downloaded" in refused("models", "fetch", "mine")
    assert [p.name for p in models.iterdir()] == ["index.yaml"]


@pytest.mark.usefixtures("models")
def test_unknown_names_are_one_line(refused: Any) -> None:
    assert f"known: {', '.join(SHIPPED)}, mine" in refused("models", "verify", "none")


def test_a_damaged_index_is_one_line(refused: Any, models: Path) -> None:
    (models / "index.yaml").write_text("models: [{name: x\n  - y")
    assert "damaged" in refused("models", "list")
