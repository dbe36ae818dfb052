"""A loaded promptable model: its metadata, and its two steps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pumit.errors import PumitError
from pumit.inference.engine.choice import load_engine
from pumit.inference.engine.engine import Engine, Features, FieldPrompts, Floats, R, T
from pumit.models.checkpoint import ModelHeader
from pumit.models.consent import check_consent
from pumit.models.index import find_model
from pumit.models.sam_file import is_sam_model
from pumit.preprocessing.fields import Field, Pyramid
from pumit.preprocessing.intensity import field_channels

logger = logging.getLogger(__name__)


@dataclass
class Segmenter:
    """A promptable model ready to answer.

    Attributes:
        recipe: Training recipe and metadata of the checkpoint.
        make_solver: What answers on a scan that was opened, where it is not `PromptSolver`.
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
        """In-plane voxels of the largest field that it answers well, a multiple of 8, or 0."""
        return int(self.recipe.get("largest_field") or 0) // 8 * 8

    @property
    def averages_fields(self) -> bool:
        """Whether the answers of several fields are better together than the best of them alone."""
        return bool(self.recipe.get("averages_fields"))

    def prepare(self, fields: Sequence[Field]) -> None:
        """Get ready for fields, the next one first; see `Engine.prepare`."""
        self.engine.prepare(dict.fromkeys((field.da0, field.shape) for field in fields))

    def embed(self, pyramid: Pyramid, field: Field) -> Features:
        """Sample and encode a field of a volume."""
        channels = field_channels(*pyramid.sample(field))
        features: Features = self.engine.encode(
            channels, da0=field.da0, slice_ratio=field.prompt_ratio
        )
        return features

    def map(self, work: Callable[[T], R], fields: Sequence[T]) -> list[R]:
        """Apply a function that embeds and decodes to each of several fields, in their order."""
        return self.engine.map(work, fields)

    def decode(self, features: Features, prompts: FieldPrompts) -> tuple[Floats, Floats]:
        """Mask logits (M, D, H, W) and IoU estimates (M,), float32."""
        return self.engine.decode(features, prompts)


def load_segmenter(
    model: str | Path = "default",
    device: str = "auto",
    *,
    keeps_graphs: bool = True,
    size: int | None = None,
) -> Segmenter:
    """Load a promptable model.

    Args:
        model: A name from the model index, a checkpoint file, or SAM's (`.pth`).
        device: "auto", "cpu", "cuda", "cuda:1" or "mps".
        keeps_graphs: Whether what is compiled for this processor is written into the user's
            folder, so that the next process begins sooner; it is read there in any case.
        size: Pixels of an image as SAM sees it, of the longer side; None for those of its training.

    Raises:
        CheckpointError: If the model is unknown, damaged, or of another network, or if its
            licence has to be agreed to first.
        PumitError: If the device is absent, or what is installed cannot compute on it.
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
    header = checkpoint.header
    name = header.name or path.stem
    return Segmenter(
        engine, name, header.version, checkpoint.sha256, checkpoint.recipe,
        make_solver=lambda scan: SamSolver(sam, scan),
    )  # fmt: skip
