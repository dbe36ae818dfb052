"""Typed recipes: what a recipe's keys are, read once from what a YAML file holds."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
    field_validator,
)

from pumit.errors import PumitError
from pumit.training.recipes.schedule import Schedule


class RecipeModel(BaseModel):
    """Keys of a recipe or of a part of it; the class's docstring describes each.

    Unknown keys are refused, and values of another type: text is no number, 1 is not true.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _require_no_negative(cls, value: Any) -> Any:
        if isinstance(value, (int, float)) and value < 0:
            raise ValueError("must not be negative")
        return value


M = TypeVar("M", bound=RecipeModel)


def _numbered(value: Any) -> Any:
    """Keys that are numbers: JSON, in which a run keeps its recipe, has texts alone."""
    if not isinstance(value, Mapping):
        return value
    return {int(k) if isinstance(k, str) and k.isdecimal() else k: v for k, v in value.items()}


AtLeastOne = Annotated[int, Field(ge=1)]
# Numbers with their shares, such as {0: 0.5, 2: 0.5}.
Shares = Annotated[dict[int, float], BeforeValidator(_numbered)]


@cache
def model_of(settings: type) -> type[RecipeModel]:
    """The recipe model of a dataclass: the same keys, types and defaults.

    Args:
        settings: A dataclass whose fields all have defaults.
    """
    hints = get_type_hints(settings)
    keys: dict[str, Any] = {
        f.name: (hints[f.name], f.default if f.default is not MISSING else ...)
        for f in fields(settings)
    }
    return create_model(
        settings.__name__, __base__=RecipeModel, __doc__=inspect.getdoc(settings), **keys
    )


class TrainingRecipe(RecipeModel):
    """Keys of every recipe.

    Attributes:
        name: Name of the model's file.
        version: The model's own version.
        network_sizes: Sizes of the network, where they are not the usual ones.
        initial: Model to begin with, by name or file; random weights without.
        seed: Seed of everything random.
        threads: Threads of the processor; all without.
        device: auto, cpu, cuda or cuda:1.
        workers: Processes that draw batches ahead.
        schedule: Length, rates and manner.
        register: Whether the model enters your index.
        card: Keys that the model's checkpoint repeats, such as licence.
    """

    name: str = "model"
    version: str | int | float = "0"
    network_sizes: dict[str, Any] = Field(default_factory=dict)
    initial: str | None = None
    seed: int = 0
    threads: AtLeastOne | None = None
    device: str = "auto"
    workers: int = 0
    schedule: model_of(Schedule) = model_of(Schedule)()  # type: ignore[valid-type]
    register_: bool = Field(True, alias="register")
    card: dict[str, Any] = Field(default_factory=dict)


def read_model(model: type[M], given: Mapping[str, Any], where: str) -> M:
    """Read keys and values.

    Args:
        model: What they may be.
        given: As a YAML file holds them.
        where: Name of the place in a message, such as the file's.

    Raises:
        PumitError: If a key is unknown (the nearest right one is named), or a value cannot be used.
    """
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        raise PumitError(_sentence_of(error, model, where)) from None


def check_schedule(given: Mapping[str, Any], where: str = "schedule") -> None:
    """Check keys and types of a recipe's `schedule`, which may be a part of one.

    Args:
        given: Its keys and values.
        where: Name of the place in a message.

    Raises:
        PumitError: If a key is unknown, or a value cannot be used.
    """
    read_model(model_of(Schedule), given, where)


def read_schedule(given: Mapping[str, Any], usual: Mapping[str, Any] | None = None) -> Schedule:
    """Read a recipe's `schedule`.

    Args:
        given: Its keys and values.
        usual: Values of keys that it leaves out; then those of `Schedule`.

    Raises:
        PumitError: If a key is unknown, or a value cannot be used.
    """
    values = {**(usual or {}), **given}
    check_schedule(values)
    # As they are written, since the model makes 1800.0 of 1800.
    return Schedule(**values)


def recipe_reference(model: type[RecipeModel], heading: str) -> str:
    """All keys with their types, defaults and descriptions, as a Markdown table.

    Args:
        model: The recipe.
        heading: Title of the table; parts of the recipe follow in tables of their own.
    """
    described = _descriptions(model)
    lines = [f"### {heading}", "", "| key | type | default | |", "|---|---|---|---|"]
    parts: list[str] = []
    for field_name, info in model.model_fields.items():
        name = info.alias or field_name
        default = "required"
        if not info.is_required():
            default = _default_text(info.get_default(call_default_factory=True))
        kind = _type_text(info.annotation).replace("|", "\\|")
        lines.append(f"| `{name}` | {kind} | {default} | {described.get(name, '')} |")
        parts += [
            recipe_reference(part, f"`{name}` of {heading}") for part in _models_in(info.annotation)
        ]
    return "\n".join([*lines, "", *parts])


def _sentence_of(error: ValidationError, model: type[RecipeModel], where: str) -> str:
    """The first thing that is wrong, in a sentence."""
    found = min(error.errors(), key=lambda row: row["type"] != "extra_forbidden")
    path = [str(part) for part in found["loc"] if isinstance(part, str) and part != "[key]"]
    key = path[-1] if path else where
    place = path[-2] if len(path) > 1 else where
    if found["type"] == "extra_forbidden":
        return f"Unknown key {key!r} in {place}{_hint(key, _keys_at(model, path[:-1]))}"
    cause = found.get("ctx", {}).get("error")
    if isinstance(cause, PumitError):
        return str(cause)
    if found["type"] == "missing":
        return f"{place} needs {key}."
    text = str(cause) if cause is not None else found["msg"].replace("Input should", "must")
    text = text.replace("greater than or equal to", "at least")
    if found["type"] in ("model_type", "dict_type"):
        text = "must be keys with values"
    return f"{key} in {place} {text}, got {found['input']!r}."


def _hint(key: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(sorted(known))}."


def _keys_at(model: type[RecipeModel], path: list[str]) -> list[str]:
    """Known keys of a part of a recipe."""
    for name in path:
        (model,) = _models_in(model.model_fields[name].annotation)
    return [info.alias or name for name, info in model.model_fields.items()]


def _models_in(annotation: Any) -> list[type[RecipeModel]]:
    """Models that a type is made of, such as that of `list[CropSize]`."""
    if inspect.isclass(annotation) and issubclass(annotation, RecipeModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]


def _type_text(annotation: Any) -> str:
    """A type as a person writes it: `list of int`, `str or none`."""
    if annotation is type(None):
        return "none"
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_text(parts[0])
    if not parts:
        is_part = bool(_models_in(annotation))
        return "keys" if is_part or annotation is dict else getattr(annotation, "__name__", "any")
    texts = list(dict.fromkeys(_type_text(part) for part in parts))
    name = getattr(origin, "__name__", "")
    if name == "Literal":
        return " or ".join(f"`{part}`" for part in parts)
    if name == "dict":
        return f"{texts[0]} to {texts[-1]}"
    return f"list of {texts[0]}" if name in ("list", "Sequence") else " or ".join(texts)


def _default_text(value: Any) -> str:
    is_part = isinstance(value, BaseModel) or (isinstance(value, list) and len(value) == 1)
    if value is None or is_part or value in ({}, [], (), ""):
        return ""
    return f"`{list(value) if isinstance(value, tuple) else value}`"


def _descriptions(model: type[RecipeModel]) -> dict[str, str]:
    """Key to what the `Attributes` of the docstrings say of it."""
    found: dict[str, str] = {}
    for part in reversed(model.__mro__):
        _, _, text = (inspect.cleandoc(part.__doc__ or "")).partition("Attributes:\n")
        rows = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", text, flags=re.MULTILINE)
        found |= {name: " ".join(words.split()) for name, words in rows}
    return found
