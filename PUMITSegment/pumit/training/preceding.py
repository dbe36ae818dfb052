"""Preceding runs that a training needs: a tokenizer, or an encoder from unlabelled scans."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pumit.errors import PumitError
from pumit.networks.build import RECIPES
from pumit.training.recipes.pretraining import OWN_TOKENIZER
from pumit.training.recipes.segmentation import DEFAULT_NETWORK

FOLDER = "pretraining"  # subfolder of the preceding run
CACHE = "cache"
# Sizes of a ViT that must equal those of its pre-training.
VIT_SIZES = ("dim", "depth", "num_heads", "hidden")


@dataclass(frozen=True)
class Preceding:
    """A run that precedes the main run.

    Attributes:
        recipe: Name of its shipped recipe.
        gives: Key of the main recipe that is set to its model.
        share: Ratio of its time budget to that of the main run.
    """

    recipe: str
    changes: Mapping[str, Any]
    gives: str
    title: str
    share: float


def preceding_of(keys: Mapping[str, Any], output: Path, *, unlabelled: str) -> Preceding | None:
    """Return the run that a recipe with absolute paths needs first, or None.

    Raises:
        PumitError: If the network cannot learn from the folder of unlabelled scans.
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
        # Start from the shipped tokenizer, so that it knows more than these scans.
        changes |= {"initial": "tokenizer", "register": False}
        return Preceding("tokenizer", changes, "tokenizer", "Tokenizer", share=1.0)
    return None
