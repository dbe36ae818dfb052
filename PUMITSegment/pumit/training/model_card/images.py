"""Fingerprints of the images that a classifier has learned from."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pumit.errors import PumitError
from pumit.training.classification.reader import read_classification_data
from pumit.training.model_card.facts import CaseFact, number_of
from pumit.training.model_card.scores import name_of

logger = logging.getLogger(__name__)

ROLES = {"train": "training", "val": "validation", "test": "test"}


def classified_facts(recipe: Mapping[str, Any]) -> dict[str, CaseFact]:
    """Facts of every image by its name; empty where the data are not to be found any more.

    Args:
        recipe: Of the run's folder; its paths are absolute.
    """
    given = recipe.get("data", {})
    try:
        data = read_classification_data(
            Path(given["file"] if "file" in given else given["folder"]),
            classes=tuple(str(name) for name in given.get("classes", ())),
            split=given.get("split"),
            patient=given.get("patient"),
            seed=int(recipe.get("seed", 0)),
        )
        facts = {}
        for split, cases in data.splits.items():
            for i, name in enumerate(cases.names):
                volume = cases.read(i)
                digest = hashlib.sha256(np.ascontiguousarray(volume.array).tobytes())
                facts[name_of(split, name)] = CaseFact(
                    "",
                    ROLES[split],
                    volume.shape,
                    () if data.is_stored_as_shown else volume.spacing_mm,
                    digest.hexdigest(),
                )
        return facts
    except (PumitError, KeyError, TypeError, AttributeError) as error:
        logger.warning("the images cannot be read again (%s)", type(error).__name__)
        return {}


def numbered(facts: Mapping[str, CaseFact], numbers: Mapping[str, str]) -> tuple[CaseFact, ...]:
    """The facts under what the card calls each case, in that order."""
    known = [replace(fact, case=numbers[name]) for name, fact in facts.items()]
    return tuple(sorted(known, key=lambda fact: number_of(fact.case)))
