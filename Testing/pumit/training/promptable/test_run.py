"""`pumit train` with `task: promptable` makes what a session loads, and says what is wrong."""

import json
import shutil
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pumit
import pytest
import torch
import yaml
from labelled_scans import write, write_pairs
from pumit.errors import PumitError
from pumit.models.checkpoint import load_checkpoint, read_recipe, save_checkpoint
from pumit.networks.build import build_network
from pumit.runs import read_log
from pumit.training.promptable.plan import plan_clicks, scans_of
from pumit.training.promptable.validation import validated_structures
from pumit.training.run.reporter import RunStopped
from pumit.training.run.resume_state import LAST, step_saved
from pumit.training.train import finetune
from pumit.training.validate import read_recipe as read_recipe_keys
from pumit.volume import Volume

CALIBRATION = {"estimate": [0.1, 0.9], "iou": [0.2, 0.8], "answers": 9}
LAYER_RANGES = {"image_encoder.stem": [0.0, 0.0], "mask_decoder.last": [-1e3, 0.0]}
RECIPE: dict[str, Any] = {
    "task": "promptable",
    "name": "tuned",
    "version": "7",
    "initial": "initial.safetensors",
    "data": {"folder": "set", "classes": {"ball": 1, "box": 2}, "validation": ["case_3"]},
    "validation": {"answers": 1, "scenes": 0},
    "blend": [1.0],
    "register": False,
    "device": "cpu",
    "threads": 1,
    "schedule": {"steps": 3, "log_every": 1, "validate_every": 0, "learning_rate": 3e-2},
}


pytestmark = pytest.mark.usefixtures("small_scenes", "blank_pictures")


@pytest.fixture(scope="module")
def untrained(tiny_sizes: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a data set and a model to begin with; for `lab` and `tuned`."""
    folder = tmp_path_factory.mktemp("untrained")
    write_pairs(folder / "set", 4)
    torch.manual_seed(0)
    recipe = {
        "name": "first",
        "version": "3",
        "network": "promptable",
        "sizes": tiny_sizes,
        "calibration": CALIBRATION,
        "layer_ranges": LAYER_RANGES,
    }
    network = build_network("promptable", **tiny_sizes)
    half = {k: v.half() for k, v in network.state_dict().items()}
    save_checkpoint(folder / "initial.safetensors", half, recipe)
    return folder


@pytest.fixture
def lab(untrained: Path, tmp_path: Path) -> Path:
    """A folder of the test's own with a data set and a model to begin with."""
    return shutil.copytree(untrained, tmp_path / "lab")


@pytest.fixture(scope="module")
def tuned(untrained: Path) -> Callable[[str], Path]:
    """The model of a run that tuned a part, each trained once; no one changes its folder."""
    folder = untrained.parent / "tuned"
    shutil.copytree(untrained, folder)
    return cache(lambda part: run(folder, part, part=part, rank=2))


def run(
    folder: Path, output: str = "out", *, overrides: Mapping[str, Any] | None = None, **changes: Any
) -> Path:
    """Train in `folder` with some keys changed; a value None leaves a key out."""
    recipe = {k: v for k, v in {**RECIPE, **changes}.items() if v is not None}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return finetune(folder / "recipe.yaml", folder / output, changes={"schedule": overrides or {}})


def changed(folder: Path, best: Path, *, beginning: str) -> bool:
    """Whether weights of a part differ from those of the initial model."""
    before = load_checkpoint(folder / "initial.safetensors").state
    after = load_checkpoint(best).state
    assert before.keys() == after.keys()
    return any(not torch.equal(before[k], after[k]) for k in before if k.startswith(beginning))


@pytest.mark.slow
@pytest.mark.parametrize("part", ["decoder", "adapters", "all"])
def test_the_model_is_loaded_by_a_session_and_tells_its_origin(tuned, part):
    best = tuned(part)
    lab = best.parent.parent
    recipe, _ = read_recipe(best)
    assert recipe["kind"] == "promptable"
    assert recipe["training"]["initial"]["name"] == "first"
    assert recipe["training"]["initial"]["version"] == "3"
    assert recipe["training"]["initial"]["sha256"] == read_recipe(lab / "initial.safetensors")[1]
    assert recipe["training"]["part"] == part
    assert "calibration" not in recipe  # it was measured on other weights
    ranges = recipe["layer_ranges"]  # measured again, but never narrower
    assert ranges.keys() == LAYER_RANGES.keys()
    assert ranges["image_encoder.stem"][1] > 0.5
    assert ranges["mask_decoder.last"][0] == -1e3
    assert ranges["mask_decoder.last"][1] > 0
    assert [row["name"] for row in recipe["classes"]] == ["ball", "box"]
    assert changed(lab, best, beginning="mask_decoder")
    assert changed(lab, best, beginning="image_encoder.blocks") == (part != "decoder")
    assert changed(lab, best, beginning="image_encoder.stem") == (part == "all")
    assert all(v.dtype == torch.float16 for v in load_checkpoint(best).state.values())
    session = pumit.InteractiveSession(pumit.load_segmenter(best, device="cpu"))
    volume = Volume.read(lab / "set" / "images" / "case_0.nii.gz")
    session.set_volume(volume)
    x, y, z = volume.index_to_world((7, 12, 12)).tolist()
    session.add_point((x, y, z))
    assert session.predict().shape == volume.shape


@pytest.mark.slow
def test_validation_clicks_before_and_after_and_tries_blends(lab):
    classes = {"both": [1, 2], "box": 2}  # a region is clicked on as one structure
    data = {**RECIPE["data"], "classes": classes, "validation": ["case_2", "case_3"]}
    best = run(
        lab,
        data=data,
        validation={"answers": 3, "scenes": 1},
        blend=[0.5, 0.75],
        overrides={"steps": 1, "validate_every": 1},
    )
    found = read_log(lab / "out")[0]
    validations = [r for r in found if "validation" in r]
    assert [r["step"] for r in validations] == [0, 1]
    for record in validations:
        assert {"score", "dice_1", "dice_3", "dice_both", "dice_box"} <= record["validation"].keys()
    assert "forgotten" not in validations[0]["validation"]
    assert "forgotten" in validations[1]["validation"]
    assert [r["blend"]["tuned_share"] for r in found if "blend" in r] == [0.75, 0.5]
    result = json.loads((lab / "out" / "validation.json").read_text())
    assert result["tuned_share"] == read_recipe(best)[0]["tuned_share"]
    assert {(row["case"], row["label"]) for row in result["rows"]} == {
        *(("case_2", "both"), ("case_3", "both"), ("case_3", "box"))
    }
    assert all(len(row["clicks"]) == len(row["before"]) == 3 for row in result["rows"])
    pictures = [r["overlay"] for r in found if "overlay" in r]
    assert pictures
    assert all((lab / "out" / picture).is_file() for picture in pictures)


def test_a_run_that_is_stopped_while_it_writes_its_scores_writes_them_when_it_goes_on(
    lab, monkeypatch
):
    def stopped(*_: Any) -> None:
        raise RunStopped

    with monkeypatch.context() as patch:
        patch.setattr("pumit.training.promptable.run.write_json", stopped)
        with pytest.raises(RunStopped):
            run(lab, part="decoder", overrides={"steps": 1})
    best = run(lab, part="decoder", overrides={"steps": 1})
    result = json.loads((lab / "out" / "validation.json").read_text())
    assert result["tuned_share"] == read_recipe(best)[0]["tuned_share"]


@pytest.mark.slow
def test_an_interrupted_run_goes_on_to_the_same_weights(lab, tuned, monkeypatch):
    whole = load_checkpoint(tuned("adapters")).state

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pumit.training.loop.trainer.TrainState.validate", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(lab, "parts", part="adapters", rank=2, overrides={"checkpoint_seconds": 0.0})
    assert step_saved(lab / "parts" / LAST) == 2
    parts = load_checkpoint(run(lab, "parts", part="adapters", rank=2)).state
    torch.testing.assert_close(parts, whole)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"part": "encoder"}, "part in recipe.yaml must be"),
        ({"real_shar": 0.5}, "did you mean 'real_share'"),
        ({"real_share": 0.0}, "real_share in recipe.yaml must be above 0"),
        ({"blend": [0.5, 2.0]}, "blend, number 2 in recipe.yaml must be at most 1"),
        ({"validation": {"anwsers": 1}}, "did you mean 'answers'"),
        ({"network_sizes": {"dim": 24}}, "leave network_sizes out"),
        ({"initial": "tokenizer"}, "takes no prompts"),
        ({"initial": "nobody"}, "Unknown model 'nobody'"),
        ({"initial": "other.safetensors"}, "holds the network 'swin_unetr'"),
        ({"data": None}, "needs the key data"),
    ],
)
def test_bad_recipes_end_with_one_line(lab, changes, message):
    other = {"network": "swin_unetr", "sizes": {}}
    save_checkpoint(lab / "other.safetensors", {"a": torch.zeros(1)}, other)
    with pytest.raises(PumitError, match=message) as caught:
        run(lab, **changes)
    assert "\n" not in str(caught.value)
    assert not (lab / "out" / "tuned.safetensors").exists()


def test_classes_too_small_to_click_are_named(lab):
    for i in range(4):
        path = lab / "set" / "labels" / f"case_{i}.nii.gz"
        labels = Volume.read(path).array.copy()
        labels[labels == 2] = 0
        labels[2, 2, 2:7] = 2
        write(path, labels.astype(np.uint8))
    with pytest.raises(PumitError, match=r"Too small .*box \(at most 5\)"):
        run(lab)


def test_structures_whose_ends_are_unknown_are_not_clicked_on(lab):
    for case in ("case_0", "case_3"):
        path = lab / "set" / "labels" / f"{case}.nii.gz"
        labels = Volume.read(path).array.copy()
        labels[:, 25:][labels[:, 25:] == 2] = 9
        write(path, labels)
    keys = {**RECIPE, "data": {**RECIPE["data"], "ignore": 9}}
    recipe = read_recipe_keys(keys, "recipe")
    plan = plan_clicks(recipe, lambda text: lab / text)
    assert [sorted(fact.cut) for fact in plan.facts.cases] == [[2], [], [], [2]]
    assert [sorted(scan.places) for scan in scans_of(plan)] == [[1], [1, 2], [1, 2]]
    assert all(
        9 not in scan.labels.array and 255 not in scan.labels.array for scan in scans_of(plan)
    )
    facts = {fact.name: fact for fact in plan.facts.cases}
    assert validated_structures(facts, ["case_3"], plan.data.classes, 4) == {"case_3": [0]}
