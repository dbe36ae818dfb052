"""Every parameter is stepped once, at its own rate, and decays only where it should."""

from typing import Any

import pytest
import torch
from line_task import DEGREES, LineTask
from pumit.networks.build import build_network
from pumit.training.loop.optimizers import Muon, optimizer_for, orthogonalised, set_rate
from pumit.training.loop.trainer import train
from pumit.training.recipes.schedule import Schedule
from pumit.training.run.resume_state import parameter_names
from torch import nn

ADAMW = Schedule(optimizer="adamw", weight_decay=0.3)


def decayed(network: nn.Module, schedule: Schedule) -> set[str]:
    names = {id(p): name for name, p in network.named_parameters()}
    groups = optimizer_for(network, schedule).param_groups
    assert sum(len(g["params"]) for g in groups) == len(names)
    return {names[id(p)] for g in groups if g["weight_decay"] > 0 for p in g["params"]}


def test_adamw_spares_biases_norms_and_embeddings():
    sizes: dict[str, Any] = {"dim": 16, "depth": 1, "num_heads": 1, "hidden": 16}
    network = build_network("pumit_vit_b_mim", **sizes, position_table=(1, 2, 2), num_tokens=5)
    network.table = nn.Embedding(3, 3)
    names = decayed(network, ADAMW)
    assert names == decayed(network, Schedule(optimizer="sgd"))
    assert any("patch_embedding.weight" in name for name in names)
    assert any("attention.q.weight" in name for name in names)
    spared = ("bias", "norm1.weight", "position_table", "cls_token", "mask_token", "table.weight")
    assert not [name for name in names if name.endswith(spared)]


@pytest.mark.parametrize("kind", ["muon", "adamw", "sgd"])
def test_groups_have_their_own_rate_and_decay(kind):
    network = nn.ModuleDict({"a": nn.Linear(20, 20), "b": nn.Linear(20, 20), "c": nn.Linear(2, 2)})
    groups = [
        {"params": network["a"].parameters()},
        {"params": network["b"].parameters(), "rate": 10},
        {"params": network["c"].parameters(), "weight_decay": 0.7},
    ]
    optimizer = optimizer_for(network, Schedule(optimizer=kind, weight_decay=0.3), groups)
    set_rate(optimizer, 0.5)
    settings = {
        id(p): (g["lr"], g["weight_decay"]) for g in optimizer.param_groups for p in g["params"]
    }
    layers = [network[name] for name in "abc"]
    assert [settings[id(layer.weight)] for layer in layers] == [(0.5, 0.3), (5.0, 0.3), (0.5, 0.7)]
    assert [settings[id(layer.bias)] for layer in layers] == [(0.5, 0.0), (5.0, 0.0), (0.5, 0.7)]


def test_parameters_are_in_the_order_of_runs_that_are_saved_by_number():
    layers = {"norm": nn.LayerNorm(20), "table": nn.Embedding(3, 20), "line": nn.Linear(20, 20)}
    network = nn.ModuleDict(layers)
    vectors = ["norm.weight", "norm.bias", "line.bias"]
    muon = optimizer_for(network, Schedule(optimizer="muon"))
    assert parameter_names(network, muon) == ["line.weight", "table.weight", *vectors]
    adamw = optimizer_for(network, Schedule(optimizer="adamw"))
    spared = ["norm.weight", "norm.bias", "table.weight", "line.bias"]
    assert parameter_names(network, adamw) == ["line.weight", *spared]


def test_a_parameter_in_no_group_or_in_two_is_a_mistake():
    network = nn.Linear(2, 2)
    for params in ([network.weight], [network.weight, network.bias, network.weight]):
        groups = [{"params": [p]} for p in params]
        with pytest.raises(ValueError, match="in one group, once"):
            optimizer_for(network, ADAMW, groups)

    # What is frozen is in none.
    network.bias.requires_grad_(False)
    groups = optimizer_for(network, ADAMW).param_groups
    assert [p for g in groups for p in g["params"]] == [network.weight]


@pytest.mark.parametrize("kind", ["muon", "adamw", "sgd"])
def test_a_task_says_what_is_stepped_how_far(tmp_path, kind):
    class TwoRates(LineTask):
        def parameter_groups(self, schedule: Schedule) -> list[dict[str, Any]]:
            assert schedule.optimizer == kind
            still, *moving = self.network
            rest = [p for layer in moving for p in layer.parameters()]
            return [{"params": still.parameters(), "rate": 0.0}, {"params": rest}]

    task = TwoRates()
    before = [p.detach().clone() for p in task.network.parameters()]
    schedule = Schedule(steps=2, optimizer=kind, warm_up=0, decay=0, weight_decay=0.0)
    train(task, tmp_path, schedule, degrees=DEGREES, report=lambda record: None)
    stays = [torch.equal(p, b) for p, b in zip(task.network.parameters(), before, strict=True)]
    assert stays == [True, True, False, False, False, False]


def test_accumulated_batches_are_one_large_batch(tmp_path):
    class Large(LineTask):
        """Draws what the other draws in two batches."""

        def draw(self, da0: int, generator: torch.Generator, shared: torch.Generator) -> Any:
            rows = []
            for _ in range(2):
                index = len(self.drawn)
                own = torch.Generator().manual_seed(index * 64 + 1)
                rows.append(super().draw(da0, own, shared))
            return torch.cat(rows)

    states = []
    for task, accumulate in ((Large(), 1), (LineTask(), 2)):
        schedule = Schedule(steps=3, warm_up=0, accumulate=accumulate, precision="fp32")
        folder = tmp_path / str(accumulate)
        states.append(train(task, folder, schedule, degrees=DEGREES, report=lambda record: None))
    torch.testing.assert_close(states[1], states[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("shape", [(24, 24), (16, 200), (90, 20)])
def test_the_singular_values_come_out_about_one(shape):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 1e-4
    alone = orthogonalised(matrix)
    values = torch.linalg.svdvals(alone)
    assert values.max() < 1.3
    assert values.median() > 0.6
    assert not orthogonalised(torch.zeros(shape)).any()
    # Of several matrices at once each is that by itself.
    together = orthogonalised(torch.stack([1e3 * matrix, matrix]))
    torch.testing.assert_close(together, alone.expand(2, -1, -1), atol=0.02, rtol=0.02)


def test_a_step_has_the_size_of_an_adamw_step():
    weight = nn.Parameter(torch.zeros(64, 96))
    optimizer = Muon([{"params": [weight], "orthogonal": True}], lr=0.1, weight_decay=0.0)
    weight.grad = torch.randn(64, 96, generator=torch.Generator().manual_seed(2))
    optimizer.step()
    assert 0.1 * 0.1 < float(weight.detach().square().mean().sqrt()) < 0.1 * 0.3


def test_the_gradients_are_left_as_they_were():
    network = nn.Linear(32, 32)
    optimizer = optimizer_for(network, Schedule())
    network(torch.randn(4, 32)).sum().backward()
    before = network.weight.grad.clone()
    optimizer.step()
    torch.testing.assert_close(network.weight.grad, before)


def test_embeddings_and_thin_matrices_are_no_matrices_to_it():
    network = nn.ModuleList([nn.Embedding(40, 40), nn.Linear(64, 4), nn.Conv3d(16, 16, 3)])
    groups = optimizer_for(network, Schedule()).param_groups
    orthogonal = [p.shape for g in groups if g.get("orthogonal") for p in g["params"]]
    assert orthogonal == [torch.Size((16, 16, 3, 3, 3))]
    assert sum(len(g["params"]) for g in groups) == len(list(network.parameters()))
