"""Failures in callbacks are seen, and each test finds a new scene."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest


def fail(*_: object) -> None:
    raise ZeroDivisionError("on purpose")


def test_an_exception_in_an_observer_and_what_vtk_says_are_noticed(scene, failures):
    import vtk

    tag = scene.AddObserver(vtk.vtkCommand.ModifiedEvent, fail)
    with failures.expected("on purpose"):
        scene.Modified()
    scene.RemoveObserver(tag)
    window = vtk.vtkOutputWindow.GetInstance()
    with failures.expected("Warning of VTK.*careful"):
        window.DisplayWarningText("careful")
    with failures.expected("first"):
        window.DisplayErrorText("first")
        window.DisplayErrorText("second")
    (left,) = failures.take()
    assert "second" in left
    # A node that Slicer itself observes twice is no failure of ours.
    text = "Observation 33 between vtkMRMLMarkupsFiducialNode and vtkSlicerMarkupsLogic with {}"
    window.DisplayWarningText(text.format("priority 0 already exists."))
    assert not failures.take()


def test_an_exception_in_a_slot_or_a_timer_is_noticed(slicerApp, failures):
    import qt

    button = qt.QPushButton()
    button.connect("clicked()", fail)
    with failures.expected("on purpose"):
        button.click()
    qt.QTimer.singleShot(0, fail)
    with failures.expected("on purpose"):
        slicerApp.processEvents()


def test_an_exception_while_painting_reaches_the_caller(slicerApp):
    import qt

    class Broken(qt.QWidget):
        def paintEvent(self, event: object) -> None:
            fail()

    with pytest.raises(ZeroDivisionError, match="on purpose"):
        Broken().grab()


def test_expecting_a_failure_that_does_not_come_fails(failures):
    with pytest.raises(AssertionError, match="expected a failure"), failures.expected("never"):
        pass


TESTS = """
def test_it(scene):
    scene.AddObserver("ModifiedEvent", lambda *_: 1 / 0)
    scene.Modified()

def test_after_it(scene):
    scene.Modified()
"""


@pytest.mark.slow
def test_a_failure_fails_the_test_that_caused_it(scene, repository, tmp_path):
    shutil.copy(repository / "Testing" / "conftest.py", tmp_path)
    (tmp_path / "test_failing.py").write_text(TESTS)
    settings = ["-c", repository / "pyproject.toml", "--rootdir", repository]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *settings, tmp_path]
    given = {n: v for n, v in os.environ.items() if n != "PYTEST_ADDOPTS"}
    run = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path, env=given
    )
    assert run.returncode == 1, run.stdout + run.stderr
    assert "while the test ran:" in run.stdout
    assert "ZeroDivisionError" in run.stdout
    assert "test_after_it" not in run.stdout


# Two tests of one body: the second would see what the first left.
TWICE = pytest.mark.parametrize("time", ["first", "second"])


@TWICE
def test_nothing_of_another_test_is_left(scene, time):
    import slicer

    from harness.program.scene_state import countPythonObservers

    logic = slicer.app.applicationLogic()
    interaction, selection = logic.GetInteractionNode(), logic.GetSelectionNode()
    assert scene.GetNumberOfNodesByClass("vtkMRMLVolumeNode") == 0
    assert scene.GetNumberOfNodesByClass("vtkMRMLSliceNode") == 0
    assert scene.GetNumberOfNodesByClass("vtkMRMLScriptedModuleNode") == 0
    assert interaction.GetCurrentInteractionMode() == interaction.ViewTransform
    assert not interaction.GetPlaceModePersistence()
    assert not selection.GetActivePlaceNodeID()
    assert countPythonObservers(interaction) == 0
    assert countPythonObservers(scene) == 3  # the subject hierarchy's
    # Now everything is disturbed.
    slicer.util.addVolumeFromArray(np.zeros((2, 3, 4)))
    points = scene.AddNewNodeByClass("vtkMRMLMarkupsFiducialNode")
    slicer.modules.markups.logic().SetActiveList(points)
    interaction.SetPlaceModePersistence(True)
    interaction.SetCurrentInteractionMode(interaction.Place)
    interaction.AddObserver("ModifiedEvent", lambda *_: None)
    scene.AddObserver("ModifiedEvent", lambda *_: None)
    node = slicer.vtkMRMLScriptedModuleNode()
    node.SetSingletonTag("Left")
    scene.AddNode(node)
    scene.StartState(slicer.vtkMRMLScene.BatchProcessState)
