"""Recipe types by task and network."""

from collections.abc import Mapping
from typing import Any

from pumit.errors import PumitError
from pumit.training.recipes.classification import ClassificationRecipe
from pumit.training.recipes.pretraining import PRETRAINING, PretrainingRecipe
from pumit.training.recipes.promptable import FineTuningRecipe, SamRecipe
from pumit.training.recipes.segmentation import SegmentationRecipe
from pumit.training.recipes.training import TrainingRecipe

TASKS: dict[str, type[TrainingRecipe]] = {
    "segmentation": SegmentationRecipe,
    "classification": ClassificationRecipe,
    "promptable": FineTuningRecipe,
    "sam": SamRecipe,
    "pretraining": PretrainingRecipe,
}
DEFAULT_TASK = "segmentation"


def task_of(keys: Mapping[str, Any]) -> str:
    """Return the task of a recipe that is not validated yet."""
    return str(keys.get("task", DEFAULT_TASK))


def model_for(keys: Mapping[str, Any], source: str) -> type[TrainingRecipe]:
    """Return the recipe type for a recipe's task and network.

    Raises:
        PumitError: If the task is unknown, the network cannot be pre-trained, or it is a recipe of
            a comparison.
    """
    if "networks" in keys:
        raise PumitError(f"{source} is a recipe of `pumit compare`.")
    task = task_of(keys)
    if task not in TASKS:
        raise PumitError(f"task in {source} must be {' or '.join(TASKS)}, got {task!r}.")
    if task != "pretraining":
        return TASKS[task]
    network = str(keys.get("network", PretrainingRecipe.model_fields["network"].default))
    if network not in PRETRAINING:
        raise PumitError(
            f"{network!r} is not pretrained; networks that are: {', '.join(PRETRAINING)}."
        )
    return PRETRAINING[network]
