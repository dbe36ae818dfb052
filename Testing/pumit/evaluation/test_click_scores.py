"""Figures of simulated users follow from their rows."""

import numpy as np
import pytest
from pumit.evaluation.click_scores import (
    clicks_to,
    harmful_clicks,
    mean_over_clicks,
    means,
    means_of_groups,
    size_class,
    worst,
)


def test_the_click_that_reaches_a_goal():
    assert clicks_to([0.5, 0.86, 0.84, 0.9], 0.85) == 2
    assert clicks_to([0.5, 0.86], 0.9) is None


def test_clicks_that_harm_are_those_that_lower_dice_by_more_than_a_fiftieth():
    assert harmful_clicks([0.5, 0.49, 0.46, 0.9, 0.87]) == 2


@pytest.mark.parametrize(
    ("voxels", "size"), [(200, "small"), (2000, "medium"), (19_999, "medium"), (20_000, "large")]
)
def test_sizes(voxels, size):
    assert size_class(voxels) == size


def test_means_tell_every_figure_and_each_case_weighs_the_same():
    rows = [
        {"case": "a", "box": 0.2, "clicks": [0.8, 0.9], "nsd": [0.5, 1.0], "voxels": 10},
        {"case": "a", "box": 0.4, "clicks": [0.6, 0.5], "nsd": [0.5, 0.0], "voxels": 10},
        {"case": "b", "box": 0.9, "clicks": [0.9, 0.9], "nsd": [0.5, 0.5], "voxels": 5000},
    ]
    for row in rows:
        row["gestures"] = {"lasso": row["box"]}
    found = means(rows)
    assert found["cases"] == 2
    assert found["box"] == found["lasso"] == pytest.approx(0.6)
    assert found["dice@1"] == pytest.approx(0.8)
    assert found["dice_mean_2"] == pytest.approx(0.8)
    assert found["nsd_mean_2"] == pytest.approx(0.5)
    assert found["clicks_to_0.85"] == pytest.approx(1.5)
    assert found["harmful_clicks"] == pytest.approx(1 / 3, abs=1e-4)
    assert means_of_groups(rows, lambda r: size_class(r["voxels"])).keys() == {"small", "medium"}


def test_the_mean_of_five_clicks_is_the_area_that_the_challenge_takes():
    """DSC_AUC of its evaluation: `np.trapezoid` over five results, 4 at the most."""
    scores = [0.1, 0.5, 0.6, 0.8, 0.9, 1.0]
    assert mean_over_clicks(scores) == pytest.approx(np.trapezoid(scores[:5]) / 4)
    assert mean_over_clicks([1.0] * 5) == 1.0
    assert mean_over_clicks([0.3]) == 0.3


def test_goals_count_clicks_that_are_not_scored():
    rows = [
        {"case": "a", "box": 0, "clicks": [0.1, 0.2], "until": [0.1, 0.2, 0.3, 0.91]},
        {"case": "b", "box": 0, "clicks": [0.1, 0.2], "until": [0.1, 0.2, 0.3, 0.86]},
    ]
    found = means(rows)
    assert found["clicks_to_0.85"] == found["clicks_to_0.90"] == 4
    assert (found["reached_0.85"], found["reached_0.90"]) == (1, 0.5)
    assert "dice@3" not in found


def test_the_worst_come_first():
    rows = [{"case": c, "clicks": [v, v]} for c, v in (("a", 0.5), ("b", 0.2), ("c", 0.9))]
    assert [row["case"] for row in worst(rows, 2)] == ["b", "a"]
