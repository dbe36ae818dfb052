"""The user's permission to write to the segmentation of another scan."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PUMITSlicerLib.labelmap_grid import imageGrid
from PUMITSlicerLib.scan_of import isOfAnotherScan, scanName, scanOf
from slicer.i18n import tr as _

from PUMITSegmentLib.scene.same_patient import Kinship, kinship, twoPatientsInWords
from PUMITSegmentLib.segments.as_voxels import isOfVoxels, makeVoxels
from PUMITSegmentLib.segments.scan_of import assignScan, claim
from PUMITSegmentLib.segments.segment_on_grid import isOnGridOf, referenceGrid

# Voxels of a segmentation that are larger than the scan's by this factor lose detail.
_COARSER = 2.0


class WritePermission:
    """The user's permission to write a scan's masks to a segmentation, requested once per pair.

    Attributes:
        confirm: Function that asks a question; True for yes. By default the answer is no.
    """

    def __init__(self) -> None:
        self.confirm: Callable[[str], bool] = lambda question: False
        self._given: set[tuple[str, str]] = set()

    def forget(self) -> None:
        """Reset the permissions: in another scene nodes may have the same IDs."""
        self._given.clear()

    def isGiven(self, segmentationNode, volumeNode) -> bool:
        """Return whether a scan's masks may be written to a segmentation without asking."""
        if isOfAnotherPatient(segmentationNode, volumeNode):
            return False
        pair = (segmentationNode.GetID(), volumeNode.GetID())
        return pair in self._given or not isOfAnotherScan(segmentationNode, volumeNode)

    def request(self, segmentationNode, volumeNode) -> bool:
        """Return whether a scan's masks may be written to a segmentation; ask the user if needed.

        A segmentation without a scan is assigned to this one.
        """
        isOther = isOfAnotherPatient(segmentationNode, volumeNode)
        if isOther and not self._isOfOnePerson(segmentationNode, volumeNode):
            return False
        if not isOfVoxels(segmentationNode) and not self._convert(segmentationNode, volumeNode):
            return False
        if isOther:
            assignScan(segmentationNode, volumeNode)
        if self.isGiven(segmentationNode, volumeNode):
            claim(segmentationNode, volumeNode)
            return True
        question = _("{which} Edit it on the scan {scan} instead?").format(
            which=whichScan(segmentationNode), scan=_quoted(volumeNode.GetName())
        )
        if not self.confirm(question + _coarserInWords(segmentationNode, volumeNode)):
            return False
        self._given.add((segmentationNode.GetID(), volumeNode.GetID()))
        assignScan(segmentationNode, volumeNode)
        return True

    def _isOfOnePerson(self, segmentationNode, volumeNode) -> bool:
        """Ask whether a label of this scan only states another identifier of the patient.

        A scan and its label may be anonymised differently, also their references to images. A label
        that names another scan, or is on another grid, is not asked about.
        """
        if scanName(segmentationNode) or not isOnGridOf(segmentationNode, volumeNode):
            return False
        question = twoPatientsInWords(segmentationNode, volumeNode)
        if isOfAnotherScan(segmentationNode, volumeNode):
            question += " " + _(
                "{segmentation} refers to other images than those of {scan}."
            ).format(segmentation=segmentationNode.GetName(), scan=volumeNode.GetName())
        return self.confirm(question)

    def _convert(self, segmentationNode, volumeNode) -> bool:
        """Convert surfaces or contours to voxels if the user agrees.

        Raises:
            PumitError: If Slicer cannot convert them.
        """
        question = _(
            "{segmentation} is made of surfaces or contours. Convert it to voxels of the scan "
            "{scan}, which clicks can correct?"
        ).format(
            segmentation=_quoted(segmentationNode.GetName()), scan=_quoted(volumeNode.GetName())
        )
        if not self.confirm(question):
            return False
        makeVoxels(segmentationNode, volumeNode)
        return True


def whyNotWritten(segmentationNode, volumeNode) -> str:
    """Return what to do if permission was not given."""
    if isOfAnotherPatient(segmentationNode, volumeNode):
        return _(
            "{which} That scan is of another patient. Choose another segmentation to segment "
            "{scan}."
        ).format(which=whichScan(segmentationNode), scan=_quoted(volumeNode.GetName()))
    if not isOfVoxels(segmentationNode):
        return _(
            "{segmentation} is made of surfaces or contours, which clicks cannot correct. Convert "
            "it, or use a new segmentation."
        ).format(segmentation=_quoted(segmentationNode.GetName()))
    return _("{which} Choose another segmentation to segment {scan}.").format(
        which=whichScan(segmentationNode), scan=_quoted(volumeNode.GetName())
    )


def isOfAnotherPatient(segmentationNode, volumeNode) -> bool:
    """Return whether DICOM states another patient for a segmentation, or its scan, than a scan."""
    own = scanOf(segmentationNode) or segmentationNode
    return kinship(own, volumeNode) is Kinship.OTHER


def whichScan(segmentationNode) -> str:
    """Return a sentence that names the scan of a segmentation."""
    if not scanName(segmentationNode):
        return _("{segmentation} belongs to a scan that is not loaded.").format(
            segmentation=_quoted(segmentationNode.GetName())
        )
    return _("{segmentation} belongs to the scan {scan}.").format(
        segmentation=_quoted(segmentationNode.GetName()),
        scan=_quoted(scanName(segmentationNode)),
    )


def _coarserInWords(segmentationNode, volumeNode) -> str:
    """Return a sentence if the segmentation's voxels are far larger than the scan's, or ""."""
    reference = referenceGrid(segmentationNode.GetSegmentation())
    if reference is None:
        return ""
    size, own = np.linalg.norm(imageGrid(reference)[:3, :3], axis=0), volumeNode.GetSpacing()
    if np.prod(size) < _COARSER * np.prod(own):
        return ""
    return " " + _(
        "Its voxels keep their size, {size} mm, which loses detail; those of the scan are {own} mm."
    ).format(size=_inWords(size), own=_inWords(own))


def _inWords(size) -> str:
    return " x ".join(f"{side:.3g}" for side in size)


def _quoted(name: str) -> str:
    return f'"{name}"'
