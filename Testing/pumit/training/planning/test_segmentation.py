"""A plan fits data, time and memory, keeps what the user fixed, and says what it decided."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from labelled_scans import SPACING, ball_and_box, write, write_pairs
from planned_runs import StandInTrial, planned
from pumit.errors import PumitError
from pumit.training.recipes.presets import NAMES, PRESETS, preset_for
from pumit.training.recipes.schedule import Schedule
from pumit.training.recipes.writer import recipe_text
from pumit.training.validate import read_segmentation


def voxels(recipe: dict[str, Any]) -> int:
    return math.prod(recipe["plan"]["patch_size"]) * recipe["plan"]["batch_size"]


@pytest.mark.parametrize("preset", NAMES)
def test_plan_ends_with_the_time_of_its_preset(preset, tmp_path):
    made = planned(write_pairs(tmp_path, 5), StandInTrial(1e-5), preset=preset)
    numbers = preset_for(preset, "cpu")
    schedule = Schedule(**made.recipe["schedule"])
    is_long = schedule.steps == numbers.most_steps
    assert made.estimate.seconds <= numbers.seconds
    assert is_long or made.estimate.seconds > 0.95 * numbers.seconds
    assert schedule.rate_at(schedule.steps) == 0.0
    assert schedule.steps // schedule.validate_every <= numbers.validations


def test_planned_recipe_reads_back_and_is_whole(tmp_path):
    made = planned(write_pairs(tmp_path, 3), initial="vit", card={"licence": "none"})
    text = recipe_text(made.recipe, ["one", "two\nlines"])
    assert yaml.safe_load(text) == made.recipe
    assert text.startswith("# one\n# two lines\ntask: segmentation  # ")
    read_segmentation(made.recipe, "planned")
    assert Path(made.recipe["data"]["folder"]).is_absolute()
    sizes = made.recipe["network_sizes"]
    chosen = dict(preset_for("quick", "cpu").network_sizes)
    assert {k: sizes[k] for k in chosen} == chosen
    assert "position_table" not in sizes
    names = made.recipe["data"]
    assert sorted(names["training"] + names["validation"]) == ["case_0", "case_1", "case_2"]


@pytest.mark.parametrize(
    ("preset", "given", "start"),
    [
        ("quick", {}, ("pumit_encoder_small", "default")),
        ("balanced", {}, ("pumit_segmentation_small", None)),
        ("quick", {"network": "basic_unet"}, ("basic_unet", None)),
        ("quick", {"network_sizes": {"depth": 4}}, ("pumit_segmentation_small", None)),
        ("quick", {"initial": "vit"}, ("pumit_segmentation_small", "vit")),
    ],
)
def test_quick_trainings_start_from_the_click_model(preset, given, start, tmp_path):
    made = planned(write_pairs(tmp_path, 3), preset=preset, **given)
    assert (made.recipe["network"], made.recipe.get("initial")) == start


def test_fixed_values_stay(tmp_path):
    given: dict[str, Any] = {
        "network_sizes": {"depth": 4, "taps": [1, 2, 3, 4]},
        "plan": {"patch_size": [16, 32, 32], "batch_size": 3, "spacing_mm": [2, 1, 1]},
        "schedule": {"steps": 77, "learning_rate": 0.5, "validate_every": 7},
        "validation": {"final_overlap": 0.1},
        "augmentation": {"noise": 0.9},
    }
    made = planned(write_pairs(tmp_path, 3), **given)
    for part, values in given.items():
        assert {k: made.recipe[part][k] for k in values} == values
    assert "seconds" not in made.recipe["schedule"]
    assert made.recipe["schedule"]["warm_up"] == 77 // 5  # which ends early
    assert made.estimate.seconds == pytest.approx(77 * 16 * 32 * 32 * 3 * 4e-6, abs=60)


def test_steps_follow_the_speed_of_the_machine(tmp_path):
    folder = write_pairs(tmp_path, 3, shape=(40, 90, 90))
    fastest, fast, slow, still = (
        planned(folder, StandInTrial(s)) for s in (2e-7, 5e-6, 5e-5, 1e-2)
    )
    usual = PRESETS["cpu"]["quick"].step_voxels
    assert voxels(slow.recipe) < voxels(fast.recipe) <= usual < voxels(fastest.recipe)
    assert any("hardly enough to learn" in w for w in still.warnings)
    # Patches are whole tokens, so that the chosen number of steps is met roughly.
    assert slow.recipe["schedule"]["steps"] >= PRESETS["cpu"]["quick"].fewest_steps * 0.7


def test_a_busy_machine_plans_as_an_idle_one(tmp_path):
    folder = write_pairs(tmp_path, 3, shape=(40, 90, 90))
    idle = planned(folder, StandInTrial(5e-6))
    busy = planned(folder, StandInTrial(2.5e-5, busy=0.8))
    assert voxels(busy.recipe) == voxels(idle.recipe)
    assert busy.recipe["schedule"]["steps"] >= idle.recipe["schedule"]["steps"] * 0.9
    assert "80% of the processor time" in busy.estimate.sentence


def test_small_memory_makes_the_step_smaller_and_says_so(tmp_path):
    folder = write_pairs(tmp_path, 3, shape=(40, 80, 80))
    made = planned(folder, StandInTrial(most_voxels=70_000))
    assert voxels(made.recipe) <= 70_000
    assert any("steps of 2 patches" in w for w in made.warnings)
    with pytest.raises(PumitError, match="does not fit into the memory"):
        planned(folder, StandInTrial(most_voxels=10))
    with pytest.raises(PumitError, match="does not fit into the memory"):
        planned(folder, StandInTrial(peak_gib=7.5))


def test_large_cases_are_seen_more_coarsely(tmp_path):
    folder = write_pairs(tmp_path, 2, shape=(110, 110, 110), spacing=(1.0, 1.0, 1.0))
    made = planned(folder)
    assert made.recipe["plan"]["spacing_mm"] == pytest.approx([1.09] * 3, abs=0.03)
    assert any("of 1 x 1 x 1 mm" in w for w in made.warnings)
    assert planned(folder, preset="balanced").recipe["plan"]["spacing_mm"] == [1.0, 1.0, 1.0]


def test_cases_of_another_unit_are_left_out_and_thick_slices_are_not(tmp_path):
    write_pairs(tmp_path, 4)
    image, labels = ball_and_box(9)
    thick, thick_labels = ball_and_box(8)
    for part, array, other in (("images", image, thick), ("labels", labels, thick_labels)):
        write(tmp_path / part / "cm.nii.gz", array, [10 * s for s in SPACING])
        write(tmp_path / part / "thick.nii.gz", other, (40.0, 1.0, 1.0))
    made = planned(tmp_path)
    assert made.recipe["plan"]["spacing_mm"] == list(SPACING)
    used = made.recipe["data"]["training"] + made.recipe["data"]["validation"]
    assert "cm" not in used
    assert any("cm is left out" in w for w in made.warnings)
    # One case of thick slices is kept, and does not plan the others.
    assert "thick" in used
    assert any(w.startswith("thick: spacing 40 x 1 x 1") for w in made.warnings)
    kept = {"folder": ".", "classes": {"ball": 1, "box": 2}, "training": ["cm", "case_1"]}
    kept["validation"] = ["case_0"]
    assert "cm" in planned(tmp_path, data=kept).recipe["data"]["training"]


def test_images_of_one_slice_and_small_scans_are_planned(tmp_path):
    for i in range(3):
        image, labels = ball_and_box(i, (14, 60, 60))
        write(tmp_path / "images" / f"c{i}.nii.gz", image[6:7])
        write(tmp_path / "labels" / f"c{i}.nii.gz", labels[6:7])
    plan = planned(tmp_path).recipe["plan"]
    assert math.prod(plan["patch_size"]) >= 32 * 64
    assert plan["batch_size"] >= 2
    for i in range(3):  # and those that are smaller than a patch, with one class
        image, labels = ball_and_box(i)
        write(tmp_path / "images" / f"c{i}.nii.gz", image[2:7, -12:, -12:])
        write(tmp_path / "labels" / f"c{i}.nii.gz", (labels[2:7, -12:, -12:] > 0).astype(np.uint8))
    recipe = planned(tmp_path, data={"folder": ".", "classes": {"both": 1}}).recipe
    assert recipe["data"]["classes"] == [{"name": "both", "value": 1}]
    assert min(recipe["plan"]["patch_size"]) >= 8


def test_many_classes_and_channels_are_planned(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(2):
        labels = rng.integers(0, 41, (14, 30, 28)).astype(np.uint8)
        write(tmp_path / "labels" / f"c{i}.nii.gz", labels)
        for c in range(4):
            image = (labels + rng.normal(size=labels.shape)).astype(np.float32)
            write(tmp_path / "images" / f"c{i}_{c:04d}.nii.gz", image)
    data = {"folder": ".", "images": "images/{case}_{channel}.nii.gz"}
    trial = StandInTrial()
    made = planned(tmp_path, trial, data=data)
    assert len(made.recipe["data"]["classes"]) == 40
    assert any("those in the labels: class 1, class 2" in w for w in made.warnings)
    assert trial.requests[0]["sizes"]["in_channels"] == 4
    assert trial.requests[0]["sizes"]["num_classes"] == 41


def test_folds_leave_the_split_open_and_take_their_time(tmp_path):
    folder = write_pairs(tmp_path, 4)
    single, several = planned(folder), planned(folder, folds=4, final_model=True)
    assert "training" not in several.recipe["data"]
    assert several.recipe["folds"] == 4
    assert several.estimate.seconds == pytest.approx(5 * single.estimate.seconds, rel=0.1)
    assert "for each of 5 trainings" in several.estimate.sentence
    with pytest.raises(PumitError, match="5 folds need 5 patients, but there are 4"):
        planned(folder, folds=5)


def test_unlabelled_scans_are_counted_and_must_be_there(tmp_path):
    write_pairs(tmp_path, 3)
    notes = planned(tmp_path, unlabelled="images").warnings
    words = "learning from 3 unlabelled scans first takes as long again as the training"
    assert words in notes
    (tmp_path / "empty").mkdir()
    for folder in ("empty", "nowhere"):
        with pytest.raises(PumitError, match=f"no scan to learn from in {folder}"):
            planned(tmp_path, unlabelled=folder)
