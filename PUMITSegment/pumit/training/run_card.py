"""The model card of a training, made from its folder: `card.md`, `card.json` and their pictures."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pumit.errors import PumitError
from pumit.inference.loading import pick_device
from pumit.io.atomic import atomic_path
from pumit.models.checkpoint import load_checkpoint
from pumit.models.user_index import CARD, CARD_DATA
from pumit.training.run_card_curves import write_curves
from pumit.training.run_card_facts import Scores, read_json, segmentation_scores
from pumit.training.run_card_record import (
    CardPicture,
    RunCard,
    RunLog,
    gather,
    numbers_of,
    read_recipe_file,
)
from pumit.training.run_card_text import card_text
from pumit.training.run_card_worst import draw_worst_cases

logger = logging.getLogger(__name__)

CURVES = "curves.png"
VALIDATION = "validation.json"
NUMBERS = "case_numbers.json"


def write_card(folder: Path, best_checkpoint: Path, *, device: str | None = None) -> Path:
    """Write a model card into a run's folder, from what the run left there.

    The card can be handed on: cases are numbered, and nothing in it tells who a patient is. Which
    number is which case stays in `case_numbers.json`.

    Args:
        folder: Of the run: `log.jsonl`, and where there are any `recipe.yaml` and
            `validation.json`.
        best_checkpoint: The model that the card is about.
        device: Where the worst cases are computed again; None for where the recipe trained.

    Returns:
        `card.md`.

    Raises:
        PumitError: If the checkpoint cannot be read, or the card not be written.
    """
    checkpoint = load_checkpoint(best_checkpoint)
    rate = checkpoint.recipe.get("training", {}).get("learning_rate")
    log = RunLog.read(folder, learning_rate=rate)
    numbers = numbers_of(log)
    recipe = read_recipe_file(folder)
    target = pick_device(device or str(recipe.get("device", "auto")))
    card = gather(folder, best_checkpoint, checkpoint, log, target, numbers)
    card = replace(card, scores=_scores(folder, numbers), curves=_curves(folder, log, card))
    if card.kind == "automatic" and card.scores is not None and "data" in recipe:
        card = replace(
            card,
            worst=_worst(folder, best_checkpoint, recipe, card, numbers, str(target)),
        )
    _write_json(folder / NUMBERS, {number: name for name, number in numbers.items()})
    _write_json(folder / CARD_DATA, asdict(card))
    with atomic_path(folder / CARD) as temporary:
        temporary.write_text(card_text(card), encoding="utf-8")
    return folder / CARD


def _scores(folder: Path, numbers: dict[str, str]) -> Scores | None:
    """What was measured case by case; None where that is absent, or of other data."""
    try:
        content = read_json((folder / VALIDATION).read_text(encoding="utf-8"))
        return None if content is None else segmentation_scores(content, numbers)
    except FileNotFoundError:
        return None
    except (OSError, KeyError, TypeError, ValueError) as error:
        logger.warning("%s cannot be used (%s)", VALIDATION, type(error).__name__)
        return None


def _curves(folder: Path, log: RunLog, card: RunCard) -> CardPicture | None:
    is_drawn = write_curves(
        log, folder / CURVES, schedule=card.schedule, classes=card.classes, best_step=card.step
    )
    title = "Losses, learning rate and validation over the steps of the training."
    return CardPicture(CURVES, title) if is_drawn else None


def _worst(
    folder: Path,
    best: Path,
    recipe: dict[str, Any],
    card: RunCard,
    numbers: dict[str, str],
    device: str,
) -> tuple[CardPicture, ...]:
    """Pictures of the worst cases; none where the data are not to be found any more."""
    assert card.scores is not None
    try:
        return draw_worst_cases(folder, best, recipe, card.scores, numbers, card.classes, device)
    except PumitError as error:
        logger.warning("the worst cases cannot be drawn (%s)", type(error).__name__)
        return ()


def _write_json(path: Path, content: dict[str, Any]) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")
