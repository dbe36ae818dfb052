"""One scan of a campaign: its files, labels and state."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from pumit.campaign.labels import CampaignClass, class_named, is_passed
from pumit.geometry import Triple
from pumit.segmentation import Quality

ScanState = Literal["open", "labelled", "predicted", "checking", "accepted", "later", "left_out"]
KnownPart = Literal["all", "slices", "strokes"]
ALL_DRAWN = ("all",)
# Computed on reading, not stored in the file.
_COMPUTED = ("path", "checked_by", "is_validation", "stored_state")
Row = TypeVar("Row")
# Lowest expected Dice of each quality, best first.
_LOWEST: tuple[tuple[float, Quality], ...] = (
    *((0.9, "good"), (0.75, "check"), (0.5, "check carefully"), (0.0, "unreliable")),
)


def quality_of(expected_dice: float) -> Quality:
    """Return the quality of a prediction by its expected Dice, 0 to 1."""
    return next(quality for least, quality in _LOWEST if expected_dice >= least)


@dataclass(frozen=True)
class ScanEntry:
    """A scan of a campaign; content of `scans/<id>/state.json`.

    Attributes:
        id: Name of the scan's folder, derived from its content.
        images: Files, one for each channel, relative to the campaign's folder.
        given_labels: Imported label files, relative to the campaign's folder.
        given_marks: Fingerprint and size of each of them, to find moved files.
        given_names: Segment names in them, or values of unnamed segments.
        given_values: Value to class names in the source data set, where the campaign's differ.
        given_drawn: Classes annotated in them: names, `ALL_DRAWN`, or empty if the segment names
            tell.
        given_known: Annotated part of the scan in them.
        patient: Salted hash of the patient.
        digest: Fingerprint of the content, to find moved files.
        size: Size of the first file, bytes; 0 for DICOM.
        state: *checking* while a person has the scan open; *labelled* if it was imported with
            labels by a person.
        word: Quality of the prediction in a word, or why the scan cannot be read.
        expected: Class to the expected Dice of the prediction, 0 to 1.
        places: Class to points where the prediction may be wrong, LPS mm, worst first.
        clicks: Number of clicks, boxes and other prompts used.
        seconds: Time spent, seconds.
        agreement: Dice of prediction and accepted label, mean over classes.
        round: Round of the model that predicted the scan; 0 for none or an installed model.
        reviewer: Name of the person who accepted the label, if given.
        accepted_at: Time of acceptance, ISO 8601; for display only.
        drawn: Annotated classes; empty for all.
        known: Annotated part of the scan: all, slices with any label, or strokes.
        before: State before acceptance, postponement or exclusion.
        decided: Revision of a person's last decision.
        path: Absolute path of the first file or the folder.
        checked_by: Name of the person who has the scan open; "another person" without a name.
        stored_state: State regardless of who has the scan open.
    """

    id: str
    name: str
    images: tuple[str, ...] = ()
    series: str = ""
    given_labels: tuple[str, ...] = ()
    given_marks: tuple[str, ...] = ()
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
        """Whether the scan has labels that a person made or accepted."""
        return self.stored_state in ("labelled", "accepted")

    @property
    def certainty(self) -> float | None:
        """Lowest expected Dice of any class; None without a prediction."""
        return min(self.expected.values()) if self.expected else None

    def quality(self, name: str) -> Quality | Literal[""]:
        """Return the expected quality of a class in the prediction; "" if unknown."""
        return quality_of(self.expected[name]) if name in self.expected else ""

    def as_row(self) -> dict[str, Any]:
        """Return a JSON-compatible row with all fields."""
        return {**asdict(self), "path": str(self.path)}

    def as_file(self) -> dict[str, Any]:
        """Return the content of `state.json`."""
        row = asdict(self)
        row["state"] = self.stored_state if self.state == "checking" else self.state
        return {key: value for key, value in row.items() if key not in _COMPUTED}


def of_row(kind: type[Row], row: Mapping[str, Any], tuples: Sequence[str] = ()) -> Row:
    """Create a dataclass from a JSON row; unknown keys of later versions are ignored."""
    known = {f.name: row[f.name] for f in fields(kind) if f.name in row}  # type: ignore[arg-type]
    return kind(**known | {key: tuple(map(str, known.get(key, ()))) for key in tuples})


def entry_of(content: Mapping[str, Any], path: Path, classes: Sequence[CampaignClass]) -> ScanEntry:
    """Create an entry from its file's content, with the current class names.

    Raises:
        ValueError: If the content is not a valid entry.
    """
    row = {key: value for key, value in content.items() if key not in _COMPUTED}
    tuples = ("images", "given_labels", "given_marks", "given_names", "given_drawn", "drawn")
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
    """Return values keyed by the current class names."""
    found = ((class_named(name, classes), name, value) for name, value in by_class.items())
    return {one.name if one is not None else name: value for one, name, value in found}


def _given_part(
    entry: ScanEntry, classes: Sequence[CampaignClass]
) -> tuple[tuple[str, ...], KnownPart]:
    """Return the classes annotated in imported labels, and the part of the scan that is known.

    If the data set does not state the classes, segment names do, provided that all have one.
    """
    told = entry.given_drawn
    if not told and not (entry.given_values or any(n.isdecimal() for n in entry.given_names)):
        told = entry.given_names
    named = [n for n in told if not is_passed(n, ())]
    if not named or told == ALL_DRAWN:
        return (), entry.given_known
    there = {one.name for n in named if (one := class_named(n, classes)) is not None}
    drawn = tuple(c.name for c in classes if c.name in there)
    # Labels of other structures only: voxels without a label are unknown.
    known = entry.given_known if drawn else "strokes"
    return () if len(drawn) == len(classes) else drawn, known
