"""Progress of a campaign: rounds, the next scan and action, and when to stop."""

import json
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pumit.campaign.entry import ScanEntry, of_row, renamed
from pumit.campaign.labels import CampaignClass

FIRST_LABELLED = 4  # labelled scans before the first training, unless there are fewer scans
ROUGH_BELOW = 8  # labelled scans below which validation is called rough
SMALL_GAIN = 0.01
EMBEDDING = "embedding.json"
_UNKNOWN_CERTAINTY = 0.5  # of a scan without a prediction
_VARIETY_WEIGHT = 0.5
# Fraction of patients kept for validation, and bounds of their number.
VALIDATION_SHARE, FEWEST_PATIENTS, MOST_PATIENTS = 0.12, 2, 8

ScanOrder = Literal["uncertain", "list", "random"]
ActionKind = Literal["add", "name", "open", "train", "predict", "check", "wait", "stop", "done"]


@dataclass(frozen=True)
class TrainingRound:
    """A training on the scans accepted so far.

    Attributes:
        state: "training" until the round is complete; "failed" if it ended with an error.
        folder: Run folder, relative to the campaign's folder.
        is_rough: Whether the validation is rough: too few labelled scans, or one left-out patient.
        dice: Mean Dice of the new model on the validation scans.
        dice_before: Mean Dice of the previous model on the same scans.
        is_used: Whether the new model replaced the previous one.
        model: Checkpoint, relative to the campaign's folder.
        click_model: Click model's checkpoint, if better than before; else empty.
        click_dice: Score of the fine-tuned click model: Dice after one click on the validation
            scans, less the loss on generated scans.
        click_dice_before: Score of the click model that it was fine-tuned from.
        seconds: Training time, seconds.
        calibration: Class to the ratio of true to expected Dice on the validation scans.
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
        """Gain in validation Dice; None without a previous model to compare with."""
        if self.dice is None or self.dice_before is None:
            return None
        return self.dice - self.dice_before


@dataclass(frozen=True)
class NextAction:
    """The next action of a campaign, shown on the action button.

    Attributes:
        kind: add (scans), name (map a segment name), open (the next scan, without prediction),
            train, predict, check (the next prediction), wait (for other work), stop, done.
        scan: Scan to open, for open, check and stop.
    """

    kind: ActionKind
    count: int
    sentence: str
    scan: ScanEntry | None = None


@dataclass(frozen=True)
class CampaignChart:
    """Curves of a campaign over its rounds, and a summary.

    Attributes:
        rounds: Numbers of the rounds; 0 is before the first.
        dice: Mean validation Dice of each round, or None.
        clicks: Mean clicks per accepted scan that was predicted by each round.
        agreement: Mean Dice of predictions and accepted labels of the same scans.
        can_stop: Whether another round is unlikely to help.
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
    """Validation scans of a campaign.

    Attributes:
        patients: Hashes of the validation patients; empty before they are drawn.
        is_rough: Whether too few scans or validation patients are labelled for a reliable figure.
    """

    patients: tuple[str, ...]
    scans: tuple[str, ...]
    labelled: tuple[str, ...]
    is_rough: bool


def trainable(scans: Sequence[ScanEntry]) -> list[ScanEntry]:
    """Return training scans: labelled by a person, and not of a validation patient."""
    return [scan for scan in scans if scan.is_truth and not scan.is_validation]


def validation_of(scans: Sequence[ScanEntry], patients: Sequence[str]) -> ValidationSet:
    """Return the validation scans of the drawn patients."""
    kept = [s for s in scans if s.is_validation]
    labelled = [s for s in kept if s.is_truth]
    is_enough = len(trainable(scans)) + len(labelled) >= ROUGH_BELOW
    is_rough = not is_enough or len({s.patient for s in labelled}) < FEWEST_PATIENTS
    ids, known = tuple(s.id for s in kept), tuple(s.id for s in labelled)
    return ValidationSet(tuple(patients), ids, known, is_rough)


def patients_to_keep(
    scans: Sequence[ScanEntry], rounds: Sequence[TrainingRound]
) -> tuple[set[str], int]:
    """Return the candidate validation patients, and how many of them to draw.

    Candidates are patients that no model was trained on or has predicted: labelled ones if at least
    eight patients are labelled; else unlabelled ones, because the first training needs the labels.
    If fewer than two are found, labelled ones are used. None is drawn from fewer than eight
    patients.
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
    """Return the round of the current model, or None."""
    return next((r for r in reversed(rounds) if r.is_used), None)


def learnt_from(rounds: Sequence[TrainingRound]) -> set[str]:
    """Return identifiers of all scans trained on; each round starts from an earlier model."""
    return {key for r in rounds if r.state == "finished" for key in r.trained}


def to_predict(
    scans: Sequence[ScanEntry], rounds: Sequence[TrainingRound], *, has_first_model: bool = False
) -> list[ScanEntry]:
    """Return open scans that the current model has not predicted, except validation scans."""
    used = used_round(rounds)
    free = [s for s in remaining(scans) if not s.is_validation and not s.checked_by]
    if used is not None:
        return [s for s in free if s.round < used.number]
    return [s for s in free if s.stored_state == "open" and not s.word] if has_first_model else []


def remaining(scans: Sequence[ScanEntry]) -> list[ScanEntry]:
    """Return scans that still need a person."""
    return [s for s in scans if s.stored_state in ("open", "predicted", "later")]


def chart_of(scans: Sequence[ScanEntry], rounds: Sequence[TrainingRound]) -> CampaignChart:
    """Return the curves over the rounds."""
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
    """Create a round from its row, with the current class names."""
    one = of_row(TrainingRound, row, ("trained", "validated"))
    return replace(one, calibration=renamed(one.calibration, classes))


def choose_scan(
    scans: Sequence[ScanEntry],
    *,
    order: ScanOrder,
    seed: str,
    embeddings: Mapping[str, Sequence[float]],
) -> ScanEntry | None:
    """Return the scan to open next; None if none is left or others have the rest open.

    One validation scan follows every two others, so that the validation set is complete early.
    Postponed scans come last.
    """
    free = [s for s in scans if s.state in ("open", "predicted", "later")]
    pool = [s for s in free if s.stored_state != "later"] or free
    if not pool:
        return None
    drawn = [s.is_validation for s in scans if s.stored_state == "accepted"]
    is_turn = 3 * sum(drawn) < len(drawn)
    pool = [s for s in pool if s.is_validation == is_turn] or pool
    if order == "list":
        return min(pool, key=lambda s: s.order)
    if order == "random":
        return min(pool, key=lambda s: random.Random(f"{seed} {s.id}").random())
    done = [embeddings[s.id] for s in scans if s.is_truth and s.id in embeddings]
    return min(pool, key=lambda s: (-_worth(s, embeddings.get(s.id), done), s.order))


def _worth(
    scan: ScanEntry, embedding: Sequence[float] | None, done: Sequence[Sequence[float]]
) -> float:
    certainty = _UNKNOWN_CERTAINTY if scan.certainty is None else scan.certainty
    worth = 1 - certainty
    if embedding is not None and done:
        nearest = max(_cosine(embedding, other) for other in done)
        worth += _VARIETY_WEIGHT * (1 - nearest)
    return worth


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    norm = sum(x * x for x in one) * sum(y * y for y in other)
    return sum(x * y for x, y in zip(one, other, strict=False)) / norm**0.5 if norm else 0.0


def read_embedding(folder: Path) -> list[float] | None:
    """Read the embedding of a scan from its folder; None if missing or unreadable."""
    with suppress(OSError, ValueError):
        values = json.loads((folder / EMBEDDING).read_text(encoding="utf-8"))
        return [float(v) for v in values]
    return None
