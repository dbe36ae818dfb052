"""Writer of voxel arrays on a volume's grid: NIfTI, NRRD or MetaImage."""

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.errors import ExportError
from pumit.export.spacing import written_spacing_mm
from pumit.system.files import atomic_path
from pumit.volume import Volume

CHUNK_BYTES = 1 << 20
VOLUME_SUFFIXES = (".nii.gz", ".nii", ".nrrd", ".mha")


def write_volume_file(
    array: npt.NDArray[Any],
    volume: Volume,
    path: str | Path,
    *,
    what: str = "image",
    header: Mapping[str, str] | None = None,
) -> None:
    """Write voxels, (D, H, W), with the geometry of a volume; a picture as a 2D image.

    Channels, (C, D, H, W), become a 4D file, as in the Decathlon.

    Raises:
        ExportError: If the suffix is unknown, or the file cannot be written.
    """
    target = Path(path)
    suffix = next((s for s in VOLUME_SUFFIXES if target.name.lower().endswith(s)), None)
    if suffix is None:
        raise ExportError(
            f"Unknown {what} format {target.name!r}; the name must end with "
            f"{', '.join(VOLUME_SUFFIXES)}."
        )
    import SimpleITK  # slow to import, so after the check

    if array.ndim == 4:
        image = SimpleITK.JoinSeries([itk_image(channel, volume) for channel in array])
    else:
        image = itk_image(array, volume, axes=2 if is_picture(volume) else 3)
    for key, text in (header or {}).items():
        image.SetMetaData(key, text)
    with atomic_path(target) as temporary:
        # ITK picks the format by a lower-case suffix. A dot instead of the temporary name's hyphen
        # makes the two names differ for every target.
        written = temporary.with_name(f"{temporary.name.partition('-')[0]}.voxels{suffix}")
        try:
            SimpleITK.WriteImage(image, str(written), useCompression=True)
            if not _is_whole(written, array.nbytes):
                raise ExportError(f"The {what} was cut short while writing; is the disk full?")
            written.replace(temporary)
        except RuntimeError as error:
            raise ExportError(
                f"The {what} cannot be written; check the free space of the disk."
            ) from error
        finally:
            written.unlink(missing_ok=True)


def itk_image(array: npt.NDArray[Any], volume: Volume, *, axes: int = 3) -> Any:
    """Create an ITK image from voxels, (D, H, W), with the geometry of a volume.

    Args:
        axes: 2 for the only slice as a 2D image.
    """
    import SimpleITK

    image = SimpleITK.GetImageFromArray(np.ascontiguousarray(array[0] if axes == 2 else array))
    image.SetSpacing(written_spacing_mm(volume)[::-1][:axes])
    image.SetOrigin(volume.origin_lps[:axes])
    image.SetDirection(volume.direction[:axes, :axes].ravel().tolist())
    return image


def is_picture(volume: Volume) -> bool:
    """Return whether a planar volume can be written as a 2D file without loss."""
    is_flat = volume.is_planar and volume.thickness_mm is None and volume.source is None
    in_plane = np.zeros((3, 3))
    in_plane[:2, :2], in_plane[2, 2] = volume.direction[:2, :2], 1
    return is_flat and volume.origin_lps[2] == 0 and np.allclose(volume.direction, in_plane)


def _is_whole(path: Path, size: int) -> bool:
    """Return whether a NIfTI file holds `size` bytes; ITK's writer does not report short writes."""
    if not path.name.endswith((".nii", ".nii.gz")):
        return True
    if path.suffix == ".nii":
        return path.stat().st_size >= size
    try:
        with gzip.open(path, "rb") as file:
            return sum(map(len, iter(lambda: file.read(CHUNK_BYTES), b""))) >= size
    except (EOFError, OSError):
        return False
