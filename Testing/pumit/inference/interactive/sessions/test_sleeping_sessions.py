"""A session that slept answers as before, and takes little memory while it sleeps."""

import gc
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ball_scan import BALL, OBLIQUE, at, many_prompts, scan, session_on
from pumit.errors import ExportError
from pumit.export.nifti import nifti_bytes
from pumit.inference.interactive.image_store import ImageStore, PackedVoxels
from pumit.inference.interactive.index_prompts import IndexPrompts
from pumit.inference.interactive.prompt_solver import PromptSolver
from pumit.inference.interactive.session import InteractiveSession
from pumit.inference.interactive.solver_state import SolverState
from pumit.prompts import PointPrompt
from pumit.simple import save
from pumit.volume import Volume


def test_masks_after_sleep_are_the_same_bit_by_bit(tiny_segmenter):
    volume, _ = scan(OBLIQUE)
    restless, awake = (session_on(volume, tiny_segmenter) for _ in range(2))
    prompts = many_prompts(volume)
    for given in (prompts[:2], prompts[2:7]):
        for session in (restless, awake):
            session.add_prompts(given)
        restless.sleep()
        assert restless.is_asleep
        np.testing.assert_array_equal(restless.predict(), awake.predict())
        assert restless.estimated_iou() == awake.estimated_iou()
        assert not restless.is_asleep


def test_undo_redo_and_segments_survive_sleep(tiny_segmenter):
    volume, _ = scan()
    session = session_on(volume, tiny_segmenter)
    masks = []
    for prompt in many_prompts(volume)[6:]:
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


def test_a_scan_is_not_overwritten_after_sleep(tiny_segmenter, tmp_path):
    volume, ball = scan()
    path = tmp_path / "scan.nii.gz"
    path.write_bytes(nifti_bytes(volume.array, volume))
    session = session_on(Volume.read(path), tiny_segmenter)
    session.sleep()
    with pytest.raises(ExportError, match="scan"):
        save(ball, session.volume, path)


def test_whatever_is_requested_wakes_a_session(tiny_segmenter):
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


def test_sleep_gives_everything_back_but_packed_voxels(tiny_segmenter):
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


def test_who_shares_a_scan_sleeps_and_wakes_alone(tiny_segmenter):
    volume, _ = scan()
    store = ImageStore(is_shared=True)

    def opened() -> InteractiveSession:
        session = InteractiveSession(tiny_segmenter, images=store)
        session.set_volume(replace(volume, array=volume.array.copy()))
        session.add_point(at(volume, BALL))
        return session

    first, second = opened(), opened()
    expected, awake = first.predict(), store.scan_bytes
    first.sleep()
    assert store.scan_bytes == awake
    np.testing.assert_array_equal(second.predict(), expected)
    second.sleep()
    assert store.scan_bytes < awake
    first.wake()
    assert second.is_asleep
    np.testing.assert_array_equal(first.predict(), expected)
    # A third one who brings the same scan finds it, and the second finds it awake.
    third = opened()
    np.testing.assert_array_equal(second.predict(), expected)
    assert third.solver.pyramid is second.solver.pyramid is first.solver.pyramid
    for session in (first, third):
        session.close()
    second.sleep()
    assert store.scan_bytes < awake
    # Who brings a scan that only sleepers have wakes it for all.
    np.testing.assert_array_equal(opened().predict(), expected)
    np.testing.assert_array_equal(second.predict(), expected)


def test_a_scan_without_room_is_refused_and_the_earlier_one_stays(tiny_segmenter):
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


@pytest.mark.parametrize("dtype", ["bool", "uint8", ">i2", "float32", "longdouble"])
def test_packed_voxels_come_back_bit_by_bit(dtype, monkeypatch):
    monkeypatch.setattr("pumit.wire.arrays._CHUNK_BYTES", 1 << 10)
    rng = np.random.default_rng(0)
    for shape in ((7, 9, 11), (2, 5, 6, 7), (1, 64, 65)):
        array = (rng.normal(size=shape) * 50).astype(dtype)
        for given in (array, np.asfortranarray(array), array[::-1], array[..., ::2]):
            packed = PackedVoxels(given).unpacked()
            assert packed.dtype == given.dtype
            assert packed.tobytes() == given.tobytes()


def test_packed_voxels_keep_what_is_no_number():
    array = np.array([[[np.nan, -0.0, np.inf, -np.inf]]], np.float32)
    array.view(np.uint32)[0, 0, 0] |= 0x1234  # a payload
    assert PackedVoxels(array).unpacked().tobytes() == array.tobytes()


def test_a_large_answer_is_rated_without_computing_it_again(tiny_segmenter, monkeypatch):
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
