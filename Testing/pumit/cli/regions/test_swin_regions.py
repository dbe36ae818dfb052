"""Public weights, four channels and nested regions through `pumit train` and `predict`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import yaml
from nested_regions import CHANNELS, REGIONS, write_tumours
from pumit.models.checkpoint import load_checkpoint
from pumit.networks.build import build_network
from torch import Tensor

SIZES: dict[str, Any] = {
    "feature_size": 12,
    "depths": [1, 1, 1, 1],
    "num_heads": [1, 1, 2, 2],
    "window_size": 2,
}


def write_bundle(folder: Path) -> dict[str, Tensor]:
    """A bundle of MONAI 1.3 with weights of one channel, that do not tell of their order."""
    torch.manual_seed(0)
    state = build_network("swin_unetr", in_channels=1, **SIZES).network.state_dict()
    (folder / "models").mkdir(parents=True)
    (folder / "configs").mkdir()
    torch.save(state, folder / "models" / "model.pt")
    (folder / "configs" / "metadata.json").write_text(json.dumps({"monai_version": "1.3.0"}))
    return dict(state)


def test_nested_regions_of_four_channels_are_learned_from_public_weights(
    run: Any, tmp_path: Path
) -> None:
    write_tumours(tmp_path / "set", 2)
    state = write_bundle(tmp_path / "bundle")
    recipe = {
        "name": "made",
        "network": "swin_unetr",
        "network_sizes": {**SIZES, "spatial_dims": 3},
        "initial": "bundle/models/model.pt",
        "data": {
            "folder": "set",
            "images": "images/{case}_{channel}.*",
            "channels": list(CHANNELS),
            "classes": REGIONS,
            "validation": ["case_1"],
        },
        "plan": {"patch_size": [32, 32, 64], "batch_size": 1},
        "augmentation": False,
        "device": "cpu",
        "threads": 1,
        "schedule": {"learning_rate": 1e-6, "log_every": 1, "warm_up": 0, "average": 0.0},
    }
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(recipe))
    ran = run("train", tmp_path / "r.yaml", "-o", tmp_path / "out", "--steps", 1)
    event = next(line for line in map(json.loads, ran.out.splitlines()) if "event" in line)
    assert "merging: before_2025" in event["sentence"]
    assert "names MONAI 1.3.0" in event["sentence"]

    model = tmp_path / "out" / "made.safetensors"
    made = load_checkpoint(model)
    sizes = made.recipe["sizes"]
    assert (sizes["in_channels"], sizes["num_classes"]) == (4, 3)
    assert sizes["merging"] == "before_2025"
    for name in ("layers1.0.downsample.reduction.weight", "patch_embed.proj.weight"):
        found, given = (s[f"{p}swinViT.{name}"] for s, p in ((made.state, "network."), (state, "")))
        if found.ndim == 5:  # of four channels
            found = found.sum(1, keepdim=True)
        torch.testing.assert_close(found.float(), given, atol=2e-3, rtol=0)

    image = tmp_path / "set" / "images" / "case_0_0000.nii.gz"
    options = ("--overlap", 0, "--device", "cpu", "--json")
    target = tmp_path / "answer.seg.nrrd"
    ran = run("predict", image, "--channel-files", "--model", model, "-o", target, *options)
    assert target.is_file()
    assert [c["name"] for c in json.loads(ran.out)[0]["classes"]] == list(REGIONS)
