"""An offscreen window of a view, and a user's hands on it: mouse, wheel and keys."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import slicer
import vtk
from vtk.util.numpy_support import vtk_to_numpy
from vtkmodules.vtkInteractionStyle import vtkInteractorStyleUser

XY = Sequence[float]


@cache
def _windowKind() -> type:
    """What VTK draws into here; each window would look for a display again."""
    return type(vtk.vtkRenderWindow())


def grabbed(window: vtk.vtkRenderWindow) -> np.ndarray:
    """Return the picture of a window, shape (height, width, 3), uint8, first row on top."""
    grabber = vtk.vtkWindowToImageFilter()
    grabber.SetInput(window)
    grabber.ReadFrontBufferOff()
    grabber.SetInputBufferTypeToRGB()
    grabber.Update()
    output = grabber.GetOutput()
    width, height, _ = output.GetDimensions()
    pixels = vtk_to_numpy(output.GetPointData().GetScalars())
    return pixels.reshape(height, width, 3)[::-1].copy()


class ViewWindow:
    """A render window, its interactor, and events as a user's mouse and keyboard make them.

    Positions are (x, y) in pixels from the lower left corner, as VTK's are.

    Args:
        size: Width and height in pixels.

    Attributes:
        renderer: What displayable managers draw into.
        renderWindow: The offscreen window.
        interactor: What receives the events.
    """

    def __init__(self, size: tuple[int, int]) -> None:
        self.renderer = vtk.vtkRenderer()
        self.renderWindow = _windowKind()()
        self.renderWindow.SetOffScreenRendering(1)
        self.renderWindow.SetMultiSamples(0)
        self.renderWindow.SetSize(*size)
        self.renderWindow.AddRenderer(self.renderer)
        # The system's own one would open a context for drawing, which few tests need.
        self.interactor = vtk.vtkGenericRenderWindowInteractor()
        self.interactor.SetRenderWindow(self.renderWindow)
        self.interactor.UpdateSize(*size)
        self.interactor.Enable()
        self.interactor.SetInteractorStyle(vtkInteractorStyleUser())

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return tuple(self.renderWindow.GetSize())

    def resize(self, width: int, height: int) -> None:
        """Give the view another size in pixels."""
        self.renderWindow.SetSize(width, height)

    def enter(self) -> None:
        """Bring the mouse into the view."""
        self.interactor.InvokeEvent("EnterEvent")

    def leave(self) -> None:
        """Take the mouse out of the view."""
        self.interactor.InvokeEvent("LeaveEvent")

    def move(self, x: float, y: float, *, shift: bool = False, control: bool = False) -> None:
        """Move the mouse to a position."""
        self._send((x, y), "MouseMoveEvent", shift=shift, control=control)

    def press(self, x: float, y: float, button: str = "Left", **modifiers: bool) -> None:
        """Press a button: Left, Middle or Right."""
        self._send((x, y), f"{button}ButtonPressEvent", **modifiers)

    def release(self, x: float, y: float, button: str = "Left", **modifiers: bool) -> None:
        """Release a button."""
        self._send((x, y), f"{button}ButtonReleaseEvent", **modifiers)

    def click(self, x: float, y: float, button: str = "Left", **modifiers: bool) -> None:
        """Enter the view, move to a position and click."""
        self.enter()
        self.move(x, y, **modifiers)
        self.press(x, y, button, **modifiers)
        self.release(x, y, button, **modifiers)

    def drag(self, start: XY, *stops: XY, steps: int = 8, **modifiers: bool) -> None:
        """Press at a position, move through others and release at the last.

        Args:
            start: Where the button is pressed.
            stops: Positions passed on the way.
            steps: Mouse moves between two positions.
            modifiers: `shift`, `control`.
        """
        self.enter()
        self.move(*start, **modifiers)
        self.press(*start, **modifiers)
        for begin, end in zip((start, *stops), stops, strict=False):
            for part in np.linspace(0, 1, steps + 1)[1:]:
                self.move(*(np.asarray(begin) * (1 - part) + np.asarray(end) * part), **modifiers)
        self.release(*(stops[-1] if stops else start), **modifiers)

    def key(
        self, symbol: str, x: float | None = None, y: float | None = None, **modifiers: bool
    ) -> None:
        """Press and release a key over the view, such as "Escape", "Delete" or "f"."""
        position = self._position(x, y)
        self.enter()
        self.move(*position, **modifiers)
        names = ("KeyPressEvent", "CharEvent", "KeyReleaseEvent")
        self._send(position, *names, symbol=symbol, **modifiers)

    def render(self) -> None:
        """Draw the view."""
        self.renderWindow.Render()

    def image(self) -> np.ndarray:
        """The view as drawn now, shape (height, width, 3), uint8, first row on top."""
        self.render()
        return grabbed(self.renderWindow)

    def save(self, path: str | Path) -> None:
        """Write the view as a PNG."""
        from PIL import Image

        Image.fromarray(self.image()).save(path)

    def close(self) -> None:
        """Free the window."""
        self.interactor.SetRenderWindow(None)
        self.renderWindow.Finalize()

    def _managers(self, factory: Any, names: Sequence[str]) -> Any:
        """Displayable managers of a factory, which draw into this window."""
        for name in names:
            if not factory.IsDisplayableManagerRegistered(name):
                factory.RegisterDisplayableManager(name)
        group = slicer.vtkMRMLDisplayableManagerGroup()
        group.SetRenderer(self.renderer)
        group.Initialize(factory, self.renderer)
        return group

    def _position(self, x: float | None, y: float | None) -> XY:
        width, height = self.size
        return (width / 2 if x is None else x, height / 2 if y is None else y)

    def _send(
        self,
        position: XY,
        *events: str,
        symbol: str | None = None,
        shift: bool = False,
        control: bool = False,
    ) -> None:
        x, y = (round(value) for value in position)
        character = symbol if symbol is not None and len(symbol) == 1 else "\0"
        for event in events:
            self.interactor.SetEventInformation(x, y, control, shift, character, 0, symbol)
            self.interactor.InvokeEvent(event)
