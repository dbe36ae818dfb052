"""The one way to train: a job says what is trained, and `fit` trains, keeps and judges it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from pumit.models.checkpoint import save_checkpoint
from pumit.training.loop.context import TrainingRun
from pumit.training.loop.state import State, Validate
from pumit.training.loop.step import (
    MemoryShortError,
    WorkerLostError,
    fewer_workers,
    retry_with_less_memory,
)
from pumit.training.loop.task import Task
from pumit.training.loop.trainer import train
from pumit.training.recipes.model import TrainingRecipe
from pumit.training.recipes.schedule import Schedule

ONE_SPACING: Mapping[int, float] = {0: 1.0}


@dataclass(frozen=True)
class Trial:
    """One training of a job, such as that of one of several learning rates.

    Attributes:
        facts: Keys that each of its records has as well.
    """

    folder: Path
    schedule: Schedule
    facts: Mapping[str, Any] = field(default_factory=dict)


R = TypeVar("R", bound=TrainingRecipe)


class TrainingJob(ABC, Generic[R]):
    """A training: its data and their plan, its task, its validation and its checkpoint.

    `fit` calls the methods in the order in which they stand here. Where memory is short it begins
    again at `decided_keys`, with what `smaller` has changed.

    Attributes:
        keeps_last: Whether the weights of the last save are a checkpoint as well as the best ones.
    """

    keeps_last: bool = True

    def __init__(self, run: TrainingRun) -> None:
        self.run = run
        self.recipe = cast(R, run.recipe)

    @abstractmethod
    def plan(self) -> None:
        """Read recipe and data and decide; nothing is written before that succeeds.

        Raises:
            PumitError: If recipe or data cannot be used.
        """

    def prepare(self) -> None:
        """Prepare the data in the output folder, where they need it."""

    @abstractmethod
    def decided_keys(self) -> dict[str, Any]:
        """Keys of the recipe that were decided, as another start finds them."""

    def trials(self) -> Sequence[Trial]:
        """Return the trainings, one after the other; usually a single one."""
        return [Trial(self.run.output, self.run.schedule)]

    def validation(self) -> Validate | None:
        """Return what scores the averaged weights; None where the last ones are kept."""
        return None

    @abstractmethod
    def task(self) -> Task:
        """Network, data and loss, as training begins."""

    def degrees(self) -> Mapping[int, float]:
        """Share of the steps by degree of anisotropy."""
        return ONE_SPACING

    def model_state(self, state: State) -> State:
        """Return the weights of the model among those that are trained."""
        return state

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """Keys of the checkpoint's recipe that inference needs, beside name and version."""

    @abstractmethod
    def training_facts(self, trial: Trial) -> dict[str, Any]:
        """Return what the checkpoint's recipe says of the training."""

    def metrics(self, found: Mapping[str, float]) -> dict[str, Any]:
        """Return what the checkpoint says of a validation."""
        return finite(found)

    def evaluate_best(self, best: Sequence[Path]) -> None:
        """Measure the best model and write what it does; only in the first process."""

    @abstractmethod
    def smaller(self) -> str | None:
        """Change the job so that it needs less memory; returns what is less, in a sentence.

        None where nothing can be made smaller.
        """

    def half_the_batch(self, what: str) -> str | None:
        """Be `smaller` by half the batch; `what` it consists of."""
        recipe: Any = self.recipe
        count = recipe.batch_size
        if count == 1:
            return None
        self.recipe = recipe.model_copy(update={"batch_size": count // 2})
        return f"Each step takes {count // 2} of {count} {what} now."


def fit(job: TrainingJob[Any]) -> Path:
    """Do a job; started again, it resumes.

    Returns:
        The best checkpoint, `<name>.safetensors` in the output folder.

    Raises:
        PumitError: If recipe or data cannot be used; before anything is trained.
        RunStopped: If the run was stopped; it is saved.
    """
    job.plan()
    job.prepare()
    return retry_with_less_memory(_train_all, job, _with_less, job.run.reporter)


def write_checkpoint(job: TrainingJob[Any], trial: Trial, target: Path) -> Callable[..., None]:
    """Return what writes a model for inference: `write(state, step, found, **more)`."""
    recipe = job.run.recipe
    content = {"name": recipe.name, "version": str(recipe.version), **job.content()}
    training = job.training_facts(trial)

    def write(
        state: State, step: int, found: Mapping[str, float] | None = None, **more: Any
    ) -> None:
        model = job.model_state(state)
        half = {k: (v.half() if v.is_floating_point() else v).cpu() for k, v in model.items()}
        facts: dict[str, Any] = {"step": step, "training": training}
        if found is not None:
            facts["metrics"] = job.metrics(found)
        save_checkpoint(target, half, {**content, **facts, **more, **recipe.card})

    return write


def finite(found: Mapping[str, float]) -> dict[str, float]:
    """Return what of a validation can be written as JSON."""
    return {k: v for k, v in found.items() if math.isfinite(v)}


def _train_all(job: TrainingJob[Any]) -> Path:
    """Train with the plan as it is, and judge the best; returns its checkpoint."""
    run = job.run
    run.save_recipe(**job.decided_keys())
    best = [_train(job, trial) for trial in job.trials()]
    if run.is_first:
        job.evaluate_best(best)
    return run.model


def _train(job: TrainingJob[Any], trial: Trial) -> Path:
    """One training; returns its best checkpoint, or that of the last save without validation."""
    run, reporter = job.run, job.run.reporter
    target = trial.folder / run.model.name
    write = write_checkpoint(job, trial, target)

    def save_best(state: State, step: int, found: Mapping[str, float] | None = None) -> None:
        write(state, step, found)
        if target == run.model:  # of several trials none is the best before all have ended
            reporter.best(target, step)

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
        seed=run.seed,
        degrees=job.degrees(),
        report=lambda record: reporter.report({**trial.facts, **record}),
        on_checkpoint=on_save,
        validate=validation,
        on_best=save_best,
        device=run.device,
        workers=run.workers,
        reporter=reporter,
    )
    if run.is_first and not target.is_file():  # such as no validation case that has any class
        reporter.written(lambda: write(state, trial.schedule.steps))
    return target


def _with_less(
    job: TrainingJob[Any], short: MemoryShortError
) -> tuple[TrainingJob[Any], str] | None:
    """Return the same job with less memory, and what is less."""
    if not isinstance(short, WorkerLostError):
        sentence = job.smaller()
        return None if sentence is None else (job, sentence)
    fewer = fewer_workers(job.run.workers)
    if fewer is None:
        return None
    job.run = replace(job.run, workers=fewer[0])
    return job, fewer[1]
