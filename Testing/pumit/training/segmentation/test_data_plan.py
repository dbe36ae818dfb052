"""A plan follows from the data set as nnU-Net users expect, and fits the network."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pumit.errors import PumitError
from pumit.inference.automatic.segmentation import NetworkPlan, network_image
from pumit.preprocessing.network_axes import NetworkAxes
from pumit.training.data.case import CaseFacts
from pumit.training.recipes.model import read_model
from pumit.training.recipes.segmentation import PlanChoices
from pumit.training.segmentation.data_plan import (
    CPU_STEP_VOXELS,
    DataPlan,
    patch_for,
    plan_for,
    target_spacing,
)
from pumit.volume import Volume

DIVISOR = (8, 32, 32)


def facts(
    spacing: tuple[float, float, float] = (3.0, 0.75, 0.75),
    shape: tuple[int, int, int] = (100, 400, 400),
    lowest: float = -1024.0,
    samples: np.ndarray | None = None,
) -> CaseFacts:
    values = np.arange(-50.0, 150.0) if samples is None else samples
    return CaseFacts(
        "a", spacing, shape, 1, (900, 100), values[None].astype(np.float32), (lowest,), True, ""
    )


def plan(*cases: CaseFacts, names: tuple[str, ...] = (), **given: Any) -> DataPlan:
    return plan_for(
        cases,
        divisor=DIVISOR,
        channels=1,
        channel_names=names,
        step_voxels=CPU_STEP_VOXELS,
        given=read_model(PlanChoices, given, "plan"),
    )


def test_spacing_is_the_median_of_each_axis():
    cases = [facts((s, 0.7, p)) for s, p in ((1.0, 0.5), (1.5, 0.7), (2.0, 0.9))]
    assert target_spacing(cases) == (1.5, 0.7, 0.7)


def test_thick_slices_are_brought_to_the_finest_tenth():
    depths = np.linspace(4.0, 9.0, 11)
    cases = [facts((float(d), 0.8, 0.8), (20, 300, 300)) for d in depths]
    assert target_spacing(cases) == pytest.approx((4.5, 0.8, 0.8))
    many_slices = [facts((float(d), 0.8, 0.8), (200, 300, 300)) for d in depths]
    assert target_spacing(many_slices) == pytest.approx((6.5, 0.8, 0.8))


@pytest.mark.parametrize("median", [(35, 51, 35), (150, 450, 450), (9, 40, 33), (1, 512, 512)])
@pytest.mark.parametrize("most", [1 << 17, 1 << 22])
def test_patch_fits_network_case_and_budget(median, most):
    patch = patch_for(median, DIVISOR, most)
    assert all(n % step == 0 for n, step in zip(patch, DIVISOR, strict=True))
    assert math.prod(patch) <= most
    # Never more than a case rounded up, and two places at least for the coarsest instance norm.
    assert all(n < m + step for n, m, step in zip(patch, median, DIVISOR, strict=True))
    assert math.prod(patch) >= 2 * math.prod(DIVISOR)


def test_patch_keeps_the_proportions_of_the_case():
    patch = np.array(patch_for((150, 450, 450), DIVISOR, 48 * 192 * 192))
    covered = patch / (150, 450, 450)
    assert covered.max() < 1.25 * covered.min()
    # The smallest that can be normalised.
    assert patch_for((5, 20, 20), DIVISOR, 1 << 17) == (16, 32, 32)


def test_ct_is_scaled_by_its_labelled_voxels():
    made = plan(facts())
    assert made.intensity["method"] == "range"
    low, high = made.intensity["source"]
    assert (low, high) == pytest.approx(np.percentile(np.arange(-50, 150), (0.5, 99.5)))
    (rule,) = NetworkPlan.from_recipe({"plan": made.as_recipe()}).normalizations
    scaling = rule.scaling(np.zeros(1))
    scaled = scaling.factor * np.arange(-50.0, 150.0) + scaling.offset
    assert scaled.mean() == pytest.approx(0, abs=1e-9)
    assert scaled.std() == pytest.approx(1)


def test_mr_is_scaled_scan_by_scan():
    assert plan(facts(lowest=0.0)).intensity["method"] == "zscore"
    assert plan(facts(), names=("T1",)).intensity["method"] == "zscore"
    assert plan(facts(lowest=0.0), names=("CT",)).intensity["method"] == "range"


def test_each_channel_has_its_own_rule_where_they_differ():
    values = np.stack([np.arange(-50.0, 150.0), np.arange(0.0, 20.0, 0.1)]).astype(np.float32)
    case = replace(facts(), channels=2, foreground=values, lowest=(-1024.0, 0.0))
    made = plan_for(
        [case], divisor=DIVISOR, channels=2, step_voxels=CPU_STEP_VOXELS, given=PlanChoices()
    )
    assert [rule["method"] for rule in made.intensity] == ["range", "zscore"]
    read = NetworkPlan.from_recipe({"plan": made.as_recipe()})
    scan = np.stack([np.full((4, 4, 4), -2000.0), np.arange(64.0).reshape(4, 4, 4)])
    volume = Volume(scan, (3.0, 0.75, 0.75))
    image, _ = network_image(volume, read, NetworkAxes.of(volume))
    assert float(image[0].max()) == pytest.approx(made.intensity[0]["target"][0])
    assert abs(float(image[1].mean())) < 0.1
    both = {"method": "zscore"}
    with pytest.raises(PumitError, match="1 rules for 2 channels"):
        plan_for(
            [case],
            divisor=DIVISOR,
            channels=2,
            step_voxels=1,
            given=PlanChoices.model_validate({"intensity": [both]}),
        )


def test_batch_uses_what_the_patch_leaves_but_not_more_than_the_data():
    small = plan(facts(), patch_size=[8, 64, 64])
    assert small.batch_size == CPU_STEP_VOXELS // (8 * 64 * 64)
    few = plan(facts(shape=(16, 64, 64)), patch_size=[8, 64, 64])
    assert few.batch_size == 2


def test_given_values_come_first():
    given: dict[str, Any] = {
        "spacing_mm": [2, 1, 1],
        "patch_size": [16, 64, 32],
        "batch_size": 5,
        "intensity": {"method": "percentiles", "source": [1, 99], "target": [-1, 1]},
    }
    made = plan(facts(), **given)
    assert made.as_recipe() == {
        **given,
        "channels": 1,
        "orientation": "anatomical",
        "median_shape": [150, 300, 300],
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"patchsize": [8, 64, 64]}, "did you mean 'patch_size'"),
        ({"patch_size": [10, 64, 64]}, r"nearest is \[8, 64, 64\]"),
        ({"patch_size": [8, 32, 32]}, r"nearest is \[16, 32, 32\]"),
        ({"patch_size": [8, 64]}, "at least 3 items"),
        ({"spacing_mm": [1, 0, 1]}, "must be above 0"),
        ({"spacing_mm": "1"}, "spacing_mm"),
        ({"intensity": {"method": "rnage"}}, "'percentiles' or 'zscore'"),
        ({"intensity": {"source": [0, 1]}}, "needs the key method"),
        ({"batch_size": 0}, "batch_size"),
    ],
)
def test_unusable_values_are_named(given, message):
    with pytest.raises(PumitError, match=message):
        plan(facts(), **given)
