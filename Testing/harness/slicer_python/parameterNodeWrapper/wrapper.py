"""Shows a parameter node as an object with typed attributes, tied to widgets where wished."""

from __future__ import annotations

import weakref
from typing import Any

import slicer
import vtk
from slicer.parameterNodeWrapper.gui_connectors import GuiConnector, createGuiConnector
from slicer.parameterNodeWrapper.parameters import Parameter, declaredParameters

SlicerParameterNamePropertyName = "SlicerParameterName"


class _Wrapper:
    """What every wrapped class can do."""

    def __init__(self, parameterNode: Any, prefix: str | None = None) -> None:
        self.parameterNode = parameterNode
        self._prefix = prefix or ""
        self._guis: dict[int, tuple[dict[str, GuiConnector], int]] = {}
        self._nextTag = 0
        self._isUpdatingGui = False
        for name, parameter in self.allParameters.items():
            if not parameter.kind.isIn(parameterNode, self._prefix + name):
                parameter.kind.write(parameterNode, self._prefix + name, parameter.default.value)
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
        for name in self.allParameters:
            self._values[name] = self._read(name)

    def getValue(self, name: str) -> Any:
        """A parameter's value; "pack.part" reads a part of a pack."""
        top, _, rest = name.partition(".")
        self._find(top)
        value = self._values[top]
        for part in rest.split(".") if rest else ():
            value = getattr(value, part)
        return value

    def _read(self, name: str) -> Any:
        parameter, stored = self._find(name), self._prefix + name
        if not parameter.kind.isIn(self.parameterNode, stored):
            parameter.kind.write(self.parameterNode, stored, parameter.default.value)
        return parameter.kind.read(self.parameterNode, stored)

    def setValue(self, name: str, value: Any) -> None:
        """Set a parameter's value.

        Raises:
            TypeError: If it is of another type.
            ValueError: If it does not meet the parameter's conditions.
        """
        top, _, rest = name.rpartition(".")
        if top:
            setattr(self.getValue(top), rest, value)
        else:
            parameter = self._find(name)
            with slicer.util.NodeModify(self.parameterNode):
                parameter.kind.write(self.parameterNode, self._prefix + name, value)
                self._values[name] = self._read(name)

    def default(self, name: str) -> Any:
        """A parameter's Default."""
        return self._find(name).default

    def isCached(self, name: str) -> bool:
        """Whether reading again costs nothing; here it is always read."""
        self._find(name)
        return False

    @classmethod
    def dataType(cls, name: str) -> Any:
        """A parameter's type, with annotations."""
        top, _, rest = name.partition(".")
        if top not in cls.allParameters:
            raise ValueError(f"Cannot find a param with the given name: {top}")
        hint = cls.allParameters[top].unalteredType
        return hint.allParameters[rest].unalteredType if rest else hint

    def connectGui(self, gui: Any) -> None:
        """Tie every widget that has a SlicerParameterName.

        Slicer's own returns nothing either, whatever its template makes of that: what was tied
        this way stays tied.

        Args:
            gui: A widget, or what `slicer.util.childWidgetVariables` returns.
        """
        import qt

        isWidget = isinstance(gui, qt.QWidget)
        widgets = gui.findChildren(qt.QWidget) if isWidget else list(vars(gui).values())
        named = ((widget.property(SlicerParameterNamePropertyName), widget) for widget in widgets)
        self.connectParametersToGui({name: widget for name, widget in named if name})

    def connectParametersToGui(self, mapping: dict[str, Any]) -> int:
        """Tie parameters, by name, to widgets or connectors."""
        for name in mapping:
            self._find(name.partition(".")[0])
        connectors = {
            name: item
            if isinstance(item, GuiConnector)
            else createGuiConnector(item, self.dataType(name))
            for name, item in mapping.items()
        }
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


def parameterNodeWrapper(owner: type | None = None) -> Any:
    """Class decorator: each annotated name becomes a typed parameter of a parameter node."""
    if owner is None:
        return parameterNodeWrapper
    parameters = declaredParameters(owner)
    reserved = {name for name in vars(_Wrapper) if name[:2] != "__"} & set(vars(owner))
    reserved |= {name for name in vars(_Wrapper) if name in parameters}
    if reserved:
        raise ValueError(f"Cannot use reserved names {sorted(reserved)}")
    for name, member in vars(_Wrapper).items():
        if name == "__init__" or name[:2] != "__":
            setattr(owner, name, member)
    owner.allParameters = parameters
    owner._is_parameter_node_wrapper = True
    for name in parameters:
        setattr(owner, name, _property(name))
    return owner


def isParameterNodeWrapper(item: Any) -> bool:
    """Whether a class, or an object of one, was made by `parameterNodeWrapper`."""
    return bool(getattr(item, "_is_parameter_node_wrapper", False))


def findChildWidgetForParameter(widget: Any, parameter: str) -> Any:
    """The child that shows a parameter, or None."""
    import qt

    children = widget.findChildren(qt.QWidget)
    named = [c for c in children if c.property(SlicerParameterNamePropertyName) == parameter]
    return named[0] if named else None


def _property(name: str) -> property:
    return property(
        lambda self: self.getValue(name), lambda self, value: self.setValue(name, value)
    )
