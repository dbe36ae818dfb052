"""Pictures of a model card: training curves and the worst cases."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from pumit.errors import PumitError, VolumeError
from pumit.evaluation.simulated_user import simulate_clicks
from pumit.geometry import Triple
from pumit.inference.automatic.segmentation import load_automatic
from pumit.inference.interactive.segmenter import load_segmenter
from pumit.inference.interactive.session import InteractiveSession
from pumit.report.error_picture import (
    ClassMasks,
    Stage,
    write_class_error_picture,
    write_error_picture,
)
from pumit.report.line_chart import Line, LineChart, write_line_charts
from pumit.segmentation import Mask
from pumit.training.data.case import LabelledVolume, read_labelled
from pumit.training.data.classes import lookup_table
from pumit.training.data.labelled_set import find_labelled_set
from pumit.training.model_card.record import CardPicture, CaseMeasures, ClassFact, RunLog, Scores
from pumit.training.recipes.labelled import LabelledRecipe
from pumit.training.recipes.schedule import Schedule
from pumit.training.recipes.segmentation import SegmentationRecipe

logger = logging.getLogger(__name__)
PICTURES = "pictures"
MOST = 3
CLICKS = 3
Draw = Callable[[LabelledVolume, Sequence[Mask], CaseMeasures, Path], str]
# Keys of a progress record that are neither losses nor scores.
_OTHER = {
    "step",
    "seconds",
    "left_seconds",
    "learning_rate",
    "rate",
    "norm",
    "fields_per_second",
    "voxels_per_second",
    "drawing",
    "memory_gib",
}
_SCORE_WORDS = ("dice", "accuracy", "auc", "iou")
_ALL: Triple = (0.1, 0.1, 0.15)


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
    """Draw the worst cases of an automatic model, or their worst structures for a promptable one.

    Unreadable scans are skipped and logged without their names. Other kinds of models have no
    pictures. The recipe has absolute paths, and the scores have the worst cases first.
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
    """Return a function that draws a case through its largest error, and returns the caption."""
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
    """Return the same for the worst structure of a case, after one and several clicks."""
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


def write_curves(
    log: RunLog,
    path: Path,
    *,
    schedule: Mapping[str, Any],
    classes: Sequence[ClassFact],
    best_step: int | None,
) -> bool:
    """Draw the curves of a run's log, and return whether there was anything to draw.

    Raises:
        ExportError: If the file cannot be written.
    """
    if not log.steps:
        return False
    names = _numbers_of(log.steps)
    losses = sorted((n for n in names if not _is_score(n)), key=lambda n: (n != "loss", n))
    lines = [Line(n.replace("_", " "), _series(log.steps, n)) for n in losses]
    charts = [LineChart("loss", lines)]
    rates = _rates(log, schedule)
    if rates:
        charts.append(LineChart("learning rate", [Line("learning rate", rates)]))
    scores = _validation(log, classes) + [
        Line(f"in training: {n.replace('_', ' ')}", _series(log.steps, n), is_faint=True)
        for n in names
        if _is_score(n)
    ]
    if scores:
        marks = [] if best_step is None else [(f"kept: step {best_step}", float(best_step))]
        high = max(y for line in scores for _, y in line.points)
        limits = (-0.02, 1.02) if high <= 1.0 else None
        is_classifier = any("auc" in line.name for line in scores)
        label = "AUC, accuracy" if is_classifier else "Dice of the validation cases"
        charts.append(LineChart(label, scores, limits=limits, marks=marks))
    unit, seconds = ("hours", 3600.0) if log.seconds > 3 * 3600 else ("minutes", 60.0)
    pairs = [(float(r["step"]), float(r["seconds"]) / seconds) for r in log.steps if "seconds" in r]
    if pairs and pairs[0][0] > 0 and pairs[0][1] > 0:
        pairs.insert(0, (0.0, 0.0))
    write_line_charts(charts, path, x_label="step", second=(unit, pairs) if pairs else None)
    return True


def _rates(log: RunLog, schedule: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Return the learning rate at each record."""
    given = {key: value for key, value in schedule.items() if key in Schedule.model_fields}
    if log.learning_rate is not None:
        given["learning_rate"] = log.learning_rate
    if "learning_rate" not in given:
        return []
    try:
        plan = Schedule(**given)
        return [
            (float(r["step"]), plan.rate_at(int(r["step"]) - 1, float(r.get("seconds", 0.0))))
            for r in log.steps
        ]
    except (TypeError, ValueError):  # a schedule of another version
        return []


def _validation(log: RunLog, classes: Sequence[ClassFact]) -> list[Line]:
    records = [{"step": r["step"], **r["validation"]} for r in log.validations if "step" in r]
    colors = {f"dice_{fact.name}": fact.color_rgb for fact in classes}
    lines = []
    for name in _numbers_of(records):
        if name == "score" and not any(n.startswith("dice_") for n in _numbers_of(records)):
            continue  # the metric is also recorded under its own name
        if not _is_score(name) and name != "score":
            continue
        title = "all classes" if name == "score" else name.removeprefix("dice_")
        lines.append(
            Line(
                title.replace("_", " "),
                _series(records, name),
                _ALL if name == "score" else colors.get(name),
                has_dots=True,
            )
        )
    return lines


def _is_score(name: str) -> bool:
    return any(word in name.split("_") or name.startswith(word) for word in _SCORE_WORDS) and (
        "error" not in name
    )


def _numbers_of(records: Sequence[Mapping[str, Any]]) -> list[str]:
    names = dict.fromkeys(
        key for r in records for key, value in r.items() if isinstance(value, (int, float))
    )
    return [name for name in names if name not in _OTHER]


def _series(records: Sequence[Mapping[str, Any]], name: str) -> list[tuple[float, float]]:
    return [(float(r["step"]), float(r[name])) for r in records if name in r]
