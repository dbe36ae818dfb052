"""Figures of segments are those of independent programs, and of shapes whose figures are known."""

import csv
import json
from dataclasses import asdict

import numpy as np
import pytest
import SimpleITK
from export_checks import OBLIQUE, a_volume, two_overlapping
from pumit.errors import ExportError
from pumit.export.dicom_series import write_dicom_series
from pumit.export.statistics import SegmentStatistics, segment_statistics, write_statistics
from pumit.segmentation import Segment
from pumit.volume import Volume


def as_itk(array: np.ndarray, volume: Volume) -> SimpleITK.Image:
    image = SimpleITK.GetImageFromArray(array)
    image.SetSpacing(volume.spacing_mm[::-1])
    image.SetOrigin(volume.origin_lps)
    image.SetDirection(volume.direction.ravel().tolist())
    return image


def ras(lps: object) -> np.ndarray:
    return np.asarray(lps) * (-1, -1, 1)


def measured(volume: Volume, mask: np.ndarray) -> SegmentStatistics:
    (found,) = segment_statistics(volume, [Segment("s", mask)])
    return found


def test_positions_in_a_micrograph_are_those_of_its_voxels():
    volume = Volume(np.zeros((5, 6, 7)), (2e-4, 5e-5, 5e-5), (3.3e-5, 0, 0))
    mask = np.zeros(volume.shape, dtype=bool)
    mask[2, 3, 4] = True
    expected = ras(volume.index_to_world((2, 3, 4)))
    np.testing.assert_allclose(measured(volume, mask).centroid_ras_mm, expected, atol=5e-6)


def test_unit_of_intensities_is_that_of_the_scan(tmp_path):
    mask = np.ones(a_volume().shape, dtype=bool)
    assert measured(a_volume(), mask).intensity_unit == ""
    write_dicom_series(a_volume(), tmp_path / "ct")
    volume = Volume.read(tmp_path / "ct")
    found = measured(volume, np.ones(volume.shape, dtype=bool))
    assert found.intensity_unit == "HU"
    write_statistics([found], tmp_path / "a.csv")
    # The last column, so that tables of earlier versions have the same columns before it.
    header, row = (tmp_path / "a.csv").read_text().splitlines()
    assert header.endswith(",intensity_unit")
    assert row.endswith(",HU")


def test_figures_are_those_of_simpleitk_and_numpy():
    segmentation = two_overlapping(a_volume(OBLIQUE))
    volume = segmentation.volume
    for segment, found in zip(
        segmentation.segments, segment_statistics(volume, segmentation.segments), strict=True
    ):
        labels = as_itk(segment.mask.astype(np.uint8), volume)
        shape = SimpleITK.LabelShapeStatisticsImageFilter()
        shape.Execute(labels)
        values = SimpleITK.LabelStatisticsImageFilter()
        values.Execute(as_itk(volume.array, volume), labels)
        assert found.name == segment.name
        assert found.voxels == shape.GetNumberOfPixels(1)
        assert found.volume_mm3 == pytest.approx(shape.GetPhysicalSize(1))
        assert found.volume_ml == pytest.approx(shape.GetPhysicalSize(1) / 1000)
        assert found.centroid_ras_mm == pytest.approx(ras(shape.GetCentroid(1)), abs=1e-3)
        inside = volume.array[segment.mask]
        assert found.mean == pytest.approx(values.GetMean(1))
        # ITK's is of a sample.
        sample = found.standard_deviation * np.sqrt(len(inside) / (len(inside) - 1))
        assert sample == pytest.approx(values.GetSigma(1))
        assert found.median == np.median(inside)
        quartiles = np.percentile(inside, (25, 75))
        assert (found.first_quartile, found.third_quartile) == tuple(quartiles)
        assert found.interquartile_range == pytest.approx(np.ptp(quartiles))
        assert (found.minimum, found.maximum) == (values.GetMinimum(1), values.GetMaximum(1))
        # Eight corners of every voxel.
        steps = np.stack(np.meshgrid(*[(-0.5, 0.5)] * 3), axis=-1).reshape(-1, 1, 3)
        corners = volume.index_to_world((np.argwhere(segment.mask) + steps).reshape(-1, 3))
        box = ras(corners)
        assert found.box_lower_ras_mm == pytest.approx(box.min(axis=0), abs=1e-3)
        assert found.box_upper_ras_mm == pytest.approx(box.max(axis=0), abs=1e-3)


@pytest.mark.parametrize("angle", [0.0, 0.4, 1.3, 2.2])
def test_diameters_of_an_ellipse_are_its_axes(angle):
    shape, spacing = (7, 120, 150), (4.0, 0.6, 0.5)
    d, h, w = np.indices(shape)
    y, x = (h - 60) * spacing[1], (w - 75) * spacing[2]
    u, v = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    size = 1 - np.abs(d - 4) / 6  # largest on the fifth slice
    mask = (u / (22 * size)) ** 2 + (v / (11 * size)) ** 2 < 1
    mask &= u**2 + v**2 > 4  # a hole is no border
    volume = Volume(np.zeros(shape, np.int16), spacing, (1, 2, 3), OBLIQUE)
    found = measured(volume, mask)
    assert found.long_axis_mm == pytest.approx(44, abs=0.7)
    assert found.perpendicular_mm == pytest.approx(22, abs=0.7)
    assert found.long_axis_slice == 5
    ends = ras([found.long_axis_from_ras_mm, found.long_axis_to_ras_mm])
    assert np.linalg.norm(ends[0] - ends[1]) == pytest.approx(found.long_axis_mm, abs=1e-3)
    assert volume.world_to_index(ends)[:, 0] == pytest.approx(4, abs=1e-3)


def test_a_diameter_stays_within_one_piece_and_a_chord_within_the_structure():
    mask = np.zeros((1, 40, 60), dtype=bool)
    mask[0, 5:8, 5:25] = True  # 20 x 3
    mask[0, 30:33, 40:50] = True  # far away
    volume = Volume(np.zeros(mask.shape, np.int16), (1e8, 2.0, 1.0))
    found = measured(volume, mask)
    assert found.volume_mm3 is None
    # The corners of the outline are cut off: its diagonal is that of 20 by 4 mm.
    assert found.long_axis_mm == pytest.approx(np.hypot(20, 4))
    assert 4 <= found.perpendicular_mm <= np.hypot(20, 6)
    # A U: the chord across its two arms is outside between them.
    arms = np.zeros((1, 40, 60), dtype=bool)
    arms[0, 5:35, 10:14] = arms[0, 5:35, 20:24] = arms[0, 31:35, 10:24] = True
    even = Volume(np.zeros(arms.shape, np.int16), (1e8, 2.0, 2.0))
    assert (measured(even, arms).perpendicular_mm or 99) < 32


def test_a_photograph_has_no_millimetres(tmp_path):
    """Its pixels have no size: they are not of 1 mm, as the table of segments knows."""
    mask = np.zeros((1, 40, 60), dtype=bool)
    mask[0, 5:8, 5:25] = True
    found = measured(Volume(np.zeros(mask.shape, np.int16), (1e8, 1.0, 1.0)), mask)
    assert (found.long_axis_mm, found.perpendicular_mm) == (None, None)
    write_statistics([found], tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(newline="") as handle:
        (row,) = csv.DictReader(handle)
    assert (row["long_axis_mm"], row["perpendicular_mm"]) == ("", "")


def test_one_voxel_has_figures():
    mask = np.zeros((9, 21, 30), dtype=bool)
    mask[4, 10, 12] = True
    found = measured(a_volume(), mask)
    assert found.voxels == 1
    assert found.mean == found.median == found.minimum == found.maximum
    assert (found.standard_deviation, found.interquartile_range) == (0.0, 0.0)
    assert (found.long_axis_mm, found.perpendicular_mm) == pytest.approx((0.8, 0.7))


def test_table_and_json_hold_the_same(tmp_path):
    segmentation = two_overlapping(a_volume())
    found = segment_statistics(segmentation.volume, segmentation.segments)
    for name in ("a.csv", "a.json"):
        write_statistics(found, tmp_path / name)
    objects = json.loads((tmp_path / "a.json").read_text())
    assert objects == json.loads(json.dumps([asdict(each) for each in found]))
    with (tmp_path / "a.csv").open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    for row, content in zip(rows, objects, strict=True):
        for key, value in content.items():
            if key.endswith("_ras_mm"):
                prefix = key.removesuffix("_ras_mm")
                assert [float(row[f"{prefix}_{axis}_mm"]) for axis in "ras"] == value
            else:
                assert row[key] == str(value)
    with pytest.raises(ExportError, match=r"\.csv or \.json"):
        write_statistics(found, tmp_path / "a.xlsx")


def test_voxels_that_are_no_number_leave_valid_json(tmp_path):
    array = np.arange(60.0, dtype=np.float32).reshape(3, 4, 5)
    array[1, 1, 1] = np.nan  # outside of a registered scan's field
    write_statistics([measured(Volume(array), array != 3)], tmp_path / "a.json")
    (row,) = json.loads((tmp_path / "a.json").read_text(), parse_constant=pytest.fail)
    assert (row["voxels"], row["mean"], row["maximum"]) == (59, None, None)
