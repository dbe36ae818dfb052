"""What annotates a parameter's type: its default, and how widgets show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin


@dataclass
class Default:
    """A parameter's default value."""

    value: Any


@dataclass
class Decimals:
    """How many decimals a widget shows."""

    value: int


@dataclass
class SingleStep:
    """How far one step of a widget goes."""

    value: float


def splitAnnotations(hint: Any) -> tuple[Any, list[Any]]:
    """A type and its annotations."""
    if get_origin(hint) is Annotated:
        kind, *annotations = get_args(hint)
        return kind, annotations
    return hint, []


def unannotatedType(hint: Any) -> Any:
    """A type without annotations."""
    return splitAnnotations(hint)[0]


def findFirstAnnotation(annotations: list[Any], kind: type) -> Any:
    """The first annotation of a class, or None."""
    return next((a for a in annotations if isinstance(a, kind)), None)
