"""Slicer's layout logic says which views there are, and the layout manager hands them out."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def manager(slicerApp):
    return slicerApp.layoutManager()


def test_four_views_are_there_at_the_start(manager) -> None:
    assert manager.sliceViewNames() == ["Red", "Green", "Yellow"]
    assert manager.threeDViewCount == 1
    orientations = [
        manager.sliceWidget(n).mrmlSliceNode().GetOrientation() for n in manager.sliceViewNames()
    ]
    assert orientations == ["Axial", "Coronal", "Sagittal"]


def test_a_layout_changes_the_views(manager) -> None:
    import slicer

    kinds = slicer.vtkMRMLLayoutNode
    changes = []
    manager.connect("layoutChanged(int)", changes.append)
    manager.setLayout(kinds.SlicerLayoutOneUpRedSliceView)
    assert manager.sliceViewNames() == ["Red"]
    assert manager.threeDViewCount == 0
    assert manager.threeDWidget(0) is None
    assert manager.sliceWidget("Slice9") is None
    manager.layout = kinds.SlicerLayoutFourUpView
    assert manager.layout == kinds.SlicerLayoutFourUpView
    assert changes == [kinds.SlicerLayoutOneUpRedSliceView, kinds.SlicerLayoutFourUpView]


def test_the_manager_and_the_fixture_share_views(manager, sliceView) -> None:
    view = sliceView("Green", "Coronal")
    assert manager.sliceWidget("Green").sliceLogic() is view.sliceLogic
    assert manager.sliceWidget("Green").sliceView().mrmlSliceNode() is view.sliceNode


def test_volumes_are_shown_in_all_views(manager) -> None:
    import slicer

    volume = slicer.util.addVolumeFromArray(np.full((10, 12, 14), 100, np.int16))
    slicer.util.setSliceViewerLayers(background=volume, fit=True)
    for name in manager.sliceViewNames():
        widget = manager.sliceWidget(name)
        assert widget.mrmlSliceCompositeNode().GetBackgroundVolumeID() == volume.GetID()
        assert widget.sliceLogic().GetBackgroundLayer().GetVolumeNode() is volume


def test_a_3d_view_looks_at_what_is_shown(manager, scene) -> None:
    import slicer
    import vtk

    sphere = vtk.vtkSphereSource()
    sphere.SetCenter(200, 0, 0)
    sphere.SetRadius(20)
    slicer.modules.models.logic().AddModel(sphere.GetOutputPort())
    view = manager.threeDWidget(0).threeDView()
    view.forceRender()
    view.resetFocalPoint()
    assert abs(view.cameraNode().GetFocalPoint()[0]) > 50


def test_a_slice_widget_can_be_drawn_and_dragged(manager) -> None:
    import slicer

    volume = slicer.util.addVolumeFromArray(np.full((10, 12, 14), 100, np.int16))
    volume.CreateDefaultDisplayNodes()
    slicer.util.setSliceViewerLayers(background=volume, fit=True)
    widget = manager.sliceWidget("Red")
    widget.resize(300, 200)
    picture = widget.grab()
    assert (picture.width(), picture.height()) == (300, 200)
    slicer.util.clickAndDrag(widget, button="None", start=(10, 10), end=(100, 100))
