"""NRRD and MetaImage files, through ITK."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import SimpleITK

from pumit.errors import VolumeError
from pumit.file_image import FileImage
from pumit.geometry import Array, Floats
from pumit.io.expansion import is_absurd
from pumit.io.parser_errors import muted_stderr, parsing

_ITK_READERS = {"NRRD": "NrrdImageIO", "MetaImage": "MetaImageIO"}
# Headers whose voxels lie in other files.
_DETACHED = {".nhdr", ".mhd"}


def read_itk_image(path: Path, kind: str) -> FileImage:
    """Read an NRRD or MetaImage file; vector components or a fourth axis become channels.

    Args:
        path: The file; a detached header finds its data next to it.
        kind: "NRRD" or "MetaImage".

    Raises:
        VolumeError: If the file is damaged, truncated, or has no usable grid.
    """
    with parsing(f"{kind} file"), muted_stderr():
        reader = SimpleITK.ImageFileReader()
        reader.SetImageIO(_ITK_READERS[kind])
        reader.SetFileName(os.fspath(path))
        reader.ReadImageInformation()
        _check_size(reader, path, kind)
        image = reader.Execute()
        array = SimpleITK.GetArrayFromImage(image)
    array = _channels_first(array, image.GetNumberOfComponentsPerPixel() > 1)
    steps, origin = _steps(image)
    return FileImage(array, steps, origin)


def _check_size(reader: SimpleITK.ImageFileReader, path: Path, kind: str) -> None:
    announced = reader.GetNumberOfComponents()
    for n in reader.GetSize():
        announced *= n
    if path.suffix.lower() not in _DETACHED and is_absurd(announced, path.stat().st_size):
        raise VolumeError(
            f"The {kind} header announces {announced} values, far more than the file can hold; "
            "the file is truncated or damaged: copy or export it again."
        )


def _channels_first(array: Array, has_components: bool) -> Array:
    """Bring ITK's ([T,] [D,] H, W[, C]) to (D, H, W) or (C, D, H, W)."""
    if has_components:
        array = np.moveaxis(array, -1, 0)
    spatial = array.ndim - int(has_components)
    if spatial == 2:
        array = array[..., None, :, :]
    elif spatial == 4 and has_components:
        if array.shape[1] > 1:
            raise VolumeError(
                f"The image has {array.shape[0]} components and {array.shape[1]} time points; "
                "at most one of the two can be used: split it first."
            )
        array = array[:, 0]
    elif spatial not in (3, 4):
        raise VolumeError(f"The image has {spatial} axes; 2, 3 or 4 can be used: split it first.")
    if array.ndim == 4 and len(array) == 1:
        array = array[0]
    return np.ascontiguousarray(array)


def _steps(image: SimpleITK.Image) -> tuple[Floats, Floats]:
    """Steps (columns W, H, D) and origin in LPS mm, of the first three axes."""
    size = image.GetDimension()
    direction, spacing, origin = np.eye(3), np.ones(3), np.zeros(3)
    used = min(size, 3)
    direction[:used, :used] = np.array(image.GetDirection()).reshape(size, size)[:used, :used]
    spacing[:used] = image.GetSpacing()[:used]
    origin[:used] = image.GetOrigin()[:used]
    return direction * spacing, origin
