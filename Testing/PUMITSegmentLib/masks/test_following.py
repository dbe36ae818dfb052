"""Where a structure is clicked again in the next frame, and whether what that finds is believed."""

from typing import Any

import numpy as np
import pytest
import slicer
from pumit.evaluation.metrics import dice
from pumit.prompts import MaskPrompt, PointPrompt
from pumit.segmentation import PromptAnswer
from PUMITSegmentLib.masks.following import clickedAgain, clickInside, moved
from PUMITSlicerLib.mrml import VolumeFrame

SHAPE = (6, 40, 40)


def ball(centre: tuple[int, int], radius: float) -> np.ndarray:
    rows, columns = np.ogrid[:40, :40]
    mask = np.zeros(SHAPE, bool)
    mask[1:5] = (rows - centre[0]) ** 2 + (columns - centre[1]) ** 2 < radius**2
    return mask


MASKS = {
    "one": ball((20, 20), 10),
    "two pieces": ball((8, 8), 5) | ball((28, 28), 9),
    "thin ring": ball((20, 20), 14) & ~ball((20, 20), 12),
    "at the border": ball((0, 20), 8),
    "one voxel": np.pad(np.ones((1, 1, 1), bool), ((2, 3), (0, 39), (39, 0))),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_the_click_lies_inside_also_of_pieces_and_thin_rings(scene, mask):
    node = slicer.util.addVolumeFromArray(np.zeros(SHAPE, np.int16))
    node.SetSpacing(0.8, 0.7, 3.0)
    node.SetOrigin(10.0, -20.0, 30.0)
    frame = VolumeFrame(node)
    click = clickInside(mask, frame, node.GetSpacing()[::-1])
    d, h, w = np.rint(frame.lpsToIndex([click.point_lps])[0]).astype(int)
    assert mask[d, h, w]
    assert click.is_positive


def test_the_click_in_one_slice_is_in_its_middle(scene):
    node = slicer.util.addVolumeFromArray(np.zeros((1, 40, 40), np.int16))
    click = clickInside(MASKS["one"][2:3], VolumeFrame(node), (1.0, 1.0, 1.0))
    assert click.point_lps == pytest.approx((-20.0, -20.0, 0.0))


@pytest.mark.parametrize(
    ("found", "isBelieved"),
    [(ball((20, 20), 8), True), (ball((20, 20), 3), False), (np.zeros(SHAPE, bool), False)],
    ids=["contracted", "a part", "nothing"],
)
def test_what_overlaps_as_frames_do_is_believed(found, isBelieved):
    prompts, requests = [MaskPrompt(MASKS["one"])], []

    def predict(clicks: Any) -> PromptAnswer:
        requests.append(list(clicks))
        return PromptAnswer(found, 0.9, None)

    click = PointPrompt((0.0, 0.0, 0.0))
    (prior,) = clickedAgain(prompts, click, predict)
    assert requests == [[click]]
    np.testing.assert_array_equal(prior.mask, found if isBelieved else MASKS["one"])


def shown(mask: np.ndarray) -> np.ndarray:
    """A frame in which a mask is bright, (D, H, W)."""
    return np.where(mask, 200.0, 50.0)


@pytest.mark.parametrize("slices", [slice(None), slice(2, 3)], ids=["scan", "one slice"])
def test_what_no_click_finds_is_moved_as_the_tissue(slices):
    before, now = (ball((20, column), 8)[slices] for column in (18, 21))
    frames = shown(before), shown(now)
    (prior,) = moved([MaskPrompt(before)], *frames, (4.0, 1.0, 1.0))
    assert isinstance(prior, MaskPrompt)
    assert dice(before, now) < 0.8
    assert dice(prior.mask, now) > 0.95


def test_frames_that_are_not_alike_move_nothing():
    first, second = np.random.default_rng(0).normal(100, 20, (2, *SHAPE))
    prompts = [MaskPrompt(MASKS["one"])]
    assert moved(prompts, first, second, (1.0, 1.0, 1.0)) == prompts
    assert moved(prompts, first, np.full(SHAPE, 5.0), (1.0, 1.0, 1.0)) == prompts
    assert moved(prompts, first, np.zeros((3, 4, 5)), (1.0, 1.0, 1.0)) == prompts
