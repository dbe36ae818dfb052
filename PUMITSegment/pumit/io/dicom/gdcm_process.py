"""GDCM decoding in a separate process, so that a malicious file can crash only that process.

GDCM supports lossless JPEG and other encodings that pydicom's decoders do not, but has bugs that
crash its process. Memory and CPU time of that process are limited: by the operating system on Linux
and macOS, and on every system by the parent, which monitors it. On Windows a job object also ends
it with the parent.
"""

from __future__ import annotations

import io
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
from pydicom.pixels import get_decoder
from pydicom.uid import UID, SecondaryCaptureImageStorage

from pumit.errors import VolumeError
from pumit.geometry import Array
from pumit.io.dicom.files import DicomFile
from pumit.system.process import JobObject, python_program, read_lines, start_program

# Attributes that decoders need. GDCM would apply others, such as RescaleSlope.
_IMAGE_PIXEL = (
    "SamplesPerPixel",
    "PhotometricInterpretation",
    "PlanarConfiguration",
    "NumberOfFrames",
    "Rows",
    "Columns",
    "BitsAllocated",
    "BitsStored",
    "HighBit",
    "PixelRepresentation",
)
_MULTIFRAME_CAPTURE = {
    1: UID("1.2.840.10008.5.1.4.1.1.7.2"),  # Grayscale Byte
    2: UID("1.2.840.10008.5.1.4.1.1.7.3"),  # Grayscale Word
    3: UID("1.2.840.10008.5.1.4.1.1.7.4"),  # True Color
}
# Start of encapsulated PixelData in Explicit VR Little Endian, and its delimiter (PS3.5 A.4).
_PIXEL_DATA = bytes.fromhex("e07f1000") + b"OB\0\0\xff\xff\xff\xff"
_END = bytes.fromhex("feffdde000000000")
_THREADS = ("ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# Types of stored values.
_TYPES = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32)}
# Limits per file: a base amount plus several copies of its pixels. Even slow computers need only a
# tenth of this time.
_OWN_BYTES, _COPIES = 256 << 20, 8
_OWN_SECONDS, _SECONDS_PER_MIB = 5.0, 1.0
# Wall-clock limits: of the start, and as a multiple of the CPU time limit.
_START_SECONDS, _PATIENCE = 120.0, 10.0
_WATCH_SECONDS = 0.02
# Limit of decoded bytes that wait to be fetched.
_AHEAD_BYTES = 4 << 20
# Limit of files in flight: a 4 KiB pipe holds their requests, so that writing never blocks.
_AHEAD_FILES = 12


@dataclass(frozen=True)
class _Job:
    syntax: UID
    file: Path
    decoded: Path
    shape: tuple[int, ...]
    size: int
    bytes: int
    seconds: float


class GdcmProcess:
    """Decoder of files, in order, in one process that starts with the first file.

    Files can be submitted while earlier ones are being decoded.

    Args:
        command: Command line of the process, for tests; None for the default.
    """

    def __init__(self, command: Sequence[str] | None = None) -> None:
        self._command = command
        self._process: subprocess.Popen[str] | None = None
        self._watched: Any = None
        self._job_object = JobObject()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._answers: queue.Queue[str] = queue.Queue()
        self._jobs: deque[_Job] = deque()
        self._headers: dict[tuple[Any, ...], bytes] = {}
        self._count = 0
        self._is_ready = False

    def __enter__(self) -> GdcmProcess:
        """Return self; the process starts when it is needed."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the process and delete its files."""
        if self._process is not None:
            if self._watched is not None and self._watched.pid != self._process.pid:
                with suppress(psutil.Error):  # it has ended
                    self._watched.kill()
            self._process.kill()
            self._process.wait()
            self._job_object.close()
            assert self._process.stdin is not None
            with suppress(OSError):  # closing flushes requests that it never read
                self._process.stdin.close()
        if self._folder is not None:
            self._folder.cleanup()

    @property
    def is_full(self) -> bool:
        """Whether results should be fetched before another file is submitted."""
        waiting = len(self._jobs)
        size = sum(job.size for job in self._jobs)
        return waiting >= _AHEAD_FILES or (waiting > 1 and size > _AHEAD_BYTES)

    def prepare(self, file: DicomFile) -> None:
        """Start the process if an image will need it, so that it loads during the search."""
        syntax = file.header.file_meta.get("TransferSyntaxUID")
        with suppress(ValueError):  # pydicom knows no properties of a private transfer syntax
            if syntax and syntax.is_compressed and not is_known(syntax) and file.is_image:
                self.start()

    def start(self) -> None:
        """Start the process without waiting until it is ready.

        Raises:
            VolumeError: If it cannot be started.
        """
        if self._process is not None:
            return
        try:
            self._folder = tempfile.TemporaryDirectory(prefix="pumit-", ignore_cleanup_errors=True)
            self._process = start_program(
                self._command or _command(),
                # PYTHONSAFEPATH: import no modules from the current folder, which may be the
                # scan's. One thread: each reserves address space, which is limited.
                {"PYTHONSAFEPATH": "1", **dict.fromkeys(_THREADS, "1")},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                encoding="utf-8",
            )
            self._job_object.add(self._process.pid)
        except OSError as error:
            raise VolumeError(
                "The decoder for compressed DICOM cannot be started; decompress the series "
                "first, for example with gdcmconv --raw."
            ) from error
        reader = threading.Thread(
            target=read_lines, args=(self._process.stdout, self._answers.put), daemon=True
        )
        reader.start()
        self._watch(self._process.pid)

    def submit(self, ds: FileDataset) -> None:
        """Submit all frames of a file for decoding.

        GDCM gets only the pixel data and its format. Given the whole header, it would apply the
        first frame's slope to all frames, invert MONOCHROME1, and ignore lookup tables.

        Raises:
            VolumeError: If the process cannot be started.
        """
        self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._folder is not None
        frames = max(int(ds.get("NumberOfFrames") or 1), 1)
        samples = int(ds.get("SamplesPerPixel") or 1)
        shape = (frames, int(ds.Rows), int(ds.Columns)) + ((samples,) if samples > 1 else ())
        size = int(np.prod(shape)) * max(int(ds.BitsAllocated) // 8, 1)  # a bit becomes a byte
        self._count += 1
        file = Path(self._folder.name, f"{self._count}.dcm")
        self._write(ds, file)
        job = _Job(
            syntax=ds.file_meta.TransferSyntaxUID,
            file=file,
            decoded=file.with_suffix(".raw"),
            shape=shape,
            size=size,
            bytes=_OWN_BYTES + _COPIES * size + 2 * len(ds.PixelData),
            seconds=_OWN_SECONDS + _SECONDS_PER_MIB * size / 2**20,
        )
        self._jobs.append(job)
        request = {
            "file": os.fspath(job.file),
            "decoded": os.fspath(job.decoded),
            "bytes": job.bytes,
            "seconds": job.seconds,
        }
        with suppress(OSError):  # the process has ended; `result` raises
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()

    def _write(self, ds: FileDataset, file: Path) -> None:
        """Write the pixel data with a minimal header, which is cached for the series."""
        bare = _bare(ds)
        key = (bare.SOPClassUID, bare.file_meta.TransferSyntaxUID, *map(bare.get, _IMAGE_PIXEL))
        if key not in self._headers:
            header = io.BytesIO()
            bare.save_as(header, enforce_file_format=True)
            self._headers[key] = header.getvalue()
        with file.open("wb") as target:
            target.writelines((self._headers[key], _PIXEL_DATA, ds.PixelData, _END))

    def result(self) -> Array:
        """Return the stored values of the first submitted file whose result was not yet fetched.

        Returns:
            (F, H, W), or (F, H, W, 3).

        Raises:
            VolumeError: If it cannot be decoded within the limits of memory and time.
        """
        memory = max(job.bytes for job in self._jobs)
        job = self._jobs.popleft()
        if not self._is_ready:
            ready = self._answer(_START_SECONDS, _START_SECONDS, sys.maxsize, job)
            # In Slicer the started process is its launcher; monitor the child that decodes.
            self._watch(ready.get("pid", self._watched.pid))
            self._is_ready = True
        answer = self._answer(job.seconds, _PATIENCE * job.seconds, memory, job)
        if answer.get("error") == "memory":
            raise _too_much(job, f"{job.bytes >> 20} MiB of memory")
        shape, kind = tuple(answer.get("shape", ())), answer.get("type")
        if shape != job.shape or kind not in _TYPES:
            raise cannot_decode(job.syntax)
        array = np.fromfile(job.decoded, dtype=kind)
        if array.size != np.prod(shape):
            raise cannot_decode(job.syntax)
        array = array.reshape(shape)
        for used in (job.file, job.decoded):
            used.unlink()
        return array

    def _answer(
        self, processor_seconds: float, seconds: float, memory: int, job: _Job
    ) -> dict[str, Any]:
        """Return the next answer of the process; raise if it exceeds a limit or has ended."""
        begun, used = time.monotonic(), self._used()
        while True:
            try:
                line = self._answers.get(timeout=_WATCH_SECONDS)
                break
            except queue.Empty:
                pass
            now = self._used()
            if now[0] - used[0] > processor_seconds or time.monotonic() - begun > seconds:
                raise _too_much(job, f"{processor_seconds:.0f} s")
            if now[1] - used[1] > memory:
                raise _too_much(job, f"{memory >> 20} MiB of memory")
        if not line:
            raise VolumeError(
                f"A DICOM file whose pixels are compressed as {job.syntax.name} crashed the "
                "decoder: the file is damaged; export it again, or leave it out."
            )
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _watch(self, pid: int) -> None:
        with suppress(psutil.Error):  # it has just ended
            self._watched = psutil.Process(pid)

    def _used(self) -> tuple[float, int]:
        """Return the CPU seconds and resident bytes of the process."""
        try:
            times = self._watched.cpu_times()
            return times.user + times.system, int(self._watched.memory_info().rss)
        except psutil.Error:  # it has just ended
            return 0.0, 0


def is_known(syntax: UID) -> bool:
    """Whether pydicom has an available decoder for a transfer syntax."""
    try:
        return bool(get_decoder(syntax).is_available)
    except NotImplementedError:  # pydicom has no decoder class for it
        return False


def cannot_decode(syntax: UID) -> VolumeError:
    """Return the error for pixel data that is damaged or of an unsupported transfer syntax."""
    return VolumeError(
        f"DICOM pixels compressed as {syntax.name} cannot be decoded here, or they are damaged; "
        "decompress the series first, for example with gdcmconv --raw."
    )


def _too_much(job: _Job, what: str) -> VolumeError:
    return VolumeError(
        f"A DICOM file whose pixels are compressed as {job.syntax.name} takes more than {what} to "
        "decode, far more than its pixels need: the file is damaged; export it again, or leave it "
        "out."
    )


def _command() -> list[str]:
    return [python_program(), os.fspath(Path(__file__).with_name("gdcm_child.py"))]


def _bare(ds: FileDataset) -> Dataset:
    """Return the header of a Secondary Capture, in which GDCM transforms no values."""
    bare = Dataset()
    for keyword in _IMAGE_PIXEL:
        if keyword in ds:
            setattr(bare, keyword, ds[keyword].value)
    samples = int(ds.get("SamplesPerPixel") or 1)
    if samples == 1:
        bare.PhotometricInterpretation = "MONOCHROME2"
    kind = 3 if samples > 1 else 1 if int(ds.BitsAllocated) <= 8 else 2
    is_multiframe = int(ds.get("NumberOfFrames") or 1) > 1
    bare.SOPClassUID = _MULTIFRAME_CAPTURE[kind] if is_multiframe else SecondaryCaptureImageStorage
    bare.SOPInstanceUID = "1.2.3"
    bare.file_meta = FileMetaDataset()
    bare.file_meta.TransferSyntaxUID = ds.file_meta.TransferSyntaxUID
    return bare
