"""The promptable network's objective, from a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from glob import glob
from pathlib import Path
from typing import Any

import torch

from pumit.errors import PumitError
from pumit.inference.loading import pick_device
from pumit.networks.build import PROMPTABLE, build_network
from pumit.networks.promptable.network import PromptableNetwork
from pumit.training.pretraining.objective import BuildContext, Objective, ObjectiveKind, begin_with
from pumit.training.promptable.fields import ROUNDS
from pumit.training.promptable.label_maps import LabelMaps
from pumit.training.promptable.labelled_scans import UNLABELLED, RealScans, case_index
from pumit.training.promptable.task import DEGREE_SHARES, DEGREES, PromptableTask
from pumit.training.recipes.reader import Kinds

KINDS: Kinds = {
    "scene_device": (str,),
    "compile": (bool,),
    "targets_per_field": (int,),
    "real_share": (int, float),
    "real_folder": (str,),
    "real_cases": (list,),
    "real_unlabelled": (list,),
    "real_sets": (list,),
    "real_shares": (dict,),
    "unlabelled_targets": (int, float),
    "label_maps": (list,),
    "map_share": (int, float),
    "field_sizes": (dict,),
    "rounds": (dict,),
}


def check(recipe: Mapping[str, Any], name: str) -> None:
    """Raise PumitError where real scans are named but not where they lie."""
    if recipe.get("real_cases") and "real_folder" not in recipe:
        raise PumitError(f"{name} has real_cases but no real_folder; say where they lie.")
    shares = list(recipe.get("real_shares", {}).values())
    if any(not 0 <= float(share) <= 1 for share in shares) or sum(shares) > 1:
        raise PumitError(f"real_shares in {name} must lie between 0 and 1, and come to 1 at most.")


def build(recipe: Mapping[str, Any], context: BuildContext) -> Objective:
    """Build network, data and task of a recipe.

    Raises:
        PumitError: If its data are missing, or its keys do not fit together.
    """
    scene_device = _scene_device(recipe, context)
    sizes: dict[str, Any] = {**PROMPTABLE, **recipe.get("network_sizes", {})}
    network = build_network("promptable", **sizes)
    assert isinstance(network, PromptableNetwork)
    if "initial" in recipe:
        begin_with(network, recipe["initial"], ("promptable",))
    scans = None
    if recipe.get("real_cases"):
        folder = Path(recipe["real_folder"]).expanduser()
        if not folder.is_dir():
            raise PumitError(
                f"real_folder {folder.name} is missing; remove real_cases to go without."
            )
        unlabelled = [folder / u for u in recipe.get("real_unlabelled", [])]
        share = float(recipe.get("unlabelled_targets", UNLABELLED))
        shares = recipe.get("real_shares", {})
        scans = RealScans(folder, recipe["real_cases"], unlabelled, share, shares)
        for each in recipe.get("real_sets", []):
            cases = folder / each["folder"]
            scans.add(cases, _of_tiers(cases, each))
    task = PromptableTask(
        network,
        scans=scans,
        label_maps=_label_maps(recipe, context),
        map_share=float(recipe.get("map_share", 0.0)),
        field_sizes=recipe.get("field_sizes"),
        rounds=recipe.get("rounds", ROUNDS),
        real_share=float(recipe.get("real_share", 0.35)),
        batch_size=int(recipe.get("batch_size", 4)),
        targets_per_field=int(recipe.get("targets_per_field", 2)),
        scene_device=scene_device,
        compiler="inductor" if recipe.get("compile", False) else None,
    )
    degrees = dict(zip(DEGREES, DEGREE_SHARES, strict=True))
    return Objective(task, degrees, {"network": "promptable", "sizes": sizes})


def _of_tiers(folder: Path, wanted: Mapping[str, Any]) -> list[str]:
    """Cases of a folder: those that are named, or all whose `index.json` puts them into a tier."""
    if not folder.is_dir():
        raise PumitError(f"The folder {folder.name} of real_sets is missing; leave it out.")
    if "cases" in wanted:
        return [str(case) for case in wanted["cases"]]
    known = case_index(folder)
    tiers = set(wanted.get("tiers", []))
    return sorted(case for case, facts in known.items() if not tiers or facts["tier"] in tiers)


def _label_maps(recipe: Mapping[str, Any], context: BuildContext) -> LabelMaps | None:
    """The recipe's label maps, each a path or a pattern below real_folder, or None."""
    if not recipe.get("label_maps"):
        return None
    folder = Path(recipe["real_folder"]).expanduser()
    paths: list[Path] = []
    for pattern in recipe["label_maps"]:
        found = sorted(glob(str(folder / pattern)))
        if not found:
            raise PumitError(f"No label map fits {Path(pattern).name}; leave it out of label_maps.")
        paths += map(Path, found)
    return LabelMaps(paths)


def _scene_device(recipe: Mapping[str, Any], context: BuildContext) -> torch.device:
    """Where scans are generated: where the recipe says, by default on the CPU."""
    chosen = recipe.get("scene_device", "cpu")
    there = context.device if chosen == "auto" else pick_device(chosen)
    if there.type != "cpu" and context.workers > 0:
        raise PumitError("Worker processes draw on the CPU; set workers or scene_device, not both.")
    return there


PROMPTABLE_OBJECTIVE = ObjectiveKind(KINDS, check, build)
