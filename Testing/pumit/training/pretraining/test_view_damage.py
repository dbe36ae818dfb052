"""Cuboids cut out of crops."""

from __future__ import annotations

import math

import torch
from pumit.training.pretraining.swin_ssl import LONGEST, MOST, damaged, draw_cuboids

SHAPE = (32, 64, 48)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_cuboids_lie_inside_have_the_sides_that_are_reported_and_are_not_too_many() -> None:
    g = generator()
    shares = []
    for _ in range(100):
        cuboids = draw_cuboids(SHAPE, g)
        for cuboid in cuboids:
            for side, n in zip(cuboid, SHAPE, strict=True):
                assert 0 <= side.start < side.stop <= n
                assert max(1, round(0.05 * n)) <= side.stop - side.start <= LONGEST * n
        volumes = [math.prod(side.stop - side.start for side in c) for c in cuboids]
        shares.append(sum(volumes) / math.prod(SHAPE))
    assert max(shares) <= MOST
    assert max(shares) > 0.25
    assert min(shares) < 0.03


def test_noise_spans_the_range_and_other_crops_show_through_in_place() -> None:
    # Constant crops: what is neither the crop nor another one is noise.
    images = torch.tensor([2.0, 3.0]).view(2, 1, 1, 1, 1).expand(2, 1, *SHAPE)
    shown = noisy = 0
    for seed in range(8):
        out = damaged(images, generator(seed))
        assert (images[0] == 2).all()
        for i in range(2):
            own, other = (out[i] == images[i]), (out[i] == images[1 - i])
            assert own.float().mean() >= 1 - 2 * MOST
            shown += int(other.any())
            noise = out[i][~own & ~other]
            if noise.numel():
                noisy += 1
                assert (float(noise.min()), float(noise.max())) == (0, 1)
    assert 4 < shown < 12  # the other crop is drawn half of the time
    assert noisy > 10


def test_a_crop_alone_is_damaged_by_noise_only() -> None:
    out = damaged(torch.full((1, 1, *SHAPE), 2.0), generator())
    changed = out[out != 2]
    assert changed.numel() <= MOST * math.prod(SHAPE)
    assert float(changed.max()) <= 1


def test_the_same_seed_damages_alike() -> None:
    images = torch.rand(2, 1, *SHAPE)
    assert torch.equal(damaged(images, generator(5)), damaged(images, generator(5)))
