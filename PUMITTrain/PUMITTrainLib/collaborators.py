"""What the logic leaves to others: threads, programs, processes that stay, timers, settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pumit.runs import runs_folder
from PUMITSlicerLib.computing.availability import Availability, read_availability
from PUMITSlicerLib.computing.background import Background, QtBackground
from PUMITSlicerLib.computing.settings import ComputeMode, SettingsStore, slicer_settings
from PUMITSlicerLib.installing.dependencies import why_not_installed

from PUMITTrainLib.clock import QtTimer, Timer
from PUMITTrainLib.plan.recipe_checker import CheckerProgram, RecipeChecker
from PUMITTrainLib.runs.launching import DetachedLauncher, Launcher
from PUMITTrainLib.runs.programs import CorePrograms, Programs


@dataclass(frozen=True)
class Collaborators:
    """Parts that tests replace.

    Attributes:
        background: Threads whose results arrive on the GUI thread.
        programs: Runs commands of the core and reads what they say.
        launcher: Starts trainings.
        checker: Checks recipes while they are typed.
        makeTimer: Given a callback, and whether it is called once.
        store: The user's settings, which PUMITSegment shares.
        whyNotInstalled: What is missing, in words, or ""; called on a thread.
        readAvailability: Lists devices of this machine; called on a thread.
        root: Where the runs of the user lie.
    """

    background: Background
    programs: Programs
    launcher: Launcher
    checker: RecipeChecker
    makeTimer: Callable[[Callable[[], None], bool], Timer]
    store: SettingsStore
    whyNotInstalled: Callable[[], str]
    readAvailability: Callable[[], Availability]
    root: Path

    def close(self) -> None:
        """End what belongs to the module; trainings go on."""
        self.background.close()


def localCollaborators() -> Collaborators:
    """The real ones; nothing is started before it is needed."""
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
