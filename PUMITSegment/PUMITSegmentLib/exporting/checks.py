"""Checks of an export before anything is written, one sentence per problem.

Only quick checks: the main thread runs them at every change, and a thread those of files.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pumit.errors import ExportError, PumitError
from pumit.segmentation import Segment
from PUMITSlicerLib.label_layers import BINARY_LABELMAP
from PUMITSlicerLib.labelmap_grid import Box, GridMap, imageGrid
from PUMITSlicerLib.mrml import ijkToRas, orientedImageArray, readVolume
from PUMITSlicerLib.scan_of import isOfAnotherScan
from PUMITSlicerLib.terms import hasCode
from slicer.i18n import tr as _

from PUMITSegmentLib.exporting.dicom_source import (
    INSTANCES_ATTRIBUTE,
    NamedFiles,
    nameDicomFiles,
    openDatabase,
)
from PUMITSegmentLib.exporting.export import (
    ExportChoice,
    Format,
    chosenSegmentIDs,
    exportedSegmentIDs,
)
from PUMITSegmentLib.scene.write_permission import isOfAnotherPatient, whichScan
from PUMITSegmentLib.segments.occupied import occupied
from PUMITSegmentLib.segments.segment_list import segmentIDs

# Label maps of organs compress to less than this fraction of their size.
_PACKED_PART = 0.1
# Where a multi-frame file without functional groups states the position of its first frame.
_PLACES = ("ImagePositionPatient", "DetectorInformationSequence")
# Maximum number of names in a sentence.
_MOST_NAMES = 3


@dataclass(frozen=True)
class Problem:
    """Problem of an export, and whether it prevents it."""

    sentence: str
    isStop: bool


def findProblems(
    segmentationNode,
    volumeNode,
    choice: ExportChoice,
    *,
    addToDatabase: bool = False,
    database=None,
) -> tuple[list[Problem], Callable[[], list[Problem]]]:
    """Find the problems in the scene.

    Args:
        database: Slicer's DICOM database; None for the application's.

    Returns:
        The problems, and a function for a thread that finds those of folder and files.
    """
    # Only once: checking for an empty segment reads its voxels.
    IDs = exportedSegmentIDs(segmentationNode, choice.onlyVisible)
    problems = [
        *_segment_problems(segmentationNode, IDs, choice),
        *_volume_problems(segmentationNode, IDs, volumeNode, choice),
    ]
    checks: list[Callable[[], Iterable[Problem]]] = [lambda: _folder_problems(choice.folder)]
    if not choice.format.isDicom and choice.format is not Format.SEG_NRRD:
        named = _namesOfStack(volumeNode, database)
        checks.append(lambda: _unplaced_problems(named))
        problems += _channel_problems(volumeNode, choice)
    if choice.format.isDicom:
        if importlib.util.find_spec("highdicom") is None:
            problems.append(
                _stop(_("The DICOM writer is not installed; install it in the section Compute."))
            )
        if volumeNode is not None:
            ofVolume = nameDicomFiles(volumeNode, database)
            checks.append(lambda: _dicom_problems(ofVolume))
        if addToDatabase and database is None and openDatabase() is None:
            words = _(
                "Slicer's DICOM database is not open, so the file is written to the folder only; "
                "open the DICOM module once to open the database."
            )
            problems.append(_warn(words))
    needed = _bytesNeeded(segmentationNode, IDs, volumeNode, choice)

    def checkFiles() -> list[Problem]:
        found = [problem for check in checks for problem in check()]
        if not any(p.isStop for p in (*problems, *found)):
            found += _space_problems(choice.folder, needed)
        return found

    return problems, checkFiles


def _stop(sentence: str) -> Problem:
    return Problem(sentence, True)


def _warn(sentence: str) -> Problem:
    return Problem(sentence, False)


# --- the folder -----------------------------------------------------------------------------------


def _folder_problems(folder: Path) -> Iterator[Problem]:
    if not str(folder).strip() or folder == Path():
        yield _stop(_("No folder is chosen; choose where to write."))
        return
    nearest = _existing(folder)
    if not nearest.is_dir():
        yield _stop(_("{path} is a file, not a folder; choose a folder.").format(path=nearest))
    elif not os.access(nearest, os.W_OK | os.X_OK):
        yield _stop(
            _("No permission to write to {path}; choose another folder.").format(path=nearest)
        )


def _existing(folder: Path) -> Path:
    """Return the folder, or its nearest existing parent."""
    folder = folder.absolute()
    places = (folder, *folder.parents)
    return next((path for path in places if path.exists() or path.is_symlink()), places[-1])


def _bytesNeeded(segmentationNode, IDs: list[str], volumeNode, choice: ExportChoice) -> int:
    images = _images(segmentationNode, IDs) if IDs else []
    plain = sum(int(np.prod(Box.ofImage(image).shape)) for image in images)
    if choice.format.isLabelMap and volumeNode is not None and volumeNode.GetImageData():
        plain = int(np.prod(volumeNode.GetImageData().GetDimensions()))
    # Slicer's file is written uncompressed first.
    return plain if choice.format is Format.SEG_NRRD else int(plain * _PACKED_PART)


def _space_problems(folder: Path, needed: int) -> Iterator[Problem]:
    try:
        free = shutil.disk_usage(_existing(folder)).free
    except OSError:
        return  # unknown for some network folders
    if free < needed:
        yield _stop(
            _(
                "The disk has {free} MB left and about {needed} MB are needed; free disk space."
            ).format(free=free >> 20, needed=(needed >> 20) + 1)
        )


def _images(segmentationNode, IDs: list[str]) -> list[Any]:
    segmentation = segmentationNode.GetSegmentation()
    images = (segmentation.GetSegment(ID).GetRepresentation(BINARY_LABELMAP) for ID in IDs)
    return [image for image in dict.fromkeys(images) if image is not None]


# --- the segments ---------------------------------------------------------------------------------


def _segment_problems(segmentationNode, IDs: list[str], choice: ExportChoice) -> Iterator[Problem]:
    everything = segmentIDs(segmentationNode)
    if not everything:
        yield _stop(_("There is no segment yet; segment something first."))
        return
    segmentation = segmentationNode.GetSegmentation()
    chosen = chosenSegmentIDs(segmentationNode, choice.onlyVisible)
    if not chosen:
        yield _stop(_("Every segment is hidden; show the segments to export."))
        return
    hidden = tuple(ID for ID in everything if ID not in chosen)
    empty = tuple(ID for ID in chosen if ID not in IDs)
    if not IDs:
        yield _stop(
            (
                _("{names} is empty; segment something in it, or remove it.")
                if len(empty) == 1
                else _("{names} are empty; segment something in them, or remove them.")
            ).format(names=_namesOf(segmentation, empty))
        )
        return
    for left, words in (
        (hidden, _("Left out, because hidden: {names}; show the segments to export.")),
        (empty, _("Left out, because empty: {names}; segment something in it, or remove it.")),
    ):
        if left:
            yield _warn(words.format(names=_namesOf(segmentation, left)))
    named = {ID: segmentation.GetSegment(ID) for ID in IDs}
    yield from _name_problems([segment.GetName() for segment in named.values()], choice.format)
    uncoded = tuple(ID for ID in IDs if not hasCode(named[ID]))
    if uncoded and not choice.format.isStatistics:
        yield _warn(
            (
                _("{names} has no code; choose a structure for it, or it is exported as tissue.")
                if len(uncoded) == 1
                else _("{names} have no code; choose structures, or they are exported as tissue.")
            ).format(names=_quoted([named[ID].GetName() for ID in uncoded]))
        )
    isOnePerVoxel = choice.format is Format.DICOM_LABELMAP or choice.format.isLabelMap
    isShared = isOnePerVoxel and _overlap(segmentation, IDs)
    if choice.format is Format.DICOM_LABELMAP and isShared:
        yield _stop(
            _(
                "Segments overlap, and a LABELMAP DICOM-SEG allows one segment per voxel, so they "
                "cannot be exported; DICOM-SEG of type BINARY and .seg.nrrd keep both."
            )
        )
    if choice.format.isLabelMap and isShared:
        yield _warn(
            _(
                "Segments overlap, and a label map allows one label per voxel: the lower one in "
                "the table is kept there; DICOM-SEG and .seg.nrrd keep both."
            )
        )


def _overlap(segmentation, IDs: list[str]) -> bool:
    """Return whether two segments have a voxel in common; those of one label map have none."""
    layers: dict[Any, list[str]] = {}
    for ID in IDs:
        image = segmentation.GetSegment(ID).GetRepresentation(BINARY_LABELMAP)
        if image is not None:
            layers.setdefault(image, []).append(ID)
    before: list[str] = []
    for image, own in layers.items():
        box, grid = Box.ofImage(image), imageGrid(image)
        others = occupied(segmentation, before, box, grid)
        if others.any() and (others & occupied(segmentation, own, box, grid)).any():
            return True
        before += own
    return False


def _name_problems(names: list[str], format_: Format) -> Iterator[Problem]:
    for name, count in Counter(names).items():
        if count > 1:
            words = _("{count} segments are called {name}; give each a different name.")
            yield Problem(words.format(count=count, name=_quoted([name])), format_.isDicom)
    for name in names if format_.isDicom else ():
        try:
            # `Segment` checks what DICOM allows.
            Segment(name, np.ones((1, 1, 1), dtype=bool))
        except ExportError as error:
            yield _stop(str(error))


def _namesOf(segmentation, IDs: tuple[str, ...]) -> str:
    return _quoted([segmentation.GetSegment(ID).GetName() for ID in IDs])


def _quoted(names: list[str]) -> str:
    shown = ['"' + (name if len(name) <= 30 else name[:29] + "…") + '"' for name in names]
    if len(shown) > _MOST_NAMES:
        return _("{names} and {count} more").format(
            names=", ".join(shown[:_MOST_NAMES]), count=len(shown) - _MOST_NAMES
        )
    return ", ".join(shown)


# --- the volume -----------------------------------------------------------------------------------


def _volume_problems(
    segmentationNode, IDs: list[str], volumeNode, choice: ExportChoice
) -> Iterator[Problem]:
    if choice.format is Format.SEG_NRRD:
        if volumeNode is not None and volumeNode.GetParentTransformNode() is not None:
            yield _warn(
                _(
                    "The volume is under a transform: the file uses the position shown in the "
                    "views, not the position in the image file."
                )
            )
        return
    if volumeNode is None:
        yield _stop(_("There is no volume; choose the one that was segmented."))
        return
    try:
        # Only statistics use the voxels.
        readVolume(volumeNode, isFinite=choice.format.isStatistics)
    except PumitError as error:
        yield _stop(str(error))
        return
    isMoved = volumeNode.GetParentTransformNode() is not None
    if isMoved and (choice.format.isLabelMap or choice.format.isStatistics):
        yield _warn(
            _(
                "The volume is under a transform: the file uses the position in the image file, "
                "not the position shown in the views."
            )
        )
    if segmentationNode is not None:
        yield from _scan_problems(segmentationNode, volumeNode)
        yield from _place_problems(segmentationNode, IDs, volumeNode)


def _scan_problems(segmentationNode, volumeNode) -> Iterator[Problem]:
    which = whichScan(segmentationNode)
    if isOfAnotherPatient(segmentationNode, volumeNode):
        yield _stop(
            _("{which} That scan is of another patient; choose it under 1. Scan.").format(
                which=which
            )
        )
    elif isOfAnotherScan(segmentationNode, volumeNode):
        yield _warn(
            _("{which} The file is written for {scan}; is that right?").format(
                which=which, scan=_quoted([volumeNode.GetName()])
            )
        )


def _place_problems(segmentationNode, IDs: list[str], volumeNode) -> Iterator[Problem]:
    segmentation = segmentationNode.GetSegmentation()
    whole = Box.ofImage(volumeNode.GetImageData())
    grid = ijkToRas(volumeNode)
    parents = (segmentationNode.GetParentTransformNode(), volumeNode.GetParentTransformNode())
    for ID in IDs:
        segment = segmentation.GetSegment(ID)
        image = segment.GetRepresentation(BINARY_LABELMAP)
        if image is None:
            continue
        toVolume = GridMap(imageGrid(image), grid, *parents)
        if _isInside(toVolume.covering(Box.ofImage(image)), whole):
            continue
        # Only now compute the segment's own box, which reads every voxel.
        labels = orientedImageArray(image) == segment.GetLabelValue()
        reach = toVolume.covering(Box.around(labels, Box.ofImage(image).start))
        name = _quoted([segment.GetName()])
        if not all(s.start < s.stop for s in reach.within(whole)):
            yield _stop(
                _("{name} is outside the volume; is this the volume that was segmented?").format(
                    name=name
                )
            )
        elif not _isInside(reach, whole):
            yield _warn(
                _("{name} extends beyond the volume; the part outside is left out.").format(
                    name=name
                )
            )


def _isInside(box: Box, whole: Box) -> bool:
    return box.united(whole) == whole


# --- DICOM ----------------------------------------------------------------------------------------


def _dicom_problems(named: NamedFiles) -> Iterator[Problem]:
    found = named.find()
    if not found.isFromDicom:
        yield _stop(
            _(
                "The volume does not come from DICOM, and a DICOM file refers to DICOM images; "
                "write .seg.nrrd, or load the scan from DICOM."
            )
        )
    elif found.missing:
        yield _stop(
            _(
                "{missing} of {all} DICOM files of the volume are gone or not in Slicer's DICOM "
                "database; import the scan again, or write .seg.nrrd."
            ).format(missing=found.missing, all=found.missing + len(found.paths))
        )
    else:
        yield from _header_problems(found.paths)


def _header_problems(paths: tuple[Path, ...]) -> Iterator[Problem]:
    try:
        areUnplaced = _areUnplaced(paths)
    except OSError:
        yield _stop(_("A DICOM file of the volume cannot be read; import the scan again."))
        return
    if areUnplaced:
        yield _stop(
            _(
                "The volume comes from a multi-frame DICOM file that does not state the positions "
                "of its frames, so nothing can refer to them; write .seg.nrrd."
            )
        )


def _namesOfStack(volumeNode, database) -> NamedFiles:
    """Return the files of a volume that may be a cine."""
    image = volumeNode.GetImageData() if volumeNode is not None else None
    if image is None:
        return NamedFiles()
    instances = (volumeNode.GetAttribute(INSTANCES_ATTRIBUTE) or "").split()
    # A series of many files is not looked up for this, nor one frame.
    isStack = image.GetDimensions()[2] > 1 and len(set(instances)) < 2
    return nameDicomFiles(volumeNode, database) if isStack else NamedFiles()


def _unplaced_problems(named: NamedFiles) -> Iterator[Problem]:
    """Find a doubt about the depths in a label map or statistics."""
    paths = named.find().paths
    with suppress(OSError):
        if paths and _areUnplaced(paths):
            yield _warn(
                _(
                    "The DICOM file does not state the positions of its frames. If they are times, "
                    "as of a cine, depths and volumes in the file mean nothing."
                )
            )


def _channel_problems(volumeNode, choice: ExportChoice) -> Iterator[Problem]:
    image = volumeNode.GetImageData() if volumeNode is not None else None
    count = image.GetNumberOfScalarComponents() if image is not None else 1
    if choice.format.isStatistics and count > 1:
        yield _warn(
            _(
                "The image has {count} channels, such as colours; intensities are those of the "
                "first one."
            ).format(count=count)
        )


def _areUnplaced(paths: tuple[Path, ...]) -> bool:
    """Return whether a file has several frames, and does not state where they are.

    Raises:
        OSError: If it cannot be read.
    """
    try:
        from pydicom import dcmread
        from pydicom.errors import InvalidDicomError
    except ImportError:
        return False  # reported as not installed
    try:
        tags = ["NumberOfFrames", "SharedFunctionalGroupsSequence", *_PLACES]
        header = dcmread(paths[0], stop_before_pixels=True, specific_tags=tags)
    except InvalidDicomError as error:
        raise OSError(str(error)) from error
    isOlder = "SharedFunctionalGroupsSequence" not in header
    isOfSeveral = int(header.get("NumberOfFrames") or 1) > 1
    return isOfSeveral and isOlder and not _arePlaced(header, paths)


def _arePlaced(header, paths: tuple[Path, ...]) -> bool:
    """Return whether the positions of frames without functional groups follow from the first."""
    from pumit.io.dicom.files import read_header
    from pumit.io.dicom.slices import slices_of

    detectors = header.get("DetectorInformationSequence") or ()
    if not any("ImagePositionPatient" in each for each in (header, *detectors)):
        return False
    try:
        slices = slices_of(read_header(paths[0]))
    except PumitError:
        return False
    return len(paths) == 1 and len(slices) > 1 and not slices[0].is_separate
