"""A kernel's depth sum is kept between predictions, and never outlives the kernel."""

import copy
from collections.abc import Callable

import pytest
import torch
from pumit.networks.pumit import Anisotropy, SACConv, SACDownsample, SACUpsample
from pumit.networks.pumit.sac import embed_patches, spread_patches
from torch import Tensor, nn
from torch.nn import functional as F

LAYERS = [SACDownsample(2, 3, 2), SACConv(2, 3), SACUpsample(2, 3, 2)]
SHALLOW = Anisotropy(5, level=2)
X = torch.randn(1, 2, 1, 4, 4)


def expected(layer: nn.Module, x: Tensor = X) -> Tensor:
    """The answer of a layer that has never answered before."""
    fresh = type(layer)(2, 3) if isinstance(layer, SACConv) else type(layer)(2, 3, layer.k)
    fresh.load_state_dict(layer.state_dict())
    return fresh.to(x.dtype)(x, SHALLOW).detach()


@pytest.fixture(params=LAYERS, ids=lambda layer: type(layer).__name__)
def used(request: pytest.FixtureRequest) -> nn.Module:
    """A layer in evaluation mode that has answered without gradients."""
    layer = copy.deepcopy(request.param).eval()
    with torch.inference_mode():
        layer(X, SHALLOW)
    assert layer._depth_sums
    return layer


@pytest.mark.parametrize(
    ("ours", "torchs", "size", "channels", "kernel"),
    [
        (embed_patches, F.conv3d, (4, 6, 8), (5, 3), (2, 3, 4)),
        (embed_patches, F.conv3d, (5, 8, 8), (5, 3), (2, 3, 4)),
        (spread_patches, F.conv_transpose3d, (4, 5, 6), (3, 5), (1, 2, 4)),
    ],
    ids=["embedded", "embedded and cut", "spread"],
)
@pytest.mark.parametrize("has_bias", [True, False])
def test_patches_are_embedded_and_spread_as_by_convolutions(
    ours, torchs, size, channels, kernel, has_bias
):
    x = torch.randn(2, 3, *size, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(*channels, *kernel, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(5, dtype=torch.float64, requires_grad=True) if has_bias else None
    inputs = [t for t in (x, weight, bias) if t is not None]

    out, plain = ours(x, weight, bias), torchs(x, weight, bias, stride=kernel)

    torch.testing.assert_close(out, plain)
    found, reference = (torch.autograd.grad((y**2).sum(), inputs) for y in (out, plain))
    for gradient, slow in zip(found, reference, strict=True):
        torch.testing.assert_close(gradient, slow)


def test_a_sum_is_made_once(used):
    with torch.no_grad():
        assert used.kernel_of_depth(1) is used.kernel_of_depth(1)
        torch.testing.assert_close(used(X, SHALLOW), expected(used))


CHANGES: dict[str, Callable[[nn.Module], object]] = {
    "an optimiser": lambda layer: torch.optim.SGD(layer.parameters(), 1.0).step(),
    "loading": lambda layer: layer.load_state_dict(
        {k: v + 1 for k, v in layer.state_dict().items()}
    ),
    "assigning": lambda layer: layer.load_state_dict(
        {k: v + 1 for k, v in layer.state_dict().items()}, assign=True
    ),
    "a new parameter": lambda layer: setattr(
        layer, "weight", nn.Parameter(layer.weight.detach() + 1)
    ),
    "new memory": lambda layer: setattr(layer.weight, "data", layer.weight.data + 1),
    "filling and eval()": lambda layer: (layer.weight.data.add_(1), layer.eval()),
    "initialising": lambda layer: nn.init.ones_(layer.weight),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_kernel_is_summed_again(used, change):
    for parameter in used.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = used.weight.detach().clone()
    CHANGES[change](used)
    assert not torch.equal(used.weight, before)
    with torch.inference_mode():
        answer = used(X, SHALLOW)
    torch.testing.assert_close(answer.clone(), expected(used))


def test_a_cast_kernel_is_summed_again(used):
    used.double()
    with torch.no_grad():
        torch.testing.assert_close(used(X.double(), SHALLOW), expected(used, X.double()))


def test_each_training_step_sums_anew_and_reaches_the_whole_kernel(used):
    for _ in range(2):
        used.zero_grad()
        used(X, SHALLOW).sum().backward()
        assert used.weight.grad.shape == used.weight.shape
        torch.testing.assert_close(used(X, SHALLOW).detach(), expected(used))
        torch.optim.SGD(used.parameters(), 0.1).step()
    used.train()
    assert not used._depth_sums


def test_copies_answer_for_themselves(used):
    other = copy.deepcopy(used)
    assert other.state_dict().keys() == used.state_dict().keys() == {"weight", "bias"}
    with torch.no_grad():
        torch.testing.assert_close(other(X, SHALLOW), expected(used))
        other.weight.add_(1)
        torch.testing.assert_close(other(X, SHALLOW), expected(other))
        torch.testing.assert_close(used(X, SHALLOW), expected(used))


def test_a_replaced_parameter_is_used_for_one_call_only(used):
    state = {k: v.detach() + 1 for k, v in used.state_dict().items()}
    with torch.no_grad():
        replaced = torch.func.functional_call(used, state, (X, SHALLOW))
        torch.testing.assert_close(used(X, SHALLOW), expected(used))
    other = copy.deepcopy(used)
    other.load_state_dict(state)
    torch.testing.assert_close(replaced, expected(other))
