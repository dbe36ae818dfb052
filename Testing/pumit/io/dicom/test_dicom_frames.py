"""Frames of one file become slices, times or separate images, as the file says."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import SimpleITK
from generated_scans import dicom_slice, refused, source_frames_of
from pumit.errors import AmbiguousSeriesError, ExportError
from pumit.export.dicom_seg import write_dicom_seg
from pumit.export.terminology import concept_for
from pumit.io.dicom import slices
from pumit.segmentation import Algorithm, Segment, Segmentation
from pumit.volume import Volume
from pydicom import dcmread
from pydicom.dataset import Dataset

NM = "1.2.840.10008.5.1.4.1.1.20"
OBLIQUE = (0.8, 0.6, 0.0, -0.6, 0.8, 0.0)
FRAMES = (np.arange(5 * 42).reshape(5, 6, 7) * 3 + 900).astype(np.uint16)


def frames_file(
    path: Path, frames: npt.NDArray[Any] = FRAMES, *, position: Any = (1.0, 2, 3), **more: Any
) -> Path:
    """Write a multi-frame file without functional groups."""
    ds = dicom_slice(frames[0], position, NumberOfFrames=len(frames), **more)
    ds.file_meta.MediaStorageSOPClassUID = ds.SOPClassUID
    ds.PixelData = frames.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    ds.save_as(path, enforce_file_format=True)
    return path


def spect(path: Path, spacing: float, **more: Any) -> Path:
    """Write a reconstruction whose detector states the place."""
    detector = Dataset()
    detector.ImagePositionPatient = [-38.0, -46, 70]
    detector.ImageOrientationPatient = list(OBLIQUE)
    values: dict[str, Any] = {
        "SOPClassUID": NM,
        "Modality": "NM",
        "ImageType": ["ORIGINAL", "PRIMARY", "RECON TOMO", "EMISSION"],
        "SpacingBetweenSlices": spacing,
        "FrameIncrementPointer": 0x00540080,
        "SliceVector": list(range(1, len(FRAMES) + 1)),
        "DetectorInformationSequence": [detector],
    }
    return frames_file(path, position=None, intercept=0.0, **(values | more))


def assert_as_itk(volume: Volume, path: Path) -> None:
    """Check that each voxel has ITK's value at ITK's place."""
    image = SimpleITK.ReadImage(str(path))
    array = SimpleITK.GetArrayFromImage(image)
    assert array.shape == volume.shape
    for index in np.ndindex(array.shape):
        place = image.TransformIndexToPhysicalPoint([int(i) for i in index[::-1]])
        d, h, w = np.rint(volume.world_to_index(place)).astype(int)
        np.testing.assert_allclose(volume.index_to_world((d, h, w)), place, atol=1e-3)
        assert volume.array[d, h, w] == array[index]


@pytest.mark.parametrize(
    "more",
    [
        {"SpacingBetweenSlices": 0.3},
        {"SpacingBetweenSlices": 0.3, "FrameIncrementPointer": 0x00180050},
    ],
)
def test_frames_of_a_ct_at_one_position_are_slices(tmp_path, more):
    path = frames_file(tmp_path / "a.dcm", SliceThickness=0.3, **more)
    volume = Volume.read(path)
    assert volume.spacing_mm == pytest.approx((0.3, 0.9, 0.7))
    np.testing.assert_array_equal(volume.array, FRAMES.astype(int) - 1024)
    assert_as_itk(volume, path)


@pytest.mark.parametrize("spacing", [4.5, -4.5])
def test_reconstruction_of_nuclear_medicine_is_where_its_detector_says(tmp_path, spacing):
    path = spect(tmp_path / "nm.dcm", spacing)
    volume = Volume.read(path)
    assert volume.spacing_mm == pytest.approx((4.5, 0.9, 0.7))
    assert_as_itk(volume, path)
    path = spect(tmp_path / "one.dcm", spacing, frames=FRAMES[:1], SliceVector=[1])
    assert_as_itk(Volume.read(path), path)
    ds = dcmread(path)
    del ds.NumberOfFrames
    ds.save_as(path)
    assert_as_itk(Volume.read(path), path)


def test_gates_of_nuclear_medicine_are_a_question(tmp_path):
    frames = np.concatenate([FRAMES, FRAMES + 500])
    path = spect(tmp_path / "nm.dcm", 4.5)
    ds = dcmread(path)
    ds.NumberOfFrames, ds.PixelData = 10, frames.tobytes()
    ds.SliceVector, ds.TimeSlotVector = [1, 2, 3, 4, 5] * 2, [1] * 5 + [2] * 5
    ds.save_as(path)
    with pytest.raises(AmbiguousSeriesError, match="TimeSlotVector 2") as caught:
        Volume.read(path)
    second = Volume.read(path, series=caught.value.series[1][0])
    np.testing.assert_array_equal(second.array, FRAMES + 500)
    mask, other = np.zeros((2, *second.shape), dtype=bool)
    mask[1:3, 2, 3:6] = other[2:4, 1, 1] = True
    segments = [concept_for("liver").segment("Liver", mask), Segment("other", other)]
    write_dicom_seg(Segmentation(second, segments, Algorithm("x", "1")), tmp_path / "s.dcm")
    assert source_frames_of(tmp_path / "s.dcm") == [7, 8, 8, 9]


def test_frames_of_a_cine_at_one_position_are_its_times(tmp_path):
    path = frames_file(tmp_path / "a.dcm", FrameIncrementPointer=0x00181063, FrameTime=40)
    volume = Volume.read(path)
    np.testing.assert_array_equal(volume.array[:, 0], FRAMES.astype(int) - 1024)
    assert volume.origin_lps == (1, 2, 3)
    # So are all frames without a position.
    volume = Volume.read(frames_file(tmp_path / "us.dcm", position=None, Modality="US"))
    np.testing.assert_array_equal(volume.array[:, 0], FRAMES.astype(int) - 1024)


@pytest.mark.parametrize("more", [{}, {"Modality": "XA", "SliceThickness": 2}])
def test_frames_of_which_nothing_is_known_are_refused(tmp_path, more):
    refused(frames_file(tmp_path / "a.dcm", **more), "does not state whether they are slices")


def test_slices_without_a_place_are_a_volume_with_a_warning(tmp_path, caplog):
    path = frames_file(
        tmp_path / "a.dcm", position=None, FrameIncrementPointer=0x00180050, SliceThickness=0.3
    )
    volume = Volume.read(path)
    assert (volume.shape, volume.spacing_mm[0]) == ((5, 6, 7), pytest.approx(0.3))
    assert "does not state the position and orientation" in caplog.text


def test_segmentation_of_an_older_multi_frame_file_names_its_frames(tmp_path):
    import highdicom

    path = frames_file(
        tmp_path / "a.dcm", SliceThickness=0.3, SpacingBetweenSlices=0.3, orientation=OBLIQUE
    )
    volume = Volume.read(path)
    mask = np.zeros(volume.shape, dtype=bool)
    mask[1:4, 2, 3:6] = True
    segment = concept_for("liver").segment("Liver", mask)
    write_dicom_seg(Segmentation(volume, [segment], Algorithm("x", "1")), tmp_path / "s.dcm")
    seg = highdicom.seg.segread(tmp_path / "s.dcm")
    assert seg.NumberOfFrames == 3
    uid = str(dcmread(path).SOPInstanceUID)
    found = seg.get_pixels_by_source_frame(
        uid, range(1, 6), combine_segments=True, assert_missing_frames_are_empty=True
    )
    np.testing.assert_array_equal(found > 0, mask)
    places = [f.PlanePositionSequence[0].ImagePositionPatient for f in seg[0x52009230].value]
    assert sorted(p[2] for p in places) == pytest.approx([3.3, 3.6, 3.9])


def csa(values: dict[str, list[str]]) -> bytes:
    """A private image header of the second kind."""
    data = b"SV10\4\3\2\1" + struct.pack("<2I", len(values), 77)
    for name, texts in values.items():
        data += struct.pack("<64si4s3i", name.encode(), len(texts), b"FD", 4, 6, 77)
        for k in range(6):
            text = texts[k].encode() + b"\0" if k < len(texts) else b""
            data += struct.pack("<4i", len(text), len(text), 77, len(text))
            data += text + b"\0" * (-len(text) % 4)
    return data


def mosaic_file(
    path: Path, tiles: npt.NDArray[Any], side: float = 1.0, announced: int | None = None
) -> Path:
    """Write 7 tiles in a square of 9, the position as Siemens states it."""
    across = 3
    rows, columns = tiles.shape[1:]
    picture = np.zeros((across * rows, across * columns), tiles.dtype)
    for k, tile in enumerate(tiles):
        r, c = divmod(k, across)
        picture[r * rows : (r + 1) * rows, c * columns : (c + 1) * columns] = tile
    axes = np.array(OBLIQUE).reshape(2, 3)
    corner = np.array([10.0, 20, 30]) - axes[0] * 0.7 * columns - axes[1] * 0.9 * rows
    ds = dicom_slice(
        picture,
        tuple(corner),
        orientation=OBLIQUE,
        intercept=0.0,
        Modality="MR",
        ImageType=["ORIGINAL", "PRIMARY", "M", "ND", "MOSAIC"],
        SpacingBetweenSlices=3.6,
    )
    normal = side * np.cross(axes[0], axes[1])
    block = ds.private_block(0x0029, "SIEMENS CSA HEADER", create=True)
    values = {
        "EchoLinePosition": ["3"],
        "SliceNormalVector": [f"{n:.8f}" for n in normal],
        "NumberOfImagesInMosaic": [str(announced or len(tiles))],
    }
    block.add_new(0x10, "OB", csa(values))
    ds.save_as(path, enforce_file_format=True)
    return path


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_tiles_of_a_mosaic_are_slices(tmp_path, side):
    tiles = (np.arange(7 * 42).reshape(7, 6, 7) + 5).astype(np.uint16)
    volume = Volume.read(mosaic_file(tmp_path / "m.dcm", tiles, side))
    assert volume.shape == tiles.shape
    assert volume.spacing_mm == pytest.approx((3.6, 0.9, 0.7))
    places = np.array([(10.0, 20, 30 + side * 3.6 * k) for k in range(7)])
    found = np.rint(volume.world_to_index(places)).astype(int)
    np.testing.assert_allclose(volume.index_to_world(found), places, atol=1e-4)
    np.testing.assert_array_equal(volume.array[found[:, 0]], tiles)


def test_mosaic_without_its_private_header_or_of_too_many_tiles_is_refused(tmp_path):
    tiles = np.ones((7, 6, 7), np.uint16)
    for count in (400, 100_000):
        path = mosaic_file(tmp_path / "m.dcm", tiles, announced=count)
        refused(path, f"states {count} tiles, more than .* damaged")
    ds = dcmread(path)
    ds.remove_private_tags()
    ds.save_as(path)
    refused(path, "Siemens mosaic")


def test_file_of_more_frames_than_it_holds_is_refused_before_they_are_listed(tmp_path, monkeypatch):
    monkeypatch.setattr(slices, "replace", None)  # it makes a slice of each frame
    path = frames_file(tmp_path / "a.dcm", SliceThickness=2.0)
    ds = dcmread(path)
    for count, rows in ((100_000, 6), (2**31 - 1, 6), (1000, 60_000)):
        ds.NumberOfFrames, ds.Rows = count, rows
        ds.save_as(path)
        refused(path, f"states {count} frames, far more .* damaged")
    cine = np.zeros((50_001, 1, 2, 3), np.uint8)
    path = frames_file(tmp_path / "cine.dcm", cine, position=None, Modality="US")
    refused(path, "states 50001 frames, far more .* damaged")


def test_mosaic_is_no_source_of_a_segmentation(tmp_path):
    volume = Volume.read(mosaic_file(tmp_path / "m.dcm", np.ones((7, 6, 7), np.uint16)))
    segment = concept_for("liver").segment("Liver", np.ones(volume.shape, dtype=bool))
    with pytest.raises(ExportError, match="tiles of one picture"):
        write_dicom_seg(Segmentation(volume, [segment], Algorithm("x", "1")), tmp_path / "s.dcm")
