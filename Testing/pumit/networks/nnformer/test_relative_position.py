"""Which bias each pair of tokens takes, by brute force, and as the authors' code has it."""

from __future__ import annotations

import itertools

import pytest
import torch
from pumit.networks.nnformer.attention import Grid, RelativePositionBias


def numbered(window: Grid, *, official_index: bool) -> RelativePositionBias:
    """A bias that is the number of its table's entry."""
    bias = RelativePositionBias(window, 1, official_index=official_index).double()
    with torch.no_grad():
        bias.table.copy_(torch.arange(len(bias.table))[:, None])
    return bias


@pytest.mark.parametrize("window", [(2, 3, 4), (2, 2, 1), (1, 3, 3)])
def test_every_offset_has_an_entry_of_its_own(window: Grid) -> None:
    largest = (2, 3, 4)
    spans = (range(1 - n, n) for n in largest)
    entry = {offset: i for i, offset in enumerate(itertools.product(*spans))}
    found = numbered(largest, official_index=False)(window)[0]

    tokens = list(itertools.product(*(range(n) for n in window)))
    for (i, a), (j, b) in itertools.product(enumerate(tokens), repeat=2):
        offset = (a[0] - b[0], a[1] - b[1], a[2] - b[2])
        assert found[i, j] == entry[offset], (a, b)


@pytest.mark.parametrize(("side", "used", "entries"), [(4, 115, 343), (8, 547, 3375)])
def test_the_official_index_uses_a_part_of_the_table(side: int, used: int, entries: int) -> None:
    window = (side,) * 3
    intended, official = (numbered(window, official_index=it) for it in (False, True))

    assert len(intended.table) == len(official.table) == entries
    assert len(intended(window).unique()) == entries
    assert official(window).unique().tolist() == list(range(used))
    first, last = official(window)[0, 0, -1], official(window)[0, -1, 0]
    assert (first, last) == (0, used - 1)


def test_a_window_that_the_official_index_leaves_is_refused() -> None:
    with pytest.raises(ValueError, match="official_index needs"):
        RelativePositionBias((8, 1, 1), 1, official_index=True)
    RelativePositionBias((7, 10, 10), 1, official_index=True)
