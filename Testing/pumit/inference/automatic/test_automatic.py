"""Labels from an automatic network lie where a slow, direct computation puts them."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from known_networks import (
    OBLIQUE,
    PLAN,
    REGIONS,
    on_network_grid,
    resampled,
    save_model,
    smooth_scan,
)
from monai.inferers import SlidingWindowInferer
from pumit.errors import Cancelled, CheckpointError, PromptError, VolumeError
from pumit.export.classes import segments_of
from pumit.inference.automatic import segmentation as automatic
from pumit.inference.automatic import sliding_window
from pumit.inference.automatic.components import keep_largest, largest_component
from pumit.inference.automatic.segmentation import AutomaticSegmenter, load_automatic
from pumit.inference.automatic.sliding_window import SlidingWindow, class_scores
from pumit.segmentation import ClassLabel, LabelMap, region_type
from pumit.system.watch import Watch
from pumit.volume import Volume
from scipy.spatial.transform import Rotation
from torch import Tensor, nn

pytestmark = pytest.mark.usefixtures("known_networks")

# The segmentation network of the paper, very small.
SIZES: dict[str, Any] = {
    "dim": 24,
    "depth": 4,
    "num_heads": 2,
    "hidden": 32,
    "position_table": (2, 2, 2),
    "taps": (1, 2, 3, 4),
    "detail_widths": (4, 8),
    "pyramid_widths": (8, 8, 8, 8),
    "num_classes": 3,
}


def slow_labels(volume: Volume) -> npt.NDArray[Any]:
    """Resample, scale, threshold, resample back: all at once; the volume's axes need no turning."""
    x = on_network_grid(volume)
    logits = 20 * np.stack([0 * x, x - 0.3, 2 * x - 1.0])
    e = np.exp(logits - logits.max(0))
    back = np.stack([resampled(p, volume.shape) for p in e / e.sum(0)])
    return back.argmax(0)


def scores_of(
    network: torch.nn.Conv3d,
    image: torch.Tensor,
    window: SlidingWindow,
    step: Callable[[float], None] = lambda share: None,
    device: str = "cpu",
) -> torch.Tensor:
    """Logits (K, D, H, W) of a network on the CPU, all chunks together."""
    parts = class_scores(
        network,
        image,
        classes=network.out_channels,
        window=window,
        device=torch.device(device),
        cast=torch.no_grad,
        step=step,
    )
    return torch.cat(list(parts), dim=1)


@pytest.mark.parametrize(
    ("shape", "spacing"),
    [
        ((13, 40, 36), (4.0, 0.8, 0.9)),  # finer along the depth, coarser in the plane
        ((30, 25, 20), (1.5, 1.2, 1.2)),
        ((1, 9, 8), (1e8, 1.0, 1.0)),  # an image, smaller than a patch
    ],
)
def test_labels_equal_those_of_a_direct_computation(tmp_path, shape, spacing):
    volume = smooth_scan(shape, spacing)
    model = load_automatic(save_model(tmp_path / "m.safetensors"), "cpu")
    model.precision = torch.float32
    answer = model.segment(volume, overlap=0.5)
    assert answer.labels.dtype == np.uint8
    assert [c.name for c in answer.classes] == ["soft", "hard"]
    expected = slow_labels(volume)
    assert set(np.unique(expected)) == {0, 1, 2}
    assert np.mean(answer.labels != expected) < 1e-3  # ties in single precision


def test_a_model_that_is_less_certain_than_usual_says_so(tmp_path):
    volume = smooth_scan((13, 40, 36), (4.0, 0.8, 0.9))
    path = save_model(tmp_path / "bright.safetensors")
    model = load_automatic(path, "cpu")
    found = model.segment(volume)
    assert found.remark == ""  # nothing is known about this model
    assert None not in found.expected_dice
    expected = [float(dice or 0) for dice in found.expected_dice]
    usual = save_model(tmp_path / "usual.safetensors", expected_dice=expected)
    assert load_automatic(usual, "cpu").segment(volume).remark == ""
    more = save_model(tmp_path / "more.safetensors", expected_dice=[d + 0.1 for d in expected])
    model = load_automatic(more, "cpu")
    assert "more is less certain" in model.segment(volume).remark
    corners = volume.index_to_world(np.array(list(np.ndindex(2, 2, 2))) * 9.0)
    assert model.segment(volume, roi_corners_lps=corners.tolist()).remark == ""


def test_a_scan_is_seen_alike_however_it_is_stored(tmp_path):
    plan = {**PLAN, "spacing_mm": [1.5, 1.0, 1.0]}
    rising = {
        "network": "rising",
        "sizes": {"num_classes": 4},
        "classes": [{"name": n} for n in ("up", "back", "left")],
    }
    model = load_automatic(save_model(tmp_path / "m.safetensors", plan=plan, **rising), "cpu")
    model.precision = torch.float32
    volume = smooth_scan((12, 20, 22), (1.5, 1.0, 1.0))
    expected = model.segment(volume, overlap=0.5).labels
    assert set(np.unique(expected)) == {0, 1, 2, 3}
    for order, flips in (((2, 1, 0), (1, 1, 0)), ((1, 2, 0), (0, 1, 1))):
        step = tuple(slice(None, None, -1 if f else 1) for f in flips)
        array = volume.array.transpose(order)[step]
        first = np.array([n - 1 if f else 0 for n, f in zip(array.shape, flips, strict=True)])
        at = np.empty(3)
        at[list(order)] = first
        along = volume.direction.T[::-1][list(order)] * np.where(flips, -1, 1)[:, None]
        spacing = tuple(volume.spacing_mm[a] for a in order)
        stored = Volume(array, spacing, tuple(volume.index_to_world(at)), along[::-1].T)
        labels = model.segment(stored, overlap=0.5).labels
        np.testing.assert_array_equal(labels, expected.transpose(order)[step])
        # With "stored" axes the same network mistakes one side for the other.
    plan = {**plan, "orientation": "stored"}
    path = save_model(tmp_path / "s.safetensors", plan=plan, **rising)
    mirrored = Volume(
        volume.array[..., ::-1],
        volume.spacing_mm,
        volume.origin_lps,
        volume.direction * np.array([-1, 1, 1]),
    )
    assert (load_automatic(path, "cpu").segment(mirrored).labels[..., ::-1] != expected).any()


def test_a_rotated_region_masks_the_answer_and_changes_nothing_inside(tmp_path):
    volume = smooth_scan((20, 40, 44), (2.0, 1.0, 1.0))
    model = load_automatic(save_model(tmp_path / "m.safetensors"), "cpu")
    model.precision = torch.float32
    whole = model.segment(volume, overlap=0.5).labels
    turn = Rotation.from_euler("zyx", [40, 10, -20], degrees=True).as_matrix()
    signs = np.stack(np.meshgrid([-1, 1], [-1, 1], [-1, 1]), -1).reshape(-1, 3)
    half = np.array([9.0, 7.0, 12.0])
    centre = volume.index_to_world((9.0, 20.0, 23.0))
    corners = (signs * half) @ turn.T + centre
    rng = np.random.default_rng(0)
    labels = model.segment(volume, roi_corners_lps=rng.permutation(corners), overlap=0.5).labels
    world = volume.index_to_world(np.stack(np.indices(volume.shape), -1))
    inside = (np.abs((world - centre) @ turn) <= half).all(-1)
    assert 500 < inside.sum() < inside.size / 2
    assert not labels[~inside].any()
    # The grid of the crop may be shifted a little against that of the whole.
    assert np.mean(labels[inside] != whole[inside]) < 0.03


def test_a_region_is_rated_by_what_lies_in_it(tmp_path):
    array = np.full((8, 24, 24), -100, np.float32)
    array[:, :, :8], array[:, 4:12, 16:20] = 300, 100  # "hard" next to the region, "soft" in it
    volume = Volume(array, (2.0, 1.0, 1.0))
    corners = volume.index_to_world(np.array(list(np.ndindex(2, 2, 2))) * [7, 23, 11] + [0, 0, 12])
    model = load_automatic(save_model(tmp_path / "m.safetensors"), "cpu")
    found = model.segment(volume, roi_corners_lps=corners.tolist(), tells_doubt=True)
    assert np.unique(found.labels).tolist() == [0, 1]
    assert found.expected_dice[1] is None
    assert found.doubt[:, :, 12:].any()
    assert not found.doubt[:, :, :12].any()


def test_a_region_elsewhere_or_without_size_is_refused(tmp_path):
    volume = smooth_scan((6, 20, 20), (2.0, 1.0, 1.0))
    model = load_automatic(save_model(tmp_path / "m.safetensors"), "cpu")
    box = np.stack(np.meshgrid([0, 5], [0, 5], [0, 5]), -1).reshape(-1, 3)
    with pytest.raises(PromptError, match="outside"):
        model.segment(volume, roi_corners_lps=box + 5000.0)
    with pytest.raises(PromptError, match="flat"):
        model.segment(volume, roi_corners_lps=box * np.array([1, 1, 0]))
    with pytest.raises(PromptError, match="8 finite corners"):
        model.segment(volume, roi_corners_lps=box[:4])
    tiny = volume.index_to_world((2.5, 8.5, 8.5)) + box * 0.01
    with pytest.raises(PromptError, match="no voxel"):
        model.segment(volume, roi_corners_lps=tiny)


def test_chunks_give_what_all_at_once_gives():
    torch.manual_seed(1)
    network = torch.nn.Conv3d(1, 3, 3, padding=1).eval()  # sees its window's rim: windows matter
    image = torch.randn(1, 61, 20, 24)

    whole = scores_of(network, image, SlidingWindow((8, 16, 16), 0.5))
    assert whole.shape == (3, 61, 20, 24)
    for slices in (20, 27):
        max_bytes = slices * 4 * 5 * 20 * 24
        window = SlidingWindow((8, 16, 16), 0.5, False, max_bytes)
        assert len(window.depth_chunks((61, 20, 24), 3)) > 1
        torch.testing.assert_close(scores_of(network, image, window), whole)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("has_room", [True, False])
def test_a_gpu_gives_the_same_scores_wherever_they_are_summed(monkeypatch, has_room):
    monkeypatch.setattr(sliding_window, "_has_room", lambda count, device: has_room)
    torch.manual_seed(1)
    network = torch.nn.Conv3d(1, 3, 3, padding=1).eval()
    image = torch.randn(1, 7, 20, 24)  # thinner than a window
    window = SlidingWindow((8, 16, 16), 0.5)
    expected = scores_of(network, image, window)
    found = scores_of(network.cuda(), image, window, device="cuda")
    assert found.device == image.device
    torch.testing.assert_close(found, expected, rtol=2e-3, atol=2e-3)  # TF32


@pytest.mark.parametrize("shape", [(5, 19, 16), (21, 33, 40), (1, 11, 90)])
@pytest.mark.parametrize("overlap", [0.0, 0.75])
def test_windows_give_the_numbers_of_monai(shape, overlap):
    torch.manual_seed(1)
    network = torch.nn.Conv3d(2, 3, 3, padding=1).eval()
    image, patch = torch.randn(2, *shape), (8, 16, 16)
    inferer = SlidingWindowInferer(
        patch, overlap=overlap, mode="gaussian", padding_mode="constant", cval=float(image.min())
    )
    found = scores_of(network, image, SlidingWindow(patch, overlap))
    torch.testing.assert_close(found, inferer(image[None], network)[0], rtol=1e-5, atol=1e-6)


def test_automatic_models_do_not_load_monai():
    """To import it takes as long as PyTorch and a scan together."""
    code = "import sys, pumit.inference.automatic.segmentation; sys.exit('monai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_flips_are_averaged():
    torch.manual_seed(1)
    network = torch.nn.Conv3d(1, 2, 3, padding=1).eval()
    image = torch.randn(1, 8, 16, 16)
    window = SlidingWindow((8, 16, 16), 0.75, averages_flips=True)
    shares: list[float] = []
    got = scores_of(network, image, window, shares.append)
    axes = ([], [2], [3], [4], [2, 3], [2, 4], [3, 4], [2, 3, 4])
    turned = [network(image[None].flip(each)).flip(each) for each in axes]
    torch.testing.assert_close(got, torch.stack(turned).mean(0)[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(shares, [*(i / 8 for i in range(8)), 1.0])


def test_progress_ends_at_one_and_cancelling_stops_between_windows(tmp_path):
    volume = smooth_scan((30, 40, 40), (2.0, 1.0, 1.0))
    model = load_automatic(save_model(tmp_path / "m.safetensors"), "cpu")
    seen: list[float] = []
    model.segment(volume, watch=Watch(progress=seen.append))
    assert seen == sorted(seen)
    assert seen[0] == 0
    assert seen[-1] == 1
    assert len(seen) > 50
    later: list[float] = []
    with pytest.raises(Cancelled):
        model.segment(volume, watch=Watch(lambda: len(later) > 10, later.append))
    assert len(later) == 11


def test_two_channels_are_taken_where_the_scan_has_them(tmp_path):
    plan = {**PLAN, "channels": 2}
    path = save_model(tmp_path / "m.safetensors", plan=plan, sizes={"in_channels": 2})
    model = load_automatic(path, "cpu")
    first, second = (smooth_scan((6, 20, 20), (2.0, 1.0, 1.0)).array + c for c in (0, 900))
    two = Volume(np.stack([first, second]), (2.0, 1.0, 1.0), direction=OBLIQUE)
    one = Volume(first, (2.0, 1.0, 1.0), direction=OBLIQUE)
    np.testing.assert_array_equal(model.segment(two).labels, model.segment(one).labels)
    # A network of one channel sees the chosen one.
    single = load_automatic(save_model(tmp_path / "one.safetensors"), "cpu")
    np.testing.assert_array_equal(single.segment(two, channel=0).labels, model.segment(one).labels)
    assert (single.segment(two, channel=1).labels == 2).all()


def test_the_segmentation_network_of_the_paper_answers(tmp_path):
    plan = {**PLAN, "patch_size": [16, 64, 64]}
    path = save_model(tmp_path / "m.safetensors", "pumit_segmentation_btcv", sizes=SIZES, plan=plan)
    volume = smooth_scan((10, 40, 44), (2.0, 1.0, 1.0))
    assert load_automatic(path, "cpu").segment(volume).labels.shape == volume.shape
    path = save_model(
        tmp_path / "small.safetensors", "pumit_segmentation_btcv", sizes=SIZES,
        plan={**PLAN, "patch_size": [8, 32, 32]},
    )  # fmt: skip
    with pytest.raises(CheckpointError, match="patch size"):
        load_automatic(path, "cpu").segment(volume)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"plan": None}, "lacks a complete plan"),
        ({"plan": {**PLAN, "spacing_mm": [0, 1, 1]}}, "cannot be used"),
        ({"plan": {**PLAN, "patch_size": [8, 16]}}, "cannot be used"),
        ({"plan": {**PLAN, "orientation": "upside down"}}, "cannot be used"),
        ({"plan": {**PLAN, "intensity": {}}}, "intensities"),
        ({"plan": {**PLAN, "intensity": {"method": "magic"}}}, "unknown way"),
        ({"classes": []}, "1 classes|0 classes"),
        ({"classes": [{"name": ""}]}, "no usable classes"),
        ({"classes": "liver"}, "no usable classes"),
        ({"kind": "tokenizer"}, "segments nothing"),
        ({"kind": "oracle"}, "newer version"),
    ],
)
def test_a_recipe_that_cannot_be_used_is_refused(tmp_path, changes, words):
    path = save_model(tmp_path / "m.safetensors", **changes)
    with pytest.raises(CheckpointError, match=words):
        load_automatic(path, "cpu").segment(smooth_scan((6, 20, 20), (2.0, 1.0, 1.0)))


def test_a_scan_too_large_for_the_spacing_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(automatic, "MAX_GRID_VOXELS", 1000)
    model = load_automatic(save_model(tmp_path / "m.safetensors"), "cpu")
    with pytest.raises(VolumeError, match="choose a region"):
        model.segment(smooth_scan((6, 20, 20), (2.0, 1.0, 1.0)))


# Regions, predicted whole however much they overlap; a label map keeps the innermost


def made_model(folder: Path, **changes: Any) -> AutomaticSegmenter:
    path = save_model(folder / "m.safetensors", "nested", **{**REGIONS, **changes})
    model = load_automatic(path, "cpu")
    model.precision = torch.float32
    return model


def slow_masks(volume: Volume) -> list[npt.NDArray[np.bool_]]:
    """Resample, scale, sigmoid, resample back, threshold."""
    x = on_network_grid(volume)
    return [
        resampled(1 / (1 + np.exp(-20 * (x - edge))), volume.shape) > 0.5 for edge in (0.3, 0.5)
    ]


def test_regions_equal_those_of_a_direct_computation(tmp_path):
    volume = smooth_scan((13, 40, 36), (4.0, 0.8, 0.9))
    model = made_model(tmp_path)
    assert model.has_regions
    answer = model.segment(volume, overlap=0.5)
    whole, core = slow_masks(volume)
    assert 100 < core.sum() < whole.sum() - 100
    assert np.mean(answer.mask(1) != whole) < 1e-3  # ties in single precision
    assert np.mean(answer.mask(2) != core) < 1e-3
    assert (answer.mask(1) & answer.mask(2)).sum() == answer.mask(2).sum()
    # The label map: the later region stands.
    np.testing.assert_array_equal(answer.labels == 2, answer.mask(2))
    np.testing.assert_array_equal(answer.labels == 1, answer.mask(1) & ~answer.mask(2))
    segments = segments_of(answer)
    assert [s.name for s in segments] == ["whole", "core"]
    assert segments[0].mask.sum() == answer.mask(1).sum()


class Rim(nn.Module):
    """Sure of one answer at the first slices of its window, unsure of the other behind them."""

    def forward(self, x: Tensor) -> Tensor:
        out = torch.full_like(x, -1.0)
        out[:, :, :2] = 100.0
        return out


def test_windows_are_averaged_as_probabilities(tmp_path):
    """As logits, one window that is sure by a hundred would outvote all the others."""
    model = made_model(tmp_path, classes=[{"name": "x"}], sizes={"num_classes": 1})
    model.network = Rim()
    volume = Volume(np.zeros((14, 8, 8), dtype=np.float32), (2.0, 1.0, 1.0))
    mask = model.segment(volume, overlap=0.75).mask(1)
    assert mask[0].all()
    assert not mask[-6:].any()


def test_many_regions_get_a_type_with_enough_bits():
    assert [np.dtype(region_type(n)).itemsize for n in (1, 8, 9, 16, 32, 33, 64)] == [
        *(1, 1, 2, 2, 4, 8, 8)
    ]
    with pytest.raises(VolumeError, match="At most 64"):
        region_type(65)
    labels = tuple(ClassLabel(f"c{i}") for i in range(64))
    bits = np.zeros((1, 1, 3), dtype=np.uint64)
    bits[0, 0, 1] = (1 << 63) | 1
    answer = LabelMap.of_regions(bits, labels)
    assert answer.labels.tolist() == [[[0, 64, 0]]]
    assert answer.mask(1).tolist() == answer.mask(64).tolist() == [[[False, True, False]]]
    with pytest.raises(VolumeError, match="8 bits"):
        LabelMap(np.zeros((1, 1, 3), np.uint8), labels, np.zeros((1, 1, 3), np.uint8))


def test_missing_channels_are_named(tmp_path):
    training = {"channels": ["T1", "FLAIR"], "repeat_single_channel": False}
    changes = {"plan": {**PLAN, "channels": 2}, "sizes": {"in_channels": 2, "num_classes": 2}}
    model = made_model(tmp_path, **changes, training=training)
    volume = smooth_scan((6, 20, 20), (2.0, 1.0, 1.0))
    with pytest.raises(VolumeError, match=r"2 channels \(T1, FLAIR\) .* the scan has 1"):
        model.segment(volume)
    three = Volume(np.stack([volume.array] * 3), volume.spacing_mm)
    with pytest.raises(VolumeError, match="the scan has 3"):
        model.segment(three)
    model.segment(Volume(np.stack([volume.array] * 2), volume.spacing_mm))
    repeats = made_model(tmp_path, **changes, training={**training, "repeat_single_channel": True})
    repeats.segment(volume)


# Classes of one piece


def test_the_largest_piece_stays_and_other_classes_are_left_alone():
    labels = np.zeros((6, 20, 20), dtype=np.uint8)
    labels[1:4, 2:8, 2:8] = 1
    labels[4, 8:10, 8:10] = 1  # touches an edge only
    labels[1:4, 12:15, 12:15] = 1
    labels[5, 0, 0] = labels[0, 19, 19] = 2
    expected = np.where(labels == 1, 0, labels)
    expected[1:4, 2:8, 2:8] = 1
    keep_largest(labels, [1, 3])
    np.testing.assert_array_equal(labels, expected)


def test_what_lies_apart_from_all_classes_together_goes_first():
    labels = np.zeros((3, 20, 20), dtype=np.uint8)
    labels[:, 2:8, 2:8] = 1
    labels[:, 8:10, 2:8] = 2  # next to it, and smaller than what is taken for it elsewhere
    labels[:, 14:18, 14:18] = 2
    expected = labels.copy()
    expected[:, 14:18, 14:18] = 0
    each = labels.copy()
    keep_largest(each, [1, 2])
    assert not (each == expected).all()
    keep_largest(labels, [0, 2])
    np.testing.assert_array_equal(labels, expected)


def test_a_model_says_which_classes_are_one_piece(tmp_path):
    array = np.zeros((8, 32, 32), dtype=np.float32)
    array[2:6, 4:16, 4:16] = 300
    array[2:6, 24:28, 24:28] = 300
    volume = Volume(array, (1.0, 1.0, 1.0))
    plain = load_automatic(save_model(tmp_path / "plain.safetensors"), "cpu").segment(volume)
    one = load_automatic(save_model(tmp_path / "one.safetensors", single_piece=[2]), "cpu")
    expected = plain.labels == 2
    assert expected.any()
    np.testing.assert_array_equal(one.segment(volume).labels == 2, largest_component(expected))


@pytest.mark.parametrize("values", ["all", [-1], [9]])
def test_what_is_no_class_is_refused(tmp_path, values):
    path = save_model(tmp_path / "bad.safetensors", single_piece=values)
    with pytest.raises(CheckpointError, match="largest component"):
        load_automatic(path, "cpu")
