"""Batch segmentation of many scans of the scene or of a folder."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from pumit.client.remote_models import AutomaticAnswer
from pumit.errors import PumitError
from pumit.export.classes import numbered_segments
from pumit.export.write import write_segmentation
from pumit.io.scans import find_scans
from pumit.prompts import AnswerPrompt, MaskPrompt
from pumit.segmentation import Algorithm, ClassLabel, LabelMap, Segmentation, region_type
from pumit.system.watch import Watch
from pumit.volume import Volume
from PUMITSlicerLib.computing.connection import readable
from PUMITSlicerLib.mrml import finite, readVolume, volumeKey
from slicer.i18n import tr as _

from PUMITSegmentLib.automatic import FoundStructures, addStructures, modalityOf, prepareStructures
from PUMITSegmentLib.collaborators import Collaborators
from PUMITSegmentLib.exporting.export import safeFileName
from PUMITSegmentLib.masks.book import SegmentBook
from PUMITSegmentLib.masks.query import MaskQuery, queryOf
from PUMITSegmentLib.scene.frames import keepPerFrame
from PUMITSegmentLib.scene.selection import Selection
from PUMITSegmentLib.segments.appearance import Appearance
from PUMITSegmentLib.segments.segment_list import newSegmentation, segmentIDs
from PUMITSegmentLib.segments.writer import SegmentWriter


@dataclass(frozen=True, eq=False)
class SegmentQuery:
    """Query for one segment in another scan."""

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


SUFFIX = ".seg.nrrd"
_MOST_FAILURES = 2


@dataclass
class BatchItem:
    """Scan of a batch.

    Attributes:
        node: Node in the scene; None for a file.
        path: File or folder; None for a node.
        series: SeriesInstanceUID; None for a folder with one series.
        target: Path of the result; None for a segmentation in the scene.
        queries: Prompts of another scan's segments in this one; none for an automatic model.
        problem: Reason why it cannot be segmented, if known already.
    """

    name: str
    node: Any = None
    path: Path | None = None
    series: str | None = None
    target: Path | None = None
    queries: Sequence[SegmentQuery] = ()
    problem: str = ""


# Segments a scan on a thread: item, session with the open scan, modality, watch.
ScanRequest = Callable[[BatchItem, Any, str, Watch], AutomaticAnswer]


@dataclass
class BatchResult:
    """Result of a batch.

    Attributes:
        done: Number of scans that were segmented.
        there: Number of scans that already had a result.
        failures: Scan and reason of each failure.
        doubts: Scan and warning of each result whose scan may not suit the model.
    """

    done: int = 0
    there: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    doubts: list[tuple[str, str]] = field(default_factory=list)

    def sentence(self, count: int) -> str:
        """Summarize the batch in a sentence or two."""
        text = _("{done} of {count} scans are segmented.").format(
            done=self.done + self.there, count=count
        )
        if self.there:
            text += _(" {there} had a result already.").format(there=self.there)
        reasons = [f"{name}: {reason}" for name, reason in self.failures[:_MOST_FAILURES]]
        if len(self.failures) > _MOST_FAILURES:
            reasons.append(_("{more} more failed").format(more=len(self.failures) - _MOST_FAILURES))
        doubts = [f"{name}: {remark}" for name, remark in self.doubts[:_MOST_FAILURES]]
        if len(self.doubts) > _MOST_FAILURES:
            more = len(self.doubts) - _MOST_FAILURES
            doubts.append(_("{more} more are doubted.").format(more=more))
        return " ".join([text, "; ".join(reasons), *doubts]).strip()


class BatchRun:
    """Batch segmentation, one scan after another; the scene stays usable.

    Args:
        findItems: Finder of the scans, called on a thread.
    """

    def __init__(
        self,
        selection: Selection,
        parts: Collaborators,
        findItems: Callable[[], Sequence[BatchItem]],
        request: ScanRequest,
        onChanged: Callable[[], None],
    ) -> None:
        self._selection = selection
        self._parts = parts
        self._status = selection.status
        self._findItems = findItems
        self._items: Sequence[BatchItem] = ()
        self._request = request
        self._onChanged = onChanged
        self._place = -1
        self._key: Hashable = None  # of the scan that was read
        self._cancelled = threading.Event()
        self._writer = SegmentWriter()
        self.result = BatchResult()
        self.isRunning = False

    def start(self) -> None:
        """Find the scans, and start with the first one."""
        self.isRunning = True
        self._onChanged()

        def begin(items: Sequence[BatchItem]) -> None:
            if not self._cancelled.is_set():
                self._items = items
                self._next()

        self._status.working(_("Looking for scans..."), None, self._cancelByUser)
        find = self._findItems
        self._parts.background.submit(lambda: _distinct(find()), begin, self._failForGood)

    def cancel(self) -> None:
        """Stop; finished results are kept, and no partial result is left."""
        if self.isRunning:
            self._cancelled.set()
            self._end()

    def _next(self) -> None:
        items, place = self._items, self._place + 1
        # On a thread, since a share may be slow; it also keeps many results from nesting calls.
        self._parts.background.submit(lambda: _firstLeft(items, place), self._begin)

    def _begin(self, place: int) -> None:
        if self._cancelled.is_set():
            return
        self.result.there += place - (self._place + 1)
        self._place = place
        if place >= len(self._items):
            self._end()
            text = self.result.sentence(len(self._items))
            isWhole = self.result.done + self.result.there == len(self._items)
            (self._status.done if isWhole else self._status.problem)(text)
            return
        item = self._items[self._place]
        self._showProgress(0.0)
        try:
            if item.problem:
                raise PumitError(item.problem)
            if item.node is not None and item.node.GetScene() is None:
                raise PumitError(_("The scan is no longer in the scene."))
            volume = None
            if item.node is not None:
                volume = readVolume(item.node, isFinite=False)
            modality = modalityOf(item.node) if item.node is not None else ""
        except PumitError as error:
            self._fail(error)
            return
        self._key = volumeKey(item.node)
        self._parts.compute.ensureReady(
            lambda: self._send(item, volume, modality), self._failForGood
        )

    def _send(self, item: BatchItem, volume: Volume | None, modality: str) -> None:
        if self._cancelled.is_set():
            return

        def work() -> tuple[FoundStructures | None, str]:
            scan = (
                finite(volume) if volume is not None else Volume.read(item.path, series=item.series)
            )
            with self._parts.compute.openSession() as session:
                session.set_volume(scan)
                watch = Watch(self._cancelled.is_set, self._postProgress)
                answer = self._request(item, session, modality, watch)
            if item.target is None:
                return prepareStructures(answer), answer.found.remark
            name, version = f"PUMIT {answer.model}", answer.version or "0"
            algorithm = Algorithm(name, version, "SEMIAUTOMATIC" if item.queries else "AUTOMATIC")
            item.target.parent.mkdir(parents=True, exist_ok=True)
            # Those that occur, as numbered in every scan.
            values, segments = zip(*numbered_segments(answer.found).items(), strict=True)
            write_segmentation(Segmentation(scan, segments, algorithm, values), item.target)
            return None, answer.found.remark

        self._parts.background.submit(work, lambda made: self._take(item, *made), self._fail)

    def _take(self, item: BatchItem, found: FoundStructures | None, remark: str) -> None:
        if self._cancelled.is_set():
            return
        try:
            if found is not None:
                self._show(item, found)
            self.result.done += 1
            if remark:
                self.result.doubts.append((item.name, remark))
        except PumitError as error:
            self._fail(error)
            return
        self._next()

    def _show(self, item: BatchItem, found: FoundStructures) -> None:
        """Add a segmentation of the scan to the scene."""
        if item.node.GetScene() is None:
            raise PumitError(_("The scan is no longer in the scene."))
        if volumeKey(item.node) != self._key:  # such as another frame of a sequence
            raise PumitError(_("The scan has changed; nothing was added."))
        if not found.structures:
            raise PumitError(found.sentence())
        segmentation = newSegmentation(item.node)
        keepPerFrame(segmentation, item.node)
        addStructures(found, segmentation, item.node, self._writer, isPrompted=bool(item.queries))
        self._selection.takeResult(segmentation, item.node)

    def _fail(self, error: Exception) -> None:
        """Record why a scan failed, and continue with the next."""
        if self._cancelled.is_set():
            return
        self.result.failures.append((self._items[self._place].name, str(readable(error))))
        self._next()

    def _failForGood(self, error: Exception) -> None:
        """End the batch: without a worker or server, the next scan would fail as well."""
        if not self._cancelled.is_set():
            self._end()
            self._status.showError(error)

    def _end(self) -> None:
        self.isRunning = False
        self._onChanged()

    def _postProgress(self, fraction: float) -> None:
        self._parts.background.post(self._showProgress, fraction)

    def _showProgress(self, fraction: float) -> None:
        if not self.isRunning:
            return
        count = len(self._items)
        text = _("Scan {number} of {count}: {name}").format(
            number=self._place + 1, count=count, name=self._items[self._place].name
        )
        self._status.working(text, (self._place + fraction) / count, self._cancelByUser)

    def _cancelByUser(self) -> None:
        self.cancel()
        if not self._items:  # still looking for scans
            self._status.waiting(_("Cancelled."))
            return
        text = self.result.sentence(len(self._items))
        self._status.waiting(_("Cancelled. {text}").format(text=text))


def itemsIn(folder: Path, results: Path | None) -> list[BatchItem]:
    """Find the scans of a folder; reads the headers of all DICOM files, so on a thread.

    Raises:
        PumitError: If the folder cannot be read.
    """
    return [
        BatchItem(s.name, None, s.path, s.series, targetOf(results, s.name))
        for s in find_scans([folder])
    ]


def _distinct(items: Sequence[BatchItem]) -> Sequence[BatchItem]:
    """Return the items; raise a PumitError if two results would have the same name."""
    targets = [str(item.target).casefold() for item in items if item.target is not None]
    counts = Counter(targets)
    twice = [item.name for item in items if counts[str(item.target).casefold()] > 1]
    if twice:
        raise PumitError(
            _("Two scans are called {name}; rename one, or its result would be lost.").format(
                name=twice[0]
            )
        )
    return items


def _firstLeft(items: Sequence[BatchItem], start: int) -> int:
    """Return the index of the first item from `start` on without a result, or their number."""
    left = (i for i in range(start, len(items)) if not _isThere(items[i].target))
    return next(left, len(items))


def _isThere(target: Path | None) -> bool:
    return target is not None and os.path.exists(target)


def targetOf(folder: Path | None, name: str) -> Path | None:
    """Return the path of a scan's result; None for the scene."""
    if folder is None:
        return None
    *parents, last = [safeFileName(part) for part in name.split("/")]
    return folder.joinpath(*parents, f"{last}{SUFFIX}")
