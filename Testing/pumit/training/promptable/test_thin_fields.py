import math

import pytest
import torch
from pumit.training.promptable.fields import FieldSource, cut_out, draw_depth, whole_voxels
from pumit.training.synthesis.scene import Scene, draw_scene


@pytest.mark.parametrize("da0", range(6))
def test_a_thin_field_bears_three_halvings(da0):
    generator = torch.Generator().manual_seed(da0)
    depths = {draw_depth(da0, 48, generator) for _ in range(200)}
    assert max(depths) == max(48 >> da0, 1)
    assert draw_scene(5, 32, generator).image.shape == (1, 32, 32)  # one slice, whatever its size
    unit = max(8 >> da0, 1)
    assert all(d % unit == 0 for d in depths)
    # Two slices at a quarter of the resolution would meet the bad kernel.
    assert min(depths) >= min(2 * unit, max(48 >> da0, 1))


def test_a_cut_keeps_the_first_target_in_sight():
    generator = torch.Generator().manual_seed(0)
    stack = torch.zeros(3, 24, 16, 16)
    stack[1, 20:22, 5:9, 5:9] = 1
    stack[2, 2, 1, 1] = 1
    for _ in range(50):
        inside, cut = cut_out(stack, 8, generator)
        assert cut.shape == (3, 8, 16, 16)
        assert inside.shape == (8, 16, 16)
        assert (cut[1] * inside).any()


def test_what_a_scene_shows_wholly_is_counted_and_what_touches_a_face_is_not():
    mask = torch.zeros(6, 8, 8)
    mask[2:4, 3:5, 3:5] = 1
    assert whole_voxels(mask) == 8
    mask[0, 3, 3] = 1
    assert math.isnan(whole_voxels(mask))
    assert whole_voxels(mask[2:3]) == 4  # of one slice, the faces in the plane count


class OneScene:
    """Always the same ball of 14 voxels across in a scene of 16 slices."""

    def __init__(self, wholes: list[float] | None) -> None:
        d, h, w = torch.meshgrid(
            *(torch.arange(n) - (n - 1) / 2 for n in (16, 16, 16)), indexing="ij"
        )
        self.ball = (d**2 + h**2 + w**2) < 49
        self.scene = Scene(torch.rand(16, 16, 16), [self.ball], 1.0, wholes=wholes)

    def draw(self, da0: int, size: int, generator: torch.Generator) -> Scene | None:
        return self.scene


@pytest.mark.parametrize("wholes", [None, [3000.0]], ids=["seen whole", "seen in part"])
def test_a_thin_field_knows_how_much_of_its_target_lies_beyond(wholes):
    scans = OneScene(wholes)
    source = FieldSource(
        16, scans=scans, real_share=1.0, batch_size=2, targets_per_field=1,
        device=torch.device("cpu"),
    )  # fmt: skip
    whole = wholes[0] if wholes else float(scans.ball.sum())
    depths = set()
    for seed in range(12):
        generator = torch.Generator().manual_seed(seed)
        batch = source.draw(0, generator, torch.Generator().manual_seed(seed))
        depths.add(batch.target.shape[1])
        for target, beyond in zip(batch.target, batch.beyond, strict=True):
            # The scan's end may hide some more, which no one could find.
            assert 0 <= float(beyond) <= whole - float(target.sum())
            assert target.shape[1] < 16 or float(beyond) == whole - float(scans.ball.sum())
