"""What a comparison does not show, derived from how it was made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pumit.system.wording import count_of
from pumit.training.comparison.recipe import Comparison
from pumit.training.comparison.results import TrainingRow
from pumit.training.comparison.wording import budget_words

FEW_SEEDS = 10
FEW_CASES = 30


def comparison_limits(
    comparison: Comparison, facts: Mapping[str, Any], rows: Sequence[TrainingRow]
) -> list[str]:
    """Sentences, the gravest first.

    Args:
        facts: Facts that its trainings have in common.
        rows: Rows of the finished trainings.
    """
    return [
        *_of_data(comparison, facts),
        *_of_budget(comparison, facts),
        *_of_settings(comparison, rows),
    ]


def _of_data(comparison: Comparison, facts: Mapping[str, Any]) -> list[str]:
    training, validation = len(facts["training"]), len(facts["validation"])
    seeds = len(comparison.recipe.seeds)
    few = ", which are few" if validation < FEW_CASES else ""
    found = [
        f"It is one data set: {count_of(training, 'case')} to train on and {validation} to judge "
        f"by{few}. Other "
        "organs, other scanners or more cases may order the networks otherwise.",
        "The intervals are about other cases like these, and other seeds. They know nothing of "
        "another split of the cases: there was one.",
    ]
    if 1 < seeds < FEW_SEEDS:
        found.append(
            f"{seeds} seeds tell little of how far trainings scatter; a bootstrap of so few makes "
            "intervals too narrow."
        )
    if set(facts["training"]) & set(facts["validation"]):
        found.insert(0, "Cases were trained on and judged by: nothing is known of other scans.")
    return found


def _of_budget(comparison: Comparison, facts: Mapping[str, Any]) -> list[str]:
    schedule, machine = comparison.schedule, facts["machine"]
    if schedule.get("seconds") is None:
        return [
            f"Every training had {budget_words(schedule)}, whatever a step takes; equal times "
            "would be another comparison."
        ]
    where = "on this CPU" if machine["device"] == "cpu" else "on this GPU"
    return [
        f"Every training had {budget_words(schedule)}. A network whose steps are slow {where} made "
        "fewer of them (see the table): longer trainings, or another machine, may order the "
        "networks otherwise. It is no measure of what each can reach at last."
    ]


def _of_settings(comparison: Comparison, rows: Sequence[TrainingRow]) -> list[str]:
    found = []
    parameters = [row.parameters for row in rows]
    if parameters and max(parameters) > 1.5 * min(parameters):
        found.append(
            f"The networks are of different size, {min(parameters) / 1e6:.1f} to "
            f"{max(parameters) / 1e6:.1f} million parameters: whole networks are compared, not "
            "one idea of theirs, and not in the sizes of their papers unless the recipe has them."
        )
    tuned = [n for n in comparison.recipe.networks if n.tuning]
    found += [f"{n.name}: {n.tuning.rstrip('.')}." for n in tuned]
    untold = [n.name for n in comparison.recipe.networks if not n.tuning]
    if untold:
        every = "any network" if not tuned else ", ".join(untold)
        found.append(
            f"The recipe does not say how sizes and rates of {every} were chosen. If they were "
            "chosen by the cases that judge here, the figures flatter them; if nobody searched, "
            "better ones may exist."
        )
    begun = [n.name for n in comparison.recipe.networks if n.initial is not None]
    if begun:
        verb = "begins" if len(begun) == 1 else "begin"
        found.append(
            f"{', '.join(begun)} {verb} with weights of an earlier training, whose time is not in "
            "the budget and whose data the others did not have."
        )
    shared = [f"{n.name} {n.share:.0%}" for n in comparison.recipe.networks if n.share is not None]
    if shared:
        found.append(f"Not all learn from all training cases: {', '.join(shared)} of them.")
    return found
