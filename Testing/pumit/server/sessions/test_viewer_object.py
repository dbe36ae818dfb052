"""What a viewer's undo may bring back, and how much of it is kept."""

import numpy as np
from pumit.prompts import MaskPrompt, PointPrompt
from pumit.server.sessions import viewer_object
from pumit.server.sessions.viewer_object import ObjectMask, ViewerObject

FIRST, SECOND = PointPrompt((1, 1, 1)), PointPrompt((2, 2, 2))
UINT8 = np.dtype("uint8")


def mask_of(size: int) -> ObjectMask:
    """A cube, `size` cubed over 8 bytes when it is packed."""
    return ObjectMask.of(np.ones((size, size, size), bool))


def test_masks_that_can_come_back_are_bounded_in_bytes(monkeypatch):
    monkeypatch.setattr(viewer_object, "_KEPT_BYTES", 300)
    viewer = ViewerObject(UINT8)
    for count in range(9):
        viewer.begin(1, [FIRST] * count)
        viewer.settle(mask_of(8), [FIRST] * (count + 1))
        assert viewer.nbytes <= 300 + 64
    steps = 0
    while viewer.changes is not None:
        assert viewer.undo_step([FIRST] * (8 - steps))
        steps += 1
    assert steps == 4


def test_mask_prompts_of_steps_count_once():
    viewer, prior = ViewerObject(UINT8), MaskPrompt(np.ones((8, 8, 8), bool))
    for _ in range(3):
        viewer.begin(1, [prior])
        viewer.settle(ObjectMask(), [prior])
    assert viewer.nbytes == ObjectMask().bits.nbytes + prior.nbytes


def test_the_last_step_is_kept_however_large_its_mask_is(monkeypatch):
    monkeypatch.setattr(viewer_object, "_KEPT_BYTES", 10)
    viewer = ViewerObject(UINT8)
    viewer.begin(1, [])
    viewer.settle(mask_of(8), [FIRST])
    before = viewer.mask
    viewer.begin(1, [FIRST])
    viewer.settle(mask_of(9), [FIRST, SECOND])
    assert viewer.undo_step([FIRST])
    assert viewer.mask is before
    assert viewer.is_answered([FIRST])


def test_no_step_is_undone_to_prompts_with_which_it_did_not_begin():
    prior = MaskPrompt(np.ones((2, 2, 2), bool))
    for began, found in (([], [FIRST]), ([FIRST], [SECOND]), ([prior], [FIRST])):
        viewer = ViewerObject(UINT8)
        viewer.begin(1, began)
        viewer.settle(mask_of(8), [SECOND])
        shown = viewer.mask
        assert not viewer.undo_step(found)
        assert viewer.mask is shown
        assert viewer.changes is None
