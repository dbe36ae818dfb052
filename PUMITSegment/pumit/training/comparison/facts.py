"""What the trainings of a comparison have in common, in numbers and words: no name of a machine."""

from __future__ import annotations

import platform
from typing import Any

import torch

from pumit import __version__
from pumit.training.comparison.plan import PlannedComparison
from pumit.training.comparison.recipe import Comparison
from pumit.training.model_card.record import processor_title
from pumit.training.planning.hardware import hardware_for
from pumit.training.run.resolved_recipe import plain

FACTS = "comparison.json"


def facts_of_comparison(comparison: Comparison, planned: PlannedComparison) -> dict[str, Any]:
    """Everything that the page says in addition to the rows."""
    shapes = [fact.shape for fact in planned.facts_of(planned.split.training)]
    first = planned.trainings[0].keys
    return plain(
        {
            "title": comparison.recipe.title,
            "training": list(planned.split.training),
            "validation": list(planned.split.validation),
            "classes": [c.as_model_row() for c in planned.data.classes],
            "channels": planned.plan.channels,
            "plan": planned.plan.as_recipe(),
            "shapes": {"least": _each(min, shapes), "most": _each(max, shapes)},
            "seeds": list(comparison.recipe.seeds),
            "networks": [
                {
                    "name": n.name,
                    "network": n.network,
                    "network_sizes": n.network_sizes,
                    "schedule": n.schedule.named(),
                    "has_initial": n.initial is not None,
                    "share": n.share,
                }
                for n in comparison.recipe.networks
            ],
            "schedule": comparison.schedule,
            "augmentation": comparison.recipe.augmentation.model_dump(),
            "threads": first["threads"],
            "processes": comparison.recipe.processes,
            "pictures": comparison.recipe.pictures,
            "machine": {
                "hardware": str(hardware_for(planned.device)),
                "processor": processor_title(),
                "device": planned.device.type,
                "system": platform.system(),
                "python": platform.python_version(),
                "torch": torch.__version__,
                "pumit": __version__,
            },
        }
    )


def _each(pick: Any, shapes: list[tuple[int, int, int]]) -> list[int]:
    return [pick(axis) for axis in zip(*shapes, strict=True)]
