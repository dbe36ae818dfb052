"""Masks lie on the volume's own grid, whatever that is."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from ball_scan import BALL, OBLIQUE, SPACING, at, ball, box_of, scan, session_on
from pumit.errors import VolumeError
from pumit.evaluation.metrics import dice
from pumit.geometry import PLANAR_SLICE_SPACING_MM
from pumit.inference.interactive.segmenter import Segmenter
from pumit.volume import Volume

LEFT_HANDED = OBLIQUE @ np.diag([1, 1, -1.0])


@pytest.mark.parametrize(
    ("order", "direction"),
    [((0, 1, 2), np.eye(3)), *((order, LEFT_HANDED) for order in permutations(range(3)))],
)
def test_mask_is_on_the_grid_for_any_axes(
    bright_segmenter: Segmenter, order: tuple[int, int, int], direction: np.ndarray
) -> None:
    volume, truth = scan(direction, order)
    session = session_on(volume, bright_segmenter)
    centre = tuple(BALL[a] for a in order)
    session.add_point(at(volume, centre))  # type: ignore[arg-type]
    mask = session.predict()
    assert mask.shape == volume.shape
    assert mask.dtype == np.bool_
    assert dice(mask, truth) > 0.95


def test_where_depth_lies_in_the_array_does_not_matter(tiny_segmenter: Segmenter) -> None:
    """The same scan stored with thick slices along another axis gives the same mask."""
    masks = []
    for axes in ((0, 1, 2), (1, 2, 0)):
        volume, _ = scan(OBLIQUE, axes)
        session = session_on(volume, tiny_segmenter)
        session.add_point(at(volume, tuple(BALL[a] for a in axes)))  # type: ignore[arg-type]
        session.add_point(at(volume, tuple((1, 3, 4)[a] for a in axes)), False)  # type: ignore[arg-type]
        masks.append(session.predict().transpose(np.argsort(axes)))
    np.testing.assert_array_equal(masks[0], masks[1])


def test_direction_and_origin_do_not_matter(tiny_segmenter: Segmenter) -> None:
    masks = []
    for direction in (np.eye(3), LEFT_HANDED):
        volume, _ = scan(direction)
        session = session_on(volume, tiny_segmenter)
        session.add_prompt(box_of(volume, (2, 8, 14), (9, 26, 36)))
        session.add_point(at(volume, BALL))
        masks.append(session.predict())
    # Positions differ in the last digits; a voxel whose logit is about zero may turn.
    assert dice(*masks) > 0.99


@pytest.mark.parametrize(
    ("axis", "spacing"), [(0, 1.0), *((axis, PLANAR_SLICE_SPACING_MM) for axis in range(3))]
)
def test_a_single_slice_is_segmented(
    bright_segmenter: Segmenter, axis: int, spacing: float
) -> None:
    """A 2D image, with pixels of 1 x 2 mm, along any axis of the array."""
    h, w = np.ogrid[:50, :64]
    disc = (h - 20) ** 2 + ((w - 30) * 2.0) ** 2 < 15**2
    array = np.expand_dims(100 * disc + np.random.default_rng(0).normal(0, 4, disc.shape), axis)
    sizes = [1.0, 2.0]
    sizes.insert(axis, spacing)
    volume = Volume(array.astype(np.float32), (sizes[0], sizes[1], sizes[2]))
    session = session_on(volume, bright_segmenter)
    index = [20.0, 30.0]
    index.insert(axis, 0.0)
    session.add_point(at(volume, (index[0], index[1], index[2])))
    mask = session.predict()
    assert mask.shape == volume.shape
    assert dice(mask, np.expand_dims(disc, axis)) > 0.95


def test_in_a_2d_image_the_depth_of_a_prompt_does_not_count(tiny_segmenter: Segmenter) -> None:
    array = np.random.default_rng(0).normal(size=(1, 40, 40)).astype(np.float32)
    volume = Volume(array, (PLANAR_SLICE_SPACING_MM, 1.0, 1.0))
    masks = []
    for depth_mm in (0.0, 55.0):
        session = session_on(volume, tiny_segmenter)
        session.add_point((20.0, 18.0, depth_mm))
        session.add_box((8.0, 8.0, depth_mm), (30.0, 30.0, depth_mm))
        session.add_scribble([(12.0, 12.0, depth_mm), (20.0, 20.0, depth_mm)])
        masks.append(session.predict())
    np.testing.assert_array_equal(masks[0], masks[1])


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(ball().astype(t), id=np.dtype(t).name)
        for t in (bool, np.uint8, np.int16, np.uint64, np.float64)
    ]
    + [
        pytest.param(np.stack([ball(), ball() * 2]).astype(np.int16), id="two channels"),
        pytest.param(np.stack([200 * ball()] * 3).astype(np.uint8), id="colour"),
        pytest.param(ball().astype(np.float16)[None], id="one channel, half"),
        pytest.param(np.asfortranarray(ball().astype(">i2")), id="big-endian, Fortran order"),
        pytest.param(ball().astype(np.int16)[::-1, :, ::-1], id="negative strides"),
    ],
)
def test_every_kind_of_voxel_is_accepted(bright_segmenter: Segmenter, array: np.ndarray) -> None:
    volume = Volume(array, SPACING)
    session = session_on(volume, bright_segmenter)
    bright = np.asarray(array if array.ndim == 3 else array[0]) > 0
    place = np.argwhere(bright).mean(0)
    session.add_point(at(volume, tuple(place)))  # type: ignore[arg-type]
    assert dice(session.predict(), bright) > 0.9


def test_the_chosen_channel_is_segmented(bright_segmenter: Segmenter) -> None:
    other = np.roll(ball(), -14, axis=2)
    volume = Volume(np.stack([other, ball()]).astype(np.int16), SPACING)
    session = session_on(volume, bright_segmenter, channel=1)
    session.add_point(at(volume, BALL))
    assert dice(session.predict(), ball()) > 0.9
    for channel in (2, -1):
        with pytest.raises(VolumeError, match="2 channels"):
            session.set_volume(volume, channel=channel)


@pytest.mark.parametrize("seed", range(4))
def test_volumes_of_any_shape_and_spacing_are_answered(
    tiny_segmenter: Segmenter, seed: int
) -> None:
    """One voxel to ninety along each axis, spacings from a twentieth to sixty millimetres."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in np.exp(rng.uniform(0, np.log(90), 3)))
    spacing = tuple(np.exp(rng.uniform(np.log(0.05), np.log(60), 3)))
    direction, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    array = rng.normal(size=shape).astype(np.float32)
    volume = Volume(array, spacing, (10.0, -20.0, 30.0), direction)  # type: ignore[arg-type]
    session = session_on(volume, tiny_segmenter)

    def place() -> tuple[float, float, float]:
        index = rng.uniform(0, 1, 3) * (np.array(shape) - 1) + rng.uniform(-0.5, 0.5, 3)
        return at(volume, tuple(index))  # type: ignore[arg-type]

    session.add_point(place())
    assert session.predict().shape == shape
    session.add_box(place(), place())
    session.add_point(place(), positive=False)
    assert session.predict().shape == shape
    session.add_scribble([place(), place(), place()])
    session.set_mask_prior(rng.random(shape) < 0.5)
    session.add_point(place())
    assert session.predict().shape == shape
    assert 0 <= session.estimated_iou() <= 1
