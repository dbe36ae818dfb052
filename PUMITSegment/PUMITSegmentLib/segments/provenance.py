"""Who drew a segment: a person, or a model with or without a person's prompts.

The tags are those from which Slicer's own DICOM-SEG export takes the algorithm, so that it too
tells the truth. A segment without them counts as drawn by hand, there as here.
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
# A server of this program computes with its own model.
_FOREIGN = "nnInteractive"
# DICOM's long string.
_LONGEST = 64


@dataclass(frozen=True)
class Provenance:
    """Provenance of a segment.

    Attributes:
        type: AUTOMATIC where no one gave a prompt, SEMIAUTOMATIC where someone did, MANUAL where
            no model took part.
        name: This program's name with the model's and its version, at most 64 characters; of
            another program's work what that wrote; empty if MANUAL.
        version: The model's version; empty if unknown.
    """

    type: AlgorithmType = "MANUAL"
    name: str = ""
    version: str = ""


def byModel(type: AlgorithmType, modelName: str, modelVersion: str) -> Provenance:
    """Provenance of a model's work, its texts such that DICOM and Slicer's files can hold them."""
    version = _written(modelVersion)
    name = _signed(_written(modelName))
    if version and version not in name:
        name = f"{name[: _LONGEST - len(version) - 1].rstrip()} {version}"
    return Provenance(type, name[:_LONGEST], version)


def setProvenance(segment, provenance: Provenance) -> None:
    """Write what made a segment into its tags."""
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
    """Read what made a segment from its tags."""
    type_, name, version = (tagOf(segment, tag) for tag in (TYPE_TAG, NAME_TAG, VERSION_TAG))
    if type_ not in ("AUTOMATIC", "SEMIAUTOMATIC"):
        return Provenance()
    # The tag of the version is only ours; the name used to lack ours.
    written = _signed(_written(name)) if version else _written(name)
    kind: AlgorithmType = "AUTOMATIC" if type_ == "AUTOMATIC" else "SEMIAUTOMATIC"
    return Provenance(kind, written or "Unknown", _written(version))


def editedByHand(segment) -> None:
    """Note that a person changed a segment: what was automatic is so no longer."""
    made = provenanceOf(segment)
    if made.type == "AUTOMATIC":
        setProvenance(segment, Provenance("SEMIAUTOMATIC", made.name, made.version))


def _signed(modelName: str) -> str:
    """Return a model's name behind this program's; a model of another program keeps its own."""
    lower = modelName.lower()
    isSigned = _PROGRAM.lower() in lower or lower.startswith(_FOREIGN.lower())
    return modelName if isSigned else f"{_PROGRAM} {modelName}".strip()[:_LONGEST]


def tagOf(segment, name: str) -> str:
    """Return the value of a segment's tag; empty where it has none."""
    value = vtk.mutable("")
    return str(value) if segment.GetTag(name, value) else ""


def _written(text: str) -> str:
    # | separates tags in Slicer's files, \ values in DICOM.
    plain = "".join(" " if c in "|\\" or not c.isprintable() else c for c in text)
    return " ".join(plain.split())[:_LONGEST]
