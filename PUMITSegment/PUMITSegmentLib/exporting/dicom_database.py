"""Adding exported DICOM files to Slicer's DICOM database."""

from __future__ import annotations

from pathlib import Path

from pumit.errors import ExportError
from slicer.i18n import tr as _

from PUMITSegmentLib.exporting.dicom_source import openDatabase


def addToDatabase(path: Path, database=None) -> None:
    """Copy a DICOM file into Slicer's database; main thread only.

    Args:
        database: The database; None for the application's.

    Raises:
        ExportError: If no database is open, or it rejects the file.
    """
    database = database if database is not None else openDatabase()
    if database is None:
        raise ExportError(
            _(
                "Slicer's DICOM database is not open; open the DICOM module, then import {file}."
            ).format(file=path.name)
        )
    from pydicom import dcmread

    uid = str(
        dcmread(path, stop_before_pixels=True, specific_tags=["SOPInstanceUID"]).SOPInstanceUID
    )
    database.insert(str(path))
    if not database.fileForInstance(uid):
        raise ExportError(
            _(
                "Slicer's DICOM database did not accept {file}; import it in the DICOM module."
            ).format(file=path.name)
        )


def databaseName() -> str:
    """Return a display name of Slicer's DICOM database, with its folder if it is open."""
    database = openDatabase()
    folder = getattr(database, "databaseDirectory", "") if database is not None else ""
    if not folder:
        return _("Slicer's DICOM database")
    return _("Slicer's DICOM database in {folder}").format(folder=folder)
