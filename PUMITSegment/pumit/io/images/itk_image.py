"""Reader of NRRD and MetaImage files, through ITK."""

import logging
import os
import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import numpy as np
import SimpleITK

from pumit.errors import VolumeError
from pumit.file_image import FileImage
from pumit.geometry import Array, Floats, planar_step
from pumit.io.parser_errors import MAX_COMPRESSION, muted_stderr, parsing

logger = logging.getLogger(__name__)

_ITK_READERS = {"NRRD": "NrrdImageIO", "MetaImage": "MetaImageIO"}
_MOST_AXES = 5
# A number of axes other than 1 to 5: with more, ITK writes out of bounds.
_BAD_AXES = {
    "NRRD": re.compile(rb"(?:^|\r)\s*dimension(?!\s*:\s*[1-5]\s*(?:\r|\n|$))", re.IGNORECASE),
    "MetaImage": re.compile(rb"NDims(?!\s*[=:]\s*[1-5]\s)"),
}
# ITK copies an unknown NRRD field into a buffer of 1,024 bytes, whatever its length.
_LONGEST_FIELD = 512
_SPACING = {
    "NRRD": re.compile(rb"\s*(?:spacings|space directions)\s*:", re.IGNORECASE),
    "MetaImage": re.compile(rb"\s*Element(?:Spacing|Size)\s*[:=]"),
}
_UNITS, _NAME = re.compile(rb"\s*(?:space )?units\s*:(.*)", re.IGNORECASE), re.compile(rb'"(.*?)"')
_MICRONS = {"um", "\u00b5m", "\u03bcm", "micron", "microns", "micrometer", "micrometers"}
_OTHER_UNITS = _MICRONS | {"nm", "cm", "m", "in"}
_FILES = re.compile(rb"\s*(?:data ?file|ElementDataFile)\s*[:=]\s*(.*)", re.IGNORECASE)


def read_itk_image(path: Path, kind: str, *, only_grid: bool = False) -> FileImage:
    """Read an NRRD or MetaImage file; vector components or a fourth axis become channels.

    Args:
        path: The file; a detached header finds its data next to it.
        kind: "NRRD" or "MetaImage".
        only_grid: Whether to read the header only; voxels are then all zero.

    Raises:
        VolumeError: If the file is damaged, truncated, or has no usable grid.
    """
    with parsing(f"{kind} file"), muted_stderr():
        reader = read_header(path, kind)
        if only_grid:
            w, h, d = (*reader.GetSize(), 1)[:3]
            return FileImage(np.broadcast_to(np.uint8(0), (d, h, w)), *_steps(reader))
        _check_size(reader, path, kind)
        image = reader.Execute()
        array = SimpleITK.GetArrayFromImage(image)
    has_spacing = _states_spacing(path, kind)
    array = _channels_first(array, image.GetNumberOfComponentsPerPixel() > 1)
    return FileImage(array, *_steps(image), has_spacing=has_spacing)


def _states_spacing(path: Path, kind: str) -> bool:
    """Return whether a header states its voxel spacing; log a warning unless in millimetres."""
    lines = list(_header_lines(path, kind))
    units = {
        unit.decode("utf-8", "replace")
        for line in lines
        if kind == "NRRD" and (found := _UNITS.match(line))
        for unit in _NAME.findall(found[1])
    }
    if other := units & _OTHER_UNITS:
        logger.warning(
            "The NRRD header states lengths in %s; they are taken as mm, as in Slicer: sizes and "
            "volumes are not in mm.",
            " and ".join(sorted(other)),
        )
    has_spacing = any(_SPACING[kind].match(line) for line in lines)
    if not has_spacing:
        logger.warning(
            "The %s header states no voxel spacing; voxels of 1 mm are assumed: do not measure "
            "in the scan.",
            kind,
        )
    return has_spacing


def read_header(path: Path, kind: str) -> SimpleITK.ImageFileReader:
    """Return a reader that has read the header only, once it is known to be safe.

    More axes or longer fields than ITK can hold would crash the process.

    Raises:
        VolumeError: If the header has too many axes, or a field that is too long.
    """
    for line in _header_lines(path, kind):
        if _BAD_AXES[kind].search(line):
            raise VolumeError(
                f"The {kind} header does not state 2 to {_MOST_AXES} axes; PUMIT reads 2, 3 or "
                "4: split the image first, or export it again."
            )
        if kind == "NRRD" and _has_long_field(line):
            raise VolumeError("The NRRD header has an invalid line; export the file again.")
    reader = SimpleITK.ImageFileReader()
    reader.SetImageIO(_ITK_READERS[kind])
    reader.SetFileName(os.fspath(path))
    reader.ReadImageInformation()
    return reader


def _has_long_field(line: bytes) -> bool:
    """Return whether an NRRD line holds an overlong field, not a comment or key/value pair."""
    fields = takewhile(bool, line.rstrip(b"\r\n").split(b"\r"))  # voxels follow an empty line
    return any(
        len(f) > _LONGEST_FIELD and f[:1] != b"#" and b":=" not in f.partition(b": ")[0]
        for f in fields
    )


def _check_size(reader: SimpleITK.ImageFileReader, path: Path, kind: str) -> None:
    """Compare the announced size with the file's; ITK would allocate memory before it reads."""
    announced = reader.GetNumberOfComponents()
    for n in reader.GetSize():
        announced *= n
    bits = re.search(r"(\d+)-bit", SimpleITK.GetPixelIDValueAsString(reader.GetPixelID()))
    least = announced * (int(bits[1]) // 8 if bits else 1) // MAX_COMPRESSION
    if least > path.stat().st_size and least > _held(path, kind):
        raise VolumeError(
            f"The {kind} header states {announced} values, far more than the file can hold; the "
            "file is truncated or damaged: copy or export it again."
        )


def data_files(path: Path) -> list[Path]:
    """List the files that a detached header, .nhdr or .mhd, names; without those of a pattern."""
    kind = "NRRD" if path.suffix.lower() == ".nhdr" else "MetaImage"
    return [file for file in _named_files(path, kind) if file.is_file()]


def _named_files(path: Path, kind: str) -> list[Path]:
    """Return the paths that a header names as data; a pattern is one path."""
    names: list[bytes] = []
    is_list = False
    for line in _header_lines(path, kind):
        if is_list:
            names.append(line.strip())
        elif found := _FILES.match(line):
            is_list = found[1].upper().startswith(b"LIST")
            names.append(re.sub(rb"(\s+-?\d+)*\s*$", b"", found[1]))  # without a pattern's range
    return [path.parent / os.fsdecode(name) for name in names if name != b"LOCAL"]


def _held(path: Path, kind: str) -> int:
    """Return the bytes of a file, plus all files in folders that a detached header names."""
    parents = {file.parent for file in _named_files(path, kind)}
    files = (file for parent in parents if parent.is_dir() for file in parent.iterdir())
    return path.stat().st_size + sum(file.stat().st_size for file in files if file.is_file())


def _header_lines(path: Path, kind: str) -> Iterator[bytes]:
    """Yield the lines of a header, and of a list of data files after it."""
    is_value = False
    with path.open("rb") as stream:
        for line in stream:
            if kind == "NRRD" and line in (b"\n", b"\r\n"):
                return  # voxels follow
            yield line
            # MetaIO takes the line after a key without a value as that value.
            is_last = line.lstrip().startswith(b"ElementDataFile") and not is_value
            if kind == "MetaImage" and is_last and b"LIST" not in line:
                return
            is_value = b"=" not in line and b":" not in line


def _channels_first(array: Array, has_components: bool) -> Array:
    """Convert ITK's ([T,] [D,] H, W[, C]) to (D, H, W) or (C, D, H, W)."""
    if has_components:
        array = np.moveaxis(array, -1, 0)
    spatial = array.ndim - int(has_components)
    if spatial == 2:
        array = array[..., None, :, :]
    elif spatial == 4 and has_components:
        if array.shape[1] > 1:
            raise VolumeError(
                f"The image has {array.shape[0]} components and {array.shape[1]} time points; "
                "PUMIT reads at most one of the two: split it first."
            )
        array = array[:, 0]
    elif spatial not in (3, 4):
        raise VolumeError(f"The image has {spatial} axes; PUMIT reads 2, 3 or 4: split it first.")
    if array.ndim == 4 and len(array) == 1:
        array = array[0]
    return np.ascontiguousarray(array)


def _steps(image: SimpleITK.Image | SimpleITK.ImageFileReader) -> tuple[Floats, Floats]:
    """Return the steps (columns W, H, D) and origin of the first three axes, LPS mm."""
    size = image.GetDimension()
    direction, spacing, origin = np.eye(3), np.ones(3), np.zeros(3)
    used = min(size, 3)
    direction[:used, :used] = np.array(image.GetDirection()).reshape(size, size)[:used, :used]
    spacing[:used] = image.GetSpacing()[:used]
    origin[:used] = image.GetOrigin()[:used]
    steps = direction * spacing
    if size == 2:  # a 2D image has no third step
        steps[:, 2] = planar_step(steps)
    return steps, origin
