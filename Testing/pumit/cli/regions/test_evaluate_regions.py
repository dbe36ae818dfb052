"""`pumit evaluate --classes` compares regions that overlap, by values or by names."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pumit.export.labelmap import write_labels
from pumit.export.seg_nrrd import write_seg_nrrd
from pumit.models.checkpoint import save_checkpoint
from pumit.segmentation import Algorithm, Segment, Segmentation
from pumit.volume import Volume

REGIONS = {"whole": [1, 2, 4], "core": [1, 4], "enhancing": [4]}
VOLUME = Volume(np.zeros((6, 12, 14), dtype=np.int16), (3.0, 1.0, 1.0))


def truth() -> np.ndarray:
    labels = np.zeros(VOLUME.shape, dtype=np.uint8)
    labels[1:5, 1:11, 1:12] = 2
    labels[2:4, 3:9, 3:9] = 1
    labels[2:4, 4:7, 4:7] = 4
    return labels


def masks(labels: np.ndarray) -> dict[str, np.ndarray]:
    return {name: np.isin(labels, values) for name, values in REGIONS.items()}


@pytest.fixture
def folders(tmp_path: Path) -> tuple[str | Path, ...]:
    """Labels with values as of BraTS; of the predictions the core lacks a column."""
    for folder in ("predictions", "labels"):
        (tmp_path / folder).mkdir()
    write_labels(truth(), VOLUME, tmp_path / "labels" / "a.nii.gz")
    return "--predictions", tmp_path / "predictions", "--labels", tmp_path / "labels"


def predicted() -> np.ndarray:
    labels = truth()
    labels[2:4, 3:9, 8] = 2
    return labels


def rows(run: Any, folders: Any, classes: Path) -> dict[str, dict[str, Any]]:
    output = classes.with_name("rows.json")
    run("evaluate", *folders, "--classes", classes, "-o", output)
    return {row["label"]: row for row in json.loads(output.read_text())["rows"]}


def check(found: dict[str, dict[str, Any]]) -> None:
    expected = masks(truth())
    assert list(found) == list(REGIONS)
    assert [row["true_voxels"] for row in found.values()] == [m.sum() for m in expected.values()]
    assert found["whole"]["dice"] == found["enhancing"]["dice"] == 1
    assert found["core"]["dice"] == pytest.approx(2 * 60 / (60 + 72), abs=1e-5)
    assert found["core"]["hd95_mm"] == 1.0


@pytest.mark.parametrize("kind", ["recipe", "dataset.json"])
def test_values_of_both_folders_mean_regions(run, folders, tmp_path, kind):
    write_labels(predicted(), VOLUME, folders[1] / "a.nii.gz")
    labels = {"background": 0, **REGIONS}
    content = {"data": {"classes": REGIONS}} if kind == "recipe" else {"labels": labels}
    file = tmp_path / ("recipe.yaml" if kind == "recipe" else kind)
    file.write_text(json.dumps(content))
    check(rows(run, folders, file))


def made_model(tmp_path: Path) -> Path:
    recipe = {
        "name": "m",
        "network": "basic_unet",
        "kind": "automatic",
        "classes": [{"name": n, "values": v} for n, v in REGIONS.items()],
        "regions": list(REGIONS.values()),
    }
    save_checkpoint(tmp_path / "m.safetensors", {"x": torch.zeros(1)}, recipe)
    return tmp_path / "m.safetensors"


def test_label_maps_of_a_model_hold_its_regions_by_number(run, folders, tmp_path):
    flat = np.zeros(VOLUME.shape, dtype=np.uint8)
    for number, mask in enumerate(masks(predicted()).values(), start=1):
        flat[mask] = number
    write_labels(flat, VOLUME, folders[1] / "a.nii.gz")
    check(rows(run, folders, made_model(tmp_path)))


def test_segments_that_overlap_are_found_by_name(run, folders, tmp_path):
    segments = tuple(Segment(name, mask) for name, mask in masks(predicted()).items())
    made = Segmentation(VOLUME, segments, Algorithm("PUMIT m", "1"))
    write_seg_nrrd(made, folders[1] / "a.seg.nrrd")
    check(rows(run, folders, made_model(tmp_path)))


def test_what_names_no_classes_is_refused(run, folders, tmp_path):
    write_labels(predicted(), VOLUME, folders[1] / "a.nii.gz")
    (tmp_path / "recipe.yaml").write_text("data: {folder: x}")
    ran = run("evaluate", *folders, "--classes", tmp_path / "recipe.yaml", status=2)
    assert "names no classes" in ran.err
    run("evaluate", folders[1], "--classes", tmp_path / "recipe.yaml", status=2)
