"""`pumit pretrain` makes a model that loads, and says what is wrong with a recipe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK
import torch
import yaml
from pumit.errors import CheckpointError, PumitError
from pumit.inference.interactive.segmenter import load_segmenter
from pumit.models.checkpoint import load_checkpoint
from pumit.training.pretrain import pretrain, read_recipe_file


@pytest.fixture
def recipe(tiny_sizes: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "tiny",
        "version": "0.1",
        "network": "promptable",
        "network_sizes": {k: list(v) if k == "widths" else v for k, v in tiny_sizes.items()},
        "seed": 3,
        "threads": 1,
        "batch_size": 1,
        "schedule": {"steps": 2, "warm_up": 1, "decay": 1, "log_every": 1},
        "card": {"licence": "Apache-2.0"},
    }


def write(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def test_two_steps_give_a_model_that_loads(
    tmp_path: Path, recipe: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    path = pretrain(write(tmp_path / "r.yaml", recipe), tmp_path / "run")
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


def test_it_begins_with_the_weights_of_an_earlier_model(
    tmp_path: Path, recipe: dict[str, Any]
) -> None:
    first = pretrain(write(tmp_path / "r.yaml", recipe), tmp_path / "run")
    still = {**recipe, "initial": str(first), "seed": 4}
    still["schedule"] = {**recipe["schedule"], "learning_rate": 0.0}
    second = pretrain(write(tmp_path / "s.yaml", still), tmp_path / "again")
    before, after = load_checkpoint(first).state, load_checkpoint(second).state
    for name, value in before.items():
        torch.testing.assert_close(after[name], value, atol=1e-3, rtol=1e-2)


def test_weights_of_another_size_are_no_beginning(tmp_path: Path, recipe: dict[str, Any]) -> None:
    other = {**recipe, "initial": "default"}
    with pytest.raises(CheckpointError, match="other network_sizes"):
        pretrain(write(tmp_path / "r.yaml", other), tmp_path / "run")


def losses(captured: str) -> list[float]:
    records = [json.loads(line) for line in captured.splitlines()]
    return [record["loss"] for record in records if "loss" in record]


@pytest.mark.slow
def test_workers_change_nothing_and_resume_exactly(
    tmp_path: Path, recipe: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "r.yaml", {**recipe, "device": "cpu"})
    steps = {"steps": 3}
    pretrain(path, tmp_path / "whole", overrides=steps)
    whole = losses(capsys.readouterr().out)
    pretrain(path, tmp_path / "parts", overrides={**steps, "seconds": 0}, workers=1)
    pretrain(path, tmp_path / "parts", overrides=steps, workers=2, device="cpu")
    assert losses(capsys.readouterr().out) == whole
    assert len(whole) == 3


def test_a_device_that_is_not_there_is_named(tmp_path: Path, recipe: dict[str, Any]) -> None:
    path = write(tmp_path / "r.yaml", recipe)
    with pytest.raises(PumitError, match="'cuda:99' is not available"):
        pretrain(path, tmp_path / "run", device="cuda:99")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("settings", [{"workers": 2}, {"scene_device": "cuda"}], ids=str)
def test_a_gpu_trains_a_model_that_loads(
    tmp_path: Path, recipe: dict[str, Any], settings: dict[str, Any]
) -> None:
    path = write(tmp_path / "r.yaml", {**recipe, **settings, "device": "cuda"})
    pretrain(path, tmp_path / "run", overrides={"steps": 2})
    model = pretrain(path, tmp_path / "run", overrides={"steps": 4})
    assert load_segmenter(model, device="cpu").recipe["step"] == 4


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"bacth_size": 4}, "did you mean 'batch_size'"),
        ({"schedule": {"learning_rat": 1}}, "did you mean 'learning_rate'"),
        ({"zzz": 1}, "known: .*batch_size"),
        ({"batch_size": "four"}, "batch_size .* got 'four'"),
        ({"batch_size": 0}, "batch_size .* got 0"),
        ({"batch_size": True}, "batch_size .* got True"),
        ({"threads": -1}, "threads .* got -1"),
        ({"workers": -1}, "workers .* got -1"),
        ({"compile": "yes"}, "compile .* got 'yes'"),
        ({"device": "gpu"}, "Unknown device 'gpu'"),
        ({"scene_device": "tpu9"}, "Unknown device 'tpu9'"),
        ({"schedule": 3}, "schedule .* got 3"),
        ({"schedule": None}, "schedule .* got None"),
        ({"schedule": {"steps": "many"}}, "steps in schedule .* got 'many'"),
        ({"schedule": {"learning_rate": "8e-4x"}}, "learning_rate in schedule"),
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
def test_what_is_wrong_with_a_recipe_is_named(
    tmp_path: Path, recipe: dict[str, Any], change: dict[str, Any], reason: str
) -> None:
    path = write(tmp_path / "r.yaml", {**recipe, **change})
    with pytest.raises(PumitError, match=reason) as caught:
        pretrain(path, tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("content", ["", "3", "- a", "a: [", "\x00", "a: b: c"])
def test_what_is_no_recipe_is_one_line(tmp_path: Path, content: str) -> None:
    path = write(tmp_path / "r.yaml", content)
    with pytest.raises(PumitError) as caught:
        read_recipe_file(path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


def test_a_recipe_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_bytes(b"\xff\xfe\x00\x80")
    for path in (tmp_path / "r.yaml", tmp_path / "none.yaml", tmp_path):
        with pytest.raises(PumitError, match="Cannot read") as caught:
            read_recipe_file(path)
        assert str(tmp_path) not in str(caught.value).replace(tmp_path.name, "")


def test_overrides_are_checked_too(tmp_path: Path, recipe: dict[str, Any]) -> None:
    path = write(tmp_path / "r.yaml", recipe)
    with pytest.raises(PumitError, match="steps in schedule"):
        pretrain(path, tmp_path / "run", overrides={"steps": -1})


def test_scans_of_a_tier_and_label_maps_join(tmp_path: Path, recipe: dict[str, Any]) -> None:
    """What lies in two folders and two tiers; only what the recipe names is read."""
    folder, generator = tmp_path / "cases", np.random.default_rng(0)
    label = np.zeros((12, 24, 24), np.int16)
    label[3:9, 6:18, 6:18] = 1
    for case in ("a", "b", "c"):
        (folder / case).mkdir(parents=True)
        image = (100 * label + generator.normal(0, 5, label.shape)).astype(np.int16)
        for kind, array in (("image", image), ("label", label)):
            SimpleITK.WriteImage(
                SimpleITK.GetImageFromArray(array), str(folder / case / f"{kind}.nii.gz")
            )
    tiers = {case: {"tier": tier} for case, tier in (("a", "open"), ("b", "open"), ("c", "closed"))}
    (folder / "index.json").write_text(json.dumps(tiers))
    path = write(
        tmp_path / "r.yaml",
        {
            **recipe,
            "real_folder": str(folder),
            "real_cases": ["c"],
            "real_sets": [{"folder": ".", "tiers": ["open"]}],
            "label_maps": ["*/label.nii.gz"],
            "real_share": 0.5,
            "map_share": 0.5,
            "field_sizes": {16: 0.5, 24: 0.5},
            "rounds": {2: 1.0},
        },
    )
    model = pretrain(path, tmp_path / "run", overrides={"steps": 3})
    followed = load_checkpoint(model).recipe["training"]
    assert followed["real_sets"] == [{"folder": ".", "tiers": ["open"]}]
    assert followed["map_share"] == 0.5


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"label_maps": ["none*.nii.gz"]}, "No label map fits none"),
        ({"real_sets": [{"folder": "elsewhere"}]}, "folder elsewhere of real_sets is missing"),
    ],
    ids=str,
)
def test_missing_maps_and_sets_are_named(
    tmp_path: Path, recipe: dict[str, Any], change: dict[str, Any], reason: str
) -> None:
    (tmp_path / "a").mkdir()
    image = SimpleITK.GetImageFromArray(np.random.default_rng(0).normal(0, 5, (8, 16, 16)))
    SimpleITK.WriteImage(image, str(tmp_path / "a" / "image.nii.gz"))
    real = {"real_folder": str(tmp_path), "real_cases": ["a"]}
    path = write(tmp_path / "r.yaml", {**recipe, **real, **change})
    with pytest.raises(PumitError, match=reason):
        pretrain(path, tmp_path / "run")
