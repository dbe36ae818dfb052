"""Prompts lie on the image where the user put them, in physical proportions."""

from collections.abc import Callable

import pytest
import torch
from pumit.networks.promptable.constants import NO_LABEL, POSITIVE
from pumit.networks.promptable.prompt_encoder import PromptBatch, PromptEncoder, box_likeness
from torch import Tensor

Build = Callable[..., tuple[Tensor, PromptBatch]]


def test_position_codes_are_the_same_in_every_process():
    """They come from their own seed: training in parts and on machines must agree."""
    torch.manual_seed(1)
    first = PromptEncoder(24, 16, 2).frequencies
    torch.manual_seed(2)
    torch.testing.assert_close(PromptEncoder(24, 16, 2).frequencies, first, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("lower", "upper", "label"),
    [(1.0, 5.0, NO_LABEL), (1.0, 5.0, POSITIVE), (-1.0, 8.0, NO_LABEL)],
    ids=["alone", "with a click", "nothing around"],
)
def test_what_occurs_only_inside_a_box_alone_is_alike(lower, upper, label):
    image = torch.full((1, 1, 8, 8, 8), 0.2)
    image[..., 2:5, 2:5, 2:5] = 0.9
    prompts = PromptBatch(
        points=torch.zeros(1, 1, 3),
        labels=torch.tensor([[label]]),
        boxes=torch.tensor([[[lower] * 3, [upper] * 3]]),
        has_box=torch.tensor([True]),
        prior=torch.zeros(1, 1, 8, 8, 8),
        has_prior=torch.tensor([False]),
        slice_ratio=torch.tensor([1.0]),
    )
    axis = torch.arange(8.0)
    grid = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1)
    (alike,) = box_likeness(
        image, torch.minimum(grid - lower, upper - grid).amin(-1)[None], prompts
    )
    if (lower, label) == (1.0, NO_LABEL):
        assert alike[image[:, 0] > 0.5].min() > 0.9
        assert alike[image[:, 0] < 0.5].max() < 0.2
    else:
        assert not alike.any()
