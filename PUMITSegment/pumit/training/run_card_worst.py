"""Pictures of the cases that a model does worst, under their numbers."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from pumit.errors import PumitError
from pumit.evaluation.class_error_picture import ClassMasks, write_class_error_picture
from pumit.inference.automatic import load_automatic
from pumit.training.case_reading import LabelledVolume, read_labelled
from pumit.training.class_values import ClassValue, region_table
from pumit.training.labelled_cases import LabelledCase, find_labelled_set
from pumit.training.run_card_facts import ClassFact, Scores
from pumit.training.run_card_record import CardPicture

logger = logging.getLogger(__name__)

PICTURES = "pictures"
MOST = 3
DEFAULT_OVERLAP = 0.75


def draw_worst_cases(
    folder: Path,
    best: Path,
    recipe: Mapping[str, Any],
    scores: Scores,
    numbers: Mapping[str, str],
    classes: Sequence[ClassFact],
    device: str,
) -> tuple[CardPicture, ...]:
    """Draw the worst cases of a segmentation run, each through its largest error.

    A scan that cannot be read any more is left out, and the log says so without naming it.

    Args:
        folder: Of the run, where `pictures/` is made.
        best: Checkpoint to ask.
        recipe: Of the run's folder; its paths are absolute.
        scores: Cases, the worst first.
        numbers: Name of a case to "case 7".
        classes: For their colours.
        device: Where to compute.
    """
    data = find_labelled_set(recipe["data"], Path)
    by_number = {numbers[case.name]: case for case in data.cases if case.name in numbers}
    model = load_automatic(best, device)
    settings = recipe.get("validation", {})
    (folder / PICTURES).mkdir(exist_ok=True)
    pictures = []
    for rank, score in enumerate(scores.cases[:MOST], start=1):
        mean = score.values.get("mean")
        if score.case not in by_number or mean is None:
            continue
        try:
            read = _read(by_number[score.case], data.classes)
            with torch.inference_mode():
                answer = model.segment(
                    read.volume,
                    overlap=float(settings.get("final_overlap", DEFAULT_OVERLAP)),
                    averages_flips=bool(settings.get("flips", False)),
                )
            members = region_table(data.classes)
            masks = [
                ClassMasks(fact.name, fact.color_rgb, members[i][read.labels], answer.mask(i + 1))
                for i, fact in enumerate(classes)
            ]
            file = f"{PICTURES}/worst_{rank}.png"
            write_class_error_picture(read.volume, masks, folder / file, title=score.case)
        except PumitError as error:
            logger.warning("%s cannot be drawn (%s)", score.case, type(error).__name__)
            continue
        pictures.append(
            CardPicture(
                file,
                f"{score.case}, mean Dice {mean:.2f}: planes through its largest error; broken "
                "lines are the label, whole ones the answer.",
            )
        )
    return tuple(pictures)


def _read(case: LabelledCase, classes: Sequence[ClassValue]) -> LabelledVolume:
    return read_labelled(case, classes)
