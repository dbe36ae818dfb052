"""Write the model card of a training: `card.md`, `card.json` and their pictures."""

import hashlib
import logging
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from pumit.errors import CheckpointError, PumitError
from pumit.evaluation.segmentation_metrics import Mean
from pumit.geometry import PLANAR_SLICE_SPACING_MM
from pumit.inference.loading import pick_device
from pumit.models.checkpoint import load_checkpoint
from pumit.models.user_index import CARD, CARD_DATA
from pumit.report.document import rendered
from pumit.runs import COMPARISON, read_status
from pumit.system.files import write_json, write_text
from pumit.system.wording import duration
from pumit.training.classification.run import read_data
from pumit.training.model_card.pictures import draw_worst, write_curves
from pumit.training.model_card.record import (
    ANSWERS,
    CROSS_VALIDATION,
    TASK_OF_KIND,
    CardPicture,
    CaseFact,
    RunCard,
    RunLog,
    Scores,
    answered_names,
    card_scores,
    case_numbers,
    fingerprint_of_all,
    fold_of,
    followed_recipe,
    gather,
    name_of,
    number_of,
    read_recipe_file,
)
from pumit.training.recipes.classification import ClassificationRecipe
from pumit.training.recipes.labelled import LabelledRecipe
from pumit.training.recipes.promptable import SamRecipe

logger = logging.getLogger(__name__)
MOST_ROWS = 60
POOR_DICE = 0.7  # classes with a lower mean are listed under limitations
WIDE = 0.2  # wider intervals are listed as uncertain
MEASURES = {
    "dice": "Dice",
    "hd95_mm": "HD95, mm",
    "assd_mm": "ASSD, mm",
    "auc": "AUC",
    "accuracy": "accuracy",
}
CURVES = "curves.png"
NUMBERS = "case_numbers.json"
ROLES = {"train": "training", "val": "validation", "test": "test"}


def card_text(card: RunCard) -> str:
    """Return the text of a card in Markdown."""
    millions = f"{card.parameters / 1e6:.2f} million"
    scores = () if card.scores is None else (card.scores, *card.further_scores)
    numbers = _flat(card.metrics)
    training, validation = (
        [case for case in card.cases if role in case.role] for role in ("training", "validation")
    )
    roles = dict.fromkeys(case.role for case in card.cases)
    text = rendered(
        "model_card.md.j2",
        {
            "card": card,
            "task": TASK_OF_KIND.get(card.kind, card.kind),
            "parameters": millions if card.parameters >= 10_000 else card.parameters,
            "preceding": [
                f"`{network}`, {steps} steps in {duration(seconds)}"
                for network, steps, seconds in card.preceding
            ],
            "metrics": [(_measure(k), f"{v:.3f}") for k, v in numbers],
            "measured": [(each, _means(each), _cases(each)) for each in scores],
            "is_seen": any("training" in case.role for case in validation),
            "most": MOST_ROWS,
            "numbers": {name: value for name, value in numbers if math.isfinite(value)},
            "recipe": _recipe(card),
            "roles": [f"{sum(c.role == role for c in card.cases)} for {role}" for role in roles],
            "spacings": span([case.spacing_mm for case in card.cases if case.spacing_mm]),
            "shapes": span([case.shape for case in card.cases if case.shape]),
            "fingerprint": fingerprint_of_all(card.cases),
            "training": training,
            "validation": validation,
            "rare": _rare(card, training),
            "weak": _weak(card.scores),
        },
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _means(scores: Scores) -> list[list[Any]]:
    """Return the table of means, with its header row first."""
    names = list(dict.fromkeys(m for row in scores.means.values() for m in row))
    columns = [c for c in names if c in MEASURES] or names
    rows: list[list[Any]] = [["", *map(_measure, columns), "cases"]]
    for name, row in scores.means.items():
        label = "all classes" if name == "mean" else name
        cases = max(m.cases for m in row.values())
        rows.append([label, *(interval(row.get(c)) for c in columns), cases])
    return rows


def _cases(scores: Scores) -> list[list[str]]:
    """Return the table of the worst cases, with its header row first."""
    columns = list(dict.fromkeys(column for case in scores.cases for column in case.values))
    rows = [["case", *columns]]
    for case in scores.cases[:MOST_ROWS]:
        values = (case.values.get(column) for column in columns)
        rows.append([case.case, *("" if v is None else f"{v:.3f}" for v in values)])
    return rows


def _rare(card: RunCard, training: Sequence[CaseFact]) -> list[str]:
    """Return the classes that are in less than a quarter of the training cases."""
    if not any(case.class_voxels for case in training):
        return []
    counts = {c.name: sum(bool(x.class_voxels.get(c.name)) for x in training) for c in card.classes}
    return [f"{name} ({count})" for name, count in counts.items() if count < len(training) / 4]


def _weak(scores: Scores | None) -> list[tuple[str, list[str]]]:
    """Return classes with poor, uncertain or missing scores, grouped by limitation."""
    rows = {} if scores is None else scores.means
    dice = {name: row["dice"] for name, row in rows.items() if "dice" in row}
    of_classes = {name: mean for name, mean in dice.items() if name != "mean"}
    poor = {n: m.mean for n, m in of_classes.items() if m.mean is not None and m.mean < POOR_DICE}
    return [
        (f"These have a mean Dice below {POOR_DICE}", [f"{n} ({m:.2f})" for n, m in poor.items()]),
        (
            f"The intervals of these are wider than {WIDE}",
            [
                n
                for n, m in dice.items()
                if m.low is not None and m.high is not None and m.high - m.low > WIDE
            ],
        ),
        (
            "No validation case has these, so nothing is known about them",
            [n for n, m in of_classes.items() if m.mean is None],
        ),
    ]


def _recipe(card: RunCard) -> str:
    plan = {k: v for k, v in card.plan.items() if k != "median_shape"}
    data = {k: v for k, v in card.settings.get("data", {}).items() if k != "classes"}
    keys = {**card.settings, "data": data, "plan": plan, "schedule": card.schedule}
    keys = {k: v for k, v in keys.items() if v not in ({}, [], None)}
    return yaml.safe_dump(
        keys, sort_keys=False, allow_unicode=True, width=96, default_flow_style=None
    )


def span(rows: Sequence[Sequence[float]]) -> str:
    """Return the range of each axis: `1 to 2 x 0.5 x 0.5`; "" without rows.

    The distance of slices is left out if there are 2D images, which have none.
    """
    ranges = []
    for values in zip(*rows, strict=True):
        low, high = min(values), max(values)
        if high == PLANAR_SLICE_SPACING_MM:
            continue
        ranges.append(f"{low:g}" if low == high else f"{low:g} to {high:g}")
    return " x ".join(ranges)


def interval(mean: Mean | None) -> str:
    """Return a mean with its interval."""
    if mean is None or mean.mean is None:
        return "none"
    text = f"{mean.mean:.3f}"
    return text if mean.low is None else f"{text} [{mean.low:.3f}, {mean.high:.3f}]"


def _measure(name: str) -> str:
    return MEASURES.get(name, name.replace("_", " "))


def _flat(metrics: dict[str, Any]) -> list[tuple[str, float]]:
    """Return the numbers of a nested mapping, with joined keys."""
    found: list[tuple[str, float]] = []
    for key, value in metrics.items():
        if isinstance(value, dict):
            found += [(f"{key} {inner}", number) for inner, number in _flat(value)]
        elif isinstance(value, (int, float)):
            found.append((key, float(value)))
    return found


def classified_facts(recipe: ClassificationRecipe) -> dict[str, CaseFact]:
    """Return the facts of every image by name; empty if the data cannot be read any more."""
    try:
        data = read_data(recipe, Path)
        facts = {}
        for split, cases in data.splits.items():
            for i, name in enumerate(cases.names):
                volume = cases.read(i)
                digest = hashlib.sha256(np.ascontiguousarray(volume.array).tobytes())
                facts[name_of(split, name)] = CaseFact(
                    "",
                    ROLES[split],
                    volume.shape,
                    () if data.is_stored_as_shown else volume.spacing_mm,
                    digest.hexdigest(),
                )
        return facts
    except PumitError as error:
        logger.warning("the images cannot be read again (%s)", type(error).__name__)
        return {}


def best_of(folder: Path) -> Path:
    """Return the best checkpoint of a run so far.

    Raises:
        CheckpointError: If there is none, as before the first validation.
    """
    if (folder / COMPARISON).is_file():
        raise CheckpointError(
            f"{folder.absolute().name} holds a comparison; name one of its trainings, in its "
            "folder runs."
        )
    status = read_status(folder)
    name = str(read_recipe_file(folder).get("name") or (status and status.name) or "model")
    model = status.model if status is not None and status.model else ""
    for path in (folder / model, folder / f"{name}.safetensors"):
        if path.is_file():
            return path
    raise CheckpointError(
        f"The run in {folder.absolute().name} has no model yet; its first validation makes one."
    )


def write_card(folder: Path, best_checkpoint: Path) -> Path:
    """Write a model card into a run's folder, from its log and, if they exist, recipe and scores.

    The card can be published: cases are numbered, and it does not identify patients. The mapping of
    numbers to cases stays in `case_numbers.json`.

    Raises:
        PumitError: If the checkpoint cannot be read, or the card cannot be written.
    """
    checkpoint = load_checkpoint(best_checkpoint)
    if (folder / CROSS_VALIDATION).is_file():
        log = RunLog.of_folds(folder)
    else:
        log = RunLog.read(folder, learning_rate=checkpoint.header.learning_rate)
    recipe = followed_recipe(folder)
    classified = {}
    if isinstance(recipe, ClassificationRecipe) and (folder / ANSWERS).is_file():
        classified = classified_facts(recipe)
    logged = [str(n) for role in ROLES.values() for n in log.data.get(role, ())]
    numbers = case_numbers(logged or [*answered_names(folder), *classified])
    target = pick_device("auto" if recipe is None else recipe.device)
    card = gather(folder, best_checkpoint, checkpoint, log, target, numbers)
    if classified:
        cases = [replace(fact, case=numbers[name]) for name, fact in classified.items()]
        card = replace(card, cases=tuple(sorted(cases, key=lambda fact: number_of(fact.case))))
    scores = card_scores(folder, numbers)
    shown: dict[str, Any] = {
        "schedule": card.schedule,
        "classes": card.classes,
        "best_step": card.step,
    }
    title = "Losses, learning rate and validation over the steps of the training."
    is_drawn = write_curves(log, folder / CURVES, **shown)
    card = replace(
        card,
        fold=card.fold or fold_of(folder),
        scores=scores[0] if scores else None,
        further_scores=tuple(scores[1:]),
        curves=CardPicture(CURVES, title) if is_drawn else None,
    )
    is_validated = bool(scores) and scores[0].split == "validation"
    # SAM works slice by slice and is slow, so it is not run again for pictures.
    if is_validated and isinstance(recipe, LabelledRecipe) and not isinstance(recipe, SamRecipe):
        try:
            worst = draw_worst(
                card.kind,
                folder,
                best_checkpoint,
                recipe,
                scores[0],
                numbers,
                card.classes,
                str(target),
            )
            card = replace(card, worst=worst)
        except PumitError as error:  # the data cannot be read any more
            logger.warning("the worst cases cannot be drawn (%s)", type(error).__name__)
    write_json(folder / NUMBERS, {number: name for name, number in numbers.items()})
    write_json(folder / CARD_DATA, asdict(card))
    write_text(folder / CARD, card_text(card))
    return folder / CARD
