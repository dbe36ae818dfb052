"""One parameter of a class, and packs of several."""

from __future__ import annotations

import typing
from typing import Any

from slicer.parameterNodeWrapper.annotations import Default, findFirstAnnotation, splitAnnotations
from slicer.parameterNodeWrapper.kinds import makeKind
from slicer.parameterNodeWrapper.validators import Choice


class Parameter:
    """A parameter as its class declares it.

    Args:
        owner: The class.
        name: The parameter's name.
        hint: Its type, with annotations.
    """

    def __init__(self, owner: type, name: str, hint: Any) -> None:
        self.basename = name
        self.unalteredType = hint
        self.kind = makeKind(hint)
        annotations = splitAnnotations(hint)[1]
        given = findFirstAnnotation(annotations, Default)
        choice = findFirstAnnotation(annotations, Choice)
        if name in vars(owner):
            self.default = Default(vars(owner)[name])
        elif given is not None:
            self.default = given
        elif choice is not None:
            self.default = Default(choice.choices[0])
        else:
            self.default = Default(self.kind.default())


def declaredParameters(owner: type) -> dict[str, Parameter]:
    """Every parameter of a class, by its name."""
    hints = typing.get_type_hints(owner, include_extras=True)
    return {name: Parameter(owner, name, hint) for name, hint in hints.items()}


def parameterPack(owner: type | None = None) -> Any:
    """Make a class a pack: named values with checks, that a parameter can hold."""
    if owner is None:
        return parameterPack
    parameters = declaredParameters(owner)
    owner.allParameters = parameters
    owner._is_parameterPack = True
    owner._save = staticmethod(lambda changed: None)

    def initialize(self: Any, *values: Any, **named: Any) -> None:
        named = {**dict(zip(parameters, values, strict=False)), **named}
        unknown = set(named) - set(parameters)
        if unknown:
            raise TypeError(f"__init__() got unexpected arguments {sorted(unknown)}")
        for name, parameter in parameters.items():
            setattr(self, name, named.get(name, parameter.default.value))

    owner.__init__ = initialize
    owner.__eq__ = lambda self, other: (
        isinstance(other, owner)
        and all(getattr(self, name) == getattr(other, name) for name in parameters)
    )
    owner.__hash__ = None
    for name, parameter in parameters.items():
        setattr(owner, name, _packProperty(name, parameter))
    return owner


def _packProperty(name: str, parameter: Parameter) -> property:
    def get(self: Any) -> Any:
        return vars(self)[f"_{name}"]

    def set_(self: Any, value: Any) -> None:
        parameter.kind.validate(value)
        vars(self)[f"_{name}"] = value
        if all(f"_{other}" in vars(self) for other in self.allParameters):
            self._save(self)

    return property(get, set_)
