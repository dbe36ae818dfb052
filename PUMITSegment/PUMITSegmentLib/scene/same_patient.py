"""Relation of two scans: same patient and position, by DICOM, by derivation, or by the user."""

from __future__ import annotations

import enum

import slicer
from PUMITSlicerLib.mrml import madeFrom

_TOGETHER, _ONE_PATIENT = "PUMITSegment.together", "PUMITSegment.onePatient"
_PATIENT_ID, _PATIENT_NAME = ("DICOM.PatientID", "0010,0020"), ("DICOM.PatientName", "0010,0010")
_FRAME = ("DICOM.FrameOfReferenceUID", "0020,0052")


class Kinship(enum.Enum):
    """Relation of two scans."""

    SAME = "one patient, in one position"
    UNKNOWN = "not known"
    OTHER = "two patients"


def kinship(first, second) -> Kinship:
    """Return the relation of two scans.

    Scans are the same if DICOM states the same patient and frame of reference for both, if PUMIT
    made one from the other, or if the user said so. Unknown relations do not count as the same.
    """
    first, second = madeFrom(first), madeFrom(second)
    if first is second:
        return Kinship.SAME
    patients = [_identifier(node, *_PATIENT_ID) for node in (first, second)]
    if all(patients) and patients[0] != patients[1]:
        return Kinship.OTHER
    frames = [_identifier(node, *_FRAME) for node in (first, second)]
    isSame = all(patients) and all(frames) and frames[0] == frames[1]
    return Kinship.SAME if isSame or _isVouchedFor(first, second) else Kinship.UNKNOWN


def ofOnePatient(first, second) -> Kinship:
    """Return whether two scans are of one patient, in any position, such as at two dates.

    Without that information in DICOM, the user's earlier answer is used.
    """
    first, second = madeFrom(first), madeFrom(second)
    patients = [_identifier(node, *_PATIENT_ID) for node in (first, second)]
    if all(patients):
        return Kinship.SAME if patients[0] == patients[1] else Kinship.OTHER
    isSame = kinship(first, second) is Kinship.SAME or _isLinked(first, second, _ONE_PATIENT)
    return Kinship.SAME if isSame else Kinship.UNKNOWN


def vouchForPatient(first, second) -> None:
    """Record in the scene the user's answer that two scans of two dates are of one patient.

    This does not imply equal positions, so prompts are not shared between them.
    """
    first, second = madeFrom(first), madeFrom(second)
    if not _isLinked(first, second, _ONE_PATIENT):
        first.AddNodeReferenceID(_ONE_PATIENT, second.GetID())


def vouch(first, second) -> None:
    """Record in the scene the user's answer that two scans are of one patient in one position."""
    first, second = madeFrom(first), madeFrom(second)
    if not _isVouchedFor(first, second):
        first.AddNodeReferenceID(_TOGETHER, second.GetID())


def nameWithPatient(volumeNode) -> str:
    """Return the name of a scan, with the patient's name if DICOM has one."""
    patient = _identifier(madeFrom(volumeNode), *_PATIENT_NAME).replace("^", " ").strip()
    return f"{volumeNode.GetName()} ({patient})" if patient else str(volumeNode.GetName())


def _isVouchedFor(first, second) -> bool:
    return _isLinked(first, second, _TOGETHER)


def _isLinked(first, second, role: str) -> bool:
    return any(
        a.GetNthNodeReference(role, i) is b
        for a, b in ((first, second), (second, first))
        for i in range(a.GetNumberOfNodeReferences(role))
    )


def _identifier(volumeNode, attribute: str, tag: str) -> str:
    """Return what DICOM states about a scan; "" if nothing, or contradictory values."""
    from pumit.io.dicom.files import stated

    found = [volumeNode.GetAttribute(attribute)]
    hierarchy = slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(slicer.mrmlScene)
    item = hierarchy.GetItemByDataNode(volumeNode) if hierarchy is not None else 0
    while item and item != hierarchy.GetSceneItemID():
        found.append(hierarchy.GetItemAttribute(item, attribute))
        item = hierarchy.GetItemParent(item)
    database = getattr(slicer, "dicomDatabase", None)
    uids = (volumeNode.GetAttribute("DICOM.instanceUIDs") or "").split()
    if uids and database is not None and database.isOpen:
        found.append(database.instanceValue(uids[0], tag))
    known = {text for text in map(stated, filter(None, found)) if text}
    return known.pop() if len(known) == 1 else ""
