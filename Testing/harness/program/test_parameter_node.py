"""What Slicer's parameter nodes refuse is refused here too; the panels' tests show the rest."""

# Without postponed annotations: the classes below lie in a function, where their names are local.
import enum
from typing import Annotated

import pytest


class Mode(enum.Enum):
    FAST = 1
    EXACT = 2


@pytest.fixture
def parameters(scene):
    """A parameter of each kind, with its node."""
    from slicer import vtkMRMLScalarVolumeNode
    from slicer.parameterNodeWrapper import WithinRange, parameterNodeWrapper

    @parameterNodeWrapper
    class Parameters:
        volume: vtkMRMLScalarVolumeNode
        count: int
        isOn: bool
        name: str = "segment"
        limit: Annotated[float, WithinRange(0, 10)] = 5.0
        mode: Mode = Mode.EXACT

    return Parameters(scene.AddNewNodeByClass("vtkMRMLScriptedModuleNode"))


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("limit", 11.0, ValueError),
        ("limit", "3", TypeError),
        ("limit", None, ValueError),
        ("count", 1.5, TypeError),
        ("name", 3, TypeError),
        ("isOn", 1, TypeError),
        ("mode", "FAST", TypeError),
    ],
)
def test_wrong_values_are_refused_and_change_nothing(parameters, name, value, error) -> None:
    before = getattr(parameters, name)
    with pytest.raises(error):
        setattr(parameters, name, value)
    assert getattr(parameters, name) == before


def test_a_node_of_another_class_is_refused_and_one_that_is_gone_is_none(parameters, scene) -> None:
    with pytest.raises(TypeError):
        parameters.volume = scene.AddNewNodeByClass("vtkMRMLModelNode")
    parameters.volume = scene.AddNewNodeByClass("vtkMRMLScalarVolumeNode")
    scene.RemoveNode(parameters.volume)
    assert parameters.volume is None


@pytest.mark.parametrize(
    ("name", "hint", "error"),
    [
        ("value", int | None, "Unable to create serializer"),
        ("value", bytes, "Unable to create serializer"),
        ("getValue", int, "reserved"),
    ],
)
def test_a_class_that_slicer_cannot_wrap_is_refused(scene, name, hint, error) -> None:
    from slicer.parameterNodeWrapper import parameterNodeWrapper

    with pytest.raises((TypeError, ValueError), match=error):
        parameterNodeWrapper(type("Owner", (), {"__annotations__": {name: hint}}))


def test_pairs_and_names_that_slicer_does_not_know_are_refused(slicerApp, parameters) -> None:
    import qt

    with pytest.raises(RuntimeError):
        parameters.connectParametersToGui({"isOn": qt.QToolButton()})
    with pytest.raises(ValueError, match="Cannot find a param"):
        parameters.connectParametersToGui({"isOnn": qt.QCheckBox()})


def test_disconnecting_leaves_no_observer(slicerApp, parameters) -> None:
    import qt

    from harness.program.scene_state import countPythonObservers

    before = countPythonObservers(parameters.parameterNode)
    tag = parameters.connectParametersToGui({"isOn": qt.QCheckBox()})
    assert countPythonObservers(parameters.parameterNode) == before + 1
    parameters.disconnectGui(tag)
    assert countPythonObservers(parameters.parameterNode) == before
