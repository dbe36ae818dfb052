"""The promptable network's objective, from a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from pumit.errors import PumitError
from pumit.inference.loading import pick_device
from pumit.networks.build import PROMPTABLE, build_network
from pumit.networks.promptable.network import PromptableNetwork
from pumit.training.objectives import Objective, ObjectiveKind, Setting, begin_with
from pumit.training.promptable_task import DEGREE_SHARES, DEGREES, PromptableTask
from pumit.training.real_scans import RealScans
from pumit.training.recipe_file import Kinds

KINDS: Kinds = {
    "scene_device": (str,),
    "compile": (bool,),
    "targets_per_field": (int,),
    "real_share": (int, float),
    "real_folder": (str,),
    "real_cases": (list,),
    "real_unlabelled": (list,),
}


def check(recipe: Mapping[str, Any], name: str) -> None:
    """Raise PumitError where real scans are named but not where they lie."""
    if recipe.get("real_cases") and "real_folder" not in recipe:
        raise PumitError(f"{name} has real_cases but no real_folder; say where they lie.")


def build(recipe: Mapping[str, Any], setting: Setting) -> Objective:
    """Build network, data and task of a recipe.

    Raises:
        PumitError: If its data are missing, or its keys do not fit together.
    """
    scene_device = _scene_device(recipe, setting)
    sizes: dict[str, Any] = {**PROMPTABLE, **recipe.get("network_sizes", {})}
    network = build_network("promptable", **sizes)
    assert isinstance(network, PromptableNetwork)
    if "initial" in recipe:
        begin_with(network, recipe["initial"], ("promptable",))
    scans = None
    if recipe.get("real_cases"):
        folder = setting.real_folder or Path(recipe["real_folder"]).expanduser()
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
        scene_device=scene_device,
        compiler="inductor" if recipe.get("compile", False) else None,
    )
    degrees = dict(zip(DEGREES, DEGREE_SHARES, strict=True))
    return Objective(task, degrees, {"network": "promptable", "sizes": sizes})


def _scene_device(recipe: Mapping[str, Any], setting: Setting) -> torch.device:
    """Where scans are generated: where the recipe says, by default on the CPU."""
    chosen = recipe.get("scene_device", "cpu")
    there = setting.device if chosen == "auto" else pick_device(chosen)
    if there.type != "cpu" and setting.workers > 0:
        raise PumitError("Worker processes draw on the CPU; set workers or scene_device, not both.")
    return there


PROMPTABLE_OBJECTIVE = ObjectiveKind(KINDS, check, build)
