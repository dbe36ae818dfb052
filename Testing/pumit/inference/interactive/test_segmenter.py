"""A model is loaded where and as the user asks, or refused in one line."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pumit.errors import CheckpointError, PumitError
from pumit.inference.interactive.index_prompts import IndexPrompts, in_field
from pumit.inference.interactive.segmenter import load_segmenter
from pumit.inference.loading import _is_bfloat16_fast, pick_device, pick_precision
from pumit.models.checkpoint import save_checkpoint
from pumit.networks.promptable.network import PromptableNetwork
from pumit.preprocessing.fields import Field, Pyramid, field_channels
from pumit.training.loop.optimizers import orthogonalised
from pumit.training.loop.precision import is_half


def save(path: Path, network: PromptableNetwork, **recipe: Any) -> Path:
    save_checkpoint(path, network.state_dict(), {"network": "promptable", **recipe})
    return path


def test_a_checkpoint_says_how_its_model_is_requested_best(tmp_path, tiny_network, tiny_sizes):
    plain = load_segmenter(save(tmp_path / "a.safetensors", tiny_network, sizes=tiny_sizes), "cpu")
    assert (plain.name, plain.largest_field, plain.averages_fields) == ("a", 0, False)
    said = {"largest_field": 32, "averages_fields": True}
    path = save(tmp_path / "b.safetensors", tiny_network, sizes=tiny_sizes, **said)
    segmenter = load_segmenter(path, "cpu")
    assert (segmenter.largest_field, segmenter.averages_fields) == (32, True)
    for value in ("wide", [32], float("inf")):
        segmenter.recipe["largest_field"] = value
        with pytest.raises(CheckpointError, match="recipe of b has largest_field"):
            _ = segmenter.largest_field


def loaded_network(path: Path, monkeypatch: pytest.MonkeyPatch) -> PromptableNetwork:
    monkeypatch.setenv("PUMIT_ENGINE", "torch")
    engine = load_segmenter(str(path), device="cpu").engine
    return engine.network


def test_loaded_weights_are_the_saved_ones(tmp_path, tiny_network, tiny_sizes, monkeypatch):
    """In single precision, also where the file has half of it."""
    for precision in (torch.float32, torch.float16):
        saved = tiny_network.to(precision)
        network = loaded_network(
            save(tmp_path / "m.safetensors", saved, sizes=tiny_sizes), monkeypatch
        )
        assert not network.training
        loaded = network.state_dict()
        for name, tensor in saved.state_dict().items():
            torch.testing.assert_close(loaded[name], tensor.float(), rtol=0, atol=0)


@pytest.mark.parametrize("network", ["pumit_vit_b", None, 3])
def test_another_network_is_refused(tmp_path, tiny_network, network):
    path = tmp_path / "other.safetensors"
    save_checkpoint(path, tiny_network.state_dict(), {"network": network})
    with pytest.raises(CheckpointError, match="takes no prompts"):
        load_segmenter(path)


@pytest.mark.filterwarnings("ignore:Initializing zero-element")
@pytest.mark.parametrize(
    "change",
    [
        {"dim": 48},
        {"dim": "24"},
        {"depth": -1},
        {"num_heads": 5},
        {"num_masks": 3},
        {"widths": 8},
        {"field_size": 16.5},
        {"unknown": 1},
        None,
        [1, 2],
    ],
    ids=str,
)
def test_sizes_that_do_not_fit_the_weights_are_refused(tmp_path, tiny_network, tiny_sizes, change):
    sizes = {**tiny_sizes, **change} if isinstance(change, dict) else change
    path = save(tmp_path / "m.safetensors", tiny_network, sizes=sizes)
    with pytest.raises(CheckpointError, match="do not fit") as caught:
        load_segmenter(path)
    assert "\n" not in str(caught.value)


def test_weights_that_are_missing_or_no_numbers_are_refused(tmp_path, tiny_network, tiny_sizes):
    state, path = tiny_network.state_dict(), tmp_path / "m.safetensors"
    name, first = next(iter(state.items()))
    rest = {k: v for k, v in state.items() if k != name}
    for given, words in ((rest, "do not fit"), ({**rest, name: first * torch.nan}, "not finite")):
        save_checkpoint(path, given, {"network": "promptable", "sizes": tiny_sizes})
        with pytest.raises(CheckpointError, match=words):
            load_segmenter(path)


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "", "cpu cuda", "cuda:-1", "meta", "cuda:99"])
def test_unknown_and_absent_devices_are_refused(device):
    with pytest.raises(PumitError, match="evice") as caught:
        pick_device(device)
    assert "\n" not in str(caught.value)
    assert pick_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("seconds", [1.0, 3.0])
def test_bfloat16_is_used_only_where_it_is_faster(monkeypatch, seconds):
    """Instructions for it do not tell: some CPUs need twice the time of float32."""
    cpu, is_fast = torch.device("cpu"), seconds < 2.0
    times = {torch.bfloat16: seconds, torch.float32: 2.0}
    monkeypatch.setattr("pumit.inference.loading._product_seconds", times.__getitem__)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    _is_bfloat16_fast.cache_clear()
    try:
        threads = torch.get_num_threads()
        assert pick_precision(cpu) == (torch.bfloat16 if is_fast else torch.float32)
        assert torch.get_num_threads() == threads
        assert is_half(cpu, "auto") == is_fast
        direction = orthogonalised(torch.eye(3) + 0.3)
        assert torch.equal(direction, direction.bfloat16().float()) == is_fast
        _is_bfloat16_fast.cache_clear()
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
        assert pick_precision(cpu) == torch.float32
    finally:
        _is_bfloat16_fast.cache_clear()


def test_a_loaded_model_says_what_it_is_and_answers_in_single_precision(tiny_checkpoint):
    segmenter = load_segmenter(tiny_checkpoint, device="cpu")
    assert (segmenter.name, segmenter.version, segmenter.device) == ("tiny", "1", "cpu")
    assert (len(segmenter.sha256), segmenter.field_size) == (64, 16)
    array = np.random.default_rng(0).normal(size=(8, 24, 24))
    field = Field((3.5, 11.5, 11.5), (1, 1, 1), (8, 24, 24), 2.0, 1)
    image = field_channels(*Pyramid(array, (2, 1, 1)).sample(field))
    embedding = segmenter.engine.encode(image, da0=1, slice_ratio=2.0)
    prompts = in_field(IndexPrompts([(4.0, 12.0, 12.0, True)]), field, None)
    logits, iou = segmenter.engine.decode(embedding, prompts)
    assert logits.shape == (4, 8, 24, 24)
    assert iou.shape == (4,)
    assert logits.dtype == iou.dtype == np.float32
    assert ((iou >= 0) & (iou <= 1)).all()
