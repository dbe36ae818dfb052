"""Several automatic models as one: probabilities are averaged, and one file holds them all."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from known_networks import CLASSES, PLAN, save_model, smooth_scan
from pumit.cli.main import main
from pumit.errors import CheckpointError
from pumit.inference.automatic import segmentation as automatic
from pumit.inference.automatic.segmentation import load_automatic
from pumit.models.checkpoint import load_checkpoint, save_checkpoint
from pumit.models.ensemble import join_models, members_of
from pumit.models.index import list_models
from pumit.models.model_file import export_model, import_model
from pumit.networks.build import build_network
from pumit.system.watch import Watch
from pumit.volume import Volume


@pytest.fixture(autouse=True)
def _own_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUMIT_MODELS", str(tmp_path / "models"))


def other_model(path: Path, **plan: Any) -> Path:
    """A model as `save_model` makes it, with other thresholds and another plan."""
    save_model(path)
    checkpoint = load_checkpoint(path)
    checkpoint.state["conv.bias"][1] += 5
    save_checkpoint(path, checkpoint.state, {**checkpoint.recipe, "plan": {**PLAN, **plan}})
    return path


def shares(model: Path, volume: Volume, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Probabilities (K, D, H, W) of one model at the volume's voxels."""
    planes: list[np.ndarray] = []

    def keep(plane: torch.Tensor, sums: Any) -> Any:
        planes.append(plane.numpy())
        return plane.argmax(0).numpy()

    with monkeypatch.context() as patch:
        patch.setattr(automatic, "_label_plane", keep)
        load_automatic(model, "cpu").segment(volume)
    return np.stack(planes, 1)


@pytest.mark.usefixtures("known_networks")
def test_labels_are_those_of_the_mean_probability(tmp_path, monkeypatch):
    volume = smooth_scan((13, 40, 36), (4.0, 0.8, 0.9))
    one = save_model(tmp_path / "one.safetensors")
    two = other_model(tmp_path / "two.safetensors", spacing_mm=[3.0, 1.5, 1.5])
    join_models([one, two], tmp_path / "both.safetensors", name="both")
    model = load_automatic(tmp_path / "both.safetensors", "cpu")
    assert (model.name, len(model.members)) == ("both", 2)
    asked: list[float] = []
    found = model.segment(volume, watch=Watch(progress=asked.append)).labels
    mean = (shares(one, volume, monkeypatch) + shares(two, volume, monkeypatch)) / 2
    assert np.array_equal(found, mean.argmax(0))
    assert not np.array_equal(found, load_automatic(one, "cpu").segment(volume).labels)
    assert asked == sorted(asked)
    assert asked[-1] == pytest.approx(1.0)


@pytest.mark.usefixtures("known_networks")
def test_models_that_do_not_answer_alike_are_refused(tmp_path):
    one = save_model(tmp_path / "one.safetensors")
    checkpoint = load_checkpoint(one)
    renamed = [{**CLASSES[0], "name": "spleen"}, CLASSES[1]]
    for name, change, words in (
        ("classes", {"classes": renamed}, "other classes"),
        ("plan", {"plan": {**PLAN, "orientation": "stored"}}, "another orientation"),
        ("kind", {"kind": "encoder"}, "no automatic model"),
    ):
        path = tmp_path / f"{name}.safetensors"
        save_checkpoint(path, checkpoint.state, {**checkpoint.recipe, **change})
        with pytest.raises(CheckpointError, match=words):
            join_models([one, path], tmp_path / "out.safetensors", name="out")
    with pytest.raises(CheckpointError, match="needs 2 models"):
        join_models([one], tmp_path / "out.safetensors", name="out")
    copy = tmp_path / "copy.safetensors"
    copy.write_bytes(one.read_bytes())
    with pytest.raises(CheckpointError, match=r"copy\.safetensors has the weights of another"):
        join_models([one, copy], tmp_path / "out.safetensors", name="out")
    two = other_model(tmp_path / "two.safetensors")
    join_models([one, two], tmp_path / "both.safetensors", name="both")
    with pytest.raises(CheckpointError, match=r"both\.safetensors has the weights of another"):
        join_models([two, tmp_path / "both.safetensors"], tmp_path / "out.safetensors", name="out")
    for path, channels in ((one, ["T1", "T2"]), (two, ["T2", "T1"])):
        checkpoint = load_checkpoint(path)
        plan, training = {**PLAN, "channels": 2}, {"channels": channels}
        content = {**checkpoint.recipe, "plan": plan, "training": training}
        save_checkpoint(path, checkpoint.state, content)
    with pytest.raises(CheckpointError, match="the channels T2, T1, the first model T1, T2"):
        join_models([one, two], tmp_path / "out.safetensors", name="out")


@pytest.mark.usefixtures("known_networks")
def test_numbers_of_windows_stay_whole(tmp_path):
    """Half precision rounds whole numbers above 2048; windows of seven count to 2196."""
    index = torch.arange(2197)
    paths = [save_model(tmp_path / "one.safetensors"), other_model(tmp_path / "two.safetensors")]
    for path in paths:
        checkpoint = load_checkpoint(path)
        save_checkpoint(path, {**checkpoint.state, "index": index}, checkpoint.recipe)
    join_models(paths, tmp_path / "both.safetensors", name="both")
    for member in members_of(load_checkpoint(tmp_path / "both.safetensors")):
        assert member.state["index"].tolist() == index.tolist()


def family_model(path: Path, network: str, **sizes: Any) -> Path:
    torch.manual_seed(1)
    built = build_network(network, **sizes)
    recipe = {
        "name": path.stem,
        "network": network,
        "sizes": sizes,
        "classes": CLASSES,
        "plan": {**PLAN, "patch_size": [16, 32, 32]},
        "licence": "CC BY-NC-SA 4.0" if network == "basic_unet" else "Apache-2.0",
    }
    save_checkpoint(path, built.state_dict(), recipe)
    return path


def test_two_families_are_one_model_of_the_index(tmp_path):
    unet = family_model(
        tmp_path / "unet.safetensors", "basic_unet", features=(4,) * 6, num_classes=3
    )
    former = family_model(
        tmp_path / "former.safetensors", "nnformer_small", dim=8, depths=(1,) * 4, num_classes=3,
        num_heads=(1,) * 4, decoder_num_heads=(1,) * 3,
    )  # fmt: skip
    assert main(["models", "join", str(unet), str(former), "--name", "both"]) == 0
    entry = next(entry for entry in list_models() if entry.name == "both")
    assert "nnformer_small" in entry.description
    assert entry.licence == "CC BY-NC-SA 4.0 and Apache-2.0"  # asks as the stricter one does
    volume = smooth_scan((20, 40, 36), (2.0, 1.0, 1.0))
    labels = load_automatic(entry.path, "cpu").segment(volume, overlap=0.0).labels
    assert labels.shape == volume.shape
    # It can be handed on, and joined again.
    export_model(entry.path, tmp_path / "both.pumit.zip")
    again = import_model(tmp_path / "both.pumit.zip", name="again")
    assert len(members_of(load_checkpoint(again.path))) == 2
    third = family_model(
        tmp_path / "third.safetensors", "basic_unet", features=(6,) * 6, num_classes=3
    )
    join_models([again.path, third], tmp_path / "three.safetensors", name="three")
    assert len(members_of(load_checkpoint(tmp_path / "three.safetensors"))) == 3


@pytest.mark.usefixtures("known_networks")
def test_an_ensemble_has_the_mean_expected_dice_of_its_members(tmp_path):
    paths = []
    for number, values in enumerate(([0.9, 0.8], [0.7, None], [])):
        path = save_model(tmp_path / f"{number}.safetensors", expected_dice=values)
        checkpoint = load_checkpoint(path)
        checkpoint.state["conv.bias"][1] += number
        save_checkpoint(path, checkpoint.state, checkpoint.recipe)
        paths.append(path)
    target = tmp_path / "both.safetensors"
    join_models(paths[:2], target, name="both")
    assert load_checkpoint(target).recipe["expected_dice"] == [pytest.approx(0.8), None]
    join_models(paths, target, name="three")
    assert load_checkpoint(target).recipe["expected_dice"] == []
