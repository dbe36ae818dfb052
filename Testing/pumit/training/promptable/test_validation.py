"""Validation clicks on the given cases, through the user's session, and reports what is lost."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labelled_scans import write_pairs
from pumit.inference.interactive.segmenter import Segmenter
from pumit.segmentation import ClassLabel
from pumit.training.data.case import CaseFacts
from pumit.training.data.classes import ClassValue
from pumit.training.data.labelled_set import LabelledCase
from pumit.training.promptable.run import _chosen
from pumit.training.promptable.validation import (
    ClickValidation,
    generated_scan,
    validated_structures,
)
from pumit.training.recipes.model import read_model
from pumit.training.recipes.promptable import FineTuningRecipe
from pumit.training.run.reporter import RunStopped

CLASSES = (ClassValue(1, ClassLabel("ball")), ClassValue(2, ClassLabel("box")))


pytestmark = pytest.mark.usefixtures("small_scenes")


def facts(name: str, *voxels: int) -> CaseFacts:
    sample = np.zeros((1, 1), np.float32)
    return CaseFacts(
        name, (1.0, 1.0, 1.0), (9, 9, 9), 1, (500, *voxels), sample, (0.0,), True, name
    )


def chosen(rows: list[CaseFacts], most: int) -> dict[str, list[int]]:
    return validated_structures({f.name: f for f in rows}, [f.name for f in rows], CLASSES, most)


def test_every_class_and_many_cases_are_requested_with_few_answers():
    rows = [facts(name, 100, 100) for name in "abcd"]
    few = chosen(rows, 2)
    assert sorted(i for classes in few.values() for i in classes) == [0, 1]
    assert len(few) == 2
    assert chosen(rows, 100) == {name: [0, 1] for name in "abcd"}
    # Too small structures are not clicked on.
    assert chosen([facts("a", 100, 5), facts("b", 0, 0)], 10) == {"a": [0]}


@pytest.fixture
def validation(tmp_path: Path, tiny_segmenter: Segmenter) -> ClickValidation:
    write_pairs(tmp_path, 1)
    case = LabelledCase(
        "case_0", (tmp_path / "images" / "case_0.nii.gz",), tmp_path / "labels" / "case_0.nii.gz"
    )
    recipe: dict[str, Any] = {"calibration": {"estimate": [0.1, 0.9], "iou": [0.2, 0.8]}}
    segmenter = replace(tiny_segmenter, recipe=recipe)
    return ClickValidation(
        segmenter, [case], {"case_0": [0, 1]}, CLASSES, scenes=1, known_ranges={}
    )


def test_what_is_lost_on_generated_scans_lowers_the_score(validation):
    state = {k: v.clone() for k, v in validation.network.state_dict().items()}
    before = validation.begin(state)
    assert before["score"] == before["dice_1"]
    assert "forgotten" not in before
    # Classes weigh alike, and rows keep every click.
    assert before["dice_1"] == pytest.approx((before["dice_ball"] + before["dice_box"]) / 2)
    assert [row.label for row in validation.rows] == ["ball", "box"]
    assert all(len(row.clicks) == 3 for row in validation.rows)
    assert validation(state)["forgotten"] == 0
    validation._before = [before["dice_generated"] + 0.25]  # as if it had been better
    worse = validation(state)
    assert worse["forgotten"] == pytest.approx(0.25)
    assert worse["score"] == pytest.approx(worse["dice_1"] - 0.25)
    validation._before = [before["dice_generated"] - 0.25]
    assert validation(state)["score"] == before["score"]  # a gain there is no merit


@pytest.mark.parametrize("number", [0, 3])
def test_generated_scans_are_the_same_every_time(number):
    volume, target = generated_scan(number)
    again, same = generated_scan(number)
    assert np.array_equal(volume.array, again.array)
    assert np.array_equal(target, same)
    assert target.shape == volume.shape
    assert target.dtype == bool
    assert target.any()


def test_of_blends_that_score_alike_the_one_nearest_to_the_initial_model_is_kept():
    assert _chosen([0.70, 0.697, 0.60]) == 1
    assert _chosen([0.70, 0.60, 0.50]) == 0
    assert _chosen([float("nan"), float("nan")]) == 0
    recipe = {"task": "promptable", "data": {"folder": "x"}, "blend": [0.25, 1, 0.5]}
    assert read_model(FineTuningRecipe, recipe, "a.yaml").blend == [1.0, 0.5, 0.25]


def test_a_stop_is_heard_before_the_next_click(validation):
    def stop() -> None:
        raise RunStopped

    validation.before_click = stop
    with pytest.raises(RunStopped):
        validation.begin(validation.network.state_dict())
