"""Write a recipe as a person reads it: its keys in order, each with a word of what it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

# Lists of rows that have a line each.
ROWS = {"cases", "classes", "folders"}
COMMENTS: dict[str, str] = {
    "task": "segmentation: segment by itself; promptable: better clicks; or another",
    "name": "of the model's file",
    "network_sizes": "fewer widths: faster, less memory",
    "seed": "of split, patches and weights",
    "workers": "processes that prepare patches while the network computes",
    "threads": "of the processor",
    "folds": "cross-validation: one training after another",
    "final_model": "then one more on all cases",
    "data.patient": "the part of a case's name that the scans of a patient share",
    "data.training": "who is learnt from; remove what shall not be",
    "data.validation": "who is only asked",
    "plan.spacing_mm": "what the network sees, (depth, height, width)",
    "plan.patch_size": "what it sees at once, voxels; larger: more context, slower",
    "plan.batch_size": "patches of a step",
    "plan.intensity": "how intensities are scaled; a list has one rule for each channel",
    "plan.orientation": "anatomical, or stored: as the files lie",
    "part": "all, adapters (low-rank ones in the image encoder, and the decoder), or decoder",
    "rank": "of the adapters",
    "real_share": "fields from your scans; the others are generated",
    "keep": "how much answering what is not labelled as before counts; 0 forgets",
    "blend": "shares of the tuned weights that are tried at the end",
    "validation.answers": "structures that are clicked on each time, at most",
    "validation.scenes": "generated scans that tell what is forgotten",
    "balanced_share": "patches around a voxel of a drawn class; the others lie anywhere",
    "dice_background": "false: Dice is of the drawn classes alone",
    "augmentation": "probabilities; false for none at all",
    "augmentation.flips": "auto: none along an axis that tells left from right",
    "validation.overlap": "windows share this part with their neighbours",
    "validation.final_overlap": "in the final validation, and in use",
    "validation.flips": "average eight reflections in the final validation",
    "schedule.learning_rate": "its peak",
    "schedule.warm_up": "steps of its rise",
    "schedule.final_rate": "where the cosine ends",
    "schedule.steps": "as many as fit into the time here",
    "schedule.seconds": "the loop ends after so many at the latest, its rate fallen by then",
    "schedule.clip": "largest norm of the gradient",
    "schedule.average": "share of the past in the averaged weights, which are kept",
    "schedule.accumulate": "batches of a step",
    "schedule.activation_checkpointing": "true: less memory, slower",
    "schedule.validate_every": "steps",
    "schedule.log_every": "steps",
    "schedule.checkpoint_seconds": "what a crash costs at most",
}


def recipe_text(recipe: Mapping[str, Any], heading: Sequence[str] = ()) -> str:
    """A recipe as YAML with comments; reading it gives the same recipe.

    Args:
        recipe: Keys and values.
        heading: Lines of comment above it.
    """
    lines = [f"# {' '.join(line.split())}" for line in heading]
    for key, value in recipe.items():
        if isinstance(value, Mapping) and value:
            lines.append(f"{_flow(key)}:{_comment(key)}")
            for inner, content in value.items():
                lines += _entry(inner, content, f"{key}.{inner}")
        else:
            lines.append(f"{_flow(key)}: {_flow(value)}{_comment(key)}")
    return "\n".join(lines) + "\n"


def _entry(key: str, value: Any, path: str) -> list[str]:
    """A key of a part of the recipe."""
    if key in ROWS and isinstance(value, list) and value:
        return [f"  {_flow(key)}:{_comment(path)}", *(f"    - {_flow(row)}" for row in value)]
    return [f"  {_flow(key)}: {_flow(value)}{_comment(path)}"]


def _comment(path: str) -> str:
    return f"  # {COMMENTS[path]}" if path in COMMENTS else ""


def _flow(value: Any) -> str:
    """A value on one line."""
    text: str = yaml.safe_dump(
        value, default_flow_style=True, width=float("inf"), allow_unicode=True, sort_keys=False
    )
    return text.removesuffix("\n").removesuffix("\n...").strip()
