"""A model's kind, version and classes, read without its weights.

The recipe of a promptable model may hold a calibration of its IoU estimates:

    calibration:
      estimate: [0.1, 0.4, 0.7, 0.9]  # knots: the network's estimates, increasing
      iou: [0.2, 0.35, 0.6, 0.8]      # measured IoU at the knots, non-decreasing
      answers: 640                    # number of predictions the knots were fitted to
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, cast, get_args

import numpy as np

from pumit.errors import CheckpointError, PumitError
from pumit.models.checkpoint import ModelHeader, read_recipe
from pumit.models.index import list_models
from pumit.segmentation import ClassLabel
from pumit.system.consent import has_consent

logger = logging.getLogger(__name__)

ModelKind = Literal["promptable", "automatic", "tokenizer", "encoder", "classifier"]
KINDS: tuple[ModelKind, ...] = get_args(ModelKind)
# Words to the modality as DICOM writes it.
MODALITIES = {"ct": "CT", "mr": "MR", "mri": "MR", "pet": "PT", "pt": "PT", "us": "US"}
_KIND_OF_NETWORK: dict[str, ModelKind] = {
    "promptable": "promptable",
    "sam": "promptable",
    "pumit_tokenizer": "tokenizer",
    "pumit_tokenizer_small": "tokenizer",
    "pumit_vit_b": "encoder",
    "pumit_vit_b_mim": "encoder",
    "pumit_vit_small_mim": "encoder",
    "pumit_classifier_b": "classifier",
    "pumit_classifier_small": "classifier",
}


@dataclass(frozen=True)
class ModelCard:
    """An installed model, without its path.

    Attributes:
        classes: Classes of an automatic model, without background, or of a classifier; else empty.
        modality: Modality of the training scans, as in DICOM: "CT", "MR", "PT"; empty if unknown.
    """

    name: str
    kind: ModelKind
    version: str
    description: str
    classes: tuple[ClassLabel, ...] = ()
    licence: str = ""
    modality: str = ""
    is_own: bool = False

    @property
    def is_accepted(self) -> bool:
        """Whether the licence is free, or the user has agreed to it."""
        return has_consent(self.name, self.licence)


def kind_of(recipe: Mapping[str, Any]) -> ModelKind:
    """Return the kind of model of a recipe, inferred from its network if not given.

    Raises:
        CheckpointError: If this version does not know the kind.
    """
    network = ModelHeader.of(recipe).network
    kind = recipe.get("kind", _KIND_OF_NETWORK.get(network, "automatic"))
    if kind not in KINDS:
        raise CheckpointError(
            f"The model is of the unknown kind {kind!r}; it needs a newer version of this program."
        )
    return cast(ModelKind, kind)


def modality_of(recipe: Mapping[str, Any]) -> str:
    """Return the modality of the training scans as in DICOM, or empty if unknown.

    It is the recipe's `modality`, else a word of the model's name: `abdomen-ct`, `heart-mr`.
    """
    words = re.findall(r"[a-z]+", ModelHeader.of(recipe).name.lower())
    modality = str(recipe.get("modality") or next((w for w in words if w in MODALITIES), ""))
    return MODALITIES.get(modality.lower(), modality.upper())


def classes_of(recipe: Mapping[str, Any]) -> tuple[ClassLabel, ...]:
    """Return the classes of an automatic model, in order of its output channels from 1 on.

    Those of a classifier are in order of its outputs from 0 on. Each is written as
    `{"name": ..., "terminology": ..., "color_rgb": [r, g, b]}`; the last two are optional.

    Raises:
        CheckpointError: If there are no classes, or one is invalid.
    """
    try:
        return tuple(
            ClassLabel(
                str(row["name"]),
                str(row.get("terminology", "")),
                None if row.get("color_rgb") is None else tuple(row["color_rgb"]),
            )
            for row in recipe["classes"]
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise CheckpointError(
            f"The model's recipe names no usable classes ({type(error).__name__}: {error}); "
            "an automatic model or a classifier needs a name for each."
        ) from None


@dataclass(frozen=True)
class Calibration:
    """Calibration of a model's IoU estimates, linear between knots.

    Attributes:
        iou: Expected IoU at each estimate, non-decreasing, 0 to 1.
        answers: Number of predictions that the knots were fitted to.
    """

    estimate: tuple[float, ...]
    iou: tuple[float, ...]
    answers: int = 0

    def __post_init__(self) -> None:
        """Check the knots."""
        is_curve = 2 <= len(self.estimate) == len(self.iou)
        is_rising = all(a < b for a, b in pairwise(self.estimate))
        is_monotone = all(a <= b for a, b in pairwise((0.0, *self.iou, 1.0)))
        if not (is_curve and is_rising and is_monotone and np.isfinite(self.estimate).all()):
            raise ValueError("knots must rise, and lead to values from 0 to 1 that never fall")

    def __call__(self, estimate: float) -> float:
        """Return the expected IoU for an estimate; constant beyond the knots."""
        return float(np.interp(estimate, self.estimate, self.iou))


def calibration_of(recipe: Mapping[str, Any]) -> Calibration | None:
    """Return the calibration of a promptable model, or None if its recipe has none.

    Raises:
        CheckpointError: If the calibration is invalid.
    """
    if "calibration" not in recipe:
        return None
    try:
        row = recipe["calibration"]
        return Calibration(
            tuple(float(v) for v in row["estimate"]),
            tuple(float(v) for v in row["iou"]),
            int(row.get("answers", 0)),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise CheckpointError(
            f"The model's recipe holds no usable calibration ({type(error).__name__}: {error}); "
            "fetch the model again."
        ) from None


def installed_models() -> list[ModelCard]:
    """Return the usable models of the index on this machine, the first of each name.

    Missing, damaged and unknown models are skipped; the log says why, except for missing files.
    """
    cards: dict[str, ModelCard] = {}
    for entry in list_models():
        if entry.name in cards or not entry.path.is_file():
            continue
        try:
            recipe, _ = read_recipe(entry.path)
            kind = kind_of(recipe)
            classes = classes_of(recipe) if kind in ("automatic", "classifier") else ()
        except PumitError as error:
            logger.warning("model %r cannot be used: %s", entry.name, error)
            continue
        version = ModelHeader.of(recipe).version
        cards[entry.name] = ModelCard(
            entry.name,
            kind,
            version,
            entry.description,
            classes,
            entry.licence,
            modality=modality_of({"name": entry.name, **recipe}),
            is_own=entry.source == "own",
        )
    return list(cards.values())
