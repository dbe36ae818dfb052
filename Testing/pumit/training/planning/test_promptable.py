"""`pumit plan --goal clicks` writes a recipe that `pumit train` follows."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from labelled_scans import write_pairs
from pumit.errors import PumitError
from pumit.training.planning.planner import plan_training
from pumit.training.planning.promptable import ClickCost, try_clicks
from pumit.training.planning.request import Planned, PlanRequest, TrialProcess
from pumit.training.planning.step_cost import StepCost
from pumit.training.recipes.model import read_model
from pumit.training.recipes.promptable import FineTuningRecipe
from pumit.training.recipes.writer import recipe_text
from pumit.training.train import finetune

pytestmark = pytest.mark.usefixtures("blank_pictures")

COST = ClickCost(StepCost(0.5, 4, 1000), 1 << 20, 1 << 20, 1e-7, 0.2, 0.3)


@pytest.fixture
def lab(
    tmp_path: Path, tiny_checkpoint: Path, small_scenes: None, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A data set, a model to begin with, and a machine whose speed is known."""
    write_pairs(tmp_path / "set", 5)
    monkeypatch.setattr(TrialProcess, "_launch", lambda self: None)
    monkeypatch.setattr(PlanRequest, "measure", lambda *_, **__: (COST, 2.0))
    return tmp_path


def plan(folder: Path, **changes: Any) -> Planned:
    given = {
        "initial": "tiny.safetensors",
        "data": {"folder": "set", "classes": {"ball": 1, "box": 2}},
        "threads": 1,
        **changes,
    }
    return plan_training(
        given,
        lambda text: folder / text,
        source="lab.yaml",
        preset="quick",
        goal="clicks",
        device="cpu",
    )


def test_the_recipe_says_everything_and_fits_into_the_time(lab):
    planned = plan(lab)
    recipe = planned.recipe
    assert recipe["task"] == "promptable"
    read_model(FineTuningRecipe, recipe, "planned")
    assert {"part", "real_share", "keep", "blend", "validation", "schedule"} <= recipe.keys()
    assert Path(recipe["initial"]).is_absolute()
    assert len(recipe["data"]["training"]) + len(recipe["data"]["validation"]) == 5
    assert 0.5 * 600 < planned.estimate.seconds <= 600
    assert recipe["schedule"]["steps"] > 500


def test_what_the_recipe_gives_stays_and_nameless_classes_get_names(lab):
    planned = plan(lab, data={"folder": "set"}, part="decoder", keep=0.5, schedule={"steps": 7})
    recipe = planned.recipe
    assert (recipe["part"], recipe["keep"], recipe["schedule"]["steps"]) == ("decoder", 0.5, 7)
    assert [row["value"] for row in recipe["data"]["classes"]] == [1, 2]
    assert any("rename" in warning for warning in planned.warnings)
    with pytest.raises(PumitError, match="did you mean 'keep'"):
        plan(lab, kep=1.0)
    with pytest.raises(PumitError, match="Only automatic segmentation is trained in folds"):
        plan(lab, folds=3)


@pytest.mark.slow
def test_a_planned_recipe_is_trained(lab):
    recipe = plan(lab, schedule={"steps": 1}, name="mine").recipe
    recipe |= {"register": False, "validation": {"answers": 1, "scenes": 0}, "blend": [1.0]}
    (lab / "planned.yaml").write_text(recipe_text(recipe))
    assert yaml.safe_load((lab / "planned.yaml").read_text()) == recipe
    assert finetune(lab / "planned.yaml", lab / "out").name == "mine.safetensors"


def test_the_trial_measures_steps_and_clicks(lab):
    recipe = plan(lab).recipe
    request = {
        "recipe": recipe,
        "initial": str(lab / "tiny.safetensors"),
        "shape": [14, 30, 28],
        "spacing_mm": [2.0, 1.0, 1.0],
        "device": "cpu",
        "threads": 1,
    }
    cost = try_clicks(request)
    assert cost.step.steps >= 2
    assert min(cost.step.seconds, cost.answering_seconds, cost.scene_seconds) > 0
