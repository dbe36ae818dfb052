"""Comparison of two segmentations of the scene by `pumit evaluate`, with their differences."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pumit.errors import PumitError
from PUMITSlicerLib.scan_of import scanOf
from PUMITSlicerLib.shown_place import showPlace
from PUMITSlicerLib.status import StatusBoard
from slicer.i18n import tr as _

from PUMITTrainLib.cases.scene_snapshot import SceneSnapshot, snapshot
from PUMITTrainLib.collaborators import Collaborators
from PUMITTrainLib.processes import recordOf, sentenceOf
from PUMITTrainLib.setup import Setup

_MOST_PLACES = 6
_SHOWN_PLACES = 12


@dataclass(frozen=True)
class ClassAgreement:
    """Agreement of a class in two segmentations; None for undefined values.

    Attributes:
        nsd: Normalized surface Dice: fraction of both surfaces within the tolerance of each
            other.
        hd95Mm: 95th percentile of the distances between the surfaces, mm.
        comparedMl: Volume in the compared segmentation, mL.
        referenceMl: Volume in the reference, mL.
    """

    name: str
    dice: float | None
    nsd: float | None
    hd95Mm: float | None
    comparedMl: float | None
    referenceMl: float | None

    @property
    def differenceMl(self) -> float | None:
        """Compared volume minus reference volume, mL."""
        if self.comparedMl is None or self.referenceMl is None:
            return None
        return self.comparedMl - self.referenceMl


@dataclass(frozen=True)
class DifferentPlace:
    """Place where two segmentations differ.

    Attributes:
        isMissing: Whether the compared segmentation lacks voxels of the reference there.
        depthMm: Distance to where both agree, mm.
        ras: World position, RAS mm.
    """

    name: str
    isMissing: bool
    depthMm: float
    ras: tuple[float, float, float]


class PairComparison:
    """Comparison of a segmentation with a reference in a subprocess; both may change while it runs.

    Attributes:
        classes: Agreement of each class.
        places: Places of the largest differences, the largest first.
        title: What was compared with what; "" for nothing yet.
    """

    def __init__(
        self,
        parts: Collaborators,
        status: StatusBoard,
        setup: Setup,
        onChanged: Callable[[], None],
    ) -> None:
        self._parts = parts
        self._status = status
        self._setup = setup
        self._onChanged = onChanged
        self._cancel: Callable[[], None] | None = None
        self._folder: Path | None = None
        self._found: tuple[list[ClassAgreement], list[DifferentPlace]] = ([], [])
        self.classes: tuple[ClassAgreement, ...] = ()
        self.places: tuple[DifferentPlace, ...] = ()
        self.title = ""

    @property
    def isRunning(self) -> bool:
        """Whether a comparison is running."""
        return self._cancel is not None

    def start(self, reference: Any, compared: Any, toleranceMm: float) -> None:
        """Start a comparison; earlier results are discarded.

        Args:
            toleranceMm: Distance of surfaces that counts as agreement, mm.
        """
        if self.isRunning:
            return
        self.classes, self.places, self._found = (), (), ([], [])
        try:
            taken = self._taken(reference, compared)
        except PumitError as error:
            self._status.problem(str(error))
            self._onChanged()
            return
        self.title = _("{compared} against {reference}").format(
            compared=compared.GetName(), reference=reference.GetName()
        )
        self._status.working(_("Comparing two segmentations..."), None, self.cancel)
        self._folder = folder = Path(tempfile.mkdtemp(prefix="pumit-compare-"))
        job = self._parts.background.submit(
            lambda: [each.writeLabel(folder) for each in taken],
            lambda files: self._run(files, toleranceMm),
            lambda error: self._end(sentenceOf(error)),
        )
        self._cancel = job.cancel
        self._onChanged()

    def cancel(self) -> None:
        """Cancel the comparison."""
        if self._cancel is not None:
            self._cancel()
            self._clear()
            self._status.waiting(_("The comparison was cancelled."))
            self._onChanged()

    def close(self) -> None:
        """Stop, and delete temporary files."""
        if self._cancel is not None:
            self._cancel()
        self._clear(waits=True)

    def forget(self) -> None:
        """Discard results of another scene."""
        self.cancel()
        self.classes, self.places, self.title = (), (), ""

    def show(self, index: int) -> None:
        """Jump the slice views to one of the places."""
        if 0 <= index < len(self.places):
            showPlace(self.places[index].ras)

    def _taken(self, reference: Any, compared: Any) -> list[SceneSnapshot]:
        """Copy both, on the grid of one scan.

        Raises:
            PumitError: If they cannot be compared.
        """
        if self._setup.isMissing:
            raise PumitError(self._setup.sentence)
        if reference is None or compared is None:
            raise PumitError(_("Choose two segmentations first."))
        if reference is compared:
            raise PumitError(_("Choose two different segmentations."))
        scan = _scanOf(reference) or _scanOf(compared)
        if scan is None:
            raise PumitError(
                _(
                    "Neither segmentation says on which scan it was drawn; choose its source "
                    "volume in the Segment Editor."
                )
            )
        return [snapshot("compared", [scan], compared), snapshot("reference", [scan], reference)]

    def _run(self, files: list[Path], toleranceMm: float) -> None:
        compared, reference = map(str, files)
        arguments = ["evaluate", "--predictions", compared, "--labels", reference]
        arguments += ["--nsd", f"{toleranceMm:g}", "--places", str(_MOST_PLACES), "--json"]

        def end(status: int, message: str) -> None:
            failed = message or _("The segmentations cannot be compared.")
            self._end("" if status == 0 else failed)

        self._cancel = self._parts.programs.run(arguments, self._take, end)

    def _take(self, line: str) -> None:
        record, (classes, places) = recordOf(line), self._found
        if "label" in record:
            classes.append(_agreement(record))
        places += [_place(each) for each in record.get("places", ())]

    def _end(self, problem: str) -> None:
        self._clear()
        if problem:
            self._status.problem(problem)
        else:
            classes, places = self._found
            self.classes = tuple(classes)
            ordered = sorted(places, key=lambda place: -place.depthMm)
            self.places = tuple(ordered[:_SHOWN_PLACES])
            if any(each.comparedMl and each.referenceMl for each in classes):
                self._status.done(_("The segmentations are compared."))
            else:
                self._status.problem(
                    _(
                        "No class has voxels in both: give segments that belong together the same "
                        "name."
                    )
                )
        self._onChanged()

    def _clear(self, *, waits: bool = False) -> None:
        folder, self._folder, self._cancel = self._folder, None, None
        if folder is None:
            return
        if waits:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            self._parts.background.submit(lambda: shutil.rmtree(folder, ignore_errors=True))


def _scanOf(labelNode: Any) -> Any:
    """Return the scan on which labels were drawn; a label map has its own grid."""
    if labelNode.IsA("vtkMRMLLabelMapVolumeNode"):
        return labelNode
    return scanOf(labelNode)


def _agreement(record: Mapping[str, Any]) -> ClassAgreement:
    def number(key: str) -> float | None:
        value = record.get(key)
        return float(value) if isinstance(value, (int, float)) else None

    keys = ("dice", "nsd", "hd95_mm", "predicted_ml", "true_ml")
    return ClassAgreement(str(record["label"]), *(number(key) for key in keys))


def _place(record: Mapping[str, Any]) -> DifferentPlace:
    r, a, s = (float(part) for part in record["position_ras"])
    return DifferentPlace(
        str(record["label"]), bool(record["is_missing"]), float(record["depth_mm"]), (r, a, s)
    )
