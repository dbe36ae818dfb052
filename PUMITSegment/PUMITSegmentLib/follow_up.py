"""Follow-up: propagates an earlier scan's segments to the current scan, and compares both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import slicer
import vtk
from pumit.client.remote_models import AutomaticAnswer
from pumit.errors import PumitError
from pumit.prompts import Prompt
from pumit.segmentation import ClassLabel, LabelMap, region_type
from pumit.system.watch import Watch
from pumit.volume import Volume
from PUMITSlicerLib.mrml import VolumeFrame, addVolumeNode, finite, readVolume, volumeKey
from PUMITSlicerLib.scan_of import scanOf
from PUMITSlicerLib.status import Choice
from PUMITSlicerLib.terms import uniqueText
from slicer.i18n import tr as _

from PUMITSegmentLib.automatic import FoundStructures, prepareStructures
from PUMITSegmentLib.collaborators import Collaborators
from PUMITSegmentLib.prompts.geometry import promptsOf
from PUMITSegmentLib.prompts.tag import promptNodesOf, tagOf
from PUMITSegmentLib.scene.same_patient import (
    Kinship,
    nameWithPatient,
    ofOnePatient,
    reversedDates,
    twoPatientsInWords,
    vouchForPatient,
)
from PUMITSegmentLib.scene.selection import Selection
from PUMITSegmentLib.segments.appearance import Appearance
from PUMITSegmentLib.segments.as_voxels import isOfVoxels
from PUMITSegmentLib.segments.segment_list import segmentIDs, segmentName
from PUMITSegmentLib.segments.writer import SegmentWriter
from PUMITSegmentLib.session_work import SessionWork

if TYPE_CHECKING:
    from pumit.followup.follow_up import FollowUp
    from pumit.followup.registration import Registration

# Node references of a segmentation to its earlier segmentation, registration and table, saved with
# the scene.
_EARLIER = "PUMITSegment.followedFrom"
_TRANSFORM = "PUMITSegment.followedBy"
_TABLE = "PUMITSegment.followedTable"
_LPS_TO_RAS = np.diag([-1.0, -1.0, 1.0, 1.0])
_COLUMNS = ("volume_ml", "long_axis_mm", "perpendicular_mm", "longest_mm")


class EarlierScan:
    """Earlier segmentation with its scan, read once.

    Raises:
        PumitError: If the scan is missing, or the segments are not label maps.
    """

    def __init__(self, segmentationNode) -> None:
        scan = scanOf(segmentationNode)
        if scan is None:
            raise PumitError(_("The scan of this segmentation is not in the scene; load it."))
        if not isOfVoxels(segmentationNode):
            raise PumitError(
                _("{name} is made of surfaces or contours; convert it to voxels first.").format(
                    name=segmentationNode.GetName()
                )
            )
        self.node, self.scan = segmentationNode, scan
        self.volume: Volume = readVolume(scan, isFinite=False)
        found = masksOf(segmentationNode, scan)
        self.segments = list(found.values())
        if not self.segments:
            raise PumitError(_("The earlier segmentation is empty; segment its lesions first."))
        self.labels: dict[str, ClassLabel] = {}
        for segmentID, (name, _mask) in found.items():
            look = Appearance.of(segmentationNode, segmentID)
            red, green, blue = look.color
            self.labels[name] = ClassLabel(name, look.terminology, (red, green, blue))
        self.prompts = _clicksOf(segmentationNode, scan)


class FollowUpWork:
    """Follow-up of an earlier segmentation in the current scan.

    The registration is shown before it is used. The user is asked if the scan is not
    shown. Undo reverts all added segments in one step.

    Attributes:
        registration: Registration that is shown and not yet used, or None.
    """

    def __init__(
        self,
        selection: Selection,
        parts: Collaborators,
        addFound: Callable[[FoundStructures], object],
        confirm: Callable[[str], bool],
    ) -> None:
        self._selection = selection
        self._compute = parts.compute
        self._addFound = addFound
        self._status = selection.status
        self._confirm = confirm
        self._work = SessionWork(selection, parts)
        self._work.onChanged = lambda: self.onChanged()
        self._earlier: EarlierScan | None = None
        self._asked: tuple = ()
        self._preview = RegistrationPreview()
        self.registration: Registration | None = None
        self.onChanged: Callable[[], None] = lambda: None

    @property
    def isRunning(self) -> bool:
        """Whether a computation is running."""
        return self._work.isRunning

    @property
    def whyNot(self) -> str:
        """Why nothing can be started now, or ""."""
        return self._work.whyNot

    def candidates(self) -> list:
        """Return the non-empty segmentations of other scans, except hidden nodes."""
        volumeNode = self._selection.volumeNode
        if volumeNode is None:
            return []
        found = []
        for node in slicer.util.getNodesByClass("vtkMRMLSegmentationNode"):
            scan = scanOf(node)
            isOther = scan is not None and scan is not volumeNode
            if isOther and segmentIDs(node) and not node.GetHideFromEditors():
                found.append(node)
        return found

    # 1. Registration, on a thread

    def start(self, segmentationNode) -> None:
        """Register the scan of an earlier segmentation to the current one, and show the result."""
        if self.isRunning or not self._selection.guard.allows(lambda: self.start(segmentationNode)):
            return
        self.discard()
        volumeNode = self._selection.volumeNode
        try:
            earlier = EarlierScan(segmentationNode)
            if not self._isOfOnePatient(earlier.scan, volumeNode):
                return
            if not self._isInOrder(earlier.scan, volumeNode):
                return
            if ofOnePatient(earlier.scan, volumeNode) is not Kinship.SAME:
                vouchForPatient(earlier.scan, volumeNode)
            later, key = readVolume(volumeNode, isFinite=False), volumeKey(volumeNode)
        except PumitError as error:
            self._status.problem(str(error))
            return

        def work(watch: Watch) -> tuple[Any, Any]:
            from pumit.followup.registration import brought_onto, register

            first, second = finite(earlier.volume), finite(later)
            found = register(
                first,
                second,
                progress=lambda _what, share: watch.report(share),
                cancelled=watch.cancelled,
            )
            return found, brought_onto(second, first, found.inverse)

        def done(result: tuple[Any, Any]) -> None:
            self._earlier, self._asked = earlier, (volumeNode, key)
            if not self._isStill():
                self._drop()
                return
            self._show(*result)

        text = _("Registering {scan}...").format(scan=earlier.scan.GetName())
        self._work.run(text, work, done)

    def _isOfOnePatient(self, earlierNode, laterNode) -> bool:
        names = {"earlier": nameWithPatient(earlierNode), "later": nameWithPatient(laterNode)}
        relation = ofOnePatient(earlierNode, laterNode)
        if relation is Kinship.OTHER:
            if not self._confirm(twoPatientsInWords(earlierNode, laterNode)):
                text = _("{earlier} is of another patient than {later}.")
                self._status.problem(text.format(**names))
                return False
        elif relation is Kinship.UNKNOWN:
            question = _("Are {earlier} and {later} of the same patient, at two dates?")
            if not self._confirm(question.format(**names)):
                return self._refuse()
        return True

    def _isInOrder(self, earlierNode, laterNode) -> bool:
        """Ask if DICOM dates the earlier scan after the later one: grown would be shrunk."""
        days = reversedDates(earlierNode, laterNode)
        if days is None:
            return True
        question = _(
            "{earlier} is of {first}, after {later} of {second}. Is {earlier} the earlier scan "
            "nevertheless? To swap them, answer No, and choose {earlier} under 1. Scan."
        ).format(
            earlier=earlierNode.GetName(), later=laterNode.GetName(), first=days[0], second=days[1]
        )
        return self._confirm(question) or self._refuse()

    def _refuse(self) -> bool:
        self._status.waiting(_("Nothing was changed."))
        return False

    # 2. Preview, to be used or discarded

    def _show(self, registration: Registration, preview) -> None:
        self.registration = registration
        self._preview.show(self._asked[0], self._earlier.scan, preview)
        words = {
            "good": _("Registration good"),
            "check": _("Check the registration"),
            "poor": _("Registration poor"),
        }[registration.fit]
        residual = _("no part of one scan was found in the other.")
        if np.isfinite(registration.shift_mm):
            residual = _("residual misalignment {shift:.1f} mm.").format(
                shift=registration.shift_mm
            )
        question = _("The views show the earlier scan over this one. Use this registration?")
        text = f"{words}: {residual} {question}"
        self._status.caution(
            text, Choice(_("Use it"), self.use), Choice(_("Discard"), self.discard)
        )
        self.onChanged()

    def discard(self) -> None:
        """Discard the registration and its preview."""
        isShown = self.registration is not None
        self._preview.close()
        self.registration = self._earlier = None
        if isShown:
            self._selection.showNextStep()
            self.onChanged()

    def heedScene(self) -> None:
        """Discard a registration whose scans are no longer in use."""
        if self.registration is not None and not self._isStill():
            self._drop()

    def _isStill(self) -> bool:
        """Return whether both scans are unchanged since the registration."""
        volumeNode, key = self._asked
        nodes = (volumeNode, self._earlier.node, self._earlier.scan)
        isThere = all(node.GetScene() is not None for node in nodes)
        return isThere and self._selection.volumeNode is volumeNode and volumeKey(volumeNode) == key

    def _drop(self) -> None:
        self.discard()
        self._status.waiting(_("The scan has changed; nothing was added."))
        self.onChanged()

    # 3. Use: every lesion is searched for and segmented; all are added in one step

    def use(self) -> None:
        """Segment the earlier lesions at their registered positions."""
        if self.registration is None or self.isRunning:
            return
        if not self._isStill():
            self._drop()
            return
        registration, earlier = self.registration, self._earlier
        self.discard()

        def request(session, watch: Watch) -> tuple[FollowUp, FoundStructures | None]:
            from pumit.followup.follow_up import follow_up

            result = follow_up(
                finite(earlier.volume),
                earlier.segments,
                session.volume,
                registration,
                CancellableSession(session, Watch(watch.cancelled)),
                prompts=earlier.prompts,
                progress=lambda _what, share: watch.report(share),
            )
            model = dict((self._compute.capabilities or {}).get("model") or {})
            return result, _structures(result, earlier.labels, model)

        def add(answer: tuple[FollowUp, FoundStructures | None]) -> None:
            self._add(earlier, registration, *answer)

        text = _("Looking for the segments of {scan}...").format(scan=earlier.scan.GetName())
        self._work.start(text, request, add)

    def _add(
        self,
        earlier: EarlierScan,
        registration: Registration,
        result: FollowUp,
        found: FoundStructures | None,
    ) -> None:
        before = set(segmentIDs(self._selection.segmentationNode))
        if found is not None:
            self._addFound(found)
            if set(segmentIDs(self._selection.segmentationNode)) <= before:
                return  # asked or refused: the status shows it
        node = self._selection.segmentationNode
        if node is not None and earlier.node.GetScene() is not None:
            _keep(node, earlier, registration)
            _showTable(node, result)
        self._status.caution(_sentence(result))
        self.onChanged()

    # 4. Comparison again, after corrections

    @property
    def canMeasure(self) -> bool:
        """Whether the segmentation's scan, earlier segmentation and registration are there."""
        node = self._selection.segmentationNode
        if node is None or scanOf(node) is None:
            return False
        return all(node.GetNodeReference(role) for role in (_EARLIER, _TRANSFORM))

    def measure(self) -> None:
        """Compare the current segments of both dates; only the table changes."""
        if self.isRunning or not self.canMeasure:
            return
        node = self._selection.segmentationNode
        volumeNode = scanOf(node)  # another scan may be chosen
        matrix = _LPS_TO_RAS @ _matrixOf(node.GetNodeReference(_TRANSFORM)) @ _LPS_TO_RAS
        try:
            earlier = EarlierScan(node.GetNodeReference(_EARLIER))
            later = readVolume(volumeNode, isFinite=False)
            segments = list(masksOf(node, volumeNode).values())
        except PumitError as error:
            self._status.problem(str(error))
            return

        def work(watch: Watch) -> FollowUp:
            from pumit.followup.follow_up import compare_dates
            from pumit.followup.registration import Registration

            known = Registration(matrix, 0.0, 0.0, 1.0, 1.0)
            return compare_dates(
                finite(earlier.volume), earlier.segments, finite(later), segments, known
            )

        def done(result: FollowUp) -> None:
            if node.GetScene() is not None:
                _showTable(node, result)
                self._status.note(_sentence(result))

        self._work.run(_("Comparing both dates..."), work, done)

    def close(self) -> None:
        """Stop all computation, and remove the preview."""
        if self.isRunning:
            self._work.cancel()
            self._status.waiting("")
        self._preview.close()
        self.registration = self._earlier = None


class CancellableSession:
    """Session whose answers stop when the user cancels."""

    def __init__(self, session, watch: Watch) -> None:
        self._session = session
        self._watch = watch

    def answer(self, prompts: Sequence[Prompt], segment: str = "1") -> Any:
        """Answer prompts; the caller keeps them."""
        return self._session.answer(prompts, segment, watch=self._watch)


class RegistrationPreview:
    """Overlay of the earlier scan on the current one in the slice views."""

    def __init__(self) -> None:
        self._node: Any = None
        self._before: list[tuple[Any, str | None, float]] = []

    def show(self, laterNode, earlierNode, array) -> None:
        """Show the earlier scan, resampled to the later one's grid, in the foreground."""
        self.close()
        grid = readVolume(laterNode, isFinite=False)
        volume = Volume(array, grid.spacing_mm, grid.origin_lps, grid.direction)
        name = _("{scan}, registered").format(scan=earlierNode.GetName())
        # Marked as made from the later scan, whose grid it has.
        self._node = addVolumeNode(name, volume, laterNode)
        self._node.SetHideFromEditors(True)
        self._node.SetSaveWithScene(False)
        for composite in slicer.util.getNodesByClass("vtkMRMLSliceCompositeNode"):
            if composite.GetBackgroundVolumeID() == laterNode.GetID():
                before = composite.GetForegroundVolumeID(), composite.GetForegroundOpacity()
                self._before.append((composite, *before))
                composite.SetForegroundVolumeID(self._node.GetID())
                composite.SetForegroundOpacity(0.5)

    def close(self) -> None:
        """Restore the slice views."""
        for composite, volumeID, opacity in self._before:
            isOurs = self._node is not None and (
                composite.GetForegroundVolumeID() == self._node.GetID()
            )
            if isOurs:
                composite.SetForegroundVolumeID(volumeID)
                composite.SetForegroundOpacity(opacity)
        self._before = []
        if self._node is not None and self._node.GetScene() is not None:
            slicer.mrmlScene.RemoveNode(self._node)
        self._node = None


def masksOf(segmentationNode, volumeNode) -> dict[str, tuple[str, Any]]:
    """Return unique name and mask of the non-empty segments by ID, on the grid of a scan."""
    writer = SegmentWriter()
    found: dict[str, tuple[str, Any]] = {}
    for segmentID in segmentIDs(segmentationNode):
        mask = writer.read(segmentationNode, segmentID, volumeNode)
        if mask.any():
            taken = {name for name, _mask in found.values()}
            name = uniqueText(segmentName(segmentationNode, segmentID), taken)
            found[segmentID] = (name, mask)
    return found


def _clicksOf(segmentationNode, volumeNode) -> list[Prompt]:
    toLps = VolumeFrame(volumeNode).worldToLps
    found: list[Prompt] = []
    for node in promptNodesOf(segmentationNode):
        tag = tagOf(node, segmentationNode)
        if tag is not None and tag.kind is not None:
            found += [prompt for _key, prompt in promptsOf(node, tag, toLps)]
    return found


def _structures(
    result: FollowUp, labels: dict[str, ClassLabel], model: dict[str, str]
) -> FoundStructures | None:
    if not result.segments:
        return None
    regions = np.zeros(result.segments[0][1].shape, region_type(len(result.segments)))
    for number, (_name, mask) in enumerate(result.segments):
        regions |= mask.astype(regions.dtype) << regions.dtype.type(number)
    classes = tuple(labels.get(name, ClassLabel(name)) for name, _mask in result.segments)
    found = LabelMap.of_regions(regions, classes)
    return prepareStructures(
        AutomaticAnswer(found, model.get("name", ""), model.get("version", ""))
    )


def _keep(segmentationNode, earlier: EarlierScan, registration: Registration) -> None:
    """Store the earlier segmentation and the registration in the scene."""
    transform = segmentationNode.GetNodeReference(_TRANSFORM)
    if transform is None:
        name = _("{scan}, registration of the earlier scan").format(scan=earlier.scan.GetName())
        transform = slicer.mrmlScene.AddNewNodeByClass(
            "vtkMRMLLinearTransformNode", slicer.mrmlScene.GenerateUniqueName(name)
        )
    matrix = _LPS_TO_RAS @ registration.matrix @ _LPS_TO_RAS
    transform.SetMatrixTransformToParent(slicer.util.vtkMatrixFromArray(matrix))
    segmentationNode.SetNodeReferenceID(_TRANSFORM, transform.GetID())
    segmentationNode.SetNodeReferenceID(_EARLIER, earlier.node.GetID())


def _matrixOf(transformNode) -> Any:
    matrix = vtk.vtkMatrix4x4()
    transformNode.GetMatrixTransformToParent(matrix)
    return slicer.util.arrayFromVTKMatrix(matrix)


def _showTable(segmentationNode, result: FollowUp) -> None:
    """Write the lesions of both dates to a table node referenced by the segmentation."""
    from pumit.followup.files import table_of

    node = segmentationNode.GetNodeReference(_TABLE)
    if node is None:
        name = _("Follow-up: {segmentation}").format(segmentation=segmentationNode.GetName())
        node = slicer.mrmlScene.AddNewNodeByClass(
            "vtkMRMLTableNode", slicer.mrmlScene.GenerateUniqueName(name)
        )
        segmentationNode.SetNodeReferenceID(_TABLE, node.GetID())
    rows = table_of(result)
    columns: dict[str, list[Any]] = {"lesion": [], "change": []} | {
        f"{date} {name}": [] for name in _COLUMNS for date in ("earlier", "later")
    }
    columns |= {"volume_change_percent": [], "remark": []}
    for row in rows:
        for name, values in columns.items():
            date, _space, size = name.partition(" ")
            value = row[date][size] if size else row[name]
            values.append("" if value is None else f"{value:g}" if size else str(value))
    table = vtk.vtkTable()
    for name, values in columns.items():
        column = vtk.vtkStringArray()
        column.SetName(name)
        for value in values:
            column.InsertNextValue(value)
        table.AddColumn(column)
    node.SetAndObserveTable(table)


def _sentence(result: FollowUp) -> str:
    """Return a status with the number of lesions per kind of change."""
    words = {
        "stable": _("stable"),
        "grown": _("grown"),
        "shrunk": _("shrunk"),
        "new": _("new"),
        "gone": _("gone"),
        "merged": _("merged"),
        "split": _("split"),
        "regrouped": _("regrouped"),
        "not shown": _("not in this scan"),
    }
    kinds = [change.change for change in result.changes]
    counts = [f"{kinds.count(kind)} {word}" for kind, word in words.items() if kind in kinds]
    text = _("Follow-up: {counts}; check them, and correct by clicks.")
    return text.format(counts=", ".join(counts))
