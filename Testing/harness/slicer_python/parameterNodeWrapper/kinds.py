"""How values of each type lie in a parameter node, which holds texts and references alone."""

from __future__ import annotations

import enum
import pathlib
import typing
from typing import Any

import slicer
from slicer.parameterNodeWrapper.annotations import splitAnnotations
from slicer.parameterNodeWrapper.observed import ObservedDict, ObservedList
from slicer.parameterNodeWrapper.validators import IsInstance, NotNone, Validator


class Kind:
    """Reads and writes one type of value.

    Args:
        type_: The type, without annotations.
    """

    checks: tuple[Validator, ...] = ()

    def __init__(self, type_: Any) -> None:
        self.type = type_
        self.checks = (NotNone(), IsInstance(type_))

    def validate(self, value: Any) -> None:
        """Raise where the value is not of this kind."""
        for check in self.checks:
            check.validate(value)

    def default(self) -> Any:
        """The value where no other is given."""
        return self.type()

    def isIn(self, node: Any, name: str) -> bool:
        """Whether a node holds a value."""
        return bool(node.HasParameter(name))

    def write(self, node: Any, name: str, value: Any) -> None:
        """Write a value."""
        self.validate(value)
        node.SetParameter(name, self.toText(value))

    def read(self, node: Any, name: str) -> Any:
        """Read a value."""
        return self.fromText(node.GetParameter(name))

    def remove(self, node: Any, name: str) -> None:
        """Remove a value."""
        node.UnsetParameter(name)

    def toText(self, value: Any) -> str:
        """A value as a text."""
        return str(value)

    def fromText(self, text: str) -> Any:
        """A text as a value."""
        return self.type(text)


class FloatKind(Kind):
    """Decimal numbers; whole ones are taken too."""

    def __init__(self, type_: Any) -> None:
        super().__init__(type_)
        self.checks = (NotNone(), IsInstance((int, float)))


class BoolKind(Kind):
    """True and False."""

    def fromText(self, text: str) -> bool:
        return text == "True"


class EnumKind(Kind):
    """Members of an enumeration, by name."""

    def default(self) -> Any:
        return next(iter(self.type))

    def toText(self, value: Any) -> str:
        return value.name

    def fromText(self, text: str) -> Any:
        return self.type[text]


class NodeKind(Kind):
    """A node of the scene, as a reference; None where it is gone."""

    def __init__(self, type_: Any) -> None:
        super().__init__(type_)
        self.checks = (IsInstance(type_),)

    def default(self) -> None:
        return None

    def write(self, node: Any, name: str, value: Any) -> None:
        self.validate(value)
        # A reference that is empty leaves no trace: the parameter tells that it was set.
        node.SetParameter(name, "")
        node.SetNodeReferenceID(name, value.GetID() if value is not None else None)

    def read(self, node: Any, name: str) -> Any:
        return node.GetNodeReference(name)

    def remove(self, node: Any, name: str) -> None:
        node.UnsetParameter(name)
        node.RemoveNodeReferenceIDs(name)


class NoneKind(Kind):
    """None, as a part of a union."""

    def validate(self, value: Any) -> None:
        if value is not None:
            raise ValueError("Value must be None")

    def default(self) -> None:
        return None

    def toText(self, value: Any) -> str:
        return "True"

    def fromText(self, text: str) -> None:
        return None


class ListKind(Kind):
    """Lists of one type; changing one that was read changes the node."""

    def __init__(self, type_: Any) -> None:
        self.element = makeKind(typing.get_args(type_)[0])

    def default(self) -> list[Any]:
        return []

    def isIn(self, node: Any, name: str) -> bool:
        return bool(node.HasParameter(f"{name}_len"))

    def write(self, node: Any, name: str, value: Any) -> None:
        value = list(value)
        self.validate(value)
        with slicer.util.NodeModify(node):
            self.remove(node, name)
            for index, item in enumerate(value):
                self.element.write(node, f"{name}_{index}", item)
            node.SetParameter(f"{name}_len", str(len(value)))

    def read(self, node: Any, name: str) -> ObservedList:
        count = int(node.GetParameter(f"{name}_len") or 0)
        items = [self.element.read(node, f"{name}_{index}") for index in range(count)]
        return ObservedList(items, lambda changed: self.write(node, name, changed))

    def remove(self, node: Any, name: str) -> None:
        for index in range(int(node.GetParameter(f"{name}_len") or 0)):
            self.element.remove(node, f"{name}_{index}")
        node.UnsetParameter(f"{name}_len")

    def validate(self, value: Any) -> None:
        super().validate(value)
        for item in value:
            self.element.validate(item)


class TupleKind(Kind):
    """A fixed number of values, each of its own type."""

    def __init__(self, type_: Any) -> None:
        self.elements = [makeKind(argument) for argument in typing.get_args(type_)]

    def default(self) -> tuple[Any, ...]:
        return tuple(element.default() for element in self.elements)

    def isIn(self, node: Any, name: str) -> bool:
        return self.elements[0].isIn(node, f"{name}_0")

    def write(self, node: Any, name: str, value: Any) -> None:
        self.validate(value)
        with slicer.util.NodeModify(node):
            for index, (element, item) in enumerate(zip(self.elements, value, strict=True)):
                element.write(node, f"{name}_{index}", item)

    def read(self, node: Any, name: str) -> tuple[Any, ...]:
        named = enumerate(self.elements)
        return tuple(element.read(node, f"{name}_{index}") for index, element in named)

    def remove(self, node: Any, name: str) -> None:
        for index, element in enumerate(self.elements):
            element.remove(node, f"{name}_{index}")

    def validate(self, value: Any) -> None:
        super().validate(value)
        for element, item in zip(self.elements, value, strict=True):
            element.validate(item)


class DictKind(Kind):
    """Dictionaries, in their order; changing one that was read changes the node."""

    def __init__(self, type_: Any) -> None:
        key, value = typing.get_args(type_)
        self.pairs = ListKind(list[tuple[key, value]])

    def default(self) -> dict[Any, Any]:
        return {}

    def isIn(self, node: Any, name: str) -> bool:
        return self.pairs.isIn(node, name)

    def write(self, node: Any, name: str, value: Any) -> None:
        self.validate(value)
        self.pairs.write(node, name, list(value.items()))

    def read(self, node: Any, name: str) -> ObservedDict:
        held = dict(self.pairs.read(node, name))
        return ObservedDict(held, lambda changed: self.write(node, name, changed))

    def remove(self, node: Any, name: str) -> None:
        self.pairs.remove(node, name)

    def validate(self, value: Any) -> None:
        super().validate(value)
        self.pairs.validate(value.items())


class UnionKind(Kind):
    """One of several types; None where that is one of two."""

    def __init__(self, type_: Any) -> None:
        self.members = [makeKind(argument) for argument in typing.get_args(type_)]

    def default(self) -> Any:
        if len(self.members) == 2 and isinstance(self.members[1], NoneKind):
            return None
        return self.members[0].default()

    def isIn(self, node: Any, name: str) -> bool:
        return any(m.isIn(node, f"{name}_{index}") for index, m in enumerate(self.members))

    def write(self, node: Any, name: str, value: Any) -> None:
        self.validate(value)
        chosen = self._indexFor(value)
        with slicer.util.NodeModify(node):
            self.remove(node, name)
            self.members[chosen].write(node, f"{name}_{chosen}", value)

    def read(self, node: Any, name: str) -> Any:
        for index, member in enumerate(self.members):
            if member.isIn(node, f"{name}_{index}"):
                return member.read(node, f"{name}_{index}")
        return None

    def remove(self, node: Any, name: str) -> None:
        for index, member in enumerate(self.members):
            member.remove(node, f"{name}_{index}")

    def validate(self, value: Any) -> None:
        super().validate(value)
        self._indexFor(value)

    def _indexFor(self, value: Any) -> int:
        if value is None:
            return next(
                i for i, m in enumerate(self.members) if isinstance(m, (NoneKind, NodeKind))
            )
        for index, member in enumerate(self.members):
            try:
                member.validate(value)
            except (TypeError, ValueError):
                continue
            return index
        raise TypeError(f"{value!r} is of none of the types {[m.type for m in self.members]}")


_ORIGINS = {list: ListKind, tuple: TupleKind, dict: DictKind, typing.Union: UnionKind}


def makeKind(hint: Any) -> Kind:
    """The kind of a type, with the conditions that its annotations set.

    Raises:
        TypeError: If Slicer's parameter nodes cannot hold the type.
    """
    type_, annotations = splitAnnotations(hint)
    kind = _plainKind(type_)
    kind.checks = (*kind.checks, *(a for a in annotations if isinstance(a, Validator)))
    return kind


def _plainKind(type_: Any) -> Kind:
    if isParameterPack(type_):
        return PackKind(type_)
    origin = typing.get_origin(type_)
    if origin in _ORIGINS:
        return _ORIGINS[origin](type_)
    if not isinstance(type_, type):
        raise TypeError(f"Unable to create serializer for type: {type_} (use typing.Optional)")
    if type_ is type(None):
        return NoneKind(type_)
    if type_ in (int, str):
        return Kind(type_)
    if type_ is float:
        return FloatKind(type_)
    if type_ is bool:
        return BoolKind(type_)
    if issubclass(type_, pathlib.PurePath):
        return Kind(type_)
    if issubclass(type_, enum.Enum):
        return EnumKind(type_)
    if issubclass(type_, slicer.vtkMRMLNode):
        return NodeKind(type_)
    raise TypeError(f"Unable to create serializer for type: {type_}")


def isParameterPack(type_: Any) -> bool:
    """Whether a class was made by `parameterPack`."""
    return bool(getattr(type_, "_is_parameterPack", False))


class PackKind(Kind):
    """Several named values that belong together."""

    def isIn(self, node: Any, name: str) -> bool:
        first = next(iter(self.type.allParameters))
        return self.type.allParameters[first].kind.isIn(node, f"{name}.{first}")

    def write(self, node: Any, name: str, value: Any) -> None:
        self.validate(value)
        with slicer.util.NodeModify(node):
            for part, parameter in self.type.allParameters.items():
                parameter.kind.write(node, f"{name}.{part}", getattr(value, part))

    def read(self, node: Any, name: str) -> Any:
        parts = self.type.allParameters
        values = {p: parameter.kind.read(node, f"{name}.{p}") for p, parameter in parts.items()}
        pack = self.type(**values)
        pack._save = lambda changed: self.write(node, name, changed)
        return pack

    def remove(self, node: Any, name: str) -> None:
        for part, parameter in self.type.allParameters.items():
            parameter.kind.remove(node, f"{name}.{part}")
