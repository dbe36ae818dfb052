import contextlib
import re
import sys

import numpy as np
import pytest
import SimpleITK
from export_checks import OBLIQUE, a_volume, disjoint, two_overlapping
from pumit.errors import ExportError
from pumit.export.dicom_series import write_dicom_series
from pumit.export.labelmap import write_labelmap
from pumit.export.write import SUFFIXES, check_suffix, write_segmentation
from pumit.io.labels.label_source import read_labels
from pumit.segmentation import Segment, Segmentation
from pumit.volume import Volume

LABELMAPS = [".nii.gz", ".nii", ".nrrd", ".mha"]


@contextlib.contextmanager
def files_limited_to(size: int):
    """Every file of this process stops growing at `size` bytes, as on a full disk."""
    resource = pytest.importorskip("resource", reason="file size limits are POSIX only")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.MonkeyPatch.context() as patch:
        # Python would keep the first bytes of a module that is imported here for the first time.
        patch.setattr(sys, "dont_write_bytecode", True)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("suffix", LABELMAPS)
@pytest.mark.parametrize(
    "direction", [np.eye(3), OBLIQUE, OBLIQUE @ np.diag([1.0, 1.0, -1.0])],
    ids=["axial", "oblique", "left_handed"],
)  # fmt: skip
def test_labelmap_keeps_voxels_and_geometry(tmp_path, suffix, direction):
    segmentation = disjoint(a_volume(direction))
    write_segmentation(segmentation, tmp_path / f"out{suffix}")
    image = SimpleITK.ReadImage(str(tmp_path / f"out{suffix}"))
    labels = SimpleITK.GetArrayFromImage(image)
    for number, segment in enumerate(segmentation.segments, start=1):
        np.testing.assert_array_equal(labels == number, segment.mask)
    volume = segmentation.volume
    for index in [(0, 0, 0), (8, 20, 29), (3, 0, 17)]:
        np.testing.assert_allclose(
            image.TransformIndexToPhysicalPoint(index[::-1]),
            volume.index_to_world(index),
            atol=1e-3,
        )


@pytest.mark.parametrize("suffix", LABELMAPS)
def test_labelmap_of_a_picture_is_a_picture(tmp_path, suffix):
    picture = SimpleITK.GetImageFromArray(np.arange(72, dtype=np.int16).reshape(8, 9))
    picture.SetSpacing((0.25, 0.5))
    picture.SetOrigin((3.0, -4.0))
    SimpleITK.WriteImage(picture, str(tmp_path / f"scan{suffix}"))
    volume = Volume.read(tmp_path / f"scan{suffix}")
    mask = np.arange(72).reshape(1, 8, 9) % 5 == 0
    segmentation = Segmentation(volume, (Segment("s", mask),), disjoint(a_volume()).algorithm)
    write_segmentation(segmentation, tmp_path / f"out{suffix}")
    image = SimpleITK.ReadImage(str(tmp_path / f"out{suffix}"))
    np.testing.assert_array_equal(SimpleITK.GetArrayFromImage(image), mask[0])
    for read in (image.GetSize, image.GetSpacing, image.GetOrigin, image.GetDirection):
        np.testing.assert_allclose(read(), getattr(picture, read.__name__)(), atol=1e-6)
    assert len(read_labels(tmp_path / f"out{suffix}", volume).segments) == 1
    np.testing.assert_array_equal(Volume.read(tmp_path / f"out{suffix}").array, mask)


@pytest.mark.parametrize("suffix", LABELMAPS)
def test_planar_labelmap_is_as_thick_as_its_image_states_or_one_millimetre(tmp_path, suffix):
    scan = SimpleITK.GetImageFromArray(np.arange(72, dtype=np.int16).reshape(1, 8, 9))
    scan.SetSpacing((0.25, 0.5, 2.0))
    scan.SetDirection((1, 0, 0, 0, 0, -1, 0, 1, 0))
    SimpleITK.WriteImage(scan, str(tmp_path / f"scan{suffix}"))
    volume = Volume.read(tmp_path / f"scan{suffix}")
    assert volume.spacing_mm[0] == 1e8
    made = Volume(volume.array, volume.spacing_mm, (0.0, 0.0, 7.0))
    segment = Segment("s", np.ones((1, 8, 9), dtype=bool))
    for source, spacing, direction in (
        (volume, scan.GetSpacing(), scan.GetDirection()),
        (made, (0.25, 0.5, 1.0), np.eye(3).ravel()),
    ):
        result = Segmentation(source, (segment,), disjoint(a_volume()).algorithm)
        write_segmentation(result, tmp_path / f"out{suffix}")
        image = SimpleITK.ReadImage(str(tmp_path / f"out{suffix}"))
        np.testing.assert_allclose(image.GetSpacing(), spacing, rtol=1e-6)
        np.testing.assert_allclose(image.GetDirection(), direction, atol=1e-6)


@pytest.mark.parametrize("suffix", LABELMAPS)
def test_direction_rounded_in_a_file_header_is_written(tmp_path, suffix):
    rounded = OBLIQUE.round(4)
    write_segmentation(disjoint(a_volume(rounded)), tmp_path / f"out{suffix}")
    image = SimpleITK.ReadImage(str(tmp_path / f"out{suffix}"))
    np.testing.assert_allclose(np.reshape(image.GetDirection(), (3, 3)), rounded, atol=2e-4)


def test_overlap_in_a_labelmap_is_refused_by_name(tmp_path):
    with pytest.raises(ExportError, match=r"'Left kidney' and 'Tumour' overlap.*\.seg\.nrrd"):
        write_segmentation(two_overlapping(a_volume()), tmp_path / "out.nii.gz")
    assert list(tmp_path.iterdir()) == []


def test_later_segment_wins_where_that_is_requested(tmp_path, caplog):
    segmentation = two_overlapping(a_volume())
    write_labelmap(segmentation, tmp_path / "out.nii.gz", overlap="later_wins")
    labels = SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(tmp_path / "out.nii.gz")))
    kidney, tumour = (s.mask for s in segmentation.segments)
    np.testing.assert_array_equal(labels == 2, tumour)
    np.testing.assert_array_equal(labels == 1, kidney & ~tumour)
    assert re.search(r"Segment 2 .* segment 1;", caplog.text)


def test_segment_that_would_vanish_is_refused(tmp_path):
    segmentation = two_overlapping(a_volume())
    first = segmentation.segments[0]
    covered = Segmentation(
        segmentation.volume, (first, Segment("all", first.mask)), segmentation.algorithm
    )
    with pytest.raises(ExportError, match="whole of segment 'Left kidney'"):
        write_labelmap(covered, tmp_path / "out.nii.gz", overlap="later_wins")


@pytest.mark.parametrize("name", ["out.png", "out", "out.nii.gz.txt", "out.dcm.zip"])
def test_unknown_suffix_is_answered_with_the_known_ones(name):
    with pytest.raises(ExportError) as caught:
        check_suffix(name)
    assert all(suffix in str(caught.value) for suffix in SUFFIXES)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_full_target_keeps_the_former_result_and_leaves_nothing_else(tmp_path, suffix):
    if sys.platform == "darwin":
        pytest.skip("macOS kills a process at its file size limit")
    shape = (9, 48, 64)
    volume = write_dicom_series(a_volume(shape=shape), tmp_path / "series")
    mask = np.random.default_rng(2).random(shape) > 0.5
    segmentation = Segmentation(volume, (Segment("s", mask),), disjoint(volume).algorithm)
    folder = tmp_path / "out"
    folder.mkdir()
    target = folder / f"out{suffix}"
    target.write_bytes(b"former result")
    with files_limited_to(2048), pytest.raises(ExportError):
        write_segmentation(segmentation, target)
    assert [p.name for p in folder.iterdir()] == [target.name]
    assert target.read_bytes() == b"former result"


@pytest.mark.parametrize("suffix", [s for s in SUFFIXES if not s.endswith(".dcm")])
def test_upper_case_suffix_is_understood(tmp_path, suffix):
    written = tmp_path / f"OUT{suffix.upper()}"
    write_segmentation(disjoint(a_volume()), written)
    # ITK itself reads lower case only.
    readable = written.rename(tmp_path / f"out{suffix}")
    assert SimpleITK.ReadImage(str(readable)).GetSize() == (30, 21, 9)
