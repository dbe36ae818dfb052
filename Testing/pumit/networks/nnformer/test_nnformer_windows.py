"""Local volumes: put back as they were, and who sees whom by brute force."""

from __future__ import annotations

import itertools

import pytest
import torch
from pumit.networks.nnformer.attention import Grid, WindowLayout

CPU = torch.device("cpu")


def cells(grid: Grid) -> list[Grid]:
    return list(itertools.product(*(range(n) for n in grid)))


def test_attention_is_global_along_the_axes_that_one_window_covers() -> None:
    layout = WindowLayout.fitting((3, 8, 9), (4, 8, 4), is_shifted=True)
    assert layout.window == (3, 8, 4)
    assert layout.shift == (0, 0, 2)
    assert layout.padded == (3, 8, 12)


@pytest.mark.parametrize("wraps", [False, True])
@pytest.mark.parametrize("is_shifted", [False, True])
@pytest.mark.parametrize("grid", [(4, 6, 4), (5, 7, 3), (1, 5, 6)])
def test_tokens_see_those_of_their_displaced_volume(
    grid: Grid, is_shifted: bool, wraps: bool
) -> None:
    window = (2, 3, 4)
    layout = WindowLayout.fitting(grid, window, is_shifted=is_shifted)

    def volume(cell: Grid) -> tuple[int, ...]:
        """Volumes begin at the shift and every window before and after it."""
        from_shift = [n - s for n, s in zip(cell, layout.shift, strict=True)]
        if wraps:
            from_shift = [n % p for n, p in zip(from_shift, layout.padded, strict=True)]
        return tuple(n // w for n, w in zip(from_shift, layout.window, strict=True))

    names = torch.arange(1, 1 + len(cells(grid))).reshape(1, *grid, 1)  # 0 is padding
    windows = layout.split(names)[..., 0]
    allowed = layout.allowed(CPU, wraps=wraps)
    if allowed is None:
        allowed = torch.ones(*windows.shape, windows.shape[1], dtype=torch.bool)
    seen = {
        (int(names_[i]), int(names_[j]))
        for names_, who in zip(windows, allowed, strict=True)
        for i, j in who.nonzero().tolist()
    }
    by_name = dict(enumerate(cells(grid), start=1))
    expected = {
        (a, b)
        for a, b in itertools.product(by_name, by_name)
        if volume(by_name[a]) == volume(by_name[b])
    }
    assert {(a, b) for a, b in seen if a > 0} == expected  # no token sees padding
    assert allowed.any(-1).all()  # nothing is a softmax over nothing


def test_no_mask_is_made_where_all_see_all() -> None:
    plain = WindowLayout.fitting((4, 4, 8), (4, 4, 4), is_shifted=False)
    assert plain.allowed(CPU, wraps=False) is None
    shifted = WindowLayout.fitting((4, 4, 8), (4, 4, 4), is_shifted=True)
    assert shifted.allowed(CPU, wraps=True) is None
    assert shifted.allowed(CPU, wraps=False) is not None
