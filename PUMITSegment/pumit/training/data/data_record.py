"""Facts of the data for the log and the recipe of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pumit.export.classes import class_colors
from pumit.training.data.case import CaseFacts
from pumit.training.data.checks import DataFacts
from pumit.training.data.found_cases import LabelledSet
from pumit.training.data.split import Split


def data_record(data: LabelledSet, split: Split, facts: DataFacts) -> dict[str, Any]:
    """Return the log's record of a run's data."""
    labels = [c.label for c in data.classes]
    return {
        "cases": len(data.cases),
        "classes": {
            c.label.name: c.value if len(c.values) == 1 else list(c.values) for c in data.classes
        },
        "colors": class_colors(labels),
        "training": list(split.training),
        "validation": list(split.validation),
        "warnings": [*split.warnings, *facts.warnings],
        "fingerprints": fingerprints(facts.cases, [label.name for label in labels]),
    }


def settled_data(given: Mapping[str, Any], data: LabelledSet, split: Split) -> dict[str, Any]:
    """Return a recipe's `data` with classes and cases by name.

    Args:
        given: Data as the recipe has them.
    """
    return {
        **{k: v for k, v in given.items() if k not in ("fold", "share")},
        # As given they may know other names too.
        "classes": given.get("classes") or [c.as_row() for c in data.classes],
        "training": list(split.training),
        "validation": list(split.validation),
    }


def fingerprints(facts: Sequence[CaseFacts], classes: Sequence[str]) -> list[dict[str, Any]]:
    """Return the log's record of each case, so that its data can be recognised."""
    return [
        {
            "case": fact.name,
            "shape": list(fact.shape),
            "spacing_mm": [round(s, 4) for s in fact.spacing_mm],
            "sha256": fact.digest,
            "class_voxels": dict(zip(classes, fact.class_voxels[1:], strict=True)),
        }
        for fact in facts
    ]
