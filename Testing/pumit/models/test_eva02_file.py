"""EVA-02's public file gives a universal ViT the published network's features."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from public_eva02 import (
    TINY,
    PublicSizes,
    original_shapes,
    public_features,
    random_state,
    rotary_angles,
    timm_name,
    timm_state,
)
from pumit.errors import CheckpointError
from pumit.models.eva02_file import load_eva02
from pumit.networks.build import build_network
from pumit.networks.pumit import AdditiveRotaryEmbedding3D, Anisotropy
from pumit.networks.pumit.eva02 import convert_eva02, inflate_kernel, our_name
from pumit.networks.pumit.vit import MaskedImageModel, UniversalViT, VitClassifier
from safetensors.torch import save_file
from torch import Tensor, nn

PICTURE = Anisotropy(5)
SIZES: dict[str, Any] = {
    "in_channels": 3,
    "dim": TINY.dim,
    "depth": TINY.depth,
    "num_heads": TINY.heads,
    "hidden": TINY.hidden,
    "position_table": (3, TINY.grid, TINY.grid),
    "patch_halvings": 3,
}


def vit(**changes: Any) -> UniversalViT:
    torch.manual_seed(1)
    return UniversalViT(**{**SIZES, **changes})


@pytest.fixture
def write(tmp_path: Path) -> Callable[[dict[str, Tensor]], Path]:
    def save(state: dict[str, Tensor]) -> Path:
        path = tmp_path / "model.safetensors"
        save_file({n: t.contiguous().clone() for n, t in state.items()}, path)
        return path

    return save


@pytest.fixture
def picture() -> Tensor:
    """A picture (3, H, W) of the public network's size."""
    side = TINY.patch * TINY.grid
    generator = torch.Generator().manual_seed(3)
    return torch.randn(3, side, side, generator=generator, dtype=torch.float64)


def loaded(network: nn.Module, state: dict[str, Tensor], write: Callable[..., Path]) -> str:
    """Load a file of single precision, as the public one, and continue in double."""
    summary = load_eva02(network, write({n: t.float() for n, t in state.items()}))
    network.double()
    return summary


@pytest.mark.parametrize("is_timm", [False, True])
def test_a_picture_gives_the_features_of_the_published_network(is_timm, picture, write):
    state = {n: t.float().double() for n, t in random_state().items()}
    network = vit()
    summary = loaded(network, timm_state(state) if is_timm else state, write)
    assert "kept" not in summary
    features = network(picture[None, :, None], PICTURE)
    ours = torch.cat((features.cls, features.tokens[0]))
    expected = public_features(state, picture, eps=1e-5)
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=0)  # the kernel is held in single
    # The published epsilon of the layer norms is another, and hardly matters.
    published = public_features(state, picture, eps=1e-6)
    assert 0 < float((published - expected).abs().max()) < 1e-3


def test_rotary_tables_of_the_file_would_be_ours():
    """They are dropped because they are computed alike."""
    sizes = PublicSizes()
    places = torch.cartesian_prod(torch.zeros(1), torch.arange(16.0), torch.arange(16.0))
    rope = AdditiveRotaryEmbedding3D(sizes.dim // sizes.heads)
    ours = rope.angles(places, torch.float64).repeat_interleave(2, dim=1)
    torch.testing.assert_close(ours, rotary_angles(sizes), atol=1e-12, rtol=0)


@pytest.mark.parametrize("da0", [0, 2])
def test_a_picture_repeated_along_depth_gives_the_same_features(da0, picture, write):
    network = vit()
    loaded(network, random_state(), write)
    flat = network(picture[None, :, None], PICTURE)
    anisotropy = Anisotropy(da0)
    depth = anisotropy.depth_stride(3)  # one patch
    deep = network(picture[None, :, None].expand(-1, -1, depth, -1, -1), anisotropy)
    torch.testing.assert_close(deep.tokens, flat.tokens, atol=1e-5, rtol=0)
    torch.testing.assert_close(deep.cls, flat.cls, atol=1e-5, rtol=0)


def test_a_grey_network_with_thin_patches_sees_a_grey_picture_alike(picture, write):
    grey = picture[:1].expand(3, -1, -1)
    colour, thin = vit(), vit(in_channels=1, fixed_patch=(2, 8, 8), position_table=(1, 4, 4))
    loaded(colour, random_state(), write)
    loaded(thin, random_state(), write)
    expected = colour(grey[None, :, None], PICTURE).tokens
    given = grey[None, :1, None].expand(-1, -1, 2, -1, -1)
    torch.testing.assert_close(thin(given).tokens, expected, atol=1e-5, rtol=0)


def test_masked_image_modelling_takes_the_mask_token_and_keeps_its_own_head(write):
    state = random_state()
    torch.manual_seed(2)
    network = MaskedImageModel(num_tokens=7, **SIZES)
    head = network.head[0].weight.detach().clone()
    summary = loaded(network, state | {"lm_head.weight": torch.zeros(5, TINY.dim)}, write)
    torch.testing.assert_close(network.mask_token, state["mask_token"], atol=1e-6, rtol=0)
    assert torch.equal(network.head[0].weight, head.double())
    assert ", kept head.0.bias, head.0.weight, head.2.bias, head.2.weight, left out " in summary
    assert "blocks.1.attn.rope.freqs_cos" in summary
    assert "lm_head.weight" in summary


def test_timms_file_has_no_mask_token_so_it_stays(write):
    network = MaskedImageModel(num_tokens=7, **SIZES)
    summary = loaded(network, timm_state(random_state()), write)
    assert summary.endswith("head.2.weight, mask_token")  # kept, and nothing is left out


def test_a_classifier_begins_with_it_and_keeps_its_head(write):
    network = VitClassifier(num_classes=3, **{**SIZES, "fixed_patch": (8, 8, 8)})
    assert ", kept head.bias, head.weight, left out " in loaded(network, random_state(), write)


def test_a_network_without_a_universal_vit_is_a_fault(write):
    with pytest.raises(TypeError, match="Linear"):
        load_eva02(nn.Linear(2, 2), write(random_state()))


def test_slopes_of_ba_sam_stay(write):
    network = vit(train_tokens=17)
    summary = loaded(network, random_state(), write)
    assert ", kept blocks.0.attention.slope, blocks.1.attention.slope, left out" in summary


@pytest.mark.parametrize("is_timm", [False, True])
def test_every_weight_of_the_real_file_has_a_home(is_timm):
    shapes = original_shapes(PublicSizes())
    if is_timm:
        named = {timm_name(n): shape for n, shape in shapes.items()}
        shapes = {n: shape for n, shape in named.items() if n is not None}
    with torch.device("meta"):
        network = build_network("pumit_vit_b")
        state = {n: torch.empty(shape) for n, shape in shapes.items()}
    weights, mask_token, left_out = convert_eva02(state, 16)
    target = {n: tuple(t.shape) for n, t in network.state_dict().items()}
    converted = {n: tuple(t.shape) for n, t in weights.items()}
    assert converted.pop("position_table") == (1, 768, 1, 16, 16)
    assert target.pop("position_table") == (1, 768, 5, 10, 10)
    assert converted == target
    assert all("rope" in name for name in left_out)
    assert (mask_token is None) == is_timm


def test_a_kernel_grows_smoothly_and_is_even_along_depth():
    at = torch.arange(14, dtype=torch.float64)
    wave = torch.cos(at / 4)[:, None] * torch.sin(at / 5)[None]
    grown = inflate_kernel(wave.expand(2, 3, 14, 14), 16)
    assert grown.shape == (2, 3, 16, 16, 16)
    flat = grown.sum(2)[0, 0]
    torch.testing.assert_close(grown[1, 2, 5] * 16, flat)
    new = (torch.arange(16, dtype=torch.float64) + 0.5) * 14 / 16 - 0.5
    expected = torch.cos(new / 4)[:, None] * torch.sin(new / 5)[None]
    inner = slice(2, -2)
    torch.testing.assert_close(flat[inner, inner], expected[inner, inner], atol=0.02, rtol=0)
    even = inflate_kernel(torch.ones(1, 3, 14, 14), 16)  # answers by its area
    assert float(even[0, 0].sum()) == pytest.approx(16**2, rel=1e-5)


def message(network: nn.Module, path: Path) -> str:
    before = {n: t.clone() for n, t in network.state_dict().items()}
    with pytest.raises(CheckpointError) as error:
        load_eva02(network, path)
    assert all(torch.equal(t, before[n]) for n, t in network.state_dict().items())
    text = str(error.value)
    assert "\n" not in text
    assert str(path.parent) not in text
    return text


def test_the_original_pickle_is_never_read(tmp_path):
    path = tmp_path / "eva02_B_pt_in21k_p14.pt"
    path.write_bytes(b"PK\x03\x04 archive/data.pkl")
    text = message(vit(), path)
    assert "pickle" in text
    assert "timm/eva02_base_patch14_224.mim_in22k" in text


def test_an_absent_file_is_named(tmp_path):
    assert "There is no file none.safetensors" in message(vit(), tmp_path / "none.safetensors")


@pytest.mark.parametrize(("dim", "depth"), [(32, 2), (24, 3)])
def test_weights_of_another_size_are_one_line(dim, depth, write):
    other = PublicSizes(dim=dim, depth=depth, heads=2, hidden=64, patch=8, grid=4)
    assert "does not fit" in message(vit(), write(random_state(other)))


@pytest.mark.parametrize("name", ["blocks.0.attn.qkv.weight", "layer.0.weight"])
def test_other_variants_are_named(name, write):
    assert name in message(vit(), write(random_state() | {name: torch.zeros(2)}))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("pos_embed", (1, 16, 24)),
        ("patch_embed.proj.weight", (24, 192)),
        ("mask_token", (1, 1, 8)),
        ("cls_token", None),
    ],
)
def test_a_damaged_file_is_one_line(name, shape, write):
    state = random_state()
    del state[name]
    if shape is not None:
        state[name] = torch.zeros(shape)
    message(vit(), write(state))


def test_weights_that_are_not_finite_are_refused(write):
    state = random_state()
    state["norm.bias"][0] = float("nan")
    assert "not finite" in message(vit(), write(state))


def test_the_last_norm_has_one_name(write):
    both = random_state() | {"fc_norm.weight": torch.ones(24)}
    assert "mean the same" in message(vit(), write(both))
    assert our_name("fc_norm.weight") == our_name("norm.weight")
