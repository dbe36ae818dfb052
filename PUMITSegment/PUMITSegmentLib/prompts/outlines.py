"""Lassos as outlines on a scan's grid, with the clicks that follow them."""

from __future__ import annotations

from pumit.gestures.outline import Click, Outline
from PUMITSlicerLib.mrml import VolumeFrame

from PUMITSegmentLib.prompts.geometry import curvePointsWorld, definedPointsWorld, isFinished
from PUMITSegmentLib.prompts.kinds import PromptKind
from PUMITSegmentLib.prompts.order import keysOf, numbersOf
from PUMITSegmentLib.prompts.tag import promptNodesOf, tagOf


def outlinesOf(segmentationNode, segmentID: str, frame: VolumeFrame) -> list[Outline]:
    """Return the lassos of a segment in drawing order.

    A lasso defines the whole segment in its slice if only lassos precede it; otherwise it adds to
    the segment. Lassos drawn before a manual edit are omitted: the edited mask includes them.

    Args:
        frame: LPS frame of the scan.
    """
    lassos, others, clicks = [], [], []
    for node in promptNodesOf(segmentationNode, segmentID):
        tag = tagOf(node, segmentationNode)
        if not isFinished(node, tag):
            continue
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
