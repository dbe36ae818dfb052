"""Notices what would otherwise pass unseen: exceptions in callbacks, and VTK's errors.

Python prints an exception that is raised inside a VTK observer, a Qt slot or a timer, and goes
on; VTK writes its errors to a window. Both end up here, and fail the test that caused them.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

import vtk

# Not ours to mend: Slicer's markups logic now and then observes a node twice, which it says itself.
OF_SLICER = re.compile(r"Observation \d+ between vtkMRML\w+ and vtkSlicer\w+ .* already exists")


class Failures:
    """Collects failures while it listens.

    Attributes:
        found: One text per failure, in order.
    """

    def __init__(self) -> None:
        self.found: list[str] = []
        self._window = vtk.vtkOutputWindow()
        self._window.SetDisplayModeToNever()
        for event in (vtk.vtkCommand.ErrorEvent, vtk.vtkCommand.WarningEvent):
            self._window.AddObserver(event, self._onOutput)

    @contextmanager
    def listening(self) -> Iterator[Failures]:
        """Collect failures inside the block, from an empty start."""
        self.found.clear()
        hook, window = sys.excepthook, vtk.vtkOutputWindow.GetInstance()
        sys.excepthook = self._onException
        vtk.vtkOutputWindow.SetInstance(self._window)
        try:
            yield self
        finally:
            sys.excepthook = hook
            vtk.vtkOutputWindow.SetInstance(window)

    @contextmanager
    def expected(self, pattern: str) -> Iterator[None]:
        """Expect at least one failure inside the block, and no other than such.

        Args:
            pattern: Regular expression, searched in each failure's text.

        Raises:
            AssertionError: If nothing failed; failures of other kinds stay, and fail the test.
        """
        before = len(self.found)
        try:
            yield
        finally:
            inside = self.found[before:]
            self.found[before:] = [text for text in inside if not re.search(pattern, text)]
        assert self.found[before:] != inside, f"expected a failure like {pattern!r}, got {inside}"

    def take(self) -> list[str]:
        """What was found since the last call."""
        found, self.found = self.found, []
        return found

    def _onException(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        self.found.append("".join(traceback.format_exception(kind, error, trace)))

    @vtk.calldata_type(vtk.VTK_STRING)
    def _onOutput(self, window: vtk.vtkObject, event: str, text: str) -> None:
        if not OF_SLICER.search(text):
            self.found.append(f"{event.removesuffix('Event')} of VTK: {text.strip()}")
