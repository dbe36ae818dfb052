"""Geodesic maps: the running minima against Dijkstra, and what the network is given."""

import numpy as np
import pytest
import torch
from pumit.networks.build import build_network
from pumit.networks.promptable.constants import GEODESIC_CHANNELS, NEGATIVE, POSITIVE, STEP_COST
from pumit.networks.promptable.geodesic import edge_costs, geodesic_distance, geodesic_maps
from pumit.networks.promptable.prompt_encoder import PromptBatch
from pumit.networks.pumit import Anisotropy
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


def test_geodesic_maps_compare_the_two_kinds_of_seed():
    """Left of a wall one kind of click is nearer, right of it the other."""
    image = torch.zeros(1, 1, 1, 16, 16)
    image[..., 8] = 1.0
    left, right = one_seed((1, 16, 16), (0, 8, 2)), one_seed((1, 16, 16), (0, 8, 13))
    nearer = geodesic_maps(left, right, image, torch.zeros(1))[-1][0, 0]
    assert bool((nearer[:, :7] > 0).all())
    assert bool((nearer[:, 9:] < 0).all())


def prompts(shape, *, points=(), box=None, ratio=1.0) -> PromptBatch:
    count = max(1, len(points))
    places, labels = torch.zeros(1, count, 3), torch.full((1, count), -1)
    for i, (*place, label) in enumerate(points):
        places[0, i] = torch.tensor(place) * torch.tensor([ratio, 1.0, 1.0])
        labels[0, i] = label
    corners = torch.zeros(1, 2, 3)
    if box is not None:
        corners[0] = torch.tensor(box) * torch.tensor([ratio, 1.0, 1.0])
    blank = torch.zeros(1, 1, *shape)
    has_box = torch.tensor([box is not None])
    no_prior, slice_ratio = torch.tensor([False]), torch.tensor([ratio])
    return PromptBatch(places, labels, corners, has_box, blank, no_prior, slice_ratio)


@pytest.fixture
def network():
    torch.manual_seed(0)
    return build_network("promptable", dim=24, depth=1, num_heads=2, geodesic=True).eval()


def maps_of(network, image, da0, batch) -> torch.Tensor:
    with torch.no_grad():
        embedding = network.embed(image, Anisotropy(da0))
        return network.prompt_encoder.dense(batch, embedding)[0, -GEODESIC_CHANNELS:]


def test_clicks_seed_the_maps_where_they_lie(network):
    """In thick slices the depth of a click is counted in in-plane voxels."""
    image = torch.rand(1, 3, 6, 32, 32)
    points = [(4, 20, 9, POSITIVE), (1, 6, 25, NEGATIVE)]
    maps = maps_of(network, image, 2, prompts((6, 32, 32), points=points, ratio=5.0))
    near, far = maps[0], maps[3]
    assert np.unravel_index(int(near.argmax()), near.shape) == (4, 10, 4)
    assert np.unravel_index(int(far.argmax()), far.shape) == (1, 3, 12)


def test_outside_of_a_box_is_negative(network):
    image = torch.rand(1, 3, 16, 32, 32)
    box = ((4, 8, 10), (11, 23, 21))
    maps = maps_of(network, image, 0, prompts((16, 32, 32), box=box))
    inside = torch.zeros(8, 16, 16, dtype=torch.bool)
    inside[2:6, 4:12, 5:11] = True
    assert bool((maps[3][~inside] == 1).all())
    assert bool((maps[3][inside] < 1).all())
    assert bool((maps[:3] == 0).all())
    assert bool((maps[-1] == 0).all())


def test_a_planar_box_has_no_outside_along_depth(network):
    image = torch.rand(1, 3, 1, 32, 32)
    maps = maps_of(network, image, 5, prompts((1, 32, 32), box=((0, 8, 8), (0, 23, 23)), ratio=0.0))
    assert float(maps[3][0, 8, 8]) < 1
    assert float(maps[3][0, 0, 0]) == 1


def test_prompts_beyond_the_field_do_not_raise(network):
    image = torch.rand(1, 3, 8, 32, 32)
    points = [(-3, 40, 16, POSITIVE)]
    maps = maps_of(network, image, 1, prompts((8, 32, 32), points=points, ratio=2.0))
    assert bool(maps.isfinite().all())


def test_a_mask_can_be_a_threshold_of_a_map(network):
    """The decoder sees the maps at its very end, at full resolution."""
    last = network.mask_decoder.hyper[0][2]
    torch.nn.init.zeros_(last.weight)
    torch.nn.init.zeros_(last.bias)
    full = last.out_features - 1 - network.prompt_encoder.shown_channels
    with torch.no_grad():
        last.bias[full], last.bias[-1] = 4.0, -2.0  # positive where the first map is above a half
    image = torch.rand(1, 3, 16, 32, 32)
    batch = prompts((16, 32, 32), points=[(8, 16, 16, POSITIVE)])
    maps = maps_of(network, image, 0, batch)
    with torch.no_grad():
        logits, _ = network(image, Anisotropy(0), batch)
    shown = torch.nn.functional.interpolate(maps[None, :1], (16, 32, 32), mode="trilinear")
    torch.testing.assert_close(logits[:, :1], 4 * shown - 2, atol=1e-4, rtol=0)


def test_clicks_and_boxes_are_shown_next_to_the_distances(network):
    batch = prompts((16, 32, 32), points=[(8, 16, 16, POSITIVE)], box=((4, 8, 8), (12, 24, 24)))
    image = torch.rand(1, 3, 16, 32, 32)
    with torch.no_grad():
        dense = network.prompt_encoder.dense(batch, network.embed(image, Anisotropy(0)))
        shown = network.prompt_encoder.shown(dense)
    assert shown.shape == (1, network.prompt_encoder.shown_channels - 1, 8, 16, 16)
    near, far, box = shown[0, GEODESIC_CHANNELS:]
    assert float(near[4, 8, 8]) > 0.5
    assert bool((far == 0).all())
    assert float(box[4, 8, 8]) > 0 > float(box[0, 0, 0])
