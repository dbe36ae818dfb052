"""Conversion of DICOM pixel data to intensities in output units: HU, Bq/ml or others."""

import logging
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pydicom
from pydicom.dataset import Dataset, FileDataset
from pydicom.pixels import apply_color_lut, apply_modality_lut
from pydicom.uid import ExplicitVRBigEndian

from pumit.errors import VolumeError
from pumit.geometry import Array
from pumit.io.dicom.decoding import keep_frame, stored_frames
from pumit.io.dicom.files import first_value, items_of
from pumit.io.dicom.gdcm_process import GdcmProcess
from pumit.io.dicom.slices import DicomSlice, frame_count
from pumit.io.parser_errors import is_absurd, parsing

logger = logging.getLogger(__name__)

_PET_UNITS = {"BQML": "Bq/ml", "GML": "SUV (g/ml)", "CM2ML": "SUV (cm²/ml)", "CNTS": "counts"}
_RESCALE_UNITS = {"HU": "HU", "MGML": "mg/ml", "PCT": "%"}
_INVERTED = (
    "The DICOM image stores black as its largest value (MONOCHROME1); like in Slicer, intensities "
    "are inverted, so that they grow with brightness."
)
_NOT_INVERTED = (
    "The DICOM image stores black as its largest value (MONOCHROME1), and its intensities have a "
    "unit: they stay as stated, while Slicer inverts them."
)


def read_pixels(slices: Sequence[DicomSlice], gdcm: GdcmProcess) -> Array:
    """Read slices of one size, in the given order.

    RescaleSlope and RescaleIntercept are applied slice by slice; PET has one pair per slice.
    Integers stay integers if the rescale allows it. Colour becomes RGB. MONOCHROME1 is inverted as
    GDCM and so Slicer do, before the rescale; not if intensities have a unit, or are stored as
    floating-point numbers. A warning says so.

    Returns:
        (D, H, W), or (3, D, H, W) for colour, or (frames, 1, H, W) for a cine.

    Raises:
        VolumeError: If pixel data is missing, damaged, or of an unsupported transfer syntax.
    """
    rows, columns, samples = slices[0].size
    with parsing("DICOM pixel data"):
        if len(slices) == 1 and (slices[0].is_separate or slices[0].times > 1):
            return _picture(slices[0], gdcm)
        shape = (len(slices), rows, columns) + ((samples,) if samples > 1 else ())
        array = np.empty(shape, dtype=_result_type(slices))
        _check_size(array, slices)
        of_file = [(path, list(own)) for path, own in groupby(slices, lambda s: s.file.path)]
        index = 0
        notes: dict[str, None] = {}
        objects = (pydicom.dcmread(path, force=True) for path, _ in of_file)
        for (_, own), (frames, ds) in zip(of_file, stored_frames(objects, gdcm), strict=True):
            frames = _finished(frames, ds, notes)
            for s in own:
                frame = _frame(frames, s, s.frame)
                if frame.shape != shape[1:]:
                    raise _not_as_promised(frames, s)
                values = _rescaled(frame, s)
                if not _fits(values, array.dtype):
                    array = array.astype(np.int32)
                array[index] = values
                index += 1
        _say(notes)
    return np.ascontiguousarray(np.moveaxis(array, -1, 0)) if samples > 1 else array


def intensity_unit(header: Dataset) -> str:
    """Return the unit of the rescaled intensities; empty if the header states none."""
    modality = str(first_value(header, "Modality") or "")
    if modality == "PT":
        return _PET_UNITS.get(str(first_value(header, "Units") or ""), "")
    if modality != "CT":  # converters copy HU into other scans
        return ""
    stated = _rescale_types(header)
    if any(stated):
        return _RESCALE_UNITS.get(str(next(filter(None, stated))), "")
    # An original CT Image is in HU unless it states another unit (PS3.3 C.8.2.1.1).
    kind = [str(word) for word in first_value(header, "ImageType") or ()]
    is_scan = kind[:1] == ["ORIGINAL"] and "LOCALIZER" not in kind
    return "HU" if is_scan and first_value(header, "RescaleIntercept") is not None else ""


def _rescale_types(header: Dataset) -> list[Any]:
    """Return RescaleType of the header, of shared groups and of the first frame; None if absent."""
    shared = items_of(header, "SharedFunctionalGroupsSequence")
    frames = items_of(header, "PerFrameFunctionalGroupsSequence")
    groups = (items_of(g, "PixelValueTransformationSequence") for g in (*shared, *frames[:1]))
    return [first_value(item, "RescaleType") for item in (header, *(g[0] for g in groups if g))]


def _check_size(array: Array, slices: Sequence[DicomSlice]) -> None:
    """Refuse a series that announces far more pixels than its files can hold."""
    held = sum(path.stat().st_size for path in {s.file.path for s in slices})
    if is_absurd(array.nbytes, held):
        raise VolumeError(
            f"The series states {array.nbytes / 2**30:.1f} GiB of pixels, far more than its "
            "files can hold: it is damaged; export it again."
        )


def _frame(frames: Array, s: DicomSlice, number: int) -> Array:
    """Return the pixels of a slice: a frame, or one tile of a mosaic."""
    if number >= len(frames):
        raise _not_as_promised(frames, s)
    if s.tile is None:
        return frames[number]
    row, column, rows, columns = s.tile
    return frames[number][row : row + rows, column : column + columns]


def _not_as_promised(frames: Array, s: DicomSlice) -> VolumeError:
    return VolumeError(
        f"A DICOM file holds {len(frames)} frames of {frames.shape[1:3]} pixels, but its header "
        f"states frame {s.frame + s.times} of {s.size[:2]}; export the series again."
    )


def _picture(s: DicomSlice, gdcm: GdcmProcess) -> Array:
    """Read a single image; several frames are time points."""
    ds = pydicom.dcmread(s.file.path, force=True)
    first = keep_frame(ds, s.frame) if s.times < frame_count(ds) else s.frame
    notes: dict[str, None] = {}
    ((stored, ds),) = stored_frames([ds], gdcm)
    decoded = _finished(stored, ds, notes)
    _say(notes)
    frames = [_frame(decoded, s, first + k) for k in range(s.times)]
    array = np.stack([_rescaled(frame, s) for frame in frames])
    if _fits(array, _result_type([s])):
        array = array.astype(_result_type([s]))
    if array.ndim == 4:
        return np.ascontiguousarray(np.moveaxis(array, -1, 0))
    return array if len(array) == 1 else array[:, None]


def _is_exact(s: DicomSlice) -> bool:
    header = s.file.header
    has_table = bool(header.get("ModalityLUTSequence"))
    is_integer = int(header.get("BitsAllocated") or 16) <= 16
    return s.slope == 1 and s.intercept == round(s.intercept) and is_integer and not has_table


def _result_type(slices: Sequence[DicomSlice]) -> np.dtype[Any]:
    """Return the smallest type for the intensities: integers of at most 16 bits, or float32.

    A CT may announce 16 unsigned bits and use 12, so the voxels decide whether int32 is needed.
    """
    if not all(_is_exact(s) for s in slices):
        return np.dtype(np.float32)
    low = high = 0.0
    for s in slices:
        bits = min(int(s.file.header.get("BitsStored") or 16), 16)
        is_signed = int(s.file.header.get("PixelRepresentation") or 0) == 1
        first, last = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)
        low, high = min(low, first + s.intercept), max(high, last + s.intercept)
    for kind in (np.uint8, np.int16, np.uint16):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return np.dtype(kind)
    return np.dtype(np.int16)


def _fits(values: Array, dtype: np.dtype[Any]) -> bool:
    if dtype.kind == "f":
        return True
    limits = np.iinfo(dtype)
    return bool(limits.min <= values.min() and values.max() <= limits.max)


def _rescaled(stored: Array, s: DicomSlice) -> Array:
    if stored.dtype.kind == "f" or (s.slope, s.intercept) == (1, 0):
        return stored
    return np.asarray(stored * np.float64(s.slope) + s.intercept)


def _finished(array: Array, ds: FileDataset, notes: dict[str, None]) -> Array:
    """Apply lookup tables and invert MONOCHROME1; add to `notes` what should be said once.

    Floating-point frames are intensities, integers are stored values.
    """
    is_dark = str(ds.get("PhotometricInterpretation", "")) == "MONOCHROME1"
    is_inverted = is_dark and array.dtype.kind in "iu" and not _has_unit(ds)
    if is_dark and array.dtype.kind in "iu":
        notes[_INVERTED if is_inverted else _NOT_INVERTED] = None
    if ds.get("PhotometricInterpretation") == "PALETTE COLOR":
        array = _palette(array, ds)
    elif ds.get("ModalityLUTSequence"):
        array = np.asarray(apply_modality_lut(array, ds)).astype(np.float32)
        if is_inverted:
            array = np.float32(2 ** int(ds.ModalityLUTSequence[0].LUTDescriptor[2]) - 1) - array
    elif is_inverted:
        array = _inverted(array, int(ds.get("BitsStored") or ds.BitsAllocated))
    ds.pop("PixelData", None)  # no longer needed, and may be as large as the decoded array
    return array


def _say(notes: Iterable[str]) -> None:
    for note in notes:
        logger.warning(note)


def _has_unit(ds: Dataset) -> bool:
    """Whether intensities mean a quantity, such as HU or optical density."""
    tables = items_of(ds, "ModalityLUTSequence")
    types = [*_rescale_types(ds), *(first_value(table, "ModalityLUTType") for table in tables)]
    return bool(intensity_unit(ds)) or any(str(t) != "US" for t in types if t)


def _inverted(stored: Array, bits: int) -> Array:
    """Exchange the smallest and the largest of the values that `bits` can hold."""
    complement = ~stored
    if stored.dtype.kind == "u":
        complement &= stored.dtype.type(2 ** min(bits, 8 * stored.dtype.itemsize) - 1)
    return complement


def _palette(indices: Array, ds: FileDataset) -> Array:
    colours = np.asarray(apply_color_lut(indices, _little_endian_tables(ds)))
    # Entries of 8-bit tables may be stored in 16 bits.
    bits = int(ds.RedPaletteColorLookupTableDescriptor[2])
    if colours.dtype == np.uint16:
        colours = (colours >> 8 if bits > 8 else colours).astype(np.uint8)
    return colours[..., :3]


def _little_endian_tables(ds: FileDataset) -> Dataset:
    """Swap palette data of a big-endian object to the little-endian order that pydicom expects."""
    if ds.file_meta.TransferSyntaxUID != ExplicitVRBigEndian:
        return ds
    for colour in ("Red", "Green", "Blue", "Alpha"):
        keyword = f"{colour}PaletteColorLookupTableData"
        if keyword in ds and ds[keyword].VR == "OW":
            words = np.frombuffer(ds[keyword].value, dtype=np.uint16)
            ds[keyword].value = words.byteswap().tobytes()
    return ds
