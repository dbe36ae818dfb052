"""The user's permission to write to the segmentation of another scan."""

from __future__ import annotations

from collections.abc import Callable

from slicer.i18n import tr as _

from PUMITSegmentLib.scene.same_patient import Kinship, kinship
from PUMITSegmentLib.segments.as_voxels import isOfVoxels, makeVoxels
from PUMITSegmentLib.segments.scan_of import assignScan, claim, isOfAnotherScan, scanName, scanOf


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
        if isOfAnotherPatient(segmentationNode, volumeNode):
            return False
        if not isOfVoxels(segmentationNode) and not self._convert(segmentationNode, volumeNode):
            return False
        if self.isGiven(segmentationNode, volumeNode):
            claim(segmentationNode, volumeNode)
            return True
        question = _("{which} Edit it on the scan {scan} instead?").format(
            which=whichScan(segmentationNode), scan=_quoted(volumeNode.GetName())
        )
        if not self.confirm(question):
            return False
        self._given.add((segmentationNode.GetID(), volumeNode.GetID()))
        assignScan(segmentationNode, volumeNode)
        return True

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


def _quoted(name: str) -> str:
    return f'"{name}"'
