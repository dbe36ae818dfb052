"""A scan through a tokenizer and back, on its own grid, with honest figures."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from familiarity_scale import reference
from pumit.errors import Cancelled, CheckpointError, VolumeError
from pumit.inference.tokenizer import reconstruction
from pumit.inference.tokenizer.reconstruction import TokenizerPlan, load_tokenizer
from pumit.inference.tokenizer.token_use import TokenUse, quality
from pumit.models.checkpoint import save_checkpoint
from pumit.networks.build import build_network
from pumit.networks.pumit import Anisotropy
from pumit.networks.pumit.tokenizer import SoftTokens, TokenizerOutput, VisualTokenizer
from pumit.system.watch import Watch
from pumit.volume import Volume
from scipy.ndimage import gaussian_filter
from torch import Tensor

SIZES = {"widths": [4, 8, 8], "num_tokens": 16, "groups": 2}


def save_tokenizer(path: Path, **changes: Any) -> Path:
    torch.manual_seed(0)
    network = build_network("pumit_tokenizer", **SIZES)
    recipe = {"name": "tiny", "version": "1", "network": "pumit_tokenizer", "sizes": SIZES}
    save_checkpoint(path, network.state_dict(), {**recipe, **changes})
    return path


@pytest.fixture
def tokenizer(tmp_path: Path) -> reconstruction.Tokenizer:
    made = load_tokenizer(save_tokenizer(tmp_path / "t.safetensors"), "cpu")
    made.precision = torch.float32
    return made


def scan(shape: tuple[int, int, int], spacing: tuple[float, float, float]) -> Volume:
    smooth = gaussian_filter(np.random.default_rng(2).normal(size=shape), 2)
    array = (smooth - smooth.min()) / np.ptp(smooth) * 900 - 200
    return Volume(array.astype(np.int16), spacing, (3.0, 2.0, 1.0))


class Copying(VisualTokenizer):
    """Gives every window back as it is; token 3 wherever the image is bright, else token 0."""

    def forward(self, x: Tensor, anisotropy: Anisotropy) -> TokenizerOutput:
        step = (anisotropy.depth_stride(4), 16, 16)
        assert all(n % s == 0 for n, s in zip(x.shape[2:], step, strict=True))
        cells = torch.nn.functional.avg_pool3d(x[:, :1], step)
        p = torch.zeros(1, 16, *cells.shape[2:])
        p[:, 3], p[:, 0] = (cells[:, 0] > 0).float(), (cells[:, 0] <= 0).float()
        return TokenizerOutput(x, SoftTokens(p[:, :8], p))


@pytest.mark.parametrize(
    ("shape", "spacing"),
    [
        ((40, 70, 150), (1.0, 1.0, 1.0)),
        ((9, 150, 140), (5.0, 0.9, 0.9)),  # degree 2
        ((30, 20, 11), (1.0, 1.2, 6.0)),  # the depth is the last axis
        ((3, 40, 33), (1e3, 1.0, 1.0)),
        ((1, 50, 40), (1e8, 1.0, 1.0)),
    ],
)
def test_a_perfect_tokenizer_gives_the_scan_back_without_seams(tokenizer, shape, spacing):
    tokenizer.network = Copying(in_channels=3, widths=(4, 8, 8), num_tokens=16, groups=2)
    volume = scan(shape, spacing)
    answer = tokenizer.reconstruct(volume)
    values = volume.array[volume.array > volume.array.min()]
    low, high = np.percentile(values, [0.5, 99.5])
    np.testing.assert_allclose(answer.image, np.clip(volume.array, low, high), atol=0.2)
    assert np.abs(answer.difference).max() < 0.2
    assert answer.psnr_db > 60
    assert answer.ssim is None or answer.ssim > 0.999
    assert set(np.flatnonzero(answer.use.shares)) <= {0, 3}
    assert answer.use.mean_entropy == 0


def test_a_random_tokenizer_answers_on_the_grid_and_is_called_bad(tmp_path):
    path = save_tokenizer(tmp_path / "t.safetensors", reference={"psnr_db": [28.0, 33.0]})
    volume = scan((20, 40, 44), (2.0, 1.0, 1.0))
    answer = load_tokenizer(path, "cpu").reconstruct(volume)
    assert answer.image.shape == answer.difference.shape == volume.shape
    assert answer.image.dtype == np.float32
    assert answer.use.shares.sum() == pytest.approx(1)
    assert "clearly worse" in answer.sentence
    figures = json.loads(json.dumps(answer.figures()))
    assert figures["tokens"] == 16


def test_figures_of_token_use_are_those_of_the_definition():
    for shares, entropy in ((np.full(8, 1 / 8), math.log(8)), (np.eye(8)[2], 0.0)):
        use = TokenUse(shares, 0.5)
        assert use.perplexity == pytest.approx(math.exp(entropy))
        assert use.kl_to_uniform == pytest.approx(math.log(8) - entropy, abs=1e-12)
        assert use.mean_cell_kl == pytest.approx(math.log(8) - 0.5)


def test_the_sentence_follows_the_reference_figures():
    reference = {"psnr_db": [28.0, 33.0]}
    assert "as well as" in quality(33.0, reference)
    assert "about as well" in quality(28.0, reference)
    assert "less well" in quality(27.0, reference)
    assert "clearly worse" in quality(20.0, reference)
    for none in (None, {}, {"psnr_db": "high"}, {"psnr_db": [1]}):
        assert "no reference figures" in quality(30.0, none)


def test_progress_and_cancel(tokenizer):
    volume = scan((4, 300, 40), (10.0, 1.0, 1.0))
    seen: list[float] = []
    tokenizer.reconstruct(volume, watch=Watch(progress=seen.append))
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert len(seen) > 2
    with pytest.raises(Cancelled):
        tokenizer.reconstruct(volume, watch=Watch(lambda: True))


def test_without_a_tokenizer_one_line_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PUMIT_MODELS", str(tmp_path))
    monkeypatch.setattr(reconstruction, "installed_models", list)
    with pytest.raises(CheckpointError, match="No tokenizer is installed"):
        load_tokenizer()


def test_what_is_no_tokenizer_is_refused(tmp_path, tiny_checkpoint):
    with pytest.raises(CheckpointError, match="reconstructs nothing"):
        load_tokenizer(tiny_checkpoint)
    with pytest.raises(CheckpointError, match="multiples of 16"):
        load_tokenizer(save_tokenizer(tmp_path / "t.safetensors", plan={"in_plane": 100}))
    with pytest.raises(CheckpointError, match="plan cannot be read"):
        TokenizerPlan.from_recipe({"plan": 3})


def test_each_cell_counts_once_and_padding_not_at_all(tokenizer):
    tokenizer.network = Copying(in_channels=3, widths=(4, 8, 8), num_tokens=16, groups=2)
    array = np.zeros((1, 16, 327), dtype=np.float32)
    array[:, :, 96:128] = 100  # two of twenty cells, which two of the windows see
    array[:, :, 320:] = 100  # less than half of a cell, which padding continues
    array[0, 0, 0] = -1
    use = tokenizer.reconstruct(Volume(array, (1e8, 1.0, 1.0))).use
    assert use.shares[3] == pytest.approx(2 / 20)
    assert use.shares.sum() == pytest.approx(1)


def test_a_tokenizer_with_a_scale_says_how_familiar_an_image_is(tmp_path):
    path = save_tokenizer(tmp_path / "t.safetensors", reference=reference())
    loaded = load_tokenizer(path, "cpu")
    answer = loaded.reconstruct(scan((20, 48, 64), (2.0, 1.0, 1.0)))
    assert answer.sentence.startswith(answer.familiarity.sentence)
    assert "PSNR" in answer.sentence
    figures = json.loads(json.dumps(answer.figures()))["familiarity"]
    assert 0 <= figures["score"] <= 100
    assert {part["name"] for part in figures["parts"]} == {"detail_lost_db", "slice_step"}
    assert answer.usual_shares is not None
    assert set(answer.measured) > {"token_rarity_nats", "slice_step", "fineness"}
    tiny = loaded.reconstruct(scan((3, 9, 11), (2.0, 1.0, 1.0)))
    assert tiny.familiarity is None
    assert tiny.sentence.startswith("The image is too small")


def test_images_that_hold_nothing_are_refused_in_one_line(tokenizer):
    with pytest.raises(VolumeError, match=r"same value \(7\)"):
        tokenizer.reconstruct(Volume(np.full((4, 20, 20), 7, dtype=np.int16)))
    array = np.zeros((4, 20, 20), dtype=np.float32)
    array[1, 2, 3] = np.nan
    with pytest.raises(VolumeError, match="NaN or infinite"):
        tokenizer.reconstruct(Volume(array))


def test_a_mask_is_seen_in_black_and_white(tokenizer):
    tokenizer.network = Copying(in_channels=3, widths=(4, 8, 8), num_tokens=16, groups=2)
    mask = np.zeros((8, 40, 40), dtype=np.uint8)
    mask[2:6, 10:30, 10:30] = 1  # all values above the smallest are alike
    answer = tokenizer.reconstruct(Volume(mask))
    np.testing.assert_allclose(answer.image, mask, atol=1e-3)
