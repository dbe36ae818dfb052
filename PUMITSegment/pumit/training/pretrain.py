"""`pumit pretrain`: train the promptable network, a tokenizer or a ViT from a recipe."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pumit.errors import ExportError, PumitError
from pumit.inference.loading import pick_device
from pumit.models.checkpoint import save_checkpoint
from pumit.training.loop.trainer import Schedule, train
from pumit.training.pretraining.objective import BuildContext, Objective
from pumit.training.pretraining.registry import objective_kind
from pumit.training.recipes.reader import COMMON_KINDS, Kinds, check_keys, read_yaml, schedule_kinds

logger = logging.getLogger(__name__)

# What any recipe may hold; each objective adds keys of its own.
KINDS: Kinds = {**COMMON_KINDS, "batch_size": (int,)}
# What the checkpoint says of how it was trained.
TOLD = (
    *("seed", "batch_size", "real_share", "real_cases", "real_images", "loss", "degrees"),
    *("real_sets", "label_maps", "map_share", "unlabelled_targets", "field_sizes", "rounds"),
)


def read_recipe_file(path: Path) -> dict[str, Any]:
    """Read a YAML recipe and check its keys.

    Raises:
        PumitError: If it cannot be read, a key is misspelt (the nearest right one is named), or a
            value is of the wrong kind.
    """
    recipe = read_yaml(path)
    objective = objective_kind(str(recipe.get("network", "promptable")))
    check_keys(recipe, {**KINDS, **objective.kinds}, path.name)
    check_keys(recipe.get("schedule", {}), schedule_kinds(), "schedule")
    objective.check(recipe, path.name)
    if Path(recipe.get("name", "model")).name != recipe.get("name", "model"):
        raise PumitError(f"The name {recipe['name']!r} in {path.name} cannot be a file's name.")
    return recipe


def start_processes(threads: int, device: torch.device) -> torch.device:
    """Settings of this process; returns its device, one of several where `torchrun` started it."""
    torch.set_num_threads(threads)
    is_one_of_several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")  # what stays float32 may use tensor cores
        if device.index is None:
            index = int(os.environ.get("LOCAL_RANK", "0")) if is_one_of_several else 0
            device = torch.device("cuda", index)
            if index >= torch.cuda.device_count():
                raise PumitError(
                    f"Process {index} has no GPU of its own; start as many as there are GPUs."
                )
        torch.cuda.set_device(device)
    if is_one_of_several and not dist.is_initialized():
        # Sums travel as the gradients lie.
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return device


def make_folder(output: Path) -> None:
    """Make the folder of a run.

    Raises:
        ExportError: If the system refuses.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExportError(f"Cannot make the folder {output.name}: {error.strerror}.") from None


def write_line(record: dict[str, Any], output: Path) -> None:
    """A progress record as a JSON line, on standard output and in the run's `log.jsonl`.

    Raises:
        ExportError: If the disk is full.
    """
    line = json.dumps(record)
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
    try:
        with (output / "log.jsonl").open("a", encoding="utf-8") as log:
            log.write(line + "\n")
    except OSError as error:
        raise ExportError(
            f"The log cannot be written: {error.strerror}. Make room and start again to go on."
        ) from None


def pretrain(
    path: Path,
    output: Path,
    *,
    overrides: dict[str, Any] | None = None,
    real_folder: Path | None = None,
    device: str | None = None,
    workers: int | None = None,
) -> Path:
    """Train by a recipe, resuming where `output` holds an earlier part of the run.

    Args:
        path: YAML recipe.
        output: Folder for checkpoints and log.
        overrides: Values of `schedule` to replace, such as `seconds`.
        real_folder: Where the recipe's real scans lie, if not where it says.
        device: "auto", "cpu", "cuda" or "cuda:1", if not what the recipe says.
        workers: Processes that draw ahead, if not what the recipe says.

    Returns:
        The checkpoint with the averaged weights, half precision.

    Raises:
        PumitError: If the recipe is wrong or its data are missing.
    """
    recipe = read_recipe_file(path)
    check_keys(overrides or {}, schedule_kinds(), "overrides")
    schedule = Schedule(**{**recipe.get("schedule", {}), **(overrides or {})})
    target_device = pick_device(device or recipe.get("device", "auto"))
    workers = int(recipe.get("workers", 0)) if workers is None else workers
    check_keys({"workers": workers}, KINDS, "overrides")
    threads = int(recipe.get("threads", torch.get_num_threads()))
    target_device = start_processes(threads, target_device)
    seed = int(recipe.get("seed", 0))
    torch.manual_seed(seed)
    kind = objective_kind(str(recipe.get("network", "promptable")))
    objective = kind.build(recipe, BuildContext(target_device, workers, real_folder))
    make_folder(output)
    target = output / f"{recipe.get('name', 'model')}.safetensors"

    def keep(state: dict[str, Tensor], step: int) -> None:
        content = checkpoint_content(recipe, objective, step)
        save_checkpoint(target, objective.model_state(state), content)

    train(
        objective.task,
        output,
        schedule,
        seed=seed,
        degrees=objective.degrees,
        report=lambda record: write_line(record, output),
        on_checkpoint=keep,
        device=target_device,
        workers=workers,
    )
    if dist.is_initialized():
        dist.destroy_process_group()
    return target


def checkpoint_content(recipe: dict[str, Any], objective: Objective, step: int) -> dict[str, Any]:
    """The recipe that the checkpoint carries."""
    training = {k: recipe[k] for k in TOLD if k in recipe}
    card: dict[str, Any] = recipe.get("card", {})
    return {
        "name": recipe.get("name", "model"),
        "version": str(recipe.get("version", "0")),
        **objective.content,
        "step": step,
        "training": {**training, "schedule": recipe.get("schedule", {})},
        **card,
    }
