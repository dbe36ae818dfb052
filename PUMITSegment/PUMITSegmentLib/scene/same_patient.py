"""Relation of two scans: patient, position and order, by DICOM, by derivation, or by the user."""

from __future__ import annotations

import enum

import slicer
from PUMITSlicerLib.mrml import madeFrom
from slicer.i18n import tr as _

_TOGETHER, _ONE_PATIENT = "PUMITSegment.together", "PUMITSegment.onePatient"
_TWO_IDENTIFIERS = "PUMITSegment.twoIdentifiers"
_PATIENT_ID, _PATIENT_NAME = ("DICOM.PatientID", "0010,0020"), ("DICOM.PatientName", "0010,0010")
_FRAME = ("DICOM.FrameOfReferenceUID", "0020,0052")
# In order of preference.
_DATES = (("DICOM.AcquisitionDate", "0008,0022"), ("DICOM.StudyDate", "0008,0020"))


class Kinship(enum.Enum):
    """Relation of two scans."""

    SAME = "one patient, in one position"
    UNKNOWN = "not known"
    OTHER = "two patients"


def kinship(first, second) -> Kinship:
    """Return the relation of two scans.

    Scans are the same if DICOM states the same patient and frame of reference for both, if PUMIT
    made one from the other, or if the user said so. Unknown relations do not count as the same,
    and two patients of DICOM stay two, also if the user compares them as one person.
    """
    first, second = madeFrom(first), madeFrom(second)
    if first is second:
        return Kinship.SAME
    if _areStatedToDiffer(first, second):
        return Kinship.OTHER
    places = [
        (_identifier(node, *_PATIENT_ID), _identifier(node, *_FRAME)) for node in (first, second)
    ]
    isSame = all(places[0]) and places[0] == places[1]
    return Kinship.SAME if isSame or _isVouchedFor(first, second) else Kinship.UNKNOWN


def ofOnePatient(first, second) -> Kinship:
    """Return whether two scans are of one patient, in any position, such as at two dates.

    Without that information in DICOM, the user's earlier answer is used; if DICOM states two
    patients, only the answer to just that question is.
    """
    first, second = madeFrom(first), madeFrom(second)
    if first is second or _isLinked(first, second, _TWO_IDENTIFIERS):
        return Kinship.SAME
    patients = _patientIDs(first, second)
    if all(patients):
        return Kinship.SAME if patients[0] == patients[1] else Kinship.OTHER
    isSame = _isVouchedFor(first, second) or _isLinked(first, second, _ONE_PATIENT)
    return Kinship.SAME if isSame else Kinship.UNKNOWN


def _patientIDs(first, second) -> list[str]:
    return [_identifier(node, *_PATIENT_ID) for node in (first, second)]


def _areStatedToDiffer(first, second) -> bool:
    patients = _patientIDs(first, second)
    return all(patients) and patients[0] != patients[1]


def vouchForPatient(first, second) -> None:
    """Record in the scene the user's answer that two scans of two dates are of one patient.

    This does not imply equal positions, so prompts are not shared between them.
    """
    first, second = madeFrom(first), madeFrom(second)
    isOther = ofOnePatient(first, second) is Kinship.OTHER
    role = _TWO_IDENTIFIERS if isOther else _ONE_PATIENT
    if not _isLinked(first, second, role):
        first.AddNodeReferenceID(role, second.GetID())


def twoPatientsInWords(first, second) -> str:
    """Return a question whether two patients of DICOM are one person with two identifiers."""
    return _(
        "DICOM states two patients: {patient} for {first}, {other} for {second}. Are they one "
        "person, under two identifiers? If you are not sure, answer No."
    ).format(
        first=first.GetName(),
        second=second.GetName(),
        patient=_patientInWords(first),
        other=_patientInWords(second),
    )


def _patientInWords(node) -> str:
    name, number = (_identifier(madeFrom(node), *what) for what in (_PATIENT_NAME, _PATIENT_ID))
    return f"{name.replace('^', ' ').strip()} ({number})" if name else number


def vouch(first, second) -> None:
    """Record in the scene the user's answer that two scans are of one patient in one position."""
    first, second = madeFrom(first), madeFrom(second)
    if not _isVouchedFor(first, second):
        first.AddNodeReferenceID(_TOGETHER, second.GetID())


def nameWithPatient(volumeNode) -> str:
    """Return the name of a scan, with the patient's name if DICOM has one."""
    patient = _identifier(madeFrom(volumeNode), *_PATIENT_NAME).replace("^", " ").strip()
    return f"{volumeNode.GetName()} ({patient})" if patient else str(volumeNode.GetName())


def reversedDates(earlier, later) -> tuple[str, str] | None:
    """Return both days if DICOM states that the earlier scan was made after the later one."""
    for what in _DATES:
        days = [_identifier(madeFrom(node), *what).replace(".", "") for node in (earlier, later)]
        if all(days):
            first, second = (f"{day[:4]}-{day[4:6]}-{day[6:8]}" for day in days)
            return (first, second) if first > second else None
    return None


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
