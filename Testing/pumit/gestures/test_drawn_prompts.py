"""Drawings in voxels as prompts: strokes, areas and boxes, on any plane of oblique scans."""

import logging
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pumit.errors import PromptError
from pumit.geometry import PLANAR_SLICE_SPACING_MM
from pumit.gestures.middle_line import deepest_cell, inner_path, longest_path
from pumit.gestures.prompts import (
    MAX_POINTS,
    MAX_PROMPTS,
    box_prompts,
    lasso_prompts,
    scribble_prompts,
)
from pumit.inference.interactive.index_prompts import check_prompt, to_index
from pumit.prompts import BoxPrompt, PointPrompt, Prompt, ScribblePrompt
from pumit.volume import Volume
from scipy import ndimage

ORDER = (0, 1, 2)
DRAWINGS = [scribble_prompts, lasso_prompts]


def volume_of(shape: tuple[int, int, int], seed: int = 1) -> Volume:
    """An oblique scan with unequal spacing; its voxels do not matter."""
    random = np.random.default_rng(seed)
    direction = np.linalg.qr(random.normal(size=(3, 3)))[0]
    spacing = tuple(random.uniform(0.5, 4, 3).tolist())
    origin = tuple(random.uniform(-200, 200, 3).tolist())
    return Volume(np.zeros(shape, np.uint8), spacing, origin, direction)  # type: ignore[arg-type]


def voxels_of(prompt: Prompt, volume: Volume) -> np.ndarray:
    """Voxels of a prompt's points, (N, 3); they must be at voxels' centres."""
    points = prompt.points_lps if isinstance(prompt, ScribblePrompt) else (prompt.point_lps,)
    index = volume.world_to_index(points)
    np.testing.assert_allclose(index, np.rint(index), atol=1e-6)
    return np.rint(index).astype(int)


def stroke(places: np.ndarray, shape: tuple[int, ...], width: int = 2) -> np.ndarray:
    """A drawn line, as wide as a brush."""
    mask = np.zeros(shape, bool)
    steps = [np.linspace(a, b, 200) for a, b in pairwise(places)]
    mask[tuple(np.rint(np.concatenate(steps)).astype(int).T)] = True
    return ndimage.binary_dilation(mask, iterations=width)


def on_plane(flat: np.ndarray, axis: int, index: int, shape: tuple[int, int, int]) -> np.ndarray:
    """A drawing (a, b) on one slice of a grid."""
    mask = np.zeros(shape, bool)
    np.moveaxis(mask, axis, 0)[index][: flat.shape[0], : flat.shape[1]] = flat
    return mask


def circle(radius: float, size: int = 60, right: float = 0.0) -> np.ndarray:
    turn = np.linspace(0, 2 * np.pi, 60)
    return size / 2 + radius * np.stack((np.cos(turn), np.sin(turn)), axis=1) + [right, 0]


def cover(lines: list[np.ndarray], drawn: np.ndarray) -> float:
    """Share of a drawing's voxels that are within six voxels of a line."""
    away = np.ones(drawn.shape, bool)
    for line in lines:
        away[tuple(line.T)] = False
    return float((ndimage.distance_transform_edt(away)[drawn] <= 6).mean())


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_stroke_becomes_its_centre_line_on_every_plane(axis):
    volume = volume_of((60, 61, 62))
    places = np.array([[8.0, 8], [30, 20], [50, 50]])
    drawn = on_plane(stroke(places, (60, 60)), axis, 7, volume.shape)
    (prompt,) = scribble_prompts(drawn, (0, 0, 0), volume, is_positive=False)
    assert isinstance(prompt, ScribblePrompt)
    assert not prompt.is_positive
    line = voxels_of(prompt, volume)
    assert (line[:, axis] == 7).all()
    flat = np.delete(line, axis, axis=1)
    middle = stroke(places, (60, 60), width=1)
    assert middle[tuple(flat.T)].mean() > 0.9
    ends = sorted(flat[[0, -1]].tolist())
    assert np.linalg.norm(np.array(ends) - [[8, 8], [50, 50]], axis=1).max() < 5


def test_points_follow_each_other_along_the_stroke():
    volume = volume_of((3, 80, 80))
    turn = np.linspace(0, 1.5 * np.pi, 30)
    places = 40 + 25 * np.stack((np.cos(turn), np.sin(turn)), axis=1)
    drawn = stroke(places, (80, 80))[None]
    (prompt,) = scribble_prompts(drawn, (1, 0, 0), volume, is_positive=True)
    line = voxels_of(prompt, volume)[:, 1:] - 40
    angle = np.unwrap(np.arctan2(line[:, 1], line[:, 0]))
    assert abs(angle[-1] - angle[0]) > 1.25 * np.pi
    assert np.abs(np.diff(angle)).max() < 0.3


def test_spacing_decides_where_the_middle_is():
    # 5 x 41 voxels of 10 x 1 mm: the long side in space is the short one in voxels.
    volume = Volume(np.zeros((7, 3, 43), np.uint8), (40.0, 1.0, 1.0))
    drawn = np.zeros(volume.shape, bool)
    drawn[1:6, 1, 1:42] = True
    (prompt,) = scribble_prompts(drawn, (0, 0, 0), volume, is_positive=True)
    line = voxels_of(prompt, volume)
    assert np.ptp(line[:, 0]) == 4
    assert abs(line[2, 2] - 21) <= 2


@pytest.mark.parametrize("radius", [1, 4])
def test_a_dot_is_a_click_in_its_middle(radius):
    volume = Volume(np.zeros((9, 30, 30), np.uint8), (2.0, 1.0, 1.0))
    h, w = np.indices((30, 30))
    dot = (h - 14) ** 2 + (w - 16) ** 2 <= radius**2
    (prompt,) = scribble_prompts(dot[None], (4, 0, 0), volume, is_positive=True)
    assert isinstance(prompt, PointPrompt)
    np.testing.assert_array_equal(voxels_of(prompt, volume), [[4, 14, 16]])


def test_each_drawing_is_a_prompt_the_largest_first():
    volume = volume_of((3, 60, 60))
    long = stroke(np.array([[8.0, 8], [8, 50]]), (60, 60))
    short = stroke(np.array([[40.0, 10], [40, 25]]), (60, 60))
    for make in DRAWINGS:
        first, second = make((long | short)[None], (1, 0, 0), volume, is_positive=True)
        assert long[tuple(voxels_of(first, volume)[:, 1:].T)].all()
        assert short[tuple(voxels_of(second, volume)[:, 1:].T)].all()


@pytest.mark.parametrize(
    ("name", "places", "at_most"),
    [
        ("loop", [circle(22)], 1),
        ("crossing", [np.array([[8.0, 8], [52, 52]]), np.array([[8.0, 52], [52, 8]])], 2),
        ("branch", [np.array([[8.0, 8], [8, 52]]), np.array([[8.0, 30], [52, 30]])], 2),
        ("eight", [circle(12, 30), circle(12, 30, right=24)], 2),
    ],
)
def test_all_of_a_stroke_is_covered(name, places, at_most):
    volume = Volume(np.zeros((1, 60, 60), np.uint8), (1.0, 1.0, 1.0))
    drawn = np.any([stroke(p, (60, 60)) for p in places], axis=0)[None]
    prompts = scribble_prompts(drawn, (0, 0, 0), volume, is_positive=True)
    assert len(prompts) <= at_most, name
    assert cover([voxels_of(p, volume) for p in prompts], drawn) > 0.97


def test_the_number_of_prompts_is_bounded_and_told(caplog):
    volume = volume_of((8, 64, 64))
    dots = np.zeros(volume.shape, bool)
    dots[::4, ::4, ::4] = True
    for make in DRAWINGS:
        with caplog.at_level(logging.WARNING):
            assert len(make(dots, (0, 0, 0), volume, is_positive=True)) == MAX_PROMPTS
        assert "are used" in caplog.text
        caplog.clear()
    maze = np.random.default_rng(0).random(volume.shape) < 0.15
    prompts = scribble_prompts(maze, (0, 0, 0), volume, is_positive=True)
    assert 0 < len(prompts) <= MAX_PROMPTS


def test_a_drawing_over_all_of_a_large_scan_is_answered():
    volume = Volume(np.broadcast_to(np.uint8(0), (130, 130, 130)), (2.0, 1.0, 1.0))
    everything = np.broadcast_to(True, volume.shape)
    for make in DRAWINGS:
        (prompt,) = make(everything, (0, 0, 0), volume, is_positive=True)
        line = voxels_of(prompt, volume)
        assert np.abs(line.mean(axis=0) - np.array(volume.shape) / 2).max() < 12


def test_a_large_drawing_on_slices_of_almost_no_thickness_costs_no_memory():
    volume = Volume(np.broadcast_to(np.uint8(0), (2, 1500, 1500)), (1e-9, 1.0, 1.0))
    for make in DRAWINGS:
        (prompt,) = make(np.broadcast_to(True, volume.shape), (0, 0, 0), volume, is_positive=True)
        check_prompt(prompt, volume)


def test_coarsely_seen_strokes_still_lie_on_drawn_voxels():
    volume = Volume(np.broadcast_to(np.uint8(0), (150, 150, 150)))
    drawn = stroke(np.array([[2.0, 2, 2], [147, 100, 147]]), volume.shape, width=1)
    (prompt,) = scribble_prompts(drawn, (0, 0, 0), volume, is_positive=True)
    line = voxels_of(prompt, volume)
    assert drawn[tuple(line.T)].all()
    assert np.ptp(line[:, 0]) > 130


# Lassos


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("is_outline", [False, True])
def test_a_lasso_becomes_the_middle_line_on_every_plane(axis, is_outline):
    volume = Volume(np.zeros((60, 60, 60), np.uint8))
    bar = np.zeros((60, 60), bool)
    bar[20:31, 5:55] = True
    if is_outline:
        bar &= ~ndimage.binary_erosion(bar)
    drawn = on_plane(bar, axis, 33, volume.shape)
    (prompt,) = lasso_prompts(drawn, (0, 0, 0), volume, is_positive=True)
    line = voxels_of(prompt, volume)
    assert (line[:, axis] == 33).all()
    flat = np.delete(line, axis, axis=1)
    assert (np.abs(flat[:, 0] - 25) <= 1).all()
    assert np.ptp(flat[:, 1]) > 30


def test_a_negative_lasso_becomes_its_deepest_point():
    volume = volume_of((4, 60, 60))
    bar = np.zeros((1, 60, 60), bool)
    bar[0, 20:31, 5:55] = True
    (prompt,) = lasso_prompts(bar, (2, 0, 0), volume, is_positive=False)
    assert isinstance(prompt, PointPrompt)
    assert not prompt.is_positive
    # All along the middle it is as deep; the middle of that is meant.
    np.testing.assert_allclose(voxels_of(prompt, volume)[0], [2, 25, 29.5], atol=1)


def test_a_lasso_on_an_oblique_plane_is_seen_as_flat():
    volume = Volume(np.zeros((60, 100, 100), np.uint8), (2.0, 1.0, 1.0))
    d, h, w = np.indices(volume.shape)
    plane = np.abs(d - 0.45 * h - 5) <= 0.6
    area = plane & ((h - 50) ** 2 + (w - 50) ** 2 < 35**2)
    rim = area & ((h - 50) ** 2 + (w - 50) ** 2 > 32**2)
    for drawn in (area, rim):
        (prompt,) = lasso_prompts(drawn, (0, 0, 0), volume, is_positive=False)
        assert np.abs(voxels_of(prompt, volume)[0] - [27.5, 50, 50]).max() <= 2


def test_a_lasso_through_many_slices_is_a_body():
    volume = Volume(np.zeros((40, 30, 30), np.uint8), (1.0, 1.0, 1.0))
    tube = np.zeros(volume.shape, bool)
    tube[2:38, 9:20, 8:19] = True
    (prompt,) = lasso_prompts(tube, (0, 0, 0), volume, is_positive=True)
    line = voxels_of(prompt, volume)
    assert np.ptp(line[:, 0]) > 20
    assert (np.abs(line[:, 1:] - [14, 13]) <= 1).all()


@given(
    seed=st.integers(0, 10**6),
    density=st.floats(0.02, 0.98),
    is_positive=st.booleans(),
    kind=st.sampled_from(["scribble", "lasso"]),
    thin=st.sampled_from([None, 0, 1, 2]),
)
def test_points_lie_on_what_is_drawn(seed, density, is_positive, kind, thin):
    random = np.random.default_rng(seed)
    volume = volume_of(tuple(random.integers(1, 24, 3).tolist()), seed)
    start = [int(random.integers(0, n)) for n in volume.shape]
    shape = [int(random.integers(1, n - s + 1)) for n, s in zip(volume.shape, start, strict=True)]
    if thin is not None:
        shape[thin] = 1
    drawn = ndimage.binary_opening(random.random(shape) < density)
    if not drawn.any():
        drawn = random.random(shape) < density
    drawn.flat[0] |= not drawn.any()
    make = scribble_prompts if kind == "scribble" else lasso_prompts
    prompts = make(drawn, start, volume, is_positive=is_positive)
    assert 0 < len(prompts) <= MAX_PROMPTS
    box = np.zeros(volume.shape, bool)
    box[tuple(slice(s, s + n) for s, n in zip(start, shape, strict=True))] = drawn
    for prompt in prompts:
        check_prompt(prompt, volume)
        assert prompt.is_positive == is_positive
        voxels = voxels_of(prompt, volume)
        assert len(voxels) <= MAX_POINTS
        if kind == "scribble":
            assert box[tuple(voxels.T)].all()
        else:  # what an outline encloses counts, seen along some axis
            assert any(
                ndimage.binary_fill_holes(box.any(axis=a))[tuple(np.delete(voxels, a, 1).T)].all()
                for a in range(3)
            )


@pytest.mark.parametrize("make", DRAWINGS)
@pytest.mark.parametrize(
    ("drawn", "start", "words"),
    [
        (np.zeros((0, 3, 4), bool), (0, 0, 0), "empty"),
        (np.ones((2, 3, 4), bool), (9, 0, 0), "leaves the volume"),
        (np.ones((2, 3, 4), bool), (-1, 0, 0), "leaves the volume"),
        (np.ones((3, 4), bool), (0, 0, 0), "three axes"),
    ],
)
def test_what_is_not_a_drawing_on_the_scan_is_refused(make, drawn, start, words):
    with pytest.raises(PromptError, match=words):
        make(drawn, start, volume_of((10, 10, 10)), is_positive=True)


# Boxes


@given(seed=st.integers(0, 10**6))
def test_a_box_holds_exactly_its_voxels(seed):
    random = np.random.default_rng(seed)
    volume = volume_of(tuple(random.integers(2, 30, 3).tolist()), seed)
    low = [int(random.integers(0, n)) for n in volume.shape]
    high = [int(random.integers(a + 1, n + 1)) for a, n in zip(low, volume.shape, strict=True)]
    (prompt,) = box_prompts(list(zip(low, high, strict=True)), volume, is_positive=True)
    check_prompt(prompt, volume)
    thick = [b - a > 1 for a, b in zip(low, high, strict=True)]
    if sum(thick) < 2:
        line = voxels_of(prompt, volume)
        assert isinstance(prompt, PointPrompt) == (sum(thick) == 0)
        assert line.min(axis=0).tolist() == low
        assert (line.max(axis=0) + 1).tolist() == high
        return
    assert isinstance(prompt, BoxPrompt)
    assert len(prompt.corners_lps) == (8 if all(thick) else 4)
    box = to_index([prompt], volume, ORDER).box
    # A flat box is given a depth by what asks the network.
    seen = [i for i in range(3) if thick[i]]
    np.testing.assert_allclose(box[0][seen], np.array(low)[seen], atol=1e-6)
    np.testing.assert_allclose(box[1][seen], np.array(high)[seen] - 1, atol=1e-6)
    corners = volume.world_to_index(prompt.corners_lps)
    np.testing.assert_allclose(corners.min(axis=0), low, atol=1e-6)
    np.testing.assert_allclose(corners.max(axis=0), np.array(high) - 1, atol=1e-6)


def test_a_box_on_a_planar_image_lies_in_it():
    volume = Volume(np.zeros((1, 40, 50), np.uint8), (PLANAR_SLICE_SPACING_MM, 0.5, 0.5))
    (prompt,) = box_prompts([(0, 1), (4, 9), (10, 50)], volume, is_positive=True)
    box = to_index([prompt], volume, ORDER).box
    np.testing.assert_allclose(box, [[0, 4, 10], [0, 8, 49]], atol=1e-6)


def test_a_negative_box_becomes_a_click_in_its_middle():
    volume = volume_of((20, 21, 22))
    (prompt,) = box_prompts([(2, 9), (0, 21), (5, 15)], volume, is_positive=False)
    assert isinstance(prompt, PointPrompt)
    assert not prompt.is_positive
    np.testing.assert_array_equal(voxels_of(prompt, volume), [[5, 10, 9]])


@pytest.mark.parametrize(
    "bounds",
    [
        [(3, 3), (0, 5), (0, 5)],
        [(4, 2), (0, 5), (0, 5)],
        [(-1, 2), (0, 5), (0, 5)],
        [(0, 11), (0, 5), (0, 5)],
        [(0, 5), (0, 5)],
    ],
)
def test_a_box_without_voxels_of_the_scan_is_refused(bounds):
    with pytest.raises(PromptError, match="at least one voxel"):
        box_prompts(bounds, volume_of((10, 10, 10)), is_positive=True)


# Middle lines of areas on grids of any number of axes


def depth_of(mask: np.ndarray, cell_size: tuple[float, ...] | None = None) -> np.ndarray:
    within = (slice(1, -1),) * mask.ndim
    return ndimage.distance_transform_edt(np.pad(mask, 1), sampling=cell_size)[within]


def test_the_path_of_a_bar_runs_along_its_middle():
    depth = depth_of(np.ones((9, 60), bool))
    path = np.array(inner_path(depth, 0.8))
    assert (path[1:-1, 0] == 4).all()
    assert np.ptp(path[:, 1]) >= 50
    assert inner_path(depth, 1.0) == [deepest_cell(depth)]
    apart = np.zeros((5, 20))  # only the part with the deepest cell counts
    apart[2, :6], apart[2, 10:] = 1.0, 0.5
    assert {cell[1] for cell in longest_path(apart)} == set(range(6))


@given(seed=st.integers(0, 10**6), axes=st.integers(1, 3), inner=st.sampled_from([0.0, 0.5, 0.8]))
def test_paths_go_from_cell_to_neighbour_within_the_part(seed, axes, inner):
    random = np.random.default_rng(seed)
    mask = random.random(tuple(random.integers(2, 12, axes))) < 0.7
    if not mask.any():
        return
    size = tuple(random.uniform(0.3, 5, axes).tolist())
    depth = depth_of(mask, size)
    path = inner_path(depth, inner, size)
    assert len(set(path)) == len(path)
    assert all(depth[cell] >= inner * depth.max() and mask[cell] for cell in path)
    steps = np.abs(np.diff(np.array(path), axis=0))
    assert (steps.max(axis=1, initial=0) <= 1).all()
