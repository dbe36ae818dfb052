"""`pumit train`: read a recipe, and hand it to what trains its task."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pumit.errors import PumitError
from pumit.inference.loading import pick_device
from pumit.runs import read_status, send_command
from pumit.training.cross_validation import PARTS, cross_validate, read_request
from pumit.training.loop.context import TrainingRun
from pumit.training.loop.distributed import start_processes
from pumit.training.loop.fit import TrainingJob, fit
from pumit.training.preceding import model_of, preceding_of, train_before
from pumit.training.recipes.model import TrainingRecipe
from pumit.training.recipes.pretraining import OWN_TOKENIZER
from pumit.training.recipes.reader import paths_from, read_yaml
from pumit.training.recipes.tasks import task_of
from pumit.training.result import write_result
from pumit.training.run.reporter import RunReporter
from pumit.training.run.resolved_recipe import (
    plain,
    recipe_to_follow,
    whole_schedule,
    with_absolute_paths,
)
from pumit.training.run.resume_state import LAST
from pumit.training.run.session import run_session
from pumit.training.validate import read_recipe


def finetune(
    path: Path,
    output: Path,
    *,
    folder: Path | None = None,
    data: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    device: str | None = None,
    workers: int | None = None,
    since: float | None = None,
    folds: int | None = None,
    changes: Mapping[str, Any] | None = None,
    finish: bool = False,
) -> Path:
    """Train by a recipe, resuming where `output` holds an earlier part of the run.

    The folder then holds what `pumit.runs` tells of: status, logs and the whole recipe.

    Args:
        folder: Folder that relative paths of the recipe begin at; None for its own.
        data: Keys of the recipe's `data` to replace.
        overrides: Values of `schedule` to replace, such as `seconds`.
        device: "auto", "cpu", "cuda" or "cuda:1", if not what the recipe says.
        workers: Processes that draw in advance, if not what the recipe says.
        since: Time when the user started it, Unix time; None for now.
        folds: Parts of a cross-validation, if not what the recipe says.
        changes: Keys of the recipe to replace; with them it is no cross-validation.
        finish: Whether to train no more, and end with the best model that `output` holds.

    Raises:
        PumitError: If the recipe is wrong, its data cannot be used, another process trains in the
            folder, or the folder holds a run of another recipe.
        RunStopped: If the run was stopped; it is saved, and the same call goes on.
    """
    # 1. A cross-validation is several trainings, each by this function.
    since = time.time() if since is None else since
    if finish and not _has_model(output):
        raise PumitError(f"The run in {output.name} has no validated model to finish with.")
    if changes is None and (request := read_request(path, folder, output, data, folds, since)):

        def train_part(below: Path, chosen: Mapping[str, Any], registers: bool) -> Path:
            more = {"register": registers and request.recipe.register_}
            merged = {**(data or {}), **chosen}
            alike: dict[str, Any] = {"device": device, "workers": workers, "overrides": overrides}
            return finetune(
                path, below, folder=folder, data=merged, since=since, changes=more, **alike
            )

        return cross_validate(request, train_part)
    # 2. The folder is held; what the caller gives replaces what the recipe says.
    with run_session(output, since=since) as reporter:
        if finish and reporter.journal is not None:
            send_command(output, "finish")
        given = {"device": device, "workers": workers}
        given = {key: value for key, value in given.items() if value is not None}
        file = read_yaml(path)
        keys = _merged(file, {**(changes or {}), **given}, data or {}, overrides or {})
        reporter.update(name=str(keys.get("name", "model")), task=task_of(keys))
        keys = _after_preceding(keys, path, folder or path.parent, output, reporter)
        # 3. The recipe becomes typed, and is compared with that of an earlier part of the run.
        run = _prepared(keys, path, output, folder or path.parent, reporter)
        run = replace(run, named_schedule=file.get("schedule", {}))
        # 4. The job of its task is trained.
        best = fit(job_of(task_of(keys))(run))
        # 5. The first process writes the card and enters the model in the index.
        if run.is_first:
            # What is pre-trained is there for further trainings.
            write_result(reporter, output, best, registers=run.recipe.register_)
            reporter.finish(f"Finished. The model {best.stem!r} can be used now.")
        if dist.is_initialized():
            dist.destroy_process_group()
    return best


def _after_preceding(
    keys: dict[str, Any], path: Path, folder: Path, output: Path, reporter: RunReporter
) -> dict[str, Any]:
    """The recipe with the model of the run that it needs first, which is trained where it is."""
    unlabelled = keys.get("unlabelled") or ""
    if unlabelled:
        unlabelled = str((folder / Path(str(unlabelled)).expanduser()).absolute())
    before = preceding_of(keys, output, unlabelled=unlabelled)
    if before is None:
        return keys
    own = str(model_of(before, output))
    if keys.get(before.gives) not in (None, OWN_TOKENIZER, own):
        raise PumitError(
            f"{path.name} has both `unlabelled` and `{before.gives}`; begin with one of them."
        )
    read_recipe({**keys, before.gives: own}, path.name)  # what is wrong is said before it begins

    def train(
        recipe: Path, below: Path, changes: Mapping[str, Any], limits: Mapping[str, Any]
    ) -> Path:
        return finetune(recipe, below, folder=folder, overrides=limits, changes=changes)

    named = keys.get("schedule", {})
    limits = {k: named[k] for k in ("seconds", "steps") if k in named}
    return {**keys, before.gives: str(train_before(before, output, reporter, train, limits))}


def job_of(task: str) -> Callable[[TrainingRun], TrainingJob]:
    """The kind of job of a task; each is imported only when it is needed."""
    if task == "classification":
        from pumit.training.classification.run import ClassificationJob

        return ClassificationJob
    if task == "pretraining":
        from pumit.training.pretraining.run import PretrainingJob

        return PretrainingJob
    if task == "promptable":
        from pumit.training.promptable.run import PromptableJob

        return PromptableJob
    from pumit.training.segmentation.run import SegmentationJob

    return SegmentationJob


def _has_model(folder: Path) -> bool:
    """Return whether a validation has found a best model of the run in a folder."""
    status = read_status(folder)
    if status is None or status.best_step is None or not status.model:
        return False
    return (folder / status.model).is_file()


def check_name(recipe: TrainingRecipe, source: str) -> None:
    """Raise PumitError where the model's name cannot be that of its file."""
    name = recipe.name
    if Path(name).name != name or name == Path(LAST).stem:
        raise PumitError(f"The name {name!r} in {source} cannot be that of the model's file.")


def _merged(
    file: Mapping[str, Any],
    changes: Mapping[str, Any],
    data: Mapping[str, Any],
    overrides: Mapping[str, Any],
) -> dict[str, Any]:
    """The keys of a recipe's file with the caller's changes."""
    keys = {k: v for k, v in file.items() if k not in PARTS} | dict(changes)
    for part, replaced in (("schedule", overrides), ("data", data)):
        if replaced:
            keys[part] = {**keys.get(part, {}), **replaced}
    if "steps" in overrides:
        keys.pop("epochs", None)  # the command line says how long
    return keys


def _prepared(
    keys: dict[str, Any], path: Path, output: Path, folder: Path, reporter: RunReporter
) -> TrainingRun:
    """The run that a recipe describes, or that the output folder holds."""
    recipe = read_recipe(keys, path.name)
    check_name(recipe, path.name)
    given = with_absolute_paths(keys, paths_from(folder))
    given["schedule"] = whole_schedule(recipe.schedule.as_schedule(), keys)
    followed = recipe_to_follow(output, given, source=path.name)
    recipe = read_recipe(followed, path.name)
    device = pick_device(recipe.device)
    device = start_processes(recipe.threads or torch.get_num_threads(), device)
    torch.manual_seed(recipe.seed)
    return TrainingRun(
        recipe, followed, path.name, folder, output, device, recipe.workers, reporter, plain(given)
    )
