"""A lab's scans are shown as a session looks at them, its structures as targets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from labelled_scans import ball_and_box
from pumit.inference.interactive.field_planner import FieldPlanner
from pumit.preprocessing.fields import field_shape
from pumit.training.promptable.fields import FieldSource
from pumit.training.promptable.finetuning_task import OwnScans
from pumit.training.promptable.real_scan import RealScan, scan_of
from pumit.training.synthesis.scene import Scene

SIZE = 16
SHAPE = (14, 40, 40)


def scan(spacing: tuple[float, float, float], values: dict[int, tuple[int, ...]]) -> RealScan:
    image, labels = ball_and_box(1, SHAPE)
    return scan_of(image, spacing, labels, values)


@pytest.fixture
def thick() -> OwnScans:
    return OwnScans([scan((5.0, 1.0, 1.0), {1: (1,), 2: (2,)})], SIZE)


def scenes(own: OwnScans, da0: int, count: int = 16) -> list[Scene]:
    generator = torch.Generator().manual_seed(0)
    drawn = [own.draw(da0, SIZE, generator) for _ in range(count)]
    return [scene for scene in drawn if scene is not None and scene.is_labelled]


def test_degrees_are_those_of_inference(thick: OwnScans) -> None:
    planner = FieldPlanner(SHAPE, (5.0, 1.0, 1.0), 24)
    expected = {f.da0 for f in planner.around_click((7, 20, 20))}
    assert set(thick.degrees) == expected
    assert sum(thick.degrees.values()) == pytest.approx(1.0)


def test_scenes_have_the_degree_and_the_spacing_of_their_scan(thick: OwnScans) -> None:
    for da0 in thick.degrees:
        found = scenes(thick, da0)
        assert len(found) > 3
        for scene in found:
            assert scene.image.shape == field_shape(da0, SIZE)
            assert scene.inside is not None
            assert scene.is_upright
            assert 2**da0 <= scene.slice_ratio < 2 ** (da0 + 1)
            assert all(t.dtype == torch.bool and t.any() for t in scene.targets)
            # Targets lie in the scan.
            assert not any((t & (scene.inside < 0.5)).any() for t in scene.targets)


def test_no_scene_of_a_degree_that_inference_never_uses(thick: OwnScans) -> None:
    assert thick.draw(5, SIZE, torch.Generator().manual_seed(0)) is None


def test_a_target_is_the_bright_structure_that_was_labelled(thick: OwnScans) -> None:
    for scene in scenes(thick, 2):
        # The ball is 200, the box 100, all else noise of 5 around 0: whatever gamma and noise do.
        target = scene.targets[0]
        outside = ~torch.stack(scene.targets).any(0) & (scene.inside > 0.5)  # type: ignore[operator]
        assert scene.image[target].mean() > scene.image[outside].mean() + 0.1


def test_a_region_is_one_target() -> None:
    own = OwnScans([scan((5.0, 1.0, 1.0), {1: (1, 2), 2: (2,)})], SIZE)
    labels = torch.tensor([0, 1, 2])
    assert own.scans[0].mask(labels, 1).tolist() == [False, True, True]
    assert own.scans[0].mask(labels, 2).tolist() == [False, False, True]
    assert set(own.scans[0].places) == {1, 2}


def test_planar_scans_give_planar_fields() -> None:
    labels = np.zeros((1, 40, 40), np.uint8)
    labels[0, 10:25, 12:30] = 1
    image = 100.0 * labels + np.random.default_rng(0).normal(0, 5, labels.shape)
    own = OwnScans([scan_of(image, (1000.0, 1.0, 1.0), labels, {1: (1,)})], SIZE)
    assert set(own.degrees) == {5}
    found = scenes(own, 5)
    assert found
    assert all(scene.image.shape == (1, SIZE, SIZE) for scene in found)


def test_batches_say_which_fields_are_real_and_where_their_scan_ends(thick: OwnScans) -> None:
    da0 = next(iter(thick.degrees))
    source = FieldSource(
        SIZE,
        scans=thick,
        real_share={da0: 0.5},
        batch_size=4,
        targets_per_field=2,
        device=torch.device("cpu"),
    )
    seen = set()
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        batch = source.draw(da0, generator, torch.Generator().manual_seed(seed))
        seen |= set(batch.is_real.tolist())
        assert len(batch.is_real) == len(batch.target)
        inside = batch.image[:, 2].repeat_interleave(2, 0) > 0
        assert not (batch.target & ~inside).any()
    assert seen == {True, False}
    other = source.draw(4, torch.Generator().manual_seed(0), torch.Generator().manual_seed(0))
    assert not other.is_real.any()


def test_some_scenes_ask_for_what_nobody_labelled(thick: OwnScans) -> None:
    generator = torch.Generator().manual_seed(0)
    drawn = [thick.draw(2, SIZE, generator) for _ in range(40)]
    asides = [scene for scene in drawn if scene is not None and not scene.is_labelled]
    assert 0 < len(asides) < 30
    labelled = [scene.targets[0] for scene in scenes(thick, 2)]
    # Structures are bright; what lies outside them is noise.
    bright = np.mean([t.float().mean() for t in labelled])
    assert bright > 0
    for scene in asides:
        assert scene.targets
