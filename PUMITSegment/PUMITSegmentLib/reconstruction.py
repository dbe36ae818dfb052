"""Tokenizer view: a reconstruction beside its scan, the difference, and a plot of token use."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import slicer
import vtk
from pumit.client.remote_models import Reconstruction
from PUMITSlicerLib.mrml import addVolumeNode, readVolume
from slicer.i18n import tr as _
from vtk.util.numpy_support import numpy_to_vtk

# Reference roles from the scan to these nodes, so that the next reconstruction replaces them.
_ROLE = "PUMIT.Reconstruction."
_COLOR_TABLE = "PUMIT difference"
# Moreland's cool to warm: zero is light grey, negative blue, positive red.
_COOL_TO_WARM = ((0.23, 0.30, 0.75), (0.87, 0.87, 0.87), (0.71, 0.02, 0.15))
_COLORS = 256
# The few largest differences may exceed the colour range.
_SHOWN_PERCENTILE = 99.5


@dataclass(frozen=True, eq=False)
class ReconstructionNodes:
    """Nodes of a reconstruction in the scene.

    Attributes:
        image: The reconstruction, a volume node like the scan.
        difference: Reconstruction minus scan, a volume node in diverging colours.
        table: Tokens and their shares, ordered by usual share if known, otherwise by share.
        series: The shares over their rank.
        even: The share of a uniform distribution.
        chart: All series, with a logarithmic axis for the shares.
        usual: The shares in the model's familiar images, or None if unknown.
    """

    image: Any
    difference: Any
    table: Any
    series: Any
    even: Any
    chart: Any
    usual: Any = None


def showReconstruction(answer: Reconstruction, volumeNode, modelName: str) -> ReconstructionNodes:
    """Add a reconstruction to the scene beside its volume, replacing an earlier one.

    Args:
        volumeNode: Volume that was reconstructed; the new volumes get its parent transform and
            its parent in the subject hierarchy, and the reconstruction its window.
    """
    removeReconstruction(volumeNode)
    name = volumeNode.GetName()
    geometry = readVolume(volumeNode)
    image = addVolumeNode(
        _("{volume} reconstructed").format(volume=name),
        replace(geometry, array=answer.image, source=None),
        volumeNode,
    )
    difference = addVolumeNode(
        _("{volume} difference").format(volume=name),
        replace(geometry, array=answer.difference, source=None),
        volumeNode,
    )
    _copyWindow(volumeNode, image)
    _showDiverging(difference, answer.difference)
    table = _tokenTable(
        answer.use.shares, answer.usual_shares, _("{volume} tokens").format(volume=name)
    )
    series = _series(table, _("Share of the image"), "Share", (0.23, 0.51, 0.77))
    even = _series(table, _("All tokens equal"), "Even", (0.76, 0.25, 0.05))
    even.SetLineStyle(slicer.vtkMRMLPlotSeriesNode.LineStyleDash)
    usual = None
    if answer.usual_shares is not None:
        usual = _series(table, _("Images the model knows"), "Usual", (0.07, 0.09, 0.15))
        usual.SetLineWidth(2)
        # Ordered by usual share, a line between tokens would be erratic.
        series.SetLineStyle(slicer.vtkMRMLPlotSeriesNode.LineStyleNone)
        series.SetMarkerStyle(slicer.vtkMRMLPlotSeriesNode.MarkerStyleCircle)
        series.SetMarkerSize(4)
    chart = slicer.mrmlScene.AddNewNodeByClass(
        "vtkMRMLPlotChartNode", _("{volume} token use").format(volume=name)
    )
    chart.SetTitle(
        _("Tokens of {model}: perplexity {perplexity:.0f} of {count}").format(
            model=modelName, perplexity=answer.use.perplexity, count=len(answer.use.shares)
        )
    )
    chart.SetXAxisTitle(
        _("Token, the most used first") if usual is None else _("Token, the most usual first")
    )
    chart.SetYAxisTitle(_("Share of the image"))
    chart.SetYAxisLogScale(True)
    for node in filter(None, (series, usual, even)):
        chart.AddAndObservePlotSeriesNodeID(node.GetID())
    nodes = ReconstructionNodes(image, difference, table, series, even, chart, usual)
    for item in fields(nodes):
        node = getattr(nodes, item.name)
        volumeNode.SetNodeReferenceID(_ROLE + item.name, None if node is None else node.GetID())
    return nodes


def removeReconstruction(volumeNode) -> None:
    """Remove the nodes of a volume's reconstruction."""
    for item in fields(ReconstructionNodes):
        node = volumeNode.GetNodeReference(_ROLE + item.name)
        if node is not None:
            slicer.mrmlScene.RemoveNode(node)
        volumeNode.SetNodeReferenceID(_ROLE + item.name, None)


def compareInViews(nodes: ReconstructionNodes, volumeNode) -> None:
    """Show scan, reconstruction, and difference over the scan side by side, and the plot.

    Uses Slicer's layout of three slice views and a plot; all three views show the red view's
    orientation and position. The difference is the yellow view's foreground: Slicer's opacity
    slider fades it to the scan.
    """
    layout = slicer.mrmlScene.GetFirstNodeByClass("vtkMRMLLayoutNode")
    if layout is not None:
        layout.SetViewArrangement(slicer.vtkMRMLLayoutNode.SlicerLayoutFourUpPlotView)
    selection = slicer.mrmlScene.GetFirstNodeByClass("vtkMRMLSelectionNode")
    if selection is not None:
        selection.SetActivePlotChartID(nodes.chart.GetID())
    sliceNodes = {
        node.GetLayoutName(): node for node in slicer.util.getNodesByClass("vtkMRMLSliceNode")
    }
    composites = {
        node.GetLayoutName(): node
        for node in slicer.util.getNodesByClass("vtkMRMLSliceCompositeNode")
    }
    shown = {
        "Red": (volumeNode, None),
        "Green": (nodes.image, None),
        "Yellow": (volumeNode, nodes.difference),
    }
    lead = sliceNodes.get("Red")
    for view, (volume, layer) in shown.items():
        composite = composites.get(view)
        if composite is not None:
            composite.SetLinkedControl(False)  # otherwise each would set the others' background
            composite.SetBackgroundVolumeID(volume.GetID())
            composite.SetForegroundVolumeID(None if layer is None else layer.GetID())
            composite.SetForegroundOpacity(0.0 if layer is None else 1.0)
        follower = sliceNodes.get(view)
        if lead is not None and follower is not None and follower is not lead:
            follower.GetSliceToRAS().DeepCopy(lead.GetSliceToRAS())
            follower.UpdateMatrices()


@dataclass(frozen=True)
class _View:
    """Layers and position of a slice view."""

    background: str | None
    foreground: str | None
    opacity: float
    isLinked: bool
    sliceToRas: tuple[float, ...]


class ViewsBefore:
    """Saved layout and slice views.

    Nodes that no longer exist when they are restored are skipped.
    """

    def __init__(self) -> None:
        layout = slicer.mrmlScene.GetFirstNodeByClass("vtkMRMLLayoutNode")
        self._arrangement = layout.GetViewArrangement() if layout is not None else None
        slices = {
            node.GetLayoutName(): node for node in slicer.util.getNodesByClass("vtkMRMLSliceNode")
        }
        self._views = {
            composite.GetLayoutName(): _View(
                composite.GetBackgroundVolumeID(),
                composite.GetForegroundVolumeID(),
                composite.GetForegroundOpacity(),
                bool(composite.GetLinkedControl()),
                tuple(
                    slices[composite.GetLayoutName()].GetSliceToRAS().GetElement(i // 4, i % 4)
                    for i in range(16)
                ),
            )
            for composite in slicer.util.getNodesByClass("vtkMRMLSliceCompositeNode")
            if composite.GetLayoutName() in slices
        }

    def restore(self) -> None:
        """Restore the layout and the views."""
        scene = slicer.mrmlScene
        layout = scene.GetFirstNodeByClass("vtkMRMLLayoutNode")
        if layout is not None and self._arrangement is not None:
            layout.SetViewArrangement(self._arrangement)
        for composite in slicer.util.getNodesByClass("vtkMRMLSliceCompositeNode"):
            view = self._views.get(composite.GetLayoutName())
            if view is None:
                continue
            composite.SetLinkedControl(False)
            for volumeID, show in (
                (view.background, composite.SetBackgroundVolumeID),
                (view.foreground, composite.SetForegroundVolumeID),
            ):
                isThere = volumeID is not None and scene.GetNodeByID(volumeID) is not None
                show(volumeID if isThere else None)
            composite.SetForegroundOpacity(view.opacity)
            composite.SetLinkedControl(view.isLinked)
        for node in slicer.util.getNodesByClass("vtkMRMLSliceNode"):
            view = self._views.get(node.GetLayoutName())
            if view is not None:
                node.GetSliceToRAS().DeepCopy(view.sliceToRas)
                node.UpdateMatrices()


def _copyWindow(sourceNode, targetNode) -> None:
    source, target = sourceNode.GetDisplayNode(), targetNode.GetDisplayNode()
    if source is None or not source.IsA("vtkMRMLScalarVolumeDisplayNode"):
        return
    target.SetAutoWindowLevel(False)
    target.SetWindowLevel(source.GetWindow(), source.GetLevel())
    if source.GetColorNodeID():
        target.SetAndObserveColorNodeID(source.GetColorNodeID())


def _showDiverging(node, values: np.ndarray) -> None:
    # A subsample suffices for the percentile of a large volume.
    step = max(1, round((values.size / 1e6) ** (1 / 3)))
    sample = np.abs(values[::step, ::step, ::step])
    reach = float(np.percentile(sample, _SHOWN_PERCENTILE)) or float(sample.max()) or 1.0
    display = node.GetDisplayNode()
    display.SetAndObserveColorNodeID(_divergingColors().GetID())
    display.SetAutoWindowLevel(False)
    display.SetWindowLevel(2 * reach, 0.0)
    display.SetInterpolate(False)


def _divergingColors():
    """Return the shared colour table of all differences."""
    existing = slicer.mrmlScene.GetFirstNodeByName(_COLOR_TABLE)
    if existing is not None and existing.IsA("vtkMRMLColorTableNode"):
        return existing
    node = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLColorTableNode", _COLOR_TABLE)
    node.SetTypeToUser()
    node.SetNumberOfColors(_COLORS)
    node.SetHideFromEditors(False)
    middle = (_COLORS - 1) / 2
    for i in range(_COLORS):
        low, high = _COOL_TO_WARM[:2] if i <= middle else _COOL_TO_WARM[1:]
        t = i / middle if i <= middle else i / middle - 1
        r, g, b = (a + (c - a) * t for a, c in zip(low, high, strict=True))
        node.SetColor(i, str(i), r, g, b)
    return node


def _tokenTable(shares: np.ndarray, usual: np.ndarray | None, name: str):
    node = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLTableNode", name)
    order = np.argsort(-(shares if usual is None else usual), kind="stable")
    columns = {
        "Rank": np.arange(1, len(shares) + 1, dtype=np.int32),
        "Token": order.astype(np.int32),
        # A logarithmic axis cannot show zero.
        "Share": np.maximum(shares[order], 1e-9),
        "Even": np.full(len(shares), 1 / len(shares)),
    }
    if usual is not None:
        columns["Usual"] = np.maximum(usual[order], 1e-9)
    table = vtk.vtkTable()
    for title, values in columns.items():
        column = numpy_to_vtk(values, deep=True)
        column.SetName(title)
        table.AddColumn(column)
    node.SetAndObserveTable(table)
    return node


def _series(tableNode, name: str, column: str, color: tuple[float, float, float]):
    node = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLPlotSeriesNode", name)
    node.SetAndObserveTableNodeID(tableNode.GetID())
    node.SetXColumnName("Rank")
    node.SetYColumnName(column)
    node.SetPlotType(slicer.vtkMRMLPlotSeriesNode.PlotTypeScatter)
    node.SetMarkerStyle(slicer.vtkMRMLPlotSeriesNode.MarkerStyleNone)
    node.SetColor(*color)
    return node
