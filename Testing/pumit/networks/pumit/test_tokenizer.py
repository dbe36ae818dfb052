"""Visual tokenizer and discriminator at tiny sizes; soft tokens and their regulariser."""

import math

import pytest
import torch
from pumit.errors import PumitError
from pumit.networks.pumit import Anisotropy, SoftVectorQuantizer, prior_regularization
from pumit.networks.pumit.tokenizer import PatchDiscriminator, VisualTokenizer
from torch import Tensor

DEPTHS_OF_32 = (32, 16, 8, 4, 2, 1)


def tiny() -> VisualTokenizer:
    torch.manual_seed(0)
    return VisualTokenizer(in_channels=3, widths=(4, 8, 8), num_tokens=12, groups=2)


@pytest.mark.parametrize("da", [0, 2, 4, 5])
def test_it_reconstructs_the_inputs_grid_at_every_degree_and_gradients_reach_all_parameters(
    da, assert_gradients_reach_all
):
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


@pytest.mark.parametrize(
    ("shape", "da"), [((1, 3, 16, 40, 32), 0), ((1, 3, 5, 32, 32), 1), ((1, 3, 32, 32), 5)]
)
def test_images_that_do_not_fit_are_refused_before_they_are_cut(shape, da):
    with pytest.raises(PumitError, match=r"multiple of|Expected an image"):
        tiny()(torch.zeros(shape), Anisotropy(da))


@pytest.mark.parametrize("da", [0, 3, 5])
def test_the_discriminator_judges_patches_at_every_degree_and_gradients_reach_all_parameters(
    da, assert_gradients_reach_all
):
    torch.manual_seed(0)
    network = PatchDiscriminator(in_channels=3, widths=(4, 8, 8), groups=2).double()
    depth = (16, 8, 4, 2, 1, 1)[da]
    x = torch.rand(2, 3, depth, 32, 48, requires_grad=True, dtype=torch.float64)

    logits = network(x, Anisotropy(da))

    assert logits.shape == (2, 1, (2, 2, 2, 2, 1, 1)[da], 4, 6)
    assert_gradients_reach_all(network, logits.square().mean())
    assert x.grad.abs().max() > 1e-12


def slow_terms(cells: Tensor) -> tuple[float, float]:
    """Both terms from their definition, cell by cell, for (N, K)."""
    entropies = [-sum(p * math.log(p) for p in cell if p > 0) for cell in cells.tolist()]
    mean = [sum(column) / len(cells) for column in cells.T.tolist()]
    return sum(p * math.log(p) for p in mean if p > 0), sum(entropies) / len(cells)


def test_a_soft_token_is_the_expected_codebook_entry():
    quantizer = SoftVectorQuantizer(6, 10, 4).double()
    z = torch.randn(2, 6, 2, 3, 5, dtype=torch.float64)

    tokens = quantizer(z)

    assert tokens.embedding.shape == (2, 4, 2, 3, 5)
    assert tokens.probabilities.shape == (2, 10, 2, 3, 5)
    torch.testing.assert_close(
        tokens.probabilities.sum(1), torch.ones(2, 2, 3, 5, dtype=torch.float64)
    )
    cell = torch.softmax(quantizer.projection(z[1, :, 0, 2, 4]), dim=0)
    torch.testing.assert_close(tokens.probabilities[1, :, 0, 2, 4], cell)
    expected = sum(p * e for p, e in zip(cell, quantizer.codebook, strict=True))
    torch.testing.assert_close(tokens.embedding[1, :, 0, 2, 4], expected)


def test_the_codebook_starts_uniform_within_one_over_its_size():
    codebook = SoftVectorQuantizer(4, 50, 400).codebook.detach()

    assert codebook.shape == (50, 400)
    assert codebook.abs().max() <= 1 / 50
    assert codebook.std().item() == pytest.approx(1 / 50 / math.sqrt(3), rel=0.05)


def test_probabilities_stay_in_single_precision_in_a_half_precision_network():
    tokens = SoftVectorQuantizer(8, 1024, 4).bfloat16()(torch.randn(1, 8, 1, 2, 2).bfloat16())

    assert tokens.probabilities.dtype == torch.float32
    assert tokens.embedding.dtype == torch.bfloat16
    torch.testing.assert_close(tokens.probabilities.sum(1), torch.ones(1, 1, 2, 2))


def test_terms_agree_with_their_definition_in_every_layout():
    grid = torch.randn(2, 7, 2, 3, 4, dtype=torch.float64).mul(3).softmax(1)
    cells = grid.movedim(1, -1).reshape(-1, 7)
    expected = slow_terms(cells)

    for p in (grid, cells):
        assert [t.item() for t in prior_regularization(p)] == pytest.approx(expected, abs=1e-12)


def test_gradients_are_right_and_finite_where_a_probability_is_zero():
    logits = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: prior_regularization(x.softmax(1)), logits)

    saturated = torch.tensor([[1e4, 0.0, -1e4], [1e4, 0.0, -1e4]], requires_grad=True)
    sum(prior_regularization(saturated.softmax(1))).backward()
    assert torch.isfinite(saturated.grad).all()
