"""What the prompt solver weighs, and what it keeps of an answer until the next prompt."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pumit.inference.interactive.grid_transfer import Floats, LogitBox
from pumit.inference.storage.embedding_store import storage_bytes
from pumit.preprocessing.fields import Field


@dataclass(frozen=True)
class SolverSettings:
    """Settings of the prompt solver.

    Attributes:
        field_scale: In-plane voxels of an inference field over those of a training field.
        growth: Ratio of one tried field size to the next.
        contact_penalty: Loss of an answer that its field cuts off.
        miss_penalty: Loss of an answer that contradicts its clicks.
        box_penalty: Loss of an answer to a box whose own bounding box is another.
        consensus: Bonus of a first answer that all other fields give too.
        coarse: Bonus of a first answer in the coarsest field; none in the finest, and in those
            between by their place. The model estimates the overlap with what a field shows of a
            structure, which is more than that with all of it.
        stay: Bonus of the field that was chosen before.
        windows: Most finer windows per answer; 0 switches them off.
        window_agreement: A window that agrees less than this (IoU) with the coarse answer on what
            it sees is not believed.
        shares_answer: Whether every field goes on from the answer that was shown, or each from
            its own.
        box_margins: Sizes of the fields tried for a box, over the size of the box.
        is_local: Whether a corrective click changes what hangs together with it and nothing else.
        correction_margin: Size of the field of a corrective click, over that of the segment.
    """

    field_scale: float = 4 / 3
    growth: float = 2.0
    contact_penalty: float = 0.5
    miss_penalty: float = 0.5
    box_penalty: float = 1.0
    consensus: float = 0.6
    coarse: float = 0.2
    stay: float = 0.1
    windows: int = 2
    window_agreement: float = 0.5
    shares_answer: bool = True
    box_margins: tuple[float, ...] = (1.4,)
    is_local: bool = True
    correction_margin: float = 1.5


@dataclass
class FieldAnswer:
    """One field and its answer to the prompts so far.

    Attributes:
        field: Field of view.
        logits: Logits (D, H, W), or None.
        score: Trust in the answer.
        iou: The model's estimate of its IoU.
    """

    field: Field
    logits: Floats | None = None
    score: float = -1.0
    iou: float = 0.0


@dataclass
class SolverState:
    """The state after some prompts.

    Attributes:
        views: The fields that were tried, each with its answer.
        chosen: Index of the most trusted one.
        patch: The answer on the volume's grid, or None where nothing is foreground.
        iou: The model's estimate for the chosen answer, before it was refined.
        box: The box it answers, or None.
        num_points: Number of points that it answers.
    """

    views: list[FieldAnswer] = field(default_factory=list)
    chosen: int = 0
    patch: LogitBox | None = None
    iou: float = 0.0
    box: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None = None
    num_points: int = 0

    @cached_property
    def nbytes(self) -> int:
        """What it takes in memory, bytes, once it is complete."""
        arrays = [view.logits for view in self.views if view.logits is not None]
        return storage_bytes(arrays if self.patch is None else [*arrays, self.patch.logits])
