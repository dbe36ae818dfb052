"""Entry point of all training: `TrainingJob` defines a job, and `fit` runs it."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from pumit.models.checkpoint import read_recipe, save_checkpoint
from pumit.system.consent import is_restricted
from pumit.training.loop.context import TrainingRun
from pumit.training.loop.state import State, Validate
from pumit.training.loop.step import (
    DivergedError,
    MemoryShortError,
    WorkerLostError,
    fewer_workers,
    retry_with_less_memory,
)
from pumit.training.loop.task import Task
from pumit.training.loop.trainer import train
from pumit.training.recipes.schedule import Schedule
from pumit.training.recipes.training import TrainingRecipe
from pumit.training.run.origin import restricted_licence
from pumit.training.run.resume_state import LAST, step_saved


@dataclass(frozen=True)
class Trial:
    """One training of a job, for example with one of several learning rates.

    Attributes:
        facts: Extra keys of each log record of this trial.
    """

    folder: Path
    schedule: Schedule
    facts: Mapping[str, Any] = field(default_factory=dict)


R = TypeVar("R", bound=TrainingRecipe)


class TrainingJob(ABC, Generic[R]):
    """Base class of training jobs: plan, data, task, validation and checkpoint.

    `fit` calls the methods in the order of their definition. If memory runs out, it restarts at
    `decided_keys` after `smaller` has changed the job.

    Attributes:
        keeps_last: Whether to write the last weights, too, not only the best ones.
    """

    keeps_last: bool = True

    def __init__(self, run: TrainingRun) -> None:
        self.run = run
        self.recipe = cast(R, run.recipe)

    @abstractmethod
    def plan(self) -> None:
        """Read recipe and data, and decide all settings; nothing is written before this succeeds.

        Raises:
            PumitError: If the recipe or the data cannot be used.
        """

    def prepare(self) -> None:
        """Pre-process the data if needed."""

    @abstractmethod
    def decided_keys(self) -> dict[str, Any]:
        """Return the recipe keys that were decided, to save for a resumed run."""

    def trials(self) -> Sequence[Trial]:
        """Return the trials to run in sequence; usually one."""
        return [Trial(self.run.output, self.recipe.schedule)]

    def validation(self) -> Validate | None:
        """Return the function that scores the averaged weights; None keeps the last weights."""
        return None

    @abstractmethod
    def task(self) -> Task:
        """Build the task: network, data and loss."""

    def degrees(self) -> Mapping[int, float]:
        """Return the share of steps of each degree of anisotropy."""
        return {0: 1.0}

    def model_state(self, state: State) -> State:
        """Extract the weights of the model from the trained weights."""
        return state

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """Return the checkpoint metadata that inference needs, except name and version."""

    @abstractmethod
    def training_facts(self, trial: Trial) -> dict[str, Any]:
        """Return the checkpoint metadata that describes the training."""

    def metrics(self, found: Mapping[str, float]) -> dict[str, Any]:
        """Return the validation metrics for the checkpoint."""
        return finite(found)

    def evaluate_best(self, best: Sequence[Path]) -> None:
        """Evaluate the best model and write the results; only called in the first process."""

    @abstractmethod
    def smaller(self) -> str | None:
        """Reduce the job's memory use; return a sentence on the change, or None if impossible."""

    def half_the_batch(self, what: str) -> str | None:
        """Implement `smaller` by halving the batch size; `what` names its elements."""
        recipe: Any = self.recipe
        count = recipe.batch_size
        if count == 1:
            return None
        self.recipe = recipe.model_copy(update={"batch_size": count // 2})
        return f"Each step takes {count // 2} of {count} {what} now."


def fit(job: TrainingJob[Any]) -> Path:
    """Run a job, or resume it.

    Returns:
        The best checkpoint, `<name>.safetensors` in the output folder.

    Raises:
        PumitError: If the recipe or the data cannot be used; raised before training starts.
        RunStopped: If the run was stopped; its state is saved.
    """
    job.plan()
    job.prepare()
    return retry_with_less_memory(
        partial(_train_all, job), partial(_with_less, job), job.run.reporter
    )


def write_checkpoint(job: TrainingJob[Any], trial: Trial, target: Path) -> Callable[..., None]:
    """Return a function that writes a model for inference: `write(state, step, found, **more)`."""
    recipe = job.run.recipe
    content = {"name": recipe.name, "version": str(recipe.version), **job.content()}
    card = dict(recipe.card)
    if recipe.initial is not None and not is_restricted(str(card.get("licence", ""))):
        licence = restricted_licence(job.run.file.model(recipe.initial))
        card |= {"licence": licence} if licence else {}
    training = job.training_facts(trial)

    def write(
        state: State, step: int, found: Mapping[str, float] | None = None, **more: Any
    ) -> None:
        model = job.model_state(state)
        half = {k: (v.half() if v.is_floating_point() else v).cpu() for k, v in model.items()}
        facts: dict[str, Any] = {"step": step, "training": training}
        if found is not None:
            facts["metrics"] = job.metrics(found)
        save_checkpoint(target, half, {**content, **facts, **more, **card})

    return write


def finite(found: Mapping[str, float]) -> dict[str, float]:
    """Keep the finite values, since JSON has no NaN or infinity."""
    return {k: v for k, v in found.items() if math.isfinite(v)}


def _train_all(job: TrainingJob[Any]) -> Path:
    """Run all trials with the current plan, evaluate the best, and return its checkpoint."""
    run = job.run
    run.save_recipe(**job.decided_keys())
    best, trials = [], job.trials()
    for trial in trials:
        try:
            best.append(_train(job, trial))
        except DivergedError:  # such as the largest rate of a grid
            if not best and trial is trials[-1]:
                raise
            rate = trial.schedule.learning_rate
            sentence = f"The learning rate {rate:g} diverges and is left out."
            run.report({**trial.facts, "event": "diverged", "sentence": sentence})
    if run.is_first:
        job.evaluate_best(best)
    return run.model


def _train(job: TrainingJob[Any], trial: Trial) -> Path:
    """Run a trial; return its best checkpoint, or the last one without validation."""
    run, reporter = job.run, job.run.reporter
    target = trial.folder / run.model.name
    write = write_checkpoint(job, trial, target)

    def save_best(state: State, step: int, found: Mapping[str, float] | None = None) -> None:
        write(state, step, found)
        if target == run.model:  # with several trials, the best is known only after all of them
            reporter.update(model=target.name, best_step=step)

    validation = job.validation()
    on_save: Callable[[State, int], None] | None = save_best
    if validation is not None:
        last = target.with_name(f"{target.stem}_last.safetensors")
        on_save = write_checkpoint(job, trial, last) if job.keeps_last else None
    trial.folder.mkdir(exist_ok=True)
    state = train(
        job.task(),
        trial.folder,
        trial.schedule,
        seed=run.recipe.seed,
        degrees=job.degrees(),
        report=lambda record: reporter.report({**trial.facts, **record}),
        on_checkpoint=on_save,
        validate=validation,
        on_best=save_best,
        device=run.device,
        workers=run.workers,
        reporter=reporter,
    )
    step = step_saved(trial.folder / LAST) or 0  # fewer than planned if the time was used up
    # If no validation case has any class, or a run was stopped between its last save and its model.
    if run.is_first and (
        not target.is_file() or (validation is None and read_recipe(target)[0].get("step") != step)
    ):
        reporter.written(lambda: write(state, step))
    return target


def _with_less(job: TrainingJob[Any], short: MemoryShortError) -> str | None:
    """Reduce the memory of a job; return a sentence on the change, or None."""
    if not isinstance(short, WorkerLostError):
        return job.smaller()
    fewer = fewer_workers(job.run.workers)
    if fewer is None:
        return None
    workers, sentence = fewer
    job.run = replace(job.run, workers=workers)
    return sentence
