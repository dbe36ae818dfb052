"""Attention agrees with a loop over tokens, and its biases with a loop over pairs of tokens."""

import itertools
import math

import pytest
import torch
from pumit.networks.nnformer.attention import (
    AttentionSizes,
    Grid,
    RelativePositionBias,
    SkipAttention,
    VolumeAttention,
    WindowLayout,
)
from torch import Tensor

DIM, HEADS, WINDOW = 8, 2, (2, 3, 4)
GRIDS = [(4, 3, 4), (3, 5, 3), (1, 4, 5), (1, 1, 1)]


def sizes(*, unmasked: bool = False) -> AttentionSizes:
    return AttentionSizes(HEADS, WINDOW, False, unmasked)


def begun(attention: torch.nn.Module) -> None:
    for p in attention.parameters():
        torch.nn.init.normal_(p)


def reference(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, *, is_shifted: bool, wraps: bool = False
) -> Tensor:
    """Token by token: (D, H, W, C) each; `table` has an entry for each offset, in raster order."""
    grid = q.shape[:3]
    cells = list(itertools.product(*(range(n) for n in grid)))
    spans = [2 * n - 1 for n in WINDOW]
    table = table.reshape(*spans, HEADS)

    window = tuple(min(n, w) for n, w in zip(grid, WINDOW, strict=True))
    shift = tuple(w // 2 if is_shifted and n > w else 0 for n, w in zip(grid, window, strict=True))
    padded = tuple(math.ceil(n / w) * w for n, w in zip(grid, window, strict=True))

    def place(cell: Grid) -> Grid:
        """Where a cell lies when volumes are counted from the shift on."""
        d, h, w = (
            (n - s) % p if wraps else n - s for n, s, p in zip(cell, shift, padded, strict=True)
        )
        return (d, h, w)

    def volume(cell: Grid) -> list[int]:
        return [n // w for n, w in zip(place(cell), window, strict=True)]

    q, k, v = (x.unflatten(-1, (HEADS, -1)) for x in (q, k, v))  # (D, H, W, heads, head_dim)
    out = torch.zeros_like(q)
    for a in cells:
        seen = [b for b in cells if volume(a) == volume(b)]
        logits = []
        for b in seen:
            steps = zip(place(a), place(b), WINDOW, strict=True)
            bias = table[tuple(x - y + w - 1 for x, y, w in steps)]
            logits.append((q[a] * k[b]).sum(-1) / math.sqrt(DIM // HEADS) + bias)
        weights = torch.stack(logits).softmax(0)  # (seen, heads)
        out[a] = sum(w[:, None] * v[b] for w, b in zip(weights, seen, strict=True))
    return out.flatten(-2)


@pytest.mark.parametrize("is_shifted", [False, True])
@pytest.mark.parametrize("grid", GRIDS)
@torch.no_grad()
def test_volume_attention_agrees_with_a_loop_over_tokens(grid, is_shifted):
    torch.manual_seed(0)
    attention = VolumeAttention(DIM, sizes(), is_shifted=is_shifted).double()
    begun(attention)
    x = torch.randn(2, *grid, DIM, dtype=torch.float64)

    found = attention(x)

    for one, expected in zip(x, found, strict=True):
        q, k, v = attention.query_key_value(one).chunk(3, -1)
        out = reference(q, k, v, attention.bias.table, is_shifted=is_shifted)
        torch.testing.assert_close(attention.projection(out), expected)


@pytest.mark.parametrize("grid", GRIDS[1:3])
@torch.no_grad()
def test_unmasked_shift_joins_opposite_ends_but_never_padding(grid):
    torch.manual_seed(0)
    attention = VolumeAttention(DIM, sizes(unmasked=True), is_shifted=True).double()
    begun(attention)
    x = torch.randn(1, *grid, DIM, dtype=torch.float64)
    q, k, v = attention.query_key_value(x[0]).chunk(3, -1)
    expected = reference(q, k, v, attention.bias.table, is_shifted=True, wraps=True)
    torch.testing.assert_close(attention(x)[0], attention.projection(expected))


@pytest.mark.parametrize("grid", [(3, 4, 5), (1, 2, 6)])
@torch.no_grad()
def test_skip_attention_asks_with_the_tokens_as_they_are(grid):
    torch.manual_seed(0)
    attention = SkipAttention(DIM, sizes()).double()
    begun(attention)
    x, skip = torch.randn(2, 2, *grid, DIM, dtype=torch.float64)

    found = attention(x, skip)

    for i in range(2):
        k, v = attention.key_value(skip[i]).chunk(2, -1)
        out = reference(x[i], k, v, attention.bias.table, is_shifted=False)
        torch.testing.assert_close(attention.projection(out), found[i])


def test_what_was_prepared_for_inference_serves_training():
    attention = VolumeAttention(DIM, sizes(), is_shifted=True)
    x = torch.randn(1, 5, 11, 13, DIM)  # a grid of no other test: its mask is made here
    with torch.inference_mode():
        before = attention(x)
    after = attention(x)
    after.sum().backward()
    torch.testing.assert_close(after.detach(), before.clone())


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(ValueError, match=r"2 heads .* width of 7"):
        VolumeAttention(7, sizes(), is_shifted=False)


def test_no_mask_is_made_where_all_see_all():
    cpu = torch.device("cpu")
    plain, shifted = (
        WindowLayout.fitting((4, 4, 8), (4, 4, 4), is_shifted=it) for it in (False, True)
    )
    assert plain.allowed(cpu, wraps=False) is None
    assert shifted.allowed(cpu, wraps=True) is None
    assert shifted.allowed(cpu, wraps=False) is not None


def numbered(window: Grid, *, official_index: bool) -> RelativePositionBias:
    """A bias that is the number of its table's entry."""
    bias = RelativePositionBias(window, 1, official_index=official_index).double()
    with torch.no_grad():
        bias.table.copy_(torch.arange(len(bias.table))[:, None])
    return bias


@pytest.mark.parametrize(("side", "used", "entries"), [(4, 115, 343), (8, 547, 3375)])
def test_the_official_index_uses_a_part_of_the_table(side, used, entries):
    window = (side,) * 3
    intended, official = (numbered(window, official_index=it) for it in (False, True))

    assert len(intended.table) == len(official.table) == entries
    assert len(intended(window).unique()) == entries
    assert official(window).unique().tolist() == list(range(used))
    first, last = official(window)[0, 0, -1], official(window)[0, -1, 0]
    assert (first, last) == (0, used - 1)


def test_a_window_that_the_official_index_leaves_is_refused():
    with pytest.raises(ValueError, match="official_index needs"):
        RelativePositionBias((8, 1, 1), 1, official_index=True)
    RelativePositionBias((7, 10, 10), 1, official_index=True)
