"""Base classes for the registration of both modules; light, since Slicer imports it at start."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import slicer
from slicer.ScriptedLoadableModule import ScriptedLoadableModuleTest, ScriptedLoadableModuleWidget


class ModuleWidget(ScriptedLoadableModuleWidget):
    """Module widget in Slicer's module panel.

    Attributes:
        PACKAGES: Packages that are reloaded with the module.
    """

    PACKAGES: tuple[str, ...] = ()

    def __init__(self, parent=None) -> None:
        self.panel: Any = None
        self.logic: Any = None
        super().__init__(parent)

    def makeLogic(self) -> Any:
        """Create the logic; nothing is installed or started."""
        raise NotImplementedError

    def makePanel(self) -> Any:
        """Create the panel of `logic`."""
        raise NotImplementedError

    def setup(self) -> None:
        """Create the panel."""
        super().setup()
        self.logic = self.makeLogic()
        self.panel = self.makePanel()
        self.layout.addWidget(self.panel.widget)
        self.layout.addStretch(1)
        if getattr(self.parent, "isEntered", False):  # after a reload, `enter` is not called
            self.panel.enter()

    def enter(self) -> None:
        """React when the user opens the module."""
        if self.panel is not None:
            self.panel.enter()

    def exit(self) -> None:
        """React when the user opens another module."""
        if self.panel is not None:
            self.panel.exit()

    def cleanup(self) -> None:
        """React when the module is reloaded, or Slicer exits; trainings continue."""
        if self.panel is not None:
            self.panel.close()
            self.panel = None

    def onReload(self) -> None:
        """Reload the module with its packages."""
        for name in list(sys.modules):
            if name.split(".")[0] in self.PACKAGES:
                del sys.modules[name]
        super().onReload()


class ModuleTest(ScriptedLoadableModuleTest):
    """Self-test to run inside Slicer: Reload and Test, in developer mode."""

    TIMEOUT_S = 300.0

    def setUp(self) -> None:
        """Start from an empty scene."""
        slicer.mrmlScene.Clear()

    def runTest(self) -> None:
        """Run every check."""
        for test in self.checks():
            self.setUp()
            self.delayDisplay(test.__name__.removeprefix("test_").replace("_", " "))
            test()

    def checks(self) -> Sequence[Callable[[], None]]:
        """Return the checks in their order."""
        return ()

    def wait(self, condition: Callable[[], object]) -> None:
        """Let Slicer work until a condition holds."""
        end = time.monotonic() + self.TIMEOUT_S
        while not condition():
            if time.monotonic() > end:
                self.fail("no answer came")
            slicer.app.processEvents()
            time.sleep(0.005)
