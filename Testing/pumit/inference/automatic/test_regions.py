"""Regions are predicted whole, however much they overlap, and a label map keeps the innermost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from known_networks import (
    PLAN,
    REGIONS,
    known_networks,
    resampled,
    save_model,
    smooth_scan,
)
from pumit.errors import VolumeError
from pumit.export.classes import segments_of
from pumit.inference.automatic.segmentation import AutomaticSegmenter, load_automatic
from pumit.segmentation import ClassLabel, LabelMap, region_type
from pumit.volume import Volume
from torch import Tensor, nn

pytestmark = pytest.mark.usefixtures("known_networks")
__all__ = ["known_networks"]


def made_model(folder: Path, **changes: Any) -> AutomaticSegmenter:
    path = save_model(folder / "m.safetensors", "nested", **{**REGIONS, **changes})
    model = load_automatic(path, "cpu")
    model.precision = torch.float32
    return model


def slow_masks(volume: Volume) -> list[npt.NDArray[np.bool_]]:
    """Resample, scale, sigmoid, resample back, threshold."""
    shape = tuple(
        max(1, round(n * s / t))
        for n, s, t in zip(volume.shape, volume.spacing_mm, PLAN["spacing_mm"], strict=True)
    )
    x = np.clip((resampled(volume.array, shape) + 100) / 400, 0, 1)
    return [
        resampled(1 / (1 + np.exp(-20 * (x - edge))), volume.shape) > 0.5 for edge in (0.3, 0.5)
    ]


def test_regions_equal_those_of_a_direct_computation(tmp_path: Path) -> None:
    volume = smooth_scan((13, 40, 36), (4.0, 0.8, 0.9))
    model = made_model(tmp_path)
    assert model.has_regions
    answer = model.segment(volume, overlap=0.5)
    whole, core = slow_masks(volume)
    assert 100 < core.sum() < whole.sum() - 100
    assert np.mean(answer.mask(1) != whole) < 1e-3  # ties in single precision
    assert np.mean(answer.mask(2) != core) < 1e-3
    assert (answer.mask(1) & answer.mask(2)).sum() == answer.mask(2).sum()
    # The label map: the later region stands.
    np.testing.assert_array_equal(answer.labels == 2, answer.mask(2))
    np.testing.assert_array_equal(answer.labels == 1, answer.mask(1) & ~answer.mask(2))
    segments = segments_of(answer)
    assert [s.name for s in segments] == ["whole", "core"]
    assert segments[0].mask.sum() == answer.mask(1).sum()


class Rim(nn.Module):
    """Sure of one answer at the first slices of its window, unsure of the other behind them."""

    def forward(self, x: Tensor) -> Tensor:
        out = torch.full_like(x, -1.0)
        out[:, :, :2] = 100.0
        return out


def test_windows_are_averaged_as_probabilities(tmp_path: Path) -> None:
    """As logits, one window that is sure by a hundred would outvote all the others."""
    model = made_model(tmp_path, classes=[{"name": "x"}], sizes={"num_classes": 1})
    model.network = Rim()
    volume = Volume(np.zeros((14, 8, 8), dtype=np.float32), (2.0, 1.0, 1.0))
    mask = model.segment(volume, overlap=0.75).mask(1)
    assert mask[0].all()
    assert not mask[-6:].any()


def test_many_regions_get_a_type_with_enough_bits() -> None:
    assert [np.dtype(region_type(n)).itemsize for n in (1, 8, 9, 16, 32, 33, 64)] == [
        *(1, 1, 2, 2, 4, 8, 8)
    ]
    with pytest.raises(VolumeError, match="At most 64"):
        region_type(65)
    labels = tuple(ClassLabel(f"c{i}") for i in range(64))
    bits = np.zeros((1, 1, 3), dtype=np.uint64)
    bits[0, 0, 1] = (1 << 63) | 1
    answer = LabelMap.of_regions(bits, labels)
    assert answer.labels.tolist() == [[[0, 64, 0]]]
    assert answer.mask(1).tolist() == answer.mask(64).tolist() == [[[False, True, False]]]
    with pytest.raises(VolumeError, match="8 bits"):
        LabelMap(np.zeros((1, 1, 3), np.uint8), labels, np.zeros((1, 1, 3), np.uint8))


def test_missing_channels_are_named(tmp_path: Path) -> None:
    training = {"channels": ["T1", "FLAIR"], "repeat_single_channel": False}
    changes = {"plan": {**PLAN, "channels": 2}, "sizes": {"in_channels": 2, "num_classes": 2}}
    model = made_model(tmp_path, **changes, training=training)
    volume = smooth_scan((6, 20, 20), (2.0, 1.0, 1.0))
    with pytest.raises(VolumeError, match=r"2 channels \(T1, FLAIR\) .* the scan has 1"):
        model.segment(volume)
    three = Volume(np.stack([volume.array] * 3), volume.spacing_mm)
    with pytest.raises(VolumeError, match="the scan has 3"):
        model.segment(three)
    model.segment(Volume(np.stack([volume.array] * 2), volume.spacing_mm))
    repeats = made_model(tmp_path, **changes, training={**training, "repeat_single_channel": True})
    repeats.segment(volume)
