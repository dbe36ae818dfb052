"""Injected parts of the logic: threads, programs, detached processes, timers, settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pumit.runs import runs_folder
from PUMITSlicerLib.computing.availability import Availability, read_availability
from PUMITSlicerLib.computing.background import Background, QtBackground
from PUMITSlicerLib.computing.dependencies import why_not_installed
from PUMITSlicerLib.computing.settings import ComputeMode, SettingsStore, slicer_settings

from PUMITTrainLib.processes import (
    CheckerProgram,
    CorePrograms,
    DetachedLauncher,
)


class QtTimer:
    """Timer on the GUI thread."""

    def __init__(self, callback: Callable[[], None], isSingle: bool = False) -> None:
        import qt

        self._timer = qt.QTimer()
        self._timer.setSingleShot(isSingle)
        self._timer.connect("timeout()", callback)

    def start(self, interval_ms: int) -> None:
        """Start or restart the timer."""
        self._timer.start(interval_ms)

    def stop(self) -> None:
        """Stop the timer."""
        self._timer.stop()


@dataclass(frozen=True)
class Collaborators:
    """Parts that tests replace.

    Attributes:
        programs: Runner of the core's commands, which reads their output.
        makeTimer: Factory of timers, from a callback and whether it is called once.
        store: The user's settings, shared with PUMITSegment.
        whyNotInstalled: Function that names what is missing, or returns ""; called on a thread.
        readAvailability: Function that lists this machine's devices; called on a thread.
    """

    background: Background
    programs: CorePrograms
    launcher: DetachedLauncher
    checker: CheckerProgram
    makeTimer: Callable[[Callable[[], None], bool], QtTimer]
    store: SettingsStore
    whyNotInstalled: Callable[[], str]
    readAvailability: Callable[[], Availability]
    root: Path

    def close(self) -> None:
        """Close what belongs to the module; trainings continue."""
        self.background.close()


def localCollaborators() -> Collaborators:
    """Return the default parts; nothing is started before it is needed."""
    background = QtBackground()
    return Collaborators(
        background,
        CorePrograms(background),
        DetachedLauncher(),
        CheckerProgram(background),
        QtTimer,
        slicer_settings(),
        lambda: why_not_installed(ComputeMode.LOCAL, withTorch=True),
        read_availability,
        runs_folder(),
    )
