"""DICOM series in the scene as Slicer loads them, segmented, and exported as the module does."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
from export_checks import OBLIQUE, assert_same_masks, dciodvfy, dcmqi_segments
from pumit.export.dicom_series import write_dicom_series
from pumit.segmentation import Segment
from pumit.volume import Volume
from pydicom import dcmread

SHAPE = (9, 21, 30)


class DicomDatabase:
    """As much of `ctkDICOMDatabase` as is called: which file an instance is in, and inserting."""

    def __init__(self, isOpen: bool = True) -> None:
        self.isOpen = isOpen
        self.files: dict[str, str] = {}

    def fileForInstance(self, uid: str) -> str:
        """The file of an instance; empty where it is unknown."""
        return self.files.get(uid, "")

    def insert(self, path: str) -> None:
        """Index one file; what is no DICOM object is passed over, as CTK does."""
        dataset = dcmread(path, stop_before_pixels=True, force=True)
        if "SOPInstanceUID" in dataset:
            self.files[str(dataset.SOPInstanceUID)] = path


def loadSeries(folder: Path, database: DicomDatabase | None) -> Any:
    """Load a folder that holds one DICOM series, through Slicer's own reader.

    Args:
        folder: Files of one series.
        database: Gets the files; they are read in the order of their positions, and the volume
            node names its instances, as Slicer's DICOM module has it. Without one the volume is
            loaded as a file is that is dropped into Slicer.
    """
    import slicer
    import vtk

    files = [path for path in sorted(folder.iterdir()) if path.suffix == ".dcm"]
    logic = slicer.modules.volumes.logic()
    if database is None:
        return logic.AddArchetypeVolume(str(files[0]), folder.name, 0)
    headers = {file: dcmread(file, stop_before_pixels=True) for file in files}
    cosines = np.array(headers[files[0]].ImageOrientationPatient, dtype=float)
    normal = np.cross(cosines[:3], cosines[3:])
    files.sort(key=lambda f: float(np.dot(headers[f].ImagePositionPatient, normal)))
    names = vtk.vtkStringArray()
    for file in files:
        database.insert(str(file))
        names.InsertNextValue(str(file))
    node = logic.AddArchetypeVolume(str(files[0]), folder.name, 0, names)
    node.SetAttribute("DICOM.instanceUIDs", " ".join(headers[f].SOPInstanceUID for f in files))
    node.SetAndObserveStorageNodeID(None)
    return node


def a_series(folder: Path) -> Volume:
    """An oblique CT series of noise, whose source is its files."""
    noise = np.random.default_rng(0).normal(0, 200, SHAPE).round().astype(np.int16)
    volume = Volume(noise, (2.5, 0.7, 0.8), (-11.5, 23.25, 40.0), OBLIQUE)
    return write_dicom_series(volume, folder)


def blobs(shape: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Two rugged masks that overlap, so that any flip, shift or loss shows."""
    rng = np.random.default_rng(1)
    first, second = np.zeros(shape, bool), np.zeros(shape, bool)
    d, h, w = shape
    first[d // 4 : d // 2 + 1, h // 8 : h // 2, w // 8 : w // 2] = True
    second[d // 3 : d - 1, h // 3 : h - 2, w // 3 : w - 4] = True
    first &= rng.random(shape) > 0.4
    second &= rng.random(shape) > 0.4
    first[d // 2, h // 2 - 1, w // 2 - 1] = second[d // 2, h // 2 - 1, w // 2 - 1] = True
    return first, second


def add_segment(segmentation_node, name, mask, volume_node, type_="SEMIAUTOMATIC"):
    from PUMITSegmentLib.segments.provenance import byModel, setProvenance
    from PUMITSlicerLib.mrml import ijkToRas, orientedImage
    from PUMITSlicerLib.terms import newSegment

    segment_id = newSegment(segmentation_node, name)
    segment = segmentation_node.GetSegmentation().GetSegment(segment_id)
    image = orientedImage(mask, ijkToRas(volume_node))
    copy = type(image)()
    copy.DeepCopy(image)
    segment.AddRepresentation("Binary labelmap", copy)
    segment.SetLabelValue(1)
    if type_ != "MANUAL":
        setProvenance(segment, byModel(type_, "pumit default", "0.1.0"))
    return segment_id


def segmentation_of(scene, volume_node, masks: dict[str, np.ndarray], **types):
    node = scene.AddNewNodeByClass("vtkMRMLSegmentationNode", "My segments")
    node.CreateDefaultDisplayNodes()
    node.SetReferenceImageGeometryParameterFromVolumeNode(volume_node)
    node.SetAndObserveTransformNodeID(volume_node.GetTransformNodeID())
    for name, mask in masks.items():
        add_segment(node, name, mask, volume_node, types.get(name, "SEMIAUTOMATIC"))
    return node


def export(node, volume_node, format_, folder, database=None, **more):
    """Collect on this thread, write on another one, as the module does."""
    from PUMITSegmentLib.exporting.export import ExportChoice, Format, collect, write

    choice = ExportChoice(Format[format_], Path(folder), **more)
    collected = collect(node, volume_node, choice, database)
    result: list[object] = []

    def run() -> None:
        try:
            result.append(write(collected))
        except Exception as error:
            result.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(result[0], Exception):
        raise result[0]
    return result[0]


def assert_dicom_holds(path, folder, volume, masks: dict[str, np.ndarray]):
    assert dciodvfy(path) == []
    expected = tuple(Segment(name, mask) for name, mask in masks.items())
    assert_same_masks(dcmqi_segments(path, folder, volume), expected)


def linear(scene, matrix: np.ndarray):
    import slicer

    node = scene.AddNewNodeByClass("vtkMRMLLinearTransformNode")
    node.SetMatrixTransformToParent(slicer.util.vtkMatrixFromArray(matrix))
    return node
