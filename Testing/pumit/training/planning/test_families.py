"""Every network can be planned: patches fit its stride, and a smaller step keeps to it."""

from pathlib import Path

import numpy as np
import pytest
from family_runs import KINDS, TINY, changes_for
from labelled_scans import write_pairs
from planned_runs import planned
from pumit.networks.build import RECIPES
from pumit.segmentation import ClassLabel
from pumit.training.data.case import read_labelled
from pumit.training.data.classes import ClassValue
from pumit.training.planning.segmentation import FROM_DATA, _case, try_segmentation
from pumit.training.segmentation.data_plan import DataPlan, smaller_plan
from pumit.training.segmentation.networks import patch_divisor, patch_step, trainable_names
from segmentation_runs import RECIPE


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("scans"), 3)


@pytest.mark.parametrize("name", trainable_names())
def test_a_plan_names_all_sizes_and_fits_the_stride(scans, name):
    recipe = planned(scans, network=name).recipe
    sizes, patch = recipe["network_sizes"], recipe["plan"]["patch_size"]
    assert set(RECIPES[name].sizes) - set(sizes) <= set(FROM_DATA)
    divisor = patch_divisor(name, sizes)
    assert all(n % step == 0 for n, step in zip(patch, divisor, strict=True))
    assert patch != list(divisor)  # an instance norm needs several places at the bottom
    plan = DataPlan((2.0, 1.0, 1.0), tuple(patch), 4, {}, 1, "anatomical", (14, 30, 28))
    while (less := smaller_plan(plan, patch_step(name, sizes))) is not None:
        plan = less[0]
        assert all(n % step == 0 for n, step in zip(plan.patch_size, divisor, strict=True))


@pytest.mark.parametrize("name", ["nnformer_small", "hymamba_small"])
def test_its_steps_are_tried_before_a_training(name):
    plan = DataPlan(
        (1.0, 1.0, 1.0), (1, 32, 32), 2, {"method": "zscore"}, 1, "anatomical", (1, 45, 39)
    )
    cost = try_segmentation(
        {
            "recipe": {**RECIPE, **changes_for(name, KINDS["slice"])},
            "sizes": {**TINY[name], "num_classes": 3, **flat(name)},
            "plan": plan.as_recipe(),
            "native_spacing_mm": [1.0, 1.0, 1.0],
            "device": "cpu",
            "threads": 1,
        }
    )
    assert cost.step.seconds > 0
    assert cost.window_seconds > 0


@pytest.mark.parametrize("values", [[1035, 2035], [3, 100_000]])
def test_labels_of_large_numbers_are_tried(tmp_path, values):
    """As FreeSurfer numbers the parts of the cortex."""
    classes = [ClassValue(value, ClassLabel(f"class {value}")) for value in values]
    plan = DataPlan((1.0, 1.0, 1.0), (4, 8, 8), 2, {}, 1, "anatomical", (5, 9, 9))
    case, _ = _case(tmp_path, plan, classes, (1.0, 1.0, 1.0))
    read = read_labelled(case, classes)
    assert np.unique(read.labels).tolist() == [0, 1, 2]


def flat(name: str) -> dict[str, list[object]]:
    """Sizes for a single slice."""
    three = [[1, 2, 2]] * 3
    if name == "nnformer_small":
        return {"patch": [1, 2, 2], "merges": [*three]}
    return {"poolings": [*three, [1, 2, 2]]}
