"""A loaded promptable model: its engine and metadata."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pumit.errors import CheckpointError, PumitError
from pumit.inference.engine.choice import load_engine
from pumit.inference.engine.engine import Engine
from pumit.models.checkpoint import ModelHeader
from pumit.models.consent import check_consent
from pumit.models.index import find_model
from pumit.models.sam_file import is_sam_model

logger = logging.getLogger(__name__)


@dataclass
class Segmenter:
    """A promptable model ready for inference.

    Attributes:
        recipe: Training recipe and metadata of the checkpoint.
        make_solver: Factory of the solver for an opened scan; None for `PromptSolver`.
    """

    engine: Engine
    name: str
    version: str
    sha256: str
    recipe: dict[str, Any]
    make_solver: Callable[[Any], Any] | None = None

    @property
    def device(self) -> str:
        """Device as text, such as `cpu` or `cuda:0`."""
        return self.engine.device

    @property
    def field_size(self) -> int:
        """In-plane voxels of a training field."""
        return self.engine.field_size

    @property
    def largest_field(self) -> int:
        """In-plane voxels of the largest field the model handles well, a multiple of 8, or 0.

        Raises:
            CheckpointError: If the recipe's value is not a number.
        """
        value = self.recipe.get("largest_field") or 0
        try:
            return int(value) // 8 * 8
        except (TypeError, ValueError, OverflowError):
            raise CheckpointError(
                f"The recipe of {self.name} has largest_field {value!r}, which is not a number; "
                "fetch the model again."
            ) from None

    @property
    def averages_fields(self) -> bool:
        """Whether averaging the answers of several fields beats taking the best one."""
        return bool(self.recipe.get("averages_fields"))


def load_segmenter(
    model: str | Path = "default",
    device: str = "auto",
    *,
    keeps_graphs: bool = True,
    size: int | None = None,
) -> Segmenter:
    """Load a promptable model.

    Args:
        model: A name from the model index, a checkpoint file, or a SAM file (`.pth`).
        device: "auto", "cpu", "cuda", "cuda:1" or "mps".
        keeps_graphs: Whether to cache compiled graphs in the user's folder, so that the next
            process starts faster. Existing ones are read in any case.
        size: Pixels of the longer side of SAM's input image; None for its training size.

    Raises:
        CheckpointError: If the model is unknown, damaged, or of another network, or if its
            licence has to be accepted first.
        PumitError: If the device is absent, or no installed engine supports it.
    """
    check_consent(str(model))
    path = find_model(model)
    if is_sam_model(path):
        return _load_sam(path, device, size)
    if size is not None:
        raise PumitError("--size is only for SAM's weights; other models choose their input size.")
    engine, weights = load_engine(path, device, keeps_graphs=keeps_graphs)
    header = ModelHeader.of(weights.recipe)
    name, version = header.name or path.stem, header.version
    logger.info("model %s %s on %s by %s", name, version, engine.device, engine.name)
    return Segmenter(engine, name, version, weights.sha256, weights.recipe)


def _load_sam(path: Path, device: str, size: int | None) -> Segmenter:
    from pumit.inference.interactive.sam_solver import SamSolver, load_sam  # needs PyTorch

    sam, checkpoint = load_sam(path, device, size=size)
    engine: Any = sam
    header, recipe = checkpoint.header, checkpoint.recipe
    name, make = header.name or path.stem, partial(SamSolver, sam)
    return Segmenter(engine, name, header.version, checkpoint.sha256, recipe, make)
