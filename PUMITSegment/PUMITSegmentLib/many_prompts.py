"""The prompts of a segmentation, given to other scans at the same places of the world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from pumit.client.remote_models import AutomaticAnswer
from pumit.prompts import MaskPrompt
from pumit.segmentation import ClassLabel, LabelMap, region_type

from PUMITSegmentLib.masks.question import Question, questionOf
from PUMITSegmentLib.masks.working_segmentation import WorkingSegmentation
from PUMITSegmentLib.segments.appearance import Appearance
from PUMITSegmentLib.segments.segment_list import segmentIDs


@dataclass(frozen=True, eq=False)
class SegmentQuestion:
    """What is asked about one segment in another scan.

    Attributes:
        label: Name, coded term and colour of the segment.
        question: Its prompts in that scan.
    """

    label: ClassLabel
    question: Question


def promptedIDs(working: WorkingSegmentation | None) -> list[str]:
    """Segments that have prompts which say something about another scan: no masks."""
    if working is None:
        return []
    nodes = {each: working.prompts.snapshot(each).nodes for each in segmentIDs(working.node)}
    return [each for each, kept in nodes.items() if any(node.prior is None for node in kept)]


def questionsAbout(working: WorkingSegmentation, volumeNode) -> list[SegmentQuestion]:
    """The questions that the prompts of all segments are in another scan.

    Raises:
        PumitError: If a prompt lies beside that scan.
    """
    questions = []
    for segmentID in promptedIDs(working):
        question = questionOf(working, segmentID, volumeNode)
        if question is None:
            continue
        prompts = [each for each in question.prompts if not isinstance(each, MaskPrompt)]
        look = Appearance.of(working.node, segmentID)
        red, green, blue = look.color
        label = ClassLabel(look.name, look.terminology, (red, green, blue))
        questions.append(SegmentQuestion(label, replace(question, prompts=prompts)))
    return questions


def answerAll(
    session,
    questions: Sequence[SegmentQuestion],
    model: dict[str, str],
    isCancelled: Callable[[], bool],
    tell: Callable[[float], None],
) -> AutomaticAnswer:
    """Ask a session that holds the scan about every segment, on a thread.

    Raises:
        PumitError: If a question has no answer.
    """
    labels = tuple(each.label for each in questions)
    regions = None
    for number, each in enumerate(questions):
        answer = session.answer(
            each.question.prompts,
            str(number + 1),
            place_count=0,
            cancelled=isCancelled,
            progress=lambda part, number=number: tell((number + part) / len(questions)),
        )
        mask = each.question.allow(answer.mask)
        if regions is None:
            regions = np.zeros(mask.shape, region_type(len(questions)))
        regions |= mask.astype(regions.dtype) << regions.dtype.type(number)
    assert regions is not None
    found = LabelMap.of_regions(regions, labels)
    return AutomaticAnswer(found, model.get("name", ""), model.get("version", ""))
