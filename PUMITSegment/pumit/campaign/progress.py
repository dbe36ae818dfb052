"""How a campaign gets on: its rounds, what its one button says, and when it can end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pumit.campaign.entry import ScanEntry, of_row, renamed
from pumit.campaign.labels import CampaignClass
from pumit.system.wording import count_of

FIRST_LABELLED = 4  # scans of the first training, unless there are fewer
ROUGH_BELOW = 8  # labelled scans below which a figure is called rough
SMALL_GAIN = 0.01
# Patients that are kept for validation: so much of all, within these bounds.
VALIDATION_SHARE, FEWEST_PATIENTS, MOST_PATIENTS = 0.12, 2, 8
_DOING = {"train": "Training", "predict": "Predicting"}

ActionKind = Literal["add", "name", "open", "train", "predict", "check", "wait", "stop", "done"]


@dataclass(frozen=True)
class TrainingRound:
    """A round: a training on what was accepted so far.

    Attributes:
        number: Its number, from 1.
        state: "training" until its model was judged; "failed" where it ended without one.
        folder: Folder of its run, from the campaign's folder.
        trained: Identifiers of the scans that were learnt from.
        validated: Identifiers of those that it was judged on.
        is_rough: Whether these are one patient left out in turn, not the fixed ones.
        dice: Mean Dice of the new model on them.
        dice_before: The same of the model that was used before, on the same scans.
        is_used: Whether the new model was taken into use.
        model: Checkpoint, from the campaign's folder.
        click_model: Checkpoint for clicks that was taken into use; empty without.
        click_dice: Dice after one click of the refined model on the validation scans.
        click_dice_before: The same of the model that was used before.
        seconds: Seconds that it took.
        calibration: Class to the ratio of true and expected overlap on the validation scans.
        sentence: Result in words.
    """

    number: int
    state: Literal["training", "finished", "failed"] = "training"
    folder: str = ""
    trained: tuple[str, ...] = ()
    validated: tuple[str, ...] = ()
    is_rough: bool = True
    dice: float | None = None
    dice_before: float | None = None
    is_used: bool = False
    model: str = ""
    click_model: str = ""
    click_dice: float | None = None
    click_dice_before: float | None = None
    seconds: float = 0.0
    calibration: Mapping[str, float] = field(default_factory=dict)
    sentence: str = ""

    @property
    def gain(self) -> float | None:
        """Gain in Dice on its validation scans; None where nothing can be compared."""
        if self.dice is None or self.dice_before is None:
            return None
        return self.dice - self.dice_before


@dataclass(frozen=True)
class NextAction:
    """The next action of a campaign, which its one button says.

    Attributes:
        kind: add (scans), name (what a segment is), open (the next scan, from nothing), train,
            predict, check (the next prediction), wait (for a training), stop, done.
        count: Scans that it is about.
        sentence: Words of the button.
        scan: Scan that is opened, for open, check and stop.
    """

    kind: ActionKind
    count: int
    sentence: str
    scan: ScanEntry | None = None


@dataclass(frozen=True)
class CampaignChart:
    """Curves of a campaign, and a sentence under them.

    Attributes:
        rounds: Numbers of the rounds; 0 is the time before the first one.
        dice: Mean Dice on the validation scans after each; None where there is none.
        is_rough: Whether that is a rough figure.
        clicks: Mean clicks of the scans that were accepted with that round's help.
        agreement: Mean Dice of predictions and accepted results likewise.
        sentence: What they show.
        can_stop: Whether another round will hardly help.
    """

    rounds: tuple[int, ...] = ()
    dice: tuple[float | None, ...] = ()
    is_rough: tuple[bool, ...] = ()
    clicks: tuple[float | None, ...] = ()
    agreement: tuple[float | None, ...] = ()
    sentence: str = ""
    can_stop: bool = False


@dataclass(frozen=True)
class ValidationSet:
    """Scans that a model is judged on.

    Attributes:
        patients: Marks of the patients that are kept for it; empty before they are drawn.
        scans: Identifiers of their scans.
        labelled: Identifiers of those that are labelled.
        is_rough: Whether too little is labelled for them to count: one patient is left out in turn.
    """

    patients: tuple[str, ...]
    scans: tuple[str, ...]
    labelled: tuple[str, ...]
    is_rough: bool


def trainable(scans: Sequence[ScanEntry]) -> list[ScanEntry]:
    """Return scans that can be learnt from: labelled by a person, and of no validation patient."""
    return [scan for scan in scans if scan.is_truth and not scan.is_validation]


def validation_of(scans: Sequence[ScanEntry], patients: Sequence[str]) -> ValidationSet:
    """Return the scans that models are judged on, of the patients that were drawn."""
    kept = [s for s in scans if s.is_validation]
    labelled = [s for s in kept if s.is_truth]
    is_enough = len(trainable(scans)) + len(labelled) >= ROUGH_BELOW
    is_rough = not is_enough or len({s.patient for s in labelled}) < FEWEST_PATIENTS
    ids, known = tuple(s.id for s in kept), tuple(s.id for s in labelled)
    return ValidationSet(tuple(patients), ids, known, is_rough)


def patients_to_keep(
    scans: Sequence[ScanEntry], rounds: Sequence[TrainingRound]
) -> tuple[set[str], int]:
    """Return patients of whom some are kept for validation, and how many.

    Of those that no model was trained on or has predicted. Where eight patients are labelled, of
    these; else of those that are not, as the first training needs what there is. With fewer than
    eight patients none is kept.
    """
    patients = {s.patient for s in scans if s.stored_state != "left_out"}
    count = min(max(round(VALIDATION_SHARE * len(patients)), FEWEST_PATIENTS), MOST_PATIENTS)
    seen = learnt_from(rounds)
    touched = {s.patient for s in scans if s.round or s.id in seen}
    labelled = {s.patient for s in scans if s.is_truth}
    untouched = {s.patient for s in scans if s.stored_state == "open"} - touched
    pool = labelled - touched if len(labelled) >= ROUGH_BELOW else untouched - labelled
    if len(pool) < FEWEST_PATIENTS:
        pool = labelled - touched
    is_rough = bool(touched) and len(pool) < FEWEST_PATIENTS
    if len(patients) < ROUGH_BELOW or is_rough:
        return set(), 0
    return pool, min(count, len(pool))


def used_round(rounds: Sequence[TrainingRound]) -> TrainingRound | None:
    """Return the round whose model predicts at present."""
    return next((r for r in reversed(rounds) if r.is_used), None)


def learnt_from(rounds: Sequence[TrainingRound]) -> set[str]:
    """Get identifiers of the scans that a model may know: each round begins with one before it."""
    return {key for r in rounds if r.state == "finished" for key in r.trained}


def to_predict(
    scans: Sequence[ScanEntry], rounds: Sequence[TrainingRound], *, has_first_model: bool = False
) -> list[ScanEntry]:
    """Open scans that the model in use has not predicted; never those of validation patients."""
    used = used_round(rounds)
    free = [s for s in remaining(scans) if not s.is_validation and not s.checked_by]
    if used is not None:
        return [s for s in free if s.round < used.number]
    return [s for s in free if s.stored_state == "open" and not s.word] if has_first_model else []


def remaining(scans: Sequence[ScanEntry]) -> list[ScanEntry]:
    """Return scans that still need a person."""
    return [s for s in scans if s.stored_state in ("open", "predicted", "later")]


def is_training_due(
    scans: Sequence[ScanEntry],
    rounds: Sequence[TrainingRound],
    *,
    unknown_names: Mapping[str, Sequence[str]],
    at_work: str,
    train_after: int,
) -> bool:
    """Whether enough was accepted since the last training; see `next_action`."""
    ready = {s.id for s in trainable(scans)}
    if at_work or not ready or unknown_names:
        return False
    last = rounds[-1] if rounds else None
    begun = next((r for r in reversed(rounds) if r.state != "failed"), None)
    if begun is not None and begun.state == "training":
        return True  # it was interrupted
    if last and last.state == "failed" and ready <= {*last.trained, *last.validated}:
        return False  # nothing has changed since: a person decides
    left = remaining(scans)
    if begun is None:
        return len(ready) >= FIRST_LABELLED or (not left and len(ready) > 1)
    return len(ready - {*begun.trained, *begun.validated}) >= train_after and bool(left)


def next_action(
    scans: Sequence[ScanEntry],
    rounds: Sequence[TrainingRound],
    next_scan: ScanEntry | None,
    *,
    unknown_names: Mapping[str, Sequence[str]],
    at_work: str,
    train_after: int,
    has_first_model: bool,
) -> NextAction:
    """Choose the next action.

    Args:
        next_scan: Scan that would be opened next.
        unknown_names: Segment name that no class has, to scans with it.
        at_work: What a process does now: "train", "predict", or "".
        train_after: Accepted scans after which it is trained again.
        has_first_model: Whether an installed model predicts before the first training.
    """
    left, chart = remaining(scans), chart_of(scans, rounds)
    if not scans:
        return NextAction("add", 0, "Add scans")
    if unknown_names:
        name, where = next(iter(unknown_names.items()))
        words = f"Say what {name!r} is ({count_of(len(where), 'scan')})"
        return NextAction("name", len(where), words)
    is_due = is_training_due(
        scans, rounds, unknown_names=unknown_names, at_work=at_work, train_after=train_after
    )
    if is_due and not chart.can_stop:
        count = len(trainable(scans))
        if rounds and rounds[-1].state == "training":
            return NextAction("train", count, "Continue the training")
        return NextAction("train", count, f"Train {'again ' if rounds else ''}on {count}")
    waiting = to_predict(scans, rounds, has_first_model=has_first_model)
    if waiting and not at_work:
        return NextAction("predict", len(waiting), f"Predict {len(waiting)}")
    if not left:
        return NextAction("done", len(scans), "All scans are done: export them")
    if next_scan is None:
        doing = _DOING.get(at_work, f"Others check the last {len(left)}")
        return NextAction("wait", len(left), doing)
    if chart.can_stop:
        return NextAction("stop", len(left), f"You can stop ({len(left)} left to check)", next_scan)
    if next_scan.stored_state == "predicted":
        return NextAction("check", len(left), f"Check the next ({len(left)} left)", next_scan)
    kept = " (for validation)" if next_scan.is_validation else ""
    return NextAction("open", len(left), f"Open the next scan{kept}", next_scan)


def chart_of(scans: Sequence[ScanEntry], rounds: Sequence[TrainingRound]) -> CampaignChart:
    """Curves over the rounds."""
    finished = [r for r in rounds if r.state == "finished"]
    numbers = [0, *(r.number for r in finished)]
    accepted = [s for s in scans if s.stored_state == "accepted" and not s.is_validation]
    clicks, agreement = [], []
    for number in numbers:
        there = [s for s in accepted if s.round == number]
        clicks.append(_mean([float(s.clicks) for s in there]))
        agreement.append(_mean([s.agreement for s in there if s.agreement is not None]))
    last = finished[-1] if finished else None
    can_stop = bool(
        last and not last.is_rough and last.gain is not None and last.gain <= SMALL_GAIN + 1e-9
    )
    return CampaignChart(
        tuple(numbers),
        (None, *(r.dice for r in finished)),
        (True, *(r.is_rough for r in finished)),
        tuple(clicks),
        tuple(agreement),
        _sentence(last, can_stop),
        can_stop,
    )


def _sentence(last: TrainingRound | None, can_stop: bool) -> str:
    if last is None or last.dice is None:
        return ""
    if last.gain is None:
        rough = "about " if last.is_rough else ""
        more = " (rough: one patient left out)" if last.is_rough else ""
        return f"Round {last.number}: Dice {rough}{last.dice:.2f}{more}."
    brought = f"The last round brought {last.gain:+.2f}"
    if can_stop:
        return f"{brought}: you can stop."
    return f"{brought} (rough)." if last.is_rough else f"{brought}: another may help."


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def round_of(row: Mapping[str, Any], classes: Sequence[CampaignClass]) -> TrainingRound:
    """Return a round of its row, by the names that the classes have at present."""
    one = of_row(TrainingRound, row, ("trained", "validated"))
    return replace(one, calibration=renamed(one.calibration, classes))
