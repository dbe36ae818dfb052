"""Four channels and regions in each other: trained, predicted, judged, exported whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from nested_regions import CHANNELS, REGIONS, tumour, write_tumours
from pumit.inference.automatic.segmentation import load_automatic
from pumit.models.checkpoint import read_recipe
from pumit.training.train import finetune
from pumit.volume import Volume

SCHEDULE = {
    "steps": 40,
    "learning_rate": 1e-2,
    "warm_up": 4,
    "average": 0.8,
    "precision": "fp32",
}


def run(folder: Path, **schedule: Any) -> Path:
    write_tumours(folder / "set", 4)
    recipe = {
        "task": "segmentation",
        "name": "made",
        "network": "basic_unet",
        "network_sizes": {"features": [8, 8, 16, 16, 16, 8]},
        "data": {
            "folder": "set",
            "images": "images/{case}_{channel}.*",
            "channels": list(CHANNELS),
            "classes": REGIONS,
            "validation": ["case_3"],
        },
        "plan": {"patch_size": [16, 32, 32], "batch_size": 2},
        "augmentation": False,
        "device": "cpu",
        "threads": 1,
        "schedule": {**SCHEDULE, **schedule},
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return finetune(folder / "recipe.yaml", folder / "out")


@pytest.mark.slow
def test_regions_are_learned_and_judged(tmp_path: Path) -> None:
    best = run(tmp_path, validate_every=20)
    recipe, _ = read_recipe(best)
    assert recipe["regions"] == [[1, 2, 4], [1, 4], [4]]
    assert recipe["sizes"]["num_classes"] == 3
    assert recipe["training"]["channels"] == list(CHANNELS)
    model = load_automatic(best, "cpu")
    images, labels = tumour(9)
    answer = model.segment(Volume(np.stack(images), (2.0, 1.0, 1.0)), overlap=0.5)
    truth = labels > 0
    whole = answer.mask(1)
    assert 2 * (whole & truth).sum() / (whole.sum() + truth.sum()) > 0.75
    assert all(recipe["metrics"][f"dice_{name}"] > 0.3 for name in REGIONS)  # none is forgotten
    judged = json.loads((tmp_path / "out" / "validation.json").read_text())
    assert [(r["case"], r["label"]) for r in judged["rows"]] == [("case_3", n) for n in REGIONS]
    _, labels = tumour(3)
    for row, values in zip(judged["rows"], REGIONS.values(), strict=True):
        assert row["true_voxels"] == np.isin(labels, values).sum()
        assert row["hd95_mm"] is not None
