"""Labelled fields teach, all others are answered as the original answers them."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from labelled_scans import ball_and_box
from pumit.inference.interactive.field_planner import FieldPlanner
from pumit.networks.build import build_network
from pumit.networks.promptable.network import PromptableNetwork
from pumit.preprocessing.fields import field_shape
from pumit.training.promptable.fields import FieldBatch, FieldSource
from pumit.training.promptable.finetuning_task import ClickTask, OwnScans, difference
from pumit.training.promptable.real_scan import scan_of
from pumit.training.synthesis.scene import Scene

SIZE = 16
SHAPE = (14, 40, 40)


def task_of(
    network: PromptableNetwork, thick: OwnScans, *, distillation_weight: float = 1.0
) -> ClickTask:
    shares = dict.fromkeys(thick.degrees, 0.5)
    return ClickTask(
        network,
        copy.deepcopy(network),
        thick,
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


@pytest.mark.parametrize("class_channels", [0, 4])
@pytest.mark.parametrize("part", ["decoder", "all"])
def test_an_unchanged_network_has_nothing_to_unlearn(tiny_sizes, thick, part, class_channels):
    torch.manual_seed(1)  # with 0, rounding gives equal estimates of overlap a difference
    network = build_network("promptable", **tiny_sizes, class_channels=class_channels)
    network.image_encoder.requires_grad_(part == "all")
    task = task_of(network, thick)
    # The original is no part of what is trained.
    assert {id(p) for p in task.parameters()} == {id(p) for p in network.parameters()}
    da0 = next(iter(thick.degrees))
    kept = largest_gradient(task, batch_of(task, da0, is_real=False))
    learnt = largest_gradient(task, batch_of(task, da0, is_real=True))
    assert kept < 1e-5
    assert learnt > 100 * max(kept, 1e-8)


def test_a_changed_network_is_drawn_back_unless_nothing_is_kept(tiny_network, thick):
    task = task_of(tiny_network, thick)
    free = task_of(tiny_network, thick, distillation_weight=0.0)
    with torch.no_grad():
        for parameter in tiny_network.mask_decoder.parameters():
            parameter.mul_(1.2)
    da0 = next(iter(thick.degrees))
    assert largest_gradient(task, batch_of(task, da0, is_real=False)) > 1e-4
    assert largest_gradient(free, batch_of(free, da0, is_real=False)) == 0


def test_the_difference_is_least_where_answers_are_alike():
    generator = torch.Generator().manual_seed(0)
    target = torch.randn(2, 4, 3, 4, 4, generator=generator)
    iou = torch.rand(2, 4, generator=generator)
    ambiguous = torch.tensor([True, False])
    logits = target.clone().requires_grad_()
    least = difference(logits, iou, target, iou, ambiguous)
    torch.autograd.backward(least)
    assert float(logits.grad.abs().max()) < 1e-6
    other = difference(target + 1.0, iou, target, iou, ambiguous)
    assert float(other) > float(least.detach()) + 1e-3
    # Only the first answer counts where the prompt is not ambiguous.
    target, iou = torch.zeros(1, 4, 2, 4, 4), torch.zeros(1, 4)
    changed = target.clone()
    changed[:, 1:] = 5.0
    clear, ambiguous = torch.tensor([False]), torch.tensor([True])
    same = difference(target, iou, target, iou, clear)
    assert difference(changed, iou, target, iou, clear) == pytest.approx(float(same))
    assert difference(changed, iou, target, iou, ambiguous) > same + 0.1


def test_most_labelled_targets_begin_with_one_click(tiny_network, thick):
    task = task_of(tiny_network, thick)
    task.source.real_share = 1.0
    states = []
    for seed in range(10):
        batch = task.draw(
            next(iter(thick.degrees)),
            torch.Generator().manual_seed(seed),
            torch.Generator().manual_seed(seed),
        )
        states += [s for s, real in zip(batch.states, batch.is_real, strict=True) if real]
    clicked = [s for s in states if len(s.points) == 1 and s.box is None and s.prior is None]
    assert len(clicked) > 0.6 * len(states)


@pytest.fixture(scope="module")
def thick() -> OwnScans:
    image, labels = ball_and_box(0, SHAPE)
    return OwnScans([scan_of(image, (5.0, 1.0, 1.0), labels, {1: (1,), 2: (2,)})], SIZE)


def scenes(own: OwnScans, da0: int, count: int = 16) -> list[Scene]:
    generator = torch.Generator().manual_seed(0)
    drawn = [own.draw(da0, SIZE, generator) for _ in range(count)]
    return [scene for scene in drawn if scene is not None and scene.is_labelled]


def test_scenes_have_the_degree_and_the_spacing_of_their_scan(thick):
    planner = FieldPlanner(SHAPE, (5.0, 1.0, 1.0), 24)
    assert set(thick.degrees) == {f.da0 for f in planner.around_click((7, 20, 20))}
    assert sum(thick.degrees.values()) == pytest.approx(1.0)
    assert thick.draw(5, SIZE, torch.Generator().manual_seed(0)) is None  # never used there
    for da0 in thick.degrees:
        found = scenes(thick, da0)
        assert len(found) > 3
        for scene in found:
            assert scene.image.shape == field_shape(da0, SIZE)
            assert scene.is_upright
            assert 2**da0 <= scene.slice_ratio < 2 ** (da0 + 1)
            assert all(t.dtype == torch.bool and t.any() for t in scene.targets)
            # Targets lie in the scan.
            assert not any((t & (scene.inside < 0.5)).any() for t in scene.targets)
    for scene in scenes(thick, 2):
        # The ball is 200, the box 100, all else noise of 5 around 0: whatever gamma and noise do.
        outside = ~torch.stack(scene.targets).any(0) & (scene.inside > 0.5)  # type: ignore[operator]
        assert scene.image[scene.targets[0]].mean() > scene.image[outside].mean() + 0.1


def test_planar_scans_give_planar_fields():
    labels = np.zeros((1, 40, 40), np.uint8)
    labels[0, 10:25, 12:30] = 1
    image = 100.0 * labels + np.random.default_rng(0).normal(0, 5, labels.shape)
    own = OwnScans([scan_of(image, (1000.0, 1.0, 1.0), labels, {1: (1,)})], SIZE)
    assert set(own.degrees) == {5}
    found = scenes(own, 5)
    assert found
    assert all(scene.image.shape == (1, SIZE, SIZE) for scene in found)


def test_batches_say_which_fields_are_real_and_where_their_scan_ends(thick):
    da0 = next(iter(thick.degrees))
    source = FieldSource(SIZE, scans=thick, real_share={da0: 0.5}, batch_size=3)
    seen = set()
    for seed in range(2):
        generator = torch.Generator().manual_seed(seed)
        batch = source.draw(da0, generator, torch.Generator().manual_seed(seed))
        seen |= set(batch.is_real.tolist())
        assert len(batch.is_real) == len(batch.target)
        inside = batch.image[:, 2].repeat_interleave(2, 0) > 0
        assert not (batch.target & ~inside).any()
    assert seen == {True, False}
    other = source.draw(4, torch.Generator().manual_seed(0), torch.Generator().manual_seed(0))
    assert not other.is_real.any()


def test_some_scenes_ask_for_what_nobody_labelled(thick):
    generator = torch.Generator().manual_seed(0)
    drawn = [thick.draw(2, SIZE, generator) for _ in range(40)]
    asides = [scene for scene in drawn if scene is not None and not scene.is_labelled]
    assert 0 < len(asides) < 30
    assert all(scene.targets for scene in asides)
