"""`pumit models` lists, verifies and fetches."""

import hashlib
import json
import re
from pathlib import Path

import pytest
import requests
import yaml
from pumit.errors import ExportError
from pumit.models.checkpoint import save_checkpoint
from pumit.models.index import list_models, package_folder, read_index
from pumit.models.user_index import register
from pumit.networks.build import build_network

CONTENT = b"weights"
SHIPPED = {e.name: e.kind for e in read_index(package_folder(), package_folder())}


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
def test_list_shows_every_model_with_its_licence(run):
    ran = run("models", "list")
    lines = ran.out.splitlines()
    assert [line.split()[0] for line in lines] == [*SHIPPED, "mine"]
    assert "to be fetched" in lines[-1]
    assert "CC-BY-4.0" in lines[-1]
    kinds = [*SHIPPED.values(), "automatic"]
    assert [line.split()[1] for line in lines] == kinds


def test_only_the_action_is_required(refused):
    assert "are required: action (" in refused("models")


def test_verify_tells_whole_models_from_damaged_ones(run, refused, models):
    for action in ("verify", "structures"):
        assert f"known: {', '.join(SHIPPED)}, mine" in refused("models", action, "none")
    assert "not on this machine" in refused("models", "verify", "mine")
    (models / "mine.safetensors").write_bytes(CONTENT)
    assert "verified" in run("models", "verify", "mine").out
    (models / "mine.safetensors").write_bytes(b"other")
    assert "differs from its checksum" in refused("models", "verify", "mine")


@pytest.mark.usefixtures("models", "default_segmenter")
def test_verify_of_all_passes_over_what_was_never_fetched(run):
    ran = run("models", "verify", "--json")
    states = {row["name"]: row["state"] for row in json.loads(ran.out)}
    assert states == {**dict.fromkeys(SHIPPED, "verified"), "mine": "to be fetched"}


def test_fetch_without_a_network_is_one_line(refused, models, monkeypatch):
    def get(*args: object, **kwargs: object) -> None:
        raise requests.ConnectionError("https://example.org refused")

    monkeypatch.setattr(requests, "get", get)
    assert "cannot be downloaded" in refused("models", "fetch", "mine")
    assert [p.name for p in models.iterdir()] == ["index.yaml"]


@pytest.fixture
def trained(tmp_path: Path, models: Path) -> Path:
    """A checkpoint as a training leaves it."""
    sizes = {"widths": [4, 8, 8], "num_tokens": 16, "groups": 2}
    state = build_network("pumit_tokenizer", **sizes).state_dict()
    path = tmp_path / "run" / "tokens.safetensors"
    path.parent.mkdir()
    recipe = {"name": "tokens", "network": "pumit_tokenizer", "sizes": sizes}
    save_checkpoint(path, state, recipe)
    return path


def test_the_user_s_own_are_listed_with_date_and_origin(run, trained):
    register(trained)
    line = run("models", "list").out.splitlines()[-1]
    assert re.search(r"^tokens .* here .*\(trained here, 20\d\d-\d\d-\d\d\)$", line)
    row = json.loads(run("models", "list", "--json").out)[-1]
    assert (row["origin"], row["state"]) == ("trained here", "here")
    assert "verified" in run("models", "verify", "tokens").out


def test_a_model_is_exported_removed_and_imported(run, trained, tmp_path):
    target = tmp_path / "out.pumit.zip"
    ran = run("models", "export", trained, "-o", target)
    assert hashlib.sha256(target.read_bytes()).hexdigest() in ran.out
    assert "tokens" in run("models", "import", target).out
    imported = json.loads(run("models", "import", target, "--name", "theirs", "--json").out)
    assert (imported["name"], imported["kind"]) == ("theirs", "tokenizer")
    assert run("models", "remove", "tokens").out == "Removed tokens.\n"
    names = [row["name"] for row in json.loads(run("models", "list", "--json").out)]
    assert names == [*SHIPPED, "mine", "theirs"]
    assert "(imported, " in run("models", "list").out.splitlines()[-1]


def test_what_cannot_be_handed_on_is_one_line(refused, trained, tmp_path):
    assert "-o tokens.pumit.zip" in refused("models", "export", trained)
    assert "must end in" in refused("models", "export", trained, "-o", tmp_path / "x.zip")
    assert "models import NAME" in refused("models", "import")
    assert "no model file" in refused("models", "import", trained)
    (tmp_path / "tokens.pumit.zip").touch()
    assert "pumit models import" in refused("models", "add", tmp_path / "tokens.pumit.zip")
    assert "comes with the program" in refused("models", "remove", "default")
    assert "yours: mine" in refused("models", "remove", "none")


def test_a_run_whose_folder_cannot_be_written_is_added(run, trained, monkeypatch):
    def refuse(*given: object) -> None:
        raise ExportError("The result cannot be written: the folder is read-only for you.")

    monkeypatch.setattr("pumit.training.model_card.write.write_card", refuse)
    (trained.parent / "log.jsonl").touch()
    (trained.parent / "recipe.yaml").write_text("name: tokens")
    out = run("models", "add", trained).out
    assert out.startswith("Added as tokens. Its model card was not written again: ")


def test_the_last_weights_of_a_run_do_not_take_the_card_of_the_best(run, trained):
    (trained.parent / "log.jsonl").touch()
    (trained.parent / "recipe.yaml").write_text("name: tokens")
    (trained.parent / "card.md").write_text("# Of the best\n")
    last = trained.with_name("tokens_last.safetensors")
    last.write_bytes(trained.read_bytes())
    run("models", "add", last, "--name", "last")
    assert (trained.parent / "card.md").read_text() == "# Of the best\n"
    entry = next(entry for entry in list_models() if entry.name == "last")
    assert not entry.card_path.is_file()
