"""Four channels and regions in each other: trained, predicted, judged, exported whole."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from nested_regions import CHANNELS, REGIONS, tumour, write_tumours
from pumit.inference.automatic.segmentation import load_automatic
from pumit.models.checkpoint import read_recipe
from pumit.volume import Volume
from segmentation_runs import LEARNING, dice_of, train


@pytest.mark.slow
def test_regions_are_learned_and_judged(tmp_path: Path) -> None:
    write_tumours(tmp_path / "set", 4)
    best = train(
        tmp_path,
        network="basic_unet",
        network_sizes={"features": [8, 8, 16, 16, 16, 8]},
        data={
            "folder": "set",
            "images": "images/{case}_{channel}.*",
            "channels": list(CHANNELS),
            "classes": REGIONS,
            "validation": ["case_3"],
        },
        schedule={**LEARNING, "learning_rate": 1e-2, "precision": "fp32", "validate_every": 20},
    )
    recipe, _ = read_recipe(best)
    assert recipe["regions"] == [[1, 2, 4], [1, 4], [4]]
    assert recipe["sizes"]["num_classes"] == 3
    assert recipe["training"]["channels"] == list(CHANNELS)
    model = load_automatic(best, "cpu")
    images, labels = tumour(9)
    answer = model.segment(Volume(np.stack(images), (2.0, 1.0, 1.0)), overlap=0.5)
    assert dice_of(answer.mask(1), labels > 0) > 0.75
    assert all(recipe["metrics"][f"dice_{name}"] > 0.3 for name in REGIONS)  # none is forgotten
    judged = json.loads((tmp_path / "out" / "validation.json").read_text())
    assert [(r["case"], r["label"]) for r in judged["rows"]] == [("case_3", n) for n in REGIONS]
    _, labels = tumour(3)
    for row, values in zip(judged["rows"], REGIONS.values(), strict=True):
        assert row["true_voxels"] == np.isin(labels, values).sum()
        assert row["hd95_mm"] is not None
