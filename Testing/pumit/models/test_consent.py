"""A model with a restricted licence is used after its user has agreed, and not before."""

import io
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from pretraining_runs import SHORT, written
from pumit.cli.main import main
from pumit.errors import CheckpointError
from pumit.inference.interactive.segmenter import load_segmenter
from pumit.models.checkpoint import read_recipe, save_checkpoint
from pumit.models.consent import require_consent
from pumit.models.index import INDEX_FILE
from pumit.networks.build import build_network
from pumit.system.consent import CONSENT_FILE, has_consent, is_restricted, user_folder
from pumit.system.files import file_sha256
from pumit.training.pretrain import pretrain

LICENCE = "CC BY-NC-SA 4.0"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index of the user's with a model for research."""
    row = {
        "name": "mine", "file": "mine.safetensors", "sha256": "0" * 64, "kind": "promptable",
        "description": "For a test.", "licence": LICENCE, "source": "own",
    }  # fmt: skip
    (tmp_path / INDEX_FILE).write_text(yaml.safe_dump({"models": [row]}), encoding="utf-8")
    monkeypatch.setenv("PUMIT_MODELS", str(tmp_path))
    return tmp_path


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("licence", "expected"),
    [(LICENCE, True), ("CC BY-ND 4.0", True), ("Apache-2.0", False), ("CC BY 4.0", False)],
)
def test_licences_that_forbid_some_uses(licence, expected):
    assert is_restricted(licence) is expected


def test_free_models_and_files_need_no_question():
    require_consent("default")
    require_consent("model.safetensors")
    require_consent(None)


def test_without_a_terminal_the_remedy_is_said(capsys):
    with pytest.raises(CheckpointError, match="pumit models accept mine"):
        require_consent("mine")
    assert main(["models", "accept", "mine"]) == 0
    assert LICENCE in capsys.readouterr().out
    require_consent("mine")


def test_the_library_loads_no_such_model_before(folder, tiny_checkpoint):
    shutil.copyfile(tiny_checkpoint, folder / "mine.safetensors")
    index = yaml.safe_load((folder / INDEX_FILE).read_text(encoding="utf-8"))
    index["models"][0]["sha256"] = file_sha256(tiny_checkpoint)
    (folder / INDEX_FILE).write_text(yaml.safe_dump(index), encoding="utf-8")
    with pytest.raises(CheckpointError, match="pumit models accept mine"):
        load_segmenter("mine")
    assert main(["models", "accept", "mine"]) == 0
    assert load_segmenter("mine").device == "cpu"


@pytest.mark.parametrize(
    ("answer", "agrees"), [("y", True), ("YES", True), ("", False), ("n", False)]
)
def test_a_user_at_a_terminal_is_requested_once(answer, agrees, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", Terminal(f"{answer}\n"))
    if agrees:
        require_consent("mine")
        require_consent("mine")
        assert capsys.readouterr().err.count("Do you agree?") == 1
    else:
        with pytest.raises(CheckpointError):
            require_consent("mine")
    assert has_consent("mine", LICENCE) is agrees


def test_another_licence_is_another_question():
    assert main(["models", "accept", "mine"]) == 0
    assert not has_consent("mine", "CC BY-NC-ND 4.0")


def test_a_damaged_file_asks_again(folder):
    (folder / CONSENT_FILE).write_text("{")
    assert not has_consent("mine", LICENCE)


@pytest.mark.usefixtures("blank_pictures")
def test_a_training_begins_with_it_after_consent_and_keeps_its_licence(
    folder, tmp_path, tiny_sizes, capsys
):
    sizes = {**tiny_sizes, "widths": list(tiny_sizes["widths"])}
    state = build_network("promptable", **sizes).state_dict()
    content = {"name": "mine", "network": "promptable", "sizes": sizes, "licence": LICENCE}
    save_checkpoint(folder / "mine.safetensors", state, content)
    recipe = {**SHORT, "name": "later", "network_sizes": sizes, "initial": "mine", "register": True}
    recipe["card"] = {"licence": "CC BY 4.0"}  # which its maker cannot give
    path = written(tmp_path, recipe)
    with pytest.raises(CheckpointError, match="pumit models accept mine"):
        pretrain(path, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert main(["models", "accept", "mine"]) == 0
    assert read_recipe(pretrain(path, tmp_path / "run"))[0]["licence"] == LICENCE
    assert load_segmenter("later").name == "later"  # whose maker has agreed


@pytest.mark.parametrize("command", ["segment", "predict"])
def test_commands_stop_before_they_load_it(command, tmp_path, capsys):
    image = tmp_path / "scan.nii.gz"
    arguments = [command, str(image), "--model", "mine", "-o", str(tmp_path / "out.nii.gz")]
    arguments += ["--point", "0,0,0"] if command == "segment" else []
    assert main(arguments) == 2
    assert not (tmp_path / "out.nii.gz").exists()


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PUMIT_MODELS", str(tmp_path / "file" / "models"))
    assert main(["models", "accept", "default"]) == 2
    assert "Cannot make the folder" in capsys.readouterr().err


def test_an_unknown_model_cannot_be_accepted(capsys):
    assert main(["models", "accept", "nobody"]) == 2
    assert "Unknown model 'nobody'" in capsys.readouterr().err


def test_the_folder_of_models_may_be_below_home(monkeypatch):
    monkeypatch.setenv("PUMIT_MODELS", "~/models")
    assert user_folder() == Path.home() / "models"
