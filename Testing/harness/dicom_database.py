"""A stand-in for Slicer's DICOM database, and DICOM series in the scene as Slicer loads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from pydicom import dcmread


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
