"""Decoding of DICOM pixel data to stored values, before any rescale, lookup table or inversion.

All decoders return the same values; `pixels` converts them to intensities.
"""

import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np
from pydicom.dataset import Dataset, FileDataset
from pydicom.encaps import encapsulate, generate_frames
from pydicom.pixels import iter_pixels, pixel_array
from pydicom.pixels.decoders.rle import _rle_decode_segment, _rle_parse_header
from pydicom.pixels.utils import get_expected_length
from pydicom.uid import UID, ExplicitVRLittleEndian, ImplicitVRLittleEndian, RLELossless

from pumit.errors import VolumeError
from pumit.geometry import Array
from pumit.io.dicom.codestream import check_frame, frame_bytes
from pumit.io.dicom.gdcm_process import GdcmProcess, cannot_decode, is_known
from pumit.io.parser_errors import MAX_COMPRESSION, is_absurd, parser_errors

DEFLATED_FRAMES = UID("1.2.840.10008.1.2.8.1")


def stored_frames(
    files: Iterable[FileDataset], gdcm: GdcmProcess
) -> Iterator[tuple[Array, FileDataset]]:
    """Decode all frames of each file, one file at a time.

    pydicom's decoders are tried first. Unsupported transfer syntaxes, and codestreams unlike those
    that scanners write, go to GDCM in a process with limited memory and time.

    Args:
        files: Complete objects with pixel data.

    Yields:
        (F, H, W), or (F, H, W, 3) in RGB, and the object. Floating-point pixels are intensities;
        integers are stored values, which no decoder has rescaled, inverted or mapped through a
        lookup table.

    Raises:
        VolumeError: If pixel data is missing, contradicts the header, or no decoder here supports
            its transfer syntax.
    """
    unknown: set[UID] = set()  # transfer syntaxes that pydicom cannot decode
    waiting: deque[FileDataset] = deque()  # submitted to GDCM
    for ds in files:
        _check_size(ds)
        is_for_gdcm = ds.file_meta.TransferSyntaxUID in unknown or not _is_for_pydicom(ds)
        if is_for_gdcm:
            gdcm.submit(ds)
            waiting.append(ds)
        # Yield earlier files, which GDCM decoded while this one was read.
        while gdcm.is_full if is_for_gdcm else waiting:
            yield gdcm.result(), waiting.popleft()
        if not is_for_gdcm:
            yield _first_by_pydicom(ds, gdcm, unknown), ds
    while waiting:
        yield gdcm.result(), waiting.popleft()


def keep_frame(ds: FileDataset, index: int) -> int:
    """Drop the other frames of an object before decoding, where they can be told apart.

    The object is changed. The whole of it is checked as by `stored_frames`, which then decodes what
    is left.

    Returns:
        The index of the frame in what is left.

    Raises:
        VolumeError: If pixel data is missing, damaged, or contradicts the header.
    """
    _check_size(ds)
    syntax = ds.file_meta.TransferSyntaxUID
    if is_deflated(syntax) or syntax.is_compressed:
        _is_for_pydicom(ds)  # refuses damaged frames
        frame = next(islice(_encoded_frames(ds), index, None), None)
        kept = None if frame is None else encapsulate([frame])
    else:
        kept = _plain_frame(ds, index)
    if kept is None:
        return index
    ds["PixelData"].value, ds.NumberOfFrames = kept, 1
    for keyword in ("ExtendedOffsetTable", "ExtendedOffsetTableLengths"):
        ds.pop(keyword, None)
    return 0


def _plain_frame(ds: FileDataset, index: int) -> bytes | None:
    """Return the bytes of an uncompressed frame, or None if they are not plainly its own."""
    data, count = ds.get("PixelData", b""), int(ds.NumberOfFrames)
    size = get_expected_length(ds) // count
    is_whole = int(ds.BitsAllocated) >= 8 and len(data) == count * size + count * size % 2
    if index >= count or not is_whole or not ds.file_meta.TransferSyntaxUID.is_little_endian:
        return None
    return bytes(data[index * size : (index + 1) * size]) + b"\0" * (size % 2)


def _first_by_pydicom(ds: FileDataset, gdcm: GdcmProcess, unknown: set[UID]) -> Array:
    syntax = ds.file_meta.TransferSyntaxUID
    if is_deflated(syntax):
        return np.stack([_inflated(ds, encoded) for encoded in _encoded_frames(ds)])
    try:
        array = pixel_array(ds)
        frame_axes = 3 if int(ds.get("SamplesPerPixel") or 1) > 1 else 2
        return array[None] if array.ndim == frame_axes else array
    except parser_errors():
        if not syntax.is_compressed:
            raise
    gdcm.submit(ds)
    array = gdcm.result()
    unknown.add(syntax)
    return array


def _check_size(ds: FileDataset) -> None:
    """Refuse an object without pixel data, or with far fewer bytes than its pixels need."""
    if "PixelData" not in ds and "FloatPixelData" not in ds and "DoubleFloatPixelData" not in ds:
        raise VolumeError("A DICOM file of the series has no pixel data; export it again.")
    if "TransferSyntaxUID" not in ds.file_meta:  # uncompressed, with the VR encoding as read
        is_implicit = ds.original_encoding[0]
        ds.file_meta.TransferSyntaxUID = (
            ImplicitVRLittleEndian if is_implicit else ExplicitVRLittleEndian
        )
    syntax = ds.file_meta.TransferSyntaxUID
    if not is_deflated(syntax) and not syntax.is_compressed:
        return  # pydicom checks the length of uncompressed data
    size = frame_bytes(ds) * max(int(ds.get("NumberOfFrames") or 1), 1)
    if is_absurd(size, len(ds.PixelData)):
        raise VolumeError(
            f"A DICOM file states {size / 2**30:.1f} GiB of pixels, far more than it can hold: "
            "it is damaged; export it again."
        )


def _is_for_pydicom(ds: FileDataset) -> bool:
    """Whether pydicom can and should decode an object.

    Raises:
        VolumeError: If its compressed frames are damaged, missing, or contradict the header.
    """
    syntax = ds.file_meta.TransferSyntaxUID
    if is_deflated(syntax) or not syntax.is_compressed:
        return True
    try:
        checked = [check_frame(ds, encoded) for encoded in _encoded_frames(ds)]
    except VolumeError:
        raise
    except parser_errors() as error:
        raise cannot_decode(syntax) from error
    if len(checked) < int(ds.get("NumberOfFrames") or 1):
        raise cannot_decode(syntax)
    return all(checked) and is_known(syntax)


def frames_one_by_one(ds: FileDataset, indices: list[int]) -> Iterator[Array]:
    """Return the stored values of selected frames, (Rows, Columns), in order, one at a time.

    1-bit frames, compressed or not, are unpacked to 0 and 1.
    """
    syntax = ds.file_meta.TransferSyntaxUID
    is_packed = int(ds.BitsAllocated) == 1
    if is_deflated(syntax) or (is_packed and syntax == RLELossless):
        decode = _inflated if is_deflated(syntax) else _packed_run_lengths
        encoded = list(_encoded_frames(ds))
        return (decode(ds, encoded[index]) for index in indices)
    if not _is_for_pydicom(ds):
        with GdcmProcess() as gdcm:
            ((whole, _),) = stored_frames([ds], gdcm)
        return iter([whole[index] for index in indices])
    if is_packed and not syntax.is_compressed:
        return _bits(ds, indices)
    return iter_pixels(ds, indices=indices, raw=True)


def is_deflated(syntax: UID) -> bool:
    """Whether frames are deflated one by one (PS3.5 A.4.13), unsupported by pydicom 3.0."""
    return syntax == DEFLATED_FRAMES


def _bits(ds: Dataset, indices: list[int]) -> Iterator[Array]:
    """Unpack 1-bit frames, which may start within a byte (pydicom 3.0 loses their ends)."""
    size = int(ds.Rows) * int(ds.Columns)
    packed = np.frombuffer(ds.PixelData, dtype=np.uint8)
    for index in indices:
        first = index * size
        part = packed[first // 8 : (first + size + 7) // 8]
        bits = np.unpackbits(part, bitorder="little")[first % 8 :][:size]
        yield bits.reshape(int(ds.Rows), int(ds.Columns))


def _encoded_frames(ds: Dataset) -> Iterator[bytes]:
    """Yield the encapsulated frames, located as pydicom does."""
    count = max(int(ds.get("NumberOfFrames") or 1), 1)
    offsets, lengths = ds.get("ExtendedOffsetTable"), ds.get("ExtendedOffsetTableLengths")
    extended = (offsets, lengths) if offsets and lengths else None
    frames = generate_frames(ds.PixelData, number_of_frames=count, extended_offsets=extended)
    yield from islice(frames, count if extended else None)


def _inflated(ds: Dataset, encoded: bytes) -> Array:
    samples = int(ds.get("SamplesPerPixel") or 1)
    shape = (int(ds.Rows), int(ds.Columns)) + ((samples,) if samples > 1 else ())
    if samples > 1 and int(ds.get("PlanarConfiguration") or 0):
        raise VolumeError("Deflated colour frames by plane cannot be read; decompress the file.")
    bits, count = int(ds.BitsAllocated), int(np.prod(shape))
    size = (count * bits + 7) // 8
    if size > len(encoded) * MAX_COMPRESSION or is_absurd(count, len(encoded)):
        raise ValueError("a frame too short for its size")
    data = zlib.decompressobj(-zlib.MAX_WBITS).decompress(encoded, size)
    if bits == 1:
        return _unpacked(data, shape)
    kind = "i" if int(ds.get("PixelRepresentation") or 0) else "u"
    values = np.frombuffer(data, dtype=f"<{kind}{bits // 8}", count=count)
    return values.reshape(shape).astype(values.dtype.newbyteorder("="))


def _packed_run_lengths(ds: Dataset, encoded: bytes) -> Array:
    """Decode a 1-bit frame from a single RLE segment, as dcmqi writes it."""
    (first, *more) = _rle_parse_header(encoded[:64])
    if more:
        raise ValueError("packed bits in several segments")
    return _unpacked(bytes(_rle_decode_segment(encoded[first:])), (int(ds.Rows), int(ds.Columns)))


def _unpacked(data: bytes, shape: tuple[int, ...]) -> Array:
    size = int(np.prod(shape))
    if len(data) * 8 < size:
        raise ValueError("a frame too short for its size")
    packed = np.frombuffer(data, dtype=np.uint8)
    return np.unpackbits(packed, bitorder="little")[:size].reshape(shape)
