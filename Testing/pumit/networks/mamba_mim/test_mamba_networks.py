"""HyMamba and UNETR with Mamba: blocks, fields of all sizes, earlier weights, refusals."""

import pytest
import torch
from mamba_networks import HYMAMBA, TINY, keeping_depth, tiny
from pumit.errors import PumitError
from pumit.inference.loading import build_from
from pumit.models.checkpoint import load_checkpoint, save_checkpoint
from pumit.networks.build import build_network
from pumit.networks.mamba_mim.hymamba import MedNextBlock, ResidualConvBlock
from torch import Tensor
from torch.nn import functional as F

NAMES = list(TINY)
Size = tuple[int, int, int]


@pytest.mark.parametrize("name", NAMES)
def test_logits_lie_on_the_images_grid_and_gradients_reach_all(name):
    network = tiny(name, in_channels=2)
    logits = network(torch.randn(2, 2, 16, 32, 16))
    assert logits.shape == (2, 3, 16, 32, 16)
    logits.square().mean().backward()
    for key, parameter in network.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().sum() > 0, key


@pytest.mark.parametrize("name", NAMES)
def test_an_odd_field_is_answered_as_the_padded_one(name):
    network = tiny(name, **keeping_depth(name, 2)).eval()
    x = torch.randn(1, 1, 5, 17, 31)
    with torch.no_grad():
        logits = network(x)
        full = F.pad(x, (0, 1, 0, 15, 0, 3), mode="replicate")
        assert torch.equal(logits, network(full)[:, :, :5, :17, :31])


@pytest.mark.parametrize("name", NAMES)
def test_places_far_away_change_the_answer_after_them(name):
    """Convolutions of this depth do not reach so far within a slice; Mamba does."""
    network = tiny(name).eval()
    x = torch.randn(1, 1, 16, 16, 64)
    y = x.clone()
    y[..., :16] += 1
    with torch.no_grad():
        before, after = (network.encoder(field).tokens for field in (x, y))
    assert (before[:, -1] - after[:, -1]).abs().max() > 1e-6
    # Causal: the first token of a sequence does not know of what comes after it.
    if name == "unetr_mamba":
        z = x.clone()
        z[..., 16:] += 1
        with torch.no_grad():
            assert torch.equal(network.encoder(z).tokens[:, 0], before[:, 0])


@pytest.mark.parametrize("name", NAMES)
def test_an_image_that_does_not_fit_is_refused(name):
    with pytest.raises(PumitError, match=r"8 x 16 x 16 .* 16 x 16 x 16"):
        tiny(name)(torch.zeros(1, 1, 8, 16, 16))
    with pytest.raises(PumitError, match="reads 1 image channel, got 3"):
        tiny(name)(torch.zeros(1, 3, 16, 16, 16))


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("hymamba", {"num_classes": 0}, "num_classes must be at least 1, got 0"),
        ("hymamba", {"widths": (6, 6, 12)}, "widths, depths, expansions and poolings"),
        ("hymamba", {"widths": (6, 6, 8, 16)}, "divisible by 6, got 16"),
        ("hymamba", {"poolings": [[0, 2, 2]] * 4}, "pooling must be three whole numbers"),
        ("hymamba", {"state": 0}, "state must be at least 1, got 0"),
        ("unetr_mamba", {"num_classes": 0}, "num_classes must be at least 1, got 0"),
        ("unetr_mamba", {"patch": (3, 16, 16)}, "three of 1, 2, 4, 8, 16, got"),
        ("unetr_mamba", {"taps": (1, 2, 3)}, "taps must be 4 numbers of layers"),
        ("unetr_mamba", {"taps": (1, 3, 2, 4)}, "taps must be ascending"),
        ("unetr_mamba", {"dim": 16}, "divisible by 6, got 16"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_in_one_line(name, sizes, message):
    with pytest.raises(PumitError, match=message) as error:
        tiny(name, **sizes)
    assert "\n" not in str(error.value)


def normalised(x: torch.Tensor) -> torch.Tensor:
    """Over the channels of each place, with a variance that is not corrected."""
    mean, variance = x.mean(1, keepdim=True), x.var(1, correction=0, keepdim=True)
    return (x - mean) / (variance + 1e-6).sqrt()


def test_a_mednext_block_is_what_its_formula_says():
    torch.manual_seed(0)
    block = MedNextBlock(4, expansion=3)
    x = torch.randn(1, 4, 3, 4, 5)
    with torch.no_grad():
        y = F.conv3d(x, block.depthwise.weight, block.depthwise.bias, padding=1, groups=4)
        y = normalised(y)
        y = F.conv3d(y, block.expand.weight[..., None, None, None], block.expand.bias)
        y = 0.5 * y * (1 + torch.erf(y / 2**0.5))
        y = F.conv3d(y, block.contract.weight[..., None, None, None], block.contract.bias)
        expected = x + y
        torch.testing.assert_close(block(x), expected, rtol=1e-4, atol=1e-5)


def test_a_residual_block_of_another_width_has_a_shortcut():
    torch.manual_seed(0)
    block = ResidualConvBlock(3, 2)
    x = torch.randn(1, 3, 2, 4, 4)
    with torch.no_grad():
        y = F.conv3d(x, block.conv1.weight, block.conv1.bias, padding=1)
        y = F.leaky_relu(normalised(y), 0.01)
        y = normalised(F.conv3d(y, block.conv2.weight, block.conv2.bias, padding=1))
        passed = normalised(F.conv3d(x, block.shortcut[0].weight, block.shortcut[0].bias))
        torch.testing.assert_close(block(x), F.leaky_relu(y + passed, 0.01), rtol=1e-4, atol=1e-5)


def of_before(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same answers in the layout of before: scales, no biases, and what nothing reads."""
    torch.manual_seed(1)
    old = {}
    for key, value in state.items():
        is_new = key.startswith(("encoder.stem.", "encoder.skips.")) and "norm" not in key
        if not (is_new and key.endswith("bias")):
            old[key] = value
    for key in [k for k in old if k.endswith(".contract.weight")]:
        block = key.removesuffix(".contract.weight")
        scale = 0.5 + torch.rand(len(old[key]))
        old[key] = old[key] / scale[:, None]
        old[f"{block}.contract.bias"] = old[f"{block}.contract.bias"] / scale
        old[f"{block}.scale"] = scale
    return {**old, "unused.fixed_positions": torch.zeros(12)}


def test_an_earlier_checkpoint_answers_as_it_did(tmp_path):
    torch.manual_seed(0)
    plain = {**HYMAMBA, "num_classes": 3}
    sizes = {**plain, "unused": {"fixed positions": 12}}
    network = build_network("hymamba", **plain, last_norm="instance").eval()
    with torch.no_grad():
        for key, p in network.named_parameters():
            is_new = key.startswith(("encoder.stem.", "encoder.skips.")) and "norm" not in key
            torch.nn.init.zeros_(p) if is_new and key.endswith("bias") else p.add_(0.01)
    path = tmp_path / "old.safetensors"
    save_checkpoint(path, of_before(network.state_dict()), {"network": "hymamba", "sizes": sizes})

    found = build_from(load_checkpoint(path), path, torch.device("cpu"))

    x = torch.randn(1, 1, 16, 16, 32)
    with torch.no_grad():
        torch.testing.assert_close(found(x), network(x), rtol=1e-4, atol=1e-5)
