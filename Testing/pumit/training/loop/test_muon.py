"""Matrices step along orthogonalised momentum, the rest as AdamW does."""

from __future__ import annotations

import copy

import pytest
import torch
from pumit.training.loop.optimizers import Muon, optimizer_for, orthogonalised
from pumit.training.recipes.schedule import Schedule
from torch import nn


@pytest.mark.parametrize("shape", [(24, 24), (16, 200), (90, 20)])
def test_the_singular_values_come_out_about_one(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 1e-4
    values = torch.linalg.svdvals(orthogonalised(matrix))
    assert values.max() < 1.3
    assert values.median() > 0.6


def test_a_zero_gradient_moves_nothing() -> None:
    assert not orthogonalised(torch.zeros(16, 20)).any()


def test_a_step_has_the_size_of_an_adamw_step() -> None:
    weight = nn.Parameter(torch.zeros(64, 96))
    optimizer = Muon([{"params": [weight], "orthogonal": True}], lr=0.1, weight_decay=0.0)
    weight.grad = torch.randn(64, 96, generator=torch.Generator().manual_seed(2))
    optimizer.step()
    assert 0.1 * 0.1 < float(weight.detach().square().mean().sqrt()) < 0.1 * 0.3


def test_the_gradients_are_left_as_they_were() -> None:
    network = nn.Linear(32, 32)
    optimizer = optimizer_for(network, Schedule())
    network(torch.randn(4, 32)).sum().backward()
    assert network.weight.grad is not None
    before = network.weight.grad.clone()
    optimizer.step()
    torch.testing.assert_close(network.weight.grad, before)


def test_embeddings_and_thin_matrices_are_no_matrices_to_it() -> None:
    network = nn.ModuleList([nn.Embedding(40, 40), nn.Linear(64, 4), nn.Conv3d(16, 16, 3)])
    groups = optimizer_for(network, Schedule()).param_groups
    orthogonal = [p.shape for g in groups if g.get("orthogonal") for p in g["params"]]
    assert orthogonal == [torch.Size((16, 16, 3, 3, 3))]
    assert sum(len(g["params"]) for g in groups) == len(list(network.parameters()))


def test_it_goes_on_from_a_saved_state() -> None:
    def steps(optimizer: Muon, weight: nn.Parameter, count: int) -> None:
        for i in range(count):
            weight.grad = torch.randn(20, 30, generator=torch.Generator().manual_seed(i))
            optimizer.step()

    first, second = (nn.Parameter(torch.ones(20, 30)) for _ in range(2))
    a, b = (Muon([{"params": [p], "orthogonal": True}], lr=0.1) for p in (first, second))
    steps(a, first, 3)
    second.data.copy_(first.data)
    b.load_state_dict(copy.deepcopy(a.state_dict()))
    steps(a, first, 2)
    steps(b, second, 2)
    torch.testing.assert_close(first, second)
