"""Writer of Slicer's segmentation file (`.seg.nrrd`), with all tags that Slicer would write.

Only Slicer knows all tags of a segment, including those of other modules; Python cannot even list
them. So Slicer's storage node writes the header for segments of one voxel each, and the voxels are
written here: for a large segmentation, Slicer would block the application for seconds.
"""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import slicer
import vtk
from pumit.errors import ExportError
from pumit.geometry import Array, Floats
from pumit.system.files import atomic_path
from slicer.i18n import tr as _

from PUMITSlicerLib.label_layers import BINARY_LABELMAP
from PUMITSlicerLib.labelmap_grid import Box, imageGrid
from PUMITSlicerLib.mrml import orientedImageArray

# Masks compress well already; higher levels only take longer.
_GZIP_LEVEL = 3
# Grids that differ by less than this, in mm at the far corner, count as equal.
_SAME_MM = 1e-3
_RAS_TO_LPS = np.diag([-1.0, -1.0, 1.0])


@dataclass(frozen=True, eq=False)
class FileSegment:
    """Segment to write; must not be in a scene.

    Attributes:
        segment: A vtkSegment with name, colour and tags.
        image: Oriented image that contains it; several segments may share it.
    """

    segmentID: str
    segment: object
    image: object
    label: int


def writeSegmentationFile(segments: Sequence[FileSegment], path: Path) -> None:
    """Write segments as `.seg.nrrd`; from any thread.

    Raises:
        ExportError: If the file cannot be written.
    """
    with atomic_path(path) as temporary:
        isWide = any(given.label > np.iinfo(np.uint16).max for given in segments)
        if isWide or not _is_one_grid([given.image for given in segments]):
            _let_slicer_write([(given, given.image) for given in segments], temporary, packed=True)
            return
        head = _head_by_slicer(segments)
        layers = _Layers.of(segments)
        with temporary.open("wb") as file:
            file.write(_head(head, segments, layers))
            with gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0) as packed:
                for k in range(layers.box.shape[0]):
                    packed.write(layers.slice(k).tobytes())


def _is_one_grid(images: Sequence[object]) -> bool:
    """Return whether all images share one grid; otherwise Slicer resamples them to a common one."""
    boxes = [Box.ofImage(image) for image in images]
    if any(box.isEmpty for box in boxes):
        return False
    far = np.array([*np.max([box.stop for box in boxes], axis=0)[::-1], 1.0])
    first, *others = (imageGrid(image) for image in images)
    return all(
        np.abs((grid - first) @ far).max() < _SAME_MM and np.allclose(grid, first, atol=_SAME_MM)
        for grid in others
    )


def _let_slicer_write(
    pairs: Sequence[tuple[FileSegment, object]], path: Path, *, packed: bool
) -> None:
    node = slicer.vtkMRMLSegmentationNode()
    segmentation = node.GetSegmentation()
    segmentation.SetSourceRepresentationName(BINARY_LABELMAP)
    for given, image in pairs:
        segment = slicer.vtkSegment()
        segment.DeepCopyMetadata(given.segment)
        segment.AddRepresentation(BINARY_LABELMAP, image)
        segment.SetLabelValue(given.label)
        segmentation.AddSegment(segment, given.segmentID)
    storage = slicer.vtkMRMLSegmentationStorageNode()
    storage.SetUseCompression(int(packed))
    storage.SetFileName(str(path))
    if not storage.WriteData(node) or not path.is_file():
        raise ExportError(
            _("The segmentation cannot be written; check the free space of the disk.")
        )


def _head_by_slicer(segments: Sequence[FileSegment]) -> list[bytes]:
    """Return the segments' header lines `key:=value` as Slicer writes them."""
    pairs = []
    for given in segments:
        voxel = slicer.vtkOrientedImageData()
        voxel.SetExtent(0, 0, 0, 0, 0, 0)
        voxel.AllocateScalars(vtk.VTK_UNSIGNED_SHORT, 1)
        voxel.GetPointData().GetScalars().Fill(given.label)
        pairs.append((given, voxel))
    with tempfile.TemporaryDirectory(prefix="pumit-") as folder:
        file = Path(folder, "head.seg.nrrd")
        _let_slicer_write(pairs, file, packed=False)
        head = file.read_bytes().partition(b"\n\n")[0]
    return [line for line in head.split(b"\n") if b":=" in line]


@dataclass(frozen=True, eq=False)
class _Layers:
    """Images of the segments, cropped to those segments, in one common box.

    Attributes:
        images: Images (D, H, W), each with its box.
        box: Bounding box of all segments.
        grid: 4 x 4, from indices to RAS.
        layerOf: Index of the image of each segment.
        boxes: Bounding box of each segment.
        kept: Lookup table per image, from its labels to the labels that are written.
    """

    images: list[tuple[Array, Box]]
    box: Box
    grid: Floats
    layerOf: list[int]
    boxes: list[Box]
    kept: list[Array]

    @staticmethod
    def of(segments: Sequence[FileSegment]) -> _Layers:
        distinct = list(dict.fromkeys(given.image for given in segments))
        images = [(orientedImageArray(image), Box.ofImage(image)) for image in distinct]
        layerOf = [distinct.index(given.image) for given in segments]
        boxes, whole = [], Box((0, 0, 0), (0, 0, 0))
        kept = [np.zeros(int(array.max()) + 1, dtype=np.uint8) for array, _box in images]
        wide = max(given.label for given in segments) > np.iinfo(np.uint8).max
        if wide:
            kept = [table.astype("<u2") for table in kept]
        for given, layer in zip(segments, layerOf, strict=True):
            array, box = images[layer]
            boxes.append(Box.around(array == given.label, box.start))
            whole = whole.united(boxes[-1])
            # Labels of segments that are not exported become 0.
            if given.label < len(kept[layer]):
                kept[layer][given.label] = given.label
        return _Layers(images, whole, imageGrid(distinct[0]), layerOf, boxes, kept)

    def slice(self, k: int) -> Array:
        """Return one slice of all layers, (H, W, L): in the file the layer index varies fastest."""
        (d, h, w), stop = self.box.start, self.box.stop
        plane = Box((d + k, h, w), (d + k + 1, *stop[1:]))
        result = np.zeros((*plane.shape[1:], len(self.images)), dtype=self.kept[0].dtype)
        for layer, ((array, box), table) in enumerate(zip(self.images, self.kept, strict=True)):
            target = box.within(plane)
            if all(part.start < part.stop for part in target):
                result[(*target[1:], layer)] = table[array[plane.within(box)][0]]
        return result


def _head(lines: list[bytes], segments: Sequence[FileSegment], layers: _Layers) -> bytes:
    d, h, w = layers.box.shape
    start = layers.box.start[::-1]
    steps = _RAS_TO_LPS @ layers.grid[:3, :3]
    origin = _RAS_TO_LPS @ (layers.grid @ [*start, 1.0])[:3]
    isWide = layers.kept[0].itemsize == 2
    count = len(layers.images)
    vectors = [_vector(column) for column in steps.T]
    sizes, kinds = [w, h, d], ["domain"] * 3
    if count > 1:
        sizes, kinds, vectors = [count, *sizes], ["list", *kinds], ["none", *vectors]
    fields = [
        "NRRD0004",
        f"type: {'unsigned short' if isWide else 'unsigned char'}",
        f"dimension: {len(sizes)}",
        "space: left-posterior-superior",
        f"sizes: {' '.join(map(str, sizes))}",
        f"space directions: {' '.join(vectors)}",
        f"kinds: {' '.join(kinds)}",
        "endian: little",
        "encoding: gzip",
        f"space origin: {_vector(origin)}",
    ]
    own = {b"Segmentation_ReferenceImageExtentOffset": " ".join(map(str, start))}
    for index, (given, layer, box) in enumerate(
        zip(segments, layers.layerOf, layers.boxes, strict=True)
    ):
        d, h, w = layers.box.start
        inFile = box.moved((-d, -h, -w))
        values = {"Extent": inFile.extent, "LabelValue": (given.label,), "Layer": (layer,)}
        for key, value in values.items():
            own[f"Segment{index}_{key}".encode()] = " ".join(map(str, value))
    kept = [line for line in lines if line.partition(b":=")[0] not in own]
    pairs = [key + b":=" + value.encode() for key, value in own.items()]
    return b"\n".join([*(f.encode() for f in fields), *kept, *pairs]) + b"\n\n"


def _vector(values: Floats) -> str:
    return "(" + ",".join(repr(float(v)) for v in values) + ")"
