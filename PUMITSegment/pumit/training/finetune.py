"""`pumit train`: read a recipe, and hand it to what trains its task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist

from pumit.errors import PumitError, TrainingError
from pumit.inference.loading import pick_device
from pumit.training.pretrain import start_processes
from pumit.training.recipe_file import check_keys, read_yaml, schedule_kinds
from pumit.training.run_folder import LAST
from pumit.training.schedule import Schedule
from pumit.training.training_run import COMMON_KINDS, TrainingRun

# Imported only when they are asked for.
TASKS = {
    "segmentation": ("pumit.training.segmentation_run", "train_segmentation"),
    "classification": ("pumit.training.classification_run", "train_classifier"),
}
DEFAULT_TASK = "segmentation"
# What a short training on one machine needs; recipes and command line change it.
DEFAULT_SCHEDULE: dict[str, Any] = {
    "optimizer": "adamw",
    "betas": [0.9, 0.999],
    "shape": "cosine",
    "learning_rate": 2e-3,
    "weight_decay": 0.05,
    "warm_up": 50,
    "steps": 2000,
    "average": 0.99,
    "validate_every": 200,
}


def finetune(
    path: Path,
    output: Path,
    *,
    folder: Path | None = None,
    data: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    device: str | None = None,
    workers: int | None = None,
) -> Path:
    """Train by a recipe, resuming where `output` holds an earlier part of the run.

    Args:
        path: YAML recipe.
        output: Folder for checkpoints and log.
        folder: Where relative paths of the recipe begin; None for its own folder.
        data: Keys of the recipe's `data` to replace.
        overrides: Values of `schedule` to replace, such as `seconds`.
        device: "auto", "cpu", "cuda" or "cuda:1", if not what the recipe says.
        workers: Processes that draw ahead, if not what the recipe says.

    Returns:
        The best checkpoint.

    Raises:
        PumitError: If the recipe is wrong or its data cannot be used.
    """
    recipe = read_yaml(path)
    task = str(recipe.get("task", DEFAULT_TASK))
    if task not in TASKS:
        raise PumitError(f"task in {path.name} must be {' or '.join(TASKS)}, got {task!r}.")
    common = {k: v for k, v in recipe.items() if k in COMMON_KINDS}
    check_keys(common, COMMON_KINDS, path.name)
    given = {**recipe.get("schedule", {}), **(overrides or {})}
    check_keys(given, schedule_kinds(), "schedule")
    name = recipe.get("name", "model")
    if Path(name).name != name or name == Path(LAST).stem:
        raise PumitError(f"The name {name!r} in {path.name} cannot be that of the model's file.")
    if data:
        recipe["data"] = {**recipe.get("data", {}), **data}
    workers = int(recipe.get("workers", 0)) if workers is None else workers
    check_keys({"workers": workers}, COMMON_KINDS, "the command line")
    target = pick_device(device or recipe.get("device", "auto"))
    target = start_processes(int(recipe.get("threads", torch.get_num_threads())), target)
    seed = int(recipe.get("seed", 0))
    torch.manual_seed(seed)
    run = TrainingRun(
        recipe,
        path.name,
        path.parent if folder is None else folder,
        output,
        Schedule(**{**DEFAULT_SCHEDULE, **given}),
        target,
        workers,
        seed,
    )
    module, function = TASKS[task]
    work = cast(Callable[[TrainingRun], Path], getattr(import_module(module), function))
    try:
        best = work(run)
    except torch.cuda.OutOfMemoryError:
        raise TrainingError(
            "The GPU's memory is too small for this recipe: lower its batch_size or patch_size, or "
            "set activation_checkpointing: true in schedule."
        ) from None
    if dist.is_initialized():
        dist.destroy_process_group()
    return best
