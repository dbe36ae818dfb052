"""DICOM-SEG of every kind is read onto the voxels of its scan, or refused in one line."""

import struct
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from generated_scans import dicom_slice, save_unknown
from highdicom.seg import segread
from label_objects_made import (
    SHAPE,
    a_series,
    a_volume,
    blobs,
    reordered,
    write_parts,
    write_seg,
)
from pumit.errors import VolumeError
from pumit.export.dicom_seg import write_dicom_seg
from pumit.export.terminology import concept_for
from pumit.io.dicom.decoding import DEFLATED_FRAMES, _bits
from pumit.io.labels.label_source import read_labels, read_scan
from pumit.io.labels.seg_labels import read_dicom_seg
from pumit.segmentation import Algorithm, Segmentation
from pumit.volume import Volume
from pydicom import dcmread
from pydicom.encaps import encapsulate
from pydicom.pixels.encoders.native import _encode_segment
from pydicom.uid import RLELossless


@pytest.fixture(scope="module")
def scan(tmp_path_factory: pytest.TempPathFactory) -> Volume:
    return a_series(tmp_path_factory.mktemp("series"))


@pytest.fixture(scope="module")
def liver(tmp_path_factory: pytest.TempPathFactory, scan: Volume) -> Path:
    path = tmp_path_factory.mktemp("liver") / "a.dcm"
    return write_seg(path, scan, blobs()[0].astype(np.uint8), "BINARY", ["Liver"])


@pytest.fixture
def parts(tmp_path: Path, both: Path) -> list[Path]:
    return write_parts(both, tmp_path / "parts")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, scan: Volume) -> Path:
    """Two segments that overlap."""
    path, pixels = tmp_path_factory.mktemp("both") / "a.dcm", np.stack(blobs(), axis=-1)
    return write_seg(path, scan, pixels.astype(np.uint8), "BINARY", ["Liver", "Tumour"])


def test_overlapping_segments_are_read_as_they_were_written(scan, both):
    found = read_dicom_seg([both], scan)
    assert [s.name for s in found.segments] == ["Liver", "Tumour"]
    assert found.volume.channels == 2
    for segment, mask in zip(found.segments, blobs(), strict=True):
        assert np.array_equal(found.mask(segment), mask)
    assert found.segments[0].terminology.split("~")[2] == "SCT^10200004^Liver"
    assert np.allclose(found.segments[0].color_rgb or 0, (1, 0, 0), atol=0.02)
    assert found.doubts == ()


def test_label_maps_and_fractions_from_one_half_on_are_read(tmp_path, scan):
    labels = blobs()[0].astype(np.uint8)
    labels[blobs()[1]] = 2
    path = write_seg(tmp_path / "a.dcm", scan, labels, "LABELMAP", ["Liver", "Tumour"])
    found = read_dicom_seg([path], scan)
    assert [s.value for s in found.segments] == [1, 2]
    assert np.array_equal(found.volume.array, labels)
    share = np.random.default_rng(3).random(SHAPE)
    path = write_seg(tmp_path / "a.dcm", scan, share[..., None], "FRACTIONAL", ["Liver"])
    found = read_dicom_seg([path], scan)
    assert np.array_equal(found.mask(found.segments[0]), np.rint(share * 255) >= 127.5)


def test_part_of_the_scan_and_other_order_of_its_axes_are_followed(tmp_path, scan, liver):
    """A conversion of the series may store it with other axes; the voxels are the same."""
    mask = blobs()[0]
    found = read_dicom_seg([liver], reordered(scan, scan.array))
    assert np.array_equal(found.mask(found.segments[0]), mask.transpose(2, 0, 1)[:, ::-1])
    part = replace(scan, array=scan.array[1:3], origin_lps=tuple(scan.index_to_world((1, 0, 0))))
    found = read_dicom_seg([liver], part)
    assert np.array_equal(found.mask(found.segments[0]), mask[1:3])
    outside = int(mask.sum() - mask[1:3].sum())
    assert found.doubts == (f"DICOM-SEG: {outside} voxels are outside of the image",)
    finer = replace(scan, spacing_mm=(2.5, 0.45, 0.35))
    with pytest.raises(VolumeError, match=r"0\.9 x 0\.7 mm .* 0\.45 x 0\.35"):
        read_dicom_seg([liver], finer)


def test_another_scan_of_the_same_grid_is_doubted_without_its_series(tmp_path, scan, liver):
    seg = dcmread(liver)
    del seg.ReferencedSeriesSequence
    seg.save_as(tmp_path / "a.dcm")
    assert read_labels(tmp_path / "a.dcm", scan).doubts == ()
    a_series(tmp_path / "other")
    other = Volume.read(tmp_path / "other")
    place = "DICOM-SEG: is in another frame of reference than the image"
    series = "DICOM-SEG: refers to another series than the image"
    assert read_labels(tmp_path / "a.dcm", other).doubts == (series, place)
    for frame in seg.PerFrameFunctionalGroupsSequence:
        del frame.DerivationImageSequence
    seg.save_as(tmp_path / "a.dcm")
    assert read_labels(tmp_path / "a.dcm", other).doubts == (place,)
    own = replace(scan, source=replace(scan.source, files=(tmp_path / "moved.dcm",)))
    assert read_labels(liver, own).doubts == ()


def test_damaged_object_is_one_line(tmp_path, scan, liver):
    path = tmp_path / "a.dcm"
    seg = dcmread(liver)
    seg.PixelData = seg.PixelData[: len(seg.PixelData) // 4 * 2]
    seg.save_as(path)
    with pytest.raises(VolumeError, match="truncated") as raised:
        read_labels(path, scan)
    assert "\n" not in str(raised.value)
    del seg.SegmentSequence
    seg.save_as(path)
    with pytest.raises(VolumeError, match="describes no segment"):
        read_labels(path, scan)


def test_segmentation_chooses_its_series_out_of_several(tmp_path):
    first = a_series(tmp_path / "study" / "one")
    a_series(tmp_path / "study" / "two", seed=5)
    mask = blobs()[0].astype(np.uint8)
    label = write_seg(tmp_path / "study" / "a.dcm", first, mask, "BINARY", ["Liver"])
    with pytest.raises(VolumeError, match="study#IDENTIFIER"):
        read_scan([tmp_path / "study"])
    volume = read_scan([tmp_path / "study"], label)
    assert np.array_equal(volume.array, a_volume().array)
    # The folder that holds the one segmentation names it too.
    assert read_labels(tmp_path / "study", volume).volume.array.any()


def picture_and_segment(folder: Path) -> tuple[Volume, Path, np.ndarray]:
    """An X-ray without a place, and the DICOM-SEG that is written on it."""
    folder.mkdir(parents=True)
    pixels = np.arange(9 * 11, dtype=np.uint16).reshape(9, 11)
    more = {"SOPClassUID": "1.2.840.10008.5.1.4.1.1.1.1", "ImagerPixelSpacing": [0.9, 0.7]}
    ds = dicom_slice(pixels, None, pixel_spacing=None, Modality="DX", **more)
    ds.file_meta.MediaStorageSOPClassUID = ds.SOPClassUID
    del ds.FrameOfReferenceUID
    ds.save_as(folder / "dx.dcm", enforce_file_format=True)
    volume = Volume.read(folder / "dx.dcm")
    mask = np.zeros(volume.shape, dtype=bool)
    mask[0, 2:6, 3:10] = True
    mask[0, 3, 4] = False
    segment = concept_for("left lung").segment("Left lung", mask)
    result = Segmentation(volume, [segment], Algorithm("x", "1"))
    write_dicom_seg(result, folder / "seg.dcm")
    return volume, folder / "seg.dcm", mask


def test_own_segmentation_of_a_picture_without_a_place_is_read_back(tmp_path):
    volume, path, mask = picture_and_segment(tmp_path / "a")
    by_highdicom = segread(path)
    assert np.array_equal(by_highdicom.pixel_array.astype(bool).reshape(mask.shape), mask)
    found = read_labels(path, volume)
    assert np.array_equal(found.mask(found.segments[0]), mask)
    assert found.doubts == ()
    # It is of this picture, and of no other one of the same size; nor of a volume.
    other, _, _ = picture_and_segment(tmp_path / "b")
    with pytest.raises(VolumeError, match="belongs to another picture"):
        read_labels(path, other)
    with pytest.raises(VolumeError, match="frame without a position"):
        read_labels(path, a_volume())


def test_parts_of_a_concatenation_are_one_segmentation(tmp_path, scan, parts):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for part in parts:
            archive.write(part, part.name)
    # A copy of a part counts once; a damaged file beside it is passed over.
    parts[0].with_name("copy.dcm").write_bytes(parts[0].read_bytes())
    parts[0].with_name("bad.dcm").write_bytes(b"\0" * 128 + b"DICM" + b"\xff" * 40)
    for given in (*parts, tmp_path / "a.zip"):
        found = read_labels(given, scan)
        for segment, mask in zip(found.segments, blobs(), strict=True):
            assert np.array_equal(found.mask(segment), mask)
        assert found.doubts == ()
    parts[0].with_name("bad.dcm").unlink()
    assert read_labels(tmp_path / "parts", scan).doubts == ()
    parts[1].unlink()
    with pytest.raises(VolumeError, match="Found 1 of 2 parts"):
        read_labels(parts[0], scan)


def rewrite(path: Path, **attributes: int | None) -> None:
    ds = dcmread(path)
    for name, value in attributes.items():
        if value is None:
            del ds[name]
        else:
            setattr(ds, name, value)
    ds.save_as(path)


def test_concatenation_without_its_count_may_be_incomplete(scan, parts):
    for part in parts:
        rewrite(part, InConcatenationTotalNumber=None)
    parts[1].unlink()
    (doubt,) = [d for d in read_labels(parts[0], scan).doubts if "parts" in d]
    assert doubt == (
        "DICOM-SEG: does not state its number of parts; 1 is here, others may be missing"
    )


@pytest.mark.parametrize("number", [None, 1])
def test_parts_without_an_order_are_refused(scan, parts, number):
    for part in parts:
        rewrite(part, InConcatenationNumber=number, InConcatenationTotalNumber=None)
    with pytest.raises(VolumeError, match="not numbered from 1"):
        read_labels(parts[0], scan)


@pytest.mark.parametrize("syntax", ["RLE", "deflated frames"])
def test_packed_bits_are_read_in_each_compression(tmp_path, scan, both, syntax):
    path, seg = tmp_path / "a.dcm", dcmread(both)
    encoded = []
    for frame in _bits(seg, list(range(seg.NumberOfFrames))):
        data = np.packbits(frame.ravel(), bitorder="little").tobytes()
        if syntax == "RLE":
            body = bytes(_encode_segment(data, len(data)))
            body = struct.pack("<16I", 1, 64, *[0] * 14) + body
        else:
            packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
            body = packer.compress(data) + packer.flush()
        encoded.append(body + b"\0" * (len(body) % 2))
    seg.PixelData = encapsulate(encoded)
    seg["PixelData"].VR = "OB"
    seg["PixelData"].is_undefined_length = True
    seg.file_meta.TransferSyntaxUID = RLELossless if syntax == "RLE" else DEFLATED_FRAMES
    save_unknown(seg, path)
    found = read_labels(path, scan)
    for segment, mask in zip(found.segments, blobs(), strict=True):
        assert np.array_equal(found.mask(segment), mask)
