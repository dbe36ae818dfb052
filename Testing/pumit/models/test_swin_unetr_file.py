"""Public weights of MONAI's Swin UNETR."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pumit.errors import CheckpointError
from pumit.models.swin_unetr_file import (
    is_public_file,
    load_swin_unetr_file,
    read_swin_unetr_file,
)
from pumit.networks.build import build_network
from pumit.training.segmentation.initial_weights import load_initial_weights, sizes_of_initial
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.torch_version import TorchVersion

TINY: dict[str, Any] = {
    "in_channels": 2,
    "num_classes": 3,
    "feature_size": 12,
    "depths": (1, 1, 1, 1),
    "num_heads": (1, 1, 2, 2),
    "window_size": 2,
}


def tiny(seed: int = 0, **changes: Any) -> nn.Module:
    torch.manual_seed(seed)
    return build_network("swin_unetr", **{**TINY, **changes})


@pytest.fixture(scope="module")
def state() -> dict[str, Tensor]:
    """A whole network's, by MONAI's names, changed as the old order would have changed it."""
    state = tiny(1).network.state_dict()
    for name, weight in state.items():
        if name.endswith("downsample.reduction.weight"):
            groups = weight.view(len(weight), 8, -1)
            change = weight.std() * torch.randn(groups.shape)
            change[:, 5], change[:, 6] = change[:, 2], change[:, 3]
            groups += change
    return state


def encoder_file(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """As the public `model_swinvit.pt` is: no prefix of the encoder, and older names."""
    found = {
        "module." + k.removeprefix("swinViT.").replace("mlp.linear", "mlp.fc"): v
        for k, v in state.items()
        if k.startswith("swinViT.")
    }
    return {**found, "module.rotation_head.weight": torch.zeros(4, 192)}


def same(network: nn.Module, state: dict[str, Tensor], prefix: str = "") -> list[str]:
    ours = network.network.state_dict()
    names = (k for k in state if k.startswith(prefix))
    return [k for k in names if torch.equal(ours[k], state[k])]


WRITERS: dict[str, Callable[[Path, dict[str, Tensor]], None]] = {
    "a.pt": lambda path, s: torch.save(s, path),
    "best.pt": lambda path, s: torch.save(
        {"epoch": 3, "best_acc": np.float64(0.8), "state_dict": {f"module.{k}": s[k] for k in s}},
        path,
    ),
    "a.safetensors": lambda path, s: save_file(s, str(path)),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_whole_network_gives_all_its_weights_and_its_order(name, state, tmp_path):
    WRITERS[name](tmp_path / name, state)
    assert is_public_file(tmp_path / name)
    settled = sizes_of_initial("swin_unetr", {}, str(tmp_path / name))
    assert settled == {"merging": "before_2025"}
    network = tiny(merging="before_2025")
    loaded = load_swin_unetr_file(network, tmp_path / name)
    assert len(same(network, state)) == len(state)
    assert "merging: before_2025" in loaded
    assert "corners that were read twice" in loaded


def test_other_classes_and_channels_begin_anew_or_are_shared_out(state, tmp_path):
    torch.save(state, tmp_path / "a.pt")
    network = tiny(in_channels=1, num_classes=5, merging="before_2025")
    assert "last layer starts from random weights" in load_swin_unetr_file(
        network, tmp_path / "a.pt"
    )
    whole = tiny(merging="before_2025")
    whole.network.load_state_dict(state)
    x = torch.randn(1, 1, 32, 32, 64)
    with torch.no_grad():  # the decoder's first block is normalised: all but the head agrees
        for features in (network, whole):
            features.network.out = nn.Identity()
            features.eval()
        torch.testing.assert_close(network(x), whole(x.expand(-1, 2, -1, -1, -1)))


def test_a_pretrained_encoder_begins_exactly_the_encoder(state, tmp_path):
    torch.save({"state_dict": encoder_file(state)}, tmp_path / "model_swinvit.pt")
    network = tiny(merging="before_2025")
    before = {k: v.clone() for k, v in network.network.state_dict().items()}
    load_initial_weights(network, str(tmp_path / "model_swinvit.pt"))
    encoder = [k for k in before if k.startswith("swinViT.")]
    assert same(network, state, "swinViT.") == encoder
    assert set(same(network, before)) >= {k for k in before if not k.startswith("swinViT.")}


def test_a_pickle_is_not_opened_by_a_pytorch_with_known_faults(state, tmp_path, monkeypatch):
    torch.save(state, tmp_path / "a.pt")
    save_file({k: v.contiguous() for k, v in state.items()}, tmp_path / "a.safetensors")
    monkeypatch.setattr(torch, "__version__", TorchVersion("2.9.1"))
    monkeypatch.setattr(torch, "load", None)
    network = tiny(merging="before_2025")
    with pytest.raises(CheckpointError, match=r"update PyTorch \(here 2\.9\.1\)"):
        load_swin_unetr_file(network, tmp_path / "a.pt")
    assert load_swin_unetr_file(network, tmp_path / "a.safetensors")


def test_the_order_that_the_user_gives_wins_and_the_user_is_reported(state, tmp_path, caplog):
    torch.save(state, tmp_path / "a.pt")
    assert sizes_of_initial("swin_unetr", {"merging": "current"}, str(tmp_path / "a.pt")) == {}
    loaded = load_swin_unetr_file(tiny(merging="current"), tmp_path / "a.pt")
    assert "as network_sizes say, although" in loaded
    assert "as network_sizes say, although" in caplog.text


@pytest.mark.parametrize(
    ("version", "expected", "reason"),
    [
        ("1.3.0", "before_2025", "names MONAI 1.3.0"),
        ("1.5.1", "current", "does not show the order"),
    ],
)
def test_a_bundles_version_tells_where_weights_do_not(version, expected, reason, tmp_path):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "metadata.json").write_text(json.dumps({"monai_version": version}))
    (tmp_path / "models").mkdir()
    torch.save(tiny().network.state_dict(), tmp_path / "models" / "model.pt")
    found = read_swin_unetr_file(tmp_path / "models" / "model.pt")
    assert found.merging == expected
    assert reason in found.reason
    assert found.is_known == (expected == "before_2025")


def test_what_does_not_fit_is_refused_in_one_line(state, tmp_path):
    def refused(content: Any, reason: str, **changes: Any) -> None:
        torch.save(content, tmp_path / "a.pt")
        with pytest.raises(CheckpointError, match=reason) as caught:
            load_swin_unetr_file(tiny(**changes), tmp_path / "a.pt")
        assert "\n" not in str(caught.value)

    refused(state, r"feature_size: 12, .*num_heads: \[1, 1, 2, 2\]", feature_size=24,
            num_heads=(2, 2, 2, 2))  # fmt: skip
    refused(state, "window_size: 2", window_size=3)
    refused(state, "spatial_dims: 3", spatial_dims=2)
    refused({"a.weight": torch.zeros(2)}, "no Swin UNETR")
    refused([1, 2], "no named weights")
    refused({"state_dict": state, "args": Path("x")}, "more than weights")
    refused({**state, "swinViT.layers1c.0.x": torch.zeros(2)}, "version 2")
    refused({k: v for k, v in state.items() if "decoder3" not in k}, "decoder3.* is absent there")
    refused({**state, "out.conv.conv.bias": torch.full((3,), torch.nan)}, "not finite")
    (tmp_path / "b.pt").write_bytes(b"PK\x03\x04 damaged")
    with pytest.raises(CheckpointError, match=r"b\.pt"):
        load_swin_unetr_file(tiny(), tmp_path / "b.pt")
    with pytest.raises(CheckpointError, match="no file"):
        load_swin_unetr_file(tiny(), tmp_path / "c.pt")
