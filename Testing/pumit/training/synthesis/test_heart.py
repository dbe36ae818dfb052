"""A heart in its chest has what cine MR shows: bright blood in a dark ring, next to lung."""

from functools import cache
from unittest import mock

import numpy as np
import pytest
import torch
from pumit.training.synthesis import heart as drawn
from pumit.training.synthesis.appearance import acquire, textured
from pumit.training.synthesis.grid import Grid
from pumit.training.synthesis.heart import CINE, short_axis
from pumit.training.synthesis.shapes import Greys, Layout, any_of
from scipy import ndimage


class Chest:
    """A chest, and where it lies along the axis of its heart."""

    def __init__(self, seed: int, scans: tuple[tuple[float, Greys], ...] = drawn.SCANS) -> None:
        self.grid = Grid(10, 48, 5.0, 1, torch.Generator().manual_seed(seed))
        self.layout = Layout(torch.zeros(self.grid.shape, dtype=torch.long))
        paint = mock.Mock(wraps=drawn._paint_ventricles)
        with mock.patch.multiple(drawn, SCANS=scans, _paint_ventricles=paint):
            short_axis(self.grid, self.layout, self.grid.coordinates())
        self.along = paint.call_args.args[0].along


chest = cache(Chest)


@cache
def cine(seed: int) -> tuple[Layout, torch.Tensor]:
    """A chest in cine MR, and its image."""
    one = Chest(seed, ((1.0, CINE),))
    image = textured(one.grid, one.layout)
    return one.layout, acquire(one.grid, image, is_natural=one.layout.is_natural)


def masks_of(layout: Layout) -> dict[str, torch.Tensor]:
    named = {n: [i for i, m in layout.names.items() if m == n] for n in layout.names.values()}
    return {name: any_of(layout.labels, parts) for name, parts in named.items()}


def test_wall_and_cavity_are_targets_where_the_field_shows_them():
    for seed in range(12):
        layout = chest(seed).layout
        assert set(masks_of(layout)) >= {"wall", "cavity"}
        assert {"wall", "cavity"} <= {layout.names.get(parts[0]) for parts in layout.objects}
        for parts in layout.objects:
            assert all(0 < label < layout.count for label in parts)


def test_the_wall_parts_the_cavity_from_all_else():
    touching = cavities = 0.0
    for seed in range(12):
        layout = chest(seed).layout
        masks = masks_of(layout)
        grown = torch.nn.functional.max_pool2d(masks["cavity"].float()[:, None], 3, 1, 1)[:, 0] > 0
        touching += float((grown & ~masks["cavity"] & ~masks["wall"]).sum())
        cavities += float(masks["cavity"].sum())
    assert touching < 0.1 * cavities


def test_blood_of_cine_is_bright_and_its_wall_dark():
    for seed in range(12):
        layout, _ = cine(seed)
        for parts in layout.objects:
            name = layout.names.get(parts[0])
            if name == "wall":
                assert layout.means[parts[0]] <= CINE["wall"][1]
            elif name in ("cavity", "crescent"):
                assert layout.means[parts[0]] >= 0.7 * CINE["blood"][0]


@pytest.mark.parametrize("name", ["cavity", "crescent"])
def test_the_mesh_in_a_cavity_is_denser_at_its_rim(name):
    """As in cine MR, where readers draw the dark mesh at the wall as cavity."""
    muscle, all_of_it = np.zeros(2), np.zeros(2)  # at the rim, inside
    for seed in range(16):
        layout = chest(seed).layout
        parts = [label for label, of in layout.names.items() if of == name]
        if len(parts) < 2:
            continue  # one in five has no muscles in it
        whole, dark = (any_of(layout.labels, some).numpy() for some in (parts, parts[1:]))
        for mask, part in zip(whole, dark, strict=True):
            depth = ndimage.distance_transform_edt(mask)
            for i, where in enumerate(((depth > 0) & (depth <= 1), depth > 3)):
                muscle[i] += (part & where).sum()
                all_of_it[i] += where.sum()
    rim, inside = muscle / all_of_it
    assert rim > 1.5 * inside
    assert inside < 0.5


def test_a_natural_image_is_never_turned_round():
    """What is acquired of a chest keeps its blood brighter than the wall around it."""
    for seed in range(20):
        layout, image = cine(seed)
        masks = masks_of(layout)
        blood, wall = (float(image[masks[name]].median()) for name in ("cavity", "wall"))
        assert blood > wall, seed


def test_what_lies_outside_of_the_wall_is_mostly_dark():
    """Lung, hardly darker than the wall: fat lies there in places only."""
    bright = all_of_it = 0
    for seed in range(20):
        layout, image = cine(seed)
        image = image.numpy()
        masks = {name: mask.numpy() for name, mask in masks_of(layout).items()}
        middle = (np.median(image[masks["cavity"]]) + np.median(image[masks["wall"]])) / 2
        across = np.ones((1, 3, 3), bool)
        left = masks["wall"] | masks["cavity"]
        around = ndimage.binary_dilation(left, across, 2) & ~ndimage.binary_dilation(left, across)
        if "crescent" in masks:
            around &= ~ndimage.binary_dilation(masks["crescent"], across, 2)
        bright += int((image[around] > middle).sum())
        all_of_it += int(around.sum())
    assert 0.05 * all_of_it < bright < 0.35 * all_of_it


def test_hearts_that_lie_as_scanned_begin_with_a_whole_slice():
    """Readers draw whole rings at the base, of a heart that leans from slice to slice."""
    whole, leans = [], []
    for seed in range(60):
        layout, along = chest(seed).layout, chest(seed).along
        if not layout.is_upright:
            continue
        masks = masks_of(layout)
        left = (masks["wall"] | masks["cavity"]).numpy()
        left = left if float(along[0].mean()) < float(along[-1].mean()) else left[::-1]
        areas = left.sum((1, 2))
        first = int(np.flatnonzero(areas)[0])
        if 0 < first < len(areas) - 3 and areas[first + 2] > 0:
            whole.append(areas[first] > 0.6 * areas[first + 1])
            ends = [np.argwhere(left[first + i]).mean(0) for i in (0, 2)]
            leans.append(float(np.linalg.norm(ends[1] - ends[0])))
    assert len(whole) >= 10
    assert np.mean(whole) > 0.6
    assert np.median(leans) > 0.5


def test_hearts_that_lie_as_scanned_have_their_right_side_left():
    sides = []
    for seed in range(40):
        layout = chest(seed).layout
        masks = masks_of(layout)
        if not layout.is_upright or "crescent" not in masks:
            continue
        left = (masks["wall"] | masks["cavity"]).nonzero().float()[:, 1:].mean(0)
        right = masks["crescent"].nonzero().float()[:, 1:].mean(0)
        if float((left - right).norm()) > 2:
            sides.append(bool(right[1] < left[1]))
    assert len(sides) >= 10
    assert sum(sides) >= 0.85 * len(sides)
