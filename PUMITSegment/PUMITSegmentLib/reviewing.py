"""Review of a scan for another module: its nodes, its edits, and its end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import slicer
from pumit.errors import PumitError
from pumit.geometry import Triple
from pumit.prompts import AnswerPrompt, MaskPrompt
from pumit.volume import Volume
from PUMITSlicerLib.computing.background import BackgroundJob
from PUMITSlicerLib.computing.compute import ComputeState
from PUMITSlicerLib.computing.settings import ComputeMode
from PUMITSlicerLib.label_layers import BINARY_LABELMAP, isEmptySegment
from PUMITSlicerLib.mrml import addVolumeNode
from PUMITSlicerLib.review import Reviewer, ReviewScan, ReviewSegment
from PUMITSlicerLib.terms import Term, TermSearch, newSegment
from slicer.i18n import tr as _

from PUMITSegmentLib.collaborators import Collaborators
from PUMITSegmentLib.scene.click_requests import ClickRequests
from PUMITSegmentLib.scene.selection import Selection
from PUMITSegmentLib.segments.at_place import showSegment
from PUMITSegmentLib.segments.packed_mask import PreparedMask, prepare
from PUMITSegmentLib.segments.provenance import byModel, setProvenance
from PUMITSegmentLib.segments.rating import NOT_RATED, Rating, rate
from PUMITSegmentLib.segments.segment_list import newSegmentation, segmentIDs, segmentName

logger = logging.getLogger(__name__)

_PREDICTED = byModel("AUTOMATIC", "PUMIT", "")
_COLORED = (1, 3)  # numbers of channels that Slicer displays directly
# As Slicer's automatic window, from a subsample of the voxels.
_WINDOW_PERCENTILES, _SAMPLE = (0.1, 99.9), 500_000


@dataclass(frozen=True, eq=False)
class PreparedReview:
    """Scan that is ready to be added to the scene.

    Attributes:
        shown: Volume to show in Slicer.
        window: Width and level of its window.
        masks: Mask of each non-empty segment, cropped.
    """

    given: ReviewScan
    shown: Volume
    window: tuple[float, float]
    masks: Mapping[str, PreparedMask]


def prepareReview(given: ReviewScan) -> PreparedReview:
    """Do the slow preparation before a scan is added to the scene; on a thread."""
    shown = _shown(given.volume)
    sample = shown.array.reshape(-1)[:: max(1, shown.array.size // _SAMPLE)]
    low, high = np.percentile(sample, _WINDOW_PERCENTILES)
    masks = {s.name: prepare(s.mask) for s in given.segments if s.mask is not None}
    window = (max(float(high - low), 1e-6), float(high + low) / 2)
    filled = {name: mask for name, mask in masks.items() if mask.voxels.size}
    return PreparedReview(given, shown, window, filled)


@dataclass(eq=False)
class CheckedScan:
    """Reviewed scan in the scene.

    Attributes:
        clicks: Number of prompts given so far, including undone ones.
    """

    given: ReviewScan
    volumeNode: Any
    segmentationNode: Any
    clicks: int = 0
    _promptCount: int = 0
    _kept: tuple = field(default=())
    _given: tuple = field(default=())

    @property
    def isThere(self) -> bool:
        """Whether its nodes are in the scene."""
        return None not in (self.volumeNode.GetScene(), self.segmentationNode.GetScene())

    @property
    def isEdited(self) -> bool:
        """Whether its segments changed since they were opened or saved."""
        return self._kept != self.state()

    def places(self, segmentID: str) -> tuple[Triple, ...]:
        """Return places where a model may be wrong, LPS mm; none once the segment was changed."""
        (state,) = [each for each in self.state() if each[0] == segmentID] or [None]
        if state not in self._given:
            return ()
        return next((s.places for s in self.given.segments if s.name == state[1]), ())

    def noteKept(self, state: tuple) -> None:
        """Record that the segments in this state were saved."""
        self._kept = state

    def noteClicks(self, promptCount: int) -> None:
        """Count new prompts."""
        self.clicks += max(0, promptCount - self._promptCount)
        self._promptCount = promptCount

    def state(self) -> tuple:
        """Return a key that changes when segments are edited or renamed."""
        segmentation = self.segmentationNode.GetSegmentation()
        state = []
        for each in segmentIDs(self.segmentationNode):
            segment = segmentation.GetSegment(each)
            image = segment.GetRepresentation(BINARY_LABELMAP)
            time = image.GetMTime() if image is not None else 0
            state.append((each, segment.GetName(), time))
        return tuple(state)


class Reviewing:
    """Review of scans for another module, one at a time."""

    def __init__(self, selection: Selection, requests: ClickRequests, parts: Collaborators) -> None:
        self._selection = selection
        self._requests = requests
        self._parts = parts
        self._writer = parts.writer
        self._search = TermSearch()
        self._terms: dict[str, Term] = {}
        # Session that has opened the next scan, and the job that opens it.
        self._ahead: Any = None
        self._starting: BackgroundJob | None = None
        self._isLeft = threading.Event()
        self.reviewer: Reviewer | None = None
        self.scan: CheckedScan | None = None
        selection.listeners.append(self._follow)

    @property
    def isShown(self) -> bool:
        """Whether the scan under review is the module's current scan."""
        scan = self.scan
        chosen = (self._selection.volumeNode, self._selection.segmentationNode)
        return scan is not None and chosen == (scan.volumeNode, scan.segmentationNode)

    prepare = staticmethod(prepareReview)

    def open(self, prepared: PreparedReview, reviewer: Reviewer) -> CheckedScan:
        """Add a scan to the scene and select it; earlier scans stay in the scene.

        Raises:
            PumitError: If the scene is changing, or a mask does not fit the scan.
        """
        if self._selection.parameters is None:
            raise PumitError(_("The scene is changing; wait a moment."))
        given = prepared.given
        # Shared: only the segments are read back from the scene.
        volumeNode = addVolumeNode(
            given.name, prepared.shown, window=prepared.window, isShared=True
        )
        segmentationNode = newSegmentation(volumeNode)
        # Labels without their own colours share Slicer's default.
        colors = [segment.color_rgb for segment in given.segments]
        try:
            for segment in given.segments:
                color = segment.color_rgb if colors.count(segment.color_rgb) == 1 else None
                self._add(segment, color, prepared.masks, segmentationNode, volumeNode)
        except BaseException:
            _remove(segmentationNode, volumeNode)
            raise
        scan = CheckedScan(given, volumeNode, segmentationNode)
        scan._given = scan.state()
        scan.noteKept(scan._given)
        self.reviewer = reviewer
        self.show(scan)
        return scan

    def show(self, scan: CheckedScan) -> None:
        """Select a scan that is in the scene."""
        selection, node = self._selection, scan.segmentationNode
        self.scan = scan
        selection.takeResult(node, scan.volumeNode)
        selection.parameters.sourceVolume = scan.volumeNode
        selection.parameters.segmentation = node
        filled = [each for each in segmentIDs(node) if not isEmptySegment(node, each)]
        first = filled[:1] or segmentIDs(node)[:1]
        selection.selectSegment(first[0] if first else "")
        if filled:
            showSegment(node, filled[0])
        self._requests.warmUp()
        selection.changed()

    def masks(self, scan: CheckedScan | None = None) -> list[tuple[str, PreparedMask]]:
        """Return name and mask of each non-empty segment.

        Raises:
            PumitError: If a segment cannot be read.
        """
        scan = scan or self.scan
        assert scan is not None
        found = []
        for each in segmentIDs(scan.segmentationNode):
            mask = self._writer.readPart(scan.segmentationNode, each, scan.volumeNode)
            if mask.voxels.any():
                found.append((segmentName(scan.segmentationNode, each), mask))
        return found

    def places(self, segmentID: str) -> tuple[Triple, ...]:
        """Return places where an unchanged segment by a model may be wrong, LPS mm."""
        return self.scan.places(segmentID) if self.scan is not None and self.isShown else ()

    def close(self, scan: CheckedScan) -> None:
        """Remove a scan and its nodes from the scene."""
        if scan is self.scan:
            self.scan = self.reviewer = None
        _remove(scan.segmentationNode, scan.volumeNode)
        self._selection.changed()

    def startOn(self, prepared: PreparedReview) -> None:
        """Let a local worker open the next scan in advance."""
        self._letGo()
        compute = self._parts.compute
        isThere = compute.state in (ComputeState.READY, ComputeState.STARTING)
        if compute.settings.mode is not ComputeMode.LOCAL or not isThere:
            return

        isLeft = self._isLeft = threading.Event()

        def start() -> Any:
            session = compute.openSession()
            try:
                session.set_volume(prepared.shown)
            except BaseException:
                session.close()
                raise
            if isLeft.is_set():  # not closed elsewhere then
                session.close()
            return session

        def keep(session: Any) -> None:
            self._ahead = session

        def forgo(error: Exception) -> None:
            logger.info("The next scan is not begun with: %s", type(error).__name__)

        def begin() -> None:
            if not isLeft.is_set():
                self._starting = self._parts.background.submit(start, keep, forgo)

        compute.ensureReady(begin, forgo)

    def finish(self) -> None:
        """Save the segments when the module closes."""
        if self.reviewer is not None:
            self.reviewer.keepAtOnce()
        self.leave()

    def leave(self) -> None:
        """End the review; the nodes stay in the scene."""
        self._letGo()
        self.scan = self.reviewer = None

    def _letGo(self) -> None:
        session, self._ahead = self._ahead, None
        self._isLeft.set()
        if self._starting is not None:
            self._starting.cancel()
        if session is not None:
            self._parts.background.submit(session.close)

    def _term(self, segment: ReviewSegment) -> Term:
        """Return the term of a segment, cached, as unknown names take longest."""
        text = segment.terminology or segment.name
        if text not in self._terms:
            search = self._search
            found = search.search(text, 1) if text.isdigit() else [search.named(text)]
            self._terms[text] = (found[0] if found else None) or search.generic()
        return self._terms[text]

    def _add(
        self,
        segment: ReviewSegment,
        color: Triple | None,
        masks: Mapping[str, PreparedMask],
        segmentationNode,
        volumeNode,
    ) -> None:
        segmentID = newSegment(segmentationNode, segment.name, self._term(segment))
        made = segmentationNode.GetSegmentation().GetSegment(segmentID)
        if color is not None:
            made.SetColor(*color)
        if segment.name not in masks:
            return
        self._writer.write(segmentationNode, segmentID, masks[segment.name], volumeNode)
        if segment.isByModel:
            setProvenance(made, _PREDICTED)
            rate(made, Rating(segment.quality or NOT_RATED))

    def _follow(self) -> None:
        scan, reviewer = self.scan, self.reviewer
        if scan is None:
            return
        if not scan.isThere:
            self.leave()
            if reviewer is not None:
                reviewer.onScanRemoved()
        elif self.isShown:
            ids = segmentIDs(scan.segmentationNode)
            scan.noteClicks(sum(self._clicks(each) for each in ids))

    def _clicks(self, segmentID: str) -> int:
        """Return the number of prompts of a segment given by a person, without initial masks."""
        prompts = self._selection.book.read(segmentID).prompts
        return sum(not isinstance(each, AnswerPrompt | MaskPrompt) for each in prompts)


def _shown(volume: Volume) -> Volume:
    """Return the volume to show; of channels that are not colours only the first."""
    return volume if volume.channels in _COLORED else replace(volume, array=volume.array[0])


def _remove(*nodes: Any) -> None:
    """Remove nodes with their display and storage nodes."""
    scene = slicer.mrmlScene
    for node in nodes:
        if node.GetScene() is None:
            continue
        own = [node.GetNthDisplayNode(i) for i in range(node.GetNumberOfDisplayNodes())]
        own.append(node.GetStorageNode())
        scene.RemoveNode(node)
        for each in own:
            if each is not None and each.GetScene() is not None:
                scene.RemoveNode(each)
