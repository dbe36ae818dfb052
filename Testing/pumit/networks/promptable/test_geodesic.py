"""Geodesic distances: the running minima against Dijkstra, and what the network is given."""

import numpy as np
import pytest
from pumit.networks.promptable.constants import STEP_COST
from pumit.networks.promptable.geodesic import distance_to, nearness, path_costs
from scipy.ndimage import zoom
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import dijkstra


def shortest_paths(image: np.ndarray, ratio: float, seed: tuple[int, int, int]) -> np.ndarray:
    """Dijkstra's algorithm on the grid graph of (C, d, h, w)."""
    shape = image.shape[1:]
    number = np.arange(np.prod(shape)).reshape(shape)
    rows, columns, costs = [], [], []
    for axis in range(3):
        n = shape[axis]
        a, b = np.take(number, range(n - 1), axis), np.take(number, range(1, n), axis)
        change = np.abs(np.diff(image.astype(np.float64), axis=1 + axis)).sum(0)
        rows.append(a.ravel())
        columns.append(b.ravel())
        costs.append((change + STEP_COST * (ratio if axis == 0 else 1.0)).ravel())
    edges = (np.concatenate(costs), (np.concatenate(rows), np.concatenate(columns)))
    graph = coo_matrix(edges, shape=(number.size, number.size))
    return dijkstra(graph, directed=False, indices=number[seed]).reshape(shape)


def found_paths(
    image: np.ndarray, ratio: float, place: tuple[int, int, int], **options: int
) -> np.ndarray:
    seeds = np.zeros(image.shape[1:], dtype=bool)
    seeds[place] = True
    return distance_to(seeds, path_costs(image, ratio, np), np.minimum.accumulate, np, **options)


@pytest.mark.parametrize("shape", [(7, 9, 8), (1, 12, 11)])
def test_geodesic_distance_equals_dijkstra(shape, rng):
    image = rng.random((2, *shape)).astype(np.float32)
    place = (shape[0] // 2, 2, 5)
    found = found_paths(image, 2.5, place, rounds=40)
    np.testing.assert_allclose(found, shortest_paths(image, 2.5, place), atol=1e-4)


def test_geodesic_distance_is_nearly_exact_after_the_default_rounds(rng):
    image = zoom(rng.random((2, 4, 4, 4)).astype(np.float32), (1, 4, 4, 4), order=1)
    place = (3, 12, 8)
    found, exact = found_paths(image, 1.0, place), shortest_paths(image, 1.0, place)
    assert float((found - exact).mean() / exact.mean()) < 0.02


def test_nearness_tells_organs_of_one_grey_apart():
    """Two bright discs in the dark: the clicked one is near, its twin far, whatever the grey."""
    h, w = np.meshgrid(np.arange(32.0), np.arange(32.0), indexing="ij")
    discs = [np.hypot(h - 16, w - c) < 5 for c in (8, 24)]
    image = (discs[0] | discs[1]).astype(np.float32)[None, None].repeat(2, 0)
    maps = nearness(found_paths(image, 0.0, (0, 16, 8)), np)
    assert {each.dtype for each in maps} == {np.dtype(np.float32)}  # also with NumPy 1.26
    near = maps[1][0]
    assert near[discs[0]].min() > 0.7
    assert near[discs[1]].max() < 0.1
