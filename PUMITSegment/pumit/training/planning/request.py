"""The request to a planner, and its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pumit.training.planning.estimate import Estimate
from pumit.training.planning.hardware import Hardware
from pumit.training.planning.trial_process import TrialProcess
from pumit.training.recipes.labelled import LabelledRecipe
from pumit.training.recipes.presets import Preset


@dataclass(frozen=True)
class PlanRequest:
    """A request for a plan.

    Attributes:
        recipe: The user's recipe, whose values stay as they are.
        keys: The same as its file holds it.
        resolve: Makes paths of its texts.
        numbers: Settings that it stands for on this machine.
        progress: Callback for each case's number while they are read.
    """

    recipe: LabelledRecipe
    keys: Mapping[str, Any]
    source: str
    resolve: Callable[[str], Path]
    preset: str
    numbers: Preset
    hardware: Hardware
    threads: int
    trial: TrialProcess
    progress: Callable[[int], None] | None = None


@dataclass(frozen=True)
class Planned:
    """A recipe that `pumit train` follows to the letter.

    Attributes:
        recipe: Every value.
    """

    recipe: dict[str, Any]
    estimate: Estimate
    warnings: tuple[str, ...]
