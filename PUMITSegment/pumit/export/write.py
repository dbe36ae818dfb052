"""Writer of segmentations in every format, chosen by the file name's suffix."""

from io import BytesIO
from pathlib import Path

from pumit.errors import ExportError
from pumit.export.labelmap import (
    LABELMAP_SUFFIXES,
    label_values,
    model_note,
    write_labelmap,
)
from pumit.export.nifti import gzipped_labels, nifti_parts
from pumit.export.seg_nrrd import save_seg_nrrd, write_seg_nrrd
from pumit.segmentation import Segmentation
from pumit.system.files import refuse_replacing
from pumit.volume import Volume

SEG_NRRD_SUFFIX = ".seg.nrrd"
DICOM_SUFFIX = ".dcm"
DICOM_LABELMAP_SUFFIX = ".labelmap.dcm"
RT_STRUCT_SUFFIX = ".rtstruct.dcm"
DICOM_SUFFIXES = (DICOM_LABELMAP_SUFFIX, RT_STRUCT_SUFFIX, DICOM_SUFFIX)
SUFFIXES = (*LABELMAP_SUFFIXES, SEG_NRRD_SUFFIX, *DICOM_SUFFIXES)


def check_suffix(path: str | Path) -> None:
    """Raise ExportError unless the name ends with one of `SUFFIXES`; call before long work."""
    name = Path(path).name.lower()
    if not name.endswith(SUFFIXES):
        raise ExportError(
            f"Unknown output format {Path(path).name!r}; the name must end with "
            f"{', '.join(SUFFIXES)}."
        )


def check_source(path: str | Path, volume: Volume) -> None:
    """Raise ExportError if a volume has no series for a DICOM object, or the path is its own file.

    Call before long work; the writer checks it again.
    """
    refuse_replacing(Path(path), volume.files)
    if Path(path).name.lower().endswith(DICOM_SUFFIX):
        from pumit.export.source_headers import read_headers

        read_headers(volume.source)


def write_segmentation(segmentation: Segmentation, path: str | Path) -> None:
    """Write segments in the format of the file name's suffix.

    Args:
        path: `.dcm` for DICOM-SEG, `.labelmap.dcm` for one of type LABELMAP, `.rtstruct.dcm` for
            an RTSTRUCT, `.seg.nrrd` for Slicer, `.nii.gz`, `.nii`, `.nrrd` or `.mha` for a label
            map, which cannot hold segments that overlap.

    Raises:
        ExportError: If the suffix is unknown, the format cannot hold these segments, or the
            file cannot be written or is one of the scan's own.
    """
    check_suffix(path)
    refuse_replacing(Path(path), segmentation.volume.files)
    name = Path(path).name.lower()
    # Import highdicom, which takes a second, only for the formats that need it.
    if name.endswith(RT_STRUCT_SUFFIX):
        from pumit.export.rt_struct import write_rt_struct

        write_rt_struct(segmentation, path)
    elif name.endswith(DICOM_SUFFIX):
        from pumit.export.dicom_seg import write_dicom_seg

        is_label_map = name.endswith(DICOM_LABELMAP_SUFFIX)
        write_dicom_seg(segmentation, path, kind="LABELMAP" if is_label_map else "BINARY")
    elif name.endswith(SEG_NRRD_SUFFIX):
        write_seg_nrrd(segmentation, path)
    else:
        write_labelmap(segmentation, path)


def segmentation_bytes(segmentation: Segmentation, suffix: str) -> bytes:
    """Return the content of the file that `write_segmentation` would write.

    Args:
        suffix: `.nii.gz`, `.seg.nrrd` or `.dcm`.

    Raises:
        ExportError: If the suffix is unknown, or the format cannot hold these segments.
    """
    file = BytesIO()
    if suffix == DICOM_SUFFIX:
        from pumit.export.dicom_seg import write_dicom_seg

        write_dicom_seg(segmentation, file)
    elif suffix == SEG_NRRD_SUFFIX:
        save_seg_nrrd(segmentation, file)
    elif suffix == ".nii.gz":
        labels = label_values(segmentation)
        note = model_note(labels, segmentation.algorithm)
        return b"".join(gzipped_labels(nifti_parts(labels, segmentation.volume, note=note)))
    else:
        raise ExportError(
            f"Only .nii.gz, .seg.nrrd and .dcm can be encoded in memory, not {suffix!r}."
        )
    return file.getvalue()
