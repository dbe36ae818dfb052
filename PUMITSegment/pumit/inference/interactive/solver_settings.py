"""Settings of the prompt solver: what a choice among fields and answers weighs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BoxWeights:
    """What speaks for an answer to a box, and against it.

    Attributes:
        outside: Loss, times the share of the answer's own in-plane box that lies outside of the
            drawn one.
        unfilled: Loss, times the share of the drawn box that it does not reach in-plane.
        consensus: Bonus, times its mean Dice with the other answers.
    """

    outside: float = 3.0
    unfilled: float = 0.5
    consensus: float = 0.3


@dataclass(frozen=True)
class SolverSettings:
    """Settings of the prompt solver.

    Attributes:
        field_scale: In-plane voxels of an inference field over those of a training field.
        growth: Ratio of one tried field size to the next.
        contact_penalty: Loss of an answer that its field cuts off.
        miss_penalty: Loss of an answer that contradicts its clicks.
        box: What speaks for an answer to a box.
        flat_box: The same of a box that was drawn on one slice.
        consensus: Bonus of a first answer that all other fields give too.
        coarse: Bonus of a first answer in the coarsest field; none in the finest, and in those
            between by their place. The model estimates the overlap with what a field shows of a
            structure, which is more than that with all of it.
        stay: Bonus of the field that was chosen before.
        windows: Most finer windows per answer; 0 switches them off.
        window_agreement: A window that agrees less than this (IoU) with the coarse answer on what
            it sees is not believed.
        shares_answer: Whether every field continues from the answer that was shown, or each from
            its own.
        box_margins: Sizes of the fields tried for a box, over the size of the box.
        is_local: Whether a corrective click changes what is connected to it and nothing else;
            a second click may still mean far more than the first, see `is_far_more`.
        correction_margin: Size of the field of a corrective click, over that of the segment.
    """

    field_scale: float = 4 / 3
    growth: float = 2.0
    contact_penalty: float = 0.5
    miss_penalty: float = 0.5
    box: BoxWeights = BoxWeights()
    flat_box: BoxWeights = BoxWeights(outside=1.0, unfilled=0.6, consensus=0.0)
    consensus: float = 0.6
    coarse: float = 0.2
    stay: float = 0.1
    windows: int = 2
    window_agreement: float = 0.5
    shares_answer: bool = True
    box_margins: tuple[float, ...] = (1.4,)
    is_local: bool = True
    correction_margin: float = 1.5
