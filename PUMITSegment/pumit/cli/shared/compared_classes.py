"""Classes that `pumit evaluate` compares, with their label values in both folders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pumit.errors import PumitError

if TYPE_CHECKING:
    from pumit.evaluation.folder_comparison import ComparedClass
    from pumit.training.data.classes import ClassValue


def compared_classes(text: str) -> tuple[ComparedClass, ...]:
    """Return the classes of a recipe, a data set or a model.

    A model writes the class number, from 1, into its label map; a region consists of all classes
    within it. With a recipe or dataset.json, predictions use the label values of the data set.

    Args:
        text: A recipe (.yaml) with `data.classes`, a dataset.json, a checkpoint, or a name in
            the model index.

    Raises:
        PumitError: If the file names no classes.
    """
    from pumit.evaluation.folder_comparison import ComparedClass

    path = Path(text)
    if path.suffix.lower() in (".yaml", ".yml", ".json"):
        return tuple(
            ComparedClass(c.label.name, c.values, c.values) for c in _classes_of_file(path)
        )
    return _classes_of_model(text)


def ignored_of(text: str) -> int | None:
    """Return the ignore label of a `dataset.json`, or None."""
    from pumit.training.data.dataset_json import ignored_value
    from pumit.training.recipes.reader import read_yaml

    path = Path(text)
    labels = read_yaml(path).get("labels") if path.suffix.lower() == ".json" else None
    return ignored_value(labels) if isinstance(labels, Mapping) else None


def _classes_of_file(path: Path) -> tuple[ClassValue, ...]:
    from pumit.training.data.classes import classes_from
    from pumit.training.data.dataset_json import classes_of_labels
    from pumit.training.recipes.reader import read_yaml

    content = read_yaml(path)  # JSON is YAML
    data, labels = content.get("data"), content.get("labels")
    if isinstance(data, Mapping) and data.get("classes"):
        return classes_from(data["classes"])
    if isinstance(labels, Mapping) and labels:
        return classes_of_labels(labels)
    raise PumitError(f"{path.name} names no classes; it needs data.classes, or labels.")


def _classes_of_model(text: str) -> tuple[ComparedClass, ...]:
    from pumit.evaluation.folder_comparison import ComparedClass
    from pumit.models.card import classes_of
    from pumit.models.checkpoint import read_recipe
    from pumit.models.index import find_model
    from pumit.training.data.classes import ClassValue, region

    recipe, _ = read_recipe(find_model(text))
    rows = recipe.get("classes", ())
    classes = [
        region(label, row["values"])
        if "values" in row
        else ClassValue(int(row.get("value", number)), label)
        for number, (label, row) in enumerate(zip(classes_of(recipe), rows, strict=True), start=1)
    ]
    return tuple(
        ComparedClass(
            one.label.name,
            one.values,
            tuple(
                number
                for number, other in enumerate(classes, start=1)
                if set(other.values) <= set(one.values)
            ),
        )
        for one in classes
    )
