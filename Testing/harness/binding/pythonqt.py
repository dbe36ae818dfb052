"""Gives PySide6 the manners of PythonQt, Slicer's own Python binding of Qt.

Qt's properties are attributes (`label.text`, not `label.text()`), signals are connected by their
C++ signature (`button.connect("clicked()", slot)`), and nothing may be set on a C++ object that
it does not have. PySide6's classes are patched once per process, so that every widget behaves so,
whether code, a `.ui` file or Qt itself made it.
"""

import importlib
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

from Qt import QtCore, QtGui, QtWidgets

from harness.binding.constant_references import keepConstants

QT_MODULES = ("QtCore", "QtGui", "QtWidgets", "QtNetwork", "QtUiTools", "QtTest", "QtSvg")
# Qt's classes without an empty constructor: a method that returns one by value cannot be called,
# since PythonQt (before the one for Qt 6) has no object to copy it to.
_NOT_RETURNED = {"fontMetrics": "QFontMetrics", "fontInfo": "QFontInfo"}
# Set while a .ui file is loaded: PySide6 then sets children as attributes of the root.
loading = False

_getattribute = QtCore.QObject.__getattribute__
_originalConnect = QtCore.QObject.connect
_originalDisconnect = QtCore.QObject.disconnect
_propertyTables: dict[type, dict[str, str]] = {}
# Whether a property can be set, and its type in C++.
_declared: dict[tuple[type, str], tuple[bool, str]] = {}
# Properties that are being read: Qt looks up the method behind some, such as sizeHint.
_reading: set[tuple[int, str]] = set()


def metaObject(item: QtCore.QObject) -> QtCore.QMetaObject:
    """What Qt knows of an object's class."""
    return _getattribute(item, "metaObject")()


def signalOf(sender: QtCore.QObject, signature: str) -> tuple[Any, str]:
    """Find a signal by its C++ signature.

    Returns:
        What can be connected (a bound signal, or a SIGNAL() string), and the normal form of the
        signature.

    Raises:
        ValueError: If the object has no such signal.
    """
    name, _, rest = signature.partition("(")
    arguments = [part for part in rest.rstrip(")").split(",") if part.strip()]
    plain = [part.replace("const ", "").replace(" ", "").rstrip("&") for part in arguments]
    normal = f"{name.strip()}({','.join(plain)})"
    for base in type(sender).__mro__:
        declared = vars(base).get("cppSignals", {})
        if normal in declared:
            attribute, overload = declared[normal]
            signal = _getattribute(sender, attribute)
            return (signal if overload is None else signal[overload]), normal
    normal = bytes(QtCore.QMetaObject.normalizedSignature(signature)).decode()
    known = metaObject(sender)
    if known.indexOfSignal(normal) < 0 or isStandIn(type(sender), name):
        raise ValueError(f"{known.className()} has no signal '{signature}'")
    # What the SIGNAL() macro of C++ makes of it.
    return f"2{normal}", normal


def isStandIn(kind: type, attribute: str) -> bool:
    """Whether a name comes from one of the harness's own classes, not from Qt."""
    for base in kind.__mro__:
        if attribute in vars(base):
            return "cppSignals" in vars(base)
    return False


def install() -> None:
    """Patch PySide6, once."""
    if "className" in vars(QtCore.QObject):
        return
    keepConstants()
    chained = []
    for kind in _classes():
        # Each class carries its own slot; and some their own lookup, which comes first.
        kind.__setattr__ = _setAttribute
        if kind is not QtCore.QObject and "__getattribute__" in vars(kind):
            chained.append(kind)
    for kind in chained:
        kind.__getattribute__ = _chain(kind.__getattribute__)
    QtCore.QObject.__getattribute__ = _getAttribute
    QtCore.QObject.className = _METHODS["className"]
    type(QtCore.QObject).__instancecheck__ = _isInstance
    for name, value in _NOT_RETURNED.items():
        for kind in (QtWidgets.QWidget, QtGui.QPainter):
            setattr(kind, name, _refuseToReturn(name, value))
    for kind in (QtWidgets.QDialog, QtWidgets.QMenu, QtWidgets.QApplication, QtCore.QEventLoop):
        if not hasattr(kind, "exec_"):
            kind.exec_ = lambda self, *arguments, _kind=kind: _kind.exec(self, *arguments)


def _classes() -> list[type]:
    found = []
    for name in QT_MODULES:
        module = importlib.import_module(f"PySide6.{name}")
        members = [getattr(module, member) for member in dir(module)]
        found += [m for m in members if isinstance(m, type) and issubclass(m, QtCore.QObject)]
    return found


def _chain(own: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    def getAttribute(self: QtCore.QObject, name: str) -> Any:
        if name in _METHODS or (name[:1] != "_" and name in _properties(self)):
            return _getAttribute(self, name)
        return own(self, name)

    return getAttribute


def _properties(item: QtCore.QObject) -> dict[str, str]:
    """Names of an object's Qt properties, by the attribute that shows them."""
    kind = type(item)
    if kind not in _propertyTables:
        known = metaObject(item)
        names = [known.property(index).name() for index in range(known.propertyCount())]
        inPython = {name for base in kind.__mro__ if not _isCpp(base) for name in vars(base)}
        table = {name: name for name in [*names, "name"] if name not in inPython}
        if "name" in table:
            table["name"] = "objectName"
        _propertyTables[kind] = table
    return _propertyTables[kind]


def _isCpp(kind: type) -> bool:
    return kind is object or kind.__module__.startswith(("PySide6.", "Shiboken"))


def _isStrict(kind: type) -> bool:
    """Whether a class is C++ in Slicer: Qt's, CTK's and Slicer's widgets."""
    return _isCpp(kind) or "cppSignals" in vars(kind)


def _isInstance(kind: type, item: object) -> bool:
    """Answer isinstance as PythonQt does where one of the two modules asks.

    Each class of PythonQt derives from its PythonQtInstanceWrapper only, so a QSpinBox is no
    instance of QWidget; `inherits` follows C++.
    """
    if not str(sys._getframe(1).f_globals.get("__name__")).startswith("PUMIT"):
        return type.__instancecheck__(kind, item)
    bases = type(item).__mro__
    known = next((place for place, base in enumerate(bases) if _isStrict(base)), len(bases))
    return kind in bases[: known + 1]


def _getAttribute(self: QtCore.QObject, name: str) -> Any:
    # Every look at every widget passes here, some 10,000 in a test of a panel.
    if name[:1] == "_":
        return _getattribute(self, name)
    if name in _METHODS:
        return types.MethodType(_METHODS[name], self)
    table = _propertyTables.get(type(self))
    shown = (table if table is not None else _properties(self)).get(name)
    if shown is None:
        return _getattribute(self, name)
    reading = (id(self), name)
    if reading in _reading:
        return _getattribute(self, name)
    _reading.add(reading)
    try:
        value = _getattribute(self, "property")(shown)
        return tuple(value) if isinstance(value, list) else value
    finally:
        _reading.discard(reading)


def _setAttribute(self: QtCore.QObject, name: str, value: Any) -> None:
    if loading and isinstance(value, QtCore.QObject):
        return
    if name[:1] != "_":
        shown = _properties(self).get(name)
        if shown is not None:
            _setProperty(self, shown, value)
            return
        if _isStrict(type(self)) and not hasattr(type(self), name):
            raise AttributeError(
                f"Attribute '{name}' does not exist on {metaObject(self).className()} and "
                "creating new attributes on C++ objects is not allowed"
            )
    _setInPython(self, name, value)


def _setProperty(self: QtCore.QObject, name: str, value: Any) -> None:
    isWritable, wanted = _declaration(self, name)
    if not isWritable:
        raise AttributeError(f"Property '{name}' of {metaObject(self).className()} is read-only")
    refusePath(value)
    _refuseType(name, wanted, value)
    if not _getattribute(self, "setProperty")(name, value):
        kind = metaObject(self).className()
        raise ValueError(f"Property '{name}' of {kind} cannot be set to {value!r}")


def _refuseType(name: str, wanted: str, value: Any) -> None:
    """Raise as PythonQt does: it makes no number of a text or a list, and nothing of None."""
    fits = value is not None
    if wanted in ("bool", "int", "uint"):
        # PySide6 takes a text, and also numpy's bool, which is no number to Python.
        fits = isinstance(value, float) or hasattr(value, "__index__")
    elif wanted in ("double", "float"):
        fits = not isinstance(value, str) and hasattr(value, "__float__")
    if not fits:
        raise ValueError(
            f"Property '{name}' of type '{wanted}' does not accept an object of type "
            f"{type(value).__name__} ({value!r})"
        )


def _declaration(item: QtCore.QObject, name: str) -> tuple[bool, str]:
    """Whether a property of an object's class can be set, and its type; both are read once."""
    key = (type(item), name)
    if key not in _declared:
        known = metaObject(item)
        declared = known.property(known.indexOfProperty(name))
        _declared[key] = (declared.isWritable(), declared.typeName())
    return _declared[key]


def _refuseToReturn(method: str, kind: str) -> Callable[[object], None]:
    def refuse(self: object) -> None:
        raise ValueError(
            f"Called {method}(), return type '{kind}' is ignored because it is unknown to PythonQt"
        )

    return refuse


def refusePath(value: object) -> None:
    """Raise as PythonQt does: it knows no QString for a pathlib.Path."""
    if hasattr(value, "__fspath__"):
        raise TypeError(f"PythonQt does not convert {value!r} to a QString: use str()")


def _setInPython(self: QtCore.QObject, name: str, value: Any) -> None:
    # The original slot cannot be called once it is replaced, so do what it does.
    for base in type(self).__mro__:
        found = vars(base).get(name)
        if found is None:
            continue
        if isinstance(found, QtCore.Property):
            if found.fset is None:
                raise AttributeError(f"Property '{name}' is read-only")
            refusePath(value)
            found.fset(self, value)
            return
        if hasattr(type(found), "__set__"):
            found.__set__(self, value)
            return
        break
    _getattribute(self, "__dict__")[name] = value


def _connect(
    self: QtCore.QObject, signal: Any, target: Any = None, slot: str | None = None
) -> bool:
    """Connect a signal, named by its signature, to a callable or to a slot of an object."""
    if not isinstance(signal, str) or signal[:1].isdigit():
        rest = () if slot is None else (slot,)
        return _originalConnect(self, signal, target, *rest)
    if slot is not None:
        target = getattr(target, slot.lstrip("12").split("(")[0])
    if not callable(target):
        raise TypeError(f"{target!r} is not callable")
    found, normal = signalOf(self, signal)
    given = 0 if normal.endswith("()") else normal.count(",") + 1
    wrapper = _dropExcess(target, given, normal)
    _connections(self).setdefault((normal, _identity(target)), []).append(wrapper)
    if isinstance(found, str):
        _originalConnect(self, found, wrapper)
    else:
        found.connect(wrapper)
    return True


def _disconnect(
    self: QtCore.QObject, signal: Any = None, target: Any = None, slot: str | None = None
) -> bool:
    """Undo a connection; False where there is none."""
    if not isinstance(signal, str) or signal[:1].isdigit():
        return _originalDisconnect(self, signal, target)
    if slot is not None:
        target = getattr(target, slot.lstrip("12").split("(")[0])
    found, normal = signalOf(self, signal)
    wrappers = _connections(self).get((normal, _identity(target)))
    if not wrappers:
        return False
    _undo(self, found, wrappers.pop())
    return True


def disconnectAll(sender: QtCore.QObject) -> None:
    """Undo every connection of a sender that was made by signature."""
    for (signal, _), wrappers in _connections(sender).items():
        for wrapper in wrappers:
            _undo(sender, signalOf(sender, signal)[0], wrapper)
    _connections(sender).clear()


def _undo(sender: QtCore.QObject, signal: Any, wrapper: Callable[..., Any]) -> None:
    if isinstance(signal, str):
        _originalDisconnect(sender, signal, wrapper)
    else:
        signal.disconnect(wrapper)


def _connections(sender: QtCore.QObject) -> dict[tuple[str, object], list[Callable[..., Any]]]:
    """What was connected in the place of slots, by signature and slot."""
    return _getattribute(sender, "__dict__").setdefault("_connections", {})


def _dropExcess(target: Callable[..., Any], given: int, signal: str) -> Callable[..., Any]:
    """Call a slot with as many arguments as it takes, as PythonQt does."""
    taken = given
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        parameters = ()
    else:
        positional = [
            p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        if sum(p.default is p.empty for p in positional) > given:
            raise TypeError(f"{target!r} needs more arguments than {signal} gives")
        if not any(p.kind is p.VAR_POSITIONAL for p in parameters):
            taken = min(given, len(positional))
    return lambda *arguments: target(*arguments[:taken])


def _identity(target: Callable[..., Any]) -> object:
    if inspect.ismethod(target):
        return (id(target.__self__), target.__func__)
    return id(target)


_METHODS: dict[str, Callable[..., Any]] = {
    "connect": _connect,
    "disconnect": _disconnect,
    "className": lambda self: metaObject(self).className(),
}
