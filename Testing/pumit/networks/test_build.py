"""Published sizes, each with its parameter count, and the names and overrides that are refused."""

import pytest
import torch
from monai.networks.nets.unetr import UNETR
from pumit.errors import PumitError
from pumit.networks.build import RECIPES, build_network
from pumit.networks.pumit import Anisotropy
from torch import nn


def build_meta(name: str, **overrides: object) -> nn.Module:
    with torch.device("meta"):
        return build_network(name, **overrides)


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("name", "overrides", "parameters"),
    [
        ("pumit_tokenizer", {}, 34_253_955),
        ("pumit_discriminator", {}, 11_529_985),
        ("pumit_vit_b", {}, 94_930_944),
        ("pumit_vit_b", {"train_tokens": 501}, 94_930_944 + 12 * 12),  # slopes of BA-SAM
        ("pumit_vit_b_mim", {}, 96_309_760),
        ("pumit_segmentation_btcv", {}, 133_999_224),
        ("pumit_segmentation_chaos", {}, 134_339_220),
        ("pumit_classifier_b", {}, 95_323_403),
        ("basic_unet", {}, 5_749_410),
        ("unetr_mamba", {}, 52_860_334),
        ("nnformer_synapse", {}, 150_054_210),
        ("nnformer_tumor", {}, 37_606_726),
        ("nnformer_acdc", {"official_index": True, "official_unmasked_shift": True}, 37_160_200),
        ("swin_unetr", {}, 62_187_296),
        ("swin_unetr", {"in_channels": 4, "num_classes": 3}, 62_191_941),
        ("swin_unetr_small", {"num_classes": 14}, 15_536_444),
        ("swin_ssl", {}, 19_097_191),
    ],
)
def test_published_networks_have_their_published_size(name, overrides, parameters):
    network = build_meta(name, **overrides)

    assert count(network) == parameters
    assert all(p.requires_grad for p in network.parameters())


def test_hymamba_has_the_published_parameters_that_are_read():
    fixed_positions = 216 * 384  # computed here, for grids of any size
    second_direction = 4 * 768 * (5 + 56 + 25 + 16 + 1)  # of the Mamba layers, which is off
    assert count(build_meta("hymamba")) == 41_841_134 - fixed_positions - second_direction


def test_the_plain_mamba_has_the_decoder_of_unetr():
    network = build_meta("unetr_mamba")
    with torch.device("meta"):
        unetr = UNETR(1, 14, (96, 96, 96), feature_size=16)

    assert count(network) - count(network.encoder) == count(unetr) - count(unetr.vit)


def on_meta(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device="meta")


@pytest.mark.parametrize("da", [0, 2, 5])
def test_published_networks_take_their_training_crops(da):
    anisotropy = Anisotropy(da)
    crop = on_meta(1, 3, anisotropy.depth_at(64), 128, 128)
    out = build_meta("pumit_tokenizer")(crop, anisotropy)
    assert out.reconstruction.shape == crop.shape
    assert out.tokens.probabilities.shape == (1, 1024, 1 if da == 5 else 4, 8, 8)

    crop = on_meta(1, 3, anisotropy.depth_at(80), 160, 160)
    features = build_meta("pumit_vit_b")(crop, anisotropy)
    assert features.tokens.shape == (1, 100 if da == 5 else 500, 768)


@pytest.mark.parametrize(
    ("name", "shape", "answer"),
    [
        ("pumit_segmentation_btcv", (1, 1, 48, 192, 192), (14, 48, 192, 192)),
        ("pumit_classifier_b", (1, 3, 160, 160, 160), (11,)),
    ],
)
def test_downstream_networks_take_their_training_crops(name, shape, answer):
    assert build_meta(name)(on_meta(*shape)).shape[1:] == answer


def test_an_unknown_name_is_refused_with_the_nearest_and_all_known_ones():
    with pytest.raises(PumitError, match="did you mean 'pumit_tokenizer'") as error:
        build_network("pumit_tokeniser")
    assert all(name in str(error.value) for name in RECIPES)

    with pytest.raises(PumitError, match=r"Unknown network 'zzz'\. Known: ") as error:
        build_network("zzz")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"num_token": 3}, r"'num_token'; .* 'num_tokens'"),
        ({"groups": 3}, "Cannot build 'pumit_tokenizer'"),
        ({"groups": 0}, "Cannot build 'pumit_tokenizer'"),
        ({"widths": (4, 8)}, "Cannot build 'pumit_tokenizer'"),
        ({"num_tokens": "many"}, "Cannot build 'pumit_tokenizer'"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(overrides, message):
    with pytest.raises(PumitError, match=message):
        build_network("pumit_tokenizer", **overrides)
