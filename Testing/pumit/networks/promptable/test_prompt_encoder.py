"""Prompts lie on the image where the user put them, in physical proportions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from pumit.networks.promptable.constants import NO_LABEL, POSITIVE
from pumit.networks.promptable.prompt_encoder import PromptBatch, PromptEncoder, box_likeness
from pumit.networks.pumit import Anisotropy
from torch import Tensor

Build = Callable[..., tuple[Tensor, PromptBatch]]
NEAR = 0  # channel of nearness to positive points


def only_point(prompts: PromptBatch, place: tuple[float, float, float]) -> PromptBatch:
    """One positive point at field indices (d, h, w), and nothing else."""
    count = len(prompts.labels)
    scale = torch.ones(count, 3)
    scale[:, 0] = prompts.slice_ratio
    off = torch.zeros(count, dtype=torch.bool)
    return replace(
        prompts,
        points=(torch.tensor(place) * scale)[:, None],
        labels=torch.full((count, 1), POSITIVE),
        has_box=off,
        has_prior=off,
    )


@pytest.mark.parametrize("da0", [0, 2, 5])
def test_nearness_peaks_where_the_point_is(tiny_network, field_batch, da0):
    image, prompts = field_batch(da0, 32, 1)
    depth = image.shape[2]
    place = (float(depth // 4), 9.0, 21.0)
    embedding = tiny_network.embed(image, Anisotropy(da0))
    dense = tiny_network.prompt_encoder.dense(only_point(prompts, place), embedding)
    near = dense[0, NEAR]
    peak = torch.nonzero(near == near.max())[0].tolist()
    steps = [n / m for n, m in zip(image.shape[2:], near.shape, strict=True)]
    for axis in range(1 if depth == 1 else 0, 3):
        centre = (peak[axis] + 0.5) * steps[axis] - 0.5
        assert abs(centre - place[axis]) <= steps[axis] / 2 + 1e-6


def test_nearness_is_round_in_millimetres(tiny_network, field_batch):
    """Slices 4 voxels thick: one slice away is as far as four voxels in the plane."""
    image, prompts = field_batch(2, 32, 1)
    prompts = replace(prompts, slice_ratio=torch.tensor([4.0]))
    embedding = tiny_network.embed(image, Anisotropy(2))
    # Half resolution in the plane: 4 voxels are two steps; the first map keeps every slice.
    dense = tiny_network.prompt_encoder.dense(only_point(prompts, (3.0, 16.5, 16.5)), embedding)
    near = dense[0, NEAR]
    assert near.shape == (8, 16, 16)
    torch.testing.assert_close(near[4, 8, 8], near[3, 8, 10], rtol=1e-4, atol=1e-6)


def test_grid_positions_are_the_centres_of_the_cells(tiny_network, field_batch):
    image, prompts = field_batch(1, 16, 2)
    embedding = tiny_network.embed(image, Anisotropy(1))
    grid = tiny_network.prompt_encoder.grid_positions((8, 8, 8), embedding, prompts.slice_ratio)
    ratio = float(prompts.slice_ratio[0])
    torch.testing.assert_close(grid[0, 0, 0, 0], torch.tensor([0.0, 0.5, 0.5]))
    torch.testing.assert_close(grid[0, 7, 7, 7], torch.tensor([7 * ratio, 14.5, 14.5]))


def test_features_under_a_point_are_those_of_its_place(tiny_network, field_batch):
    image, prompts = field_batch(1, 16, 1)
    embedding = tiny_network.embed(image, Anisotropy(1))
    encoder = tiny_network.prompt_encoder
    for place in ((2, 5, 9), (0, 0, 0), (7, 15, 15)):
        point = only_point(prompts, tuple(map(float, place)))  # type: ignore[arg-type]
        value = encoder._sample_at(image, point, embedding)[0, 0]
        torch.testing.assert_close(value, image[0, :, place[0], place[1], place[2]])


def test_likeness_is_full_at_the_clicked_intensity(tiny_network, field_batch):
    image, prompts = field_batch(1, 16, 1)
    image[:, :2] = 0.2
    image[:, :2, :, 8:] = 0.9
    embedding = tiny_network.embed(image, Anisotropy(1))
    dense = tiny_network.prompt_encoder.dense(only_point(prompts, (3.0, 12.0, 8.0)), embedding)
    alike = dense[0, 2]
    assert (alike[:, 5:] > 0.95).all()
    assert (alike[:, :3] < 0.05).all()


def test_the_box_map_is_positive_inside_and_negative_outside(tiny_network, field_batch):
    image, prompts = field_batch(1, 16, 1)
    ratio = float(prompts.slice_ratio[0])
    boxes = torch.tensor([[[2 * ratio, 4.0, 4.0], [5 * ratio, 11.0, 11.0]]])
    prompts = replace(prompts, boxes=boxes)
    embedding = tiny_network.embed(image, Anisotropy(1))
    box = tiny_network.prompt_encoder.dense(prompts, embedding)[0, -3]
    assert (box[3:5, 3:5, 3:5] > 0).all()
    assert (box[:2] < 0).all()
    assert (box[6:] < 0).all()
    assert (box[:, :2] < 0).all()
    assert (box[:, :, 6:] < 0).all()


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
