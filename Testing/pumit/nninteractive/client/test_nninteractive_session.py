"""Whole sessions on the published nnInteractive server's own application."""

import threading
from dataclasses import replace

import numpy as np
import pytest
from nninteractive_server import serve_nninteractive
from painting_session import at, painted, point
from pumit.errors import Cancelled, PromptError, ServiceError, VolumeError
from pumit.nninteractive.client.session import NNInteractiveSession
from pumit.prompts import AnswerPrompt, BoxPrompt, MaskPrompt, PointPrompt, ScribblePrompt
from pumit.system.watch import Watch
from pumit.volume import Volume


def test_a_click_paints_the_voxel_at_its_place_in_the_world(session, volume, theirs):
    """On an oblique, anisotropic grid, a little off the voxel's centre."""
    clicked = at(volume, 4.3, 10.4, 20.7)
    session.add_point(clicked)
    mask = session.predict()
    arrived = theirs.sessions[-1].image
    np.testing.assert_array_equal(arrived, volume.array[None])
    assert arrived.dtype == volume.array.dtype
    assert theirs.said == [("point", (4, 10, 21), True)]
    (found,) = volume.index_to_world(np.argwhere(mask))
    assert np.abs(found - clicked).max() <= max(volume.spacing_mm) / 2
    np.testing.assert_allclose(found, at(volume, 4, 10, 21))


@pytest.mark.parametrize("shape", [(1, 40, 50), (3, 1, 20, 24)])
def test_a_2d_image_and_a_colour_image_can_be_used(theirs, shape):
    image = np.random.default_rng(1).integers(0, 255, shape).astype(np.uint8)
    planar = Volume(image, (1e8, 1.0, 1.0))
    with theirs.client() as client, NNInteractiveSession(client) as session:
        session.set_volume(planar)
        session.add_point(at(planar, 0, 10, 10))
        session.add_scribble([at(planar, 0, 2, 3), at(planar, 0, 2, 9)])
        assert session.predict()[0, 10, 10]
        assert theirs.sessions[-1].image.shape == (1, *planar.shape)


def test_a_volume_without_contrast_is_refused_and_the_earlier_one_stays(session, volume):
    with pytest.raises(VolumeError, match="same value"):
        session.set_volume(Volume(np.zeros((3, 4, 5))))
    session.add_prompt(point(volume, 1, 2, 3))
    assert session.predict().shape == volume.shape


def test_every_kind_of_prompt_is_answered(session, volume, theirs):
    flat = volume.index_to_world([(3, h, w) for h in (2, 8) for w in (4, 9)])
    drawn = np.zeros(volume.shape, dtype=bool)
    drawn[2:4, 5:9, 5:9] = True
    session.add_prompt(MaskPrompt(drawn))
    np.testing.assert_array_equal(session.predict(), drawn)
    session.add_prompt(BoxPrompt(tuple(map(tuple, flat))))
    session.add_prompt(ScribblePrompt((at(volume, 8, 20, 20), at(volume, 8, 20, 25))))
    session.add_prompt(point(volume, 2, 5, 5, positive=False))
    expected = drawn.copy()
    expected[3, 2:9, 4:10] = True
    expected[8, 19:21, 19:26] = True
    expected[2, 5, 5] = False
    mask = session.predict()
    np.testing.assert_array_equal(mask[:, 9:], expected[:, 9:])
    assert not mask[2, 5, 5]
    kinds = [(kind, is_positive) for kind, _, is_positive in theirs.said]
    assert kinds == [("mask", True), ("box", True), ("scribble", True), ("point", False)]


def test_a_3d_box_is_reported_by_its_middle_slices_where_the_model_takes_none(
    session, volume, theirs
):
    session.add_box(at(volume, 1, 2, 3), at(volume, 5, 12, 13))
    session.predict()
    boxes = [where for _, where, _ in theirs.said]
    bounds = [(min(b[axis][0] for b in boxes), max(b[axis][1] for b in boxes)) for axis in range(3)]
    corners = np.array(np.meshgrid(*zip(at(volume, 1, 2, 3), at(volume, 5, 12, 13), strict=True)))
    index = volume.world_to_index(corners.reshape(3, -1).T)
    assert len(boxes) == 3
    assert all(1 in [b - a for a, b in box] for box in boxes)
    assert bounds == [
        (max(0, round(a)), min(n, round(b) + 1))
        for a, b, n in zip(index.min(0), index.max(0), volume.shape, strict=True)
    ]


def test_a_3d_box_is_one_interaction_where_the_model_takes_it(volume):
    corners = [(d, h, w) for d in (1, 4) for h in (3, 9) for w in (5, 20)]
    with (
        serve_nninteractive(supported={"bbox3d": True}) as server,
        server.client() as client,
        NNInteractiveSession(client) as session,
    ):
        session.set_volume(volume)
        session.add_prompt(BoxPrompt(tuple(map(tuple, volume.index_to_world(corners)))))
        mask = session.predict()
        assert server.said == [("box", ((1, 5), (3, 10), (5, 21)), True)]
        np.testing.assert_array_equal(mask, painted_box(volume, (1, 5), (3, 10), (5, 21)))


def painted_box(volume, *bounds):
    mask = np.zeros(volume.shape, dtype=bool)
    mask[tuple(slice(a, b) for a, b in bounds)] = True
    return mask


def test_what_the_model_does_not_take_is_refused_in_one_sentence(volume):
    nothing = {"scribble": False, "bbox2d": False, "points": False}
    with (
        serve_nninteractive(supported=nothing, takes_mask=False) as server,
        server.client() as client,
        NNInteractiveSession(client) as session,
    ):
        session.set_volume(volume)
        for prompt in (
            point(volume, 1, 2, 3),
            ScribblePrompt((at(volume, 1, 2, 3),)),
            BoxPrompt.from_bounds(at(volume, 1, 2, 3), at(volume, 2, 8, 9)),
            MaskPrompt(np.ones(volume.shape, dtype=bool)),
        ):
            with pytest.raises(PromptError, match="takes no"):
                session.add_prompt(prompt)
        assert session.segments == []


def test_prompts_outside_of_the_volume_change_nothing(session, volume):
    session.add_prompt(point(volume, 1, 2, 3))
    far = at(volume, 4, 10, 1000)
    for prompt, said in (
        (PointPrompt(far), "outside of the volume"),
        (ScribblePrompt((at(volume, 4, 10, 10), far)), "leaves the volume"),
        (BoxPrompt.from_bounds(far, at(volume, 5, 20, 1010)), "outside of the volume"),
        (MaskPrompt(np.ones((2, 2, 2), dtype=bool)), "grid"),
    ):
        with pytest.raises(PromptError, match=said):
            session.add_prompt(prompt)
    assert len(session.prompts()) == 1


def test_nothing_but_negative_prompts_asks_nobody(session, volume, theirs):
    with pytest.raises(PromptError, match="no prompt yet"):
        session.predict()
    session.add_prompt(point(volume, 1, 2, 3, positive=False))
    with pytest.raises(PromptError, match="only negative"):
        session.predict()
    assert theirs.said == []


def test_looking_at_a_segment_again_asks_nobody(session, volume, theirs):
    session.add_prompt(point(volume, 4, 10, 10), "liver")
    session.add_prompt(point(volume, 2, 20, 20), "spleen")
    liver, spleen = session.predict("liver"), session.predict("spleen")
    requests = list(theirs.said)
    np.testing.assert_array_equal(session.predict("liver"), liver)
    np.testing.assert_array_equal(session.predict("spleen"), spleen)
    assert theirs.said == requests
    assert session.segments == ["liver", "spleen"]


def test_a_segment_that_is_gone_on_with_repeats_its_prompts_in_their_order(session, volume, theirs):
    places = [(4, 10, 10), (4, 12, 12), (4, 20, 20)]
    session.add_prompt(point(volume, *places[0]), "liver")
    session.add_prompt(point(volume, *places[1]), "liver")
    session.predict("liver")
    session.add_prompt(point(volume, 1, 1, 1), "spleen")
    np.testing.assert_array_equal(session.predict("spleen"), painted(volume, ((1, 1, 1), True)))
    session.add_prompt(point(volume, *places[2]), "liver")
    expected = painted(volume, *((place, True) for place in places))
    np.testing.assert_array_equal(session.predict("liver"), expected)
    assert [entry[0] for entry in theirs.said[2:]] == ["reset", "point", "reset", *["point"] * 3]


def test_a_mask_to_start_from_makes_earlier_prompts_needless(session, volume, theirs):
    drawn = np.zeros(volume.shape, dtype=bool)
    drawn[3:5, 4:9, 4:9] = True
    session.add_prompt(point(volume, 4, 10, 10))
    session.add_prompt(MaskPrompt(drawn))
    session.add_prompt(point(volume, 4, 20, 20))
    expected = session.predict()
    session.add_prompt(point(volume, 1, 1, 1), "2")
    session.predict("2")
    del theirs.said[:]
    session.add_prompt(point(volume, 4, 6, 6, positive=False))
    assert session.predict().sum() < expected.sum()
    assert [entry[0] for entry in theirs.said] == ["reset", "mask", "point", "point"]


def test_the_last_prompt_is_undone_by_the_server_itself(session, volume, theirs):
    session.add_prompt(point(volume, 4, 10, 10))
    first = session.predict()
    session.add_prompt(point(volume, 4, 20, 20))
    second = session.predict()
    assert session.undo()
    np.testing.assert_array_equal(session.predict(), first)  # known
    session.add_prompt(point(volume, 2, 20, 5))
    third = session.predict()
    assert [entry[0] for entry in theirs.said] == ["point", "point", "undo", "point"]
    expected = [((4, 10, 10), True), ((2, 20, 5), True)]
    np.testing.assert_array_equal(third, painted(volume, *expected))
    assert second.sum() != third.sum() or (second != third).any()


@pytest.mark.parametrize("enable_undo", [True, False])
def test_any_sequence_of_changes_is_answered_as_if_nothing_had_come_between(volume, enable_undo):
    with (
        serve_nninteractive(enable_undo=enable_undo) as server,
        server.client() as client,
        NNInteractiveSession(client) as session,
    ):
        session.set_volume(volume)
        change_at_random(session, volume)


def change_at_random(session, volume):
    random = np.random.default_rng(7)
    for _ in range(40):
        segment = str(random.integers(3))
        action = random.integers(7)
        if action < 3:
            place = random.integers((9, 30, 28)).tolist()
            session.add_prompt(point(volume, *place, positive=random.random() < 0.7), segment)
        elif action == 3 and session.prompts(segment):
            session.remove_prompt(int(random.integers(len(session.prompts(segment)))), segment)
        elif action == 4:
            session.reset(segment)
        elif action == 5:
            session.redo()
        else:
            session.undo()
        given = session.prompts(segment)
        if any(prompt.is_positive for prompt in given):
            at_index = [np.rint(volume.world_to_index(p.point_lps)).astype(int) for p in given]
            expected = painted(
                volume,
                *(
                    (tuple(place.tolist()), prompt.is_positive)
                    for place, prompt in zip(at_index, given, strict=True)
                ),
            )
            np.testing.assert_array_equal(session.predict(segment), expected)


def test_progress_tells_how_many_prompts_are_repeated(session, volume, theirs):
    for index in range(5, 10):
        session.add_prompt(point(volume, 4, index, index))
    reports = []
    theirs.gate.clear()
    threading.Timer(0.5, theirs.gate.set).start()
    session.predict(watch=Watch(progress=reports.append))
    assert reports[0] == 0
    assert reports[-1] == 1


def test_there_is_one_answer(session, volume):
    """A choice, as in a scene of another server, changes nothing."""
    session.add_prompt(point(volume, 4, 10, 10))
    mask = session.predict()
    assert session.answer_count() == 1
    with pytest.raises(PromptError, match="have one answer"):
        session.choose_answer(2)
    chosen = session.answer([*session.prompts(), AnswerPrompt(2)]).mask
    np.testing.assert_array_equal(chosen, mask)


def test_no_estimate_is_made_up(session, volume):
    session.add_prompt(point(volume, 4, 10, 10))
    assert session.estimated_iou() is None
    assert session.expected_dice() is None
    assert session.uncertain_regions() == []
    with pytest.raises(ServiceError, match="without prompts"):
        session.segment_automatically("organs")
    with pytest.raises(ServiceError, match="no tokenizer"):
        session.reconstruct()


def test_a_cancelled_answer_is_not_waited_for_and_is_not_lost(session, volume, theirs):
    session.add_prompt(point(volume, 4, 10, 10))
    theirs.gate.clear()
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    with pytest.raises(Cancelled):
        session.predict(watch=Watch(stop.is_set))
    assert not theirs.gate.is_set()  # the server is at it still
    session.add_prompt(point(volume, 4, 20, 20))
    threading.Timer(0.2, theirs.gate.set).start()
    expected = painted(volume, ((4, 10, 10), True), ((4, 20, 20), True))
    np.testing.assert_array_equal(session.predict(), expected)
    assert [entry[0] for entry in theirs.said] == ["point", "point"]


def test_cancelling_stops_between_two_prompts(session, volume, theirs):
    for index in range(5, 25, 5):
        session.add_prompt(point(volume, 4, index, index))
    theirs.gate.clear()
    threading.Timer(0.2, session.cancel).start()
    with pytest.raises(Cancelled):
        session.predict()
    theirs.gate.set()
    session.add_prompt(point(volume, 1, 1, 1), "2")
    session.predict("2")
    assert [entry[0] for entry in theirs.said] == ["point", "reset", "point"]


def test_a_scan_that_replaces_a_busy_one_gets_none_of_its_prompts(session, volume, theirs):
    other = Volume(np.random.default_rng(5).normal(size=(4, 12, 13)))
    session.add_prompt(point(volume, 3, 5, 5))
    theirs.gate.clear()
    stop = threading.Event()
    stop.set()
    threading.Timer(0.2, session.cancel).start()
    with pytest.raises(Cancelled):
        session.predict()
    threading.Timer(0.2, theirs.gate.set).start()
    session.set_volume(other)
    session.add_prompt(point(other, 1, 2, 3))
    np.testing.assert_array_equal(session.predict(), painted(other, ((1, 2, 3), True)))


def test_a_click_that_waits_for_another_scan_gets_none_of_its_answers(session, volume, monkeypatch):
    session.add_point(tuple(volume.index_to_world((1, 2, 3))))
    prompts = session.prompts()
    sending, may_end, upload = threading.Event(), threading.Event(), session._upload

    def slow(*arguments):
        sending.set()
        may_end.wait(20)
        upload(*arguments)

    monkeypatch.setattr(session, "_upload", slow)
    other = replace(volume, array=volume.array[::-1].copy())
    opening = threading.Thread(target=session.set_volume, args=(other,))
    opening.start()
    assert sending.wait(20)
    threading.Timer(0.2, may_end.set).start()
    with pytest.raises(Cancelled):
        session.answer(prompts)
    opening.join(20)
