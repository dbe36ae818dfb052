"""Every change of the prompts can be undone; what is unusable is refused."""

import threading
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from ball_scan import (
    BALL,
    OBLIQUE,
    SHAPE,
    SPACING,
    at,
    ball,
    box_of,
    many_prompts,
    scan,
    session_on,
)
from draws import draws
from pumit.errors import Cancelled, PromptError, VolumeError
from pumit.evaluation.metrics import dice
from pumit.geometry import PLANAR_SLICE_SPACING_MM
from pumit.inference.interactive.session import InteractiveSession
from pumit.prompts import MaskPrompt, PointPrompt
from pumit.system.watch import Watch
from pumit.volume import Volume


def test_undo_and_redo_reach_every_level(opened):
    session, volume = opened
    steps: list[Callable[[], None]] = [
        lambda: session.add_point(at(volume, BALL)),
        lambda: session.add_point(at(volume, (1, 2, 3)), positive=False),
        lambda: session.add_prompt(box_of(volume, (2, 8, 14), (9, 26, 36)), "2"),
        lambda: session.add_scribble([at(volume, (6, 12, 20)), at(volume, (6, 20, 30))]),
        lambda: session.set_mask_prior(ball(), "2"),
        lambda: session.remove_prompt(1),
        lambda: session.reset("2"),
        lambda: session.reset(),
    ]

    def state() -> dict[str, Any]:
        return {name: session.prompts(name) for name in session.segments}

    states = [state()]
    for step in steps:
        step()
        states.append(state())
    assert states[-1] == {}
    assert len({str(s) for s in states}) == len(states) - 1  # the first and the last are empty
    for expected in states[-2::-1]:
        assert session.undo() is True
        assert state() == expected
    assert session.undo() is False
    for expected in states[1:]:
        assert session.redo() is True
        assert state() == expected
    assert session.redo() is False


def test_what_changes_nothing_is_no_step(opened):
    session, volume = opened
    session.reset()
    session.reset("unknown")
    with pytest.raises(PromptError):
        session.add_point((1e6, 0, 0))
    for mask, words in (
        (np.ones((2, 3, 4), bool), "grid"),
        (np.zeros(SHAPE, bool), "empty"),
        (ball() + 2 * np.eye(SHAPE[2], dtype=np.uint8)[: SHAPE[1]], "2 values|3 values"),
        (ball() * np.linspace(0, 1, SHAPE[2]), r"such as labels == 2 or probabilities > 0\.5"),
    ):
        with pytest.raises(PromptError, match=words):
            session.set_mask_prior(mask)
    assert session.undo() is False
    assert session.segments == []
    session.add_point(at(volume, BALL), segment="a")
    session.remove_prompt(0, "a")
    assert session.segments == []
    session.undo()
    assert session.segments == ["a"]


def test_a_new_volume_starts_afresh(opened):
    session, volume = opened
    session.add_point(at(volume, BALL))
    session.predict()
    session.set_volume(Volume(-volume.array, volume.spacing_mm))
    assert session.segments == []
    assert session.undo() is False
    with pytest.raises(PromptError, match="no prompt"):
        session.predict()


# What is refused


def test_only_negative_points_are_refused(opened):
    session, volume = opened
    session.add_point(at(volume, BALL), positive=False)
    session.add_scribble([at(volume, (6, 10, 10))], positive=False)
    for ask in (session.predict, session.estimated_iou):
        with pytest.raises(PromptError, match="only negative"):
            ask()
    session.add_point(at(volume, (6, 18, 26)))
    assert session.predict().shape == volume.shape


def test_no_volume_is_refused(tiny_segmenter):
    session = InteractiveSession(tiny_segmenter)
    session.sleep()
    session.wake()
    assert not session.is_asleep
    for ask in (lambda: session.add_point((0, 0, 0)), session.predict, lambda: session.volume):
        with pytest.raises(VolumeError, match="No volume"):
            ask()
    session.close()


@pytest.mark.parametrize("index", [(-1, 5, 5), (5, 36, 5), (5, 5, 44)], ids=str)
def test_points_outside_are_refused(opened, index):
    session, volume = opened
    for positive in (True, False):
        with pytest.raises(PromptError, match="outside of the volume"):
            session.add_point(at(volume, index), positive)
        with pytest.raises(PromptError, match="leaves the volume"):
            session.add_scribble([at(volume, BALL), at(volume, index)], positive)
    far = tuple(200 * (i - 10) for i in index)
    with pytest.raises(PromptError, match="outside of the volume"):
        session.add_prompt(box_of(volume, far, tuple(f + 5 for f in far)))  # type: ignore[arg-type]


@pytest.mark.parametrize("index", [(-0.5, -0.5, -0.5), (11.5, 35.5, 43.5)])
def test_points_on_the_border_are_accepted(opened, index):
    session, volume = opened
    session.add_point(at(volume, index))
    assert session.predict().shape == volume.shape


@pytest.mark.parametrize("point", [(1, 2), (1, 2, 3, 4), (np.nan, 0, 0), "abc", None, ("a", 1, 2)])
def test_malformed_points_are_refused(opened, point):
    session, _ = opened
    with pytest.raises(PromptError, match="three"):
        session.add_point(point)
    with pytest.raises(PromptError, match="three"):
        session.add_box(point, (1, 2, 3))


def test_removing_what_is_not_there_is_refused(opened):
    session, volume = opened
    session.add_point(at(volume, BALL))
    for position, segment in ((-1, "1"), (1, "1"), (0, "unknown")):
        with pytest.raises(PromptError, match="no prompt"):
            session.remove_prompt(position, segment)


def test_a_constant_image_is_refused_and_the_open_one_kept(opened):
    session, volume = opened
    session.add_point(at(volume, BALL))
    for value in (0, 7):
        with pytest.raises(VolumeError, match=f"same value \\({value}\\)"):
            session.set_volume(Volume(np.full((4, 8, 8), value, np.int16)))
    assert session.volume is volume
    assert session.predict().shape == volume.shape


@pytest.mark.parametrize("value", [np.nan, -np.inf, 1e300])
def test_voxels_that_are_no_numbers_are_refused_wherever_they_lie(tiny_segmenter, value):
    session = InteractiveSession(tiny_segmenter)
    for place in ((0, 0, 0), (7, 13, 15)):
        array = np.random.default_rng(0).normal(size=(8, 16, 16))
        array[place] = value
        with pytest.raises(VolumeError, match="NaN"):
            session.set_volume(Volume(array))


def test_prompts_that_the_caller_keeps_are_answered_as_those_of_the_session(opened, monkeypatch):
    session, volume = opened
    a, b, c = (PointPrompt(at(volume, i)) for i in (BALL, (6, 18, 26), (2, 5, 6)))
    given = session.answer([MaskPrompt(ball())]).mask
    first = session.answer([a, b], place_count=3)
    session.answer([a, c])
    assert session.segments == []
    monkeypatch.setattr(session._solver, "answer", None)  # nothing is computed again
    np.testing.assert_array_equal(session.answer([MaskPrompt(ball())]).mask, given)
    again = session.answer([a, b], "other")
    np.testing.assert_array_equal(again.mask, first.mask)
    assert again.places == ()
    session.add_prompts([a, b])
    np.testing.assert_array_equal(session.predict(), first.mask)
    assert session.estimated_iou() == first.estimated_iou
    assert session.expected_dice() == first.expected_dice
    assert tuple(session.uncertain_regions(count=3)) == first.places


def test_prompts_of_the_caller_are_checked_too(opened):
    session, volume = opened
    refused = {
        "outside": [PointPrompt(at(volume, BALL)), PointPrompt((1e6, 0.0, 0.0))],
        "grid": [MaskPrompt(np.ones((2, 2, 2), bool))],
        "only negative": [PointPrompt(at(volume, BALL), False)],
        "no prompt": [],
    }
    for message, prompts in refused.items():
        with pytest.raises(PromptError, match=message):
            session.answer(prompts)


def test_a_replayed_session_gives_the_same_masks(tiny_segmenter):
    """Other segments, undone clicks and forgotten answers change nothing."""
    volume, _ = scan(OBLIQUE)
    busy, at_once = (session_on(volume, tiny_segmenter) for _ in range(2))
    busy.add_point(at(volume, (3, 9, 9)), segment="other")
    for number, prompt in enumerate(many_prompts(volume)):
        busy.add_prompt(prompt)
        if number > 0:  # the first is negative
            busy.predict()
        busy.add_point(at(volume, (9, 30, 30)), positive=False)
        busy.undo()
        if number == 3:
            busy.predict("other")
            busy.forget_answers()
    at_once.add_prompts(many_prompts(volume))
    np.testing.assert_array_equal(busy.predict(), at_once.predict())
    assert busy.estimated_iou() == at_once.estimated_iou()


def test_segments_are_independent_and_may_overlap(bright_segmenter):
    volume, truth = scan()
    session = session_on(volume, bright_segmenter)
    session.add_point(at(volume, BALL), segment="a")
    session.add_point(at(volume, (6, 18, 24)), segment="b")
    assert session.segments == ["a", "b"]
    assert dice(session.predict("a"), truth) > 0.9
    assert dice(session.predict("b"), truth) > 0.9
    session.reset("a")
    assert session.segments == ["b"]
    assert dice(session.predict("b"), truth) > 0.9


def test_a_click_costs_nothing_that_is_known(opened, monkeypatch):
    """Undo, redo, asking twice and asking for the estimate decode nothing again."""
    session, volume = opened
    session.add_point(at(volume, BALL))
    session.predict()
    session.add_point(at(volume, (6, 18, 26)))
    mask = session.predict()
    expected = mask.copy()
    engine = session.segmenter.engine
    monkeypatch.setattr(engine, "decode", lambda *_: pytest.fail("decoded again"))
    mask[:] = ~mask  # it is the user's own
    np.testing.assert_array_equal(session.predict(), expected)
    session.estimated_iou()
    session.undo()
    session.predict()
    session.redo()
    session.predict()


@pytest.mark.parametrize("limit", ["CACHED_ANSWERS", "CACHED_ANSWER_BYTES"])
def test_long_sessions_answer_only_the_newest_prompt(opened, monkeypatch, limit):
    """Answers beyond the cache are forgotten without being requested again, except by undo."""
    session, volume = opened
    masks = []
    plain, calls = session.solver.answer, []
    monkeypatch.setattr(
        session.solver, "answer", lambda *given: calls.append(given) or plain(*given)
    )
    for number in range(5):
        session.add_point(at(volume, (6, 15 + number, 25)))
        masks.append(session.predict())
        assert len(calls) == number + 1
        assert len(session._answers) <= 4
        if number == 0:
            size = next(iter(session._answers.values())).nbytes
            most = 3 if limit == "CACHED_ANSWERS" else 3 * size
            monkeypatch.setattr(f"pumit.inference.interactive.session.{limit}", most)
    for expected in masks[-2::-1]:
        session.undo()
        np.testing.assert_array_equal(session.predict(), expected)


# Every kind of prompt


@pytest.mark.parametrize(
    "corners",
    [((2, 6, 14), (10, 28, 36)), ((6, 6, 14), (6, 28, 36)), ((2, 17, 14), (10, 17, 36))],
    ids=["3D", "one slice", "one row"],
)
def test_boxes_of_an_oblique_volume_by_their_corners(bright_segmenter, corners):
    volume, truth = scan(OBLIQUE)
    session = session_on(volume, bright_segmenter)
    session.add_prompt(box_of(volume, *corners))
    assert dice(session.predict(), truth) > 0.8


@pytest.mark.parametrize("is_box", [True, False], ids=["second box", "click"])
def test_a_prompt_far_from_the_box_is_inspected(bright_segmenter, is_box):
    """The last box counts, also where the first one's field does not reach; a click adds to it."""
    array = np.random.default_rng(0).integers(0, 4, (8, 300, 300), dtype=np.int16)
    array[2:6, 8:20, 8:20] += 100
    array[2:6, 270:286, 270:286] += 100
    volume = Volume(array, (3.0, 1.0, 1.0))
    session = session_on(volume, bright_segmenter)
    session.add_prompt(box_of(volume, (1, 6, 6), (6, 22, 22)))
    assert session.predict()[4, 12, 12]
    if is_box:
        session.add_prompt(box_of(volume, (1, 266, 266), (6, 290, 290)))
    else:
        session.add_point(at(volume, (4, 278, 278)))
    assert session.predict()[4, 278, 278]


# Cancelling, progress, memory


def test_cancelling_at_any_moment_changes_no_answer(opened):
    session, volume = opened
    for prompt in many_prompts(volume)[1:3]:
        session.add_prompt(prompt)
    calls = []
    session.predict(watch=Watch(lambda: bool(calls.append(1))))  # type: ignore[func-returns-value]
    expected = session.predict()
    assert len(calls) > 2
    for moment in range(len(calls)):
        session._answers.clear()
        count = iter(range(len(calls) + 1))
        with pytest.raises(Cancelled):
            session.predict(watch=Watch(lambda c=count, m=moment: next(c) == m))  # type: ignore[misc]
        np.testing.assert_array_equal(session.predict(), expected)


def test_progress_rises_to_one_in_the_callers_thread(opened):
    session, volume = opened
    session.add_point(at(volume, (1, 2, 3)), positive=False)
    for prompt in many_prompts(volume)[1:4]:
        session.add_prompt(prompt)
    reports: list[tuple[float, int]] = []
    for _ in range(2):  # computed, and known
        reports.clear()
        session.predict(
            watch=Watch(progress=lambda share: reports.append((share, threading.get_ident())))
        )
        shares = [share for share, _ in reports]
        assert shares == sorted(set(shares))
        assert shares[-1] == 1.0
        assert min(shares) > 0
        assert {thread for _, thread in reports} == {threading.get_ident()}


def test_opening_a_large_scan_does_not_copy_it(bright_segmenter):
    """Memory follows the field and the averaged levels, not a second copy of the scan."""
    array = np.zeros((160, 256, 256), np.float64)  # 80 MiB that the system hands out lazily
    array[80, 100:140, 100:140] = 1.0
    volume = Volume(array, (2.0, 1.0, 1.0))
    session = InteractiveSession(bright_segmenter)
    tracemalloc.start()
    try:
        session.set_volume(volume)
        session.add_point(at(volume, (80, 120, 120)))
        mask = session.predict()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert mask.shape == volume.shape
    assert peak < 0.5 * array.nbytes
    levels = session._solver.pyramid.levels
    assert sum(t.nbytes for t, _ in levels if t is not None) < 0.6 * array.size * 4


def test_the_estimate_is_read_as_the_model_was_calibrated(tiny_segmenter):
    volume, _ = scan()
    plain = InteractiveSession(tiny_segmenter)
    row = {"estimate": [0, 1], "iou": [0.25, 0.75]}
    calibrated = InteractiveSession(replace(tiny_segmenter, recipe={"calibration": row}))
    for session in (plain, calibrated):
        session.set_volume(volume)
        session.add_point(at(volume, BALL))
    assert calibrated.estimated_iou() == pytest.approx(0.25 + plain.estimated_iou() / 2)
    np.testing.assert_array_equal(calibrated.predict(), plain.predict())


# Masks on the volume's own grid, whatever that is


LEFT_HANDED = OBLIQUE @ np.diag([1, 1, -1.0])


@pytest.mark.parametrize(
    ("order", "direction"),
    [((0, 1, 2), np.eye(3)), *((order, LEFT_HANDED) for order in permutations(range(3)))],
)
def test_mask_is_on_the_grid_for_any_axes(bright_segmenter, order, direction):
    volume, truth = scan(direction, order)
    session = session_on(volume, bright_segmenter)
    centre = tuple(BALL[a] for a in order)
    session.add_point(at(volume, centre))  # type: ignore[arg-type]
    mask = session.predict()
    assert mask.shape == volume.shape
    assert mask.dtype == np.bool_
    assert dice(mask, truth) > 0.95


def test_where_depth_lies_and_the_direction_do_not_matter(tiny_segmenter):
    """The same scan stored with thick slices along another axis, or turned in the world."""
    masks = []
    for axes, direction in (
        ((0, 1, 2), OBLIQUE), ((1, 2, 0), OBLIQUE), ((0, 1, 2), np.eye(3)), ((0, 1, 2), LEFT_HANDED)
    ):  # fmt: skip
        volume, _ = scan(direction, axes)
        session = session_on(volume, tiny_segmenter)
        for index, positive in ((BALL, True), ((1, 3, 4), False)):
            session.add_point(at(volume, tuple(index[a] for a in axes)), positive)  # type: ignore[arg-type]
        masks.append(session.predict().transpose(np.argsort(axes)))
    np.testing.assert_array_equal(masks[0], masks[1])
    for mask in masks[2:]:
        # Positions differ in the last digits; a voxel whose logit is about zero may turn.
        assert dice(mask, masks[0]) > 0.99


@pytest.mark.parametrize(
    ("axis", "spacing"), [(0, 1.0), *((axis, PLANAR_SLICE_SPACING_MM) for axis in range(3))]
)
def test_a_single_slice_is_segmented(bright_segmenter, axis, spacing):
    """A 2D image, with pixels of 1 x 2 mm, along any axis of the array."""
    h, w = np.ogrid[:50, :64]
    disc = (h - 20) ** 2 + ((w - 30) * 2.0) ** 2 < 15**2
    array = np.expand_dims(100 * disc + np.random.default_rng(0).normal(0, 4, disc.shape), axis)
    sizes = [1.0, 2.0]
    sizes.insert(axis, spacing)
    volume = Volume(array.astype(np.float32), (sizes[0], sizes[1], sizes[2]))
    session = session_on(volume, bright_segmenter)
    index = [20.0, 30.0]
    index.insert(axis, 0.0)
    session.add_point(at(volume, (index[0], index[1], index[2])))
    mask = session.predict()
    assert mask.shape == volume.shape
    assert dice(mask, np.expand_dims(disc, axis)) > 0.95


def test_in_a_2d_image_the_depth_of_a_prompt_does_not_count(tiny_segmenter):
    array = np.random.default_rng(0).normal(size=(1, 40, 40)).astype(np.float32)
    volume = Volume(array, (PLANAR_SLICE_SPACING_MM, 1.0, 1.0))
    masks = []
    for depth_mm in (0.0, 55.0):
        session = session_on(volume, tiny_segmenter)
        session.add_point((20.0, 18.0, depth_mm))
        session.add_box((8.0, 8.0, depth_mm), (30.0, 30.0, depth_mm))
        session.add_scribble([(12.0, 12.0, depth_mm), (20.0, 20.0, depth_mm)])
        masks.append(session.predict())
    np.testing.assert_array_equal(masks[0], masks[1])


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(ball().astype(t), id=np.dtype(t).name)
        for t in (bool, np.uint8, np.int16, np.uint64, np.float64)
    ]
    + [
        pytest.param(np.stack([ball(), ball() * 2]).astype(np.int16), id="two channels"),
        pytest.param(np.stack([200 * ball()] * 3).astype(np.uint8), id="colour"),
        pytest.param(ball().astype(np.float16)[None], id="one channel, half"),
        pytest.param(np.asfortranarray(ball().astype(">i2")), id="big-endian, Fortran order"),
        pytest.param(ball().astype(np.int16)[::-1, :, ::-1], id="negative strides"),
    ],
)
def test_every_kind_of_voxel_is_accepted(bright_segmenter, array):
    volume = Volume(array, SPACING)
    session = session_on(volume, bright_segmenter)
    bright = np.asarray(array if array.ndim == 3 else array[0]) > 0
    place = np.argwhere(bright).mean(0)
    session.add_point(at(volume, tuple(place)))  # type: ignore[arg-type]
    assert dice(session.predict(), bright) > 0.9


def test_the_chosen_channel_is_segmented(bright_segmenter):
    other = np.roll(ball(), -14, axis=2)
    volume = Volume(np.stack([other, ball()]).astype(np.int16), SPACING)
    session = session_on(volume, bright_segmenter, channel=1)
    session.add_point(at(volume, BALL))
    assert dice(session.predict(), ball()) > 0.9
    for channel in (2, -1):
        with pytest.raises(VolumeError, match="2 channels"):
            session.set_volume(volume, channel=channel)


@pytest.mark.parametrize("seed", range(draws(2)))
def test_volumes_of_any_shape_and_spacing_are_answered(tiny_segmenter, seed):
    """One voxel to ninety along each axis, spacings from a twentieth to sixty millimetres."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in np.exp(rng.uniform(0, np.log(90), 3)))
    spacing = tuple(np.exp(rng.uniform(np.log(0.05), np.log(60), 3)))
    direction, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    array = rng.normal(size=shape).astype(np.float32)
    volume = Volume(array, spacing, (10.0, -20.0, 30.0), direction)  # type: ignore[arg-type]
    session = session_on(volume, tiny_segmenter)

    def place() -> tuple[float, float, float]:
        index = rng.uniform(0, 1, 3) * (np.array(shape) - 1) + rng.uniform(-0.5, 0.5, 3)
        return at(volume, tuple(index))  # type: ignore[arg-type]

    session.add_point(place())
    assert session.predict().shape == shape
    session.add_box(place(), place())
    session.add_point(place(), positive=False)
    assert session.predict().shape == shape
    session.add_scribble([place(), place(), place()])
    session.set_mask_prior(rng.random(shape) < 0.5)
    session.add_point(place())
    assert session.predict().shape == shape
    assert 0 <= session.estimated_iou() <= 1
