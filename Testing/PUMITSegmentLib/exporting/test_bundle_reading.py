"""Scenes that Slicer saves are read voxel for voxel as Slicer itself reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import slicer
from export_checks import OBLIQUE
from export_scene import SHAPE, blobs, segmentation_of
from pumit.io.labels.label_source import read_labels, read_scan
from pumit.io.slicer_bundle import bundle_nodes
from pumit.volume import Volume
from PUMITSlicerLib.mrml import addVolumeNode, readVolume


@pytest.fixture
def saved(slicerApp: Any, tmp_path: Path) -> tuple[Path, Any, Any]:
    """A bundle with an oblique scan and two overlapping segments; its nodes."""
    noise = np.random.default_rng(0).normal(0, 200, SHAPE).round().astype(np.int16)
    volume = Volume(noise, (2.5, 0.7, 0.8), (-11.5, 23.25, 40.0), OBLIQUE)
    scan = addVolumeNode("My scan #1", volume)
    first, second = blobs(SHAPE)
    segments = segmentation_of(slicer.mrmlScene, scan, {"liver": first, "Tumour": second})
    path = tmp_path / "a scene.mrb"
    assert slicer.util.saveScene(str(path))
    return path, scan, segments


def test_bundle_holds_what_slicer_shows(saved: tuple[Path, Any, Any]) -> None:
    path, scan, segments = saved
    nodes = {node.kind: node for node in bundle_nodes(path)}
    assert nodes["volume"].name == "My scan #1"
    assert nodes["segmentation"].reference == nodes["volume"].identifier == scan.GetID()
    volume = read_scan([Path(f"{path}#My scan #1")])
    expected = readVolume(scan)
    assert np.array_equal(volume.array, expected.array)
    corners = np.array([(0, 0, 0), (8, 20, 29)])
    assert np.allclose(volume.index_to_world(corners), expected.index_to_world(corners), atol=1e-3)
    labels = read_labels(Path(f"{path}#{segments.GetName()}"), volume)
    assert [s.name for s in labels.segments] == ["liver", "Tumour"]
    for segment, mask in zip(labels.segments, blobs(SHAPE), strict=True):
        assert np.array_equal(labels.mask(segment), mask)
        assert "~" in segment.terminology
        assert segment.color_rgb is not None


@pytest.mark.parametrize("isCropped", [False, True])
def test_segmentation_that_slicer_saves_is_read_where_it_was(
    saved: tuple[Path, Any, Any], tmp_path: Path, isCropped: bool
) -> None:
    _, scan, segments = saved
    storage = segments.GetStorageNode()
    storage.SetCropToMinimumExtent(isCropped)
    path = tmp_path / "alone.seg.nrrd"
    storage.SetFileName(str(path))
    assert storage.WriteData(segments)
    labels = read_labels(path, readVolume(scan))
    for segment, mask in zip(labels.segments, blobs(SHAPE), strict=True):
        assert np.array_equal(labels.mask(segment), mask)
