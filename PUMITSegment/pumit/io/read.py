"""Reading of scans in all supported formats, detected by content, not by extension."""

import gzip
import logging
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pumit.errors import VolumeError
from pumit.file_image import FileImage, finite_voxels
from pumit.io.parser_errors import parsing

logger = logging.getLogger(__name__)

_Kind = Literal["folder", "zip", "DICOM", "NIfTI", "NRRD", "MetaImage", "picture"]
_START_BYTES = 1024


def read_image(path: Path, *, series: str | None = None) -> FileImage:
    """Read NIfTI, NRRD, MetaImage, DICOM (folder, zip or file), PNG or JPEG.

    Intensities are unchanged: HU stays HU. NaN and infinite voxels, which registered scans have
    outside their field of view, get the smallest finite value; a scan with more than half of them
    is refused. Time points, vector components and colours are channels, (C, D, H, W). A single
    slice is planar in every format.

    Args:
        path: File or folder. Folders and zips are searched for DICOM, subfolders included.
        series: SeriesInstanceUID, for a DICOM folder or zip with several series; `#k` appended
            selects the k-th stack of the series. Ignored for other formats.

    Returns:
        The image; `source` holds its DICOM files.

    Raises:
        VolumeError: If the path holds no usable scan.
        AmbiguousSeriesError: If there are several series or stacks and none was chosen.
    """
    path, kind = _found(path)
    if kind in ("folder", "zip", "DICOM"):
        image = _read_dicom(path, kind, series)
    elif kind == "picture":
        from pumit.io.images.picture import read_picture

        image = read_picture(path)
    else:
        image = _read_file(path, kind)
    logger.debug("Read a %s of shape %s, %s.", kind, image.array.shape, image.array.dtype)
    array = finite_voxels(image.array)
    return image if array is image.array else replace(image, array=array)


def read_grid(path: Path) -> FileImage | None:
    """Return the grid of NIfTI, NRRD or MetaImage by its header, with voxels that are all zero.

    None for another format.

    Raises:
        VolumeError: If the path holds no scan.
    """
    path, kind = _found(path)
    is_known = kind in ("NIfTI", "NRRD", "MetaImage")
    return _read_file(path, kind, only_grid=True) if is_known else None


def _read_file(path: Path, kind: _Kind, *, only_grid: bool = False) -> FileImage:
    if kind == "NIfTI":
        from pumit.io.images.nifti import read_nifti

        return read_nifti(path, only_grid=only_grid)
    from pumit.io.images.itk_image import read_itk_image

    return read_itk_image(path, kind, only_grid=only_grid)


def _found(path: Path) -> tuple[Path, _Kind]:
    """Return a path, or the header of a NIfTI pair if its .img file is given; and its kind."""
    if ".img" in path.name.lower():
        from pumit.io.images.nifti import header_file

        path = header_file(path)
    with parsing("file"):
        if path.is_dir():
            return path, "folder"
        if not path.exists():
            raise VolumeError(f"There is no file or folder {path.name!r}; check the path.")
        if not path.is_file():
            raise VolumeError("The path is neither a file nor a folder; give the scan itself.")
        with path.open("rb") as stream:
            start = stream.read(_START_BYTES)
        if not start:
            raise VolumeError("The file is empty; copy or export it again.")
        is_compressed = start[:2] == b"\x1f\x8b" and start[128:132] != b"DICM"
        kind = _kind_inside_gzip(path) if is_compressed else _kind_of_content(start)
    if kind is None:
        raise VolumeError(
            "The file is not an image of a known kind; give NIfTI, NRRD, MetaImage, DICOM "
            "(folder, zip or file), PNG or JPEG."
        )
    return path, kind


def _kind_of_content(start: bytes) -> _Kind | None:
    from pumit.io.images.nifti import is_nifti
    from pumit.io.images.picture import is_picture

    if start[128:132] == b"DICM":  # first: the preamble may look like any other format
        return "DICOM"
    if is_picture(start):
        return "picture"
    if start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "zip"
    if start.startswith(b"NRRD000"):
        return "NRRD"
    if start.lstrip().startswith((b"ObjectType", b"NDims", b"Comment")):
        return "MetaImage"
    if is_nifti(start):
        return "NIfTI"
    from pumit.io.dicom.files import is_dicom  # pydicom takes long to import

    return "DICOM" if is_dicom(start) else None


def _kind_inside_gzip(path: Path) -> _Kind | None:
    from pumit.io.images.nifti import is_nifti

    with parsing("compressed file"), gzip.open(path) as stream:
        return "NIfTI" if is_nifti(stream.read(12)) else None


def _read_dicom(path: Path, kind: _Kind, series: str | None) -> FileImage:
    from pumit.io.dicom.choice import choose_stack
    from pumit.io.dicom.files import find_dicom, read_header, unpack_dicom_zip
    from pumit.io.dicom.gdcm_process import GdcmProcess
    from pumit.io.dicom.stack import read_stack

    # pydicom parses attributes when they are accessed, so any step may raise.
    with parsing("DICOM scan"), GdcmProcess() as gdcm:
        if kind == "DICOM":
            return read_stack(choose_stack([read_header(path)], series), gdcm)
        if kind == "folder":
            return read_stack(choose_stack(find_dicom(path, seen=gdcm.prepare), series), gdcm)
        folder = unpack_dicom_zip(path)
        try:
            stack = choose_stack(find_dicom(Path(folder.name), seen=gdcm.prepare), series)
            return read_stack(stack, gdcm, keep_alive=folder)
        except BaseException:
            folder.cleanup()
            raise
