"""Settings of the prompt solver, mainly score weights, and its state between prompts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pumit.inference.interactive.grid_transfer import Floats, LogitBox
from pumit.inference.interactive.image_store import storage_bytes
from pumit.models.overlap import Evidence
from pumit.preprocessing.fields import Field


@dataclass(frozen=True)
class BoxWeights:
    """Score weights of answers to a box prompt.

    Attributes:
        outside: Penalty per share of the answer's in-plane bounding box outside the drawn box.
        unfilled: Penalty per share of the drawn box that the answer's bounding box leaves free.
        consensus: Bonus per mean Dice with the other answers.
    """

    outside: float = 3.0
    unfilled: float = 0.5
    consensus: float = 0.3


@dataclass(frozen=True)
class SolverSettings:
    """Settings of the prompt solver.

    Attributes:
        field_scale: In-plane size of inference fields relative to training fields.
        growth: Ratio of consecutive field sizes.
        contact_penalty: Score penalty of an answer that is cut off by its field.
        miss_penalty: Score penalty of an answer that contradicts its clicks.
        flat_box: Score weights for a box that was drawn on one slice.
        consensus: Score bonus of a first answer that all other fields agree with.
        coarse: Score bonus of a first answer in the coarsest field, falling linearly to 0 in the
            finest. It offsets a bias: the model estimates the IoU with the part of a structure
            inside the field, which exceeds the IoU with the whole.
        windows: Maximum number of refinement windows per answer; 0 disables them.
        window_agreement: Windows with a lower IoU with the coarse answer are rejected.
        box_margin: Field size for a box, relative to the box.
        correction_margin: Field size of a corrective click, relative to the segment.
    """

    field_scale: float = 4 / 3
    growth: float = 2.0
    contact_penalty: float = 0.5
    miss_penalty: float = 0.5
    box: BoxWeights = BoxWeights()
    flat_box: BoxWeights = BoxWeights(outside=1.0, unfilled=0.6, consensus=0.0)
    consensus: float = 0.6
    coarse: float = 0.2
    windows: int = 2
    window_agreement: float = 0.5
    box_margin: float = 1.4
    correction_margin: float = 1.5


@dataclass
class FieldAnswer:
    """A field and its logits (D, H, W) after some prompts; `spare` ones are only alternatives.

    `support` is by the answers of other fields, 0 to 1; 1 if they were not compared.
    """

    field: Field
    logits: Floats | None = None
    score: float = -1.0
    iou: float = 0.0
    support: float = 1.0
    spare: tuple[FieldAnswer, ...] = ()

    @property
    def size(self) -> float:
        """Volume of the mask, voxels of the volume."""
        assert self.logits is not None
        return float(np.count_nonzero(self.logits > 0) * np.prod(self.field.step))


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
        evidence: Features that predict its quality, once they have been computed.
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
    evidence: Evidence | None = field(default=None, init=False)

    def confirmed(self, num_points: int) -> SolverState:
        """Return the same answer for more points, without alternatives."""
        return replace(self, num_points=num_points, others=(), count=1, number=1)

    @cached_property
    def nbytes(self) -> int:
        """Memory of the arrays, bytes; cached, so read it only once the state is complete."""
        views = [*self.views, *self.others]
        arrays = [view.logits for view in views if view.logits is not None]
        return storage_bytes(arrays if self.patch is None else [*arrays, self.patch.logits])
