"""Steps and validations divide the time of a preset among them."""

from dataclasses import replace

import torch
from pumit.training.planning.estimate import (
    VALIDATION_SHARE,
    Hardware,
    StepPlan,
    TimeParts,
    fit,
    hardware_for,
    voxels_that_fit,
)
from pumit.training.recipes.presets import Preset

PRESET = Preset(
    seconds=1000, step_voxels=1, case_voxels=1, fewest_steps=200, most_steps=2000, validations=5
)


def parts(step: float = 1.0, validation: float = 10.0) -> TimeParts:
    return TimeParts(50.0, 30.0, step, validation, 20.0)


def test_time_is_used_up_and_not_more():
    plan = fit(parts(), PRESET, {})
    assert (plan.steps, plan.validations) == (850, 5)
    assert plan.seconds == 1000
    assert plan.budget > plan.steps + 50
    assert plan.validate_every == 170
    # What is given stays, and the slowest machine still gets a step.
    assert fit(parts(), PRESET, {"steps": 7}).steps == 7
    assert fit(parts(), PRESET, {"steps": 100, "validate_every": 30}).validations == 4
    assert fit(parts(), PRESET, {"steps": 100, "validate_every": 0}).validations == 1
    assert fit(parts(step=1e6), PRESET, {}).steps == 1


def test_dear_validations_are_rarer():
    plan = fit(parts(validation=60.0), PRESET, {})
    assert plan.validations == 2
    assert plan.validations * 60 <= VALIDATION_SHARE * 900
    dear = fit(parts(validation=5000.0), PRESET, {})
    assert (dear.validations, dear.steps) == (1, 500)  # at least half of the time is for steps
    assert dear.seconds > PRESET.seconds


def test_smaller_steps_do_not_make_room_for_a_long_validation():
    """Small patches need more windows."""
    preset, few = replace(PRESET, step_voxels=1 << 17), StepPlan(10, 1, 1000, 1000)
    voxels = 1 << 17
    for _ in range(5):
        voxels = voxels_that_fit(voxels, few, preset)
    assert voxels == 1 << 14
    assert voxels_that_fit(1 << 10, few, preset) == 1 << 10  # what a recipe gives stays


def test_this_machine_is_described():
    found = hardware_for(torch.device("cpu"))
    assert found.kind == "cpu"
    assert found.cores >= 1
    assert found.memory_bytes > 1 << 20
    assert str(found).endswith(("core", "cores"))
    gpu = Hardware(8, None, torch.device("cuda:0"), "A GPU", 1 << 30)
    assert (gpu.kind, str(gpu)) == ("gpu", "A GPU, 8 CPU cores")
