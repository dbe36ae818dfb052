"""Parameter nodes behave as Slicer documents them."""

# Without postponed annotations: the classes below lie in a function, where their names are local.
import enum
from pathlib import Path
from typing import Annotated, Optional

import pytest


class Mode(enum.Enum):
    FAST = 1
    EXACT = 2


@pytest.fixture
def wrapper(scene):
    """A class with a parameter of each kind."""
    from slicer import vtkMRMLModelNode, vtkMRMLScalarVolumeNode
    from slicer.parameterNodeWrapper import (
        Choice,
        Default,
        Maximum,
        WithinRange,
        parameterNodeWrapper,
        parameterPack,
    )

    @parameterPack
    class Corner:
        x: float
        y: Annotated[float, Maximum(10)] = 2.0

    @parameterNodeWrapper
    class Parameters:
        volume: vtkMRMLScalarVolumeNode
        model: Optional[vtkMRMLModelNode]  # noqa: UP045 - Slicer knows this spelling alone
        count: int
        ratio: Annotated[float, Default(0.5)]
        isOn: bool
        color: Annotated[str, Choice(["red", "green"])]
        folder: Path
        numbers: list[int]
        sizes: dict[str, float]
        spacing: tuple[float, int]
        corner: Corner
        name: str = "segment"
        limit: Annotated[float, WithinRange(0, 10)] = 5.0
        mode: Mode = Mode.EXACT

    return Parameters


@pytest.fixture
def node(scene):
    return scene.AddNewNodeByClass("vtkMRMLScriptedModuleNode")


@pytest.fixture
def parameters(wrapper, node):
    return wrapper(node)


def test_defaults_are_written_to_the_node(parameters, node) -> None:
    assert parameters.volume is None
    assert parameters.model is None
    assert (parameters.name, parameters.count, parameters.limit) == ("segment", 0, 5.0)
    assert (parameters.ratio, parameters.isOn, parameters.mode) == (0.5, False, Mode.EXACT)
    assert (parameters.color, parameters.folder) == ("red", Path())
    assert parameters.numbers == []
    assert dict(parameters.sizes) == {}
    assert parameters.spacing == (0.0, 0)
    assert (parameters.corner.x, parameters.corner.y) == (0.0, 2.0)
    assert node.GetParameter("limit") == "5.0"
    assert node.GetParameter("mode") == "EXACT"


def test_values_return_as_they_were_set(parameters, scene, wrapper, node) -> None:
    volume = scene.AddNewNodeByClass("vtkMRMLScalarVolumeNode")
    parameters.volume = volume
    parameters.limit = 3
    parameters.mode = Mode.FAST
    parameters.folder = Path("a/b")
    parameters.spacing = (1.5, 2)
    parameters.model = scene.AddNewNodeByClass("vtkMRMLModelNode")
    again = wrapper(node)
    assert again.volume is volume
    assert again.limit == 3.0
    assert isinstance(again.limit, float)
    assert again.mode is Mode.FAST
    assert again.folder == Path("a/b")
    assert again.spacing == (1.5, 2)
    assert again.model is parameters.model


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
        ("color", "blue", ValueError),
        ("folder", "a/b", TypeError),
        ("numbers", ["one"], TypeError),
    ],
)
def test_wrong_values_are_refused_and_change_nothing(parameters, name, value, error) -> None:
    before = getattr(parameters, name)
    with pytest.raises(error):
        setattr(parameters, name, value)
    assert getattr(parameters, name) == before


def test_a_node_of_another_class_is_refused(parameters, scene) -> None:
    with pytest.raises(TypeError):
        parameters.volume = scene.AddNewNodeByClass("vtkMRMLModelNode")


def test_a_node_that_is_gone_reads_as_none(parameters, scene) -> None:
    parameters.volume = scene.AddNewNodeByClass("vtkMRMLScalarVolumeNode")
    scene.RemoveNode(parameters.volume)
    assert parameters.volume is None


def test_lists_dictionaries_and_packs_are_written_when_changed_in_place(
    parameters, wrapper, node
) -> None:
    parameters.numbers.append(1)
    parameters.numbers.extend([2, 3])
    del parameters.numbers[0]
    parameters.sizes["liver"] = 2.5
    parameters.corner.x = 7.0
    again = wrapper(node)
    assert again.numbers == [2, 3]
    assert dict(again.sizes) == {"liver": 2.5}
    assert again.corner.x == 7.0
    with pytest.raises(ValueError, match="greater"):
        again.corner.y = 11.0


def test_changes_tell_observers_once(parameters) -> None:
    import vtk

    calls = []
    tag = parameters.AddObserver(vtk.vtkCommand.ModifiedEvent, lambda *_: calls.append(1))
    parameters.limit = 4.0
    assert calls == [1]
    parameters.limit = 4.0
    assert calls == [1]
    parameters.RemoveObserver(tag)


def test_closing_the_scene_brings_the_defaults_back(wrapper, scene) -> None:
    from slicer.ScriptedLoadableModule import ScriptedLoadableModuleLogic

    class AnyLogic(ScriptedLoadableModuleLogic):
        pass

    parameters = wrapper(AnyLogic().getParameterNode())
    parameters.limit = 9.0
    scene.Clear(0)
    assert parameters.limit == 5.0
    assert AnyLogic().getParameterNode() is parameters.parameterNode


def test_types_that_slicer_cannot_hold_are_refused(scene) -> None:
    from slicer.parameterNodeWrapper import parameterNodeWrapper

    for hint in (int | None, bytes, object):
        owner = type("Owner", (), {"__annotations__": {"value": hint}})
        with pytest.raises(TypeError, match="Unable to create serializer"):
            parameterNodeWrapper(owner)


def test_reserved_names_are_refused(scene) -> None:
    from slicer.parameterNodeWrapper import parameterNodeWrapper

    owner = type("Owner", (), {"__annotations__": {"getValue": int}})
    with pytest.raises(ValueError, match="reserved"):
        parameterNodeWrapper(owner)


def test_values_and_types_are_found_by_name(parameters) -> None:
    parameters.setValue("limit", 1.0)
    parameters.setValue("corner.x", 4.0)
    assert (parameters.getValue("limit"), parameters.getValue("corner.x")) == (1.0, 4.0)
    assert parameters.default("limit").value == 5.0
    assert parameters.dataType("count") is int
    with pytest.raises(ValueError, match="Cannot find a param"):
        parameters.getValue("limt")


def pairs():
    import ctk
    import qt

    return {
        "isOn": (qt.QCheckBox(), "checked", True, True),
        "limit": (ctk.ctkSliderWidget(), "value", 7.5, 7.5),
        "ratio": (qt.QDoubleSpinBox(), "value", 0.25, 0.25),
        "count": (qt.QSpinBox(), "value", 4, 4),
        "name": (qt.QLineEdit(), "text", "liver", "liver"),
        "mode": (qt.QComboBox(), "currentText", "FAST", Mode.FAST),
        "color": (qt.QComboBox(), "currentText", "green", "green"),
        "folder": (ctk.ctkPathLineEdit(), "currentPath", "c/d", Path("c/d")),
    }


@pytest.mark.parametrize(
    "name", ["isOn", "limit", "ratio", "count", "name", "mode", "color", "folder"]
)
def test_a_widget_and_its_parameter_follow_each_other(slicerApp, parameters, name) -> None:
    widget, attribute, shown, value = pairs()[name]
    before = getattr(parameters, name)
    shownBefore = getattr(widget, attribute)
    tag = parameters.connectParametersToGui({name: widget})
    setattr(widget, attribute, shown)
    assert getattr(parameters, name) == value
    setattr(parameters, name, before)
    assert getattr(widget, attribute) != shown
    parameters.disconnectGui(tag)
    setattr(parameters, name, value)
    assert getattr(widget, attribute) != shown or shownBefore == shown


def test_pairs_that_slicer_has_no_connector_for_are_refused(slicerApp, parameters) -> None:
    import ctk
    import qt

    for name, widget in (
        ("count", ctk.ctkSliderWidget()),
        ("mode", ctk.ctkComboBox()),
        ("isOn", qt.QToolButton()),
        ("ratio", ctk.ctkSliderWidget()),  # a slider needs bounds
        ("name", qt.QComboBox()),  # a combo box needs choices
    ):
        with pytest.raises(RuntimeError):
            parameters.connectParametersToGui({name: widget})


def test_a_name_that_no_parameter_has_is_refused(slicerApp, parameters) -> None:
    import qt

    form = qt.QWidget()
    check = qt.QCheckBox(form)
    check.setProperty("SlicerParameterName", "isOnn")
    with pytest.raises(ValueError, match="Cannot find a param"):
        parameters.connectGui(form)


def test_disconnecting_leaves_no_observer(slicerApp, parameters, node) -> None:
    import qt

    from harness.program.scene_state import countPythonObservers

    before = countPythonObservers(node)
    tag = parameters.connectParametersToGui({"isOn": qt.QCheckBox()})
    assert countPythonObservers(node) == before + 1
    parameters.disconnectGui(tag)
    assert countPythonObservers(node) == before
    parameters.disconnectGui(None)


def test_only_connecting_by_name_tells_how_to_disconnect(slicerApp, parameters) -> None:
    import qt

    form = qt.QWidget()
    check = qt.QCheckBox(form)
    check.setProperty("SlicerParameterName", "isOn")
    assert parameters.connectGui(form) is None
    assert parameters.connectParametersToGui({"isOn": check}) is not None
