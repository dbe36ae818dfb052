"""Undo and redo history of the prompts of all segments."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from pumit.errors import PromptError
from pumit.inference.interactive.packed_mask import PackedMaskPrompt
from pumit.prompts import BoxPrompt, MaskPrompt, Prompt, ScribblePrompt

State = dict[str, tuple[Prompt, ...]]

# Approximate bytes of a prompt object, of a point (tuple of three floats), and of a state.
_PROMPT_BYTES, _POINT_BYTES, _STATE_BYTES = 120, 150, 300


def prompt_bytes(prompt: Prompt) -> int:
    """Return the approximate memory of a prompt, bytes."""
    if isinstance(prompt, PackedMaskPrompt):
        return _PROMPT_BYTES + prompt.nbytes
    if isinstance(prompt, MaskPrompt):
        return _PROMPT_BYTES + prompt.mask.nbytes
    if isinstance(prompt, ScribblePrompt):
        return _PROMPT_BYTES + _POINT_BYTES * len(prompt.points_lps)
    if isinstance(prompt, BoxPrompt):
        return _PROMPT_BYTES + _POINT_BYTES * len(prompt.corners_lps)
    return _PROMPT_BYTES + _POINT_BYTES


@dataclass(frozen=True)
class _Step:
    """A state, and the bytes it adds to the previous one."""

    state: State
    nbytes: int


class PromptHistory:
    """Undo and redo history; the oldest states are dropped to bound memory."""

    def __init__(self, max_bytes: int = 1 << 28) -> None:
        self._max_bytes = max_bytes
        self._present = _Step({}, 0)
        self._past: list[_Step] = []
        self._future: list[_Step] = []
        self.nbytes = 0

    @property
    def state(self) -> State:
        """Prompts by segment."""
        return self._present.state

    def commit(self, state: State) -> None:
        """Make `state` the current one; the previous one can be restored with `undo`.

        Raises:
            PromptError: If it is too large; nothing changes then.
        """
        step = _Step(state, _added_bytes(self._present.state, state))
        if self.nbytes + step.nbytes > self._max_bytes:
            alone = _added_bytes({}, state)
            if alone > self._max_bytes:
                raise PromptError(
                    "The prompts exceed the memory limit of a session; remove some of them, or "
                    "open the scan again."
                )
        self.nbytes += step.nbytes - sum(later.nbytes for later in self._future)
        self._past.append(self._present)
        self._future.clear()
        self._present = step
        # Keep at least one undo step.
        while self.nbytes > self._max_bytes and len(self._past) > 1:
            del self._past[: len(self._past) // 2]
            self._count()

    def replace(self, state: State) -> None:
        """Replace the current state and clear the history."""
        self._present = _Step(state, 0)
        self._past, self._future = [], []
        self._count()

    def undo(self) -> bool:
        """Return to the previous state; return False if there is none."""
        if not self._past:
            return False
        self._future.append(self._present)
        self._present = self._past.pop()
        return True

    def redo(self) -> bool:
        """Return to the next state; return False if there is none."""
        if not self._future:
            return False
        self._past.append(self._present)
        self._present = self._future.pop()
        return True

    def _count(self) -> None:
        """Recompute the size of every step and the total."""
        before: State = {}
        steps = [*self._past, self._present, *reversed(self._future)]
        counted = []
        for step in steps:
            counted.append(_Step(step.state, _added_bytes(before, step.state)))
            before = step.state
        self.nbytes = sum(step.nbytes for step in counted)
        at = len(self._past)
        self._past, self._present = counted[:at], counted[at]
        self._future = counted[at + 1 :][::-1]


def _added_bytes(before: State, after: State) -> int:
    total = _STATE_BYTES
    for segment, prompts in after.items():
        earlier = before.get(segment, ())
        if prompts is earlier:
            continue
        known = set(map(id, earlier))
        total += sys.getsizeof(prompts)
        total += sum(prompt_bytes(prompt) for prompt in prompts if id(prompt) not in known)
    return total
