"""`pumit train`: read a recipe, and run the training job of its task."""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from pumit.errors import PumitError
from pumit.inference.loading import pick_device
from pumit.models import user_index
from pumit.models.consent import check_consent
from pumit.runs import COMPARISON, RECIPE, read_status, send_command
from pumit.system.consent import give_consent
from pumit.training.cross_validation import FOLD_KEYS, cross_validate
from pumit.training.loop.context import TrainingRun
from pumit.training.loop.distributed import start_processes
from pumit.training.loop.fit import TrainingJob, fit
from pumit.training.preceding import FOLDER, preceding_of
from pumit.training.recipes.pretraining import OWN_TOKENIZER, PRETRAINING
from pumit.training.recipes.reader import RecipeFile, read_yaml, shipped_recipe
from pumit.training.recipes.tasks import task_of
from pumit.training.run.origin import restricted_licence
from pumit.training.run.relay import finished_model, part_of_run, require_one_process
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

logger = logging.getLogger(__name__)
R = TypeVar("R")
CARD = "card.md"
# Errors of the model card, which reads everything a run has written, must not lose the model.
FAILURES = (
    ArithmeticError,
    AttributeError,
    ImportError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)


def write_result(reporter: RunReporter, folder: Path, best: Path, *, registers: bool) -> str | None:
    """Write the card and add the model to the user's index, and return its name there, if any.

    Errors are reported as warnings.

    Returns:
        Name of the model in the index, or None.
    """
    from pumit.training.model_card.write import write_card  # draws, which takes a second to load

    reporter.state("validating", "Writing the model card.")
    card = folder / CARD
    what = "The model card cannot be written"
    _tried(reporter, what, lambda: write_card(folder, best))
    name: str | None = None
    if registers:
        known = card if card.is_file() else None
        what = "The model cannot be entered in your model list"
        name = _tried(
            reporter,
            what,
            lambda: _entered(best, known),
            disk="The disk of your model list",
        )
    reporter.report({"model": best.name, "registered": name})
    reporter.update(model=best.name, registered=name)
    return name


def _entered(best: Path, card: Path | None) -> str:
    """Add a model to the user's index, and return its name; its maker agrees to its licence."""
    name = user_index.register(best, card=card)
    if licence := restricted_licence(best):
        give_consent(name, licence)
    return name


def _tried(
    reporter: RunReporter, what: str, work: Callable[[], R], *, disk: str = "The disk"
) -> R | None:
    """Call a function, and report an error as a warning; `disk` is what it writes to."""
    try:
        return reporter.written(work, disk=disk)
    except FAILURES as error:
        logger.info("%s", what, exc_info=True)
        reason = str(error) if isinstance(error, ValueError) else type(error).__name__
        reporter.event("warning", f"{what}: {reason}")
        return None


def finetune(
    path: Path,
    output: Path,
    *,
    folder: Path | None = None,
    changes: Mapping[str, Any] | None = None,
    device: str | None = None,
    since: float | None = None,
    finish: bool = False,
) -> Path:
    """Train a recipe, resuming a saved run in `output`.

    The folder then holds status, logs and the resolved recipe, which `pumit.runs` reads.

    Args:
        folder: Base folder of the recipe's relative paths; None for its own.
        changes: Keys of the recipe to override; `data` and `schedule` are merged key by key.
        since: Time when the user started it, Unix time; None for now.
        finish: Whether to stop training and finish with the best model of `output`.

    Raises:
        PumitError: If the recipe is invalid, its data cannot be used, another process trains in
            the folder, or the folder holds a run of another recipe or a comparison.
        RunStopped: If the run was stopped; it is saved, and the same call resumes.
    """
    since = time.time() if since is None else since
    if finish and not _has_model(output):
        raise PumitError(f"The run in {output.name} has no validated model to finish with.")
    status = read_status(output)  # a comparison has one before it begins
    if (output / COMPARISON).is_file() or (status is not None and status.task == "comparison"):
        name = output.absolute().name
        raise PumitError(f"{name} holds a comparison; choose another folder.")
    own = {} if device is None else {"device": device}
    file = RecipeFile.read(path, folder).changed({**(changes or {}), **own})
    if "task" not in file.keys and file.keys.get("network") in PRETRAINING:
        raise PumitError(f"{file.source} is a recipe of `pumit pretrain`.")
    if file.keys.get("folds") is not None:
        return cross_validate(file, output, train, write_result, since=since)
    return train(file, output, since=since, finish=finish)


def train(file: RecipeFile, output: Path, *, since: float, finish: bool = False) -> Path:
    """Train one run, and before it those that it needs; see `finetune`."""
    file = replace(file, keys={k: v for k, v in file.keys.items() if k not in FOLD_KEYS})
    runs: list[tuple[RecipeFile, RunReporter, ExitStack]] = []
    with ExitStack() as all_runs:
        # 1. Lock the folder, then the subfolder of the run that is needed first, and so on.
        session = all_runs.enter_context(ExitStack())
        while True:
            name, task = str(file.keys.get("name", "model")), task_of(file.keys)
            reporter = session.enter_context(run_session(output, since=since, name=name, task=task))
            if finish and not runs and reporter.folder is not None:
                send_command(output, "finish")
            file, preceding = _with_preceding(file, output, reporter)
            runs.append((file, reporter, session))
            if preceding is None:
                break
            title, file = preceding
            output, since = output / FOLDER, time.time()
            session = all_runs.enter_context(ExitStack())
            session.enter_context(part_of_run(reporter, output, title, event="preceding"))
        # 2. Train them, the one that was locked last first.
        for file, reporter, session in reversed(runs):
            best = _train_one(file, output, reporter)
            session.close()
            output = output.parent
    return best


def _train_one(file: RecipeFile, output: Path, reporter: RunReporter) -> Path:
    """Train a run whose folder is locked."""
    # 1. Validate the recipe, and compare it with that of a saved run.
    given, followed = _followed(file, output)
    recipe = read_recipe(followed, file.source)
    device = start_processes(recipe.threads or torch.get_num_threads(), pick_device(recipe.device))
    torch.manual_seed(recipe.seed)
    file = replace(file, keys=followed)
    run = TrainingRun(recipe, file, output, device, recipe.workers, reporter, plain(given))
    # 2. Train the job of its task.
    best = fit(job_of(task_of(given))(run))
    # 3. Write the card and add the model to the index, in the first process.
    if run.is_first:
        # What is pre-trained is there for further trainings.
        name = write_result(reporter, output, best, registers=run.recipe.register_)
        reporter.finish(f"Finished. The model {name or best.stem!r} can be used now.")
    if dist.is_initialized():
        dist.destroy_process_group()
    return best


def _with_preceding(
    file: RecipeFile, output: Path, reporter: RunReporter
) -> tuple[RecipeFile, tuple[str, RecipeFile] | None]:
    """Return a recipe with the model of the run that precedes it, and title and recipe of that run.

    The latter is None if no run precedes it, or that has finished.
    """
    keys = file.keys
    unlabelled = keys.get("unlabelled") or ""
    if unlabelled:
        unlabelled = str(file.path(str(unlabelled)).absolute())
    before = preceding_of(keys, output, unlabelled=unlabelled)
    if before is None:
        return file, None
    own = (output / FOLDER / f"{before.recipe}.safetensors").absolute()
    if keys.get(before.gives) not in (None, OWN_TOKENIZER, str(own)):
        raise PumitError(
            f"{file.source} has both `unlabelled` and `{before.gives}`; give one of them."
        )
    # Report errors of the recipe before the preceding run begins.
    file = file.changed({before.gives: str(own)})
    _followed(file, output)
    require_one_process(
        "A preceding pre-training runs in one process; train it separately, and name its "
        f"model in `{before.gives}`."
    )
    named = keys.get("schedule", {})
    limits = {k: named[k] for k in ("seconds", "steps") if k in named}
    if limits.get("seconds") is not None:
        seconds = before.share * limits["seconds"]
        limits |= {"seconds": seconds, "decay_seconds": seconds / 2}
    recipe = RecipeFile.read(shipped_recipe(before.recipe), file.folder)
    recipe = recipe.changed({**before.changes, "schedule": limits})
    _warn_of_other_scans(recipe, output / FOLDER, reporter)
    return file, None if finished_model(output / FOLDER) else (before.title, recipe)


def _warn_of_other_scans(file: RecipeFile, folder: Path, reporter: RunReporter) -> None:
    """Warn if a preceding run has learned from another folder of scans; it may have been moved."""
    given = with_absolute_paths(file.keys, file.path).get("real_folder")
    with suppress(PumitError):  # there is no such run yet
        if read_yaml(folder / RECIPE).get("real_folder") != given:
            reporter.event(
                "warning",
                "The folder of scans to learn from first is another one than before. What was "
                "learned from the former one is kept; choose another output folder to begin with "
                "these scans.",
            )


def job_of(task: str) -> Callable[[TrainingRun], TrainingJob[Any]]:
    """Return the job class of a task, imported on demand."""
    if task == "classification":
        from pumit.training.classification.run import ClassificationJob

        return ClassificationJob
    if task == "pretraining":
        from pumit.training.pretraining.run import PretrainingJob

        return PretrainingJob
    if task == "promptable":
        from pumit.training.promptable.run import PromptableJob

        return PromptableJob
    if task == "sam":
        from pumit.training.promptable.sam_run import SamJob

        return SamJob
    from pumit.training.segmentation.run import SegmentationJob

    return SegmentationJob


def _has_model(folder: Path) -> bool:
    status = read_status(folder)
    if status is None or status.best_step is None or not status.model:
        return False
    return (folder / status.model).is_file()


def _followed(file: RecipeFile, output: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the recipe with absolute paths, and the one to follow: of a saved run, if any."""
    recipe = read_recipe(file.keys, file.source)
    name = recipe.name
    if Path(name).name != name or name == Path(LAST).stem:
        raise PumitError(f"The name {name!r} in {file.source} cannot be that of the model's file.")
    check_consent(recipe.initial)
    given = with_absolute_paths(file.keys, file.path)
    given["schedule"] = whole_schedule(recipe.schedule, file.keys)
    return given, recipe_to_follow(output, given, source=file.source)
