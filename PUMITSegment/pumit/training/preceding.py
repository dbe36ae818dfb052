"""A run that another one needs first: its tokenizer, or its encoder from unlabelled scans."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pumit.errors import PumitError
from pumit.networks.build import RECIPES
from pumit.training.recipes.pretraining import OWN_TOKENIZER
from pumit.training.recipes.reader import shipped_recipe
from pumit.training.recipes.segmentation import DEFAULT_NETWORK
from pumit.training.run.relay import Relay, finished_model
from pumit.training.run.reporter import RunReporter

FOLDER = "pretraining"  # of the run that precedes, in the folder of the other one
CACHE = "cache"
# Sizes of a ViT, which those of its pre-training have to be.
VIT_SIZES = ("dim", "depth", "num_heads", "hidden")
# Trains by a recipe's file in a folder, with keys of the recipe replaced.
Train = Callable[[Path, Path, Mapping[str, Any]], Path]


@dataclass(frozen=True)
class Preceding:
    """A run that precedes another one.

    Attributes:
        recipe: Name of its recipe, which ships.
        changes: Keys of it that are replaced.
        gives: Key of the other recipe that its model is the value of.
        share: Its time over that of the other run, where that is limited.
    """

    recipe: str
    changes: Mapping[str, Any]
    gives: str
    title: str
    share: float


def preceding_of(keys: Mapping[str, Any], output: Path, *, unlabelled: str) -> Preceding | None:
    """Return the run that a recipe needs first, or None.

    Args:
        keys: The recipe; paths are absolute.
        unlabelled: Folder of unlabelled scans, as a text; empty for none.

    Raises:
        PumitError: If its network has none.
    """
    alike = {k: keys[k] for k in ("device", "workers", "threads", "seed") if k in keys}
    if unlabelled:
        network = str(keys.get("network", DEFAULT_NETWORK))
        if network not in RECIPES or RECIPES[network].class_name != "SegmentationNetwork":
            raise PumitError(
                f"`unlabelled` goes with a network of PUMIT, such as {DEFAULT_NETWORK}, not with "
                f"{network!r}; for others pre-train first, and name that model in `initial`."
            )
        given = keys.get("network_sizes") or {}
        sizes = {**RECIPES[network].sizes, **given}
        changes = {
            **alike,
            "task": "pretraining",
            "tokenizer": OWN_TOKENIZER,
            "real_folder": unlabelled,
            "cache": str((output / CACHE).absolute()),
            "network_sizes": {key: sizes[key] for key in VIT_SIZES},
            "register": False,
        }
        title = "Learning from unlabelled scans"
        return Preceding("vit", changes, "initial", title, share=0.5)
    if keys.get("tokenizer") == OWN_TOKENIZER:
        images = ("real_folder", "real_images", "cache", "images_in_memory")
        changes = {**alike, **{k: keys[k] for k in images if k in keys}, "task": "pretraining"}
        # It continues from the tokenizer that ships, so that it knows more than these scans.
        changes |= {"initial": "tokenizer", "register": False}
        return Preceding("tokenizer", changes, "tokenizer", "Tokenizer", share=1.0)
    return None


def model_of(before: Preceding, output: Path) -> Path:
    """Where the model of a preceding run is, once it is finished."""
    return (output / FOLDER / f"{before.recipe}.safetensors").absolute()


def train_before(
    before: Preceding,
    output: Path,
    reporter: RunReporter,
    train: Train,
    schedule: Mapping[str, Any],
) -> Path:
    """Train what precedes a run; started again, it continues where it was.

    Args:
        schedule: Steps or seconds of the other one, where they are limited.

    Raises:
        PumitError: If it cannot be trained, or several processes train.
        RunStopped: If it was stopped; the same call continues.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise PumitError(
            "What precedes a run is trained in one process; train it by itself, and name its "
            f"model in `{before.gives}`."
        )
    folder = output / FOLDER
    if (made := finished_model(folder)) is not None:
        return made.absolute()
    limits = dict(schedule)
    if limits.get("seconds") is not None:
        seconds = before.share * limits["seconds"]
        limits |= {"seconds": seconds, "decay_seconds": seconds / 2}
    reporter.check()
    reporter.event("preceding", f"{before.title} begins.")
    with Relay(reporter, output, folder, before.title):
        changes = {**before.changes, "schedule": limits}
        return train(shipped_recipe(before.recipe), folder, changes).absolute()
