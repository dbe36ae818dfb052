"""Steps run through Slicer's own installer where it can work without blocking the GUI."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
import slicer
from PUMITSlicerLib.installing import installation as installation_steps
from PUMITSlicerLib.installing.installation import (
    InstallStep,
    PackagingRunner,
    ProgramRunner,
    find_runner,
)


class Programs:
    """Notes what would run as a program."""

    def __init__(self):
        self.modules = []

    def run(self, step, onLine, onFinished):
        self.modules.append(step.module)


class Packaging:
    """`slicer.packaging` as Slicer has it."""

    def __init__(self):
        self.calls = []

    def pip_install(
        self,
        requirements,
        constraints=None,
        blocking=True,
        show_progress=True,
        requester=None,
        logCallback=None,
        completedCallback=None,
    ):
        assert threading.current_thread() is threading.main_thread()
        assert not blocking
        assert not show_progress
        self.calls.append(requirements)
        logCallback("Collecting")
        completedCallback(0)


def test_pip_runs_through_slicers_own_installer(background):
    packaging, programs, lines, ends = Packaging(), Programs(), [], []
    runner = PackagingRunner(packaging, programs)
    runner.run(
        InstallStep("monai", "pip", ("install", "monai", "-c", "x")), lines.append, ends.append
    )
    assert packaging.calls == [["monai", "-c", "x"]]
    assert (lines, ends) == (["Collecting"], [0])
    runner.run(
        InstallStep("torch", "light_the_torch", ("install", "torch")), lines.append, ends.append
    )
    assert programs.modules == ["light_the_torch"]


@pytest.mark.parametrize(
    ("modules", "testing", "kind"),
    [
        ({"slicer.packaging": Packaging()}, False, PackagingRunner),
        ({"slicer.pydeps": Packaging()}, False, PackagingRunner),
        ({"slicer.packaging": Packaging()}, True, ProgramRunner),
        (
            {"slicer.packaging": SimpleNamespace(pip_install=lambda requirements: 0)},
            False,
            ProgramRunner,
        ),
        ({}, False, ProgramRunner),
    ],
)
def test_slicers_installer_is_used_where_it_can_work_next_to_the_gui(
    background, monkeypatch, modules, testing, kind
):
    def find(name):
        if name not in modules:
            raise ImportError(name)
        return modules[name]

    app = SimpleNamespace(testingEnabled=lambda: testing)
    monkeypatch.setattr(slicer, "app", app, raising=False)
    monkeypatch.setattr(installation_steps, "import_module", find)
    assert type(find_runner(background)) is kind
