"""Recipes and runs that an earlier version has saved still mean the same.

The files in `saved/` are what version 0.1.0 wrote of commit b25bee8: runs that were stopped after a
step with the recipes they were given, trainings of a comparison, and plans that the panel keeps.
`saved/stopped/` is a run of commit 0dac706, stopped at step 4 of 12, without its weights, which are
made again here in the form in which that commit kept them.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from labelled_scans import write_pairs
from pumit.models.tensor_file import write_tensors
from pumit.networks.build import build_network
from pumit.runs import read_log, read_status
from pumit.training.comparison.plan import read_comparison
from pumit.training.comparison.run import HARMLESS
from pumit.training.recipes.labelled import LabelledRecipe
from pumit.training.recipes.reader import read_yaml
from pumit.training.recipes.tasks import TASKS
from pumit.training.run.resolved_recipe import (
    differences,
    plain,
    recipe_to_follow,
    whole_schedule,
    with_absolute_paths,
)
from pumit.training.run.resume_state import LAST
from pumit.training.train import finetune
from pumit.training.validate import read_recipe

pytestmark = pytest.mark.usefixtures("blank_pictures")

SAVED = Path(__file__).parent / "saved"


@pytest.mark.parametrize("file", ["given.yaml", "recipe.yaml"])
@pytest.mark.parametrize("task", sorted(TASKS.keys() - {"sam"}))  # which came later
def test_a_stopped_run_is_taken_up_by_either_recipe(task, file, tmp_path):
    run = shutil.copytree(SAVED / task, tmp_path / "run")
    (run / LAST).touch()
    keys = {"task": task, **read_yaml(run / file)}
    recipe = read_recipe(keys, file)
    given = with_absolute_paths(keys, lambda text: Path("/lab") / task / text)
    given["schedule"] = whole_schedule(recipe.schedule, keys)
    followed = recipe_to_follow(run, given, source=file)
    full = read_yaml(run / "recipe.yaml")
    assert differences(full, followed) == []
    read = read_recipe(followed, file)
    assert (read.name, read.seed) == (full["name"], full["seed"])
    assert read.schedule.learning_rate == full["schedule"]["learning_rate"]
    if isinstance(read, LabelledRecipe):
        assert read.data.validation == full["data"]["validation"]


@pytest.mark.parametrize("goal", ["automatic", "clicks"])
def test_plans_that_the_panel_keeps_are_read_as_they_are(goal):
    keys = read_yaml(SAVED / "panel" / f"{goal}_plan.yaml")
    recipe = read_recipe(keys, "recipe.yaml")
    named = recipe.schedule.named()  # nothing is left to a default of today
    assert {key: named[key] for key in keys["schedule"]} == keys["schedule"]
    assert recipe.named("validation") == {"validation": keys["validation"]}


@pytest.mark.parametrize("training", ["U-Net_0", "wide_5", "less_0"])
def test_trainings_of_a_comparison_have_the_recipes_they_had(training):
    found = read_comparison(SAVED / "comparison" / "compare.yaml")
    name, _, seed = training.rpartition("_")
    (network,) = (n for n in found.recipe.networks if n.slug == name)
    now = found.training_keys(network, int(seed))
    before = read_yaml(SAVED / "comparison" / f"{training}.yaml")
    # These were decided from the data.
    decided = ("data", "plan", "threads", "device")
    kept, made = ({k: v for k, v in keys.items() if k not in decided} for keys in (before, now))
    assert differences(kept, plain(made), harmless=HARMLESS) == []
    assert before["data"].get("share") == now["data"].get("share")


def write_last(path: Path, recipe: dict[str, Any]) -> None:
    """What that commit kept of a run: weights, their average, AdamW's state, and where it was."""
    torch.manual_seed(0)
    network = build_network(recipe["network"], **recipe["network_sizes"])
    tensors = {}
    for name, value in network.state_dict().items():
        tensors |= {f"network.{name}": value.clone(), f"average.{name}": value.clone()}
    for name, value in network.named_parameters():
        for moment in ("exp_avg", "exp_avg_sq"):
            tensors[f"state.{name}.{moment}"] = torch.zeros_like(value)
        tensors[f"state.{name}.step"] = torch.tensor(4.0)
    position = {"step": 4, "elapsed": 6.9, "beside": 0.4, "skipped": 0, "best": None}
    position |= {"best_step": 0, "owes_validation": False}
    metadata = {"step": "4", "schedule": json.dumps({**recipe["schedule"], "seconds": None})}
    write_tensors(path, tensors, {**metadata, "position": json.dumps(position)})


@pytest.mark.slow
@pytest.mark.parametrize("file", ["given.yaml", "recipe.yaml"])
def test_a_run_that_version_0_1_0_stopped_goes_on_to_its_end(file, tmp_path):
    write_pairs(tmp_path / "set", 2)
    run = tmp_path / "run"
    run.mkdir()
    for saved in (SAVED / "stopped").iterdir():
        target = tmp_path if saved.name == "given.yaml" else run
        text = saved.read_text(encoding="utf-8").replace("{folder}", tmp_path.as_posix())
        (target / saved.name).write_text(text, encoding="utf-8")
    write_last(run / LAST, read_yaml(run / "recipe.yaml"))
    given = tmp_path / file if file == "given.yaml" else run / file
    best = finetune(given, run)
    assert best == run / "made.safetensors"
    steps = [record["step"] for record in read_log(run)[0] if "loss" in record]
    assert steps == list(range(1, 13))
    status = read_status(run)
    assert (status.state, status.step) == ("finished", 12)
