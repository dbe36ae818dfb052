"""Networks fit their plans, and begin with what earlier ones have learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from labelled_scans import TINY_SIZES
from pumit.errors import CheckpointError, PumitError
from pumit.models.checkpoint import save_checkpoint
from pumit.training.segmentation.initial_weights import load_initial_weights
from pumit.training.segmentation.networks import (
    build_segmentation,
    fitted_sizes,
    patch_divisor,
    patch_step,
)

NAME = "pumit_segmentation_small"
SIZES: dict[str, Any] = {**TINY_SIZES, "in_channels": 1, "position_table": [2, 2, 2]}


def test_other_networks_are_refused_by_name() -> None:
    with pytest.raises(PumitError, match="pumit_segmentation_small"):
        patch_divisor("promptable", {})
    with pytest.raises(PumitError, match="cannot be trained to segment"):
        patch_divisor("nonsense", {})


def test_a_misspelt_network_is_reported_its_name() -> None:
    with pytest.raises(PumitError, match="did you mean 'basic_unet'"):
        patch_divisor("basic_unett", {})


@pytest.mark.parametrize(
    ("spacing", "patch", "depth"),
    [
        ((1.0, 1.0, 1.0), (), 16),
        ((0.7, 1.0, 1.0), (), 16),
        ((2.0, 1.0, 1.0), (), 8),
        ((5.0, 0.7, 0.7), (), 4),
        ((1.0, 1.0, 1.0), (24, 32, 32), 4),
        ((1.0, 1.0, 1.0), (48, 64, 64), 8),
        ((1.0, 1.0, 1.0), (16, 32, 32), 4),
        ((1.0, 1.0, 1.0), (32, 64, 32), 16),
        ((1.0, 1.0, 1.0), ("x",), 16),
    ],
)
def test_tokens_are_as_deep_as_they_are_wide(
    spacing: tuple[float, float, float], patch: tuple[Any, ...], depth: int
) -> None:
    assert fitted_sizes(NAME, {}, spacing, patch=patch)["fixed_patch"] == [depth, 16, 16]


def test_small_steps_have_flatter_tokens() -> None:
    spacing = (1.0, 1.0, 1.0)
    depths = [
        fitted_sizes(NAME, {}, spacing, most_voxels=n)["fixed_patch"][0]
        for n in (1 << 16, 1 << 15, 1 << 14, 1)
    ]
    assert depths == [16, 8, 4, 4]


def test_planned_patches_have_two_tokens_along_each_axis() -> None:
    three = {"pyramid_widths": [8, 8, 8], "taps": [1, 2, 3], "fixed_patch": [8, 16, 16]}
    assert patch_divisor(NAME, three) == (8, 16, 16)
    assert patch_step(NAME, three) == patch_step(NAME, {"fixed_patch": [8, 16, 16]}) == (16, 32, 32)
    assert patch_step("basic_unet", {}) == (16, 16, 16)


def test_sizes_that_a_recipe_names_stay() -> None:
    given = {"fixed_patch": [8, 8, 8]}
    assert fitted_sizes(NAME, given, (1.0, 1.0, 1.0)) == given
    assert fitted_sizes("pumit_segmentation_btcv", {}, (1.0, 1.0, 1.0)) == {}


def saved(folder: Path, **sizes: Any) -> tuple[str, dict[str, torch.Tensor]]:
    torch.manual_seed(1)
    made = {**SIZES, "num_classes": 3, **sizes}
    state = build_segmentation(NAME, made).state_dict()
    recipe = {"name": "x", "network": NAME, "sizes": made}
    save_checkpoint(folder / "x.safetensors", state, recipe)
    return str(folder / "x.safetensors"), state


def test_other_classes_and_channels_begin_anew_and_all_else_goes_on(tmp_path: Path) -> None:
    path, state = saved(tmp_path)
    torch.manual_seed(2)
    network = build_segmentation(NAME, {**SIZES, "num_classes": 5, "in_channels": 2})
    before = {k: v.clone() for k, v in network.state_dict().items()}
    load_initial_weights(network, path)
    kernel = "vit.patch_embedding.weight"
    for key, value in network.state_dict().items():
        if key.startswith(("heads.", "detail_full.0.")):
            assert torch.equal(value, before[key]), key
        elif key != kernel:
            assert torch.equal(value, state[key]), key
    # An image of two equal channels gives the same tokens as one channel did.
    torch.testing.assert_close(network.state_dict()[kernel].sum(1), state[kernel].sum(1))


@pytest.mark.parametrize("sizes", [{"pyramid_widths": [8, 8, 8, 16]}, {"hidden": 48}])
def test_network_of_other_widths_is_refused(tmp_path: Path, sizes: dict[str, Any]) -> None:
    path, _ = saved(tmp_path, **sizes)
    with pytest.raises(CheckpointError, match="other widths"):
        load_initial_weights(build_segmentation(NAME, {**SIZES, "num_classes": 3}), path)
