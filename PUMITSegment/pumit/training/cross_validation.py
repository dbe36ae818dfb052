"""Cross-validation: every patient is validated once, by a model not trained on that patient."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pumit.errors import CheckpointError, PumitError
from pumit.evaluation.segmentation_metrics import MetricRow, means_json, only_means, summarize
from pumit.models.ensemble import join_models
from pumit.runs import RECIPE, read_status
from pumit.system.files import write_json
from pumit.training.data.labelled_set import find_labelled_set
from pumit.training.data.split import Split, split_set
from pumit.training.recipes.labelled import LabelledData
from pumit.training.recipes.reader import RecipeFile, read_yaml
from pumit.training.recipes.segmentation import SegmentationRecipe
from pumit.training.recipes.tasks import task_of
from pumit.training.run.relay import finished_model, part_of_run, require_one_process
from pumit.training.run.resolved_recipe import (
    plain,
    recipe_to_follow,
    save_recipes,
    whole_schedule,
    with_absolute_paths,
)
from pumit.training.run.session import run_session
from pumit.training.validate import read_segmentation

RESULT = "cross_validation.json"
FINAL = "final"
FOLDS = "-folds"  # suffix of the name of the folds' ensemble
FOLD_KEYS = ("folds", "final_model")  # recipe keys of the cross-validation, not of its parts
# Trains a recipe in a folder and returns the best checkpoint.
Train = Callable[..., Path]
# Writes the card of a model, and returns the model's name in the index.
WriteResult = Callable[..., str | None]


def cross_validate(
    file: RecipeFile, output: Path, train: Train, write_result: WriteResult, *, since: float
) -> Path:
    """Train all folds one after another, resuming an earlier start.

    The output folder gets `fold_1` and so on, each a complete run; `cross_validation.json` with the
    metrics of every case by the model not trained on it, and means with 95 % bootstrap intervals
    over cases; and the ensemble of the folds, `NAME-folds.safetensors`, with its card, which is
    added to the user's index. With `final_model: true`, it also gets `final`, trained on all cases.

    Returns:
        The model of all cases if there is one, else that of the best fold.

    Raises:
        PumitError: If the recipe does not fit, there are fewer patients than folds, or the folder
            holds folds of another recipe, of other cases, or without their models.
        RunStopped: If it was stopped; the same call resumes.
    """
    if task_of(file.keys) != "segmentation":
        raise PumitError(f"folds in {file.source} need task: segmentation.")
    recipe = read_segmentation({"data": {}, **file.keys}, file.source)
    assert recipe.folds is not None
    require_one_process("A cross-validation runs in one process; train its folds one by one.")
    splits = fold_splits(recipe, file.path)
    parts = recipe.folds + recipe.final_model
    with run_session(output, since=since, name=recipe.name, task=recipe.task) as reporter:

        def part(number: int, name: str, title: str, **data: list[str]) -> Path:
            folder = output / name
            if (made := finished_model(folder)) is not None:
                return made
            own = file.changed({"data": data, "register": name == FINAL and recipe.register_})
            with part_of_run(reporter, folder, title, event="fold", number=number, parts=parts):
                return train(own, folder, since=since)

        # 1. Save the recipe that all parts follow, unless they followed another one before.
        given = with_absolute_paths(file.keys, file.path)
        given["schedule"] = whole_schedule(recipe.schedule, file.keys)
        given.pop("final_model", None)  # which may be trained later
        followed = recipe_to_follow(output, given, source=file.source)
        for number, split in enumerate(splits, start=1):
            _require_whole(output / f"fold_{number}", split)
        if recipe.final_model:
            finished_model(output / FINAL)
        full = plain({**followed, "final_model": recipe.final_model})
        reporter.written(lambda: save_recipes(output, given, full))
        names = [list(split.validation) for split in splits]
        reporter.report({"folds": names, "warnings": list(splits[0].warnings)})
        # 2. Train the folds; finished ones return at once.
        made = []
        for number, split in enumerate(splits, start=1):
            who = {"training": list(split.training), "validation": list(split.validation)}
            title = f"Fold {number} of {recipe.folds}"
            made.append(part(number, f"fold_{number}", title, **who))
        # 3. Pool the metrics of every case by the model not trained on it.
        result = pooled([output / f"fold_{n}" for n in range(1, recipe.folds + 1)])
        reporter.written(lambda: write_json(output / RESULT, result))
        reporter.report({"cross_validation": only_means(result["mean"])})
        # 4. Join the folds into an ensemble, and write its card.
        joined = output / f"{recipe.name}{FOLDS}.safetensors"
        reporter.written(lambda: join_models(made, joined, name=joined.stem))
        registered = write_result(reporter, output, joined, registers=recipe.register_)
        # 5. Train the model of all cases, or return that of the best fold.
        best = made[_best(result)]
        if recipe.final_model:
            everyone = sorted({*splits[0].training, *splits[0].validation})
            title = "The model of all cases"
            best = part(parts, FINAL, title, training=everyone, validation=[])
            final = read_status(output / FINAL)
            registered = final.registered if final is not None else registered
            reporter.update(model=best.relative_to(output).as_posix(), registered=registered)
        reporter.update(left_seconds=0.0)
        usable = f" The model {registered!r} can be used now." if registered else ""
        reporter.state("finished", f"Finished. {_sentence(result)}{usable}")
    return best


def _require_whole(folder: Path, split: Split) -> None:
    """Check that a finished fold has its model, and was validated on the cases of this split."""
    if finished_model(folder) is None:
        return  # a fold that is not finished compares its recipe
    before = read_yaml(folder / RECIPE).get("data", {}).get("validation")
    if isinstance(before, list) and sorted(map(str, before)) != sorted(split.validation):
        raise CheckpointError(
            f"{folder.name} of {folder.parent.name} was validated on other cases than it would be "
            "now; restore the cases of the data set, or choose another folder to start again."
        )


def fold_splits(recipe: SegmentationRecipe, resolve: Callable[[str], Path]) -> list[Split]:
    """Return the split of each fold.

    If the recipe names training cases, as a planned one does, only the training and validation
    cases that it names take part.

    Raises:
        PumitError: If the recipe also has `data.fold`, or there are too few patients.
    """
    data, count = recipe.data, recipe.folds or 0
    if count < 2:
        raise PumitError(f"A cross-validation needs at least 2 folds, got {count}.")
    if data.fold is not None:
        raise PumitError("Give either folds or data.fold, not both.")
    found = find_labelled_set(data, resolve)
    cases = list(found.cases)
    if data.training is not None:
        held = data.validation
        named = set(map(str, [*data.training, *(held if isinstance(held, list) else [])]))
        unknown = sorted(named - {case.name for case in cases})
        if unknown:
            raise PumitError(f"data.training names {unknown[0]!r}, which is no case.")
        cases = [case for case in cases if case.name in named]
    folds = [
        LabelledData(patient=data.patient, fold=f"{n} of {count}") for n in range(1, count + 1)
    ]
    return [split_set(cases, fold, seed=recipe.seed) for fold in folds]


def pooled(folders: Sequence[Path]) -> dict[str, Any]:
    """Pool the metrics of finished folds, each with a `validation.json`.

    Returns:
        `folds` with the means of each, `mean` over all cases by class and metric with intervals,
        and `rows`, one per case and class, with its fold.
    """
    rows: list[dict[str, Any]] = []
    folds = []
    for number, folder in enumerate(folders, start=1):
        judged = json.loads((folder / "validation.json").read_text(encoding="utf-8"))
        rows += [{**row, "fold": number} for row in judged["rows"]]
        folds.append({"fold": number, "step": judged["step"], "mean": judged["mean"]})
    plain = [MetricRow(**{k: v for k, v in row.items() if k != "fold"}) for row in rows]
    return {"folds": folds, "mean": means_json(summarize(plain)), "rows": rows}


def _best(result: Mapping[str, Any]) -> int:
    """Return the index of the fold with the highest mean Dice."""
    scores = [fold["mean"].get("mean", {}).get("dice", {}).get("mean") for fold in result["folds"]]
    return max(range(len(scores)), key=lambda i: -1.0 if scores[i] is None else scores[i])


def _sentence(result: Mapping[str, Any]) -> str:
    """Return a sentence on the Dice of all folds."""
    found = result["mean"].get("mean", {}).get("dice", {})
    if found.get("mean") is None:
        return "No validation case has any class."
    interval = ""
    if found.get("low") is not None:
        interval = f" (95 % interval {found['low']:.3f} to {found['high']:.3f})"
    return f"Dice {found['mean']:.3f}{interval} over {found['cases']} cases."
