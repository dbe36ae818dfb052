"""Visual tokenizer at tiny sizes: grids at every degree, gradients, sizes that do not fit."""

from collections.abc import Callable

import pytest
import torch
from pumit.errors import PumitError
from pumit.networks.pumit import Anisotropy, prior_regularization
from pumit.networks.pumit.tokenizer import VisualTokenizer
from torch import Tensor, nn

DEPTHS_OF_32 = (32, 16, 8, 4, 2, 1)


def tiny() -> VisualTokenizer:
    torch.manual_seed(0)
    return VisualTokenizer(in_channels=3, widths=(4, 8, 8), num_tokens=12, groups=2)


@pytest.mark.parametrize("da", range(6))
def test_it_reconstructs_the_inputs_grid_at_every_degree_and_gradients_reach_all_parameters(
    da: int, assert_gradients_reach_all: Callable[[nn.Module, Tensor], None]
) -> None:
    network, anisotropy = tiny().double(), Anisotropy(da)
    depth = DEPTHS_OF_32[da]
    x = torch.rand(2, 3, depth, 32, 48, dtype=torch.float64) * 2 - 1

    out = network(x, anisotropy)

    grid = (depth // anisotropy.depth_stride(4), 2, 3)
    assert grid[0] == (2, 2, 2, 2, 2, 1)[da]
    assert out.tokens.probabilities.shape == (2, 12, *grid)
    assert out.tokens.embedding.shape == (2, 8, *grid)
    assert out.reconstruction.shape == x.shape
    loss = out.reconstruction.abs().sum() + sum(prior_regularization(out.tokens.probabilities))
    assert_gradients_reach_all(network, loss)


def test_a_stack_of_equal_slices_gives_the_tokens_of_its_one_slice() -> None:
    # The weights are summed, not cut, so both ways to see a flat object agree inside the stack.
    network = tiny()
    slice_2d = torch.rand(1, 3, 1, 32, 32)

    flat = network.encoder.down[0](slice_2d, Anisotropy(5))
    stack = network.encoder.down[0](slice_2d.expand(-1, -1, 8, -1, -1), Anisotropy(0))

    torch.testing.assert_close(stack, flat.expand(-1, -1, 2, -1, -1))


def test_tokenize_and_decode_are_the_two_halves_of_forward() -> None:
    network, anisotropy = tiny(), Anisotropy(2)
    x = torch.rand(1, 3, 4, 16, 32)

    tokens = network.tokenize(x, anisotropy)

    reconstruction = network.decode(tokens.embedding, anisotropy)
    torch.testing.assert_close(reconstruction, network(x, anisotropy).reconstruction)


@pytest.mark.parametrize(
    ("shape", "da"), [((1, 3, 16, 40, 32), 0), ((1, 3, 5, 32, 32), 1), ((1, 3, 32, 32), 5)]
)
def test_images_that_do_not_fit_are_refused_before_they_are_cut(
    shape: tuple[int, ...], da: int
) -> None:
    with pytest.raises(PumitError, match=r"multiple of|Expected an image"):
        tiny()(torch.zeros(shape), Anisotropy(da))
