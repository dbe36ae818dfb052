"""Soft tokens and their regulariser: definition, limits, safety at zero, all processes."""

import math

import pytest
import torch
from pumit.networks.pumit import SoftVectorQuantizer, prior_regularization
from torch import Tensor


def slow_terms(cells: Tensor) -> tuple[float, float]:
    """Both terms from their definition, cell by cell, for (N, K)."""
    entropies = [-sum(p * math.log(p) for p in cell if p > 0) for cell in cells.tolist()]
    mean = [sum(column) / len(cells) for column in cells.T.tolist()]
    return sum(p * math.log(p) for p in mean if p > 0), sum(entropies) / len(cells)


def test_a_soft_token_is_the_expected_codebook_entry() -> None:
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


def test_the_codebook_starts_uniform_within_one_over_its_size() -> None:
    codebook = SoftVectorQuantizer(4, 50, 400).codebook.detach()

    assert codebook.shape == (50, 400)
    assert codebook.abs().max() <= 1 / 50
    assert codebook.std().item() == pytest.approx(1 / 50 / math.sqrt(3), rel=0.05)


def test_gradients_reach_projection_and_codebook_through_both_outputs() -> None:
    quantizer = SoftVectorQuantizer(6, 10, 4)
    z = torch.randn(2, 6, 1, 3, 5, requires_grad=True)

    tokens = quantizer(z)
    (tokens.embedding.square().sum() + sum(prior_regularization(tokens.probabilities))).backward()

    for tensor in (z, *quantizer.parameters()):
        assert tensor.grad is not None
        assert tensor.grad.abs().sum() > 0


def test_probabilities_stay_in_single_precision_in_a_half_precision_network() -> None:
    tokens = SoftVectorQuantizer(8, 1024, 4).bfloat16()(torch.randn(1, 8, 1, 2, 2).bfloat16())

    assert tokens.probabilities.dtype == torch.float32
    assert tokens.embedding.dtype == torch.bfloat16
    torch.testing.assert_close(tokens.probabilities.sum(1), torch.ones(1, 1, 2, 2))


def test_terms_agree_with_their_definition_in_every_layout() -> None:
    grid = torch.randn(2, 7, 2, 3, 4, dtype=torch.float64).mul(3).softmax(1)
    cells = grid.movedim(1, -1).reshape(-1, 7)
    expected = slow_terms(cells)

    for p in (grid, cells, cells.reshape(2, -1, 7)):
        assert [t.item() for t in prior_regularization(p)] == pytest.approx(expected, abs=1e-12)
    moved = prior_regularization(grid.movedim(1, 2), dim=2)
    assert [t.item() for t in moved] == pytest.approx(expected, abs=1e-12)


def test_a_layout_that_does_not_show_its_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="name the axis"):
        prior_regularization(torch.full((2, 4, 4, 4), 0.25))


def test_gradients_are_right_and_finite_where_a_probability_is_zero() -> None:
    logits = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: prior_regularization(x.softmax(1)), logits)

    saturated = torch.tensor([[1e4, 0.0, -1e4], [1e4, 0.0, -1e4]], requires_grad=True)
    sum(prior_regularization(saturated.softmax(1))).backward()
    assert torch.isfinite(saturated.grad).all()
