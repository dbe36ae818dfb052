"""Pictures of the cases that a model does worst, under their numbers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from pumit.errors import PumitError, VolumeError
from pumit.evaluation.simulated_user import simulate_clicks
from pumit.inference.automatic.segmentation import load_automatic
from pumit.inference.interactive.segmenter import load_segmenter
from pumit.inference.interactive.session import InteractiveSession
from pumit.report.class_error_picture import ClassMasks, write_class_error_picture
from pumit.report.error_picture import Stage, write_error_picture
from pumit.segmentation import Mask
from pumit.training.data.case import LabelledVolume, read_labelled
from pumit.training.data.classes import lookup_table
from pumit.training.data.labelled_set import find_labelled_set
from pumit.training.model_card.facts import CaseMeasures, ClassFact, Scores
from pumit.training.model_card.record import CardPicture
from pumit.training.recipes.labelled import LabelledRecipe
from pumit.training.recipes.segmentation import SegmentationRecipe

logger = logging.getLogger(__name__)

PICTURES = "pictures"
MOST = 3
CLICKS = 3


Draw = Callable[[LabelledVolume, Sequence[Mask], CaseMeasures, Path], str]


def draw_worst(
    kind: str,
    folder: Path,
    best: Path,
    recipe: LabelledRecipe,
    scores: Scores,
    numbers: Mapping[str, str],
    classes: Sequence[ClassFact],
    device: str,
) -> tuple[CardPicture, ...]:
    """Draw the worst cases of a run, or of a promptable one the worst structure of each.

    A scan that cannot be read any more is left out, and the log says so without naming it. Runs of
    other kinds have no pictures.

    Args:
        kind: Kind of the model.
        folder: Folder of the run, where `pictures/` is made.
        recipe: Recipe of the run's folder; its paths are absolute.
        scores: Cases, the worst first.
        numbers: Name of a case to "case 7".
    """
    drawer = {"automatic": _answer_drawer, "promptable": _click_drawer}.get(kind)
    if drawer is None:
        return ()
    draw = drawer(best, recipe, classes, device)
    data = find_labelled_set(recipe.data, Path)
    by_number = {numbers[case.name]: case for case in data.cases if case.name in numbers}
    members = lookup_table(data.classes)
    (folder / PICTURES).mkdir(exist_ok=True)
    pictures = []
    for rank, score in enumerate(scores.cases[:MOST], start=1):
        if score.case not in by_number or score.values.get("mean") is None:
            continue
        file = f"{PICTURES}/worst_{rank}.png"
        try:
            read = read_labelled(by_number[score.case], data.classes)
            truths = [held[read.labels] for held in members]
            title = draw(read, truths, score, folder / file)
        except PumitError as error:
            logger.warning("%s cannot be drawn (%s)", score.case, type(error).__name__)
            continue
        pictures.append(CardPicture(file, f"{score.case}, {title}."))
    return tuple(pictures)


def _answer_drawer(
    best: Path, recipe: LabelledRecipe, classes: Sequence[ClassFact], device: str
) -> Draw:
    """Return what draws a case through its largest error, and says what is to be seen."""
    model = load_automatic(best, device)
    assert isinstance(recipe, SegmentationRecipe)
    overlap, flips = recipe.validation.final_overlap, recipe.validation.flips

    def draw(read: LabelledVolume, truths: Sequence[Mask], score: CaseMeasures, path: Path) -> str:
        with torch.inference_mode():
            answer = model.segment(read.volume, overlap=overlap, averages_flips=flips)
        masks = [
            ClassMasks(fact.name, fact.color_rgb, truth, answer.mask(i))
            for i, (fact, truth) in enumerate(zip(classes, truths, strict=True), start=1)
        ]
        write_class_error_picture(read.volume, masks, path, title=score.case)
        return (
            f"mean Dice {score.values['mean']:.2f}: planes through its largest error; broken "
            "lines are the label, whole ones the answer"
        )

    return draw


def _click_drawer(
    best: Path, recipe: LabelledRecipe, classes: Sequence[ClassFact], device: str
) -> Draw:
    """Return the same for the worst structure of a case, after one click and more."""
    model = load_segmenter(best, device=device)
    names = [fact.name for fact in classes]

    def draw(read: LabelledVolume, truths: Sequence[Mask], score: CaseMeasures, path: Path) -> str:
        values = {k: v for k, v in score.values.items() if k in names and v is not None}
        worst = min(values, key=lambda name: values[name])
        target = truths[names.index(worst)]
        session = InteractiveSession(model)
        session.set_volume(read.volume)
        stages = []
        for number, (mask, _) in enumerate(simulate_clicks(session, target, CLICKS), start=1):
            if number in (1, CLICKS):
                title = f"{number} click{'s' if number > 1 else ''}"
                stages.append(Stage(title, mask.copy(), tuple(session.prompts())))
        if not stages:
            raise VolumeError("the label is empty")
        write_error_picture(read.volume, target, stages, path, title=f"{score.case}: {worst}")
        return (
            f"{worst}, Dice after one click {values[worst]:.2f}: planes through the largest error; "
            "green is the label, red the answer, + and x are the clicks"
        )

    return draw
