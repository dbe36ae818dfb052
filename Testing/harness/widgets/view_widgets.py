"""The widgets that Slicer's layout manager hands out for its views."""

from typing import Any

from Qt import QtGui, QtWidgets

from harness.binding.stand_ins import standIn
from harness.views import open_views
from harness.views.slice_view import SliceView
from harness.views.three_d_view import ThreeDView
from harness.views.view_window import ViewWindow


class _ViewWidget(QtWidgets.QWidget):
    """Shows an offscreen view.

    Args:
        name: The view's layout name; a test may open another view of that name at any time.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    @property
    def _view(self) -> SliceView | ThreeDView:
        return self._find(self._name)

    def paintEvent(self, event: QtGui.QPaintEvent) -> None:
        """Draw what the view shows."""
        QtGui.QPainter(self).drawImage(self.rect, toQImage(self._view))

    def renderWindow(self) -> Any:
        """The vtkRenderWindow."""
        return self._view.renderWindow

    def interactor(self) -> Any:
        """The vtkRenderWindowInteractor."""
        return self._view.interactor

    def interactorStyle(self) -> Any:
        """The style that answers the mouse."""
        return self._view._style

    def scheduleRender(self) -> None:
        """Draw soon; the harness draws on request."""

    def setViewCursor(self, cursor: QtGui.QCursor) -> None:
        """Set the pointer of now."""
        self.setCursor(cursor)

    def setDefaultViewCursor(self, cursor: QtGui.QCursor) -> None:
        """Set the pointer after something was pointed at."""
        self.setCursor(cursor)


@standIn()
class qMRMLSliceView(_ViewWidget):
    """The picture inside a slice widget."""

    _find = staticmethod(open_views.sliceView)

    def mrmlSliceNode(self) -> Any:
        """The slice node."""
        return self._view.sliceNode


@standIn()
class qMRMLThreeDView(_ViewWidget):
    """The picture inside a 3D widget."""

    _find = staticmethod(open_views.threeDView)

    def mrmlViewNode(self) -> Any:
        """The view node."""
        return self._view.viewNode

    def renderer(self) -> Any:
        """The vtkRenderer."""
        return self._view.renderer

    def resetFocalPoint(self) -> None:
        """Look at everything that is shown."""
        self._view.resetFocalPoint()


@standIn()
class qMRMLSliceWidget(_ViewWidget):
    """A slice view."""

    _find = staticmethod(open_views.sliceView)

    def __init__(self, name: str) -> None:
        super().__init__(name)
        open_views.sliceView(name)
        self._picture = qMRMLSliceView(name)

    def sliceLogic(self) -> Any:
        """The slice logic."""
        return self._view.sliceLogic

    def sliceView(self) -> qMRMLSliceView:
        """The picture."""
        return self._picture

    def mrmlSliceNode(self) -> Any:
        """The slice node."""
        return self._view.sliceNode


@standIn()
class qMRMLThreeDWidget(_ViewWidget):
    """A 3D view."""

    _find = staticmethod(open_views.threeDView)

    def __init__(self, name: str) -> None:
        super().__init__(name)
        open_views.threeDView(name)
        self._picture = qMRMLThreeDView(name)

    def threeDView(self) -> qMRMLThreeDView:
        """The picture."""
        return self._picture

    def mrmlViewNode(self) -> Any:
        """The view node."""
        return self._view.viewNode


def toQImage(view: ViewWindow) -> QtGui.QImage:
    """A view's picture for Qt."""
    pixels = view.image()
    height, width, _ = pixels.shape
    image = QtGui.QImage(pixels.data, width, height, 3 * width, QtGui.QImage.Format_RGB888)
    return image.copy()
