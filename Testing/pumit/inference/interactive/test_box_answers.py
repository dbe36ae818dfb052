"""A box around a wall is answered with the wall, too, where class vectors tell what is in it."""

from __future__ import annotations

import numpy as np
import pytest
from pumit.inference.interactive.answer_checks import box_fit
from pumit.inference.interactive.box_answers import box_answers, regions_of
from pumit.inference.interactive.grid_transfer import Floats
from pumit.inference.interactive.index_prompts import IndexPrompts
from pumit.preprocessing.fields import Field

FIELD = Field((7.5, 15.5, 15.5), (1.0, 1.0, 1.0), (16, 32, 32), 1.0, 0)
BOX = (np.array([2.0, 6.0, 6.0]), np.array([13.0, 25.0, 25.0]))


def wall_and_cavity() -> tuple[np.ndarray, np.ndarray]:
    """A tube of outer radius 10 and inner radius 5 along the depth of BOX, in `FIELD`."""
    d, h, w = np.ogrid[:16, :32, :32]
    radius = np.hypot(h - 15.5, w - 15.5)
    along = (d >= 2) & (d <= 13)
    return along & (radius >= 5) & (radius < 10), along & (radius < 5)


def class_vectors(rng: np.random.Generator) -> Floats:
    """One direction each for wall, cavity and the rest, a little uncertain; (4, 8, 16, 16)."""
    vectors = np.zeros((4, *FIELD.shape), np.float32)
    wall, cavity = wall_and_cavity()
    vectors[0][wall], vectors[1][cavity], vectors[2][~(wall | cavity)] = 1, 1, 1
    half = vectors.reshape(4, 8, 2, 16, 2, 16, 2).mean((2, 4, 6))
    half += 0.1 * rng.random(half.shape, np.float32)
    return half / np.linalg.norm(half, axis=0)


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    return float(2 * (a & b).sum() / (a.sum() + b.sum()))


def test_the_wall_is_one_of_the_regions(rng: np.random.Generator) -> None:
    wall, cavity = wall_and_cavity()
    regions = [prior > 0.5 for prior in regions_of(class_vectors(rng), FIELD, BOX)]
    assert max(overlap(region, wall) for region in regions) > 0.85
    # The cavity alone does not reach to the faces of the box.
    assert max(overlap(region, cavity) for region in regions) < 0.6


def test_every_region_nearly_fills_the_box(rng: np.random.Generator) -> None:
    regions = regions_of(class_vectors(rng), FIELD, BOX)
    assert regions
    for prior in regions:
        assert prior.shape == FIELD.shape
        assert box_fit(prior > 0.5, FIELD, BOX) >= 0.6


def test_the_same_box_gives_the_same_regions(rng: np.random.Generator) -> None:
    classes = class_vectors(rng)
    for first, second in zip(
        regions_of(classes, FIELD, BOX), regions_of(classes, FIELD, BOX), strict=True
    ):
        np.testing.assert_array_equal(first, second)


def test_a_loose_box_has_no_region_of_what_goes_on_beyond_it(rng: np.random.Generator) -> None:
    wall, cavity = wall_and_cavity()
    loose = (BOX[0] - 2, BOX[1] + 2)
    for prior in regions_of(class_vectors(rng), FIELD, loose):
        assert overlap(prior > 0.5, ~(wall | cavity)) < 0.2


@pytest.mark.parametrize(
    ("low", "high"),
    [((8, 15, 15), (8, 15, 15)), ((-5, -5, -5), (20, 40, 40)), ((40, 50, 50), (45, 60, 60))],
    ids=["one voxel", "more than the field", "beyond the field"],
)
def test_any_box_is_divided(
    rng: np.random.Generator, low: tuple[int, ...], high: tuple[int, ...]
) -> None:
    box = (np.array(low, np.float64), np.array(high, np.float64))
    regions = regions_of(class_vectors(rng), FIELD, box)
    assert all(box_fit(prior > 0.5, FIELD, box) >= 0.6 for prior in regions)


def test_vectors_that_are_no_numbers_give_no_regions(rng: np.random.Generator) -> None:
    classes = class_vectors(rng)
    classes[:, 4, 8, 8] = np.nan
    assert regions_of(classes, FIELD, BOX) == []


@pytest.mark.parametrize("has_classes", [True, False])
def test_regions_are_priors_of_answers_with_a_click_in_them(
    rng: np.random.Generator, has_classes: bool
) -> None:
    wall, cavity = wall_and_cavity()
    seen: list[tuple[IndexPrompts, Floats | None]] = []

    def decode(prompts: IndexPrompts, prior: Floats | None) -> tuple[Floats, Floats]:
        """The whole tube for a box, what the prior says with one."""
        seen.append((prompts, prior))
        mask = (wall | cavity) if prior is None else prior > 0.5
        return np.where(mask, 5.0, -5.0)[None].astype(np.float32), np.array([0.7], np.float32)

    classes = class_vectors(rng) if has_classes else None
    logits, iou = box_answers(decode, FIELD, IndexPrompts(box=BOX), classes)
    assert len(logits) == len(iou) == len(seen)
    best = max(overlap(answer > 0, wall) for answer in logits)
    if not has_classes:
        assert len(seen) == 2  # the box alone, and with a click in its answer
        return
    assert best > 0.85
    for prompts, prior in seen[2:]:
        assert prompts.box is None
        assert prior is not None
        ((*place, is_positive),) = prompts.points
        at = tuple(np.round(FIELD.to_field(place)).astype(int))
        assert is_positive
        assert prior[at] > 0.5
