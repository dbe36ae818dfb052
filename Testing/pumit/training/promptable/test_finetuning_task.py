"""Labelled fields teach, all others are answered as the original answers them."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from labelled_scans import ball_and_box
from pumit.networks.build import build_network
from pumit.networks.promptable.network import PromptableNetwork
from pumit.training.promptable.fields import FieldBatch
from pumit.training.promptable.finetuning_task import ClickTask, OwnScans, difference
from pumit.training.promptable.real_scan import scan_of

SIZE = 16


@pytest.fixture
def own() -> OwnScans:
    scans = []
    for seed in range(2):
        image, labels = ball_and_box(seed, (14, 40, 40))
        scans.append(scan_of(image, (5.0, 1.0, 1.0), labels, {1: (1,), 2: (2,)}))
    return OwnScans(scans, SIZE)


def task_of(
    network: PromptableNetwork, own: OwnScans, *, distillation_weight: float = 1.0
) -> ClickTask:
    shares = dict.fromkeys(own.degrees, 0.5)
    return ClickTask(
        network,
        copy.deepcopy(network),
        own,
        real_share=shares,
        distillation_weight=distillation_weight,
    )


def batch_of(task: ClickTask, da0: int, *, is_real: bool) -> FieldBatch:
    """A batch of a degree whose targets all are labelled, or none."""
    batch = task.draw(da0, torch.Generator().manual_seed(0), torch.Generator().manual_seed(0))
    return replace(batch, is_real=torch.full_like(batch.is_real, is_real), rounds=2)


def largest_gradient(task: ClickTask, batch: FieldBatch) -> float:
    task.zero_grad()
    torch.autograd.backward(task(batch)["loss"])
    found = [p.grad.abs().max() for p in task.network.parameters() if p.grad is not None]
    return float(torch.stack(found).max())


@pytest.mark.parametrize("part", ["decoder", "all"])
def test_an_unchanged_network_has_nothing_to_unlearn(
    tiny_network: PromptableNetwork, own: OwnScans, part: str
) -> None:
    tiny_network.image_encoder.requires_grad_(part == "all")
    task = task_of(tiny_network, own)
    da0 = next(iter(own.degrees))
    kept = largest_gradient(task, batch_of(task, da0, is_real=False))
    learnt = largest_gradient(task, batch_of(task, da0, is_real=True))
    assert kept < 1e-5
    assert learnt > 100 * max(kept, 1e-8)


def test_the_decoder_of_a_network_with_class_vectors_is_trained(
    tiny_sizes: dict[str, Any], own: OwnScans
) -> None:
    torch.manual_seed(0)
    network = build_network("promptable", **tiny_sizes, class_channels=4)
    assert isinstance(network, PromptableNetwork)
    network.image_encoder.requires_grad_(False)
    task = task_of(network, own)
    assert largest_gradient(task, batch_of(task, next(iter(own.degrees)), is_real=False)) < 1e-5


def test_a_changed_network_is_drawn_back_unless_nothing_is_kept(
    tiny_network: PromptableNetwork, own: OwnScans
) -> None:
    task = task_of(tiny_network, own)
    free = task_of(tiny_network, own, distillation_weight=0.0)
    with torch.no_grad():
        for parameter in tiny_network.mask_decoder.parameters():
            parameter.mul_(1.2)
    da0 = next(iter(own.degrees))
    assert largest_gradient(task, batch_of(task, da0, is_real=False)) > 1e-4
    assert largest_gradient(free, batch_of(free, da0, is_real=False)) == 0


def test_the_original_is_no_part_of_what_is_trained(
    tiny_network: PromptableNetwork, own: OwnScans
) -> None:
    task = task_of(tiny_network, own)
    assert {id(p) for p in task.parameters()} == {id(p) for p in tiny_network.parameters()}


def test_the_difference_is_least_where_answers_are_alike() -> None:
    generator = torch.Generator().manual_seed(0)
    target = torch.randn(2, 4, 3, 4, 4, generator=generator)
    iou = torch.rand(2, 4, generator=generator)
    ambiguous = torch.tensor([True, False])
    logits = target.clone().requires_grad_()
    least = difference(logits, iou, target, iou, ambiguous)
    torch.autograd.backward(least)
    assert logits.grad is not None
    assert float(logits.grad.abs().max()) < 1e-6
    other = difference(target + 1.0, iou, target, iou, ambiguous)
    assert float(other) > float(least.detach()) + 1e-3


def test_only_the_first_answer_counts_where_the_prompt_is_not_ambiguous() -> None:
    target, iou = torch.zeros(1, 4, 2, 4, 4), torch.zeros(1, 4)
    changed = target.clone()
    changed[:, 1:] = 5.0
    clear, ambiguous = torch.tensor([False]), torch.tensor([True])
    same = difference(target, iou, target, iou, clear)
    assert difference(changed, iou, target, iou, clear) == pytest.approx(float(same))
    assert difference(changed, iou, target, iou, ambiguous) > same + 0.1


def test_most_labelled_targets_begin_with_one_click(
    tiny_network: PromptableNetwork, own: OwnScans
) -> None:
    task = task_of(tiny_network, own)
    task.source.real_share = 1.0
    states = []
    for seed in range(20):
        batch = task.draw(
            next(iter(own.degrees)),
            torch.Generator().manual_seed(seed),
            torch.Generator().manual_seed(seed),
        )
        states += [s for s, real in zip(batch.states, batch.is_real, strict=True) if real]
    clicked = [s for s in states if len(s.points) == 1 and s.box is None and s.prior is None]
    assert len(clicked) > 0.6 * len(states)
