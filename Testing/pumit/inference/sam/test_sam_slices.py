"""SAM slice by slice: 2D boxes cut from a 3D box, and masks on the volume's own grid."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pumit.errors import Cancelled, PromptError
from pumit.geometry import PLANAR_SLICE_SPACING_MM
from pumit.prompts import BoxPrompt, PointPrompt
from pumit.volume import Volume
from torch import nn

transformers = pytest.importorskip("transformers", reason="the optional extra `sam` is absent")
sam_slices = pytest.importorskip("pumit.inference.sam.slices")
ba_sam_transformers = pytest.importorskip("pumit.networks.ba_sam_transformers")


class BoxModel(nn.Module):
    """Answers each box with the box itself, as SAM's low-resolution logits."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.calls: list[dict[str, Any]] = []

    def forward(self, pixel_values: torch.Tensor, **inputs: Any) -> SimpleNamespace:
        self.calls.append({"pixel_values": pixel_values, **inputs})
        n = pixel_values.shape[-1] // 4
        center = (torch.arange(n) + 0.5) * 4 - 0.5
        left, top, right, bottom = inputs["input_boxes"][0, 0]
        inside = (center >= top) & (center <= bottom)
        across = (center >= left) & (center <= right)
        logits = torch.where(inside[:, None] & across, 1.0, -1.0)
        return SimpleNamespace(pred_masks=logits[None, None, None])


@pytest.fixture
def box_model(monkeypatch: pytest.MonkeyPatch) -> BoxModel:
    from contextlib import nullcontext

    monkeypatch.setattr(sam_slices, "image_size", lambda model, size: nullcontext())
    return BoxModel()


def volume(shape: tuple[int, int, int] = (6, 40, 60), **geometry: Any) -> Volume:
    array = np.random.default_rng(0).normal(size=shape)
    return Volume(array, **({"spacing_mm": (3.0, 0.5, 0.5)} | geometry))


def index_box(v: Volume, lower: tuple[float, ...], upper: tuple[float, ...]) -> BoxPrompt:
    corners = [
        [(lower, upper)[i][0], (lower, upper)[j][1], (lower, upper)[k][2]]
        for i in (0, 1)
        for j in (0, 1)
        for k in (0, 1)
    ]
    return BoxPrompt(tuple(map(tuple, v.index_to_world(corners).tolist())))


def test_a_box_becomes_the_same_box_on_each_slice_it_meets() -> None:
    v = volume(direction=np.diag([-1.0, 1, -1]), origin_lps=(5, 6, 7))

    prompts = sam_slices.slice_prompts(v, index_box(v, (1, 10, 20), (3, 25, 50)))

    assert list(prompts) == [1, 2, 3]
    for prompt in prompts.values():
        assert prompt.box == pytest.approx((20, 10, 50, 25))


def test_an_oblique_box_is_cut_where_it_meets_each_slice() -> None:
    v = volume(spacing_mm=(1.0, 1.0, 1.0))
    # A parallelepiped that moves 10 voxels to the right for each slice.
    corners = [(d, h, w + 10 * d) for d in (1, 3) for h in (5, 9) for w in (4, 8)]
    box = BoxPrompt(tuple(map(tuple, v.index_to_world(corners).tolist())))

    prompts = sam_slices.slice_prompts(v, box)

    assert {d: p.box for d, p in prompts.items()} == {
        d: pytest.approx((4 + 10 * d, 5, 8 + 10 * d, 9)) for d in (1, 2, 3)
    }


def test_a_box_in_the_plane_of_an_image_becomes_its_one_box() -> None:
    v = volume((1, 40, 60), spacing_mm=(PLANAR_SLICE_SPACING_MM, 0.5, 0.5))
    corners = v.index_to_world([(0, 5, 6), (0, 5, 30), (0, 20, 6), (0, 20, 30)])

    prompts = sam_slices.slice_prompts(v, BoxPrompt(tuple(map(tuple, corners.tolist()))))

    assert {d: p.box for d, p in prompts.items()} == {0: pytest.approx((6, 5, 30, 20))}


def test_points_go_to_their_own_slice() -> None:
    v = volume()
    (inside,) = v.index_to_world([(2.2, 12, 30)])
    box = index_box(v, (1, 10, 20), (3, 25, 50))

    prompts = sam_slices.slice_prompts(v, box, [PointPrompt(tuple(inside), is_positive=False)])

    assert prompts[1].points == prompts[3].points == []
    assert prompts[2].points == [(pytest.approx(30), pytest.approx(12), False)]


def test_a_box_or_point_outside_the_scan_is_refused() -> None:
    v = volume()
    with pytest.raises(PromptError, match="does not meet"):
        sam_slices.slice_prompts(v, index_box(v, (9, 1, 1), (12, 5, 5)))
    with pytest.raises(PromptError, match="does not meet"):
        sam_slices.slice_prompts(v, index_box(v, (1, 1, 70), (2, 5, 80)))
    (outside,) = v.index_to_world([(5, 12, 30)])
    box = index_box(v, (1, 10, 20), (3, 25, 50))
    with pytest.raises(PromptError, match="enlarge the box"):
        sam_slices.slice_prompts(v, box, [PointPrompt(tuple(outside))])


@pytest.mark.parametrize("size", [240, 480])
def test_what_sam_marks_lands_where_the_box_is(box_model: BoxModel, size: int) -> None:
    v = volume()
    (click,) = v.index_to_world([(2, 12, 30)])

    mask = sam_slices.segment_volume_by_slices(
        box_model,
        v,
        index_box(v, (1, 9.5, 19.5), (3, 25.5, 50.5)),
        points=[PointPrompt(tuple(click))],
        size=size,
    )

    expected = np.zeros(v.shape, dtype=bool)
    expected[1:4, 10:26, 20:51] = True
    assert mask.shape == v.shape
    assert (mask == expected).mean() > 0.999
    assert [("input_points" in call) for call in box_model.calls] == [False, True, False]
    pixels = box_model.calls[0]["pixel_values"]
    assert pixels.shape == (1, 3, size, size)
    assert (pixels[..., size * 40 // 60 :, :] == 0).all()  # padded after the normalisation


def test_colour_and_non_finite_voxels_are_accepted(box_model: BoxModel) -> None:
    array = np.full((3, 2, 40, 60), np.nan)
    array[:, :, 5:] = 7
    v = Volume(array)

    sam_slices.segment_volume_by_slices(
        box_model, v, index_box(v, (0, 9, 9), (1, 20, 20)), size=120
    )

    assert all(call["pixel_values"].isfinite().all() for call in box_model.calls)


def test_progress_counts_the_slices_and_can_cancel(box_model: BoxModel) -> None:
    v = volume()
    seen: list[tuple[int, int]] = []

    def stop_at_two(done: int, total: int) -> None:
        seen.append((done, total))
        if done == 2:
            raise Cancelled("Cancelled.")

    with pytest.raises(Cancelled):
        sam_slices.segment_volume_by_slices(
            box_model, v, index_box(v, (0, 9, 9), (4, 20, 20)), size=120, on_slice=stop_at_two
        )
    assert seen == [(1, 5), (2, 5)]


def test_a_tiny_sam_segments_a_scan_at_twice_its_training_size() -> None:
    vision = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "mlp_dim": 16}
    vision |= {"image_size": 64, "output_channels": 8, "num_pos_feats": 4, "window_size": 3}
    config = transformers.SamConfig(
        vision_config=vision | {"global_attn_indexes": [1]},
        prompt_encoder_config={"hidden_size": 8, "image_size": 64, "image_embedding_size": 4},
        mask_decoder_config={"hidden_size": 8, "num_attention_heads": 1, "mlp_dim": 8},
    )
    model = ba_sam_transformers.apply_ba_sam(transformers.SamModel(config).eval())
    v = volume()
    (click,) = v.index_to_world([(2, 12, 30)])

    mask = sam_slices.segment_volume_by_slices(
        model,
        v,
        index_box(v, (1, 10, 20), (3, 25, 50)),
        points=[PointPrompt(tuple(click))],
        size=128,
    )

    assert mask.shape == v.shape
    assert not mask[[0, 4, 5]].any()
    assert model.prompt_encoder.input_image_size == 64
