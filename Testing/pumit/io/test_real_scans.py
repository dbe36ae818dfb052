"""Real scans, as scanners and hospitals wrote them."""

import logging

import numpy as np
import pytest
import SimpleITK
from pumit.errors import AmbiguousSeriesError
from pumit.io.labels.label_source import read_labels
from pumit.volume import Volume


def assert_same_grid(a: Volume, b: Volume, atol_mm: float = 1e-3) -> None:
    assert a.shape == b.shape
    d, h, w = a.shape
    corners = [(k, j, i) for k in (0, d - 1) for j in (0, h - 1) for i in (0, w - 1)]
    np.testing.assert_allclose(a.index_to_world(corners), b.index_to_world(corners), atol=atol_mm)


@pytest.mark.slow
def test_every_case_is_what_itk_reads(shared_data):
    cases = sorted((shared_data / "cases").iterdir())
    assert len(cases) == 37
    for case in cases:
        image = SimpleITK.ReadImage(str(case / "image.nii.gz"))
        volume = Volume.read(case / "image.nii.gz")
        array = SimpleITK.GetArrayViewFromImage(image)
        assert volume.array.dtype == array.dtype, case.name
        np.testing.assert_array_equal(volume.array, array, err_msg=case.name)
        for k, j, i in np.ndindex(2, 2, 2):
            index = np.array((k, j, i)) * (np.array(volume.shape) - 1)
            expected = image.TransformIndexToPhysicalPoint([int(n) for n in index[::-1]])
            np.testing.assert_allclose(volume.index_to_world(index), expected, atol=1e-6)


def test_chaos_zip_is_the_case_of_the_same_scan_and_its_label_lies_on_it(shared_data):
    volume = Volume.read(shared_data / "dicom" / "chaos_ct" / "dicom.zip")
    folder = shared_data / "cases" / "ct_chaos_liver"
    case, label = Volume.read(folder / "image.nii.gz"), read_labels(folder / "label.nii.gz", volume)
    assert int((label.volume.array == 1).sum()) == 1_342_595
    assert_same_grid(volume, case)
    np.testing.assert_array_equal(volume.array, case.array)
    assert volume.array.dtype == np.int16
    assert len(volume.source.files) == 78
    assert all(file.is_file() for file in volume.source.files)


def test_tilted_brain_series_has_itks_positions(shared_data):
    folder = shared_data / "dicom" / "brain_mr" / "Study3" / "11-T1post-18670"
    volume = Volume.read(folder)
    reader = SimpleITK.ImageSeriesReader()
    reader.SetFileNames(reader.GetGDCMSeriesFileNames(str(folder)))
    image = reader.Execute()
    assert volume.shape == image.GetSize()[::-1]
    # ITK may run the other way along the normal; positions and voxels decide.
    for k in (0, 10, 21):
        index = volume.world_to_index(image.TransformIndexToPhysicalPoint((0, 0, k)))
        np.testing.assert_allclose(index, np.round(index), atol=1e-3)
        plane = SimpleITK.GetArrayViewFromImage(image)[k]
        np.testing.assert_array_equal(volume.array[round(index[0])], plane)


def test_study_with_several_series_is_a_question(shared_data):
    folder = shared_data / "dicom" / "brain_mr" / "Study3"
    with pytest.raises(AmbiguousSeriesError) as caught:
        Volume.read(folder)
    assert "\n" not in str(caught.value)
    slices = {text.rsplit(", ", 1)[1]: uid for uid, text in caught.value.series}
    assert "22 slices" in slices
    volume = Volume.read(folder, series=slices["22 slices"])
    assert volume.shape == (22, 320, 280)


def test_breast_series_is_read_past_its_segmentation(shared_data):
    volume = Volume.read(shared_data / "dicom" / "breast_ucsf_br06")
    assert volume.shape == (60, 256, 256)
    case = Volume.read(shared_data / "cases" / "mr_breast_br06_dce" / "image.nii.gz")
    index = volume.world_to_index(case.index_to_world((20, 100, 50)))
    np.testing.assert_allclose(index, np.round(index), atol=0.01)
    k, j, i = np.round(index).astype(int)
    assert volume.array[k, j, i] == case.array[20, 100, 50]


def test_three_slices_among_segmentations_are_the_scan(shared_data):
    volume = Volume.read(shared_data / "dicom" / "dcmqi")
    assert volume.shape == (3, 512, 512)
    reference = Volume.read(shared_data / "dicom" / "dcmqi" / "liver_seg.nrrd")
    assert_same_grid(volume, reference)
    # The scanner's own value outside its round field.
    assert volume.array.min() == -3024


def test_sheared_scan_lies_where_its_sform_says(shared_data, caplog):
    import gzip

    path = shared_data / "odd" / "shear.nii.gz"
    with gzip.open(path) as stream:
        sform = np.frombuffer(stream.read(352), "<f4", 12, offset=280).reshape(3, 4).astype(float)
    stored = SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(path)))
    d = len(stored)
    with caplog.at_level(logging.WARNING):
        volume = Volume.read(path)
    for warning in ("axes are sheared by", "ITK and Slicer use the qform"):
        assert len([r for r in caplog.records if warning in r.getMessage()]) == 1
    assert volume.shape[0] == d
    brightest = np.argsort(stored.ravel())[-200:]
    for k, j, i in np.stack(np.unravel_index(brightest, stored.shape), axis=-1)[::20]:
        lps = sform @ (i, j, k, 1) * (-1, -1, 1)
        index = volume.world_to_index(lps)
        assert index[0] == pytest.approx(k, abs=1e-3)
        near = volume.array[k, int(index[1]) : int(index[1]) + 2, int(index[2]) : int(index[2]) + 2]
        neighbours = stored[k, max(j - 1, 0) : j + 2, i]
        assert neighbours.min() - 1 <= near.max() <= stored[k].max()


@pytest.mark.parametrize(
    ("name", "channels"), [("isic/ISIC_0000000.jpg", 3), ("covid_cxr/cxr_00.png", None)]
)
def test_pictures_are_read(shared_data, name, channels):
    volume = Volume.read(shared_data / "images2d" / name)
    assert volume.is_planar
    assert channels is None or volume.channels == channels
    for mask in sorted((shared_data / "images2d").glob("*/*_label.png")):
        assert Volume.read(mask).is_planar
