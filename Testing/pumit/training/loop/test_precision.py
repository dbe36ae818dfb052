"""Half precision computes what float32 does, but for rounding."""

from contextlib import nullcontext

import pytest
import torch
from pumit.training.loop.precision import half_precision
from torch import nn
from torch.nn import functional as F

CPU = torch.device("cpu")


@pytest.mark.parametrize("kind", [nn.Conv3d, nn.ConvTranspose3d])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_kernels_of_thin_grids_get_their_gradient(depth, kind):
    """Where a CPU multiplies bfloat16, torch's own gradient of two slices is not to be used."""
    torch.manual_seed(0)
    conv = kind(16, 16, 3, padding=1)
    image, weights = torch.randn(2, 16, depth, 4, 4), torch.randn(2, 16, depth, 4, 4)
    found = []
    for precision in ("fp32", "bf16"):
        dirty = [torch.full((n,), torch.nan) for n in (1000, 10_000, 100_000)]
        del dirty  # what is not written holds no zeros by luck
        conv.zero_grad()
        with half_precision(CPU, precision):
            answer = conv(image)
        (answer.float() * weights).sum().backward()
        found.append(conv.weight.grad.clone())
    torch.testing.assert_close(found[1], found[0], rtol=0.05, atol=0.05 * float(found[0].std()))


def test_it_is_half_precision_elsewhere():
    conv = nn.Conv3d(2, 2, 3, padding=1)
    with half_precision(CPU, "bf16"):
        assert conv(torch.zeros(1, 2, 4, 4, 4)).dtype == torch.bfloat16
        assert conv(torch.zeros(1, 2, 2, 4, 4)).dtype == torch.float32
        assert conv(torch.zeros(1, 2, 1, 4, 4)).dtype == torch.bfloat16
    with half_precision(CPU, "fp32"):
        assert conv(torch.zeros(1, 2, 4, 4, 4)).dtype == torch.float32


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        (3, {}),
        (3, {"padding": 1, "stride": (1, 2, 2)}),
        ((1, 3, 3), {"padding": (0, 1, 1), "dilation": 2}),
        (3, {"padding": "same", "groups": 2}),
        (1, {}),
    ],
)
@pytest.mark.parametrize("batch", [(1,), (2,), ()])
def test_single_fields_are_convolved_like_batches(batch, kernel, options):
    """PyTorch's own convolution of a batch of one takes several times as long."""
    torch.manual_seed(0)
    channels = 4 if batch else 2 if "groups" in options else 1  # an unbatched image looks like one
    conv = nn.Conv3d(channels, 6, kernel, bias="groups" not in options, **options)
    x = torch.randn(*batch, channels, 5, 8, 9, requires_grad=True)
    found = []
    for is_fast in (False, True):
        conv.zero_grad()
        x.grad = None
        with half_precision(CPU, "fp32") if is_fast else nullcontext():
            answer = conv(x)
        answer.square().sum().backward()
        assert x.grad is not None
        found.append((answer.detach(), x.grad, conv.weight.grad.clone()))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)


def test_a_single_field_goes_to_onednn(monkeypatch):
    if not torch.backends.mkldnn.is_available():
        pytest.skip("This build of torch has no oneDNN.")
    calls, convolve = [], torch.mkldnn_convolution
    monkeypatch.setattr(torch, "mkldnn_convolution", lambda *a: calls.append(1) or convolve(*a))
    conv = nn.Conv3d(2, 2, 3)
    with half_precision(CPU, "fp32"):
        for batch in (1, 2):
            conv(torch.zeros(batch, 2, 4, 4, 4))
        F.conv3d(torch.zeros(1, 2, 4, 4, 4).double(), conv.weight.double())
    assert len(calls) == 1
