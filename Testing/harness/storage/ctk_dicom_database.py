"""`slicer.dicomDatabase` over files that pydicom reads; the real one is CTK's, in C++."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from Qt import QtCore

from harness.binding.stand_ins import standIn

Property = QtCore.Property


@standIn()
class ctkDICOMDatabase(QtCore.QObject):
    """Knows DICOM files by their UIDs; patients are numbered from 1.

    Args:
        folder: Where the database says that it lies.
    """

    def __init__(self, folder: str | Path) -> None:
        super().__init__()
        self._folder = Path(folder)
        self._isOpen = True
        self._files: dict[str, Path] = {}
        self._headers: dict[str, Any] = {}

    isOpen = Property(bool, lambda self: self._isOpen)
    databaseDirectory = Property(str, lambda self: str(self._folder))

    def insert(self, filePath: str, storeFile: bool = True, generateThumbnail: bool = True) -> None:
        """Index one file; a file that is not DICOM is passed over, as CTK does."""
        from pydicom import dcmread
        from pydicom.errors import InvalidDicomError

        try:
            header = dcmread(filePath, stop_before_pixels=True)
        except (InvalidDicomError, OSError):
            return
        uid = str(header.SOPInstanceUID)
        path = Path(filePath)
        if storeFile:
            path = self._store(path, header)
        self._files[uid] = path
        self._headers[uid] = header

    def patients(self) -> tuple[str, ...]:
        """Numbers of the patients."""
        return tuple(str(number) for number in range(1, len(self._patientIDs()) + 1))

    def studiesForPatient(self, patientUID: str) -> tuple[str, ...]:
        """Studies of a patient."""
        patient = self._patientIDs()[int(patientUID) - 1]
        return self._unique("StudyInstanceUID", PatientID=patient)

    def seriesForStudy(self, studyUID: str) -> tuple[str, ...]:
        """Series of a study."""
        return self._unique("SeriesInstanceUID", StudyInstanceUID=studyUID)

    def filesForSeries(self, seriesUID: str, hits: int = -1) -> tuple[str, ...]:
        """Files of a series."""
        uids = self._unique("SOPInstanceUID", SeriesInstanceUID=seriesUID)
        return tuple(map(self.fileForInstance, uids if hits < 0 else uids[:hits]))

    def fileForInstance(self, sopInstanceUID: str) -> str:
        """An instance's file, or ""."""
        path = self._files.get(sopInstanceUID)
        return str(path) if path is not None else ""

    def instanceForFile(self, fileName: str) -> str:
        """The instance that a file holds, or ""."""
        path = Path(fileName)
        return next((uid for uid, held in self._files.items() if held == path), "")

    def seriesForFile(self, fileName: str) -> str:
        """The series that a file is of, or ""."""
        header = self._headers.get(self.instanceForFile(fileName))
        return str(header.SeriesInstanceUID) if header is not None else ""

    def instanceValue(self, sopInstanceUID: str, tag: str) -> str:
        """The text of a tag such as "0008,103E", or ""."""
        header = self._headers.get(sopInstanceUID)
        if header is None:
            return ""
        element = header.get(tuple(int(part, 16) for part in tag.split(",")))
        value = element.value if element is not None else ""
        isMultiple = not isinstance(value, str) and hasattr(value, "__iter__")
        return "\\".join(str(part) for part in value) if isMultiple else str(value)

    def fileValue(self, fileName: str, tag: str) -> str:
        """The text of a tag in a file, or ""."""
        return self.instanceValue(self.instanceForFile(fileName), tag)

    def descriptionForSeries(self, seriesUID: str) -> str:
        """A series' description."""
        return self.fieldForSeries("SeriesDescription", seriesUID)

    def fieldForSeries(self, field: str, seriesInstanceUID: str) -> str:
        """A field of a series, such as "Modality"."""
        return next(iter(self._unique(field, SeriesInstanceUID=seriesInstanceUID)), "")

    def allFiles(self) -> tuple[str, ...]:
        """Every file."""
        return tuple(str(path) for path in self._files.values())

    def _store(self, path: Path, header: Any) -> Path:
        folder = self._folder / "dicom" / str(header.SeriesInstanceUID)
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / str(header.SOPInstanceUID)
        target.write_bytes(path.read_bytes())
        return target

    def _patientIDs(self) -> tuple[str, ...]:
        return self._unique("PatientID")

    def _unique(self, field: str, **criteria: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._values(field, criteria)))

    def _values(self, field: str, criteria: dict[str, str]) -> Iterator[str]:
        for header in self._headers.values():
            if all(str(header.get(name, "")) == value for name, value in criteria.items()):
                yield str(header.get(field, ""))


def indexFolder(database: ctkDICOMDatabase, folder: str | Path) -> int:
    """Index every DICOM file below a folder, where it lies.

    Returns:
        How many files there were.
    """
    before = len(database.allFiles())
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file():
            database.insert(str(path), False)
    return len(database.allFiles()) - before
