"""What pre-training and earlier models give a network, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from family_runs import TINY
from pumit.errors import CheckpointError
from pumit.models.checkpoint import load_checkpoint, save_checkpoint
from pumit.models.index import find_model
from pumit.networks.build import build_network
from pumit.networks.promptable import segmentation
from pumit.networks.promptable.segmentation import EncodedSegmentation, encoder_channels
from pumit.preprocessing import fields
from pumit.preprocessing.fields import field_channels
from pumit.training.loop.initial_encoder import load_initial_encoder
from pumit.training.segmentation.initial_weights import load_initial_weights, sizes_of_initial
from torch import Tensor, nn

NAMES = [
    "pumit_segmentation_small",
    "nnformer_small",
    "hymamba_small",
    "unetr_mamba_small",
    "swin_unetr_small",
    "basic_unet",
]


def network(name: str, **sizes: Any) -> nn.Module:
    return build_network(name, **{**TINY[name], **sizes})


def saved(folder: Path, name: str, state: dict[str, Tensor], **sizes: Any) -> str:
    path = folder / "first.safetensors"
    save_checkpoint(path, state, {"name": "first", "network": name, "sizes": sizes})
    return str(path)


def moved(module: nn.Module, by: float = 1.0) -> dict[str, Tensor]:
    """Weights that no beginning has."""
    return {k: v + by if v.is_floating_point() else v for k, v in module.state_dict().items()}


@pytest.mark.parametrize("name", NAMES)
def test_a_model_of_the_same_family_gives_all_but_other_classes_and_channels(tmp_path, name):
    state = moved(network(name, num_classes=3))
    path = saved(tmp_path, name, state)
    same = network(name, num_classes=3)
    load_initial_weights(same, path)
    assert all(torch.equal(v, state[k]) for k, v in same.state_dict().items())
    other = network(name, num_classes=4, in_channels=2)
    load_initial_weights(other, path)
    left = [k for k, v in other.state_dict().items() if not torch.equal(v, state[k])]
    assert left
    assert all(state[k].shape != v.shape for k, v in other.state_dict().items() if k in left)
    if name == "pumit_segmentation_small":  # two equal channels give the tokens of one
        kernel = "vit.patch_embedding.weight"
        torch.testing.assert_close(other.state_dict()[kernel].sum(1), state[kernel].sum(1))


def test_nnformer_of_another_patch_gives_its_relative_positions(tmp_path):
    """Volumes of the global stages follow from the patch: offsets that both have are kept."""
    small = [[4, 4, 4], [4, 4, 4], [3, 3, 4], [2, 2, 2]]
    large = [[4, 4, 4], [4, 4, 4], [4, 5, 4], [1, 2, 3]]
    state = moved(network("nnformer_small", windows=small))
    path = saved(tmp_path, "nnformer_small", state, windows=small)
    other = network("nnformer_small", windows=large)
    load_initial_weights(other, path)
    ours = other.state_dict()
    key = "encoder.stages.2.blocks.0.attention.bias.table"
    theirs = state[key].reshape(5, 5, 7, -1)
    assert torch.equal(ours[key].reshape(7, 9, 7, -1)[1:6, 2:7], theirs)
    assert torch.equal(ours[key].reshape(7, 9, 7, -1)[0, 0], theirs[0, 0])
    key = "encoder.stages.3.blocks.0.attention.bias.table"
    cut = state[key].reshape(3, 3, 3, -1)[1:2]
    assert torch.equal(ours[key].reshape(1, 3, 5, -1)[:, :, 1:4], cut)
    assert all(torch.equal(v, ours[k]) for k, v in state.items() if not k.endswith("bias.table"))
    with pytest.raises(CheckpointError, match="has other windows"):
        load_initial_weights(network("nnformer_small", windows=large, official_index=True), path)


@pytest.mark.parametrize(
    ("name", "sizes", "tensor"),
    [
        ("nnformer_small", {"dim": 16}, "encoder.embedding"),
        ("hymamba_small", {"widths": [6, 6, 6, 12]}, "12"),
        ("unetr_mamba_small", {"feature_size": 6}, "projections"),
        ("pumit_segmentation_small", {"pyramid_widths": [8, 8, 8, 16]}, "pyramid"),
        ("pumit_segmentation_small", {"hidden": 48}, ""),
        ("basic_unet", {"spatial_dims": 2}, "4 x 4 x 3 x 3 x 3 there, 4 x 4 x 3 x 3 here"),
    ],
)
def test_weights_of_another_size_are_refused_with_tensor_and_sizes(tmp_path, name, sizes, tensor):
    path = saved(tmp_path, name, network(name).state_dict())
    with pytest.raises(CheckpointError, match="other widths") as error:
        load_initial_weights(network(name, **sizes), path)
    assert tensor in str(error.value)
    assert (" there, " in str(error.value)) == bool(tensor)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "source", "theirs", "ours"),
    [
        ("hymamba_small", "mamba_mim_small", "encoder.", "encoder."),
        ("unetr_mamba_small", "mamba_mim_unetr", "encoder.", "encoder."),
        ("swin_unetr_small", "swin_ssl_small", "swinViT.", "network.swinViT."),
    ],
)
def test_a_pre_trained_encoder_begins_its_network(tmp_path, name, source, theirs, ours):
    apart = "encoder.skips.0."  # MambaMIM does not read HyMamba's finest map
    trained = {
        k: v
        for k, v in moved(network(name)).items()
        if k.startswith(ours) and not k.startswith(apart)
    }
    renamed = {theirs + k.removeprefix(ours): v for k, v in trained.items()}
    path = saved(tmp_path, source, {**renamed, "decoder.x": torch.zeros(1)})
    begun = network(name, num_classes=5)
    before = {k: v.clone() for k, v in begun.state_dict().items()}
    load_initial_weights(begun, path)
    for key, value in begun.state_dict().items():
        assert torch.equal(value, trained.get(key, before[key])), key
    # Two equal channels are seen as the one was.
    two = network(name, in_channels=2)
    load_initial_weights(two, path)
    kernel = next(k for k, v in trained.items() if k.startswith(ours) and v.shape[1:2] == (1,))
    torch.testing.assert_close(two.state_dict()[kernel].sum(1), trained[kernel].sum(1))


def test_patches_of_fewer_slices_read_the_sum(tmp_path):
    name = "unetr_mamba_small"
    trained = moved(network(name))
    path = saved(tmp_path, "mamba_mim_unetr", trained)
    flat = network(name, patch=[4, 16, 16])
    load_initial_weights(flat, path)
    kernel = "encoder.embedding.weight"
    theirs = trained[kernel].reshape(-1, 1, 4, 4, 16, 16).sum(3)
    torch.testing.assert_close(flat.state_dict()[kernel], theirs)


def test_an_encoder_of_other_widths_or_another_network_is_refused(tmp_path):
    wide = network("hymamba_small", widths=[6, 6, 6, 12]).state_dict()
    path = saved(tmp_path, "mamba_mim_small", wide)
    with pytest.raises(CheckpointError, match=r"other sizes .*there, .* here"):
        load_initial_weights(network("hymamba_small"), path)
    with pytest.raises(CheckpointError, match=r"\(nnFormer\); .* same kind"):
        load_initial_weights(network("nnformer_small"), path)
    with pytest.raises(CheckpointError, match=r"or of a pre-training \(swin_ssl\)"):
        load_initial_weights(network("swin_unetr_small"), path)


@pytest.mark.parametrize(
    ("name", "key", "there", "here"),
    [
        ("hymamba_small", "poolings", [[1, 2, 2]] * 4, ((2, 2, 2),) * 4),
        ("pumit_segmentation_small", "fixed_patch", [8, 16, 16], (16, 16, 16)),
    ],
)
def test_sizes_that_were_fitted_to_other_slices_are_named(tmp_path, name, key, there, here):
    path = saved(tmp_path, name, network(name, **{key: there}).state_dict(), **{key: there})
    sizes = {key: here, "num_classes": 2}
    with pytest.raises(CheckpointError, match=rf"the same, there {key}: \[") as error:
        load_initial_weights(network(name, **sizes), path, sizes=sizes)
    assert str(there[0]) in str(error.value)


def test_what_shapes_do_not_tell_is_taken_over_or_refused(tmp_path):
    name = "swin_unetr_small"
    path = saved(tmp_path, name, network(name).state_dict(), merging="before_2025")
    assert sizes_of_initial(name, {}, path) == {"merging": "before_2025"}
    given = {"merging": "current"}
    assert sizes_of_initial(name, given, path) == {}
    with pytest.raises(CheckpointError, match="merging: before_2025, this network current"):
        load_initial_weights(network(name), path, sizes=given)


def test_a_public_file_begins_no_network_but_swin_unetr(tmp_path):
    source = network("swin_unetr_small")
    path = tmp_path / "public.pt"
    state = {k.removeprefix("network."): v for k, v in moved(source).items()}
    torch.save({"state_dict": state}, path)
    with pytest.raises(CheckpointError, match="not known here"):
        load_initial_weights(network("hymamba_small"), str(path))
    begun = network("swin_unetr_small")
    load_initial_weights(begun, str(path))
    name = "network.swinViT.patch_embed.proj.weight"
    assert torch.equal(begun.state_dict()[name], moved(source)[name])


def test_the_encoder_sees_a_field_as_it_does_for_clicks():
    assert (segmentation.BINS, segmentation.CLIP) == (fields.BINS, fields.CLIP)
    torch.manual_seed(0)
    x = torch.randn(2, 1, 6, 20, 24) ** 3
    ours = encoder_channels(x)
    for one, field in zip(ours, x, strict=True):
        theirs = field_channels(field[0].numpy(), np.ones(field.shape[1:], np.float32))
        np.testing.assert_allclose(one.numpy(), theirs, atol=1e-4)


@pytest.mark.parametrize(("da0", "size"), [(0, (16, 24, 16)), (2, (5, 17, 24)), (5, (1, 16, 16))])
@pytest.mark.parametrize("channels", [1, 2])
def test_gradients_reach_all_at_any_degree(da0, size, channels):
    network = build_network(
        "pumit_encoder_small", **TINY["pumit_encoder_small"], da0=da0, in_channels=channels,
        num_classes=3,
    )  # fmt: skip
    levels = network(torch.randn(2, channels, *size), deep_supervision=True)
    assert levels[0].shape == (2, 3, *size)
    assert len(levels) == 3
    sum(level.square().mean() for level in levels).backward()
    missing = [name for name, p in network.named_parameters() if p.grad is None]
    assert not missing


def test_default_gives_its_encoder():
    network = build_network("pumit_encoder_small", num_classes=4)
    assert isinstance(network, EncodedSegmentation)
    assert sizes_of_initial("pumit_encoder_small", {}, "default") == {}
    load_initial_weights(network, "default")
    theirs = load_checkpoint(find_model("default")).state
    for name, value in network.encoder.state_dict().items():
        assert torch.equal(value, theirs[f"image_encoder.{name}"].float()), name


@pytest.mark.parametrize("depth", [4, 16])
def test_it_begins_the_small_segmentation_network_and_classifier(depth, tmp_path):
    name = "pumit_vit_small_mim"
    state = build_network(name).state_dict()
    file = tmp_path / "vit.safetensors"
    save_checkpoint(file, state, {"name": "vit", "network": name})
    expected = state["vit.blocks.3.mlp.w1.weight"].half().float()
    segmentation = build_network(
        "pumit_segmentation_small", num_classes=3, fixed_patch=(depth, 16, 16)
    )
    load_initial_weights(segmentation, str(file))
    classifier = build_network("pumit_classifier_small")
    load_initial_encoder(classifier.vit, str(file))
    for network in (segmentation, classifier):
        got = network.vit.blocks[3].mlp.w1.weight.detach()
        torch.testing.assert_close(got, expected, atol=1e-3, rtol=1e-3)
        assert all(bool(p.isfinite().all()) for p in network.parameters())
    smaller = build_network("pumit_classifier_small", dim=96, depth=4, num_heads=4, hidden=256)
    told = r"dim: 192, depth: 8, num_heads: 6, hidden: 512, fixed_patch of 16 voxels"
    with pytest.raises(CheckpointError, match=told):
        load_initial_encoder(smaller.vit, str(file))


def test_weights_of_clicks_are_answered_with_the_network_that_takes_them():
    vit = build_network("pumit_segmentation_small", num_classes=2).vit
    with pytest.raises(CheckpointError, match="pumit_encoder_small, which can begin with it"):
        load_initial_encoder(vit, "default")
