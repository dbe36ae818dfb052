"""Weights in 8 bits come back as floats, close to what they were."""

import numpy as np
import pytest
import torch
from pumit.errors import CheckpointError
from pumit.models.checkpoint import FORMAT_INT8, load_checkpoint, save_checkpoint
from pumit.models.int8_weights import FEWEST_VALUES, SCALE, quantised, restored
from pumit.models.weights import read_weights
from safetensors import safe_open
from torch import Tensor


@pytest.fixture
def state() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    kernel = torch.randn(16, 32, 3, 3, 3, generator=generator)
    kernel[3] *= 1e-4  # a channel of small weights
    kernel[4] = 0
    return {
        "kernel": kernel.half(),
        "matrix": torch.randn(64, 96, generator=generator),
        "small": torch.randn(4, 8, generator=generator),
        "bias": torch.randn(FEWEST_VALUES, generator=generator),
        "count": torch.tensor(3),
    }


def test_every_channel_keeps_its_own_precision(state):
    again = restored(quantised(state))
    assert again.keys() == state.keys()
    for name in ("kernel", "matrix"):
        before, after = state[name].float().flatten(1), again[name].flatten(1)
        step = before.abs().amax(1) / 127
        assert bool(((after - before).abs() <= 0.51 * step[:, None] + 1e-9).all())
    assert all(again[name] is state[name] for name in ("small", "bias", "count"))


def test_a_checkpoint_is_half_as_large_and_reads_alike_with_and_without_torch(state, tmp_path):
    recipe = {"network": "promptable", "name": "x"}
    plain, small = tmp_path / "plain.safetensors", tmp_path / "small.safetensors"
    halves = {name: tensor.half() for name, tensor in state.items()}
    save_checkpoint(plain, halves, recipe)
    save_checkpoint(small, quantised(halves), recipe)
    assert small.stat().st_size < 0.7 * plain.stat().st_size
    with safe_open(str(small), framework="np") as handle:
        assert handle.metadata()["format"] == FORMAT_INT8
        assert "kernel" + SCALE in handle.keys()  # noqa: SIM118
    in_torch, in_numpy = load_checkpoint(small), read_weights(small, "promptable")
    assert in_torch.sha256 == in_numpy.sha256
    assert in_torch.state.keys() == in_numpy.arrays.keys() == state.keys()
    for name, tensor in in_torch.state.items():
        np.testing.assert_array_equal(tensor.float().numpy(), in_numpy.arrays[name])


@pytest.mark.parametrize("scales", [None, torch.ones(15), torch.ones(16, 1), torch.tensor(1.0)])
def test_scales_that_do_not_fit_are_one_line(state, tmp_path, scales):
    stored = quantised(state)
    if scales is None:
        del stored["kernel"]
    else:
        stored["kernel" + SCALE] = scales
    path = tmp_path / "odd.safetensors"
    save_checkpoint(path, stored, {"network": "promptable"})
    for read in (load_checkpoint, lambda path: read_weights(path, None)):
        with pytest.raises(CheckpointError, match="do not fit") as caught:
            read(path)
        assert "\n" not in str(caught.value)


def test_scales_beyond_what_floats_hold_are_refused(state, tmp_path):
    stored = quantised(state)
    stored["kernel" + SCALE] = torch.full((16,), 3e38)
    path = tmp_path / "odd.safetensors"
    save_checkpoint(path, stored, {"network": "promptable"})
    with np.errstate(over="ignore"), pytest.raises(CheckpointError, match="not finite"):
        read_weights(path, None)
