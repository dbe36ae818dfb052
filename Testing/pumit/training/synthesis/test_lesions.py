"""Lesions are in their structure, which still includes them."""

import torch
from pumit.training.synthesis.grid import Grid
from pumit.training.synthesis.layout import add_lesions
from pumit.training.synthesis.shapes import Layout, any_of


def organ(seed: int) -> tuple[Grid, Layout]:
    grid = Grid(12, 32, 1.0, 1, torch.Generator().manual_seed(seed))
    labels = torch.zeros(grid.shape, dtype=torch.long)
    labels[:, 4:28, 4:28] = 1
    return grid, Layout(labels, objects=[[1]])


def test_lesions_are_targets_inside_their_organ():
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
        if len(lesions) > 1:  # several are one target, too
            *single, together = lesions
            assert sorted(together) == sorted(part for parts in single for part in parts)
    assert 1 in counts
    assert max(counts) > 2
    grid, layout = organ(0)
    layout.objects = []  # there is nothing to be in
    add_lesions(grid, layout)
    assert int(layout.labels.max()) == 1
