"""`pumit plan` tries real steps, and what it writes is what `pumit train` does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from labelled_scans import TINY_SIZES, write_pairs

GIVEN: dict[str, Any] = {
    "network_sizes": TINY_SIZES,
    "data": {"folder": "set", "classes": {"ball": 1, "box": 2}},
    "plan": {"patch_size": [16, 32, 32], "batch_size": 2},
    "device": "cpu",
    "threads": 1,
    "register": False,
}


@pytest.mark.slow
def test_planned_recipe_trains(run: Any, tmp_path: Path) -> None:
    write_pairs(tmp_path / "set", 3)
    recipe, planned = tmp_path / "given.yaml", tmp_path / "elsewhere" / "planned.yaml"
    planned.parent.mkdir()
    recipe.write_text(yaml.safe_dump({**GIVEN, "schedule": {"steps": 2}}))
    ran = run("plan", recipe, "--json", "-o", planned)
    record = json.loads(ran.out)
    assert set(record) == {"estimate", "recipe", "warnings"}
    estimate = record["estimate"]
    assert 0 < estimate["parts"]["step"] < estimate["seconds"]
    assert 0.05 < estimate["memory_gib"] < 16
    assert "Measured with" in estimate["sentence"]
    assert yaml.safe_load(planned.read_text()) == record["recipe"]
    run("train", planned, "-o", tmp_path / "out")
    followed = yaml.safe_load((tmp_path / "out" / "recipe.yaml").read_text())
    for key in ("plan", "schedule", "data", "augmentation", "validation"):
        given = record["recipe"][key]
        assert {k: followed[key][k] for k in given} == given


def test_what_is_wrong_is_one_line(refused: Any, tmp_path: Path) -> None:
    recipe = tmp_path / "given.yaml"
    recipe.write_text(yaml.safe_dump({**GIVEN, "plan": {"pach_size": 3}}))
    write_pairs(tmp_path / "set", 2)
    assert "did you mean 'patch_size'" in refused("plan", recipe)
    assert "invalid choice: 'fast'" in refused("plan", recipe, "--preset", "fast")
    assert "no folder or recipe" in refused("plan", tmp_path / "none.yaml")
    assert "invalid choice: 'x'" in refused("plan", recipe, "--goal", "x")
    recipe.write_text(yaml.safe_dump(GIVEN))
    assert "did you mean 'nnformer_small'" in refused("plan", recipe, "--network", "nnformer_smal")
