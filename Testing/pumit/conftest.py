"""Fixtures of the core's tests; those of `small_models` need PyTorch."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pumit
import pytest
from absent import NO_TORCH
from PIL import Image
from pumit.inference.interactive.segmenter import Segmenter, load_segmenter
from pumit.models.checkpoint import save_checkpoint

if TYPE_CHECKING:
    from pumit.networks.promptable.network import PromptableNetwork


@pytest.fixture(scope="session")
def small_models() -> ModuleType:
    """The module of that name; a test that asks for it is skipped without PyTorch."""
    pytest.importorskip("torch", reason=NO_TORCH)
    import small_models

    return small_models


@pytest.fixture(scope="session")
def tiny_sizes(small_models: ModuleType) -> dict[str, Any]:
    """Sizes of a promptable network that computes in milliseconds; no one changes them."""
    return dict(small_models.TINY_SIZES)


@pytest.fixture
def tiny_network(small_models: ModuleType) -> PromptableNetwork:
    """A promptable network with random weights."""
    network: PromptableNetwork = small_models.tiny_network()
    return network


@pytest.fixture
def tiny_segmenter(small_models: ModuleType, tiny_network: PromptableNetwork) -> Segmenter:
    """Random answers, but always the same."""
    segmenter: Segmenter = small_models.segmenter_of(tiny_network)
    return segmenter


@pytest.fixture
def bright_segmenter(small_models: ModuleType) -> Segmenter:
    """Answers with what is bright: its masks are known beforehand."""
    segmenter: Segmenter = small_models.bright_segmenter(0.5, 0.5, 0.5, 0.5)
    return segmenter


@pytest.fixture
def two_answers_segmenter(small_models: ModuleType) -> Segmenter:
    """Answers with what is half as bright or more, and less surely with what is bright."""
    segmenter: Segmenter = small_models.bright_segmenter(0.25, 0.75, 0.25, 0.75)
    return segmenter


@pytest.fixture
def tiny_checkpoint(
    tmp_path: Path, tiny_sizes: dict[str, Any], tiny_network: PromptableNetwork
) -> Path:
    """A checkpoint file of the tiny network."""
    path = tmp_path / "tiny.safetensors"
    recipe = {"name": "tiny", "version": "1", "network": "promptable", "sizes": tiny_sizes}
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


@pytest.fixture
def known_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks whose answers are known beforehand, for `build_network`."""
    pytest.importorskip("torch", reason=NO_TORCH)
    from known_networks import know_networks

    know_networks(monkeypatch)
