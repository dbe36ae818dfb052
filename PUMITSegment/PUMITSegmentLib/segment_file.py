"""Slicer's own segmentation file, written by Slicer's own storage node.

Only Slicer knows every tag that a segment carries, those of other modules among them; Python
cannot even list them. So its storage node writes the file, plainly, and the packing, which takes
the time, is done afterwards and without holding up the panel.
"""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Sequence
from pathlib import Path

import slicer
from pumit.errors import ExportError
from pumit.io.atomic import atomic_path
from slicer.i18n import tr as _

from PUMITSegmentLib.label_layers import BINARY_LABELMAP

# Masks pack well at once; higher levels only take longer.
_GZIP_LEVEL = 3
_CHUNK_BYTES = 1 << 20
_PLAIN, _PACKED = b"\nencoding: raw\n", b"\nencoding: gzip\n"


def writeSegmentationFile(segments: Sequence[tuple[str, object, object, int]], path: Path) -> None:
    """Write segments as `.seg.nrrd`.

    Args:
        segments: For each its ID, a vtkSegment without voxels, the oriented image that it is in,
            and its label there. None of them may be in a scene. Images may be shared.
        path: File to write.

    Raises:
        ExportError: If the file cannot be written.
    """
    node = slicer.vtkMRMLSegmentationNode()
    segmentation = node.GetSegmentation()
    segmentation.SetSourceRepresentationName(BINARY_LABELMAP)
    for segmentID, segment, image, label in segments:
        segment.AddRepresentation(BINARY_LABELMAP, image)
        segment.SetLabelValue(label)
        segmentation.AddSegment(segment, segmentID)
    storage = slicer.vtkMRMLSegmentationStorageNode()
    storage.SetUseCompression(0)
    with atomic_path(path) as temporary:
        plain = temporary.with_name(f"{temporary.name.partition('-')[0]}-plain.seg.nrrd")
        try:
            storage.SetFileName(str(plain))
            if not storage.WriteData(node) or not plain.is_file():
                raise ExportError(
                    _("The segmentation cannot be written; check the free space of the disk.")
                )
            _pack(plain, temporary)
        finally:
            plain.unlink(missing_ok=True)


def _pack(plain: Path, packed: Path) -> None:
    with plain.open("rb") as source, packed.open("wb") as target:
        header = b""
        while not header.endswith(b"\n\n"):
            line = source.readline()
            if not line:
                raise ExportError(_("The segmentation was cut short while writing."))
            header += line
        if _PLAIN not in header:
            # Slicer chose another encoding: its file is as good.
            target.write(header)
            shutil.copyfileobj(source, target, _CHUNK_BYTES)
            return
        target.write(header.replace(_PLAIN, _PACKED, 1))
        with gzip.GzipFile("", "wb", _GZIP_LEVEL, target, mtime=0) as stream:
            shutil.copyfileobj(source, stream, _CHUNK_BYTES)
