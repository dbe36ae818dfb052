"""Geodesic maps: the running minima against Dijkstra, and what the network is given."""

import numpy as np
import pytest
import torch
from pumit.networks.build import build_network
from pumit.networks.promptable.constants import GEODESIC_CHANNELS, STEP_COST
from pumit.networks.promptable.geodesic import edge_costs, geodesic_distance, geodesic_maps
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import dijkstra


def shortest_paths(image: torch.Tensor, ratio: float, seed: tuple[int, int, int]) -> np.ndarray:
    """Dijkstra's algorithm on the grid graph of (C, d, h, w)."""
    shape = image.shape[1:]
    number = np.arange(np.prod(shape)).reshape(shape)
    rows, columns, costs = [], [], []
    values = image.double().numpy()
    for axis in range(3):
        n = shape[axis]
        a, b = np.take(number, range(n - 1), axis), np.take(number, range(1, n), axis)
        change = np.abs(np.diff(values, axis=1 + axis)).sum(0)
        rows.append(a.ravel())
        columns.append(b.ravel())
        costs.append((change + STEP_COST * (ratio if axis == 0 else 1.0)).ravel())
    edges = (np.concatenate(costs), (np.concatenate(rows), np.concatenate(columns)))
    graph = coo_matrix(edges, shape=(number.size, number.size))
    return dijkstra(graph, directed=False, indices=number[seed]).reshape(shape)


def one_seed(shape: tuple[int, ...], place: tuple[int, int, int]) -> torch.Tensor:
    seeds = torch.zeros(1, *shape, dtype=torch.bool)
    seeds[(0, *place)] = True
    return seeds


@pytest.mark.parametrize("shape", [(7, 9, 8), (1, 12, 11)])
def test_geodesic_distance_equals_dijkstra(shape):
    image = torch.rand(1, 2, *shape, generator=torch.Generator().manual_seed(3))
    place = (shape[0] // 2, 2, 5)
    costs = edge_costs(image, torch.tensor([2.5]))
    found = geodesic_distance(one_seed(shape, place), costs, rounds=40)[0]
    np.testing.assert_allclose(found, shortest_paths(image[0], 2.5, place), atol=1e-4)


def test_geodesic_distance_is_nearly_exact_after_the_default_rounds():
    generator = torch.Generator().manual_seed(5)
    image = torch.nn.functional.interpolate(
        torch.rand(1, 2, 4, 4, 4, generator=generator), size=(16, 16, 16), mode="trilinear"
    )
    place = (3, 12, 8)
    found = geodesic_distance(one_seed((16, 16, 16), place), edge_costs(image, torch.ones(1)))[0]
    exact = shortest_paths(image[0], 1.0, place)
    assert float((found.numpy() - exact).mean() / exact.mean()) < 0.02


def test_geodesic_maps_tell_organs_of_one_grey_apart():
    """Two bright discs in the dark: the clicked one is near, its twin far, whatever the grey."""
    h, w = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    discs = [((h - 16).square() + (w - c).square()).sqrt() < 5 for c in (8, 24)]
    image = (discs[0] | discs[1]).float()[None, None, None].repeat(1, 2, 1, 1, 1)
    seeds = one_seed((1, 32, 32), (0, 16, 8))
    maps = geodesic_maps(seeds, torch.zeros_like(seeds), image, torch.zeros(1))
    assert len(maps) == GEODESIC_CHANNELS
    assert float(maps[1][0, 0][discs[0]].min()) > 0.7
    assert float(maps[1][0, 0][discs[1]].max()) < 0.1


@pytest.fixture
def network():
    torch.manual_seed(0)
    return build_network("promptable", dim=24, depth=1, num_heads=2, geodesic=True).eval()
