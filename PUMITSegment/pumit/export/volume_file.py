"""An image on a volume's grid as one file: NIfTI, NRRD or MetaImage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import SimpleITK

from pumit.errors import ExportError
from pumit.export.spacing import written_spacing_mm
from pumit.system.atomic import atomic_path
from pumit.volume import Volume

VOLUME_SUFFIXES = (".nii.gz", ".nii", ".nrrd", ".mha")


def write_volume_file(array: npt.NDArray[Any], volume: Volume, path: str | Path) -> None:
    """Write intensities, (D, H, W), with the geometry of a volume.

    Raises:
        ExportError: If the suffix is unknown, or the file cannot be written.
    """
    target = Path(path)
    suffix = next((s for s in VOLUME_SUFFIXES if target.name.lower().endswith(s)), None)
    if suffix is None:
        raise ExportError(
            f"Unknown image format {target.name!r}; the name must end with "
            f"{', '.join(VOLUME_SUFFIXES)}."
        )
    image = SimpleITK.GetImageFromArray(np.ascontiguousarray(array))
    image.SetSpacing(written_spacing_mm(volume)[::-1])
    image.SetOrigin(volume.origin_lps)
    image.SetDirection(volume.direction.ravel().tolist())
    with atomic_path(target) as temporary:
        # ITK picks the format by a suffix in lower case only.
        written = temporary.with_name(f"{temporary.name.partition('-')[0]}.image{suffix}")
        try:
            SimpleITK.WriteImage(image, str(written), useCompression=True)
            written.replace(temporary)
        except RuntimeError as error:
            raise ExportError(
                "The image cannot be written; check the free space of the disk."
            ) from error
        finally:
            written.unlink(missing_ok=True)
