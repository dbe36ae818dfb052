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
