"""`slicer.parameterNodeWrapper`: the types, conditions and widgets that the two modules use.

What else Slicer takes is refused here: extend it together with the module that needs it.
"""

import enum
import typing
import weakref
from collections.abc import Callable
from typing import Annotated, Any

import slicer
import vtk


class WithinRange:
    """A condition: from minimum to maximum, both included."""

    def __init__(self, minimum: Any, maximum: Any) -> None:
        self.minimum = minimum
        self.maximum = maximum

    def validate(self, value: Any) -> None:
        """Raise where the value lies outside."""
        if not self.minimum <= value <= self.maximum:
            raise ValueError(f"Value must be in [{self.minimum}, {self.maximum}], is {value}")


class Parameter:
    """How values of one type lie in a parameter node, which holds texts and references alone.

    Raises:
        TypeError: If the type cannot be held.
    """

    def __init__(self, owner: type, name: str, hint: Any) -> None:
        self.name = name
        self.type, *conditions = (
            typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
        )
        self.conditions: list[WithinRange] = conditions
        kinds = (str, int, float, enum.Enum, slicer.vtkMRMLNode)
        if not isinstance(self.type, type) or not issubclass(self.type, kinds):
            raise TypeError(f"Unable to create serializer for type: {hint}")
        self.isNode = issubclass(self.type, slicer.vtkMRMLNode)
        self.isEnum = issubclass(self.type, enum.Enum)
        first = None if self.isNode else next(iter(self.type)) if self.isEnum else self.type()
        self.default = vars(owner).get(name, first)

    def write(self, node: Any, value: Any) -> None:
        """Write a value; raise where it is not of this type or misses a condition."""
        if value is None and not self.isNode:
            raise ValueError("Value must not be None")
        taken = (int, float) if self.type is float else self.type
        if value is not None and not isinstance(value, taken):
            raise TypeError(f"Value must be of type '{taken}', is {value!r}")
        for condition in self.conditions:
            condition.validate(value)
        if self.isNode:
            # A reference that is empty leaves no trace: the parameter tells that it was set.
            node.SetParameter(self.name, "")
            node.SetNodeReferenceID(self.name, value.GetID() if value is not None else None)
        else:
            node.SetParameter(self.name, value.name if self.isEnum else str(value))

    def read(self, node: Any) -> Any:
        """Read a value, after writing the default where there is none."""
        if not node.HasParameter(self.name):
            self.write(node, self.default)
        if self.isNode:
            return node.GetNodeReference(self.name)
        text = node.GetParameter(self.name)
        if self.type is bool:
            return text == "True"
        return self.type[text] if self.isEnum else self.type(text)


class GuiConnector:
    """A check box or a node selector that shows a parameter.

    Raises:
        RuntimeError: If Slicer has no connector for the pair, or the harness knows none.
    """

    def __init__(self, widget: Any, parameter: Parameter) -> None:
        import qt

        self._widget = widget
        if parameter.type is bool and type(widget) is qt.QCheckBox:
            self.read, self._signal = lambda: widget.checked, "toggled(bool)"
            self.write = lambda value: setattr(widget, "checked", value)
        elif parameter.isNode and type(widget) is slicer.qMRMLNodeComboBox:
            widget.nodeTypes = [parameter.type.__name__]
            self.read, self.write = widget.currentNode, widget.setCurrentNode
            self._signal = "currentNodeChanged(vtkMRMLNode*)"
        else:
            raise RuntimeError(
                f"Unable to create GUI connector from datatype '{parameter.type}' "
                f"to widget type '{type(widget)}'"
            )
        self._callback: Callable[[], None] | None = None

    def onChanged(self, callback: Callable[[], None] | None) -> None:
        """Call back when the user changes the widget; None ends that."""
        if self._callback is not None:
            self._widget.disconnect(self._signal, self._changed)
        self._callback = callback
        if callback is not None:
            self._widget.connect(self._signal, self._changed)

    def _changed(self) -> None:
        if self._callback is not None:
            self._callback()


class _Wrapper:
    """What every wrapped class can do."""

    allParameters: dict[str, Parameter]

    def __init__(self, parameterNode: Any) -> None:
        self.parameterNode = parameterNode
        self._guis: dict[int, tuple[dict[str, GuiConnector], int]] = {}
        self._nextTag = 0
        self._isUpdatingGui = False
        self._values: dict[str, Any] = {}
        self._remember()
        seen = weakref.ref(self)

        def onModified(caller: Any, event: str) -> None:
            wrapper = seen()
            if wrapper is not None:
                wrapper._remember()

        tag = parameterNode.AddObserver(vtk.vtkCommand.ModifiedEvent, onModified)
        weakref.finalize(self, parameterNode.RemoveObserver, tag).atexit = False

    def _remember(self) -> None:
        """Read every value: like Slicer's, it is given out until the node is modified."""
        for name, parameter in self.allParameters.items():
            self._values[name] = parameter.read(self.parameterNode)

    def getValue(self, name: str) -> Any:
        """Return a parameter's value."""
        return self._values[self._find(name).name]

    def setValue(self, name: str, value: Any) -> None:
        """Set a parameter's value."""
        parameter = self._find(name)
        with slicer.util.NodeModify(self.parameterNode):
            parameter.write(self.parameterNode, value)
            self._values[name] = parameter.read(self.parameterNode)

    def connectParametersToGui(self, mapping: dict[str, Any]) -> int:
        """Tie parameters, by name, to widgets; the tag serves `disconnectGui`."""
        connectors = {name: GuiConnector(w, self._find(name)) for name, w in mapping.items()}
        for name, connector in connectors.items():
            connector.write(self.getValue(name))
            connector.onChanged(lambda name=name, item=connector: self._fromGui(name, item))
        observer = self.AddObserver(vtk.vtkCommand.ModifiedEvent, lambda *_: self._toGui())
        tag, self._nextTag = self._nextTag, self._nextTag + 1
        self._guis[tag] = (connectors, observer)
        return tag

    def disconnectGui(self, guiTag: int | None) -> None:
        """Untie widgets."""
        if guiTag not in self._guis:
            return
        connectors, observer = self._guis.pop(guiTag)
        self.RemoveObserver(observer)
        for connector in connectors.values():
            connector.onChanged(None)

    def StartModify(self) -> Any:
        """Hold back the node's events."""
        return self.parameterNode.StartModify()

    def EndModify(self, wasModified: Any) -> Any:
        """Send the node's events that were held back."""
        return self.parameterNode.EndModify(wasModified)

    def AddObserver(self, event: Any, callback: Any, priority: float = 0.0) -> int:
        """Observe the node."""
        return self.parameterNode.AddObserver(event, callback, priority)

    def RemoveObserver(self, tag: int) -> None:
        """End an observation."""
        self.parameterNode.RemoveObserver(tag)

    def Modified(self) -> None:
        """Say that the node has changed."""
        self.parameterNode.Modified()

    def _find(self, name: str) -> Parameter:
        if name not in self.allParameters:
            known = ", ".join(self.allParameters)
            raise ValueError(f"Cannot find a param with the given name: {name}; found {known}")
        return self.allParameters[name]

    def _fromGui(self, name: str, connector: GuiConnector) -> None:
        if not self._isUpdatingGui:
            with slicer.util.NodeModify(self):
                self.setValue(name, connector.read())

    def _toGui(self) -> None:
        if self._isUpdatingGui:
            return
        self._isUpdatingGui = True
        try:
            for connectors, _ in list(self._guis.values()):
                for name, connector in connectors.items():
                    connector.write(self.getValue(name))
        finally:
            self._isUpdatingGui = False


def parameterNodeWrapper(owner: type) -> Any:
    """Class decorator: each annotated name becomes a typed parameter of a parameter node."""
    hints = typing.get_type_hints(owner, include_extras=True)
    names = {name for name in vars(_Wrapper) if name[:2] != "__"}
    reserved = names & (set(vars(owner)) | set(hints))
    if reserved:
        raise ValueError(f"Cannot use reserved names {sorted(reserved)}")
    parameters = {name: Parameter(owner, name, hint) for name, hint in hints.items()}
    for name in (*names, "__init__"):
        setattr(owner, name, vars(_Wrapper).get(name))
    owner.allParameters = parameters
    for name in parameters:
        setattr(owner, name, _property(name))
    return owner


def _property(name: str) -> property:
    return property(
        lambda self: self.getValue(name), lambda self, value: self.setValue(name, value)
    )
