"""Lesions and hollows are in their structure, which still includes them."""

from __future__ import annotations

import torch
from pumit.training.synthesis.grid import Grid
from pumit.training.synthesis.lesions import add_lesions, add_wall, eroded
from pumit.training.synthesis.painting import Layout, any_of


def organ(seed: int) -> tuple[Grid, Layout]:
    grid = Grid(12, 32, 1.0, 1, torch.Generator().manual_seed(seed))
    labels = torch.zeros(grid.shape, dtype=torch.long)
    labels[:, 4:28, 4:28] = 1
    return grid, Layout(labels, objects=[[1]])


def test_lesions_are_targets_inside_their_organ() -> None:
    counts = []
    for seed in range(20):
        grid, layout = organ(seed)
        before = layout.labels > 0
        add_lesions(grid, layout)
        whole, *lesions = layout.objects
        counts.append(len(lesions))
        # The organ is where it was, with its lesions in it.
        assert torch.equal(any_of(layout.labels, whole), before)
        for parts in lesions:
            assert set(parts) <= set(whole)
            assert (any_of(layout.labels, parts) <= before).all()
    assert 1 in counts
    assert max(counts) > 2


def test_several_lesions_are_one_target_too() -> None:
    for seed in range(40):
        grid, layout = organ(seed)
        add_lesions(grid, layout)
        if len(layout.objects) > 2:
            *single, together = layout.objects[1:]
            assert sorted(together) == sorted(part for parts in single for part in parts)
            return
    raise AssertionError("no scene has several lesions")


def test_a_layout_without_structures_stays_as_it_is() -> None:
    grid, layout = organ(0)
    layout.objects = []
    add_lesions(grid, layout)
    assert int(layout.labels.max()) == 1


def test_a_wall_and_its_hollow_are_the_structure() -> None:
    for seed in range(10):
        grid, layout = organ(seed)
        before, sizes = layout.labels > 0, {1: 6912.0}
        add_wall(grid, layout, sizes)
        whole, wall, hollow = (any_of(layout.labels, parts) for parts in layout.objects)
        assert torch.equal(whole, before)
        assert torch.equal(wall | hollow, before)
        assert not (wall & hollow).any()
        assert not hollow[:, 4].any()
        assert hollow[6, 16, 16]
        assert sum(sizes.values()) == 6912
        assert sizes[layout.objects[2][0]] == float(hollow.sum())


def test_a_thin_structure_has_no_hollow() -> None:
    grid, layout = organ(0)
    layout.labels = (layout.labels > 0) & (torch.arange(32) == 16)
    layout.labels = layout.labels.long()
    add_wall(grid, layout, {})
    assert layout.objects == [[1]]


def test_a_wall_is_as_thick_along_depth_and_ends_at_no_face() -> None:
    mask = torch.zeros(9, 32, 32, dtype=torch.bool)
    mask[:7, 4:28, 4:28] = True
    inner = eroded(mask, 4, 0.25)
    assert torch.nonzero(inner.any(2).any(1)).flatten().tolist() == list(range(6))
    assert torch.nonzero(inner.any(0).any(0)).flatten().tolist() == list(range(8, 24))
