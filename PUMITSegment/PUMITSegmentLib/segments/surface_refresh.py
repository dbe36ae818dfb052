"""Update of segments' 3D surfaces without blocking the application.

Slicer converts a segment to its surface each time the segment is written, which blocks 0.3 to 1 s
per organ. Here the old surface stays until a thread has computed the new one, with the filters and
settings of Slicer's own conversion; VTK's filters release Python's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import slicer
import vtk
from PUMITSlicerLib.computing.background import Background
from PUMITSlicerLib.labelmap_grid import inIndices

from PUMITSegmentLib.segments.occupied import BINARY_LABELMAP

CLOSED_SURFACE = "Closed surface"
# Segmentation node, segment ID, and the frame of a sequence.
_Surface = tuple[Any, str, int | None]
_FLYING_EDGES = "0"


@dataclass(frozen=True)
class SurfaceSettings:
    """Parameters of a segmentation's vtkBinaryLabelmapToClosedSurfaceConversionRule."""

    smoothing: float
    decimation: float
    hasNormals: bool

    @staticmethod
    def of(segmentation) -> SurfaceSettings | None:
        """Return a segmentation's settings; None if only Slicer itself supports them."""
        rule = slicer.vtkBinaryLabelmapToClosedSurfaceConversionRule

        def number(name: str, default: float) -> float:
            return float(segmentation.GetConversionParameter(name) or default)

        method = segmentation.GetConversionParameter(rule.GetConversionMethodParameterName())
        smoothing = number(rule.GetSmoothingFactorParameterName(), 0.5)
        isJoint = number(rule.GetJointSmoothingParameterName(), 0) > 0 and smoothing > 0
        if isJoint or method not in ("", _FLYING_EDGES):
            return None
        return SurfaceSettings(
            smoothing,
            number(rule.GetDecimationFactorParameterName(), 0.0),
            number(rule.GetComputeSurfaceNormalsParameterName(), 1) > 0,
        )


def surfaceOf(image, label: int, settings: SurfaceSettings) -> vtk.vtkPolyData:
    """Return the surface of a label as in Slicer's conversion; thread-safe.

    Args:
        image: A vtkOrientedImageData that is not used elsewhere.
    """
    # 1. Voxels in index coordinates; the transform to the world comes last.
    i, i2, j, j2, k, k2 = image.GetExtent()
    matrix = vtk.vtkMatrix4x4()
    image.GetImageToWorldMatrix(matrix)
    toWorld = vtk.vtkTransform()
    toWorld.SetMatrix(matrix)
    # Padded with background, so that surfaces at the image border are closed.
    padded = vtk.vtkImageConstantPad()
    padded.SetInputData(inIndices(image))
    padded.SetOutputWholeExtent(i - 1, i2 + 1, j - 1, j2 + 1, k - 1, k2 + 1)
    # 2. Extract the surface, decimate and smooth it, as Slicer does.
    edges = vtk.vtkDiscreteFlyingEdges3D()
    edges.SetInputConnection(padded.GetOutputPort())
    edges.ComputeGradientsOff()
    edges.ComputeNormalsOff()
    edges.SetValue(0, label)
    last = edges
    if settings.decimation > 0:
        last = _after(last, vtk.vtkDecimatePro())
        last.SetFeatureAngle(60)
        last.SplittingOff()
        last.PreserveTopologyOn()
        last.SetMaximumError(1)
        last.SetTargetReduction(settings.decimation)
    if settings.smoothing > 0:
        last = _after(last, vtk.vtkWindowedSincPolyDataFilter())
        last.SetNumberOfIterations(int(20 + settings.smoothing * 40))
        last.SetPassBand(10.0 ** (-4.0 * settings.smoothing))
        last.BoundarySmoothingOff()
        last.FeatureEdgeSmoothingOff()
        last.NonManifoldSmoothingOn()
        last.NormalizeCoordinatesOn()
    # 3. Transform to the world, and compute normals.
    last = _after(last, vtk.vtkTransformPolyDataFilter())
    last.SetTransform(toWorld)
    if settings.hasNormals:
        last = _after(last, vtk.vtkPolyDataNormals())
        last.ConsistencyOn()
        last.SplittingOff()
    # 4. Run it; a label without voxels has no surface.
    edges.Update()
    result = vtk.vtkPolyData()
    if edges.GetOutput().GetNumberOfPolys():
        last.Update()
        result.ShallowCopy(last.GetOutput())
        result.GetPointData().RemoveArray("ImageScalars")
    return result


def _after(first: Any, then: Any) -> Any:
    then.SetInputConnection(first.GetOutputPort())
    return then


class SurfaceRefresh:
    """Update of surfaces, one at a time per segment; the newest voxels win.

    Args:
        background: Threads for the work; without it Slicer converts them, which blocks.
        changing: Context manager in which we modify the scene.
    """

    def __init__(self, background: Background | None, changing: Callable[[Any], Any]) -> None:
        self._background = background
        self._changing = changing
        # Segments whose surface is being computed, with the voxels used.
        self._running: dict[_Surface, tuple[Any, int]] = {}
        # Surfaces of frames that were left before they were computed.
        self._stale: set[_Surface] = set()

    @contextmanager
    def postponed(self, segmentationNode, segmentIDs: Iterable[str]) -> Iterator[None]:
        """Change segments inside the block without waiting for their surfaces.

        Args:
            segmentIDs: IDs of all segments that may be changed.
        """
        segmentation = segmentationNode.GetSegmentation()
        earlier = {}
        if self._background is not None and SurfaceSettings.of(segmentation) is not None:
            for segmentID in segmentIDs:
                segment = segmentation.GetSegment(segmentID)
                surface = segment.GetRepresentation(CLOSED_SURFACE)
                if surface is not None:
                    earlier[segmentID] = (segment, surface, _voxels(segment))
                    segment.RemoveRepresentation(CLOSED_SURFACE)
        try:
            yield
        finally:
            for segment, surface, _before in earlier.values():
                segment.AddRepresentation(CLOSED_SURFACE, surface)
        for segmentID, (segment, _surface, before) in earlier.items():
            if _voxels(segment) != before:
                self._begin(segmentationNode, segmentID)

    def followFrame(self, segmentationNode) -> None:
        """Compute the outdated surfaces of the frame that is shown now."""
        frame = _frameOf(segmentationNode)
        for key in [key for key in self._stale if (key[0], key[2]) == (segmentationNode, frame)]:
            self._stale.discard(key)
            self._begin(segmentationNode, key[1])

    def _begin(self, segmentationNode, segmentID: str) -> None:
        key = (segmentationNode, segmentID, _frameOf(segmentationNode))
        if key in self._running:
            return  # restarts at its end if the voxels changed
        segment = segmentationNode.GetSegmentation().GetSegment(segmentID)
        settings = SurfaceSettings.of(segmentationNode.GetSegmentation())
        if segment is None or settings is None or self._background is None:
            return
        voxels = _voxels(segment)
        copy = slicer.vtkOrientedImageData()
        copy.DeepCopy(voxels[0])
        label = segment.GetLabelValue()
        self._running[key] = voxels
        self._background.submit(
            lambda: surfaceOf(copy, label, settings),
            lambda surface: self._show(key, surface),
            lambda error: self._fail(key, error),
        )

    def _fail(self, key: _Surface, error: Exception) -> None:
        self._running.pop(key)
        raise error

    def _show(self, key: _Surface, result: vtk.vtkPolyData) -> None:
        voxels = self._running.pop(key)
        segmentationNode, segmentID, frame = key
        if segmentationNode.GetScene() is None:
            return
        if _frameOf(segmentationNode) != frame:
            self._stale.add(key)
            return
        segment = segmentationNode.GetSegmentation().GetSegment(segmentID)
        surface = segment.GetRepresentation(CLOSED_SURFACE) if segment is not None else None
        if surface is None:
            return
        if _voxels(segment) != voxels:
            self._begin(segmentationNode, segmentID)
            return
        with self._changing(segmentationNode):
            surface.ShallowCopy(result)
            segmentationNode.GetSegmentation().InvokeEvent(
                slicer.vtkSegmentation.RepresentationModified, segmentID
            )


def _voxels(segment) -> tuple[Any, int]:
    """Return a key of a segment's current voxels."""
    image = segment.GetRepresentation(BINARY_LABELMAP)
    return (image, image.GetMTime() if image is not None else 0)


def _frameOf(segmentationNode) -> int | None:
    """Return the frame that a segmentation shows; None without frames."""
    for browser in slicer.util.getNodesByClass("vtkMRMLSequenceBrowserNode"):
        if browser.IsProxyNodeID(segmentationNode.GetID()):
            return int(browser.GetSelectedItemNumber())
    return None
