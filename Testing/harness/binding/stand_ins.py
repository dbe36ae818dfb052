"""Registers Python widgets that stand in for C++ ones of CTK and Slicer."""

from collections.abc import Callable
from typing import Any, TypeVar

from Qt import QtCore

Kind = TypeVar("Kind", bound=type)

# What a .ui file, `ctk` and `slicer` find by name.
classes: dict[str, type] = {}


def standIn(*signatures: str) -> Callable[[Kind], Kind]:
    """Register a widget's stand-in.

    Args:
        signatures: Its signals as C++ declares them, such as "valueChanged(double)". The class
            has a Signal of each name; where a name has several signatures, it has an overload of
            each, in the same order.
    """

    def register(kind: Kind) -> Kind:
        kind.cppSignals = _signals(kind, signatures)
        classes[kind.__name__] = kind
        return kind

    return register


def _signals(kind: type, signatures: tuple[str, ...]) -> dict[str, tuple[str, Any]]:
    overloads: dict[str, list[str]] = {}
    for signature in signatures:
        overloads.setdefault(signature.partition("(")[0], []).append(signature)
    declared = {}
    for name, several in overloads.items():
        if not hasattr(kind, name):
            raise AttributeError(f"{kind.__name__} declares '{name}' and has no such signal")
        for signature in several:
            boolean = len(several) > 1 and signature.endswith("(bool)")
            overload = None if len(several) == 1 else (bool if boolean else object)
            declared[signature] = (name, overload)
    return declared


def stored(kind: Any, name: str, default: Any, changed: str | None = None) -> QtCore.Property:
    """A property that only keeps its value.

    Args:
        kind: Qt's type of it: bool, int, float, str, or a name such as "QStringList".
        name: Its name.
        default: What it is before it is set.
        changed: Name of a method that is called after it changes.
    """
    attribute = f"_stored_{name}"

    def get(self: QtCore.QObject) -> Any:
        return vars(self).get(attribute, default)

    def set_(self: QtCore.QObject, value: Any) -> None:
        value = tuple(value) if isinstance(value, list) else value
        if get(self) == value:
            return
        vars(self)[attribute] = value
        if changed is not None:
            getattr(self, changed)()

    return QtCore.Property(kind, get, set_)


def through(kind: Any, part: str, name: str) -> QtCore.Property:
    """A property of a part of a widget, shown as the widget's own.

    Args:
        kind: Qt's type of it.
        part: The attribute that holds the part.
        name: The property's name there.
    """
    return QtCore.Property(
        kind,
        lambda self: getattr(getattr(self, part), name),
        lambda self, value: setattr(getattr(self, part), name, value),
    )
