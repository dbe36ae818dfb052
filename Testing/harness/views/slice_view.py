"""A slice view: real slice logic, displayable managers and interactor style, offscreen."""

from collections.abc import Sequence

import numpy as np
import slicer
import vtk

from harness.views.view_window import ViewWindow

DISPLAYABLE_MANAGERS = (
    "vtkMRMLModelSliceDisplayableManager",
    "vtkMRMLCrosshairDisplayableManager",
    "vtkMRMLOrientationMarkerDisplayableManager",
    "vtkMRMLRulerDisplayableManager",
    "vtkMRMLSegmentationsDisplayableManager2D",
    "vtkMRMLMarkupsDisplayableManager",
    "vtkMRMLTransformsDisplayableManager2D",
)


class SliceView(ViewWindow):
    """A slice view that tests look at and click into.

    Args:
        name: Layout name: "Red", "Green", "Yellow" or any other.
        orientation: A preset's name ("Axial", "Sagittal", "Coronal"), or a matrix (3, 3) whose
            columns are the slice's x axis, y axis and normal in RAS, for an oblique slice.
        size: Width and height in pixels.

    Attributes:
        name: Layout name.
        sliceLogic: The vtkMRMLSliceLogic.
        sliceNode: The vtkMRMLSliceNode.
        compositeNode: The vtkMRMLSliceCompositeNode.
    """

    def __init__(
        self,
        name: str = "Red",
        orientation: str | Sequence[Sequence[float]] | np.ndarray = "Axial",
        size: tuple[int, int] = (500, 500),
    ) -> None:
        super().__init__(size)
        self.name = name
        self._applicationLogic = slicer.app.applicationLogic()
        self.renderer.GetActiveCamera().ParallelProjectionOn()
        self._addOverlay()
        self._addImage()
        self.displayableManagers = self._managers(
            slicer.vtkMRMLSliceViewDisplayableManagerFactory.GetInstance(), DISPLAYABLE_MANAGERS
        )
        self.sliceLogic = slicer.vtkMRMLSliceLogic()
        self.sliceLogic.SetMRMLApplicationLogic(self._applicationLogic)
        self._applicationLogic.GetSliceLogics().AddItem(self.sliceLogic)
        self.sliceLogic.SetMRMLScene(slicer.mrmlScene)
        self.sliceNode = slicer.mrmlScene.GetSingletonNode(name, "vtkMRMLSliceNode")
        if self.sliceNode is None:
            self.sliceNode = self.sliceLogic.AddSliceNode(name)
        else:  # made by a layout
            self.sliceLogic.SetSliceNode(self.sliceNode)
        self.compositeNode = self.sliceLogic.GetSliceCompositeNode()
        self.displayableManagers.SetMRMLDisplayableNode(self.sliceNode)
        self._style = slicer.vtkMRMLSliceViewInteractorStyle()
        self._style.SetSliceLogic(self.sliceLogic)
        self._style.SetDisplayableManagers(self.displayableManagers)
        self._style.SetInteractor(self.interactor)
        self.setOrientation(orientation)
        self.sliceNode.SetMappedInLayout(1)
        self.sliceLogic.ResizeSliceNode(*size)
        self._tag = self.sliceLogic.AddObserver("ModifiedEvent", self._onLogicModified)

    def setOrientation(self, orientation: str | Sequence[Sequence[float]] | np.ndarray) -> None:
        """Turn the slice: a preset's name, or a rotation (3, 3) from slice axes to RAS."""
        if isinstance(orientation, str):
            if not self.sliceNode.SetOrientation(orientation):
                raise ValueError(f"No such orientation: {orientation}")
            return
        axes = np.asarray(orientation, float)
        matrix = self.sliceNode.GetSliceToRAS()
        for row in range(3):
            for column in range(3):
                matrix.SetElement(row, column, axes[row, column])
        self.sliceNode.UpdateMatrices()

    def show(self, volumeNode: slicer.vtkMRMLVolumeNode) -> None:
        """Show the middle of a volume in the background, fitted to the view."""
        self.compositeNode.SetBackgroundVolumeID(volumeNode.GetID())
        self.sliceLogic.ResizeSliceNode(*self.size)
        self.sliceLogic.FitSliceToBackground()
        self.sliceLogic.SnapSliceOffsetToIJK()
        self._onLogicModified()

    def jumpTo(self, ras: Sequence[float]) -> None:
        """Centre the view on a position in RAS."""
        self.sliceNode.JumpSliceByCentering(*ras)

    def rasToXy(self, ras: Sequence[float]) -> tuple[float, float]:
        """Where a position in RAS, projected on the slice, is seen: (x, y) in pixels."""
        inverse = vtk.vtkMatrix4x4()
        vtk.vtkMatrix4x4.Invert(self.sliceNode.GetXYToRAS(), inverse)
        return inverse.MultiplyPoint([*ras, 1])[:2]

    def xyToRas(self, x: float, y: float) -> np.ndarray:
        """The position in RAS that is seen at (x, y), shape (3,)."""
        return np.array(self.sliceNode.GetXYToRAS().MultiplyPoint([x, y, 0, 1])[:3])

    def clickAt(self, ras: Sequence[float], button: str = "Left", **modifiers: bool) -> None:
        """Scroll to the slice through a position in RAS, and click on it."""
        self.sliceNode.JumpSliceByOffsetting(*ras)
        self.click(*self.rasToXy(ras), button, **modifiers)

    def resize(self, width: int, height: int) -> None:
        """Give the view another size in pixels; its scale stays."""
        super().resize(width, height)
        self.sliceLogic.ResizeSliceNode(width, height)

    def close(self) -> None:
        """Take the view's logic and nodes out of the application."""
        self.sliceLogic.RemoveObserver(self._tag)
        self._applicationLogic.GetSliceLogics().RemoveItem(self.sliceLogic)
        nodes = (self.sliceNode, self.compositeNode)
        self._style.SetInteractor(None)
        self._style.SetDisplayableManagers(None)
        self.displayableManagers.SetMRMLDisplayableNode(None)
        self.sliceLogic.SetMRMLScene(None)
        for node in nodes:
            if slicer.mrmlScene.IsNodePresent(node):
                slicer.mrmlScene.RemoveNode(node)
        super().close()

    def _addOverlay(self) -> None:
        """A second layer: Slicer draws the orientation marker and ruler above the slice."""
        overlay = vtk.vtkRenderer()
        overlay.SetLayer(1)
        overlay.GetActiveCamera().ParallelProjectionOn()
        self.renderWindow.SetNumberOfLayers(2)
        self.renderWindow.SetAlphaBitPlanes(1)
        self.renderWindow.AddRenderer(overlay)

    def _addImage(self) -> None:
        self._mapper = vtk.vtkImageMapper()
        self._mapper.SetColorWindow(255)
        self._mapper.SetColorLevel(127.5)
        actor = vtk.vtkActor2D()
        actor.SetMapper(self._mapper)
        actor.GetProperty().SetDisplayLocationToBackground()
        self.renderer.AddViewProp(actor)

    def _onLogicModified(self, *_: object) -> None:
        self._mapper.SetInputConnection(self.sliceLogic.GetImageDataConnection())
