"""Running one step of an installation through Slicer's installer or as a subprocess."""

from __future__ import annotations

import inspect
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from pumit.client.worker import signal_tree

from PUMITSlicerLib.computing.background import Background
from PUMITSlicerLib.computing.python_executable import SLICER_PYTHON, SlicerPython

_REQUESTER = "PUMIT"


@dataclass(frozen=True)
class InstallStep:
    """Call of a Python module that installs packages.

    Attributes:
        name: Name of the package, for the user.
        module: `pip`, or `light_the_torch`, which finds the torch for the graphics card.
    """

    name: str
    module: str
    arguments: tuple[str, ...]

    def constrained(self, file: Path) -> InstallStep:
        """Return this step with a constraints file."""
        return replace(self, arguments=(*self.arguments, "-c", str(file)))


class Runner(Protocol):
    """Interface of step runners."""

    def run(
        self, step: InstallStep, onLine: Callable[[str], None], onFinished: Callable[[int], None]
    ) -> Callable[[], None] | None:
        """Start a step and return at once.

        Args:
            onLine: Callback for each line of output, on the GUI thread.
            onFinished: Callback for the exit status, on the GUI thread.

        Returns:
            Function that stops the step; None if it cannot be stopped.
        """


class ProgramRunner:
    """Runner of steps as subprocesses of Slicer's Python; a thread reads their output."""

    def __init__(self, background: Background, python: SlicerPython = SLICER_PYTHON) -> None:
        self._background = background
        self._python = python

    def run(
        self, step: InstallStep, onLine: Callable[[str], None], onFinished: Callable[[int], None]
    ) -> Callable[[], None]:
        """Start a step; the returned function kills its process tree."""
        # No standard input, since questions cannot be answered.
        process = self._python.open(step.module, step.arguments, stderr=subprocess.STDOUT)

        def read() -> int:
            assert process.stdout is not None
            with process.stdout:
                for line in process.stdout:
                    text = line.decode("utf-8", errors="replace").rstrip()
                    self._background.post(onLine, text)
            return process.wait()

        def end() -> None:
            if process.poll() is None:
                signal_tree(process, force=True)

        self._background.submit(read, onFinished, onCancel=end)
        return end


class PackagingRunner:
    """Runner of pip through `slicer.packaging`, and of everything else as a subprocess.

    Args:
        packaging: Module `slicer.packaging`, or its earlier name `slicer.pydeps`.
        programs: Runner of everything but pip.
    """

    def __init__(self, packaging: Any, programs: Runner) -> None:
        self._packaging = packaging
        self._programs = programs

    def run(
        self, step: InstallStep, onLine: Callable[[str], None], onFinished: Callable[[int], None]
    ) -> Callable[[], None] | None:
        """Start a step; pip cannot be stopped this way."""
        if step.module != "pip":
            return self._programs.run(step, onLine, onFinished)
        self._packaging.pip_install(
            list(step.arguments[1:]),  # pip_install adds "install" itself
            blocking=False,
            show_progress=False,
            requester=_REQUESTER,
            logCallback=onLine,
            completedCallback=onFinished,
        )
        return None


def find_runner(background: Background) -> Runner:
    """Return Slicer's installer if it can run without blocking the GUI, otherwise pip.

    While Slicer runs its own tests its installer blocks the GUI, so it is not used then.
    """
    import slicer

    programs = ProgramRunner(background)
    app = getattr(slicer, "app", None)
    if app is None or (hasattr(app, "testingEnabled") and app.testingEnabled()):
        return programs
    for name in ("slicer.packaging", "slicer.pydeps"):
        try:
            packaging = import_module(name)
        except ImportError:
            continue
        install = getattr(packaging, "pip_install", None)
        if install and "completedCallback" in inspect.signature(install).parameters:
            return PackagingRunner(packaging, programs)
    return programs
