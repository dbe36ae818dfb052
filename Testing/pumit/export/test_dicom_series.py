import numpy as np
import pytest
import SimpleITK
from export_checks import OBLIQUE, a_volume, dciodvfy
from pumit.errors import ExportError, VolumeError
from pumit.export.dicom_series import write_dicom_series
from pumit.volume import Volume
from pydicom import dcmread


def test_series_holds_intensities_and_geometry(tmp_path):
    volume = a_volume()
    written = write_dicom_series(volume, tmp_path / "series")
    image = SimpleITK.ReadImage([str(f) for f in written.source.files])
    np.testing.assert_array_equal(SimpleITK.GetArrayFromImage(image), volume.array)
    np.testing.assert_allclose(image.GetOrigin(), volume.origin_lps, atol=1e-6)
    np.testing.assert_allclose(image.GetSpacing(), volume.spacing_mm[::-1], atol=1e-6)
    np.testing.assert_allclose(
        np.reshape(image.GetDirection(), (3, 3)), volume.direction, atol=1e-6
    )


def test_source_lists_one_file_per_slice_in_slice_order(tmp_path):
    left_handed = OBLIQUE @ np.diag([1.0, 1.0, -1.0])
    volume = write_dicom_series(a_volume(left_handed), tmp_path / "series")
    assert len(volume.source.files) == volume.shape[0]
    for k, file in enumerate(volume.source.files):
        ds = dcmread(file)
        np.testing.assert_allclose(
            ds.ImagePositionPatient, volume.index_to_world((k, 0, 0)), atol=1e-6
        )
        assert ds.SeriesInstanceUID == volume.source.series_instance_uid


def test_fractional_intensities_survive_within_one_step(tmp_path):
    for name, values in (
        ("ramp", np.linspace(-0.3, 0.7, 60).reshape(3, 4, 5).astype(np.float32)),
        ("constant", np.full((2, 3, 4), 0.5)),
    ):
        written = write_dicom_series(Volume(values), tmp_path / name)
        for k, file in enumerate(written.source.files):
            ds = dcmread(file)
            back = ds.pixel_array * float(ds.RescaleSlope) + float(ds.RescaleIntercept)
            np.testing.assert_allclose(back, values[k], atol=1.0 / 65535)


@pytest.mark.parametrize("planar", [False, True])
def test_validator_finds_no_error(tmp_path, planar):
    volume = a_volume()
    if planar:
        volume = Volume(volume.array[:1], (1e8, 0.5, 0.5))
    written = write_dicom_series(volume, tmp_path / "series")
    assert dciodvfy(written.source.files[0]) == []


def test_what_and_where_cannot_be_written_is_refused_and_left_alone(tmp_path):
    (tmp_path / "other.dcm").write_bytes(b"x")
    with pytest.raises(ExportError, match="not empty"):
        write_dicom_series(a_volume(), tmp_path)
    with pytest.raises(ExportError, match="cannot be written"):
        write_dicom_series(a_volume(), tmp_path / "other.dcm" / "series")
    with pytest.raises(VolumeError, match="3 channels"):
        write_dicom_series(Volume(np.zeros((3, 2, 4, 5), np.uint8)), tmp_path / "a")
    with pytest.raises(VolumeError, match="NaN"):
        write_dicom_series(Volume(np.full((2, 4, 5), np.nan)), tmp_path / "b")
    assert [p.name for p in tmp_path.iterdir()] == ["other.dcm"]


def test_failure_halfway_leaves_no_folder(tmp_path, monkeypatch):
    from pumit.export import dicom_series

    write_slice = dicom_series._write_slice

    def full_at_third(volume, common, stored, k, path):
        if k == 2:
            raise OSError(28, "No space left on device", str(path))
        write_slice(volume, common, stored, k, path)

    monkeypatch.setattr(dicom_series, "_write_slice", full_at_third)
    with pytest.raises(ExportError, match="full"):
        write_dicom_series(a_volume(), tmp_path / "series")
    assert list(tmp_path.iterdir()) == []
