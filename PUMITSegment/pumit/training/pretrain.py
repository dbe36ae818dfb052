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

from pumit.errors import CheckpointError, ExportError, PumitError
from pumit.inference.loading import pick_device, read_model
from pumit.models.checkpoint import save_checkpoint
from pumit.models.index import find_model
from pumit.networks.build import PROMPTABLE, build_network
from pumit.networks.promptable.network import PromptableNetwork
from pumit.training.promptable_task import DEGREE_SHARES, DEGREES, PromptableTask
from pumit.training.real_scans import RealScans
from pumit.training.trainer import Schedule, train

logger = logging.getLogger(__name__)

# What a recipe may hold, and of which kind.
KINDS: dict[str, tuple[type, ...]] = {
    "name": (str,),
    "version": (str, int, float),
    "network": (str,),
    "network_sizes": (dict,),
    "initial": (str,),
    "seed": (int,),
    "threads": (int,),
    "device": (str,),
    "scene_device": (str,),
    "workers": (int,),
    "compile": (bool,),
    "batch_size": (int,),
    "targets_per_field": (int,),
    "real_share": (int, float),
    "real_folder": (str,),
    "real_cases": (list,),
    "real_unlabelled": (list,),
    "schedule": (dict,),
    "card": (dict,),
}
SCHEDULE_KINDS: dict[str, tuple[type, ...]] = {
    f.name: (int,) if isinstance(f.default, int) else (int, float) for f in fields(Schedule)
}


def read_recipe_file(path: Path) -> dict[str, Any]:
    """Read a YAML recipe and check its keys.

    Raises:
        PumitError: If it cannot be read, a key is misspelt (the nearest right one is named), or a
            value is of the wrong kind.
    """
    try:
        recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).replace(str(path), path.name).split())
        raise PumitError(f"Cannot read {path.name}: {reason}.") from None
    if not isinstance(recipe, dict):
        raise PumitError(f"{path.name} is not a recipe: it needs keys such as network, schedule.")
    _check(recipe, KINDS, path.name)
    _check(recipe.get("schedule", {}), SCHEDULE_KINDS, "schedule")
    if recipe.get("network", "promptable") != "promptable":
        raise PumitError(f"{path.name} names {recipe['network']!r}; only promptable is pretrained.")
    if recipe.get("real_cases") and "real_folder" not in recipe:
        raise PumitError(f"{path.name} has real_cases but no real_folder; say where they lie.")
    if Path(recipe.get("name", "model")).name != recipe.get("name", "model"):
        raise PumitError(f"The name {recipe['name']!r} in {path.name} cannot be a file's name.")
    return recipe


def _check(given: dict[str, Any], known: dict[str, tuple[type, ...]], where: str) -> None:
    for key, value in given.items():
        if key not in known:
            near = difflib.get_close_matches(str(key), sorted(known), n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(sorted(known))}."
            raise PumitError(f"Unknown key {key!r} in {where}{hint}")
        is_right = isinstance(value, known[key]) and (
            bool in known[key] or not isinstance(value, bool)
        )
        is_negative = isinstance(value, (int, float)) and not 0 <= value < float("inf")
        is_zero = value == 0 and key in ("threads", "batch_size", "targets_per_field", "log_every")
        if not is_right or is_negative or is_zero:
            kinds = " or ".join(kind.__name__ for kind in known[key])
            raise PumitError(f"{key} in {where} must be a usable {kinds}, got {value!r}.")


def _start_processes(threads: int, device: torch.device) -> torch.device:
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


def _scene_device(recipe: dict[str, Any], workers: int, device: torch.device) -> torch.device:
    """Where scans are generated: where the recipe says, by default on the CPU."""
    chosen = recipe.get("scene_device", "cpu")
    there = device if chosen == "auto" else pick_device(chosen)
    if there.type != "cpu" and workers > 0:
        raise PumitError("Worker processes draw on the CPU; set workers or scene_device, not both.")
    return there


def _begin_with(network: PromptableNetwork, model: str) -> None:
    """Take the weights of an earlier model, by name or path.

    Raises:
        CheckpointError: If there is none, or it is of another network.
    """
    path = find_model(model)
    state = read_model(path, "promptable").state
    try:
        network.load_state_dict(state)  # copied into the network's own precision
    except RuntimeError:
        raise CheckpointError(
            f"initial {path.name} has other network_sizes than this recipe; make them alike, or "
            "leave initial out to begin anew."
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
    _check(overrides or {}, SCHEDULE_KINDS, "overrides")
    schedule = Schedule(**{**recipe.get("schedule", {}), **(overrides or {})})
    target_device = pick_device(device or recipe.get("device", "auto"))
    workers = int(recipe.get("workers", 0)) if workers is None else workers
    _check({"workers": workers}, KINDS, "overrides")
    scene_device = _scene_device(recipe, workers, target_device)
    threads = int(recipe.get("threads", torch.get_num_threads()))
    target_device = _start_processes(threads, target_device)
    seed = int(recipe.get("seed", 0))
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {**PROMPTABLE, **recipe.get("network_sizes", {})}
    network = build_network("promptable", **sizes)
    assert isinstance(network, PromptableNetwork)
    if "initial" in recipe:
        _begin_with(network, recipe["initial"])
    scans = None
    if recipe.get("real_cases"):
        folder = real_folder or Path(recipe["real_folder"]).expanduser()
        if not folder.is_dir():
            raise PumitError(
                f"real_folder {folder.name} is missing; remove real_cases to go without."
            )
        unlabelled = [folder / u for u in recipe.get("real_unlabelled", [])]
        scans = RealScans(folder, recipe["real_cases"], unlabelled)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExportError(f"Cannot make the folder {output.name}: {error.strerror}.") from None
    task = PromptableTask(
        network,
        scans=scans,
        real_share=float(recipe.get("real_share", 0.35)),
        batch_size=int(recipe.get("batch_size", 4)),
        targets_per_field=int(recipe.get("targets_per_field", 2)),
        scene_device=scene_device,
        compiler="inductor" if recipe.get("compile", False) else None,
    )
    target = output / f"{recipe.get('name', 'model')}.safetensors"

    def report(record: dict[str, Any]) -> None:
        line = json.dumps(record)
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
        with (output / "log.jsonl").open("a", encoding="utf-8") as log:
            log.write(line + "\n")

    def keep(state: dict[str, Tensor], step: int) -> None:
        half = {k: (v.half() if v.is_floating_point() else v).cpu() for k, v in state.items()}
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

    degrees = dict(zip(DEGREES, DEGREE_SHARES, strict=True))
    train(
        task,
        output,
        schedule,
        seed=seed,
        degrees=degrees,
        report=report,
        on_checkpoint=keep,
        device=target_device,
        workers=workers,
    )
    if dist.is_initialized():
        dist.destroy_process_group()
    return target
