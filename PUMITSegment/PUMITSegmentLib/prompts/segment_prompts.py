"""All prompts of one segment as one immutable value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pumit.gestures.outline import Click, Outline, apply_outlines
from pumit.prompts import AnswerPrompt, Prompt
from PUMITSlicerLib.mrml import VolumeFrame

from PUMITSegmentLib.prompts.excluded import ExcludedBox, withoutBoxes
from PUMITSegmentLib.prompts.geometry import curvePointsWorld, definedPointsWorld
from PUMITSegmentLib.prompts.kinds import PromptKind
from PUMITSegmentLib.prompts.order import keysOf, numbersOf
from PUMITSegmentLib.prompts.snapshot import PromptSnapshot
from PUMITSegmentLib.prompts.tag import PromptTag
from PUMITSegmentLib.segments.packed_mask import Mask


@dataclass(frozen=True, eq=False)
class SegmentPrompts:
    """Prompts of one segment at one moment; without a scan only their snapshot.

    Attributes:
        snapshot: State of their nodes, to be restored later.
        prompts: Prompts in the order they were given, in the scan's LPS; a chosen answer follows
            the prompt that it answers. Negative boxes are not included.
        outside: Those outside the image.
        boxes: Negative boxes, on the scan's grid.
        outlines: Lassos in drawing order, on the scan's grid.
    """

    snapshot: PromptSnapshot = field(default_factory=PromptSnapshot)
    prompts: tuple[Prompt, ...] = ()
    outside: tuple[Prompt, ...] = ()
    boxes: tuple[ExcludedBox, ...] = ()
    outlines: tuple[Outline, ...] = ()

    @property
    def count(self) -> int:
        """Number of prompts, without chosen answers and negative boxes."""
        return sum(not isinstance(prompt, AnswerPrompt) for prompt in self.prompts)

    def allow(self, mask: Mask) -> Mask:
        """Apply the hard constraints to an answer: negative boxes, and lassos in their slices."""
        return withoutBoxes(apply_outlines(mask, self.outlines), self.boxes)


def outlinesOf(tagged: Sequence[tuple[Any, PromptTag]], frame: VolumeFrame) -> list[Outline]:
    """Return the lassos of a segment in drawing order, with the clicks that follow them.

    A lasso defines the whole segment in its slice if only lassos precede it; otherwise it adds to
    the segment. Lassos drawn before a manual edit are omitted: the edited mask includes them.

    Args:
        tagged: The segment's nodes that hold finished, numbered prompts.
        frame: LPS frame of the scan.
    """
    lassos, others, clicks = [], [], []
    for node, tag in tagged:
        numbers = numbersOf(node)
        if tag.kind is PromptKind.LASSO:
            lassos.append((min(numbers.values()), tag.isPositive, node))
            continue
        others += [(number, tag) for number in numbers.values()]
        if tag.kind is PromptKind.POINT:
            places = frame.worldToIndex(definedPointsWorld(node)).tolist()
            for key, (d, h, w) in zip(keysOf(node), places, strict=True):
                click: Click = (d, h, w, tag.isPositive)
                clicks.append((numbers[key], click))
    edited = max((number for number, tag in others if tag.kind is None), default=-1)
    first = min((number for number, tag in others if tag.isPositive), default=None)
    return [
        Outline(
            frame.worldToIndex(curvePointsWorld(node)),
            isPositive,
            is_whole=first is None or number < first,
            later=[click for at, click in sorted(clicks) if at > number],
        )
        for number, isPositive, node in sorted(lassos, key=lambda each: each[0])
        if number > edited
    ]
