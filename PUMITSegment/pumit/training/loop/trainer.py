"""Training loop for any task that maps a batch to a dictionary with `loss`."""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import nn

from pumit.training.loop.distributed import rank
from pumit.training.loop.optimizers import optimizer_for
from pumit.training.loop.sharding import recomputed
from pumit.training.loop.state import OnBest, Report, Request, State, TrainState, Validate
from pumit.training.loop.step import Step
from pumit.training.loop.task import StepDraws, Task, batches
from pumit.training.recipes.schedule import Schedule
from pumit.training.run.reporter import RunReporter


def train(
    task: Task,
    folder: Path,
    schedule: Schedule,
    *,
    seed: int = 0,
    degrees: Mapping[int, float],
    report: Report,
    on_checkpoint: Callable[[State, int], None] | None = None,
    validate: Validate | None = None,
    on_best: OnBest | None = None,
    device: torch.device | None = None,
    workers: int = 0,
    reporter: RunReporter | None = None,
) -> State:
    """Train until the schedule ends, with regular saves; resume from `folder` if it has a save.

    The command `finish` ends a run at once with its best model; without validation, the last one.
    Each process of `torchrun` draws its own fields, of the same degree of anisotropy at each step.
    The first process reports, validates and saves.

    Args:
        folder: Folder of `last.safetensors`, accessible to every process.
        degrees: Share of steps per degree of anisotropy.
        report: Callback for a progress record every `log_every` steps and at the end, and for
            validation results as {"step": ..., "validation": {...}}.
        on_checkpoint: Callback with the averaged weights and the step at every save.
        validate: Function that scores the averaged weights, every `validate_every` steps and at
            the end.
        on_best: Callback with the averaged weights, the step and the scores whenever the
            validation's `score` improves.
        device: None means CPU.
        workers: Worker processes that prefetch batches; their number does not change the batches.

    Returns:
        The averaged weights. With `parallel: fsdp` the task's network stays sharded.

    Raises:
        RunStopped: If the run was stopped; its state is saved.
        TrainingError: If memory is short (`MemoryShortError`), a loss is not finite, or too many
            successive gradients are unusable.
        CheckpointError: If the folder holds anything but a save of this run.
        ExportError: If a save cannot be written; the previous one is intact.
    """
    device = torch.device("cpu") if device is None else device
    reporter = RunReporter() if reporter is None else reporter

    def optimizer_of(network: nn.Module) -> torch.optim.Optimizer:
        groups = getattr(task, "parameter_groups", None)
        return optimizer_for(network, schedule, None if groups is None else groups(schedule))

    # 1. Resume weights, average and optimiser, or initialise them.
    validates = validate is not None
    run = TrainState(task.network, folder, schedule, device, optimizer_of, reporter, validates)
    if run.finishes():
        return run.averaged()
    # 2. Repeat an interrupted validation.
    if run.position.owes_validation and validate is not None:
        run.validate(validate, report, on_best)
        run.save(on_checkpoint)
    if run.is_over:
        return run.averaged()
    # 3. Batches from the next step on, prefetched by worker processes.
    draw = task.worker_draw() if workers else task.draw
    draws = StepDraws(draw, seed=seed, rank=rank(), degrees=degrees)
    indices = range(run.position.step * schedule.accumulate, schedule.steps * schedule.accumulate)
    stream = batches(draws, indices, workers=workers, pinned=device.type == "cuda")
    step = Step(task, run, stream, seed)
    with recomputed(run.network, enabled=schedule.activation_checkpointing):
        while run.position.step < schedule.steps:
            # 4. One optimiser step; the processes agree on saves and commands.
            is_save_due, requested = step.take()
            # 5. Report, also the last step and one after which the run pauses or ends.
            done = run.position.step
            is_last = done == schedule.steps or run.is_spent
            if done % schedule.log_every == 0 or is_last or requested:
                record = run.progress.line(done)
                if rank() == 0:
                    report({**record, "left_seconds": run.left_seconds()})
            # 6. Validate the averaged weights, and keep the best.
            is_validation_due = schedule.validate_every and done % schedule.validate_every == 0
            if validate is not None and (is_last or is_validation_due):
                run.validate(validate, report, on_best)
            # 7. Save, then pause, stop or finish as requested.
            if is_save_due or is_last or requested:
                run.save(on_checkpoint)
            run.handle_request(requested)
            if is_last or (requested is Request.FINISH and run.finishes()):
                break
    return run.averaged()
