"""Undo and redo against a plain list of everything that ever was."""

import numpy as np
from draws import draws
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from PUMITSegmentLib.masks.history import History, SegmentState
from PUMITSegmentLib.segments.packed_mask import PackedMask

SHAPE = (3, 8, 8)


def state(number: int) -> SegmentState:
    """A state that differs for each number, with a mask that takes some memory."""
    mask = np.random.default_rng(number).random(SHAPE) < 0.5
    return SegmentState(("prompts", number), PackedMask.of(mask))


class HistoryMachine(RuleBasedStateMachine):
    """`History` compared with a list of whole scenes and a position in it."""

    def __init__(self) -> None:
        super().__init__()
        self.history = History(maxBytes=1 << 20)
        self.scenes: list[dict[str, SegmentState | None]] = [{}]
        self.at = 0
        self.count = 0

    def fresh(self) -> SegmentState:
        self.count += 1
        return state(self.count)

    def _record(self, states: dict[str, SegmentState | None]) -> None:
        before = self.scenes[self.at]
        after = {**before, **states}
        changed = any(before.get(k) != v for k, v in states.items())
        assert self.history.record(states) is changed
        if changed:
            self.scenes[self.at + 1 :] = [after]
            self.at += 1

    @rule(segments=st.sets(st.sampled_from("abc"), min_size=1))
    def change(self, segments: set[str]) -> None:
        self._record({segment: self.fresh() for segment in segments})

    @rule(segment=st.sampled_from("abc"))
    def change_nothing(self, segment: str) -> None:
        self._record({segment: self.scenes[self.at].get(segment)})

    @rule(segment=st.sampled_from("abc"))
    def remove(self, segment: str) -> None:
        self._record({segment: None})

    @rule(segment=st.sampled_from("abc"))
    def amend(self, segment: str) -> None:
        """An answer arrives: the same moment, wherever it shows, has another mask."""
        old, new = self.scenes[self.at].get(segment), self.fresh()
        if old is None:
            return
        self.history.amend(segment, new)
        for scene in self.scenes:
            if scene.get(segment) is old:
                scene[segment] = new

    def _restored(self, got: dict[str, SegmentState | None] | None, at: int) -> None:
        assert got is not None
        before, after = self.scenes[self.at], self.scenes[at]
        assert {k for k in "abc" if before.get(k) != after.get(k)} == set(got)
        assert {k: after.get(k) for k in got} == got
        self.at = at

    @precondition(lambda self: self.at > 0)
    @rule()
    def undo(self) -> None:
        self._restored(self.history.undo(), self.at - 1)

    @precondition(lambda self: self.at < len(self.scenes) - 1)
    @rule()
    def redo(self) -> None:
        self._restored(self.history.redo(), self.at + 1)

    @invariant()
    def knows_the_present_and_where_it_can_go(self) -> None:
        assert self.history.canUndo == (self.at > 0)
        assert self.history.canRedo == (self.at < len(self.scenes) - 1)
        for segment in "abc":
            assert self.history.present(segment) == self.scenes[self.at].get(segment)

    @invariant()
    def says_nothing_where_there_is_nothing(self) -> None:
        if self.at == 0:
            assert self.history.undo() is None
        if self.at == len(self.scenes) - 1:
            assert self.history.redo() is None


TestHistory = HistoryMachine.TestCase
TestHistory.settings = settings(max_examples=draws(20), stateful_step_count=30, deadline=None)


@given(count=st.integers(1, 30), levels=st.integers(1, 12), undone=st.integers(0, 12))
def test_memory_is_bounded_and_the_latest_levels_stay(count, levels, undone):
    size = max(state(i).byteCount for i in range(1, 31))
    history = History(maxBytes=size * levels)
    for number in range(1, count + 1):
        history.record({"a": state(number)})
        assert history.byteCount <= size * max(levels, 2)
    back = []
    while (states := history.undo()) is not None and len(back) < undone:
        back.append(states["a"])
    expected = [state(n) if n else None for n in range(count - 1, -1, -1)]
    assert back == expected[: len(back)]
    if undone:
        assert back  # the last step can be undone, however little memory there is


@given(mask=arrays(bool, array_shapes(min_dims=3, max_dims=3, max_side=9)))
def test_masks_come_back_as_they_were(mask):
    packed = PackedMask.of(mask)
    np.testing.assert_array_equal(packed.mask(), mask)
    assert packed == PackedMask.of(mask.copy())
    assert packed != PackedMask.of(~mask)


def test_a_packed_mask_is_small():
    mask = np.zeros((96, 96, 96), dtype=bool)
    mask[20:60, 20:60, 20:60] = True
    assert PackedMask.of(mask).byteCount < mask.nbytes / 500
