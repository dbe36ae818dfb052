"""Models small enough for tests, and one whose answer is known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pumit
import pytest
import torch
from PIL import Image
from pumit.inference.engine.torch_engine import TorchEngine
from pumit.inference.interactive.segmenter import Segmenter, load_segmenter
from pumit.models.checkpoint import save_checkpoint
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

    def __init__(self, field_size: int, levels: Sequence[float] = (0.5,) * 4) -> None:
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


@pytest.fixture(scope="session")
def tiny_sizes() -> dict[str, Any]:
    """Sizes of a promptable network that computes in milliseconds; no one changes them."""
    return dict(TINY_SIZES)


@pytest.fixture
def tiny_network() -> PromptableNetwork:
    """A promptable network with random weights."""
    torch.manual_seed(0)
    network = build_network("promptable", **TINY_SIZES)
    assert isinstance(network, PromptableNetwork)
    return network.eval()


def segmenter_of(network: nn.Module) -> Segmenter:
    """A segmenter in single precision on the CPU, whatever the machine."""
    engine = TorchEngine(network, torch.device("cpu"), torch.float32)  # type: ignore[arg-type]
    return Segmenter(engine, "test", "0", "0" * 64, {})


@pytest.fixture
def tiny_segmenter(tiny_network: PromptableNetwork) -> Segmenter:
    """Random answers, but always the same."""
    return segmenter_of(tiny_network)


@pytest.fixture
def bright_segmenter() -> Segmenter:
    """Answers with what is bright: its masks are known beforehand."""
    return segmenter_of(BrightnessNetwork(48))


@pytest.fixture
def two_answers_segmenter() -> Segmenter:
    """Answers with what is half as bright or more, and less surely with what is bright."""
    return segmenter_of(BrightnessNetwork(48, (0.25, 0.75, 0.25, 0.75)))


@pytest.fixture
def tiny_checkpoint(tmp_path: Path, tiny_network: PromptableNetwork) -> Path:
    """A checkpoint file of the tiny network."""
    path = tmp_path / "tiny.safetensors"
    recipe = {"name": "tiny", "version": "1", "network": "promptable", "sizes": TINY_SIZES}
    save_checkpoint(path, tiny_network.state_dict(), recipe)
    return path


@pytest.fixture(scope="session")
def default_segmenter() -> Segmenter:
    """The model that ships."""
    models = Path(pumit.__file__).with_name("models")
    if not (models / "default.safetensors").is_file():
        pytest.skip("the default weights are absent from pumit/models")
    return load_segmenter("default", device="cpu")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def blank_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of a run are put together and left blank: drawing takes a third of a second each."""
    from matplotlib.figure import Figure

    def save(figure: Figure, path: Path, **how: Any) -> None:
        image = Image.new("RGB", [int(n * figure.dpi) for n in figure.get_size_inches()])
        image.save(path, how["format"])

    monkeypatch.setattr(Figure, "savefig", save)
