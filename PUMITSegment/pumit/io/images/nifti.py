"""Reader of NIfTI-1 and NIfTI-2 files, compressed or not.

ITK silently fills a truncated file with zeros and replaces a sheared affine by the nearest
rotation. So the voxels are read here, with length and checksum verified, and ITK only provides the
geometry.
"""

import gzip
import logging
import re
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path

import numpy as np
import numpy.typing as npt
import SimpleITK

from pumit.errors import VolumeError
from pumit.file_image import FileImage
from pumit.geometry import Array, Floats, is_sheared, planar_step
from pumit.io.parser_errors import MAX_COMPRESSION, muted_stderr, parsing
from pumit.system.wording import times

logger = logging.getLogger(__name__)

# NumPy type and samples per voxel by NIfTI data type code.
_TYPES: dict[int, tuple[str, int]] = {
    2: ("u1", 1),
    4: ("i2", 1),
    8: ("i4", 1),
    16: ("f4", 1),
    64: ("f8", 1),
    128: ("u1", 3),
    256: ("i1", 1),
    512: ("u2", 1),
    768: ("u4", 1),
    1024: ("i8", 1),
    1280: ("u8", 1),
    2304: ("u1", 4),
}
# Codes 1 (scanner) and 2 (aligned to another scan) both mean the patient's own space.
_PATIENT_SPACE = (1, 2)
_RAS_TO_LPS = np.diag([-1.0, -1.0, 1.0])
_CHUNK_BYTES = _BLOCK_VALUES = 1 << 20
# Voxel sizes that differ by a smaller part are the same, rounded differently.
_SAME_SIZE = 0.01
# A quaternion's b, c, d have at most length 1, plus what rounding to four digits adds.
_LONGEST_SQUARED = 1.001


@dataclass(frozen=True)
class _Header:
    """Header fields in use, of either version; names as in the standard."""

    order: str  # "<" or ">"
    is_pair: bool  # whether voxels are in a separate .img file
    dim_info: int
    dim: tuple[int, ...]  # 8
    datatype: int
    pixdim: tuple[float, ...]  # 8
    vox_offset: int
    scl_slope: float
    scl_inter: float
    xyzt_units: int
    qform_code: int
    sform_code: int
    quatern: tuple[float, ...]  # b, c, d, then the offsets x, y, z
    srow: tuple[float, ...]  # 12

    @property
    def shape(self) -> tuple[int, ...]:
        """(w, h, d, time, components); absent axes have size 1."""
        sizes = [max(self.dim[i], 1) if i <= self.dim[0] else 1 for i in range(1, 8)]
        return tuple(sizes)

    @property
    def sform(self) -> Floats:
        """3 x 4, RAS mm."""
        return np.array(self.srow, dtype=np.float64).reshape(3, 4)


def is_nifti(start: bytes) -> bool:
    """Return whether the first four bytes of a decompressed file are those of a NIfTI header."""
    size = start[:4]
    return len(size) == 4 and any(int.from_bytes(size, o) in (348, 540) for o in ("little", "big"))


def read_nifti(path: Path, *, only_grid: bool = False) -> FileImage:
    """Read a NIfTI file; time points and vector components become channels.

    Intensities are scaled by scl_slope and scl_inter, if set. A sheared sform in the patient's own
    space is used unchanged, so that the scan can be resampled onto a perpendicular grid. Otherwise
    ITK chooses between sform and qform. A warning is logged if they state different voxel sizes or
    places, or if ITK and Slicer use the qform beside a sheared sform. A single slice is planar.

    Args:
        only_grid: Whether to read the header only; voxels are then all zero.

    Raises:
        VolumeError: If the file is damaged, truncated, complex-valued, or has no usable grid: for
            example a negative voxel spacing, by which ITK and Slicer mirror the scan and other
            programs do not, or an invalid quaternion that ITK would use.
    """
    with parsing("NIfTI file"):
        with _opened(path) as (stream, limit_bytes):
            header = _parse(stream.read(544), path)
            if only_grid:
                array: Array = np.broadcast_to(np.uint8(0), header.shape[2::-1])
            elif not header.is_pair:
                array = _read_voxels(stream, header, limit_bytes)
        if header.is_pair and not only_grid:
            with _opened(_voxels_of(path)) as (stream, limit_bytes):
                array = _read_voxels(stream, header, limit_bytes)
        steps, origin = _geometry(header)
        if header.dim[0] < 3:  # the third step of a 2D image is meaningless
            steps = np.column_stack([steps[:, :2], planar_step(steps)])
        code = header.dim_info >> 4 & 3  # 1, 2 or 3 for W, H or D; 0 for unknown
        return FileImage(array, steps, origin, slice_axis=3 - code if code else None)


def header_file(path: Path) -> Path:
    """Return the .hdr file of a given .img file; any other path unchanged."""
    return _partner(path, "img", "hdr") or path


def _voxels_of(path: Path) -> Path:
    found = _partner(path, "hdr", "img")
    if found is None:
        raise VolumeError(
            "The NIfTI header refers to an .img file of the same name, which is missing; copy "
            "both files into one folder."
        )
    return found


def _partner(path: Path, own: str, other: str) -> Path | None:
    """Return the other file of a pair; None if it is missing, or the path has another suffix."""
    name = re.fullmatch(rf"(.*)\.{own}(\.gz)?", path.name, re.IGNORECASE | re.DOTALL)
    if name is None:
        return None
    names = [f"{name[1]}.{suffix}{z}" for suffix in (other, other.upper()) for z in ("", ".gz")]
    return next((f for f in map(path.with_name, names) if f.is_file()), None)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BufferedIOBase, int]]:
    """Open a file for reading decompressed bytes; also yield their largest possible number."""
    size = path.stat().st_size
    with path.open("rb") as raw:
        is_compressed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        if is_compressed:
            with gzip.GzipFile(fileobj=raw) as stream:
                yield stream, size * MAX_COMPRESSION
        else:
            yield raw, size


def _parse(data: bytes, path: Path) -> _Header:
    if len(data) < 348 or not is_nifti(data):
        raise VolumeError("The NIfTI file ends within its header; copy or export it again.")
    order = "<" if data[0] in (0x5C, 0x1C) else ">"
    is_version_1 = struct.unpack_from(order + "i", data)[0] == 348

    def take(kind: str, offset_1: int, offset_2: int) -> tuple[float, ...]:
        # Version 2 has the same fields with wider types at other offsets; `kind` is the count and
        # the type in each version.
        count, type_1, type_2 = kind.split()
        form = count + (type_1 if is_version_1 else type_2)
        return struct.unpack_from(order + form, data, offset_1 if is_version_1 else offset_2)

    if not is_version_1 and len(data) < 540:
        raise VolumeError("The NIfTI file ends within its header; copy or export it again.")
    magic = data[344:347] if is_version_1 else data[4:7]
    # Some programs mark a single file as a pair, so check the file name too.
    is_named_pair = re.search(r"\.(hdr|img)(\.gz)?$", path.name, re.IGNORECASE)
    is_pair = magic in (b"ni1", b"ni2") and is_named_pair is not None
    if magic not in (b"n+1", b"n+2", b"ni1", b"ni2") and len(data) <= 348:
        raise VolumeError(
            "The file is in Analyze 7.5 format, which does not distinguish left from right; "
            "convert it to NIfTI with the program that wrote it."
        )
    smallest = 0 if is_pair else 352 if is_version_1 else 544
    header = _Header(
        order=order,
        is_pair=is_pair,
        dim_info=int(take("1 B B", 39, 524)[0]),
        dim=tuple(int(n) for n in take("8 h q", 40, 16)),
        datatype=int(take("1 h h", 70, 12)[0]),
        pixdim=take("8 f d", 76, 104),
        vox_offset=_offset(take("1 f q", 108, 168)[0], smallest),
        scl_slope=take("1 f d", 112, 176)[0],
        scl_inter=take("1 f d", 116, 184)[0],
        xyzt_units=int(take("1 B i", 123, 500)[0]),
        qform_code=int(take("1 h i", 252, 344)[0]),
        sform_code=int(take("1 h i", 254, 348)[0]),
        quatern=take("6 f d", 256, 352),
        srow=take("12 f d", 280, 400),
    )
    _check(header)
    return header


def _offset(value: float, smallest: int) -> int:
    # Old writers leave the field empty.
    if value == 0:
        return smallest
    if not smallest <= value < 2**40:
        raise VolumeError(
            f"The NIfTI header states an impossible voxel offset, {value:g} bytes; export the "
            "scan again."
        )
    return int(value)


def _check(header: _Header) -> None:
    if (
        not 1 <= header.dim[0] <= 7
        or min(header.dim[1 : header.dim[0] + 1]) < 0
        or header.dim[1] < 1
    ):
        raise VolumeError(
            f"The NIfTI header states an impossible size {header.dim}; export the scan again."
        )
    if header.datatype not in _TYPES:
        raise VolumeError(
            f"The NIfTI data type {header.datatype} is not supported (complex, 128-bit or "
            "unknown); convert the scan to integers or 32-bit floats."
        )
    if max(header.shape[5:]) > 1 or (header.shape[3] > 1 and header.shape[4] > 1):
        raise VolumeError(
            f"The NIfTI file has {header.dim[0]} dimensions {header.dim[1:]}; PUMIT reads three "
            "spatial dimensions with either time or components: split it first."
        )
    spacing = [header.pixdim[i + 1] for i in range(3) if header.shape[i] > 1]
    if not np.isfinite(spacing).all() or min(spacing, default=1.0) <= 0:
        stated = times(float(f"{v:.4g}") for v in header.pixdim[1:4])
        raise VolumeError(
            f"The NIfTI header states a voxel spacing of {stated} mm; it must be positive, or "
            "programs disagree on left and right: correct the header, or export the scan again."
        )


def _read_voxels(stream: BufferedIOBase, header: _Header, limit_bytes: int) -> Array:
    """Read scaled voxels as (D, H, W) or (C, D, H, W)."""
    kind, samples = _TYPES[header.datatype]
    w, h, d, time, components = header.shape[:5]
    shape = (components, time, d, h, w, samples)
    dtype = np.dtype(header.order + kind)
    count = int(np.prod(shape, dtype=object))
    expected = header.vox_offset + count * dtype.itemsize
    if expected > limit_bytes:
        raise VolumeError(
            f"The NIfTI file is truncated or its header is damaged: the header states {expected} "
            f"bytes, the file holds at most {limit_bytes}; copy or export it again."
        )
    stream.seek(header.vox_offset)
    values = np.empty(count, dtype=dtype)
    buffer, done = values.view(np.uint8).data, 0
    while done < len(buffer) and (size := stream.readinto(buffer[done : done + _CHUNK_BYTES])):
        done += size
    if done < len(buffer):
        raise VolumeError(
            f"The NIfTI file is truncated: it holds {done} of {len(buffer)} bytes of voxels; "
            "copy or export it again."
        )
    # Read to the end of the file, where gzip compares the checksum.
    while stream.read(_CHUNK_BYTES):
        pass
    array = values.astype(dtype.newbyteorder("="), copy=False).reshape(shape)
    if samples > 1:  # drop the alpha of RGBA
        array = np.ascontiguousarray(np.moveaxis(array[0, 0, ..., :3], -1, 0))
    else:
        array = array[..., 0].reshape((components * time, d, h, w))
    array = array[0] if len(array) == 1 else array
    return _scaled(array, header)


def _scaled(array: Array, header: _Header) -> Array:
    slope, inter = header.scl_slope, header.scl_inter
    is_scaled = slope != 0 and np.isfinite([slope, inter]).all() and (slope, inter) != (1, 0)
    if not is_scaled:
        return array
    exact: npt.DTypeLike = np.float64 if array.dtype.itemsize > 2 else np.float32
    if array.dtype == np.float32:
        exact = np.float32
    result = np.empty(array.shape, dtype=exact)
    # Block by block: double precision without a second copy of the scan.
    stored, scaled = array.reshape(-1), result.reshape(-1)
    for start in range(0, len(stored), _BLOCK_VALUES):
        block = slice(start, start + _BLOCK_VALUES)
        scaled[block] = stored[block] * np.float64(slope) + np.float64(inter)
    return result


def _geometry(header: _Header) -> tuple[Floats, Floats]:
    """Return steps (columns W, H, D) and origin in LPS mm."""
    sform, sform_code = header.sform, header.sform_code
    if sform_code > 0 and not np.isfinite(sform).all():
        # ITK may loop forever on non-finite numbers, so replace them.
        if header.qform_code <= 0:
            raise VolumeError(
                "The NIfTI header's sform has values that are not finite; export the scan again."
            )
        sform, sform_code = np.zeros_like(sform), 0
    _check_quaternion(header, sform, sform_code)
    is_patient = header.qform_code == 0 or sform_code in _PATIENT_SPACE
    speaks_of_patient = sform_code > 0 and is_patient and bool(sform[:, :3].any())
    unit_mm = {1: 1000.0, 3: 0.001}.get(header.xyzt_units & 0x07, 1.0)
    lps = _RAS_TO_LPS @ sform * unit_mm
    by_itk = _by_itk(header, sform, qform_code=header.qform_code, sform_code=sform_code)
    if speaks_of_patient and is_sheared(sform[:, :3]):
        if by_itk is not None:
            _warn_of_shear(header, lps, by_itk)
        return lps[:, :3], lps[:, 3]
    if by_itk is None:
        # ITK asks for a more exact right angle than PUMIT, and has no qform to use instead.
        if not sform[:, :3].any(axis=0).all():
            raise VolumeError(
                "The NIfTI header's sform has an axis of length zero, and there is no qform; "
                "correct the header, or export the scan again."
            )
        return lps[:, :3], lps[:, 3]
    used, other = (np.linalg.norm(grid[:, :3], axis=0) for grid in (by_itk, lps))
    is_axis = np.array(header.shape[:3]) > 1
    if speaks_of_patient and not np.allclose(
        used[is_axis], other[is_axis], rtol=_SAME_SIZE, atol=0
    ):
        logger.warning(
            "The NIfTI header states two voxel sizes, %s mm (used) and %s mm (its sform): sizes "
            "and volumes may be wrong; correct the header.",
            *(times(float(f"{v:.4g}") for v in sizes) for sizes in (used, other)),
        )
    elif header.qform_code > 0 and sform_code > 0 and sform[:, :3].any():
        _warn_of_two_places(header, lps, _by_itk(header, sform, qform_code=1, sform_code=0))
    return by_itk[:, :3], by_itk[:, 3]


def _check_quaternion(header: _Header, sform: Floats, sform_code: int) -> None:
    """Refuse an invalid qform, unless ITK reads the same grid without it."""
    if header.qform_code <= 0:
        return
    b, c, d = header.quatern[:3]
    # Not `>`, so that NaN is refused too.
    if np.isfinite(header.quatern).all() and b * b + c * c + d * d <= _LONGEST_SQUARED:
        return
    alone = None if sform_code <= 0 else _by_itk(header, sform, qform_code=0, sform_code=sform_code)
    if np.isfinite(header.quatern).all() and alone is not None:
        both = _by_itk(header, sform, qform_code=header.qform_code, sform_code=sform_code)
        if both is not None and np.allclose(both, alone, rtol=0, atol=1e-4):
            return
    raise VolumeError(
        "The NIfTI header's qform is invalid: its quaternion is longer than 1 or not finite, so "
        "the orientation is unknown; correct the header, or export the scan again."
    )


def _away_mm(header: _Header, lps: Floats, other: Floats) -> float:
    """Return how far apart two grids put a voxel at most; 0 if by less than half a voxel."""
    last = np.array(header.shape[:3]) - 1
    corners = np.array(list(np.ndindex(2, 2, 2))) * last
    away = np.column_stack([corners, np.ones(8)]) @ (other - lps).T
    away_mm = float(np.linalg.norm(away, axis=1).max())
    sizes_mm = np.linalg.norm(lps[:, :3], axis=0)[last > 0]
    return away_mm if away_mm > sizes_mm.min(initial=np.inf) / 2 else 0.0


def _warn_of_two_places(header: _Header, lps: Floats, by_qform: Floats | None) -> None:
    if by_qform is not None and (away_mm := _away_mm(header, lps, by_qform)):
        logger.warning(
            "The NIfTI header's qform and sform put voxels up to %.4g mm apart; PUMIT follows the "
            "one that ITK and Slicer follow: in programs that follow the other one, results do "
            "not fit the scan.",
            away_mm,
        )


def _warn_of_shear(header: _Header, lps: Floats, by_itk: Floats) -> None:
    """Say how far a sheared sform is from the qform, by which ITK and Slicer read the scan."""
    if away_mm := _away_mm(header, lps, by_itk):
        logger.warning(
            "The NIfTI header's sform is sheared; PUMIT follows it, but ITK and Slicer use the "
            "qform, by which voxels are up to %.4g mm away: results do not fit the scan there.",
            away_mm,
        )


def _by_itk(header: _Header, sform: Floats, *, qform_code: int, sform_code: int) -> Floats | None:
    """Return steps (columns W, H, D) and origin by ITK, 3 x 4, LPS mm; None if it refuses them."""
    # Give ITK another header with the same geometry: version 1, little-endian, uint8.
    spacing = [abs(s) if np.isfinite(s) and s != 0 else 1.0 for s in header.pixdim[1:4]]
    data = bytearray(352)
    struct.pack_into("<i", data, 0, 348)
    struct.pack_into("<8h", data, 40, 3, 2, 2, 2, 1, 1, 1, 1)
    struct.pack_into("<2h", data, 70, 2, 8)
    struct.pack_into("<8f", data, 76, header.pixdim[0], *spacing, 0, 0, 0, 0)
    struct.pack_into("<f", data, 108, 352)
    struct.pack_into("<B", data, 123, header.xyzt_units & 0xFF)
    struct.pack_into("<2h", data, 252, qform_code, sform_code)
    struct.pack_into("<6f", data, 256, *header.quatern)
    struct.pack_into("<12f", data, 280, *sform.ravel())
    data[344:348] = b"n+1\0"
    with tempfile.TemporaryDirectory(prefix="pumit-") as folder, muted_stderr():
        file = Path(folder) / "header.nii"
        file.write_bytes(data)
        reader = SimpleITK.ImageFileReader()
        reader.SetImageIO("NiftiImageIO")
        reader.SetFileName(str(file))
        try:
            reader.ReadImageInformation()
        except RuntimeError:
            return None
    direction = np.array(reader.GetDirection()).reshape(3, 3)
    return np.column_stack([direction * np.array(reader.GetSpacing()), reader.GetOrigin()])
