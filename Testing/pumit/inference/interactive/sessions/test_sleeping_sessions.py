"""A session that slept answers as before, and takes little memory while it sleeps."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ball_scan import BALL, OBLIQUE, at, ball, many_prompts, scan, session_on
from pumit.errors import VolumeError
from pumit.inference.interactive.image_store import ImageStore, PackedVoxels
from pumit.inference.interactive.index_prompts import IndexPrompts
from pumit.inference.interactive.prompt_solver import PromptSolver
from pumit.inference.interactive.segmenter import Segmenter
from pumit.inference.interactive.session import InteractiveSession
from pumit.inference.interactive.solver_state import SolverState
from pumit.prompts import MaskPrompt, PointPrompt
from pumit.volume import Volume


def test_masks_after_sleep_are_the_same_bit_by_bit(tiny_segmenter: Segmenter) -> None:
    volume, _ = scan(OBLIQUE)
    restless, awake = (InteractiveSession(tiny_segmenter) for _ in range(2))
    for session in (restless, awake):
        session.set_volume(volume)
    for number, prompt in enumerate(many_prompts(volume)):
        for session in (restless, awake):
            session.add_prompt(prompt)
        if number not in (1, 5, 8):
            continue
        restless.sleep()
        np.testing.assert_array_equal(restless.predict(), awake.predict())
        restless.sleep()
        assert restless.is_asleep
        assert restless.estimated_iou() == awake.estimated_iou()
        assert not restless.is_asleep


def test_undo_redo_and_segments_survive_sleep(tiny_segmenter: Segmenter) -> None:
    volume, _ = scan()
    session = session_on(volume, tiny_segmenter)
    masks = []
    for prompt in many_prompts(volume)[5:]:
        session.add_prompt(prompt)
        masks.append(session.predict())
    session.add_point(at(volume, (3, 9, 9)), segment="other")
    prompts = session.prompts()
    session.sleep()
    assert session.prompts() == prompts
    assert session.segments == ["1", "other"]
    session.undo()
    for expected in masks[-2::-1]:
        session.sleep()
        assert session.undo()
        np.testing.assert_array_equal(session.predict(), expected)
    session.sleep()
    while session.redo():
        pass
    assert session.segments == ["1", "other"]
    np.testing.assert_array_equal(session.predict(), masks[-1])


def test_whatever_is_requested_wakes_a_session(tiny_segmenter: Segmenter) -> None:
    volume, _ = scan()
    session = session_on(
        replace(volume, array=np.stack([volume.array] * 2)), tiny_segmenter, channel=1
    )
    session.add_point(at(volume, BALL))
    for ask in (
        lambda: session.volume,
        lambda: session.solver,
        session.predict,
        session.expected_dice,
        session.uncertain_regions,
        lambda: session.add_point(at(volume, BALL)),
    ):
        session.sleep()
        assert session.is_asleep
        assert (session.channel, session.order) == (1, (0, 1, 2))
        ask()
        if ask != session.expected_dice:
            assert not session.is_asleep
    assert session.volume.shape == volume.shape
    assert session.volume.origin_lps == volume.origin_lps


def test_sleep_gives_everything_back_but_packed_voxels(tiny_segmenter: Segmenter) -> None:
    array = np.zeros((40, 80, 80), np.int16)
    array[10:30, 20:60, 20:60] = 100
    store = ImageStore()
    session = InteractiveSession(tiny_segmenter, images=store)
    session.set_volume(Volume(array))
    session.add_point((40, 40, 20))
    session.predict()
    parts = [
        array,
        session.solver.pyramid,
        session.solver.pyramid.levels[1][0],
        next(iter(session.solver.scan.embeddings.values())),
        next(iter(session._answers.values())),
    ]
    gone = [weakref.ref(part) for part in parts]
    awake, prompts = store.scan_bytes, session._history.nbytes
    assert session.kept_bytes > prompts
    gc.collect()
    gc.disable()
    try:
        del parts, array
        session.sleep()
        assert [part() for part in gone] == [None] * 5
    finally:
        gc.enable()
    assert 0 < store.scan_bytes < awake / 20
    assert (store.embedding_bytes, session.kept_bytes) == (0, prompts)
    (size,) = store.sizes()
    assert (size.awake, size.asleep) == (awake, store.scan_bytes)
    session.wake()
    session.predict()
    assert store.scan_bytes == awake


def test_who_shares_a_scan_sleeps_and_wakes_alone(tiny_segmenter: Segmenter) -> None:
    volume, _ = scan()
    store = ImageStore(is_shared=True)
    first, second = (InteractiveSession(tiny_segmenter, images=store) for _ in range(2))
    for session in (first, second):
        session.set_volume(replace(volume, array=volume.array.copy()))
        session.add_point(at(volume, BALL))
    expected, awake = first.predict(), store.scan_bytes
    first.sleep()
    assert store.scan_bytes == awake
    np.testing.assert_array_equal(second.predict(), expected)
    second.sleep()
    assert store.scan_bytes < awake
    first.wake()
    assert second.is_asleep
    np.testing.assert_array_equal(first.predict(), expected)
    assert store.scan_bytes == awake
    # A third one who brings the same scan finds it, and the second finds it awake.
    third = InteractiveSession(tiny_segmenter, images=store)
    third.set_volume(replace(volume, array=volume.array.copy()))
    assert third.solver.pyramid is first.solver.pyramid
    np.testing.assert_array_equal(second.predict(), expected)
    assert second.solver.pyramid is first.solver.pyramid
    first.close()
    second.sleep()
    third.close()
    assert store.scan_bytes < awake
    np.testing.assert_array_equal(second.predict(), expected)
    second.sleep()
    fourth = InteractiveSession(tiny_segmenter, images=store)
    fourth.set_volume(replace(volume, array=volume.array.copy()))
    fourth.add_point(at(volume, BALL))
    np.testing.assert_array_equal(fourth.predict(), expected)
    np.testing.assert_array_equal(second.predict(), expected)
    assert store.scan_bytes == awake


def test_a_scan_without_room_is_refused_and_the_earlier_one_stays(
    tiny_segmenter: Segmenter,
) -> None:
    class Full(Exception):
        pass

    def refuse(needed: int, is_new: bool) -> None:
        requests.append((needed, is_new))
        raise Full

    requests: list[tuple[int, bool]] = []
    volume, _ = scan()
    store = ImageStore(is_shared=True)
    session = InteractiveSession(tiny_segmenter, images=store)
    session.set_volume(volume)
    session.add_point(at(volume, BALL))
    expected, held = session.predict(), store.scan_bytes
    plain, store.make_room = store.make_room, refuse
    with pytest.raises(Full):
        session.set_volume(replace(volume, array=volume.array[::-1]))
    assert store.scan_bytes == held
    assert len(store.sizes()) == 1
    np.testing.assert_array_equal(session.predict(), expected)
    session.sleep()
    asleep = store.scan_bytes
    with pytest.raises(Full):
        session.predict()
    assert requests == [(held - volume.array.nbytes, True), (held, False)]
    assert session.is_asleep
    assert store.scan_bytes == asleep
    store.make_room = plain
    np.testing.assert_array_equal(session.predict(), expected)


def test_a_session_without_volume_does_not_sleep(tiny_segmenter: Segmenter) -> None:
    session = InteractiveSession(tiny_segmenter)
    session.sleep()
    session.wake()
    assert not session.is_asleep
    with pytest.raises(VolumeError, match="No volume"):
        session.add_point((0, 0, 0))
    session.close()


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int16", ">i2", "uint32", "float16", "float32", "<f8", "longdouble"]
)
def test_packed_voxels_come_back_bit_by_bit(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pumit.inference.interactive.image_store._CHUNK_BYTES", 1 << 10)
    rng = np.random.default_rng(0)
    for shape in ((7, 9, 11), (2, 5, 6, 7), (1, 64, 65)):
        array = (rng.normal(size=shape) * 50).astype(dtype)
        for given in (array, np.asfortranarray(array), array[::-1], array[..., ::2]):
            packed = PackedVoxels(given).unpacked()
            assert packed.dtype == given.dtype
            assert packed.tobytes() == given.tobytes()


def test_packed_voxels_keep_what_is_no_number() -> None:
    array = np.array([[[np.nan, -0.0, np.inf, -np.inf]]], np.float32)
    array.view(np.uint32)[0, 0, 0] |= 0x1234  # a payload
    assert PackedVoxels(array).unpacked().tobytes() == array.tobytes()


def test_a_prior_mask_is_kept_packed(tiny_segmenter: Segmenter) -> None:
    volume, _ = scan()
    session = session_on(volume, tiny_segmenter)
    prior = ball().copy()
    session.set_mask_prior(prior)
    prior[:] = False  # the caller's own again
    (prompt,) = session.prompts()
    assert isinstance(prompt, MaskPrompt)
    assert prompt.nbytes < ball().size / 8
    assert session.prompts()[0] is prompt
    np.testing.assert_array_equal(prompt.mask, ball())
    held = prompt.mask
    assert prompt.mask is held


@pytest.mark.parametrize("index", [(0, 0, 0), (-1, -1, -1), (3, slice(None), 5)])
def test_any_mask_is_unpacked_as_it_was(index: tuple[int, ...]) -> None:
    mask = np.zeros((5, 6, 7), dtype=bool)
    mask[index] = True
    packed = MaskPrompt(mask)
    np.testing.assert_array_equal(packed.mask, mask)
    assert packed.mask.dtype == bool
    turned = MaskPrompt(mask.transpose(2, 0, 1))
    np.testing.assert_array_equal(turned.mask, mask.transpose(2, 0, 1))


def test_answers_are_forgotten_by_their_size(
    tiny_segmenter: Segmenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume, _ = scan()
    session = session_on(volume, tiny_segmenter)
    masks = []
    for number in range(6):
        session.add_point(at(volume, (6, 15 + number, 25)))
        masks.append(session.predict())
        if number == 0:
            (size,) = (answer.nbytes for answer in session._answers.values())
            monkeypatch.setattr("pumit.inference.interactive.session.CACHED_ANSWER_BYTES", 3 * size)
    assert len(session._answers) <= 4
    for expected in masks[-2::-1]:
        session.undo()
        np.testing.assert_array_equal(session.predict(), expected)


def test_a_large_answer_is_rated_without_computing_it_again(
    tiny_segmenter: Segmenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rating compares it with the one before, which no limit on their size may drop."""
    volume, _ = scan()
    session = session_on(volume, tiny_segmenter)
    prompts = [PointPrompt(at(volume, (6, 15 + number, 25))) for number in range(4)]
    monkeypatch.setattr("pumit.inference.interactive.session.CACHED_ANSWER_BYTES", 1)
    computed: list[int] = []
    answer = PromptSolver.answer

    def counted(solver: PromptSolver, asked: IndexPrompts, *others: Any) -> SolverState:
        computed.append(len(asked.points))
        return answer(solver, asked, *others)

    monkeypatch.setattr(PromptSolver, "answer", counted)
    for count in range(1, len(prompts) + 1):
        session.answer(prompts[:count])
        session.evidence(prompts[:count])
    assert computed == [1, 2, 3, 4]
