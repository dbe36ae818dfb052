"""Crops of generated and real images for pre-training."""

import pytest
import torch
from pumit.errors import PumitError
from pumit.training.pretraining.image_source import IMAGES, ImageSource, crop_shape, varied
from pumit.training.recipes.pretraining import CropSize
from pumit.training.synthesis.grid import flip_and_turn
from torch import Tensor


def random(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


SMALL = CropSize(depth=16, in_plane=16)


@pytest.mark.parametrize("da0", range(6))
def test_generated_crops_have_size_and_range(da0):
    crop = CropSize(depth=16, in_plane=32)
    source = ImageSource([crop], images=None, real_share=0.5, batch_size=1, generated_size=16)
    batch = source.draw(da0, random(), random())
    assert batch.image.shape == (IMAGES[da0], 3, *crop_shape(crop, da0))
    assert len(batch) == IMAGES[da0] == len(batch.cases)
    assert 0 <= float(batch.image.min()) < 0.2
    assert 0.8 < float(batch.image.max()) <= 1
    assert torch.equal(batch.image[:, 0], batch.image[:, 2])
    assert batch.voxels == batch.image[:, 0].numel()


def test_larger_crops_come_in_smaller_batches_alike_in_every_process():
    crops = (SMALL, CropSize(depth=16, in_plane=32), CropSize(depth=32, in_plane=32))
    source = ImageSource(crops, images=None, real_share=0, batch_size=4, generated_size=16)
    seen = set()
    for seed in range(6):
        batch = source.draw(2, random(0), random(seed))
        assert batch.image.shape == source.draw(2, random(9), random(seed)).image.shape
        d, h, w = batch.image.shape[2:]
        assert len(batch) == max(1, 8 * 4 * 16 * 16 // (d * h * w))
        assert batch.patches == (d // 4) * (h // 16) * (w // 16)
        seen.add((d, h, w))
    assert seen == {crop_shape(crop, 2) for crop in crops}


class Ramp:
    """Real images that count how often they were drawn."""

    calls = 0

    def draw(
        self, da0: int, shape: tuple[int, int, int], generator: torch.Generator
    ) -> tuple[Tensor, str] | None:
        self.calls += 1
        if da0 == 3:
            return None
        return torch.linspace(0, 1, shape[2]).expand(1, *shape), "ramp"


def test_real_images_take_their_share():
    images = Ramp()
    source = ImageSource([SMALL], images=images, real_share=0.5, batch_size=12)
    batch = source.draw(5, random(), random())
    share = batch.cases.count("ramp") / len(batch)
    assert 0.35 < share < 0.65
    assert images.calls == batch.cases.count("ramp")
    # What no real image has is generated.
    source = ImageSource([SMALL], images=Ramp(), real_share=1.0, batch_size=1)
    assert set(source.draw(3, random(), random()).cases) == {"generated"}


def test_images_of_another_degree_are_refused_by_name():
    class Thick:
        def draw(
            self, da0: int, shape: tuple[int, int, int], generator: torch.Generator
        ) -> tuple[Tensor, str]:
            return torch.zeros(1, shape[0] // 2, *shape[1:]), "thick"

    source = ImageSource([SMALL], images=Thick(), real_share=1.0, batch_size=1)
    with pytest.raises(PumitError, match=r"thick has .* anisotropy, here 0"):
        source.draw(0, random(), random())


def test_flips_and_turns_keep_every_voxel():
    image = torch.arange(2 * 4 * 4.0).view(1, 2, 4, 4)
    seen = set()
    for seed in range(40):
        out = flip_and_turn(image, random(seed))
        assert torch.equal(out.flatten().sort().values, image.flatten())
        seen.add(tuple(out.flatten().tolist()))
    assert len(seen) > 8


def test_variation_stays_in_range_and_keeps_the_order_of_intensities():
    image = torch.linspace(0, 1, 64).view(1, 1, 8, 8)
    changed = 0
    for seed in range(40):
        out = varied(image, random(seed)).flatten()
        assert 0 <= float(out.min()) <= float(out.max()) <= 1
        assert bool((out.diff() >= -1e-6).all())
        changed += not torch.equal(out, image.flatten())
    assert 10 < changed < 36
