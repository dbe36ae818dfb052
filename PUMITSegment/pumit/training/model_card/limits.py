"""What a model card says a model cannot do, as far as the run itself shows it."""

from __future__ import annotations

import math

from pumit.system.wording import count_of
from pumit.training.model_card.record import RunCard

FEW_TRAINING, FEW_VALIDATION = 20, 10
# Below this mean Dice a class is named among the limits.
POOR_DICE = 0.7
_ANSWERS = {
    "automatic": "It answers any scan, also one without what it looks for, and does not say that "
    "it has never seen the like.",
    "promptable": "It answers every click, also one on what it was never trained for, and does "
    "not say that it has never seen the like.",
    "tokenizer": "It gives tokens for any scan, also for one of a kind that it has never seen.",
    "encoder": "It answers nothing by itself.",
    "classifier": "It names one of its classes for any scan, also for one that is of none of them.",
}
# An interval this wide says little.
WIDE = 0.2


def card_limits(card: RunCard) -> list[str]:
    """Sentences, the gravest first."""
    return [*_of_the_data(card), *_of_the_scores(card), *_of_the_run(card), *_always(card)]


def _of_the_data(card: RunCard) -> list[str]:
    training, validation = card.of_role("training"), card.of_role("validation")
    found = []
    if any("training" in case.role for case in validation):
        found.append(
            "It was validated on what it was trained on, so nothing is known of other scans."
        )
    if 0 < len(training) < FEW_TRAINING:
        found.append(f"It has seen {count_of(len(training), 'case')} in training, which is few.")
    if 0 < len(validation) < FEW_VALIDATION:
        found.append(
            f"It was measured on {count_of(len(validation), 'case')}, so its figures may be off by "
            "more than they differ from those of another model."
        )
    spacings = [case.spacing_mm for case in training if case.spacing_mm]
    if spacings:
        thick, fine = max(max(s) for s in spacings), min(min(s) for s in spacings)
        found.append(
            f"It has seen voxels of {fine:g} to {thick:g} mm; of finer or coarser ones nothing is "
            "known." if fine < thick else
            f"It has seen voxels of {fine:g} mm alone; of finer or coarser ones nothing is known."
        )  # fmt: skip
    rare = [
        f"{name} ({count})" for name in _names(card)
        if (count := sum(1 for case in training if case.class_voxels.get(name))) < len(training) / 4
        and any(case.class_voxels for case in training)
    ]  # fmt: skip
    if rare:
        found.append(
            f"Few of the {count_of(len(training), 'training case')} have these classes: "
            f"{', '.join(rare)}."
        )
    return found


def _names(card: RunCard) -> list[str]:
    return [c.name for c in card.classes]


def _of_the_scores(card: RunCard) -> list[str]:
    if card.scores is None:
        return ["How good it is was not measured case by case."]
    found = []
    rows = {name: row["dice"] for name, row in card.scores.means.items() if "dice" in row}
    poor = [
        f"{name} ({mean.mean:.2f})"
        for name, mean in rows.items()
        if name != "mean" and mean.mean is not None and mean.mean < POOR_DICE
    ]
    if poor:
        found.append(f"These have a mean Dice below {POOR_DICE}: {', '.join(poor)}.")
    wide = [
        name
        for name, mean in rows.items()
        if mean.low is not None and mean.high is not None and mean.high - mean.low > WIDE
    ]
    if wide:
        found.append(f"The intervals of these are wider than {WIDE}: {', '.join(wide)}.")
    unseen = [name for name, mean in rows.items() if mean.mean is None and name != "mean"]
    if unseen:
        names = ", ".join(unseen)
        found.append(f"No validation case has these, so nothing is known of them: {names}.")
    if card.scores.split != "test" and not card.further_scores:
        found.append(
            "Its weights were chosen by the very cases that it was measured on, so the figures are "
            "a little too good."
        )
    return found


def _of_the_run(card: RunCard) -> list[str]:
    if not card.is_stopped_early:
        return []
    share = math.floor(100 * card.steps / max(card.planned_steps, 1))
    return [
        f"Its training was stopped at step {card.steps} of {card.planned_steps} ({share} %); it "
        "can be taken up again."
    ]


def _always(card: RunCard) -> list[str]:
    where = "All its data come from one data set of its maker's"
    if card.is_pretrained:
        where = "It has seen only what its recipe above names, and generated scans"
    return [
        f"{where}: of other sites, scanners, protocols and groups of patients nothing is known.",
        _ANSWERS.get(card.kind, _ANSWERS["automatic"]),
    ]
