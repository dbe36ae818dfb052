"""Prompts of a session with undo and redo, shared by local and remote sessions."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pumit.errors import PromptError
from pumit.inference.interactive.index_prompts import check_prompt
from pumit.prompts import (
    AnswerPrompt,
    BoxPrompt,
    MaskPrompt,
    PointPrompt,
    Prompt,
    ScribblePrompt,
    without_superseded,
)
from pumit.volume import Frame, Volume

State = dict[str, tuple[Prompt, ...]]

# Approximate bytes of a prompt object, of a point (tuple of three floats), and of a state.
_PROMPT_BYTES, _POINT_BYTES, _STATE_BYTES = 120, 150, 300


def prompt_bytes(prompt: Prompt) -> int:
    """Return the approximate memory of a prompt, bytes."""
    if isinstance(prompt, MaskPrompt):
        return _PROMPT_BYTES + prompt.nbytes
    points = getattr(prompt, "points_lps", getattr(prompt, "corners_lps", (None,)))
    return _PROMPT_BYTES + _POINT_BYTES * len(points)


class PromptHistory:
    """Undo and redo history; the oldest states are dropped to bound memory.

    Attributes:
        state: Prompts by segment; another thread reads the former ones until a change is complete.
    """

    def __init__(self, max_bytes: int = 1 << 28) -> None:
        self._max_bytes = max_bytes
        self.replace({})

    def replace(self, state: State) -> None:
        """Replace the current state and clear the history."""
        self._states, self._present = [state], 0
        # What each state adds to the one before; a session without prompts holds nothing.
        self._sizes = [_added_bytes({}, state) if state else 0]
        self.state = state

    @property
    def nbytes(self) -> int:
        """Approximate memory of all states, bytes."""
        return sum(self._sizes)

    def commit(self, state: State) -> None:
        """Make `state` the current one; the previous one can be restored with `undo`.

        Raises:
            PromptError: If it is too large; nothing changes then.
        """
        added = _added_bytes(self.state, state)
        is_full = self.nbytes + added > self._max_bytes
        if is_full and _added_bytes({}, state) > self._max_bytes:
            raise PromptError(
                "The prompts exceed the memory limit of a session; remove some of them, or open "
                "the scan again."
            )
        self._present += 1
        self._states[self._present :], self._sizes[self._present :] = [state], [added]
        # Keep at least one undo step.
        while self.nbytes > self._max_bytes and self._present > 1:
            dropped = self._present // 2
            del self._states[:dropped], self._sizes[:dropped]
            self._sizes[0] = _added_bytes({}, self._states[0])
            self._present -= dropped
        self.state = state

    def undo(self) -> bool:
        """Return to the previous state; return False if there is none."""
        return self._go_to(self._present - 1)

    def redo(self) -> bool:
        """Return to the next state; return False if there is none."""
        return self._go_to(self._present + 1)

    def _go_to(self, number: int) -> bool:
        if not 0 <= number < len(self._states):
            return False
        self._present, self.state = number, self._states[number]
        return True


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


class PromptedSession(ABC):
    """Prompts of one volume by segment, with undo and redo."""

    def __init__(self) -> None:
        self._history = PromptHistory()

    def __repr__(self) -> str:
        """Return the number of prompts of each segment on one line."""
        counts = [f"{name} ({len(prompts)})" for name, prompts in self._history.state.items()]
        return f"<{type(self).__name__}: prompts of {', '.join(counts) or 'no segment'}>"

    @property
    @abstractmethod
    def volume(self) -> Volume:
        """The open volume."""

    @property
    def segments(self) -> list[str]:
        """Names of the segments that have prompts."""
        return list(self._history.state)

    def prompts(self, segment: str = "1") -> list[Prompt]:
        """Return the prompts of a segment in the order they were given."""
        return list(self._history.state.get(segment, ()))

    def add_point(
        self,
        point: Sequence[float],
        positive: bool = True,
        segment: str = "1",
        *,
        frame: Frame = "LPS",
    ) -> None:
        """Add a click.

        Args:
            point: Coordinates in `frame`.
            positive: Whether it is inside the structure.
            frame: LPS or RAS mm, or array indices (d, h, w).

        Raises:
            PromptError: If it is outside the volume; the message gives the bounds.
        """
        x, y, z = self.volume.to_lps(point, frame).tolist()
        prompt = PointPrompt((x, y, z), positive)
        self.volume.require_inside(prompt.point_lps, frame)
        self.add_prompt(prompt, segment)

    def add_box(
        self,
        lower: Sequence[float],
        upper: Sequence[float],
        segment: str = "1",
        *,
        frame: Frame = "LPS",
    ) -> None:
        """Add a box aligned with the axes of its frame; with one extent zero it is a 2D box.

        Args:
            lower: A corner, coordinates in `frame`.
            upper: The opposite corner.
            frame: LPS or RAS mm, or array indices (d, h, w).

        Raises:
            PromptError: If it has no size or is outside the volume.
        """
        given = BoxPrompt.from_bounds(lower, upper).corners_lps
        places = self.volume.to_lps(given, frame).tolist()
        self.add_prompt(BoxPrompt(tuple((x, y, z) for x, y, z in places)), segment)

    def add_scribble(
        self,
        points: Sequence[Sequence[float]],
        positive: bool = True,
        segment: str = "1",
        *,
        frame: Frame = "LPS",
    ) -> None:
        """Add a polyline drawn inside or outside the structure, (N, 3); see `add_point`."""
        places = self.volume.to_lps(points, frame).tolist()
        self.add_prompt(ScribblePrompt(tuple((x, y, z) for x, y, z in places), positive), segment)

    def set_mask_prior(self, mask: npt.ArrayLike, segment: str = "1") -> None:
        """Start from a mask, bool (D, H, W); it replaces the effect of earlier prompts.

        Raises:
            PromptError: If it is empty, has several values or does not fit the volume.
        """
        given = np.asarray(mask)
        if given.dtype != np.bool_ and len(values := np.unique(given[given != 0])) > 1:
            raise PromptError(
                f"The prior mask has {len(values)} values beside 0: give one structure, such as "
                "labels == 2 or probabilities > 0.5."
            )
        self.add_prompt(MaskPrompt(given.astype(bool)), segment)

    def add_prompt(self, prompt: Prompt, segment: str = "1") -> None:
        """Add any prompt to a segment.

        Raises:
            PromptError: If it does not fit the volume; nothing changes then.
        """
        self.add_prompts([prompt], segment)

    def add_prompts(self, prompts: Sequence[Prompt], segment: str = "1") -> None:
        """Add several prompts to a segment as one undo step.

        Raises:
            PromptError: If one of them does not fit the volume; nothing changes then.
        """
        for prompt in prompts:
            self._check_prompt(prompt)
        if prompts:
            state = self._history.state
            self._history.commit({**state, segment: (*state.get(segment, ()), *prompts)})

    def remove_prompt(self, position: int, segment: str = "1") -> None:
        """Remove one prompt of a segment by its index in `prompts`.

        Raises:
            PromptError: If there is no such prompt.
        """
        prompts = self._history.state.get(segment, ())
        if not 0 <= position < len(prompts):
            raise PromptError(f"Segment {segment!r} has no prompt {position}.")
        # A later choice among answers no longer applies.
        later = (p for p in prompts[position + 1 :] if not isinstance(p, AnswerPrompt))
        rest = (*prompts[:position], *later)
        if rest:
            self._history.commit({**self._history.state, segment: rest})
        else:
            self.reset(segment)

    @abstractmethod
    def answer_count(self, segment: str = "1") -> int:
        """Return how many alternative answers the prompts of a segment have."""

    def choose_answer(self, number: int, segment: str = "1") -> None:
        """Select an alternative answer to a first prompt; later prompts refine the selected one.

        Args:
            number: Number of the answer, from 1 (best score) to `answer_count`.

        Raises:
            PromptError: If there is no such answer; nothing changes then.
        """
        count = self.answer_count(segment)
        if not 1 <= number <= count:
            known = "one answer; only a first prompt has several"
            if count > 1:
                known = f"{count} different answers; choose one from 1 to {count}"
            raise PromptError(f"There is no answer {number}: these prompts have {known}.")
        state = self._history.state
        chosen = without_superseded([*state.get(segment, ()), AnswerPrompt(number)])
        self._history.commit({**state, segment: tuple(chosen)})

    def keep_prompts(self, count: int, segment: str = "1") -> None:
        """Keep the first `count` prompts of a segment; drop the others and the undo history."""
        state = self._history.state
        kept = {**state, segment: state.get(segment, ())[: max(count, 0)]}
        self._history.replace({name: prompts for name, prompts in kept.items() if prompts})

    def undo(self) -> bool:
        """Undo the last change of the prompts; return False if there is none."""
        return self._history.undo()

    def redo(self) -> bool:
        """Redo the last undone change; return False if there is none."""
        return self._history.redo()

    def reset(self, segment: str | None = None) -> None:
        """Remove the prompts of one segment, or of all. Can be undone."""
        state = self._history.state
        rest = {} if segment is None else {k: v for k, v in state.items() if k != segment}
        if rest != state:
            self._history.commit(rest)

    def _check_prompt(self, prompt: Prompt) -> None:
        check_prompt(prompt, self.volume)
