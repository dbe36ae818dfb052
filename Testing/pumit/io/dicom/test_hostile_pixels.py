"""No DICOM file ends the program, or takes memory and time that its pixels do not need."""

import io
import json
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import psutil
import pytest
import SimpleITK
from compressed_frames import RAMP, compressed, jpeg_lossless
from generated_scans import Array, along_normal, dicom_slice, refused
from PIL import Image
from pumit.errors import VolumeError
from pumit.io.dicom import files, gdcm_process
from pumit.io.dicom.codestream import check_frame, read_codestream
from pumit.io.dicom.files import check_deflated
from pumit.io.dicom.gdcm_process import GdcmProcess
from pumit.volume import Volume
from pydicom import dcmread
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import generate_frames
from pydicom.pixels.encoders.native import _encode_segment
from pydicom.uid import (
    MPEG2MPML,
    DeflatedExplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGLosslessSV1,
    JPEGLSLossless,
    RLELossless,
)

READ = """
import sys
from pathlib import Path
from pumit.errors import VolumeError
from pumit.system.process import peak_process_bytes
from pumit.volume import Volume
for path in sys.argv[1:]:
    try:
        Volume.read(Path(path))
    except VolumeError as error:
        print(error)
    print(peak_process_bytes() >> 20)
"""
BYTES = (RAMP // 4).astype(np.uint8)
SIZE = struct.pack(">2I", RAMP.shape[1], RAMP.shape[0])  # as JPEG 2000 writes it


def saved(folder: Path, frame: bytes, syntax: str, pixels: Array = RAMP, **more: int) -> Path:
    ds = compressed(dicom_slice(pixels, None, intercept=0.0, **more), [frame], syntax)
    ds.save_as(folder / "a.dcm", enforce_file_format=True)
    return folder / "a.dcm"


def jpeg_2000(pixels: Array = RAMP, **options: object) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="JPEG2000", no_jp2=True, **options)
    return stream.getvalue()


def with_short_tile() -> bytes:
    """Return a frame whose tile ends before its data."""
    frame = jpeg_2000()
    length_at = frame.index(b"\xff\x90") + 6
    return frame[:length_at] + struct.pack(">I", 4) + frame[length_at + 4 :]


def jpeg(pixels: Array = BYTES, **options: object) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="JPEG", quality=95, **options)
    return stream.getvalue()


def encoded(syntax: str) -> bytes:
    ds = dicom_slice(RAMP, None)
    ds.compress(syntax, generate_instance_uid=False)
    return next(generate_frames(ds.PixelData, number_of_frames=1))


def test_hostile_pixels_are_one_sentence_and_little_memory(tmp_path):
    """Files of a kilobyte ended the program, or took gigabytes."""
    huge = jpeg_2000().replace(SIZE, struct.pack(">2I", 60_000, 60_000))
    paths = []
    for kind, frame, syntax, more in (
        ("run lengths", bytes(128), RLELossless, {}),
        ("size", huge, JPEG2000Lossless, {}),
        ("size in header", huge, JPEG2000Lossless, {"Rows": 60_000, "Columns": 60_000}),
    ):
        (tmp_path / kind).mkdir()
        paths.append(str(saved(tmp_path / kind, frame, syntax, **more)))
    done = subprocess.run(
        [sys.executable, "-c", READ, *paths],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert ["damaged" in message for message in lines[::2]] == [True] * 3
    assert max(map(int, lines[1::2])) < 800


@pytest.mark.parametrize(
    ("frame", "syntax", "pixels"),
    [
        (jpeg_2000(RAMP[:-1]), JPEG2000Lossless, RAMP),
        (jpeg(BYTES[:, 1:]), JPEGBaseline8Bit, BYTES),
        (jpeg(np.repeat(BYTES[..., None], 3, -1)), JPEGBaseline8Bit, BYTES),
        (encoded(JPEGLSLossless), JPEGLSLossless, RAMP[1:]),
        (encoded(JPEGLSLossless), JPEGLSLossless, BYTES),
    ],
)
def test_size_of_compressed_pixels_is_that_of_the_header(tmp_path, frame, syntax, pixels):
    refused(saved(tmp_path, frame, syntax, pixels), r"states .* compressed pixels are .* damaged")


@pytest.mark.parametrize(
    ("frame", "syntax"),
    [
        (encoded(RLELossless)[:64], RLELossless),
        (struct.pack("<16I", 2, 64, 63, *[0] * 13) + bytes(500), RLELossless),
        (struct.pack("<16I", 2, 64, 9999, *[0] * 13) + bytes(500), RLELossless),
        (b"\xff\xd8\xff\xd9", JPEGBaseline8Bit),
        (b"\xff\xd8" + b"\xff" * 50, JPEGLSLossless),
        (jpeg_2000()[:30], JPEG2000Lossless),
        (jpeg_2000().replace(SIZE, bytes(8)), JPEG2000Lossless),
        (b"\0\0\1\xb3" + bytes(60), MPEG2MPML),
        (b"\0\0", JPEGLosslessSV1),
    ],
)
def test_damaged_beginnings_are_refused_before_they_are_decoded(
    tmp_path, frame, syntax, monkeypatch
):
    monkeypatch.setattr(GdcmProcess, "start", None)
    refused(saved(tmp_path, frame, syntax), r"cannot be decoded here, or they are damaged")


def test_packed_bits_take_an_eighth_of_a_byte():
    ds = Dataset()
    ds.file_meta = FileMetaDataset()
    ds.file_meta.TransferSyntaxUID = RLELossless
    ds.Rows = ds.Columns = 512
    ds.BitsAllocated = ds.SamplesPerPixel = 1
    body = bytes(_encode_segment(bytes(512 * 512 // 8), 512 // 8))
    assert check_frame(ds, struct.pack("<16I", 1, 64, *[0] * 14) + body)
    body = bytes(_encode_segment(bytes(512 * 512 // 8), 512 * 512 // 8))
    assert check_frame(ds, struct.pack("<16I", 1, 64, *[0] * 14) + body)


def test_series_that_announces_far_more_than_its_files_hold_is_refused(tmp_path):
    for k, position in enumerate(along_normal(3)):
        ds = dicom_slice(RAMP, position, number=k + 1, Rows=9000, Columns=9000)
        compressed(ds, [jpeg_2000()], JPEG2000Lossless)
        ds.save_as(tmp_path / f"{k}.dcm", enforce_file_format=True)
    refused(tmp_path, r"series states 0.5 GiB .* damaged")


def test_deflated_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "SUSPICIOUS_BYTES", 1 << 20)
    ds = dicom_slice(RAMP, None)
    ds.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    ds.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    assert Volume.read(tmp_path / "a.dcm").shape == (1, *RAMP.shape)
    header = (tmp_path / "a.dcm").read_bytes()
    start = header[: header.index(b"1.2.840.10008.1.2.1.99") + 22]
    start = header[: 144 + int.from_bytes(header[140:144], "little")]
    pack = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    (tmp_path / "b.dcm").write_bytes(start + pack.compress(bytes(1 << 24)) + pack.flush())
    refused(tmp_path / "b.dcm", r"deflated DICOM file unpacks to more than .* damaged")


def test_what_follows_a_deflated_object_is_not_unpacked(tmp_path):
    ds = dicom_slice(RAMP, None)
    ds.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    ds.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    with (tmp_path / "a.dcm").open("ab") as file:
        file.write(bytes(4 << 20))
    reads = []

    class Counted(io.FileIO):
        def read(self, size: int | None = -1, /) -> bytes:
            reads.append(size)
            return super().read(size)

    with Counted(tmp_path / "a.dcm") as stream:
        check_deflated(stream)  # type: ignore[arg-type]
        assert stream.tell() == 0
    assert reads.count(1 << 16) == 1


@pytest.mark.parametrize(
    ("frame", "is_ordinary"),
    [
        (jpeg_2000(), True),
        (jpeg_2000(codeblock_size=(4, 4)), False),
        (jpeg_2000(tile_size=(2, 2)), False),
        (jpeg_2000(precinct_size=(8, 8), codeblock_size=(8, 8)), False),
        (with_short_tile(), False),  # was walked for ever
        (jpeg(), True),
        (jpeg(progressive=True), False),
        (encoded(JPEGLSLossless), True),
        # Its decoder looked for more bits for three seconds.
        (encoded(JPEGLSLossless)[:100] + b"\0", False),
    ],
)
def test_what_no_scanner_would_write_is_decoded_apart(frame, is_ordinary):
    found = read_codestream(frame)
    assert (found.rows, found.columns) == RAMP.shape
    assert found.is_ordinary == is_ordinary


def test_what_is_decoded_apart_has_the_same_pixels(tmp_path):
    frame = jpeg_2000(codeblock_size=(4, 4), irreversible=False)
    np.testing.assert_array_equal(
        Volume.read(saved(tmp_path, frame, JPEG2000Lossless)).array[0], RAMP
    )


def submitted(folder: Path, frame: bytes, syntax: str, process: GdcmProcess) -> GdcmProcess:
    process.submit(dcmread(saved(folder, frame, syntax)))
    return process


def test_fault_of_the_decoder_ends_its_process_only(tmp_path):
    huge = jpeg_2000().replace(SIZE, struct.pack(">2I", 60_000, 60_000))
    for frame, syntax, message in (
        (bytes(128), RLELossless, r"RLE Lossless.* crashed the decoder"),
        (huge, JPEG2000Lossless, r"(more than \d+ MiB|cannot be decoded|ended the)"),
    ):
        with GdcmProcess() as process, pytest.raises(VolumeError, match=message):
            submitted(tmp_path, frame, syntax, process).result()
    with (
        GdcmProcess(["/nowhere/python"]) as process,
        pytest.raises(VolumeError, match="cannot be started; decompress"),
    ):
        submitted(tmp_path, bytes(128), JPEGLosslessSV1, process)


def test_decoder_that_ended_before_a_file_came_leaves_nothing(tmp_path):
    with GdcmProcess([sys.executable, "-c", ""]) as process:
        process.start()
        child, folder = process._process, process._folder
        assert folder is not None
        child.wait()
        with pytest.raises(VolumeError, match="crashed the decoder"):
            submitted(tmp_path, bytes(128), RLELossless, process).result()
    assert not Path(folder.name).exists()


def test_large_file_takes_no_memory_from_the_next(tmp_path):
    sizes = {"large": 32_768, "smaller": 20_480}  # KiB
    jobs = []
    for name, rows in sizes.items():
        file = tmp_path / f"{name}.dcm"
        SimpleITK.WriteImage(SimpleITK.GetImageFromArray(np.zeros((rows, 1024), np.uint8)), file)
        limits = {"bytes": (8 << 20) + 3 * rows * 1024, "seconds": 20}
        jobs.append({"file": str(file), "decoded": f"{file}.raw", **limits})
    done = subprocess.run(
        gdcm_process._command(),
        input="".join(f"{json.dumps(job)}\n" for job in jobs),
        env={**os.environ, "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    _ready, *answers = map(json.loads, done.stdout.splitlines())
    assert [answer.get("shape") for answer in answers] == [[1, n, 1024] for n in sizes.values()]


def test_decoder_loads_no_module_from_the_folder_of_the_scan(tmp_path, monkeypatch):
    frame = jpeg_lossless(RAMP, tmp_path)
    (tmp_path / "SimpleITK.py").write_text("raise SystemExit", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with GdcmProcess() as process:
        array = submitted(tmp_path, frame, JPEGLosslessSV1, process).result()
    assert array.shape == (1, *RAMP.shape)


def test_small_files_wait_in_no_longer_line_than_a_pipe_holds(tmp_path):
    """A pipe of 4 KiB, as on Windows, takes a line of some 300 bytes for each."""
    with GdcmProcess([sys.executable, "-c", "input(); input()"]) as process:
        while not process.is_full and len(process._jobs) < 20:
            submitted(tmp_path, bytes(128), RLELossless, process)
        assert len(process._jobs) == 12


TAKES = """
import time
print("{}", flush=True)
input()
%s
time.sleep(600)
"""


LAUNCHER = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"
HOLDS, OWN_PID = "held = b'x' * (1 << 28)", '{\\"pid\\": " + str(os.getpid()) + "}'


@pytest.mark.parametrize(
    ("takes", "is_launched", "message"),
    [
        ("while True: pass", False, "more than 0 s"),
        (HOLDS, False, "more than 64 MiB"),
        (HOLDS, True, "more than 64 MiB"),  # by a program like Slicer's launcher
    ],
)
def test_decoder_is_watched_and_ended_on_every_system(
    tmp_path, monkeypatch, takes, is_launched, message
):
    """Where the system does not limit it, as on Windows."""
    monkeypatch.setattr(gdcm_process, "_OWN_SECONDS", 0.3)
    monkeypatch.setattr(gdcm_process, "_PATIENCE", 1000)
    monkeypatch.setattr(gdcm_process, "_OWN_BYTES", 64 << 20)
    command = [sys.executable, "-c", "import os\n" + TAKES.format(OWN_PID) % takes]
    launcher = [sys.executable, "-c", LAUNCHER] if is_launched else []
    with GdcmProcess([*launcher, *command]) as process:
        submitted(tmp_path, jpeg_lossless(RAMP, tmp_path), JPEGLosslessSV1, process)
        with pytest.raises(VolumeError, match=message):
            process.result()
        decoder, child = process._watched, process._process
        assert (decoder.pid != child.pid) == is_launched
    psutil.wait_procs([decoder], timeout=10)
    assert not psutil.pid_exists(decoder.pid)


def test_frames_of_one_file_are_decoded_together(tmp_path):
    values = np.stack([RAMP, RAMP + 1])
    frames = [jpeg_lossless(RAMP, tmp_path), jpeg_lossless(RAMP + 1, tmp_path)]
    ds = dicom_slice(RAMP, None, intercept=0.0, NumberOfFrames=2)
    compressed(ds, frames, JPEGLosslessSV1).save_as(tmp_path / "a.dcm", enforce_file_format=True)
    with GdcmProcess() as process:
        process.submit(dcmread(tmp_path / "a.dcm"))
        np.testing.assert_array_equal(process.result(), values)


def test_one_process_decodes_a_whole_series(tmp_path, monkeypatch):
    begun = []
    popen = subprocess.Popen
    monkeypatch.setattr(
        gdcm_process.subprocess, "Popen", lambda *a, **k: begun.append(popen(*a, **k)) or begun[-1]
    )
    series = tmp_path / "series"
    series.mkdir()
    for k, position in enumerate(along_normal(12)):
        ds = dicom_slice(RAMP, position, number=k + 1, intercept=0.0)
        compressed(ds, [jpeg_lossless(RAMP + k, tmp_path)], JPEGLosslessSV1)
        ds.save_as(series / f"{k}.dcm", enforce_file_format=True)
    volume = Volume.read(series)
    for k in range(12):
        np.testing.assert_array_equal(volume.array[k], RAMP + k)
    assert len(begun) == 1
    assert not psutil.pid_exists(begun[0].pid)
