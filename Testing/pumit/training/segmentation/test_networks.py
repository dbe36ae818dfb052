"""Strides of every network, and sizes that follow from spacing, slices and patch."""

from typing import Any

import pytest
import torch
from pumit.errors import PumitError
from pumit.models.checkpoint import ModelHeader
from pumit.networks.build import RECIPES, build_network
from pumit.training.recipes.presets import PUBLISHED_RATE_SHARE, adapted_to, preset_for
from pumit.training.segmentation.networks import (
    FAMILIES,
    SeenField,
    depth_halvings,
    fitted_sizes,
    network_sizes,
    patch_divisor,
    patch_step,
    trainable_names,
)

NAME = "pumit_segmentation_small"


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("promptable", {}, "pumit_segmentation_small"),
        ("nonsense", {}, "cannot be trained to segment"),
        ("basic_unett", {}, "did you mean 'basic_unet'"),
        ("hymamba_small", {"poolings": 2}, "cannot be read"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_line(name, sizes, message):
    with pytest.raises(PumitError, match=message) as error:
        patch_divisor(name, sizes)
    assert "\n" not in str(error.value)


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
        ((1.0, 1.0, 1.0), ("x",), 16),  # is refused later, by its name
    ],
)
def test_tokens_are_as_deep_as_they_are_wide(spacing, patch, depth):
    assert fitted_sizes(NAME, {}, spacing, patch=patch)["fixed_patch"] == [depth, 16, 16]


def test_small_steps_have_flatter_tokens():
    spacing = (1.0, 1.0, 1.0)
    depths = [
        fitted_sizes(NAME, {}, spacing, most_voxels=n)["fixed_patch"][0]
        for n in (1 << 16, 1 << 15, 1 << 14, 1)
    ]
    assert depths == [16, 8, 4, 4]
    for slices, depth in ((1, 4), (12, 8)):
        assert fitted_sizes(NAME, {}, spacing, depth=slices) == {"fixed_patch": [depth, 16, 16]}


def test_planned_patches_have_two_tokens_along_each_axis():
    three = {"pyramid_widths": [8, 8, 8], "taps": [1, 2, 3], "fixed_patch": [8, 16, 16]}
    assert patch_divisor(NAME, three) == (8, 16, 16)
    assert patch_step(NAME, three) == patch_step(NAME, {"fixed_patch": [8, 16, 16]}) == (16, 32, 32)
    assert patch_step("basic_unet", {}) == (16, 16, 16)


HALVED = [2, 2, 2]
FLAT = [1, 2, 2]
EVEN = (1.0, 1.0, 1.0)


@pytest.mark.parametrize("name", [n for n in trainable_names() if not n.startswith("pumit")])
def test_strides_are_known_without_building(name):
    for depth, spacing in ((64, EVEN), (12, (5.0, 1.0, 1.0)), (1, EVEN)):
        sizes = fitted_sizes(name, {}, spacing, depth=depth)
        with torch.device("meta"):
            network = build_network(name, **sizes)
        assert network.stride == patch_divisor(name, sizes), (name, depth)


def test_every_family_has_a_small_network():
    small = {RECIPES[n].class_name for n in trainable_names() if n.endswith("_small")}
    assert small | {"PlainUnet"} == set(FAMILIES)
    assert set(PUBLISHED_RATE_SHARE) < set(FAMILIES)


@pytest.mark.parametrize(
    ("field", "halvings"),
    [
        (SeenField(EVEN, 64), 4),
        (SeenField((0.5, 1.0, 1.0), 64), 4),
        (SeenField((1.9, 1.0, 1.0), 64), 4),
        (SeenField((2.0, 1.0, 1.0), 64), 3),
        (SeenField((5.0, 1.0, 1.0), 64), 2),
        (SeenField((1e8, 1.0, 1.0), 64), 0),
        (SeenField(EVEN, 15), 3),
        (SeenField(EVEN, 1), 0),
        # A given patch and small steps keep the depth.
        (SeenField(EVEN, 64, (24, 64, 64)), 3),
        (SeenField(EVEN, 64, (1, 64, 64)), 0),
        (SeenField(EVEN, 64, most_voxels=2 * 16**3), 4),
        (SeenField(EVEN, 64, most_voxels=2 * 16**3 - 1), 3),
    ],
    ids=str,
)
def test_depth_is_halved_last_and_no_deeper_than_the_data(field, halvings):
    assert depth_halvings((1, 16, 16), field) == halvings


THICK: list[tuple[str, dict[str, Any]]] = [
    ("pumit_encoder_small", {"da0": 2}),
    ("nnformer_small", {"patch": [1, 2, 2], "merges": [FLAT, HALVED, HALVED]}),
    ("hymamba_small", {"poolings": [FLAT, FLAT, HALVED, HALVED]}),
    ("unetr_mamba_small", {"patch": [4, 16, 16]}),
    ("swin_unetr_small", {"spatial_dims": 3}),
    ("basic_unet", {}),  # published: its own size has room
]


@pytest.mark.parametrize(("name", "sizes"), THICK)
def test_thick_slices_are_halved_less(name, sizes):
    assert fitted_sizes(name, {}, (5.0, 1.0, 1.0), depth=20) == sizes
    if name == "pumit_encoder_small":  # and so are few slices
        assert fitted_sizes(name, {}, EVEN, depth=3) == sizes


@pytest.mark.parametrize("name", [name for name, _ in THICK])
def test_a_single_slice_is_not_halved_in_depth(name):
    sizes = fitted_sizes(name, {}, (1e8, 1.0, 1.0), depth=1)
    if name == "pumit_encoder_small":
        assert sizes == {"da0": 5}
    assert patch_divisor(name, sizes)[0] == 1
    if name == "nnformer_small":
        sizes = network_sizes(name, sizes, patch=(1, 256, 256), channels=1, classes=2)
        assert sizes["windows"] == [[1, 8, 8], [1, 8, 8], [1, 32, 32], [1, 16, 16]]
        # Windows of a recipe stay, and leave the strides open.
        own = {"windows": [[1, 5, 5]] * 4}
        fitted = fitted_sizes(name, own, EVEN, depth=1)
        assert fitted == {**own, "patch": FLAT, "merges": [FLAT, FLAT, FLAT]}
        kept = network_sizes(name, fitted, patch=(1, 64, 64), channels=1, classes=2)
        assert kept["windows"] == own["windows"]


NNFORMERS = [name for name in trainable_names() if name.startswith("nnformer")]


def attended(name: str, patch: tuple[int, int, int], **given: Any) -> list[str]:
    """ "global", "local" or "shifted" for each layer, counted in a forward pass."""
    if not given:
        given = fitted_sizes(name, {}, EVEN, depth=patch[0], patch=patch)
    channels = RECIPES[name].sizes["in_channels"]
    sizes = network_sizes(name, given, patch=patch, channels=channels, classes=3)
    found = []

    def look(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        layout = module.layout(inputs[0])
        several = any(n > 1 for n in layout.counts)
        found.append(("shifted" if any(layout.shift) else "local") if several else "global")

    with torch.device("meta"):
        network = build_network(name, **sizes)
        assert all(n % s == 0 for n, s in zip(patch, network.stride, strict=True))
        for module in network.modules():
            if hasattr(module, "layout"):
                module.register_forward_pre_hook(look)
        network(torch.empty((1, channels, *patch)))
    return found


@pytest.mark.parametrize("name", NNFORMERS)
@pytest.mark.parametrize("patch", [(32, 64, 64), (64, 160, 160), (1, 256, 256)], ids=str)
def test_six_layers_of_nnformer_are_global_whatever_the_patch(name, patch):
    found = attended(name, patch)
    stages = [found[i : i + 2] for i in range(0, 14, 2)]
    assert stages[2:5] == [["global"] * 2] * 3
    if patch[0] != 1 and min(patch) >= 64:  # the finer stages see several volumes
        assert found.count("global") == 6
        assert stages[0] == ["local", "shifted"]


def test_models_of_earlier_versions_are_built_as_they_were():
    earlier = ModelHeader.of({"network": "nnformer_acdc", "sizes": {"dim": 16}})
    assert earlier.sizes == {"dim": 16, "rounds_down": False}
    now = network_sizes("nnformer_acdc", {}, patch=(14, 160, 160), channels=1, classes=4)
    assert now["rounds_down"] is True
    assert ModelHeader.of({"network": "nnformer_acdc", "sizes": now}).sizes == now


def test_published_networks_keep_their_sizes_where_these_have_room():
    acdc = {"depth": 10, "patch": (14, 160, 160)}
    assert fitted_sizes("nnformer_acdc", {}, (6.35, 1.52, 1.52), **acdc) == {}
    assert fitted_sizes("nnformer_synapse", {}, (3.0, 0.76, 0.76), depth=90) == {}
    assert "patch" in fitted_sizes("nnformer_synapse", {}, (3.0, 0.76, 0.76), depth=3)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("nnformer_small", {"merges": [FLAT, FLAT, FLAT]}),
        ("hymamba_small", {"poolings": [FLAT] * 4}),
        ("basic_unet", {"spatial_dims": 2}),
        ("pumit_segmentation_small", {"fixed_patch": [8, 8, 8]}),
        ("pumit_segmentation_btcv", {}),
    ],
)
def test_sizes_of_a_recipe_always_win(name, given):
    assert fitted_sizes(name, given, EVEN, depth=64) == given


@pytest.mark.parametrize(("key", "value"), [("in_channels", 4), ("num_classes", 1)])
def test_counts_that_the_data_contradict_are_refused(key, value):
    given = {key: value}
    with pytest.raises(PumitError, match=f"network_sizes.{key} is {value}, but the data call for"):
        network_sizes("basic_unet", given, patch=(32, 32, 32), channels=1, classes=3)


def test_a_plan_gives_each_family_its_rate():
    quick = preset_for("quick", "cpu")
    for name in FAMILIES:
        assert adapted_to(quick, name, is_small=True).learning_rate == 4e-3
    published = {
        name: adapted_to(quick, name, is_small=False).learning_rate
        for name in ("SegmentationNetwork", "PlainUnet", "SwinUnetr", "NnFormer", "HyMamba")
    }
    assert list(published.values()) == [4e-3, 4e-3, 2e-3, 1e-3, 1e-3]
    encoded = adapted_to(quick, "EncodedSegmentation", is_small=True, is_pretrained=True)
    assert (encoded.learning_rate, encoded.optimizer) == (2e-3, "muon")
