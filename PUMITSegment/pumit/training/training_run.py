"""What every kind of `pumit train` is told: recipe, folders, schedule and device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pumit.training import recipe_file
from pumit.training.parallel import rank
from pumit.training.pretrain import make_folder, write_line
from pumit.training.recipe_file import Kinds
from pumit.training.schedule import Schedule

# Keys that mean the same whatever `pumit train` trains; each task adds its own.
COMMON_KINDS: Kinds = {**recipe_file.COMMON_KINDS, "task": (str,), "data": (dict,)}


@dataclass(frozen=True)
class TrainingRun:
    """A recipe and the circumstances it is followed in.

    Attributes:
        recipe: The whole recipe; of its keys only those of `COMMON_KINDS` are checked.
        source: The recipe's file name, for messages.
        folder: Where relative paths of the recipe begin.
        output: Folder of the results; the first report makes it, so that bad input leaves none.
        schedule: Length and rates.
        device: Where the network is trained.
        workers: Processes that draw batches ahead.
        seed: Of everything random.
    """

    recipe: dict[str, Any]
    source: str
    folder: Path
    output: Path
    schedule: Schedule
    device: torch.device
    workers: int
    seed: int

    @property
    def name(self) -> str:
        """Name of the model that is made."""
        return str(self.recipe.get("name", "model"))

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and progress."""
        return rank() == 0

    def path(self, text: str) -> Path:
        """A path of the recipe; a relative one begins at the recipe's folder."""
        path = Path(text).expanduser()
        return path if path.is_absolute() else self.folder / path

    def report(self, record: dict[str, Any]) -> None:
        """Write one JSON line to standard output and to `log.jsonl`, in the first process."""
        if self.is_first:
            make_folder(self.output)
            write_line(record, self.output)
