"""A user's own models are entered whole, under their own names, and removed with all files."""

import errno
import multiprocessing
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from pumit.errors import CheckpointError, ExportError
from pumit.models import user_index
from pumit.models.card import installed_models
from pumit.models.checkpoint import load_checkpoint, read_recipe, save_checkpoint
from pumit.models.index import find_model, list_models, verify_model
from pumit.models.user_index import name_from, register, remove

RECIPE: dict[str, Any] = {
    "name": "hips",
    "version": "1",
    "kind": "automatic",
    "network": "pumit_segmentation_small",
    "classes": [{"name": "head"}, {"name": "neck"}],
    "licence": "CC-BY-4.0",
}


def checkpoint(folder: Path, seed: int = 0, **changes: Any) -> Path:
    """A small checkpoint in its own folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.safetensors"
    state = {"w": torch.full((4,), float(seed))}
    save_checkpoint(path, state, {**RECIPE, **changes})
    return path


def write_card(folder: Path) -> Path:
    """A card that shows two pictures, and links to what is none of its own."""
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    for name in ("curves.png", "pictures/worst_1.png", "pictures/overlay.png"):
        (folder / name).write_bytes(b"\x89PNG")
    (folder.parent / "secret.png").write_bytes(b"\x89PNG")
    text = "# hips\n![c](curves.png)\n![w](pictures/worst_1.png)\n![x](../secret.png)\n"
    (folder / "card.md").write_text(text)
    (folder / "card.json").write_text("{}")
    return folder / "card.md"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder of models, which is not there yet."""
    folder = tmp_path / "home" / "models"
    monkeypatch.setenv("PUMIT_MODELS", str(folder))
    return folder


def own() -> list[str]:
    return [entry.name for entry in list_models() if entry.source == "own"]


def test_a_registered_model_is_listed_found_and_whole(home, tmp_path):
    path = checkpoint(tmp_path / "run")
    assert register(path, card=write_card(tmp_path / "run")) == "hips"
    entry = next(e for e in list_models() if e.name == "hips")
    verify_model(entry)
    assert (entry.kind, entry.licence, entry.origin) == ("automatic", "CC-BY-4.0", "trained here")
    assert entry.description == "Segments head, neck."
    assert entry.added[:2] == "20"
    assert find_model("hips").read_bytes() == path.read_bytes()
    folder = entry.path.parent
    files = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*.*"))
    card = ["card.json", "card.md", "curves.png"]
    assert files == [*card, "hips.safetensors", "pictures/worst_1.png"]
    assert entry.card_path.read_text().startswith("# hips")
    assert "hips" in [card.name for card in installed_models()]


def test_another_run_of_the_same_name_gets_a_number(home, tmp_path):
    for run in ("a", "b", "c"):
        register(checkpoint(tmp_path / run))
    assert own() == ["hips", "hips-2", "hips-3"]
    assert read_recipe(find_model("hips-2"))[0]["name"] == "hips-2"


def test_the_same_run_replaces_what_it_entered_before(home, tmp_path):
    register(checkpoint(tmp_path / "other"))
    assert register(checkpoint(tmp_path / "run", 1)) == "hips-2"
    before = find_model("hips-2")
    assert register(checkpoint(tmp_path / "run", 2)) == "hips-2"
    assert own() == ["hips", "hips-2"]
    assert float(load_checkpoint(find_model("hips-2")).state["w"][0]) == 2
    assert not before.exists()


def test_a_new_run_in_an_emptied_folder_replaces_nothing(home, tmp_path):
    register(checkpoint(tmp_path / "run"))
    shutil.rmtree(tmp_path / "run")
    assert register(checkpoint(tmp_path / "run")) == "hips-2"
    assert own() == ["hips", "hips-2"]


def test_a_model_that_ships_is_never_shadowed(home, tmp_path):
    assert register(checkpoint(tmp_path / "run", name="default")) == "default-2"
    assert find_model("default").parent != home


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("hips", "hips"),
        ("My hips (v2).safetensors", "My-hips-v2"),
        ("../../etc/passwd", "etc-passwd"),
        ("...", "model-"),
        ("nul", "model-nul"),
        ("Hüfte", "Hüfte"),
        ("x" * 300, "x" * 50),
    ],
)
def test_any_text_gives_a_name_that_every_system_takes(text, name):
    assert name_from(text) == name


def test_removing_takes_the_files_along(home, tmp_path):
    register(checkpoint(tmp_path / "a"))
    register(checkpoint(tmp_path / "b"))
    remove("hips")
    assert own() == ["hips-2"]
    assert sorted(p.suffix for p in home.rglob("*.safetensors")) == [".safetensors"]
    with pytest.raises(CheckpointError, match=r"'hips' .*: hips-2"):
        remove("hips")
    with pytest.raises(CheckpointError, match="comes with the program"):
        remove("default")


def test_a_row_that_leads_elsewhere_deletes_nothing_there(home, tmp_path):
    register(checkpoint(tmp_path / "run"))
    rows = yaml.safe_load((home / "index.yaml").read_text())
    rows["models"][0]["file"] = "../../run/model.safetensors"
    (home / "index.yaml").write_text(yaml.safe_dump(rows))
    remove("hips")
    assert (tmp_path / "run" / "model.safetensors").is_file()


def test_a_damaged_index_is_reported_and_kept(home, tmp_path):
    home.mkdir(parents=True)
    (home / "index.yaml").write_text("models: 3")
    with pytest.raises(CheckpointError, match=r"index\.yaml is damaged"):
        register(checkpoint(tmp_path / "run"))
    assert (home / "index.yaml").read_text() == "models: 3"
    assert not [p for p in home.iterdir() if p.is_dir()]


def test_a_damaged_checkpoint_is_not_entered(home, tmp_path):
    path = checkpoint(tmp_path / "run")
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(CheckpointError, match="damaged"):
        register(path)
    assert not home.exists()


def test_a_full_disk_leaves_the_index_as_it_was(home, tmp_path, monkeypatch):
    register(checkpoint(tmp_path / "a"))
    before = sorted(p.relative_to(home) for p in home.rglob("*"))

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(user_index.shutil, "copyfile", full)
    with pytest.raises(ExportError, match="disk is full"):
        register(checkpoint(tmp_path / "b", name="other"))
    assert sorted(p.relative_to(home) for p in home.rglob("*")) == before
    assert own() == ["hips"]


def _register(path: Path) -> None:
    register(path)


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="this system does not fork"
)
def test_runs_that_end_at_once_are_all_entered(home, tmp_path):
    paths = [checkpoint(tmp_path / str(i)) for i in range(4)]
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_register, args=(path,)) for path in paths]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert sorted(own()) == ["hips", "hips-2", "hips-3", "hips-4"]
