"""BA-SAM on transformers' SamModel: same output at the training size, and other sizes."""

import copy
import importlib

import pytest
import torch
from pumit.networks import ba_sam
from pumit.networks.ba_sam import length_scale
from pumit.networks.build import build_network
from torch import nn

transformers = pytest.importorskip("transformers", reason="the optional extra `sam` is absent")

SIZE = 64
BOXES = torch.tensor([[[10.0, 12, 40, 50]], [[5.0, 5, 30, 20]]])


@pytest.fixture(scope="module")
def network() -> nn.Module:
    """A SAM of two windowed and two global blocks on 16 x 16 tokens, random weights."""
    global module  # loaded where a test of this file runs, and not where it is collected
    module = importlib.import_module("pumit.networks.ba_sam_transformers")
    torch.manual_seed(0)
    network = build_network(
        "sam",
        image_size=SIZE,
        patch=4,
        dim=32,
        depth=4,
        num_heads=4,
        hidden=64,
        global_blocks=(1, 3),
        window=5,
        width=16,
        decoder_hidden=32,
        decoder_heads=2,
    ).eval()
    with torch.no_grad():
        # No table is left at its zero start, and tokens differ enough for attention to matter.
        for name, parameter in network.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=1.0 if "pos" in name else 0.3)
    return network


@pytest.fixture
def original(network: nn.Module) -> nn.Module:
    """The transformers package's SAM with the same weights, but for the slopes."""
    model = transformers.SamModel(network.model.config).eval()
    model.load_state_dict(network.model.state_dict(), strict=False)
    return model


def picture(size: int = SIZE) -> torch.Tensor:
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))


def with_slopes(network: nn.Module, slopes: list[float]) -> nn.Module:
    network = copy.deepcopy(network)
    for block in (1, 3):
        with torch.no_grad():
            network.model.vision_encoder.layers[block].attn.slopes["beta"][:] = torch.tensor(slopes)
    return network


def test_weights_have_sams_names_and_one_slope_per_global_head(network, original):
    state = network.model.state_dict()
    slopes = {f"vision_encoder.layers.{i}.attn.slopes.beta" for i in (1, 3)}
    assert state.keys() - original.state_dict().keys() == slopes
    assert all(torch.equal(state[name], torch.full((4,), 0.1)) for name in slopes)
    assert original.state_dict().keys() <= state.keys()


@torch.no_grad()
def test_slope_zero_at_the_training_size_gives_the_original_output(network, original):
    ours = with_slopes(network, [0.0] * 4)
    expected = original(pixel_values=picture(), input_boxes=BOXES)

    embedding = ours.embed(picture())
    masks, scores = ours(embedding, input_boxes=BOXES)

    features = original.vision_encoder(picture()).last_hidden_state
    torch.testing.assert_close(embedding, features, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(masks, expected.pred_masks, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(scores, expected.iou_scores, rtol=1e-4, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("grid", [(16, 16), (24, 18)])
def test_a_global_block_follows_the_formula_at_any_size(network, grid):
    slopes = [0.0, 0.1, 0.5, 1.0]
    attention = with_slopes(network, slopes).model.vision_encoder.layers[1].attn
    hidden = torch.randn(1, *grid, 32)

    got = attention(hidden)[0]
    length = grid[0] * grid[1]
    q, k, v = attention.qkv(hidden).reshape(length, 3, 4, 8).permute(1, 2, 0, 3)
    axes = torch.meshgrid(*[torch.arange(n) for n in grid], indexing="ij")
    positions = torch.stack(axes, -1).reshape(-1, 2)
    scale = length_scale(length, 256) / 8**0.5
    row, column = positions.T
    table_h = module.relative_position_table(attention.rel_pos_h, grid[0])
    table_w = module.relative_position_table(attention.rel_pos_w, grid[1])
    relative = torch.einsum("hqc,qkc->hqk", q, table_h[row[:, None], row])
    relative += torch.einsum("hqc,qkc->hqk", q, table_w[column[:, None], column])
    distance = torch.cdist(positions.float(), positions.float())
    bias = -torch.tensor(slopes).reshape(-1, 1, 1) * distance
    weights = (scale * (q @ k.transpose(1, 2) + bias) + relative).softmax(-1)
    expected = attention.proj((weights @ v).transpose(0, 1).reshape(1, *grid, 32))

    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


def test_relative_positions_agree_with_the_originals_at_every_size(original):
    attention = original.vision_encoder.layers[1].attn
    for size in (16, 32, 11):
        expected = attention.get_rel_pos(size, size, attention.rel_pos_h)
        got = module.relative_position_table(attention.rel_pos_h, size)
        torch.testing.assert_close(got, expected)


@torch.no_grad()
def test_images_of_any_size_give_masks_of_their_size(network):
    first = network(network.embed(picture()), input_boxes=BOXES)
    large, _ = network(network.embed(picture(2 * SIZE)), input_boxes=BOXES)
    again = network(network.embed(picture()), input_boxes=BOXES)

    assert large.shape[-2:] == (2 * SIZE, 2 * SIZE)
    assert large.isfinite().all()
    torch.testing.assert_close(again, first, rtol=0, atol=0)
    with pytest.raises(ValueError, match="multiples of 4"):
        network.embed(torch.zeros(1, 3, 63, 64))


def test_training_reaches_every_parameter_and_never_holds_the_score_matrix(network, monkeypatch):
    monkeypatch.setattr(ba_sam, "_CHUNK_QUERIES", 64)
    monkeypatch.setattr(ba_sam, "_CHUNK_ENTRIES", 1)
    encoder = copy.deepcopy(network).model.vision_encoder

    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        encoder.layers[1].attn(torch.randn(1, 32, 32, 32))
    encoder(picture()).last_hidden_state.square().sum().backward()

    largest = max(event.cpu_memory_usage for event in profile.events())
    # 64 queries of one head, and SAM's own scores per axis, against 4 heads of 1024 x 1024.
    assert 0 < largest <= 4 * 4 * 1024 * (32 + 32) < 4 * 4 * 1024 * 1024 / 8
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
