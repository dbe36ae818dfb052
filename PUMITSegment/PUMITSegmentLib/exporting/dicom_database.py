"""Exported DICOM files in Slicer's DICOM database, as if they had been imported."""

from __future__ import annotations

from pathlib import Path

from pumit.errors import ExportError
from slicer.i18n import tr as _

from PUMITSegmentLib.exporting.dicom_source import openDatabase


def addToDatabase(path: Path, database=None) -> None:
    """Copy a DICOM file into Slicer's database; from the main thread only.

    Args:
        path: The file.
        database: The database; None for that of the application.

    Raises:
        ExportError: If there is no open database, or it does not take the file.
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
            _("Slicer's DICOM database did not take {file}; import it in the DICOM module.").format(
                file=path.name
            )
        )


def databaseName() -> str:
    """Slicer's DICOM database as a user knows it: by its folder, where it is open."""
    database = openDatabase()
    folder = getattr(database, "databaseDirectory", "") if database is not None else ""
    if not folder:
        return _("Slicer's DICOM database")
    return _("Slicer's DICOM database in {folder}").format(folder=folder)
