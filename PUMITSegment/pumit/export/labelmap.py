"""Writer of label maps: NIfTI, NRRD or MetaImage."""

import logging
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pumit.errors import ExportError
from pumit.export.nifti import gzipped_labels, nifti_parts
from pumit.export.volume_file import VOLUME_SUFFIXES, is_picture, write_volume_file
from pumit.io.labels.label_file import NOTE, note_of
from pumit.segmentation import Algorithm, Segmentation
from pumit.system.files import atomic_path
from pumit.volume import Volume

logger = logging.getLogger(__name__)

LABELMAP_SUFFIXES = VOLUME_SUFFIXES
Labels = npt.NDArray[np.unsignedinteger[Any]]
Overlap = Literal["refuse", "later_wins"]


def label_type(count: int) -> type[np.uint8] | type[np.uint16]:
    """Return the smallest unsigned type for `count` labels.

    Raises:
        ExportError: If there are more than 65535.
    """
    if count > np.iinfo(np.uint16).max:
        raise ExportError(
            f"A label map holds at most 65535 segments, got {count}; write several files."
        )
    return np.uint8 if count <= np.iinfo(np.uint8).max else np.uint16


def write_labelmap(
    segmentation: Segmentation, path: str | Path, *, overlap: Overlap = "refuse"
) -> None:
    """Write segments as label values, by default 1, 2, ..., on the volume's grid.

    A planar image gets its stated slice thickness, or 1 mm.

    Args:
        path: File to write; `.nii.gz`, `.nii`, `.nrrd` or `.mha`.
        overlap: If segments overlap, `refuse` raises; `later_wins` gives the voxel to the later
            segment and logs a warning.

    Raises:
        ExportError: If an overlap is refused or covers a whole segment, the suffix is unknown, or
            the file cannot be written.
    """
    labels = label_values(segmentation, overlap=overlap)
    write_labels(labels, segmentation.volume, path, made_by=segmentation.algorithm)


def write_labels(
    labels: Labels, volume: Volume, path: str | Path, *, made_by: Algorithm | None = None
) -> None:
    """Write label values as a label map on a volume's grid.

    Args:
        labels: Unsigned integers, (D, H, W); 0 is background.
        volume: Volume whose grid they are on; a planar one gets `written_spacing_mm`.
        path: File to write; `.nii.gz`, `.nii`, `.nrrd` or `.mha`.
        made_by: Model that made them; noted in the header to keep them out of ground truth.

    Raises:
        ExportError: If the suffix is unknown, or the file cannot be written.
    """
    note, target = model_note(labels, made_by), Path(path)
    is_packed = target.name.lower().endswith(".nii.gz")
    if (is_packed or target.suffix.lower() == ".nii") and not is_picture(volume):
        parts = nifti_parts(labels, volume, note=note)
        with atomic_path(target) as temporary, temporary.open("wb") as file:
            file.writelines(gzipped_labels(parts) if is_packed else parts)
        return
    write_volume_file(labels, volume, path, what="label map", header={NOTE: note} if note else {})


def model_note(labels: Labels, made_by: Algorithm | None) -> str:
    """Return the header note for labels of kind AUTOMATIC; else empty."""
    if made_by is None or made_by.kind != "AUTOMATIC":
        return ""
    return note_of(labels, made_by.kind, made_by.name)


def label_values(segmentation: Segmentation, *, overlap: Overlap = "refuse") -> Labels:
    """Return the label values of segments, (D, H, W), as `write_labelmap` writes them.

    Raises:
        ExportError: If an overlap is refused, or covers a whole segment.
    """
    segments, refuse = segmentation.segments, overlap == "refuse"
    numbers = segmentation.numbers
    numbered = dict(zip(numbers, segments, strict=True))
    labels: Labels = np.zeros(segmentation.volume.shape, dtype=label_type(max(numbers)))
    for number, segment in numbered.items():
        taken = np.unique(labels[segment.mask]) if number != numbers[0] else labels[:0]
        taken = taken[taken > 0]
        if taken.size and refuse:
            raise ExportError(
                f"Segments {numbered[int(taken[0])].name!r} and {segment.name!r} overlap, and "
                "a label map holds one label per voxel; write .seg.nrrd or .dcm, which keep both."
            )
        if taken.size:
            logger.warning(
                "Segment %d overwrites voxels of %s %s; .seg.nrrd or .dcm keep both.",
                number,
                "segment" if taken.size == 1 else "segments",
                ", ".join(map(str, taken)),
            )
        labels[segment.mask] = number
    for number, segment in numbered.items():
        if not (labels[segment.mask] == number).any():
            raise ExportError(
                f"Later segments cover the whole of segment {segment.name!r}; "
                "write .seg.nrrd or .dcm, which keep overlapping segments."
            )
    return labels
