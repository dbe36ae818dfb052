"""DICOM files of a volume node, and the geometry of its slices in them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import slicer
from pumit.errors import ExportError
from pumit.file_image import DicomSource
from pumit.geometry import Floats
from pumit.volume import Volume
from slicer.i18n import tr as _

INSTANCES_ATTRIBUTE = "DICOM.instanceUIDs"
# Relative difference above which the pixel spacing is not that of the files.
SPACING_TOLERANCE = 0.01


@dataclass(frozen=True)
class DicomFiles:
    """DICOM files of a volume.

    Attributes:
        paths: Existing files, in the order in which the reader got them.
        missing: Number of source files that no longer exist.
        isFromDicom: Whether the volume was read from DICOM at all.
    """

    paths: tuple[Path, ...] = ()
    missing: int = 0
    isFromDicom: bool = False


@dataclass(frozen=True)
class NamedFiles:
    """Names of the files that a volume may come from, which need not exist.

    Attributes:
        instances: UIDs of the instances that the volume names.
        known: Their files in Slicer's DICOM database.
        stored: Files of the volume's storage node.
    """

    instances: tuple[str, ...] = ()
    known: tuple[Path, ...] = ()
    stored: tuple[Path, ...] = ()

    @property
    def areNamedLikeDicom(self) -> bool:
        """Whether they are DICOM by their names, without a look at the files."""
        suffix = self.stored[0].suffix.lower()[1:] if self.stored else None
        return bool(self.instances) or suffix in ("", "dcm", "ima") or (suffix or "").isdigit()

    def find(self) -> DicomFiles:
        """Find the DICOM files among them; for a thread, since a share may be slow."""
        uids = self.instances
        if uids and len(self.known) == len(uids):
            return _existing(self.known)
        stored = _ofDicom(self.stored)
        if stored and (not uids or len(stored) >= len(set(uids))):
            return _existing(stored)
        found = _existing(self.known)
        return replace(found, missing=len(uids) - len(found.paths), isFromDicom=bool(uids))


def nameDicomFiles(volumeNode, database=None) -> NamedFiles:
    """Return the names of the files of a volume; arguments as of `findDicomFiles`."""
    if volumeNode is None:
        return NamedFiles()
    uids = (volumeNode.GetAttribute(INSTANCES_ATTRIBUTE) or "").split()
    known = _database_files(uids, database if database is not None else openDatabase())
    return NamedFiles(tuple(uids), tuple(known), _storedFiles(volumeNode))


def findDicomFiles(volumeNode, database=None) -> DicomFiles:
    """Find the DICOM files of a volume; only names are read, no whole file.

    Slicer's DICOM module stores the instance UIDs on the volume, and its database has their files.
    A volume that was read from files directly has them in its storage node.

    Args:
        database: Slicer's DICOM database; None for the application's, if there is one.
    """
    return nameDicomFiles(volumeNode, database).find()


def openDatabase():
    """Return Slicer's DICOM database, or None if there is none or it is closed."""
    database = getattr(slicer, "dicomDatabase", None)
    return database if database is not None and database.isOpen else None


def _database_files(uids: list[str], database) -> list[Path]:
    if database is None:
        return []
    names = [database.fileForInstance(uid) for uid in uids]
    return [Path(name) for name in names if name]


def _storedFiles(volumeNode) -> tuple[Path, ...]:
    storage = volumeNode.GetStorageNode()
    if storage is None or not storage.GetFileName():
        return ()
    more = [storage.GetNthFileName(i) for i in range(storage.GetNumberOfFileNames())]
    return tuple(Path(name) for name in dict.fromkeys(more or [storage.GetFileName()]) if name)


def _ofDicom(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return files if the first one is DICOM, else none."""
    from pumit.io.dicom.files import is_dicom

    if not paths:
        return ()
    try:
        with paths[0].open("rb") as file:
            return paths if is_dicom(file.read(132)) else ()
    except OSError:
        return paths if paths[0].suffix.lower() in (".dcm", ".ima") else ()


def _existing(paths: tuple[Path, ...]) -> DicomFiles:
    # A multi-frame file is one instance, and may be listed once per frame.
    unique = tuple(dict.fromkeys(paths))
    existing = tuple(path for path in unique if path.is_file())
    return DicomFiles(existing, len(unique) - len(existing), isFromDicom=bool(unique))


@dataclass(frozen=True, eq=False)
class SliceStack(Volume):
    """Volume whose slices are the frames of a DICOM series, at the positions in the series.

    A volume node may have another position than its files: Slicer straightens a tilted or unevenly
    spaced series by a transform, and users centre or register volumes. The voxels are still the
    files' pixels, so a segment belongs to the frames on which it was drawn. This class maps
    positions in the series' patient coordinates to those slices.

    Attributes:
        corners_lps: First pixel of each slice's frame, (D, 3), mm.
        pixels_per_mm: 3 x 2; columns map an offset in mm to row (h) and column (w) indices.
        normal_lps: Unit normal of the frames.
    """

    corners_lps: Floats = None
    pixels_per_mm: Floats = None
    normal_lps: Floats = None

    def world_to_index(self, points_lps: npt.ArrayLike) -> Floats:
        """Map positions in the series' LPS mm, (..., 3), to (d, h, w) in the nearest slice."""
        points = np.asarray(points_lps, dtype=np.float64)
        heights = self.corners_lps @ self.normal_lps
        d = np.abs((points @ self.normal_lps)[..., None] - heights).argmin(axis=-1)
        in_plane = (points - self.corners_lps[d]) @ self.pixels_per_mm
        return np.concatenate([d[..., None].astype(np.float64), in_plane], axis=-1)


def withSource(volume: Volume, files: tuple[Path, ...]) -> Volume:
    """Add the DICOM source to a volume, in slice order; reads every header, needs no scene.

    Args:
        files: Files of one series, single- or multi-frame, in the order in which the reader got
            them.

    Returns:
        A `SliceStack` if the voxels are the files' pixels; otherwise, for example after
            cropping or resampling, the same volume with its source.

    Raises:
        ExportError: If a header cannot be read or used, or if the slices were not read in
            spatial order, so that slices cannot be matched to files.
    """
    from pumit.export.source_frames import source_frames
    from pumit.export.source_headers import read_headers
    from pumit.io.dicom.pixel_size import pixel_size_by_itk

    source = DicomSource(files, "")
    headers = read_headers(source)
    uid = str(headers[0].SeriesInstanceUID)
    frames = source_frames(headers, source, slices=volume.shape[0])
    geometries = [frame.geometry for frame in frames]
    first = geometries[0]
    sizes = {(frame.rows, frame.columns) for frame in frames}
    if first is None or any(geometry is None for geometry in geometries):
        return replace(volume, source=DicomSource(files, uid))
    corners = np.array([geometry.position_lps for geometry in geometries])
    normal = np.cross(*first.axes_lps.T)
    order = np.argsort(corners @ normal, kind="stable")
    if np.linalg.det(volume.direction) < 0:
        # Slices are ordered against the normal of rows and columns.
        order = order[::-1]
    is_single = len(files) == len(frames)
    ordered = tuple(files[i] for i in order) if is_single else files
    source = DicomSource(ordered, uid)
    spacing = np.array(first.pixel_spacing_mm)
    read = [first.pixel_spacing_mm]
    if "PerFrameFunctionalGroupsSequence" not in headers[0]:
        # Slicer gives the pixels of some projections another size.
        read.append(pixel_size_by_itk(headers[0]))
    is_own = (
        sizes == {volume.shape[1:]}
        and len(frames) == volume.shape[0]
        and any(np.allclose(s, volume.spacing_mm[1:], rtol=SPACING_TOLERANCE) for s in read)
    )
    if not is_own:
        return replace(volume, source=source)
    # The volume was read in spatial order, as by Slicer's DICOM module; or the reader sorted it,
    # and it was not moved since.
    ends = volume.index_to_world([(0, 0, 0), (volume.shape[0] - 1, 0, 0)])
    is_in_place = np.abs(ends - corners[order[[0, -1]]]).max() < min(spacing) / 2
    if not is_in_place and not np.array_equal(order, np.arange(len(frames))):
        raise ExportError(
            _(
                "The slices of the volume are not in the order of their positions; load the scan "
                "with Slicer's DICOM module, or write .seg.nrrd."
            )
        )
    return SliceStack(
        volume.array,
        volume.spacing_mm,
        volume.origin_lps,
        volume.direction,
        source,
        volume.thickness_mm,
        corners[order],
        first.axes_lps[:, ::-1] / spacing,
        normal,
    )


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
