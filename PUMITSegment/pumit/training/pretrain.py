"""`pumit pretrain`: train the promptable network from a recipe."""

from __future__ import annotations

import difflib
import json
import logging
import os
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import yaml
from torch import Tensor

from pumit.errors import PumitError
from pumit.models.checkpoint import save_checkpoint
from pumit.networks.build import PROMPTABLE, build_network
from pumit.networks.promptable.network import PromptableNetwork
from pumit.training.promptable_task import DEGREE_SHARES, DEGREES, PromptableTask
from pumit.training.real_scans import RealScans
from pumit.training.trainer import Schedule, train

logger = logging.getLogger(__name__)

KEYS = {
    "name",
    "version",
    "network",
    "network_sizes",
    "seed",
    "threads",
    "batch_size",
    "targets_per_field",
    "real_share",
    "real_folder",
    "real_cases",
    "real_unlabelled",
    "schedule",
    "card",
}


def read_recipe_file(path: Path) -> dict[str, Any]:
    """Read a YAML recipe and check its keys.

    Raises:
        PumitError: If it cannot be read, or a key is misspelt (the nearest right one is named).
    """
    try:
        recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise PumitError(f"Cannot read {path.name}: {str(error).splitlines()[0]}.") from None
    if not isinstance(recipe, dict):
        raise PumitError(f"{path.name} is not a recipe: it needs keys such as network, schedule.")
    _check(recipe, KEYS, path.name)
    _check(recipe.get("schedule", {}), {f.name for f in fields(Schedule)}, "schedule")
    return recipe


def _check(given: dict[str, Any], known: set[str], where: str) -> None:
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(str(key), sorted(known), n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(sorted(known))}."
            raise PumitError(f"Unknown key {key!r} in {where}{hint}")


def _start_processes(threads: int) -> None:
    torch.set_num_threads(threads)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")


def pretrain(
    path: Path,
    output: Path,
    *,
    overrides: dict[str, Any] | None = None,
    real_folder: Path | None = None,
) -> Path:
    """Train by a recipe, resuming where `output` holds an earlier part of the run.

    Args:
        path: YAML recipe.
        output: Folder for checkpoints and log.
        overrides: Values of `schedule` to replace, such as `seconds`.
        real_folder: Where the recipe's real scans lie, if not where it says.

    Returns:
        The checkpoint with the averaged weights, half precision.

    Raises:
        PumitError: If the recipe is wrong or its data are missing.
    """
    recipe = read_recipe_file(path)
    schedule = Schedule(**{**recipe.get("schedule", {}), **(overrides or {})})
    _start_processes(int(recipe.get("threads", torch.get_num_threads())))
    seed = int(recipe.get("seed", 0))
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {**PROMPTABLE, **recipe.get("network_sizes", {})}
    network = build_network("promptable", **sizes)
    assert isinstance(network, PromptableNetwork)
    scans = None
    if recipe.get("real_cases"):
        folder = real_folder or Path(recipe["real_folder"]).expanduser()
        if not folder.is_dir():
            raise PumitError(
                f"real_folder {folder.name} is missing; remove real_cases to go without."
            )
        unlabelled = [folder / u for u in recipe.get("real_unlabelled", [])]
        scans = RealScans(folder, recipe["real_cases"], unlabelled)
    task = PromptableTask(
        network,
        scans=scans,
        real_share=float(recipe.get("real_share", 0.35)),
        batch_size=int(recipe.get("batch_size", 4)),
        targets_per_field=int(recipe.get("targets_per_field", 2)),
    )
    target = output / f"{recipe.get('name', 'model')}.safetensors"

    def report(record: dict[str, Any]) -> None:
        line = json.dumps(record)
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
        with (output / "log.jsonl").open("a", encoding="utf-8") as log:
            log.write(line + "\n")

    def keep(state: dict[str, Tensor], step: int) -> None:
        half = {k: v.half() if v.is_floating_point() else v for k, v in state.items()}
        card: dict[str, Any] = recipe.get("card", {})
        training = {
            k: recipe[k] for k in ("seed", "batch_size", "real_share", "real_cases") if k in recipe
        }
        content: dict[str, Any] = {
            "name": recipe.get("name", "model"),
            "version": str(recipe.get("version", "0")),
            "network": "promptable",
            "sizes": sizes,
            "step": step,
            "training": {**training, "schedule": recipe.get("schedule", {})},
            **card,
        }
        save_checkpoint(target, half, content)

    output.mkdir(parents=True, exist_ok=True)
    degrees = dict(zip(DEGREES, DEGREE_SHARES, strict=True))
    train(task, output, schedule, seed=seed, degrees=degrees, report=report, on_checkpoint=keep)
    return target
