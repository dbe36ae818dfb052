"""A loaded promptable model: where it computes, in which precision, and its two steps."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pumit.inference.loading import build_from, pick_device, pick_precision, read_model
from pumit.models.index import find_model
from pumit.networks.promptable.image_encoder import ImageEmbedding
from pumit.networks.promptable.network import PromptableNetwork
from pumit.networks.promptable.prompt_encoder import PromptBatch
from pumit.networks.pumit import Anisotropy
from pumit.preprocessing.fields import Field, Pyramid
from pumit.preprocessing.intensity import field_channels

logger = logging.getLogger(__name__)


@dataclass
class Segmenter:
    """A promptable model ready to answer.

    Attributes:
        network: The network, in evaluation mode on its device.
        name: Model name.
        version: Model version.
        sha256: Fingerprint of the weights.
        recipe: Everything the checkpoint says of itself.
        torch_device: Where it computes.
        precision: Type of the heavy arithmetic.
    """

    network: PromptableNetwork
    name: str
    version: str
    sha256: str
    recipe: dict[str, Any]
    torch_device: torch.device
    precision: torch.dtype

    @property
    def device(self) -> str:
        """Device as text, such as `cpu` or `cuda:0`."""
        return str(self.torch_device)

    @property
    def field_size(self) -> int:
        """In-plane voxels of a training field."""
        return self.network.field_size

    def _cast(self) -> AbstractContextManager[Any]:
        if self.precision == torch.float32:
            return nullcontext()
        return torch.autocast(self.torch_device.type, self.precision)

    @torch.inference_mode()
    def embed(self, pyramid: Pyramid, field: Field) -> ImageEmbedding:
        """Sample and embed a field of a volume."""
        image, inside = pyramid.sample(field)
        channels = field_channels(image, inside)[None].to(self.torch_device)
        with self._cast():
            return self.network.embed(channels, Anisotropy(field.da0))

    @torch.inference_mode()
    def decode(self, embedding: ImageEmbedding, prompts: PromptBatch) -> tuple[Tensor, Tensor]:
        """Mask logits (M, D, H, W) and IoU estimates (M,), on the CPU, float32."""
        moved = PromptBatch(**{k: v.to(self.torch_device) for k, v in vars(prompts).items()})
        with self._cast():
            logits, iou = self.network.decode(embedding, moved)
        return logits[0].float().cpu(), iou[0].float().cpu()


def load_segmenter(model: str | Path = "default", device: str = "auto") -> Segmenter:
    """Load a promptable model.

    Args:
        model: A name from the model index, or a checkpoint file.
        device: "auto", "cpu", "cuda", "cuda:1" or "mps".

    Raises:
        CheckpointError: If the model is unknown, damaged, or of another network.
        PumitError: If the device is absent.
    """
    target = pick_device(device)
    path = find_model(model)
    checkpoint = read_model(path, "promptable")
    recipe = checkpoint.recipe
    network = build_from(checkpoint, path, target)
    assert isinstance(network, PromptableNetwork)
    logger.info("model %s %s on %s", recipe.get("name"), recipe.get("version"), target)
    return Segmenter(
        network,
        str(recipe.get("name", path.stem)),
        str(recipe.get("version", "0")),
        checkpoint.sha256,
        recipe,
        target,
        pick_precision(target),
    )
