"""A 3D view: real view logic, displayable managers and interactor style, offscreen."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import slicer
import vtk

from harness.views.view_window import ViewWindow

DISPLAYABLE_MANAGERS = (
    "vtkMRMLCameraDisplayableManager",
    "vtkMRMLViewDisplayableManager",
    "vtkMRMLModelDisplayableManager",
    "vtkMRMLThreeDReformatDisplayableManager",
    "vtkMRMLCrosshairDisplayableManager3D",
    "vtkMRMLOrientationMarkerDisplayableManager",
    "vtkMRMLRulerDisplayableManager",
    "vtkMRMLSegmentationsDisplayableManager3D",
    "vtkMRMLMarkupsDisplayableManager",
    "vtkMRMLTransformsDisplayableManager3D",
)


class ThreeDView(ViewWindow):
    """A 3D view that tests look at and click into.

    Args:
        name: Layout name, "1" in Slicer's usual layouts.
        size: Width and height in pixels.

    Attributes:
        name: Layout name.
        viewLogic: The vtkMRMLViewLogic.
        viewNode: The vtkMRMLViewNode.
        displayableManagers: What draws the scene's nodes.
    """

    def __init__(self, name: str = "1", size: tuple[int, int] = (500, 500)) -> None:
        super().__init__(size)
        self.name = name
        self._applicationLogic = slicer.app.applicationLogic()
        self.renderer.SetUseDepthPeeling(True)
        # A view's axes and ruler lie in a layer above.
        overlay = vtk.vtkRenderer()
        overlay.SetLayer(1)
        self.renderWindow.SetNumberOfLayers(2)
        self.renderWindow.SetAlphaBitPlanes(1)
        self.renderWindow.AddRenderer(overlay)
        self.displayableManagers = self._managers(
            slicer.vtkMRMLThreeDViewDisplayableManagerFactory.GetInstance(), DISPLAYABLE_MANAGERS
        )
        self.viewLogic = slicer.vtkMRMLViewLogic()
        self.viewLogic.SetMRMLApplicationLogic(self._applicationLogic)
        self._applicationLogic.GetViewLogics().AddItem(self.viewLogic)
        self.viewLogic.SetMRMLScene(slicer.mrmlScene)
        # A layout may have made it already.
        self.viewNode = slicer.mrmlScene.GetSingletonNode(name, "vtkMRMLViewNode")
        if self.viewNode is None:
            self.viewNode = self.viewLogic.AddViewNode(name)
        self.viewNode.SetMappedInLayout(1)
        self.displayableManagers.SetMRMLDisplayableNode(self.viewNode)
        self._style = slicer.vtkMRMLThreeDViewInteractorStyle()
        self._style.SetDisplayableManagers(self.displayableManagers)
        self._style.SetInteractor(self.interactor)

    @property
    def cameraNode(self) -> Any:
        """The vtkMRMLCameraNode of the view."""
        nodes = slicer.util.getNodesByClass("vtkMRMLCameraNode")
        return next(n for n in nodes if n.GetLayoutName() == self.viewNode.GetLayoutName())

    def resetFocalPoint(self) -> None:
        """Look at everything that is shown, from in front of the patient."""
        self.lookFrom((0.0, 1.0, 0.0))

    def lookFrom(self, direction: Sequence[float]) -> None:
        """Look at everything that is shown.

        Args:
            direction: From the middle to the camera, in RAS.
        """
        bounds = np.array(self.renderer.ComputeVisiblePropBounds()).reshape(3, 2)
        if bounds[0, 0] > bounds[0, 1]:
            bounds = np.array([[-100.0, 100.0]] * 3)
        center = bounds.mean(axis=1)
        unit = np.asarray(direction, float) / np.linalg.norm(direction)
        camera = self.cameraNode
        angle = np.radians(camera.GetViewAngle() or 30.0)
        radius = np.linalg.norm(bounds[:, 1] - bounds[:, 0]) / 2
        camera.SetFocalPoint(*center)
        camera.SetPosition(*(center + unit * 0.8 * radius / np.sin(angle / 2)))
        camera.SetViewUp(0, 0, 1)
        self.renderer.ResetCameraClippingRange()

    def close(self) -> None:
        """Take the view's logic and nodes out of the application."""
        self._applicationLogic.GetViewLogics().RemoveItem(self.viewLogic)
        self.displayableManagers.SetMRMLDisplayableNode(None)
        # The style ends by itself: it cannot be given no managers.
        self._style = None
        self.viewLogic.SetMRMLScene(None)
        if slicer.mrmlScene.IsNodePresent(self.viewNode):
            slicer.mrmlScene.RemoveNode(self.viewNode)
        super().close()
