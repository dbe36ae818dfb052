"""Conditions on a parameter's value, given as annotations."""

from __future__ import annotations

from typing import Any


class Validator:
    """A condition."""

    def validate(self, value: Any) -> None:
        """Raise ValueError or TypeError where the value does not meet it."""
        raise NotImplementedError


class NotNone(Validator):
    """Any value but None."""

    def validate(self, value: Any) -> None:
        if value is None:
            raise ValueError("Value must not be None")


class IsInstance(Validator):
    """An instance of a class, or None."""

    def __init__(self, classtype: Any) -> None:
        self.classtype = classtype

    def validate(self, value: Any) -> None:
        if value is not None and not isinstance(value, self.classtype):
            raise TypeError(f"Value must be of type '{self.classtype}', is {value!r}")


class WithinRange(Validator):
    """A value from minimum to maximum, both included."""

    def __init__(self, minimum: Any, maximum: Any) -> None:
        self.minimum = minimum
        self.maximum = maximum

    def validate(self, value: Any) -> None:
        if not self.minimum <= value <= self.maximum:
            raise ValueError(f"Value must be in [{self.minimum}, {self.maximum}], is {value}")


class Minimum(Validator):
    """A value that is not less."""

    def __init__(self, minimum: Any) -> None:
        self.minimum = minimum

    def validate(self, value: Any) -> None:
        if value < self.minimum:
            raise ValueError(f"Value must not be less than {self.minimum}, is {value}")


class Maximum(Validator):
    """A value that is not greater."""

    def __init__(self, maximum: Any) -> None:
        self.maximum = maximum

    def validate(self, value: Any) -> None:
        if value > self.maximum:
            raise ValueError(f"Value must not be greater than {self.maximum}, is {value}")


class Choice(Validator):
    """One of some values."""

    def __init__(self, choices: Any) -> None:
        self.choices = choices

    def validate(self, value: Any) -> None:
        if value not in self.choices:
            raise ValueError(f"Value must be one of {self.choices}, is {value!r}")


class Exclude(Validator):
    """None of some values."""

    def __init__(self, excludedValues: Any) -> None:
        self.excludedValues = excludedValues

    def validate(self, value: Any) -> None:
        if value in self.excludedValues:
            raise ValueError(f"Value must be none of {self.excludedValues}, is {value!r}")


class RangeBounds(Validator):
    """A range that lies between bounds."""

    def __init__(self, minimum: Any, maximum: Any) -> None:
        self.minimum = minimum
        self.maximum = maximum

    def validate(self, value: Any) -> None:
        if value.minimum < self.minimum or value.maximum > self.maximum:
            raise ValueError(f"Range must lie in [{self.minimum}, {self.maximum}], is {value}")
