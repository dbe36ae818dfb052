"""BA-SAM on transformers' SamModel: same keys, same output at the training size, other sizes."""

import copy
import importlib

import pytest
import torch
from pumit.networks import ba_attention as ba_attention_module
from pumit.networks.ba_sam import bias_mode_mask, length_scale
from torch import nn

transformers = pytest.importorskip("transformers", reason="the optional extra `sam` is absent")


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    """Load what takes seconds, where a test of this file runs and not where it is collected."""
    global module
    module = importlib.import_module("pumit.networks.ba_sam_transformers")


SIZE = 64


def tiny_sam(**vision: object) -> nn.Module:
    """A SAM of two windowed and two global blocks on 16 x 16 tokens, random weights."""
    torch.manual_seed(0)
    settings = {
        "hidden_size": 32,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "image_size": SIZE,
        "patch_size": 4,
        "output_channels": 16,
        "global_attn_indexes": [1, 3],
        "window_size": 5,
        "mlp_dim": 64,
        "num_pos_feats": 8,
        "initializer_range": 0.1,
    } | vision
    config = transformers.SamConfig(
        vision_config=settings,
        prompt_encoder_config={
            "hidden_size": 16,
            "image_size": SIZE,
            "patch_size": 4,
            "image_embedding_size": SIZE // 4,
            "mask_input_channels": 4,
        },
        mask_decoder_config={
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "mlp_dim": 32,
            "iou_head_hidden_dim": 16,
        },
    )
    model = transformers.SamModel(config).eval()
    with torch.no_grad():
        # No table is left at its zero start, and tokens differ enough for attention to matter.
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=1.0 if "pos" in name else 0.3)
    return model


@pytest.fixture(scope="module")
def original() -> nn.Module:
    return tiny_sam()


def ba_sam(original: nn.Module, **options: object) -> nn.Module:
    return module.apply_ba_sam(copy.deepcopy(original), **options)


def picture(size: int = SIZE) -> torch.Tensor:
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def embed(model: nn.Module) -> torch.Tensor:
    return model.vision_encoder(picture()).last_hidden_state


def ask(model: nn.Module, size: int = SIZE) -> object:
    image = picture(size)
    boxes = torch.tensor([[[10.0, 12, 40, 50]], [[5.0, 5, 30, 20]]])
    with torch.no_grad():
        return model(pixel_values=image, input_boxes=boxes)


def test_every_key_of_a_checkpoint_stays(original: nn.Module) -> None:
    model = ba_sam(original)

    before, after = original.state_dict(), model.state_dict()

    assert list(before) == list(after)
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert model.load_state_dict(before, strict=True)
    assert not [n for n, p in model.named_parameters() if "slopes" in n]


def test_trainable_slopes_join_the_state_but_a_plain_checkpoint_still_loads(
    original: nn.Module,
) -> None:
    model = ba_sam(original, beta=0.3, trainable=True)

    model.load_state_dict(original.state_dict(), strict=True)

    extra = set(model.state_dict()) - set(original.state_dict())
    assert extra == {f"vision_encoder.layers.{i}.attn.slopes.beta" for i in (1, 3)}
    assert torch.equal(model.vision_encoder.layers[1].attn.slopes.beta, torch.full((4,), 0.3))
    other = ba_sam(original, beta=0.1, trainable=True)
    other.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(other.vision_encoder.layers[3].attn.slopes.beta, torch.full((4,), 0.3))


@pytest.mark.parametrize("bias_in_windows", [False, True])
def test_slope_zero_at_the_training_size_gives_the_original_output(
    original: nn.Module, bias_in_windows: bool
) -> None:
    expected = ask(original)

    model = ba_sam(original, beta=0.0, bias_in_windows=bias_in_windows)
    got = ask(model)

    torch.testing.assert_close(embed(model), embed(original), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(got.pred_masks, expected.pred_masks, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(got.iou_scores, expected.iou_scores, rtol=1e-4, atol=1e-5)


def test_the_encoder_without_relative_or_absolute_positions_gives_the_original_output() -> None:
    original = tiny_sam(use_rel_pos=False, use_abs_pos=False)

    expected, got = embed(original), embed(ba_sam(original, beta=0.0))

    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("grid", [(16, 16), (32, 32), (24, 18)])
def test_a_global_block_follows_the_formula_at_any_size(
    original: nn.Module, grid: tuple[int, int]
) -> None:
    slopes = [0.0, 0.1, 0.5, 1.0]
    attention = ba_sam(original, beta=slopes).vision_encoder.layers[1].attn
    hidden = torch.randn(1, *grid, 32)

    with torch.no_grad():
        got = attention(hidden)[0]
        length = grid[0] * grid[1]
        q, k, v = attention.qkv(hidden).reshape(length, 3, 4, 8).permute(1, 2, 0, 3)
        axes = torch.meshgrid(*[torch.arange(n) for n in grid], indexing="ij")
        positions = torch.stack(axes, -1).reshape(-1, 2)
        scale = length_scale(length, 256) / 8**0.5
        tables = (
            module.relative_position_table(attention.rel_pos_h, grid[0]),
            module.relative_position_table(attention.rel_pos_w, grid[1]),
        )
        row, column = positions.T
        relative = torch.einsum("hqc,qkc->hqk", q, tables[0][row[:, None], row])
        relative += torch.einsum("hqc,qkc->hqk", q, tables[1][column[:, None], column])
        bias = bias_mode_mask(positions, torch.tensor(slopes))
        weights = (scale * (q @ k.transpose(1, 2) + bias) + relative).softmax(-1)
        expected = attention.proj((weights @ v).transpose(0, 1).reshape(1, *grid, 32))

    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_relative_positions_agree_with_the_originals_at_every_size(original: nn.Module) -> None:
    attention = original.vision_encoder.layers[1].attn
    for size in (16, 32, 11):
        expected = attention.get_rel_pos(size, size, attention.rel_pos_h)
        got = module.relative_position_table(attention.rel_pos_h, size)
        torch.testing.assert_close(got, expected)


def test_twice_the_training_size_gives_finite_masks_of_twice_the_size(
    original: nn.Module,
) -> None:
    model = ba_sam(original)

    with module.image_size(model, 2 * SIZE):
        got = ask(model, 2 * SIZE)

    assert got.pred_masks.shape[-2:] == (2 * SIZE, 2 * SIZE)
    assert got.pred_masks.isfinite().all()
    assert ask(model).pred_masks.shape[-2:] == (SIZE, SIZE)


def test_the_image_size_is_restored_after_an_error(original: nn.Module) -> None:
    model = ba_sam(original)

    with pytest.raises(RuntimeError, match="stop"), module.image_size(model, 128):
        raise RuntimeError("stop")

    assert model.config.prompt_encoder_config.image_size == SIZE
    assert model.prompt_encoder.image_embedding_size == (16, 16)


def test_a_global_block_never_holds_its_score_matrix(
    original: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ba_attention_module, "_CHUNK_QUERIES", 64)
    monkeypatch.setattr(ba_attention_module, "_CHUNK_ENTRIES", 1)
    attention = ba_sam(original).vision_encoder.layers[1].attn
    hidden = torch.randn(1, 32, 32, 32)

    with (
        torch.no_grad(),
        torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
        ) as profile,
    ):
        attention(hidden)

    largest = max(event.cpu_memory_usage for event in profile.events())
    # 64 queries of one head, and SAM's own scores per axis, against 4 heads of 1024 x 1024.
    assert 0 < largest <= 4 * 4 * 1024 * (32 + 32) < 4 * 4 * 1024 * 1024 / 8


def test_training_reaches_every_parameter_of_the_encoder_and_the_slopes(
    original: nn.Module,
) -> None:
    model = ba_sam(original, trainable=True, bias_in_windows=True)

    model.vision_encoder(torch.randn(1, 3, SIZE, SIZE)).last_hidden_state.square().sum().backward()

    for name, parameter in model.vision_encoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("slopes", [[0.1, 0.2], []])
def test_slopes_that_fit_no_head_are_refused(original: nn.Module, slopes: list[float]) -> None:
    with pytest.raises(ValueError, match="4 heads need as many slopes"):
        ba_sam(original, beta=slopes)


def test_misuse_is_refused_with_the_reason(original: nn.Module) -> None:
    model = ba_sam(original)
    with pytest.raises(ValueError, match="already"):
        module.apply_ba_sam(model)
    with pytest.raises(ValueError, match="multiple of 4"), module.image_size(model, 126):
        pass
    with pytest.raises(ValueError, match="Only a model"), module.image_size(original, 128):
        pass
    with pytest.raises(ValueError, match="multiples of 4"):
        model.vision_encoder(torch.zeros(1, 3, 63, 64))
