"""The objective can be trained at every degree, and repeats with its seed."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from pumit.networks.promptable.constants import NEGATIVE, NO_LABEL, POSITIVE
from pumit.networks.promptable.network import PromptableNetwork
from pumit.networks.pumit import Anisotropy
from pumit.training.promptable.fields import FieldSource, box_fill
from pumit.training.promptable.simulated_prompts import PromptState
from pumit.training.promptable.task import (
    DEGREES,
    PromptableTask,
    hard_dice,
    mask_loss,
    prompt_batch,
    score,
    stability_loss,
)
from torch import Tensor


def generators(seed: int = 0) -> tuple[torch.Generator, torch.Generator]:
    return torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed + 1)


@pytest.fixture
def task(tiny_network: PromptableNetwork) -> PromptableTask:
    return PromptableTask(tiny_network.train(), FieldSource(tiny_network.field_size, batch_size=1))


@pytest.mark.parametrize("da0", DEGREES)
def test_batches_hold_images_with_their_targets(task, da0):
    for seed in range(2):
        batch = task.draw(da0, *generators(seed))
        fields, depth = batch.image.shape[0], batch.image.shape[2]
        assert batch.image.shape == (fields, 3, depth, 16, 16)
        assert 1 <= depth <= max(16 >> da0, 1)
        assert batch.target.shape == (2 * fields, depth, 16, 16)
        assert batch.target.dtype == torch.bool
        assert batch.target.flatten(1).any(1).all()
        assert batch.ratio.shape == (2 * fields,)
        assert (batch.ratio == 0).all() if da0 == 5 else (batch.ratio >= 1).all()
        assert torch.isfinite(batch.image).all()
        inside = batch.image[:, 2].repeat_interleave(2, 0) > 0
        assert not (batch.target & ~inside).any()


@pytest.mark.parametrize("da0", [0, 2, 5])
def test_the_loss_is_finite_and_trains_every_parameter(task, da0):
    silent: set[str] | None = None
    for seed in range(8):  # a seed may draw no box, no correction, or only parts of structures
        task.zero_grad()
        result = task(task.draw(da0, *generators(seed)))
        assert torch.isfinite(result["loss"])
        for name in ("dice_first", "dice_last", "iou_error"):
            assert 0 <= float(result[name]) <= 1
        result["loss"].backward()
        quiet = {n for n, p in task.named_parameters() if p.grad is None or not p.grad.any()}
        silent = quiet if silent is None else silent & quiet
        if silent <= {"network.prompt_encoder.no_point"}:
            return
    pytest.fail(f"{silent} are not trained.")


def test_gradients_of_each_round_are_those_of_all_rounds_at_once(task, monkeypatch):
    """They are computed one round after the other, with the memory of one."""
    found = []
    for is_plain in (False, True):
        if is_plain:
            monkeypatch.setattr(task, "_separate_gradients", lambda _: None)
        task.zero_grad()
        batch = replace(task.draw(1, *generators(3)), rounds=3)
        torch.manual_seed(0)
        result = task(batch)
        (result["loss"] / 2).backward()
        found.append(
            (result["loss"], {n: p.grad for n, p in task.named_parameters() if p.grad is not None})
        )
    (loss, gradients), (plain_loss, plain) = found
    torch.testing.assert_close(loss, plain_loss)
    assert any(gradient.any() for gradient in plain.values())
    for name, gradient in plain.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-3, atol=1e-6)


@pytest.mark.slow
def test_a_compiled_encoder_sees_what_it_saw(task):
    """Through the front end of `torch.compile`."""
    compiled = PromptableTask(task.network, task.source, compiler="eager")
    assert list(compiled.state_dict()) == list(task.state_dict())
    image = torch.rand(1, 3, 1, 16, 16, generator=generators()[0])
    with torch.no_grad():
        seen = compiled._embed(image, Anisotropy(5)).tokens
        torch.testing.assert_close(seen, task.network.embed(image, Anisotropy(5)).tokens)


def test_processes_do_steps_of_the_same_length(task):
    """What decides a step's length is shared; what is seen is not."""
    batches = [
        task.draw(1, torch.Generator().manual_seed(rank), torch.Generator().manual_seed(9))
        for rank in (1, 2)
    ]
    again = task.worker_draw()(
        1, torch.Generator().manual_seed(1), torch.Generator().manual_seed(9)
    )
    assert torch.equal(again.image, batches[0].image)
    assert torch.equal(again.target, batches[0].target)
    assert batches[0].rounds == batches[1].rounds
    assert batches[0].image.shape == batches[1].image.shape
    assert not torch.equal(batches[0].image, batches[1].image)


def test_prompts_are_collated_with_padding():
    states = [
        PromptState(points=[(1, 2, 3, True), (0, 5, 6, False)]),
        PromptState(box=(np.array([0.0, 1, 2]), np.array([3.0, 4, 5]))),
        PromptState(points=[(1, 1, 1, True)], prior=np.full((4, 8, 8), 0.25, np.float32)),
    ]
    ratio = torch.tensor([2.0, 3.0, 0.0])
    batch = prompt_batch(states, ratio, torch.Size((4, 8, 8)))
    assert batch.labels.tolist() == [
        [POSITIVE, NEGATIVE],
        [NO_LABEL, NO_LABEL],
        [POSITIVE, NO_LABEL],
    ]
    assert batch.points[0].tolist() == [[2, 2, 3], [0, 5, 6]]
    assert batch.points[2, 0].tolist() == [0, 1, 1]
    assert batch.boxes[1].tolist() == [[0, 1, 2], [9, 4, 5]]
    assert batch.has_box.tolist() == [False, True, False]
    assert batch.has_prior.tolist() == [False, False, True]
    assert float(batch.prior[2].mean()) == 0.25


WHOLE = torch.zeros(1)  # voxels of a target beyond its field


def targets() -> Tensor:
    target = torch.zeros(1, 4, 8, 8, dtype=torch.bool)
    target[0, 1:3, 2:6, 2:6] = True
    return target


def answers(*qualities: str) -> Tensor:
    """Logits of masks that are right, empty or wrong."""
    right = torch.where(targets(), 8.0, -8.0)
    kinds: dict[str, Any] = {"right": right, "empty": torch.full_like(right, -8.0), "wrong": -right}
    return torch.stack([kinds[q][0] for q in qualities])[None]


def test_a_better_mask_has_the_smaller_loss():
    for quality, expected in (("right", 1.0), ("empty", 0.0), ("wrong", 0.0)):
        assert float(hard_dice(answers(quality)[:, 0], targets())) == expected
    right, empty, wrong = mask_loss(answers("right", "empty", "wrong"), targets())[0].tolist()
    assert 0 <= right < 0.05 < empty < wrong
    assert all(map(math.isfinite, (right, empty, wrong)))


def test_breaking_what_was_right_costs_and_repairing_does_not():
    """One voxel in eight was wrong; answers are sure everywhere."""
    target = torch.zeros(1, 2, 2, 2, dtype=torch.bool)
    target[:, 0] = True
    prior = target.float()
    prior[0, 0, 0, 0] = 0
    right = torch.where(target, 9.0, -9.0)
    still_wrong, broken = right.clone(), right.clone()
    still_wrong[0, 0, 0, 0] = -9
    broken[0, 1, 1, 1] = 9
    repaired, kept, worse = (
        float(stability_loss(logits, target, prior)) for logits in (right, still_wrong, broken)
    )
    assert kept == pytest.approx(repaired, abs=1e-3)
    assert worse > repaired + 0.5


def test_corrections_are_trained_to_keep_what_was_right(tiny_network):
    def loss(weight: float) -> float:
        source = FieldSource(tiny_network.field_size, batch_size=1, rounds={2: 1.0})
        task = PromptableTask(tiny_network.train(), source, stability_weight=weight)
        return task(task.draw(1, *generators(1)))["loss"].item()

    assert loss(1.0) > loss(0.0)
    assert loss(2.0) - loss(0.0) == pytest.approx(2 * (loss(1.0) - loss(0.0)), rel=1e-4)


def test_several_prompts_are_answered_with_the_first_mask():
    logits = answers("wrong", "right").requires_grad_()
    iou = torch.tensor([[0.1, 0.9]])
    loss, chosen, _ = score(logits, iou, targets(), torch.tensor([False]), WHOLE)
    assert chosen.tolist() == [0]
    loss.backward()
    assert logits.grad[0, 0].any()
    assert not logits.grad[0, 1].any()


def test_one_click_is_answered_with_the_most_trusted_mask():
    logits = answers("wrong", "empty", "right").requires_grad_()
    iou = torch.tensor([[0.1, 0.2, 0.9]])
    loss, chosen, error = score(logits, iou, targets(), torch.tensor([True]), WHOLE)
    assert chosen.tolist() == [2]
    assert float(error) == pytest.approx((0.1 + 0.2 + 0.1) / 3, abs=1e-6)
    # Estimates that are sure and wrong stay finite; those that are no numbers make no loss.
    iou = torch.tensor([[0.0, 1.0]], requires_grad=True)
    loss, _, _ = score(answers("right", "wrong"), iou, targets(), torch.tensor([True]), WHOLE)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(iou.grad).all()
    odd = torch.tensor([[0.5, torch.nan]])
    loss, _, _ = score(answers("right", "wrong"), odd, targets(), torch.tensor([True]), WHOLE)
    assert loss.isnan()


def test_a_mask_of_a_part_is_to_be_estimated_as_one():
    """All of what the field shows, and a third of the structure."""
    shown = float(targets().sum())
    iou = torch.tensor([[1 / 3, 0.5]])
    alone, beyond = torch.tensor([False]), torch.tensor([2 * shown])
    _, _, error = score(answers("right", "wrong"), iou, targets(), alone, beyond)
    assert float(error) == pytest.approx(0, abs=1e-6)
    loss, _, error = score(
        answers("right", "wrong"), iou, targets(), alone, torch.tensor([math.nan])
    )
    assert float(error) == 0
    assert torch.isfinite(loss)


def test_an_oblique_structure_fills_little_of_its_box():
    block = torch.zeros(4, 10, 10, dtype=torch.bool)
    block[1:3, 2:6, 3:8] = True
    assert box_fill(block) == 1.0
    diagonal = torch.eye(10, dtype=torch.bool)[None]
    assert box_fill(diagonal) == pytest.approx(0.1)
    assert box_fill(torch.zeros_like(block)) == 0.0
