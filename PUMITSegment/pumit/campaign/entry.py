"""One scan of a campaign: what it is, and how far it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from pumit.campaign.labels import CampaignClass, class_named, is_passed
from pumit.geometry import Triple

ScanState = Literal["open", "labelled", "predicted", "checking", "accepted", "later", "left_out"]
KnownPart = Literal["all", "slices", "strokes"]
ALL_DRAWN = ("all",)
# Not kept in the file: where the scan is at present, and who has it open.
_COMPUTED = ("path", "checked_by", "is_validation", "stored_state")
Row = TypeVar("Row")


@dataclass(frozen=True)
class ScanEntry:
    """A scan of a campaign; what `scans/<id>/state.json` holds.

    Attributes:
        id: Name of its folder, made of its content.
        name: Name of its file or folder.
        images: Its files, one for each channel, as paths from the campaign's folder.
        series: SeriesInstanceUID, where it is DICOM.
        given_labels: Files with labels that it came with, likewise.
        given_names: Names of their segments, or values where these have none.
        given_values: Value to the names that its data set has for it, where the campaign's differ.
        given_drawn: Classes that were drawn in these labels; `ALL_DRAWN`, or empty where their
            names tell.
        given_known: Part of the scan of which they tell what is there.
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
    given_values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    given_drawn: tuple[str, ...] = ()
    given_known: KnownPart = "all"
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
        row["state"] = self.stored_state if self.state == "checking" else self.state
        return {key: value for key, value in row.items() if key not in _COMPUTED}


def of_row(kind: type[Row], row: Mapping[str, Any], tuples: Sequence[str] = ()) -> Row:
    """Return a dataclass of JSON's row; a later version may tell more.

    Args:
        tuples: Fields that are tuples of texts.
    """
    known = {f.name: row[f.name] for f in fields(kind) if f.name in row}  # type: ignore[arg-type]
    return kind(**known | {key: tuple(map(str, known.get(key, ()))) for key in tuples})


def entry_of(content: Mapping[str, Any], path: Path, classes: Sequence[CampaignClass]) -> ScanEntry:
    """Return an entry of its file's content, by the names that the classes have at present.

    Raises:
        ValueError: If it is no entry.
    """
    row = {key: value for key, value in content.items() if key not in _COMPUTED}
    tuples = ("images", "given_labels", "given_names", "given_drawn", "drawn")
    entry = of_row(ScanEntry, row, tuples)
    if entry.state not in get_args(ScanState) or not entry.id:
        raise ValueError(f"state {entry.state!r}")
    entry = replace(entry, path=path, stored_state=entry.state)
    if entry.state != "accepted":
        drawn, known = _given_part(entry, classes)
        entry = replace(entry, drawn=drawn, known=known)
    return replace(
        entry,
        drawn=tuple(renamed(dict.fromkeys(entry.drawn), classes)),
        expected=renamed(entry.expected, classes),
        places=renamed(entry.places, classes),
        class_agreement=renamed(entry.class_agreement, classes),
    )


def renamed(by_class: Mapping[str, Any], classes: Sequence[CampaignClass]) -> dict[str, Any]:
    """Return values by the names that their classes have at present."""
    found = ((class_named(name, classes), name, value) for name, value in by_class.items())
    return {one.name if one is not None else name: value for one, name, value in found}


def _given_part(
    entry: ScanEntry, classes: Sequence[CampaignClass]
) -> tuple[tuple[str, ...], KnownPart]:
    """Classes that were drawn in given labels, and where.

    Where no one says the classes, the names of segments tell, if all of them have one.
    """
    told = entry.given_drawn
    if not told and not (entry.given_values or any(n.isdecimal() for n in entry.given_names)):
        told = entry.given_names
    named = [n for n in told if not is_passed(n, ())]
    if not named or told == ALL_DRAWN:
        return (), entry.given_known
    there = {one.name for n in named if (one := class_named(n, classes)) is not None}
    drawn = tuple(c.name for c in classes if c.name in there)
    # Other structures only: what has no stroke of a class is not known.
    known = entry.given_known if drawn else "strokes"
    return () if len(drawn) == len(classes) else drawn, known
