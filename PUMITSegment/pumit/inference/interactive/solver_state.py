"""State of the prompt solver between prompts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pumit.inference.interactive.grid_transfer import Floats, LogitBox
from pumit.inference.interactive.image_store import storage_bytes
from pumit.preprocessing.fields import Field


@dataclass
class FieldAnswer:
    """A field and its answer to the prompts so far.

    Attributes:
        logits: Logits (D, H, W), or None.
        spare: Further answers, offered only as alternatives.
    """

    field: Field
    logits: Floats | None = None
    score: float = -1.0
    iou: float = 0.0
    spare: tuple[FieldAnswer, ...] = ()


@dataclass
class SolverState:
    """The solver's state after some prompts.

    Attributes:
        views: The fields that were tried, with their answers.
        chosen: Index of the best-scored view.
        patch: The answer on the volume's grid, or None if there is no foreground.
        iou: Estimated IoU of the chosen answer before refinement.
        others: Alternative answers to a first prompt, the best-scored first, all distinct.
        count: Number of answers to choose from, the best one included.
        number: Number of the shown answer, from 1.
    """

    views: list[FieldAnswer] = field(default_factory=list)
    chosen: int = 0
    patch: LogitBox | None = None
    iou: float = 0.0
    box: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None = None
    num_points: int = 0
    others: tuple[FieldAnswer, ...] = ()
    count: int = 1
    number: int = 1

    def confirmed(self, num_points: int) -> SolverState:
        """Return the same answer for more points, without alternatives."""
        return replace(self, num_points=num_points, others=(), count=1, number=1)

    @cached_property
    def nbytes(self) -> int:
        """Memory of the arrays, bytes; cached, so read it only once the state is complete."""
        views = [*self.views, *self.others]
        arrays = [view.logits for view in views if view.logits is not None]
        return storage_bytes(arrays if self.patch is None else [*arrays, self.patch.logits])
