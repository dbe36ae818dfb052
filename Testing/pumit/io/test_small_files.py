"""Small files whose headers announce much take neither the memory nor the time of what they say."""

import gzip
import io
import json
import struct
import subprocess
import sys
import zlib

import numpy as np
import pydicom
import pytest
from compressed_frames import compressed
from generated_scans import dicom_slice
from PIL import Image
from pumit.errors import VolumeError
from pumit.io.dicom.decoding import DEFLATED_FRAMES, frames_one_by_one, stored_frames
from pumit.io.dicom.gdcm_process import GdcmProcess
from pumit.io.labels import label_file, planar_contours
from pumit.io.labels.label_file import LabelLayers, named_segments
from pumit.volume import Volume
from pydicom.dataset import Dataset

MEMORY_MIB, SECONDS = 192, 20
# Reads each file in a process of limited processor time; a fault or the limit ends it.
READ = """
import json, resource, sys
from pathlib import Path
from pumit.errors import PumitError
from pumit.io.labels.label_file import read_label_file
from pumit.system.process import peak_process_bytes
from pumit.volume import Volume
import pumit.io.images.itk_image, pumit.io.images.picture, scipy.ndimage
for path in map(Path, sys.argv[3:]):
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    read = read_label_file if "labels" in path.name else Volume.read
    before, message = peak_process_bytes(), ""
    try:
        read(path)
    except PumitError as error:
        message = str(error)
    print(json.dumps([path.name, message, peak_process_bytes() - before >> 20]), flush=True)
"""


def nifti2(shape: tuple[int, int, int], values: bytes, slope: float = 0.0) -> bytes:
    """A NIfTI-2 file of 16-bit whole numbers, compressed."""
    data = bytearray(544)
    struct.pack_into("<i8s2h", data, 0, 540, b"n+2\0\r\n\x1a\n", 512, 16)
    struct.pack_into("<8q8d", data, 16, 3, *shape, *[1] * 4, *[1.0] * 8)
    struct.pack_into("<q2d", data, 168, 544, slope, 1.0 if slope else 0.0)
    return gzip.compress(bytes(data) + values)


def nrrd(kind: str, sizes: str, encoding: str) -> bytes:
    axes = len(sizes.split())
    head = f"NRRD0004\ntype: {kind}\ndimension: {axes}\nsizes: {sizes}\nencoding: {encoding}\n"
    return f"{head}endian: little\n\n1 2 3".encode()


def metaimage(*lines: str, axes: str = "NDims = 3", data: bytes = b"1 2 3") -> bytes:
    head = ("ObjectType = Image", axes, *lines, "ElementSpacing = 1 1 1", "ElementDataFile = LOCAL")
    return "\n".join([*head, ""]).encode() + data


def progressive_jpeg(width: int, height: int, scans: int) -> bytes:
    stream = io.BytesIO()
    Image.new("L", (64, 64), 100).save(stream, "JPEG", progressive=True)
    data = bytearray(stream.getvalue())
    struct.pack_into(">HH", data, data.index(b"\xff\xc2") + 5, height, width)
    return bytes(data[:-2]) + bytes.fromhex("ffda0008010100013f1000") * scans + b"\xff\xd9"


def phone_jpeg(width: int, height: int) -> bytes:
    """A JPEG with a second picture in it, as telephones write."""
    stream, picture = io.BytesIO(), Image.new("L", (64, 64), 100)
    picture.save(stream, "MPO", save_all=True, append_images=[picture])
    data = bytearray(stream.getvalue())
    struct.pack_into(">HH", data, data.index(b"\xff\xc0") + 5, height, width)
    return bytes(data)


def orientations(count: int) -> bytes:
    """An object whose frames are all turned otherwise."""
    ds = dicom_slice(np.zeros((4, 4), np.uint16), None)
    ds.PerFrameFunctionalGroupsSequence = []
    for angle in np.linspace(0, np.pi, count, endpoint=False):
        frame, place, plane = Dataset(), Dataset(), Dataset()
        across, down = np.cos(angle), np.sin(angle)
        plane.ImageOrientationPatient = np.round([across, down, 0, -down, across, 0], 5).tolist()
        place.ImagePositionPatient = [0, 0, 0]
        frame.PlaneOrientationSequence, frame.PlanePositionSequence = [plane], [place]
        ds.PerFrameFunctionalGroupsSequence.append(frame)
    ds.NumberOfFrames = count
    stream = io.BytesIO()
    ds.save_as(stream, enforce_file_format=True)
    return stream.getvalue()


MANY = 1_000_000


def small_files() -> dict[str, bytes]:
    return {
        "labels.nii.gz": nifti2((1, 1, MANY), b"\xff\xff" + bytes(2 * MANY - 2)),
        "scaled.nii.gz": nifti2((1, 1, MANY), bytes(2 * MANY), slope=2.0),
        **{
            f"{encoding}-{kind}.nrrd": nrrd(kind, "16384 16383 1", encoding)
            for encoding in ("raw", "gzip", "ascii", "hex")
            for kind in ("double", "uint8")
        },
        "axes.nrrd": nrrd("uint8", "2 " * 16, "raw"),
        "axes.seg.nrrd": nrrd("uint8", "2 " * 11, "raw").replace(b"dimension", b" DIMENSION"),
        "labels-axes.seg.nrrd": nrrd("uint8", "2 " * 12, "raw"),
        # Fields that are none, longer than the room that ITK has to say so.
        **{
            f"field{k}.nrrd": b"NRRD0004\n" + field
            for k, field in enumerate((b"a" * 2000, b"b: " * 800, b"c: %s:=d" % (b"c" * 2000)))
        },
        "labels-field.seg.nrrd": b"NRRD0004\ntype: " + b"\x19\x1b" * 900 + b"\n",
        "detached.nhdr": nrrd("double", "40000 40000 40", "raw\ndata file: gone/a.raw"),
        "detached.mhd": metaimage("DimSize = 40000 40000 40", "ElementType = MET_DOUBLE").replace(
            b"LOCAL", b"a.raw"
        ),
        "ascii.mha": metaimage(
            "BinaryData = False", "DimSize = 16384 16383 1", "ElementType = MET_UCHAR"
        ),
        "channels.mha": metaimage(
            *("BinaryData = True", "CompressedData = True", "DimSize = 10 10 10"),
            *("ElementNumberOfChannels = 200000", "ElementType = MET_DOUBLE"),
            data=zlib.compress(bytes(1000)),
        ),
        **{
            f"axes{k}.mha": metaimage(
                "TransformMatrix = " + "0.5 " * 9,
                "DimSize = 5 4 3",
                "ElementType = MET_SHORT",
                axes=a,
            )
            for k, a in enumerate(
                ("NDims = 6803n", "NDims = 11", "NDims\n12", "NDims", "NDims = 6")
            )
        },
        "size.jpg": progressive_jpeg(16000, 11000, 0),
        "passes.jpg": progressive_jpeg(600, 500, 101),
        "phone.jpg": phone_jpeg(16000, 11000),
        "turned.dcm": orientations(2500),
    }


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no resource limits")
def test_small_files_take_little(tmp_path):
    (tmp_path / "gone").mkdir()
    contents = small_files()
    files = [tmp_path / name for name in contents]
    for file in files:
        file.write_bytes(contents[file.name])
    done = subprocess.run(
        [sys.executable, "-c", READ, str(SECONDS), "", *map(str, files)],
        capture_output=True,
        text=True,
        check=False,
    )
    found = {name: rest for name, *rest in map(json.loads, done.stdout.splitlines())}
    assert list(found) == list(contents), (done.returncode, done.stderr[-2000:])
    read = {"labels.nii.gz", "scaled.nii.gz"}
    assert {name for name, (message, _) in found.items() if not message} == read
    assert not [name for name, (message, _) in found.items() if "fit in memory" in message]
    assert not [name for name, (_, taken) in found.items() if taken > MEMORY_MIB], found


def test_long_comments_and_values_of_keys_are_read(tmp_path):
    head, _, voxels = nrrd("uint8", "3 1 1", "ascii").partition(b"\n\n")
    long = b"x" * 5000
    extra = b"\n# " + long + b"\nkey:=" + long + b": " + long
    (tmp_path / "a.nrrd").write_bytes(head + extra + b"\n\n" + voxels)
    assert Volume.read(tmp_path / "a.nrrd").array.ravel().tolist() == [1, 2, 3]


def test_files_beside_a_detached_header_count(tmp_path):
    folder = tmp_path / "voxels"
    folder.mkdir()
    for k in range(3):
        np.full((4, 5), k, np.uint8).tofile(folder / f"a{k}.raw")
    names = "".join(f"voxels/a{k}.raw\n" for k in range(3))
    head = "NRRD0004\ntype: uint8\ndimension: 3\nsizes: 5 4 3\nencoding: raw\n"
    (tmp_path / "list.nhdr").write_text(f"{head}data file: LIST\n{names}")
    (tmp_path / "pattern.nrrd").write_text(f"{head}data file: voxels/a%d.raw 0 2 1\n")
    meta = metaimage("DimSize = 5 4 3", "ElementType = MET_UCHAR", data=names.encode())
    (tmp_path / "list.mhd").write_bytes(meta.replace(b"LOCAL", b"LIST"))
    for name in ("list.nhdr", "pattern.nrrd", "list.mhd"):
        array = Volume.read(tmp_path / name).array
        assert array.shape == (3, 4, 5)
        assert array[:, 0, 0].tolist() == [0, 1, 2]


def test_a_segment_with_an_endless_number_is_none(tmp_path):
    head = "NRRD0004\ntype: uint8\ndimension: 2\nsizes: 1 1\nencoding: raw\n"
    (tmp_path / "a.seg.nrrd").write_text(f"{head}Segment{'1' * 5000}_ID:=a\n\n1")
    assert named_segments(tmp_path / "a.seg.nrrd") == ()


def test_pixels_of_an_extended_offset_table_are_checked(tmp_path):
    ds = dicom_slice(np.zeros((8, 8), np.uint16), (0.0, 0.0, 0.0))
    ds.compress("1.2.840.10008.1.2.5", generate_instance_uid=False)
    good = next(pydicom.encaps.generate_frames(ds.PixelData, number_of_frames=1))
    ds.PixelData = pydicom.encaps.encapsulate([good, bytes(64)], has_bot=False)
    ds.ExtendedOffsetTable = struct.pack("<Q", 8 + len(good))
    ds.ExtendedOffsetTableLengths = struct.pack("<Q", 64)
    with GdcmProcess() as gdcm, pytest.raises(VolumeError, match="cannot be decoded"):
        list(stored_frames([ds], gdcm))


def test_deflated_frames_are_unpacked_one_at_a_time():
    ds = dicom_slice(np.zeros((8, 8), np.uint8), None)
    frames = [zlib.compress(np.full(64, k, np.uint8).tobytes())[2:-4] for k in range(3)]
    compressed(ds, [frames[0], b"damaged", frames[2]], DEFLATED_FRAMES)
    ds.NumberOfFrames = 3
    found = frames_one_by_one(ds, [2, 0, 1])
    assert [int(next(found)[0, 0]) for _ in range(2)] == [2, 0]
    with pytest.raises(zlib.error):
        next(found)


def test_layers_beyond_the_memory_are_refused(monkeypatch):
    layers = LabelLayers((4, 64, 64), 255)
    monkeypatch.setattr(label_file, "free_bytes", lambda: 8 * 4 * 64 * 64)
    one = np.ones((1, 64, 64), dtype=bool)
    for value in range(1, 8):
        layers.add(value, one)
    with pytest.raises(VolumeError, match="More than 7 segments overlap"):
        layers.add(8, one)


def test_planes_that_no_slice_takes_are_not_filled(monkeypatch):
    filled: list[int] = []
    picture = planar_contours._picture

    def counted(polygons: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
        filled.append(1)
        return picture(polygons, shape)

    monkeypatch.setattr(planar_contours, "_picture", counted)
    square = np.array([(0, 1, 1), (0, 1, 4), (0, 4, 4), (0, 4, 1)], dtype=float)
    for step in (0.03, 1.0):
        contours = [square + np.array([step * k, 0, 0]) for k in range(500)]
        mask, _ = planar_contours.fill_contours(contours, (3, 6, 6), "a")
        assert mask[:, 2, 2].all()
        assert len(filled) <= 3
        filled.clear()


def test_sides_of_a_long_contour_are_compared_in_parts(monkeypatch):
    rng = np.random.default_rng(0)
    contour = np.column_stack([np.ones(200), rng.uniform(-3, 25, (200, 2))])
    whole, _ = planar_contours.fill_contours([contour], (3, 20, 22), "a")
    monkeypatch.setattr(planar_contours, "_MOST_SIDES", 7)
    parts, _ = planar_contours.fill_contours([contour], (3, 20, 22), "a")
    assert whole.any()
    assert np.array_equal(whole, parts)
