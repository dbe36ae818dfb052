"""`pumit pretrain` makes a model that loads, and says what is wrong with a recipe."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from labelled_scans import write
from pretraining_runs import SHORT, written
from pumit.errors import CheckpointError, PumitError
from pumit.inference.interactive.segmenter import load_segmenter
from pumit.models.checkpoint import load_checkpoint, save_checkpoint
from pumit.networks.build import build_network
from pumit.training.pretrain import pretrain

pytestmark = pytest.mark.usefixtures("blank_pictures")


@pytest.fixture
def recipe(tiny_sizes: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "tiny",
        "version": "0.1",
        "network": "promptable",
        "network_sizes": {k: list(v) if k == "widths" else v for k, v in tiny_sizes.items()},
        **SHORT,
        "card": {"licence": "Apache-2.0"},
    }


def test_two_steps_give_a_model_that_loads(tmp_path, recipe, capsys):
    path = pretrain(written(tmp_path, recipe), tmp_path / "run")
    segmenter = load_segmenter(path, device="cpu")
    assert (segmenter.name, segmenter.version, segmenter.field_size) == ("tiny", "0.1", 16)
    assert segmenter.recipe["step"] == 2
    assert segmenter.recipe["licence"] == "Apache-2.0"
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    lines = [line for line in said if "loss" in line]
    assert [line["step"] for line in lines] == [1, 2]
    assert all(line["voxels_per_second"] > line["fields_per_second"] > 0 for line in lines)
    log = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in log] == said


def test_it_begins_with_the_weights_of_an_earlier_model_of_its_size(tmp_path, recipe, tiny_sizes):
    torch.manual_seed(5)
    before = build_network("promptable", **tiny_sizes).state_dict()
    content = {"name": "first", "network": "promptable", "sizes": tiny_sizes}
    save_checkpoint(tmp_path / "first.safetensors", before, content)
    still = {**recipe["schedule"], "steps": 1, "learning_rate": 0.0}
    path = written(tmp_path, recipe, initial=str(tmp_path / "first.safetensors"), schedule=still)
    after = load_checkpoint(pretrain(path, tmp_path / "run")).state
    for name, value in before.items():
        torch.testing.assert_close(after[name].float(), value, atol=1e-3, rtol=1e-2)
    with pytest.raises(CheckpointError, match="other network_sizes"):
        pretrain(written(tmp_path, recipe, initial="default"), tmp_path / "other")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("settings", [{"workers": 2}, {"scene_device": "cuda"}], ids=str)
def test_a_gpu_trains_a_model_that_loads(tmp_path, recipe, settings):
    path = written(tmp_path, recipe, **settings, device="cuda")
    pretrain(path, tmp_path / "run", changes={"schedule": {"steps": 2}})
    model = pretrain(path, tmp_path / "run", changes={"schedule": {"steps": 4}})
    assert load_segmenter(model, device="cpu").recipe["step"] == 4


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"bacth_size": 4}, "did you mean 'batch_size'"),
        ({"threads": -1}, "threads .* got -1"),
        ({"compile": "yes"}, "compile .* got 'yes'"),
        ({"device": "gpu"}, "Unknown device 'gpu'"),
        ({"device": "cuda:99"}, "'cuda:99' is not available"),
        ({"scene_device": "tpu9"}, "Unknown device 'tpu9'"),
        ({"schedule": None}, "schedule .* got None"),
        ({"schedule": {"learning_rate": float("nan")}}, "learning_rate in schedule"),
        ({"network": "nnformer_tumor"}, "is not pretrained"),
        ({"network_sizes": [1]}, "network_sizes"),
        ({"network_sizes": {"dimm": 3}}, "did you mean 'dim'"),
        ({"network_sizes": {"num_heads": 0}}, "num_heads|positive"),
        ({"real_cases": "all"}, "real_cases"),
        ({"real_cases": ["a"]}, "no real_folder"),
        ({"real_cases": ["a"], "real_folder": "none"}, "real_folder none is missing"),
        ({"name": "../elsewhere"}, "cannot be that of the model's file"),
    ],
    ids=str,
)
def test_what_is_wrong_with_a_recipe_is_named(tmp_path, recipe, change, reason):
    with pytest.raises(PumitError, match=reason) as caught:
        pretrain(written(tmp_path, recipe, **change), tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_what_is_no_recipe_is_one_line(tmp_path):
    path = tmp_path / "r.yaml"
    for content in (None, b"", b"3", b"- a", b"a: [", b"\x00", b"a: b: c", b"\xff\xfe\x00\x80"):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(PumitError) as caught:
            pretrain(path, tmp_path / "run")
        assert "\n" not in str(caught.value)
        assert str(tmp_path) not in str(caught.value)


def test_scans_of_a_tier_and_label_maps_join(tmp_path, recipe):
    """What lies in two folders and two tiers; only what the recipe names is read."""
    folder, generator = tmp_path / "cases", np.random.default_rng(0)
    label = np.zeros((12, 24, 24), np.int16)
    label[3:9, 6:18, 6:18] = 1
    for case in ("a", "b", "c"):
        image = (100 * label + generator.normal(0, 5, label.shape)).astype(np.int16)
        for kind, array in (("image", image), ("label", label)):
            write(folder / case / f"{kind}.nii.gz", array, (1.0, 1.0, 1.0))
    tiers = {case: {"tier": tier} for case, tier in (("a", "open"), ("b", "open"), ("c", "closed"))}
    (folder / "index.json").write_text(json.dumps(tiers))
    own: dict[str, Any] = {
        "real_folder": str(folder),
        "real_cases": ["c"],
        "real_sets": [{"folder": ".", "tiers": ["open"]}],
        "label_maps": ["*/label.nii.gz"],
        "real_share": 0.5,
        "map_share": 0.5,
        "field_sizes": {16: 0.5, 24: 0.5},
        "rounds": {2: 1.0},
    }
    path = written(tmp_path, recipe, **own)
    model = pretrain(path, tmp_path / "run", changes={"schedule": {"steps": 3}, "workers": 1})
    followed = load_checkpoint(model).recipe["training"]
    assert followed["map_share"] == 0.5
    # Folders and patterns may name patients.
    assert not {"real_cases", "real_images", "real_sets", "label_maps"} & set(followed)
    for change, reason in (
        ({"label_maps": ["none*.nii.gz"]}, "No label map fits none"),
        ({"real_sets": [{"folder": "elsewhere"}]}, "folder elsewhere of real_sets is missing"),
    ):
        with pytest.raises(PumitError, match=reason):
            pretrain(written(tmp_path, {**recipe, **own}, **change), tmp_path / "other")
