"""Use of a segmentation's prompts in other scans, at the same world positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from pumit.client.remote_models import AutomaticAnswer
from pumit.prompts import AnswerPrompt, MaskPrompt
from pumit.segmentation import ClassLabel, LabelMap, region_type
from pumit.system.watch import Watch

from PUMITSegmentLib.masks.book import SegmentBook
from PUMITSegmentLib.masks.query import MaskQuery, queryOf
from PUMITSegmentLib.segments.appearance import Appearance
from PUMITSegmentLib.segments.segment_list import segmentIDs


@dataclass(frozen=True, eq=False)
class SegmentQuery:
    """Query for one segment in another scan.

    Attributes:
        label: Name, coded term and colour of the segment.
    """

    label: ClassLabel
    query: MaskQuery


def promptedIDs(book: SegmentBook | None) -> list[str]:
    """Return the segments with prompts that apply to other scans, which masks do not."""
    if book is None:
        return []
    nodes = {each: book.prompts.snapshot(each).nodes for each in segmentIDs(book.node)}
    return [each for each, kept in nodes.items() if any(node.prior is None for node in kept)]


def queriesOf(book: SegmentBook, volumeNode) -> list[SegmentQuery]:
    """Return the queries of all segments' prompts in another scan.

    Raises:
        PumitError: If a prompt is outside that scan.
    """
    queries = []
    for segmentID in promptedIDs(book):
        query = queryOf(book, segmentID, volumeNode)
        if query is None:
            continue
        # Masks and chosen answers apply to this scan only.
        others = (MaskPrompt, AnswerPrompt)
        prompts = [each for each in query.prompts if not isinstance(each, others)]
        appearance = Appearance.of(book.node, segmentID)
        red, green, blue = appearance.color
        label = ClassLabel(appearance.name, appearance.terminology, (red, green, blue))
        queries.append(SegmentQuery(label, replace(query, prompts=prompts)))
    return queries


def answerAll(
    session,
    queries: Sequence[SegmentQuery],
    model: dict[str, str],
    watch: Watch,
) -> AutomaticAnswer:
    """Segment all queries in a session that has the scan open; call it on a thread.

    Raises:
        PumitError: If a query fails.
    """
    labels = tuple(each.label for each in queries)
    regions = None
    for number, each in enumerate(queries):

        def report(part: float, number: int = number) -> None:
            watch.report((number + part) / len(queries))

        part = Watch(watch.cancelled, report)
        answer = session.answer(each.query.prompts, str(number + 1), place_count=0, watch=part)
        mask = each.query.allow(answer.mask)
        if regions is None:
            regions = np.zeros(mask.shape, region_type(len(queries)))
        regions |= mask.astype(regions.dtype) << regions.dtype.type(number)
    assert regions is not None
    found = LabelMap.of_regions(regions, labels)
    return AutomaticAnswer(found, model.get("name", ""), model.get("version", ""))
