"""The one object that a viewer of the nnInteractive protocol works on.

Such a viewer holds a target buffer and receives the box that changed in it. The server keeps the
same mask, packed, and what each undo brings back.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pumit.prompts import MaskPrompt, Prompt
from pumit.wire.masks import BoundingBox, Mask, bounding_box

# Steps that can be undone; a packed mask of a large organ is a megabyte, of a whole body 20.
_KEPT_STEPS = 64
_KEPT_BYTES = 1 << 26


@dataclass(frozen=True, eq=False)
class ObjectMask:
    """A mask as the bits of its bounding box.

    Attributes:
        box: Half-open range on each axis, or None where nothing is set.
        bits: Packed bits inside the box.
    """

    box: BoundingBox | None = None
    bits: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))

    @staticmethod
    def of(mask: Mask) -> ObjectMask:
        """Pack a mask, shape (D, H, W)."""
        box = bounding_box(mask)
        return ObjectMask() if box is None else ObjectMask(box, np.packbits(mask[_slices(box)]))

    def within(self, box: BoundingBox) -> Mask:
        """Return the mask in a box that holds all of it."""
        out = np.zeros([stop - start for start, stop in box], dtype=bool)
        if self.box is not None:
            extent = [stop - start for start, stop in self.box]
            bits = np.unpackbits(self.bits, count=math.prod(extent)).reshape(extent)
            out[_slices(self.box, [start for start, _ in box])] = bits
        return out


def change(before: ObjectMask, after: ObjectMask) -> tuple[BoundingBox, Mask] | None:
    """Where two masks on one grid differ.

    Returns:
        The smallest box that holds every difference, and the later mask in it; None where they
        are the same.
    """
    boxes = [mask.box for mask in (before, after) if mask.box is not None]
    if not boxes:
        return None
    both = [
        [min(box[axis][0] for box in boxes), max(box[axis][1] for box in boxes)]
        for axis in range(3)
    ]
    later = after.within(both)
    inner = bounding_box(before.within(both) ^ later)
    if inner is None:
        return None
    shifts = [start for start, _ in both]
    box = [[a + shift, b + shift] for (a, b), shift in zip(inner, shifts, strict=True)]
    return box, later[_slices(inner)]


# A prior mask is as large as its scan: remembered only while its session holds it.
_Mark = Prompt | weakref.ref[MaskPrompt]


@dataclass(frozen=True, eq=False)
class _Step:
    mask: ObjectMask
    answered: tuple[_Mark, ...]
    prompts: tuple[_Mark, ...]
    changes: int


class ViewerObject:
    """The contents of a target buffer, and the interactions that made them.

    Args:
        dtype: The buffer's type; answers travel in it.
    """

    def __init__(self, dtype: np.dtype[np.generic]) -> None:
        self.dtype = dtype
        self.mask = ObjectMask()
        self._answered: tuple[_Mark, ...] = ()
        self._steps: list[_Step] = []

    @property
    def nbytes(self) -> int:
        """Memory of the mask and of those that can be brought back, bytes."""
        masks = {id(mask): mask for mask in (self.mask, *(step.mask for step in self._steps))}
        return sum(mask.bits.nbytes for mask in masks.values())

    def is_answered(self, prompts: Sequence[Prompt]) -> bool:
        """Return whether the mask is the answer to these prompts already."""
        return _are_marks_of(self._answered, prompts)

    def begin(self, changes: int, prompts: Sequence[Prompt]) -> None:
        """Note that a step has begun.

        Args:
            changes: Number of the session's own changes that it consists of.
            prompts: Those before it.
        """
        self._steps.append(_Step(self.mask, self._answered, _marks(prompts), changes))
        del self._steps[:-_KEPT_STEPS]
        while self.nbytes > _KEPT_BYTES and len(self._steps) > 1:
            del self._steps[0]

    def settle(self, mask: ObjectMask, prompts: Sequence[Prompt]) -> None:
        """Take the answer to prompts."""
        self.mask, self._answered = mask, _marks(prompts)

    @property
    def changes(self) -> int | None:
        """How many of the session's own changes the last step consists of; None without one."""
        return self._steps[-1].changes if self._steps else None

    def undo_step(self, prompts: Sequence[Prompt]) -> bool:
        """Return to before the last step.

        Args:
            prompts: Prompts of the session without that step's changes.

        Returns:
            Whether these are the prompts that it began with. If not, someone has changed the
            session together with the viewer, and no step can be undone any more.
        """
        step = self._steps.pop()
        if not _are_marks_of(step.prompts, prompts):
            self._steps.clear()
            return False
        self.mask, self._answered = step.mask, step.answered
        return True

    def renew(self, dtype: np.dtype[np.generic]) -> None:
        """Continue with another buffer, in which nothing is written yet."""
        self.dtype, self.mask = dtype, ObjectMask()

    def clear(self) -> None:
        """Begin a new object: an empty mask, and nothing to take back."""
        self.mask, self._answered = ObjectMask(), ()
        self._steps.clear()


def _marks(prompts: Sequence[Prompt]) -> tuple[_Mark, ...]:
    return tuple(weakref.ref(p) if isinstance(p, MaskPrompt) else p for p in prompts)


def _are_marks_of(marks: Sequence[_Mark], prompts: Sequence[Prompt]) -> bool:
    return len(marks) == len(prompts) and all(map(_is_mark_of, marks, prompts))


def _is_mark_of(mark: _Mark, prompt: Prompt) -> bool:
    return mark() is prompt if isinstance(mark, weakref.ref) else mark == prompt


def _slices(box: BoundingBox, origin: Sequence[int] = (0, 0, 0)) -> tuple[slice, ...]:
    return tuple(slice(a - o, b - o) for (a, b), o in zip(box, origin, strict=True))
