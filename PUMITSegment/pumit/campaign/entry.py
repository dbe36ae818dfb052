"""One scan of a campaign: what it is, and how far it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from pumit.geometry import Triple

ScanState = Literal["open", "labelled", "predicted", "checking", "accepted", "later", "left_out"]
KnownPart = Literal["all", "slices", "strokes"]
# Not kept in the file: where the scan is at present, and who has it open.
_COMPUTED = ("path", "checked_by", "is_validation", "stored_state")


@dataclass(frozen=True)
class ScanEntry:
    """A scan of a campaign; what `scans/<id>/state.json` holds.

    Attributes:
        id: Name of its folder, made of its content.
        name: Name of its file or folder.
        images: Its files, one for each channel, as paths from the campaign's folder.
        series: SeriesInstanceUID, where it is DICOM.
        given_labels: Files with labels that it came with, likewise.
        given_names: Names of their segments that have one.
        patient: Mark of its patient, which tells nothing but which scans are of one.
        digest: Fingerprint of its content, by which it is found again.
        size: Size of its first file, bytes; 0 for DICOM.
        order: Place in the list.
        state: How far it is. *checking* while a person has it open; *labelled* if it came with
            labels of a person.
        word: Quality of its prediction in a word, or why it cannot be read.
        expected: Class to the overlap that is expected of its prediction, 0 to 1.
        places: Class to places where its prediction may be wrong, LPS mm, the worst first.
        clicks: Clicks, boxes and other prompts that it took.
        seconds: Seconds that it took.
        agreement: Dice of the prediction and what was accepted, mean of the classes.
        class_agreement: Class to that Dice.
        round: Round whose model predicted it; 0 for none.
        reviewer: Name of the person who accepted it, where given.
        accepted_at: When, ISO 8601; for people, nothing is ordered by it.
        drawn: Classes that were drawn in it; empty for all.
        known: Part of the scan of which its label tells what is there: all, slices with any label,
            or strokes.
        before: State before it was accepted.
        revision: Counter of its changes.
        decided: Revision of the last decision of a person.
        path: Its first file or its folder, at present.
        checked_by: Name of who has it open; "another person" where no name was given.
        is_validation: Whether its patient is kept for validation.
        stored_state: State without regard of who has it open.
    """

    id: str
    name: str
    images: tuple[str, ...] = ()
    series: str = ""
    given_labels: tuple[str, ...] = ()
    given_names: tuple[str, ...] = ()
    patient: str = ""
    digest: str = ""
    size: int = 0
    order: int = 0
    state: ScanState = "open"
    word: str = ""
    expected: Mapping[str, float] = field(default_factory=dict)
    places: Mapping[str, Sequence[Triple]] = field(default_factory=dict)
    clicks: int = 0
    seconds: float = 0.0
    agreement: float | None = None
    class_agreement: Mapping[str, float] = field(default_factory=dict)
    round: int = 0
    reviewer: str = ""
    accepted_at: str = ""
    drawn: tuple[str, ...] = ()
    known: KnownPart = "all"
    before: ScanState = "open"
    revision: int = 0
    decided: int = 0
    path: Path = Path()
    checked_by: str = ""
    is_validation: bool = False
    stored_state: ScanState = "open"

    @property
    def is_truth(self) -> bool:
        """Whether it has labels that a person made or accepted."""
        return self.stored_state in ("labelled", "accepted")

    @property
    def certainty(self) -> float | None:
        """Least expected overlap of a class; None without a prediction."""
        return min(self.expected.values()) if self.expected else None

    def as_row(self) -> dict[str, Any]:
        """As JSON has it, for programs."""
        return {**asdict(self), "path": str(self.path)}

    def as_file(self) -> dict[str, Any]:
        """Content of its file."""
        row = asdict(self)
        return {key: value for key, value in row.items() if key not in _COMPUTED}


def entry_of(content: Mapping[str, Any], path: Path) -> ScanEntry:
    """Return an entry of its file's content; a later version may tell more.

    Raises:
        ValueError: If it is no entry.
    """
    known = {f.name for f in fields(ScanEntry)} - set(_COMPUTED)
    row = {key: value for key, value in content.items() if key in known}
    for key in ("images", "given_labels", "given_names", "drawn"):
        row[key] = tuple(map(str, row.get(key, ())))
    entry = ScanEntry(**row, path=path, stored_state=row.get("state", "open"))
    if entry.state not in get_args(ScanState) or not entry.id:
        raise ValueError(f"state {entry.state!r}")
    return entry
