"""Contours of an RTSTRUCT are filled as a slow rule fills them."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from label_objects_made import SHAPE, a_series, write_struct
from pumit.errors import VolumeError
from pumit.io.labels.label_file import LabelFile
from pumit.io.labels.label_source import read_labels
from pumit.volume import Volume
from pydicom import dcmread


@pytest.fixture(scope="module")
def scan(tmp_path_factory: pytest.TempPathFactory) -> Volume:
    return a_series(tmp_path_factory.mktemp("series"))


def contour(d: float, *corners: tuple[float, float]) -> npt.NDArray[np.float64]:
    return np.array([(d, h, w) for h, w in corners])


def circle(d: float, h: float, w: float, radius: float) -> npt.NDArray[np.float64]:
    angles = np.linspace(0, 2 * np.pi, 40, endpoint=False) + 0.01
    return np.array([(d, h + radius * np.cos(a), w + radius * np.sin(a)) for a in angles])


def crossings(polygon: npt.NDArray[np.float64], h: float, w: float) -> int:
    """How often a ray from a point meets a polygon's sides: the slow rule."""
    count = 0
    for (h0, w0), (h1, w1) in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
        count += (h0 > h) != (h1 > h) and w < (w1 - w0) * (h - h0) / (h1 - h0) + w0
    return count


def filled(contours: list[npt.NDArray[np.float64]]) -> npt.NDArray[np.bool_]:
    mask = np.zeros(SHAPE, dtype=bool)
    for polygon in contours:
        for h in range(SHAPE[1]):
            for w in range(SHAPE[2]):
                mask[round(polygon[0, 0]), h, w] ^= crossings(polygon[:, 1:], h, w) % 2 == 1
    return mask


def read(path: Path, scan: Volume, contours: list[Any], **more: Any) -> LabelFile:
    return read_labels(write_struct(path / "rt.dcm", scan, {"Liver": contours}, **more), scan)


def test_filling_follows_the_slow_rule(tmp_path, scan):
    star = contour(1, (1.2, 2.3), (12.1, 8.4), (2.3, 15.2), (9.7, 1.1), (8.2, 14.6))
    ring = [circle(2, 6.1, 7.3, 5.3), circle(2, 6.4, 7.1, 2.2), circle(2, 6.3, 7.2, 0.9)]
    beyond = contour(3, (-4.3, 3.2), (5.2, 3.4), (5.1, 25.6), (-4.2, 25.3))
    drawn = [star, *ring, beyond]
    found = read(tmp_path, scan, drawn)
    assert [(s.name, s.color_rgb) for s in found.segments] == [("Liver", (1.0, 0.502, 0.0))]
    # A ring about a disc: the hole is a hole, and what lies in it is not.
    assert np.array_equal(found.mask(found.segments[0]), filled(drawn))
    assert found.doubts == ()


def test_overlapping_regions_are_kept_apart(tmp_path, scan):
    regions = {"Liver": [circle(2, 6.1, 7.3, 5.3)], "Tumour": [circle(2, 6.1, 9.3, 2.3)]}
    found = read_labels(write_struct(tmp_path / "a.dcm", scan, regions), scan)
    for segment in found.segments:
        assert np.array_equal(found.mask(segment), filled(regions[segment.name]))


@pytest.mark.parametrize(
    ("places", "filled_slices", "doubt"),
    [
        ((1, 3, 5), [1, 1, 1, 1, 1, 1], "on every 2 slices"),
        ((0, 1, 3, 4), [1, 1, 0, 1, 1, 0], "at 1 places"),
        ((1.3, 2.3, 3.3), [0, 1, 1, 1, 0, 0], "0.3 of a slice off"),
    ],
    ids=["every second slice", "a missing slice", "between slices"],
)
def test_contours_that_are_not_on_each_slice_are_reported(
    tmp_path, scan, places, filled_slices, doubt
):
    drawn = [circle(d, 6.1, 7.3, 3.1 + d / 2) for d in places]
    found = read(tmp_path, scan, drawn)
    mask = found.mask(found.segments[0])
    assert mask.any(axis=(1, 2)).tolist() == filled_slices
    if doubt.startswith("on every"):
        assert np.array_equal(mask[list(places)], filled(drawn)[list(places)])
    assert doubt in found.doubts[0]


def test_points_are_no_contours(tmp_path, scan):
    found = read(tmp_path, scan, [circle(2, 6.1, 7.3, 5.3)], ContourGeometricType="POINT")
    assert not found.volume.array.any()
    assert "1 points or open contours" in found.doubts[0]


def test_sagittal_contours_are_filled_in_their_planes(tmp_path, scan):
    square = np.array([(1.4, 2.3, 8), (1.4, 9.3, 8), (4.4, 9.3, 8), (4.4, 2.3, 8)])
    mask = read(tmp_path, scan, [square]).volume.array > 0
    expected = np.zeros(SHAPE, dtype=bool)
    expected[2:5, 3:10, 8] = True
    assert np.array_equal(mask, expected)


@pytest.mark.parametrize(
    ("contours", "message"),
    [
        ([np.array([(1, 2, 2), (3, 9, 2), (4, 9, 12), (2, 3, 13)])], "oblique"),
        ([circle(40, 6.1, 7.3, 5.3)], "drawn on another scan"),
    ],
)
def test_contours_that_cannot_be_used_are_named(tmp_path, scan, contours, message):
    with pytest.raises(VolumeError, match=message):
        read(tmp_path, scan, contours)


def square(d: float, low: float, high: float, shift: float = 0.0) -> npt.NDArray[np.float64]:
    corners = [(low, low), (low, high), (high, high), (high, low)]
    return np.array([(d, h, w + shift) for h, w in corners])


def test_contour_that_is_written_twice_in_another_way_is_filled_once(tmp_path, scan):
    drawn = circle(2, 6.1, 7.3, 5.3)
    expected = filled([drawn])
    for turn, step in ((0, -1), (1, 1), (3, -1)):
        second = np.roll(drawn[::step], turn, axis=0)
        # Some write the first corner again.
        for other in (second, np.vstack([second, second[:1]])):
            found = read(tmp_path, scan, [drawn, other, np.zeros((0, 3))])
            assert np.array_equal(found.mask(found.segments[0]), expected)
    assert "1 points or open contours" in found.doubts[0]  # without numbers it is none


def test_all_items_of_a_region_count(tmp_path, scan):
    """An object may list a region's contours in several items."""
    path = write_struct(tmp_path / "a.dcm", scan, {"Liver": [square(1, 2.3, 6.3)]})
    other = write_struct(tmp_path / "b.dcm", scan, {"Liver": [square(3, 4.3, 9.3)]})
    ds = dcmread(path)
    ds.ROIContourSequence = [*ds.ROIContourSequence, *dcmread(other).ROIContourSequence]
    ds.save_as(path)
    found = read_labels(path, scan)
    assert np.array_equal(
        found.mask(found.segments[0]), filled([square(1, 2.3, 6.3), square(3, 4.3, 9.3)])
    )


def test_contours_that_cross_are_joined_with_a_doubt(tmp_path, scan):
    pair = [square(2, 2.3, 8.3), square(2, 2.3, 8.3, 3)]
    found = read(tmp_path, scan, [*pair, square(2, 3.3, 4.9)])
    expected = filled(pair[:1]) | filled(pair[1:])
    assert np.array_equal(found.mask(found.segments[0]), expected ^ filled([square(2, 3.3, 4.9)]))
    assert "cross each other, in 1 planes" in found.doubts[0]
    found = read(tmp_path, scan, pair, ContourGeometricType="CLOSEDPLANAR_XOR")
    assert np.array_equal(found.mask(found.segments[0]), filled(pair))
    assert found.doubts == ()


def test_contours_that_all_meet_are_not_compared_without_end(tmp_path, scan):
    many = [square(2, 2.3 + k / 200, 8.3) for k in range(101)]
    found = read(tmp_path, scan, many)
    assert "too many contours that meet, in 1 planes" in found.doubts[0]
    assert np.array_equal(found.mask(found.segments[0]), filled(many[:1]))
