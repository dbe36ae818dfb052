"""Models small enough for tests, and one whose answer is known; they need PyTorch."""

from collections.abc import Sequence
from typing import Any

import torch
from pumit.inference.engine.torch_engine import TorchEngine
from pumit.inference.interactive.segmenter import Segmenter
from pumit.networks.build import build_network
from pumit.networks.promptable.image_encoder import ImageEmbedding
from pumit.networks.promptable.network import PromptableNetwork
from pumit.networks.promptable.prompt_encoder import PromptBatch
from pumit.networks.pumit import Anisotropy
from torch import Tensor, nn

TINY_SIZES: dict[str, Any] = {
    "widths": (8, 8, 16),
    "dim": 24,
    "depth": 1,
    "num_heads": 2,
    "field_size": 16,
    "num_masks": 4,
    "num_decoder_blocks": 1,
}


class BrightnessNetwork(nn.Module):
    """Answers every prompt with all that is brighter than some shares of the field's range."""

    def __init__(self, field_size: int, levels: Sequence[float]) -> None:
        super().__init__()
        self.field_size = field_size
        self.levels = torch.tensor(levels)
        self.num_masks = len(levels)

    def embed(self, image: Tensor, anisotropy: Anisotropy) -> ImageEmbedding:
        return ImageEmbedding(image, image, image, image, image, anisotropy)

    def decode(self, embedding: ImageEmbedding, prompts: PromptBatch) -> tuple[Tensor, Tensor]:
        assert prompts.prior.shape[2:] == embedding.image.shape[2:]
        logits = 20 * (embedding.image[:, :1] - self.levels[:, None, None, None])
        return logits, 0.9 - torch.arange(self.num_masks)[None] / 100


def tiny_network() -> PromptableNetwork:
    """A promptable network with random weights, always the same."""
    torch.manual_seed(0)
    network = build_network("promptable", **TINY_SIZES)
    return network.eval()


def segmenter_of(network: nn.Module) -> Segmenter:
    """A segmenter in single precision on the CPU, whatever the machine."""
    engine = TorchEngine(network, torch.device("cpu"), torch.float32)  # type: ignore[arg-type]
    return Segmenter(engine, "test", "0", "0" * 64, {})


def bright_segmenter(*levels: float) -> Segmenter:
    """A segmenter with one answer per share of the field's range."""
    return segmenter_of(BrightnessNetwork(48, levels))
