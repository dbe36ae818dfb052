"""Fingerprints of the images that a classifier has learned from."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from pumit.errors import PumitError
from pumit.training.classification.reader import read_classification_data
from pumit.training.model_card.facts import CaseFact, number_of
from pumit.training.model_card.scores import name_of
from pumit.training.recipes.classification import ClassificationRecipe

logger = logging.getLogger(__name__)

ROLES = {"train": "training", "val": "validation", "test": "test"}


def classified_facts(recipe: ClassificationRecipe) -> dict[str, CaseFact]:
    """Facts of every image by its name; empty where the data are not to be found any more.

    Args:
        recipe: Recipe of the run's folder; its paths are absolute.
    """
    given = recipe.data
    try:
        data = read_classification_data(
            Path(given.file or given.folder or ""),
            classes=tuple(map(str, given.classes)),
            split=given.split,
            patient=given.patient,
            seed=recipe.seed,
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
    except PumitError as error:
        logger.warning("the images cannot be read again (%s)", type(error).__name__)
        return {}


def numbered(facts: Mapping[str, CaseFact], numbers: Mapping[str, str]) -> tuple[CaseFact, ...]:
    """The facts under what the card calls each case, in that order."""
    known = [replace(fact, case=numbers[name]) for name, fact in facts.items()]
    return tuple(sorted(known, key=lambda fact: number_of(fact.case)))
