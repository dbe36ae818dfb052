"""A widget's observers of the scene, which end with the widget."""

from collections.abc import Callable
from typing import Any

import vtk
from Qt import QtCore


class Observers:
    """Observes VTK objects as long as a widget lives.

    Args:
        owner: The widget; Qt may delete it at any time.
    """

    def __init__(self, owner: QtCore.QObject) -> None:
        self._tags: list[tuple[vtk.vtkObject, int]] = []
        owner.destroyed.connect(self.clear)

    def add(self, observed: vtk.vtkObject, event: Any, callback: Callable[[], None]) -> None:
        """Call back, without arguments, at each event."""
        self._tags.append((observed, observed.AddObserver(event, lambda *_: callback())))

    def clear(self) -> None:
        """End every observation."""
        for observed, tag in self._tags:
            observed.RemoveObserver(tag)
        self._tags.clear()
