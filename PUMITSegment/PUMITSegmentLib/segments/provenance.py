"""Provenance of a segment: a person, or a model with or without a person's prompts.

Slicer's own DICOM-SEG export reads the algorithm from the same tags, so that it is correct there
too. A segment without them counts as manual, in Slicer as here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import vtk

AlgorithmType = Literal["AUTOMATIC", "SEMIAUTOMATIC", "MANUAL"]
TYPE_TAG = "DICOM.SegmentAlgorithmType"
NAME_TAG = "DICOM.SegmentAlgorithmName"
VERSION_TAG = "PUMIT.ModelVersion"
_PROGRAM = "PUMIT"
# Servers of this program use its own model.
_FOREIGN = "nnInteractive"
# Length of DICOM's value representation LO.
_LONGEST = 64


@dataclass(frozen=True)
class Provenance:
    """Provenance of a segment.

    Attributes:
        type: AUTOMATIC without prompts by a person, SEMIAUTOMATIC with prompts, MANUAL without
            a model.
        name: This program's name with the model's name and version, at most 64 characters; for
            another program's segment its own text; empty if MANUAL.
        version: The model's version; empty if unknown.
    """

    type: AlgorithmType = "MANUAL"
    name: str = ""
    version: str = ""


def byModel(type: AlgorithmType, modelName: str, modelVersion: str) -> Provenance:
    """Return the provenance of a model's segment, with texts valid in DICOM and Slicer's files."""
    version = _written(modelVersion)
    name = _signed(_written(modelName))
    if version and version not in name:
        name = f"{name[: _LONGEST - len(version) - 1].rstrip()} {version}"
    return Provenance(type, name[:_LONGEST], version)


def setProvenance(segment, provenance: Provenance) -> None:
    """Write the provenance to a segment's tags."""
    for tag, value in (
        (TYPE_TAG, provenance.type),
        (NAME_TAG, provenance.name),
        (VERSION_TAG, provenance.version),
    ):
        if value:
            segment.SetTag(tag, value)
        elif segment.HasTag(tag):
            segment.RemoveTag(tag)


def provenanceOf(segment) -> Provenance:
    """Read the provenance from a segment's tags."""
    type_, name, version = (tagOf(segment, tag) for tag in (TYPE_TAG, NAME_TAG, VERSION_TAG))
    if type_ not in ("AUTOMATIC", "SEMIAUTOMATIC"):
        return Provenance()
    # Only this program writes the version tag; its earlier names lacked the prefix.
    written = _signed(_written(name)) if version else _written(name)
    kind: AlgorithmType = "AUTOMATIC" if type_ == "AUTOMATIC" else "SEMIAUTOMATIC"
    return Provenance(kind, written or "Unknown", _written(version))


def editedByHand(segment) -> None:
    """Record that a person changed a segment: AUTOMATIC becomes SEMIAUTOMATIC."""
    made = provenanceOf(segment)
    if made.type == "AUTOMATIC":
        setProvenance(segment, Provenance("SEMIAUTOMATIC", made.name, made.version))


def _signed(modelName: str) -> str:
    """Return a model's name prefixed with this program's, unless another program made it."""
    lower = modelName.lower()
    isSigned = _PROGRAM.lower() in lower or lower.startswith(_FOREIGN.lower())
    return modelName if isSigned else f"{_PROGRAM} {modelName}".strip()[:_LONGEST]


def tagOf(segment, name: str) -> str:
    """Return the value of a segment's tag; "" if it has none."""
    value = vtk.mutable("")
    return str(value) if segment.GetTag(name, value) else ""


def _written(text: str) -> str:
    # | separates tags in Slicer's files, \ values in DICOM.
    plain = "".join(" " if c in "|\\" or not c.isprintable() else c for c in text)
    return " ".join(plain.split())[:_LONGEST]
