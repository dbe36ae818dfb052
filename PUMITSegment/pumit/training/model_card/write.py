"""The model card of a training, made from its folder: `card.md`, `card.json` and their pictures."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from pumit.errors import CheckpointError, PumitError
from pumit.inference.loading import pick_device
from pumit.models.checkpoint import load_checkpoint
from pumit.models.user_index import CARD, CARD_DATA
from pumit.runs import read_status
from pumit.system.atomic import write_json, write_text
from pumit.training.classification.reader import read_classification_data
from pumit.training.model_card.curves import write_curves
from pumit.training.model_card.facts import CaseFact, case_numbers, number_of
from pumit.training.model_card.record import (
    CardPicture,
    RunCard,
    RunLog,
    followed_recipe,
    gather,
    numbers_of,
    read_recipe_file,
)
from pumit.training.model_card.scores import ANSWERS, answered_names, card_scores, fold_of, name_of
from pumit.training.model_card.text import card_text
from pumit.training.model_card.worst_cases import draw_worst
from pumit.training.recipes.classification import ClassificationRecipe
from pumit.training.recipes.labelled import LabelledRecipe
from pumit.training.recipes.sam import SamRecipe

logger = logging.getLogger(__name__)

CURVES = "curves.png"
NUMBERS = "case_numbers.json"
ROLES = {"train": "training", "val": "validation", "test": "test"}


def classified_facts(recipe: ClassificationRecipe) -> dict[str, CaseFact]:
    """Facts of every image by its name; empty where the data are not to be found any more.

    Args:
        recipe: Recipe of the run's folder; its paths are absolute.
    """
    given = recipe.data
    try:
        data = read_classification_data(
            Path(given.file or given.folder or ""),
            classes=tuple(map(str, given.classes)),
            split=given.split,
            patient=given.patient,
            seed=recipe.seed,
        )
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


def numbered(facts: Mapping[str, CaseFact], numbers: Mapping[str, str]) -> tuple[CaseFact, ...]:
    """Return the facts under what the card calls each case, in that order."""
    known = [replace(fact, case=numbers[name]) for name, fact in facts.items()]
    return tuple(sorted(known, key=lambda fact: number_of(fact.case)))


def best_of(folder: Path) -> Path:
    """Return the best checkpoint of a run so far.

    Raises:
        CheckpointError: If it has none: it is written by the first validation.
    """
    status = read_status(folder)
    name = str(read_recipe_file(folder).get("name") or (status and status.name) or "model")
    model = status.model if status is not None and status.model else ""
    for path in (folder / model, folder / f"{name}.safetensors"):
        if path.is_file():
            return path
    raise CheckpointError(
        f"The run in {folder.name} has no model yet; its first validation makes one."
    )


def write_card(folder: Path, best_checkpoint: Path) -> Path:
    """Write a model card into a run's folder, from what the run left there.

    The card can be handed on: cases are numbered, and nothing in it tells who a patient is. Which
    number is which case stays in `case_numbers.json`.

    Args:
        folder: Folder of the run: `log.jsonl`, and where there are any `recipe.yaml` and
            `validation.json`.
        best_checkpoint: The model that the card is about.

    Returns:
        `card.md`.

    Raises:
        PumitError: If the checkpoint cannot be read, or the card not be written.
    """
    checkpoint = load_checkpoint(best_checkpoint)
    log = RunLog.read(folder, learning_rate=checkpoint.header.learning_rate)
    recipe = followed_recipe(folder)
    classified = {}
    if isinstance(recipe, ClassificationRecipe) and (folder / ANSWERS).is_file():
        classified = classified_facts(recipe)
    numbers = numbers_of(log) or case_numbers([*answered_names(folder), *classified])
    target = pick_device("auto" if recipe is None else recipe.device)
    card = gather(folder, best_checkpoint, checkpoint, log, target, numbers)
    if classified:
        card = replace(card, cases=numbered(classified, numbers))
    scores = card_scores(folder, numbers)
    card = replace(
        card,
        fold=card.fold or fold_of(folder),
        scores=scores[0] if scores else None,
        further_scores=tuple(scores[1:]),
        curves=_curves(folder, log, card),
    )
    is_validated = bool(scores) and scores[0].split == "validation"
    # SAM answers slices, and slowly: they are not asked for again.
    if is_validated and isinstance(recipe, LabelledRecipe) and not isinstance(recipe, SamRecipe):
        worst = _worst(folder, best_checkpoint, recipe, card, numbers, str(target))
        card = replace(card, worst=worst)
    write_json(folder / NUMBERS, {number: name for name, number in numbers.items()})
    write_json(folder / CARD_DATA, asdict(card))
    write_text(folder / CARD, card_text(card))
    return folder / CARD


def _curves(folder: Path, log: RunLog, card: RunCard) -> CardPicture | None:
    is_drawn = write_curves(
        log, folder / CURVES, schedule=card.schedule, classes=card.classes, best_step=card.step
    )
    title = "Losses, learning rate and validation over the steps of the training."
    return CardPicture(CURVES, title) if is_drawn else None


def _worst(
    folder: Path,
    best: Path,
    recipe: LabelledRecipe,
    card: RunCard,
    numbers: dict[str, str],
    device: str,
) -> tuple[CardPicture, ...]:
    """Pictures of the worst cases; none where the data are not to be found any more."""
    if card.scores is None:
        return ()
    try:
        return draw_worst(
            card.kind, folder, best, recipe, card.scores, numbers, card.classes, device
        )
    except PumitError as error:
        logger.warning("the worst cases cannot be drawn (%s)", type(error).__name__)
        return ()
