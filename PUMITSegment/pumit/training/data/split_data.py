"""A data set with its facts and split, for the log and the recipe of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pumit.export.classes import class_colors
from pumit.training.data.case import CaseFacts
from pumit.training.data.checks import DataFacts
from pumit.training.data.found_cases import LabelledCase, LabelledSet
from pumit.training.data.split import Split, split_cases
from pumit.training.recipes.labelled import LabelledData


@dataclass(frozen=True)
class SplitData:
    """A data set, the facts of its cases, and its split."""

    data: LabelledSet
    facts: DataFacts
    split: Split

    @property
    def training(self) -> list[LabelledCase]:
        """Training cases."""
        return self.data.cases_named(self.split.training)

    @property
    def validation(self) -> list[LabelledCase]:
        """Validation cases."""
        return self.data.cases_named(self.split.validation)

    def facts_of(self, names: Iterable[str]) -> list[CaseFacts]:
        """Return the facts of the named cases."""
        chosen = set(names)
        return [fact for fact in self.facts.cases if fact.name in chosen]

    def record(self) -> dict[str, Any]:
        """Return the log record, with fingerprints that identify the data."""
        labels = [c.label for c in self.data.classes]
        names = [label.name for label in labels]
        return {
            "cases": len(self.data.cases),
            "classes": {
                c.label.name: c.value if len(c.values) == 1 else list(c.values)
                for c in self.data.classes
            },
            "colors": class_colors(labels),
            "training": list(self.split.training),
            "validation": list(self.split.validation),
            "warnings": [*self.split.warnings, *self.facts.warnings],
            "fingerprints": [
                {
                    "case": fact.name,
                    "shape": list(fact.shape),
                    "spacing_mm": [round(s, 4) for s in fact.spacing_mm],
                    "sha256": fact.digest,
                    "class_voxels": dict(zip(names, fact.class_voxels[1:], strict=True)),
                }
                for fact in self.facts.cases
            ],
        }

    def settled(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return a recipe's `data` with explicit classes and split."""
        return {
            **{k: v for k, v in given.items() if k not in ("fold", "share")},
            # Given classes may have further segment names.
            "classes": given.get("classes") or [c.as_row() for c in self.data.classes],
            "training": list(self.split.training),
            "validation": list(self.split.validation),
        }

    def counts(self) -> dict[str, int]:
        """Return the numbers of cases for the checkpoint."""
        return {"cases": len(self.split.training), "validation_cases": len(self.split.validation)}


def split_set(cases: Iterable[LabelledCase], rule: LabelledData, *, seed: int) -> Split:
    """Split cases by a recipe's `data` and their patients; see `split_cases`."""
    patients = {case.name: case.patient for case in cases}
    return split_cases(list(patients), rule, seed=seed, patients=patients)
