"""Base classes of typed recipes, and validation of YAML keys."""

import difflib
import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import (
    Annotated,
    Any,
    TypeVar,
    get_args,
)

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
)
from pydantic.fields import FieldInfo

from pumit.errors import PumitError


class RecipeModel(BaseModel):
    """Keys of a recipe or of a part of it; the class docstring describes each key.

    Unknown keys and wrong types are errors: text is not a number, and 1 is not true.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _require_no_negative(cls, value: Any) -> Any:
        if isinstance(value, (int, float)) and value < 0:
            raise ValueError("must not be negative")
        return value

    def named(self, *keys: str) -> dict[str, Any]:
        """Return the keys that were given, without defaults.

        Args:
            keys: Keys to return if given; none for all.
        """
        return self.model_dump(include=set(keys) or None, exclude_unset=True, by_alias=True)

    def given(self, key: str) -> Any:
        """Return the value of a key, or None if it was not given."""
        return getattr(self, key) if key in self.model_fields_set else None


M = TypeVar("M", bound=RecipeModel)


def _numbered(value: Any) -> Any:
    """Convert numeric keys to int: a run stores its recipe as JSON, whose keys are text."""
    if not isinstance(value, Mapping):
        return value
    return {int(k) if isinstance(k, str) and k.isdecimal() else k: v for k, v in value.items()}


AtLeastOne = Annotated[int, Field(ge=1)]
# Number to its share, such as {0: 0.5, 2: 0.5}.
Shares = Annotated[dict[int, float], BeforeValidator(_numbered)]


def read_model(model: type[M], given: Mapping[str, Any], where: str) -> M:
    """Validate keys and values against a model.

    Args:
        given: Keys and values as read from a YAML file.
        where: Source to name in error messages, such as the file name.

    Raises:
        PumitError: If a key is unknown (the closest match is suggested), or a value is invalid.
    """
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        raise PumitError(_sentence_of(error, model, where)) from None


def _sentence_of(error: ValidationError, model: type[RecipeModel], where: str) -> str:
    """Return the most relevant validation error as a sentence."""
    # Among the members of a union, the best match fails at the deepest location.
    found = min(error.errors(), key=lambda e: (e["type"] != "extra_forbidden", -len(e["loc"])))
    names, part = _place_of(model, found["loc"])
    key, place = ([where, where, *names][i] for i in (-1, -2))
    if found["type"] == "extra_forbidden":
        return unknown_key(str(found["loc"][-1]), _fields_by_key(part) if part else (), key)
    cause = found.get("ctx", {}).get("error")
    if isinstance(cause, PumitError):
        return str(cause)
    if found["type"] == "missing":
        return f"{place} needs the key {key}."
    text = str(cause) if cause is not None else found["msg"]
    for wordy, short in (
        ("Input should", "must"),
        ("List should", "must"),
        ("greater than or equal to", "at least"),
        ("greater than", "above"),
        ("less than or equal to", "at most"),
        ("less than", "below"),
        (" after validation", ""),
    ):
        text = text.replace(wordy, short)
    if found["type"] in ("model_type", "dict_type"):
        text = "must be keys with values"
    hint = ""
    if re.fullmatch(r"[+-]?[\d.]+[eE][+-]?\d+", str(found["input"])) and "number" in text:
        hint = "; YAML needs a point and a sign, as in 1.0e-4"
    return f"{key} in {place} {text}, got {found['input']!r}{hint}."


def _place_of(
    model: type[RecipeModel], path: Sequence[int | str]
) -> tuple[list[str], type[RecipeModel] | None]:
    """Return the keys that lead to a value, such as `plan`, `cases, number 2`, and the last model.

    Pydantic's locations also name union members, which are not keys of a recipe.
    """
    names: list[str] = []
    part: type[RecipeModel] | None = model
    is_mapping = False
    for step in path:
        if isinstance(step, int):
            names[-1:] = [f"{name}, number {step + 1}" for name in names[-1:]]
        elif part is not None and (info := _fields_by_key(part).get(step)) is not None:
            names.append(step)
            part = part_of(part, step)
            is_mapping = "dict" in str(info.annotation)
        elif part is None and is_mapping and step != "[key]":
            names.append(step)
    return names, part


def part_of(model: type[RecipeModel], key: str) -> type[RecipeModel] | None:
    """Return the model of a key's value, or None if the value has no keys."""
    info = _fields_by_key(model).get(key)
    models = [] if info is None else models_in(info.annotation)
    return models[0] if models else None


def _fields_by_key(model: type[RecipeModel]) -> dict[str, FieldInfo]:
    return {info.alias or name: info for name, info in model.model_fields.items()}


def unknown_key(key: str, known: Iterable[str], where: str) -> str:
    """Return an error message for an unknown key, with the closest known key as a suggestion."""
    near = difflib.get_close_matches(key, sorted(known), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(sorted(known))}."
    return f"Unknown key {key!r} in {where}{hint}"


def models_in(annotation: Any) -> list[type[RecipeModel]]:
    """Return the recipe models within an annotation, such as `list[CropSize]`."""
    if inspect.isclass(annotation) and issubclass(annotation, RecipeModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in models_in(part)]


@cache
def descriptions(model: type[RecipeModel]) -> dict[str, str]:
    """Return the description of each key from the `Attributes` of the class docstrings."""
    found: dict[str, str] = {}
    for part in reversed(model.__mro__):
        _, _, text = (inspect.cleandoc(part.__doc__ or "")).partition("Attributes:\n")
        rows = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", text, flags=re.MULTILINE)
        found |= {name: " ".join(words.split()) for name, words in rows}
    return found
