"""Generated example scans with organ segments, for a first training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import slicer
from PUMITSlicerLib.computing.background import Background, BackgroundJob
from PUMITSlicerLib.mrml import addVolumeNode, ijkToRas, orientedImage
from PUMITSlicerLib.status import StatusBoard
from PUMITSlicerLib.terms import TermSearch, newSegment
from slicer.i18n import tr as _

if TYPE_CHECKING:
    from PUMITSlicerLib.generated_scan import GeneratedScan

COUNT = 6
ORGANS = ("liver", "spleen", "left kidney", "right kidney")
# Usual abdominal window.
_WINDOW, _LEVEL = 400, 40
_BINARY = "Binary labelmap"


class ExampleCases:
    """Example cases, added to the scene one by one, each generated on a thread.

    Args:
        onDone: Callback once all are in the scene.
    """

    def __init__(
        self, background: Background, status: StatusBoard, onDone: Callable[[], None]
    ) -> None:
        self._background = background
        self._status = status
        self._onDone = onDone
        self._job: BackgroundJob | None = None
        self._search = TermSearch()

    @property
    def isRunning(self) -> bool:
        """Whether scans are being generated."""
        return self._job is not None and self._job.isActive

    def add(self, count: int = COUNT) -> None:
        """Add this many patients, unless it is running."""
        if not self.isRunning:
            self._make(1, count)

    def cancel(self) -> None:
        """Stop; cases that were added stay."""
        if self.isRunning:
            self._job.cancel()
            self._status.waiting(_("Cancelled; scans that were added already stay in the scene."))

    def _make(self, patient: int, count: int) -> None:
        self._status.working(
            _("Making scan {number} of {count}...").format(number=patient, count=count),
            (patient - 1) / count,
            self.cancel,
        )

        def make() -> GeneratedScan:
            from PUMITSlicerLib.generated_scan import generatedScan

            return coarse(generatedScan(patient))

        def take(scan: GeneratedScan) -> None:
            volumeNode, node = addCase(
                _("Example {number}").format(number=patient), scan, self._search
            )
            if patient == 1:
                slicer.util.setSliceViewerLayers(background=volumeNode, fit=True)
            else:  # six overlaid segmentations would be unreadable
                node.SetDisplayVisibility(False)
            if patient < count:
                self._make(patient + 1, count)
            else:
                message = _("{count} generated abdomens are in the scene: press Add.")
                self._status.done(message.format(count=count))
                self._onDone()

        self._job = self._background.submit(
            make, take, lambda error: self._status.problem(str(error))
        )


def coarse(scan: GeneratedScan) -> GeneratedScan:
    """Subsample rows and columns by two: an example should train in minutes."""
    volume, (depth, height, width) = scan.volume, scan.volume.spacing_mm
    return replace(
        scan,
        volume=replace(
            volume,
            array=np.ascontiguousarray(volume.array[:, ::2, ::2]),
            spacing_mm=(depth, 2 * height, 2 * width),
        ),
        masks={name: np.ascontiguousarray(mask[:, ::2, ::2]) for name, mask in scan.masks.items()},
    )


def addCase(name: str, scan: GeneratedScan, search: TermSearch) -> tuple[Any, Any]:
    """Add a generated scan and a segmentation of its organs to the scene.

    Args:
        search: Search for the organs' codes; shared, since it reads long lists.

    Returns:
        The new volume node and segmentation node.
    """
    volumeNode = addVolumeNode(name, scan.volume)
    display = volumeNode.GetDisplayNode()
    display.SetAutoWindowLevel(False)
    display.SetWindowLevel(_WINDOW, _LEVEL)
    node = slicer.mrmlScene.AddNewNodeByClass(
        "vtkMRMLSegmentationNode", _("{name} segmentation").format(name=name)
    )
    node.CreateDefaultDisplayNodes()
    node.SetReferenceImageGeometryParameterFromVolumeNode(volumeNode)
    for organ in ORGANS:
        segmentID = newSegment(node, organ, search=search)
        image = slicer.vtkOrientedImageData()
        image.DeepCopy(orientedImage(scan.masks[organ], ijkToRas(volumeNode)))
        segment = node.GetSegmentation().GetSegment(segmentID)
        # Each gets its own image; new segments share one, with a value each.
        segment.SetLabelValue(1)
        segment.AddRepresentation(_BINARY, image)
    return volumeNode, node
