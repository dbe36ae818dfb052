"""Patches depend on the generator alone, lie where they should, and carry their own labels."""

from typing import Any

import numpy as np
import pytest
import torch
from labelled_scans import ball_and_box
from pumit.errors import PumitError
from pumit.training.recipes.model import read_model
from pumit.training.recipes.segmentation import AugmentationSettings
from pumit.training.segmentation.patches import (
    Augmentation,
    SegmentationBatch,
    SegmentationSource,
    cut,
    flip_axes,
)
from pumit.training.segmentation.prepared_cases import PreparedCase

PATCH = (8, 16, 16)
NONE = AugmentationSettings.model_validate(False)


def case(name: str, seed: int = 0, shape: tuple[int, int, int] = (14, 30, 28)) -> PreparedCase:
    image, labels = ball_and_box(seed, shape)
    places = {c: np.argwhere(labels == c).astype(np.int32) for c in (1, 2)}
    return PreparedCase(name, image[None] / 50, labels, places, float(image.min()) / 50)


def source(
    *cases: PreparedCase,
    settings: AugmentationSettings = NONE,
    flip_axes: tuple[int, ...] = (),
    spacing: tuple[float, float, float] = (1.0, 1.0, 1.0),
    **options: Any,
) -> SegmentationSource:
    patch = options.pop("patch", PATCH)
    return SegmentationSource(
        cases,
        patch=patch,
        augmentation=Augmentation(settings, patch, spacing, flip_axes),
        **{"batch_size": 4, "balanced_share": 0.75, **options},
    )


def draw(made: SegmentationSource, seed: int = 0) -> SegmentationBatch:
    return made.draw(0, torch.Generator().manual_seed(seed), torch.Generator())


def test_batch_depends_on_the_generator_alone():
    made = source(case("a"), case("b", 1), settings=AugmentationSettings(), flip_axes=(0, 1, 2))
    first, other = draw(made, 3), draw(made, 4)
    np.random.seed(1)
    torch.manual_seed(1)
    again = draw(made, 3)
    assert first.cases == again.cases
    assert torch.equal(first.image, again.image)
    assert torch.equal(first.labels, again.labels)
    assert not torch.equal(first.image, other.image)
    assert first.image.shape == (4, 1, *PATCH)
    assert first.labels.shape == (4, *PATCH)
    assert {*first.cases, *other.cases} == {"a", "b"}
    assert len(first) == 4


@pytest.mark.parametrize("flips", [(), (0, 1, 2)])
@pytest.mark.parametrize("moved", [0.0, 1.0])
def test_labels_move_with_the_image(flips, moved):
    changes = {"rotation": moved, "scaling": moved}
    settings = AugmentationSettings(**{**NONE.model_dump(), **changes})
    made = source(case("a"), settings=settings, flip_axes=flips, batch_size=24)
    batch = draw(made)
    image, labels = batch.image[:, 0], batch.labels
    assert set(labels.unique().tolist()) == {0, 1, 2}
    # Ball 4, box 2, all else 0, as in the whole case; interpolation mixes only borders.
    least = 0.7 if moved else 0.999
    assert (image[labels == 1] > 3).float().mean() > least
    assert ((image[labels == 2] - 2).abs() < 1).float().mean() > least
    assert (image[labels == 0] < 1).float().mean() > 0.95


def test_balanced_patches_hold_each_class_alike():
    made = source(case("a", shape=(24, 60, 60)), balanced_share=1.0, batch_size=64, patch=(8, 8, 8))
    batch = draw(made)
    middles = batch.labels[:, 4, 4, 4]
    # The box reaches nearer to the border than half a patch; then its patch is moved inwards.
    held = [(batch.labels == c).flatten(1).any(1).sum() for c in (1, 2)]
    assert min(held) > 20
    assert (middles > 0).sum() > 32
    nowhere = source(
        case("a", shape=(24, 60, 60)), balanced_share=0.0, batch_size=64, patch=(8, 8, 8)
    )
    assert (draw(nowhere).labels[:, 4, 4, 4] > 0).sum() < 16


def test_small_case_is_surrounded_by_its_lowest_value():
    image, labels = ball_and_box(0, (6, 12, 40))
    small = PreparedCase("s", image[None], labels, {}, -77.0)  # cut anywhere
    batch = draw(source(small, patch=(16, 16, 16)))
    assert (batch.image == -77).flatten(1).sum(1).tolist() == [16**3 - 6 * 12 * 16] * 4


def test_cut_copies_a_box_that_reaches_beyond():
    array = np.arange(24.0).reshape(1, 2, 3, 4)
    out = cut(array, np.array([-1, 1, 2]), (3, 3, 3), 99.0)
    expected = np.full((1, 3, 3, 3), 99.0)
    expected[0, 1:3, :2, :2] = array[0, :, 1:, 2:]
    np.testing.assert_array_equal(out, expected)


def test_thick_slices_are_turned_within_themselves_alone():
    settings = AugmentationSettings(**{**NONE.model_dump(), "rotation": 1.0, "scaling": 1.0})
    flat = Augmentation(settings, PATCH, (5.0, 1.0, 1.0), ())
    rng = np.random.RandomState(0)
    planes = torch.arange(8.0).view(1, 8, 1, 1).expand(1, 8, 23, 23)
    image, _ = flat(
        planes.clone(), torch.zeros(8, 23, 23, dtype=torch.uint8), flat.movement(rng), rng
    )
    torch.testing.assert_close(image, torch.arange(8.0).view(1, 8, 1, 1).expand(1, *PATCH))


@pytest.mark.parametrize(
    ("classes", "axes"),
    [
        (["liver", "spleen"], (0, 1, 2)),
        (["left kidney", "right kidney"], ()),
        (["kidney_L"], ()),
        (["Anterior", "Posterior"], ()),
        (["lung", "bright spot", "cerebral"], (0, 1, 2)),
    ],
)
def test_sided_classes_are_not_mirrored(classes, axes):
    assert flip_axes(AugmentationSettings(), classes) == axes
    assert flip_axes(AugmentationSettings(flips="w"), classes) == (2,)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rotate": 0.5}, "did you mean 'rotation'"),
        ({"noise": 2}, "noise in .* at most 1"),
        ({"flips": "xyz"}, "letters d, h, w"),
        ({"blur": "much"}, "blur"),
    ],
)
def test_unusable_augmentation_is_named(given, message):
    with pytest.raises(PumitError, match=message):
        read_model(AugmentationSettings, given, "augmentation")
