"""Identical scans are held once, and nothing else is."""

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest
from ball_scan import BALL, OBLIQUE, at, many_prompts, scan, session_on
from pumit.errors import VolumeError
from pumit.inference.interactive.image_store import ImageStore
from pumit.inference.interactive.prompt_solver import PromptSolver
from pumit.inference.interactive.segmenter import Segmenter
from pumit.inference.interactive.session import InteractiveSession
from pumit.preprocessing.fields import Field, Pyramid, level_bytes
from pumit.volume import Volume


@pytest.fixture
def store() -> ImageStore:
    return ImageStore(is_shared=True)


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Every field that is embedded."""
    fields: list[object] = []
    plain = PromptSolver._encoded

    def encoded(self: PromptSolver, pyramid: Pyramid, field: Field) -> object:
        fields.append(field)
        return plain(self, pyramid, field)

    monkeypatch.setattr(PromptSolver, "_encoded", encoded)
    return fields


def copied(volume: Volume, **changes: object) -> Volume:
    """As another client would send it: equal numbers in another place of memory."""
    return replace(volume, **{"array": volume.array.copy(), **changes})  # type: ignore[arg-type]


def open_sessions(
    segmenter: Segmenter, store: ImageStore, *volumes: Volume
) -> list[InteractiveSession]:
    sessions = [InteractiveSession(segmenter, images=store) for _ in volumes]
    for session, volume in zip(sessions, volumes, strict=True):
        session.set_volume(volume)
    return sessions


def test_the_same_scan_is_embedded_once(tiny_segmenter, store, embedded):
    volume, _ = scan()
    first, second = open_sessions(tiny_segmenter, store, volume, copied(volume))
    assert len(embedded) == 1
    assert second.volume.array is first.volume.array
    for session in (first, second):
        session.add_point(at(volume, BALL))
    first.predict()
    count = len(embedded)
    second.predict()
    assert len(embedded) == count
    assert store.scan_bytes == volume.array.nbytes + level_bytes(volume.shape, volume.spacing_mm)
    session_on(volume, tiny_segmenter)  # sessions of the library share nothing
    assert len(embedded) == count + 1


def test_masks_are_the_same_bit_by_bit_with_and_without_sharing(tiny_segmenter, store):
    volume, _ = scan(OBLIQUE)
    alone = session_on(volume, tiny_segmenter)
    other, shared = open_sessions(tiny_segmenter, store, copied(volume), copied(volume))
    prompts = many_prompts(volume)
    for number, given in enumerate((prompts[:2], prompts[2:7])):
        for session in (alone, shared):
            session.add_prompts(given)
        other.add_point(at(volume, (number, 9, 30)))
        other.predict()
        np.testing.assert_array_equal(shared.predict(), alone.predict())
        assert shared.estimated_iou() == alone.estimated_iou()


def test_each_session_keeps_its_place_in_the_world(tiny_segmenter, store):
    volume, _ = scan()
    moved = copied(volume, origin_lps=(5.0, -6.0, 7.0), direction=OBLIQUE)
    first, second = open_sessions(tiny_segmenter, store, volume, moved)
    assert second.solver.pyramid is first.solver.pyramid
    assert second.volume.origin_lps == (5.0, -6.0, 7.0)
    np.testing.assert_array_equal(second.volume.direction, OBLIQUE)
    first.add_point(at(volume, BALL))
    second.add_point(at(moved, BALL))
    np.testing.assert_array_equal(first.predict(), second.predict())


def other_voxel(volume: Volume) -> Volume:
    array = volume.array.copy()
    array[-1, -1, -1] += 1
    return replace(volume, array=array)


@pytest.mark.parametrize(
    "change",
    [
        other_voxel,
        lambda v: replace(v, array=v.array.astype(np.int32)),
        lambda v: replace(v, array=v.array.reshape(12, 44, 36)),
        lambda v: replace(v, array=v.array.transpose(0, 2, 1)),
        lambda v: replace(v, array=v.array[None]),
        lambda v: replace(v, spacing_mm=(3.0, 1.0, 1.0000001)),
    ],
    ids=["voxel", "dtype", "shape", "order", "axes", "spacing"],
)
def test_whatever_differs_is_not_shared(tiny_segmenter, store, embedded, change):
    volume, _ = scan()
    first, second = open_sessions(tiny_segmenter, store, volume, change(volume))  # type: ignore[operator]
    assert second.solver.pyramid is not first.solver.pyramid
    assert len(embedded) == 2


def test_channels_share_voxels_and_nothing_else(tiny_segmenter, store):
    volume, _ = scan()
    array = np.stack([volume.array, volume.array[::-1]])
    first, second, third = (InteractiveSession(tiny_segmenter, images=store) for _ in range(3))
    for session, channel in ((first, 0), (second, 1), (third, 1)):
        session.set_volume(replace(volume, array=array.copy()), channel=channel)
        session.add_point(at(volume, BALL))
    assert first.volume.array is second.volume.array
    assert first.solver.pyramid is not second.solver.pyramid
    assert third.solver.pyramid is second.solver.pyramid
    assert not np.array_equal(first.predict(), second.predict())
    alone = session_on(replace(volume, array=array[1]), tiny_segmenter)
    alone.add_point(at(volume, BALL))
    np.testing.assert_array_equal(second.predict(), alone.predict())


def test_a_hash_means_nothing_in_another_process():
    volume, _ = scan()
    first, second = (ImageStore(is_shared=True) for _ in range(2))
    assert first._hash(volume.array) == first._hash(volume.array.copy())
    assert first._hash(volume.array) != second._hash(volume.array)
    assert first._hash(volume.array) == first._hash(np.asfortranarray(volume.array))


def test_the_last_one_who_leaves_takes_the_scan_along(tiny_segmenter, store):
    volume, _ = scan()
    first, second = open_sessions(tiny_segmenter, store, volume, copied(volume))
    voxels, image = weakref.ref(volume.array), weakref.ref(first.solver.pyramid)
    del volume
    gc.collect()
    gc.disable()
    try:
        first.close()
        second.add_point(at(second.volume, BALL))
        assert second.predict().any()
        assert voxels() is not None
        del second  # without a word
        assert voxels() is None
        assert image() is None
    finally:
        gc.enable()
    assert (store.scan_bytes, store.embedding_bytes, store.sizes()) == (0, 0, [])


def test_a_new_scan_takes_the_place_of_the_old(tiny_segmenter, store):
    volume, _ = scan()
    (session,) = open_sessions(tiny_segmenter, store, volume)
    bytes_of_one = store.scan_bytes
    session.set_volume(other_voxel(volume))
    assert store.scan_bytes == bytes_of_one
    with pytest.raises(VolumeError, match="same value"):
        session.set_volume(replace(volume, array=np.zeros_like(volume.array)))
    assert store.scan_bytes == bytes_of_one
    assert session.volume.array[-1, -1, -1] == volume.array[-1, -1, -1] + 1


def test_embeddings_of_all_images_are_bounded_together(tiny_segmenter, store):
    volume, _ = scan()
    first, second = open_sessions(tiny_segmenter, store, volume, other_voxel(volume))
    (where, embedding), *_ = first.solver.scan.embeddings.items()
    one = embedding.nbytes
    assert store.embedding_bytes == 2 * one
    first.solver.embedding(where)  # that which was used last is kept longest
    store.shrink_embeddings(one)
    assert list(first.solver.scan.embeddings) == [where]
    assert not second.solver.scan.embeddings
    store.set_max_embedding_bytes(3 * one)
    expected = []
    for session in (first, second, first):
        session.add_point(at(volume, BALL))
        expected.append(session.predict())
        assert store.embedding_bytes <= 3 * one
    # What was dropped is computed again, and the same.
    store.shrink_embeddings(0)
    assert store.embedding_bytes == 0
    assert not first.solver.scan.embeddings
    first.forget_answers()
    np.testing.assert_array_equal(first.predict(), expected[2])


def test_levels_take_what_was_foreseen():
    rng = np.random.default_rng(0)
    for shape, spacing in (
        ((9, 128, 100), (5.0, 0.7, 0.7)),
        ((1, 65, 64), (1e8, 1.0, 1.0)),
        ((70, 40, 12), (0.5, 2.0, 2.0)),
    ):
        levels = Pyramid(rng.normal(size=shape), spacing).levels
        made = sum(level.nbytes for level, _ in levels if level is not None)
        assert level_bytes(shape, spacing) == made
