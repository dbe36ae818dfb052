"""The single object that a viewer of the nnInteractive protocol works on.

The viewer holds a target buffer and receives the box of it that changed. The server keeps the same
mask, packed, and the masks of earlier steps for undo.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pumit.prompts import MaskPrompt, Prompt
from pumit.wire.prompt_answer import BoundingBox, Mask, bounding_box, box_slices, packed_bits

# Limits of undo; a packed mask of a large organ takes 1 MB, of a whole body 20 MB.
_KEPT_STEPS = 64
_KEPT_BYTES = 1 << 26


@dataclass(frozen=True, eq=False)
class ObjectMask:
    """A mask, as packed bits of its bounding box.

    Attributes:
        box: Half-open range on each axis; None for an empty mask.
    """

    box: BoundingBox | None = None
    bits: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))

    @staticmethod
    def of(mask: Mask) -> ObjectMask:
        """Pack a mask, shape (D, H, W)."""
        box, bits = packed_bits(mask)
        return ObjectMask() if bits is None else ObjectMask(box, bits)

    def within(self, box: BoundingBox) -> Mask:
        """Unpack the mask into a box that contains it."""
        out = np.zeros([stop - start for start, stop in box], dtype=bool)
        if self.box is not None:
            inside = out[box_slices(self.box, [start for start, _ in box])]
            inside[:] = np.unpackbits(self.bits, count=inside.size).reshape(inside.shape)
        return out


def change(before: ObjectMask, after: ObjectMask) -> tuple[BoundingBox, Mask] | None:
    """Compute the difference of two masks on one grid.

    Returns:
        The bounding box of all differences and the later mask in it; None if the masks are equal.
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
    return box, later[box_slices(inner)]


@dataclass(frozen=True, eq=False)
class _Step:
    mask: ObjectMask
    answered: tuple[Prompt, ...]
    prompts: tuple[Prompt, ...]
    changes: int


class ViewerObject:
    """The contents of a target buffer, and the steps that led to them."""

    def __init__(self, dtype: np.dtype[np.generic]) -> None:
        self.dtype = dtype
        self.mask = ObjectMask()
        self._answered: tuple[Prompt, ...] = ()
        self._steps: list[_Step] = []

    @property
    def nbytes(self) -> int:
        """Size of the mask, of the masks of undo steps and of mask prompts, bytes."""
        masks = {id(mask): mask for mask in (self.mask, *(step.mask for step in self._steps))}
        kept = [self._answered, *(p for step in self._steps for p in (step.answered, step.prompts))]
        priors = {id(p): p for prompts in kept for p in prompts if isinstance(p, MaskPrompt)}
        return sum(mask.bits.nbytes for mask in masks.values()) + sum(
            prior.nbytes for prior in priors.values()
        )

    def is_answered(self, prompts: Sequence[Prompt]) -> bool:
        """Return whether the mask is the answer to these prompts."""
        return self._answered == tuple(prompts)

    def begin(self, changes: int, prompts: Sequence[Prompt]) -> None:
        """Begin an undo step.

        Args:
            changes: Number of changes in the session's history that the step makes.
        """
        self._steps.append(_Step(self.mask, self._answered, tuple(prompts), changes))
        del self._steps[:-_KEPT_STEPS]
        while self.nbytes > _KEPT_BYTES and len(self._steps) > 1:
            del self._steps[0]

    def settle(self, mask: ObjectMask, prompts: Sequence[Prompt]) -> None:
        """Set the answer to prompts."""
        self.mask, self._answered = mask, tuple(prompts)

    @property
    def changes(self) -> int | None:
        """Number of session changes in the last step; None without a step."""
        return self._steps[-1].changes if self._steps else None

    def undo_step(self, prompts: Sequence[Prompt]) -> bool:
        """Restore the state before the last step.

        Returns:
            Whether they are the prompts before the step. If not, another client has changed the
            session, and no step can be undone any more.
        """
        step = self._steps.pop()
        if step.prompts != tuple(prompts):
            self._steps.clear()
            return False
        self.mask, self._answered = step.mask, step.answered
        return True

    def renew(self, dtype: np.dtype[np.generic]) -> None:
        """Continue with a new, empty buffer."""
        self.dtype, self.mask = dtype, ObjectMask()

    def clear(self) -> None:
        """Start a new object: an empty mask and no undo steps."""
        self.mask, self._answered = ObjectMask(), ()
        self._steps.clear()
