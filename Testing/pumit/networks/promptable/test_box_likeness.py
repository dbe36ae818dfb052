from __future__ import annotations

import torch
from pumit.networks.promptable.constants import NO_LABEL, POSITIVE
from pumit.networks.promptable.prompt_encoder import PromptBatch, box_likeness


def prompts_with_box(lower: list[float], upper: list[float], label: int = NO_LABEL) -> PromptBatch:
    return PromptBatch(
        points=torch.zeros(1, 1, 3),
        labels=torch.tensor([[label]]),
        boxes=torch.tensor([[lower, upper]]),
        has_box=torch.tensor([True]),
        prior=torch.zeros(1, 1, 8, 8, 8),
        has_prior=torch.tensor([False]),
        slice_ratio=torch.tensor([1.0]),
    )


def margin_of(lower: float, upper: float) -> torch.Tensor:
    axis = torch.arange(8.0)
    grid = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1)
    return torch.minimum(grid - lower, upper - grid).amin(-1)[None]


def bright_cube() -> torch.Tensor:
    image = torch.full((1, 1, 8, 8, 8), 0.2)
    image[..., 2:5, 2:5, 2:5] = 0.9
    return image


def test_what_occurs_only_inside_the_box_is_alike() -> None:
    image = bright_cube()
    (alike,) = box_likeness(image, margin_of(1, 5), prompts_with_box([1.0] * 3, [5.0] * 3))
    assert alike.shape == (1, 8, 8, 8)
    assert alike[image[:, 0] > 0.5].min() > 0.9
    assert alike[image[:, 0] < 0.5].max() < 0.2


def test_a_positive_click_leaves_the_likeness_to_the_click() -> None:
    prompts = prompts_with_box([1.0] * 3, [5.0] * 3, POSITIVE)
    (alike,) = box_likeness(bright_cube(), margin_of(1, 5), prompts)
    assert not alike.any()


def test_a_box_with_nothing_around_it_says_nothing() -> None:
    prompts = prompts_with_box([-1.0] * 3, [8.0] * 3)
    (alike,) = box_likeness(bright_cube(), margin_of(-1, 8), prompts)
    assert not alike.any()
