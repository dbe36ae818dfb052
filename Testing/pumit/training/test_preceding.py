"""What a run needs first is trained first, in its folder, and not again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from labelled_scans import write, write_pairs
from pumit.cli.main import main
from pumit.errors import PumitError
from pumit.models.checkpoint import load_checkpoint
from pumit.runs import read_log, read_status
from pumit.training.recipes import reader
from pumit.training.recipes.reader import read_yaml
from segmentation_runs import train

pytestmark = pytest.mark.usefixtures("blank_pictures")

VIT = {"dim": 24, "depth": 4, "num_heads": 2, "hidden": 32, "position_table": [1, 2, 2]}
SMALL: dict[str, Any] = {
    "tokenizer": {"network_sizes": {"widths": [8, 8, 16], "groups": 4}},
    "vit": {"network_sizes": VIT},
    "segmentation": {
        "network_sizes": {
            **{k: v for k, v in VIT.items() if k != "position_table"},
            "detail_widths": [4, 4],
            "pyramid_widths": [8, 8, 8, 8],
            "taps": [1, 2, 3, 4],
            "head_width": 0,
        },
        "plan": {"spacing_mm": [1, 1, 1], "patch_size": [16, 32, 32], "batch_size": 1},
        "validation": {"overlap": 0.0, "final_overlap": 0.0},
    },
}


@pytest.fixture
def shrunken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The recipes that ship, with networks and crops as small as a test needs."""
    folder = tmp_path / "recipes"
    folder.mkdir()
    for name, changes in SMALL.items():
        recipe = {**read_yaml(reader.shipped_recipe(name)), **changes}
        recipe |= {"threads": 1, "device": "cpu", "register": False}
        recipe["schedule"] = {**recipe["schedule"], "log_every": 1, "precision": "fp32"}
        if name != "segmentation":
            recipe |= {"crop": {"depth": 16, "in_plane": 32}, "batch_size": 1}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(recipe))
    monkeypatch.setattr(reader, "recipe_folder", lambda: folder)
    # Their own sizes have no weights that ship.
    from pumit.training import preceding

    own = preceding.preceding_of

    def without_initial(*args: Any, **more: Any) -> Any:
        found = own(*args, **more)
        if found is not None and found.recipe == "tokenizer":
            found.changes.pop("initial")
            found.changes["real_share"] = 1.0
        return found

    monkeypatch.setattr("pumit.training.train.preceding_of", without_initial)
    return folder


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    """A mixture: files of two kinds at different depths, one of which is damaged."""
    rng = np.random.default_rng(0)
    for name, shape, spacing in (
        ("a.nii.gz", (20, 36, 36), (1.0, 1.0, 1.0)),
        ("b/c/thick.nrrd", (10, 36, 36), (6.0, 1.0, 1.0)),
    ):
        write(tmp_path / "scans" / name, rng.integers(1, 900, shape).astype(np.int16), spacing)
    (tmp_path / "scans" / "broken.nii.gz").write_bytes(b"no scan")
    return tmp_path / "scans"


def steps(folder: Path) -> list[int]:
    return [line["step"] for line in read_log(folder)[0] if "loss" in line]


def warnings(folder: Path) -> list[str]:
    return [line["sentence"] for line in read_log(folder)[0] if line.get("event") == "warning"]


@pytest.mark.slow
def test_one_command_learns_a_tokenizer_an_encoder_and_a_segmentation(
    tmp_path, shrunken, scans, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path / "labelled", 3, shape=(16, 32, 32), spacing=(1.0, 1.0, 1.0))
    command = ["pretrain", "--on", "scans", "--data", "labelled", "-o", "run", "--steps", "2"]

    assert main(command) == 0

    run = tmp_path / "run"
    parts = [run / "pretraining" / "pretraining", run / "pretraining", run]
    assert [steps(folder) for folder in parts] == [[1, 2]] * 3
    vit = load_checkpoint(run / "pretraining" / "vit.safetensors").recipe
    assert vit["tokenizer"]["sha256"] == load_checkpoint(parts[0] / "tokenizer.safetensors").sha256
    card = (run / "card.md").read_text()
    assert "Pre-training, without labels" in card
    assert str(scans) not in card
    # Started again, nothing is done twice; with more steps the last part continues.
    assert main([*command[:-1], "3"]) == 0
    assert [len(steps(folder)) for folder in parts] == [2, 2, 3]


def test_it_stops_in_a_part_and_without_labels_the_encoder_is_the_result(
    tmp_path, shrunken, scans, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    command = ["pretrain", "--on", "scans", "-o", "run", "--steps"]
    from pumit.training.run.reporter import RunStopped

    def stop(*args: Any, **more: Any) -> None:
        raise RunStopped("stopped")

    with monkeypatch.context() as patch:
        patch.setattr("pumit.training.run.relay.repeated", stop)
        assert main([*command, "2"]) == 0
    assert not (tmp_path / "run" / "vit.safetensors").exists()
    assert main([*command, "2"]) == 0
    status = read_status(tmp_path / "run")
    assert (status.state, status.model, status.registered) == ("finished", "vit.safetensors", "vit")
    assert steps(tmp_path / "run" / "pretraining") == [1, 2]
    assert not warnings(tmp_path / "run")
    # What was learned from other scans is kept, and the run says so.
    scans.rename(tmp_path / "others")
    command[command.index("scans")] = "others"
    assert main([*command, "2"]) == 0
    assert steps(tmp_path / "run" / "pretraining") == [1, 2]
    (warning,) = warnings(tmp_path / "run")
    assert "What was learned from the former one is kept" in warning


def test_a_network_without_such_a_run_is_named(tmp_path):
    for changes, reason in (
        ({"network": "basic_unet"}, "goes with a network of PUMIT"),
        ({"initial": "x.safetensors"}, "both `unlabelled` and `initial`"),
        ({"folds": 3}, "again in each part"),
    ):
        with pytest.raises(PumitError, match=reason):
            train(tmp_path, network_sizes=None, unlabelled="scans", **changes)


def test_a_run_begun_without_it_is_refused_before_anything_is_learnt(tmp_path):
    write_pairs(tmp_path / "set", 2)
    write_pairs(tmp_path / "scans", 1)
    train(tmp_path)
    with pytest.raises(PumitError, match=r"recipe\.yaml: initial was not given"):
        train(tmp_path, unlabelled="scans")
    assert not (tmp_path / "out" / "pretraining").exists()
