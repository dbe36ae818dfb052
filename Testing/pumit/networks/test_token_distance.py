"""Distances in chunks: the strided table against distances computed one by one."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pumit.networks.ba_sam import RasterDistance, ScatteredDistance, grid_distance, token_distance


def raster(sizes: list[int], steps: list[float]) -> torch.Tensor:
    axes = [torch.arange(n) * s for n, s in zip(sizes, steps, strict=True)]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(sizes))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=3), st.integers(1, 80))
def test_chunks_cover_every_query_once_and_hold_the_distances(sizes: list[int], rows: int) -> None:
    steps = [5.0, 0.5, 0.75][-len(sizes) :]
    positions = raster(sizes, steps) + 3
    distance = token_distance(positions, dtype=torch.float64)
    expected = grid_distance(positions, positions, dtype=torch.float64).flip(0)

    stop_before = 0
    for start, stop in distance.chunks(rows):
        assert start == stop_before
        assert stop - start >= min(rows, 1)
        got = distance.rows(start, stop).reshape(stop - start, len(positions))
        torch.testing.assert_close(got, expected[start:stop])
        stop_before = stop
    assert stop_before == len(positions)
    assert isinstance(distance, RasterDistance)


def test_tokens_in_another_order_are_not_taken_for_a_raster() -> None:
    positions = raster([4, 6], [1, 1])
    for other in (positions.flip(1), positions[torch.randperm(24)], torch.rand(24, 2)):
        assert isinstance(token_distance(other), ScatteredDistance)


def test_a_raster_running_backwards_is_a_raster() -> None:
    assert isinstance(token_distance(raster([4, 6], [1, 1]).flip(0)), RasterDistance)


def test_the_table_is_small() -> None:
    distance = token_distance(raster([256, 256], [1, 1]))

    start, stop = next(iter(distance.chunks(1024)))
    view = distance.rows(start, stop)

    assert view.numel() == (stop - start) * 65536
    assert view.untyped_storage().nbytes() == 4 * 511 * 511


def test_no_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one token"):
        token_distance(torch.zeros(0, 2))
