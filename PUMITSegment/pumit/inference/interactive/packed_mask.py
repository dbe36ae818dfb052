"""Mask prompts stored as packed bits and compared by hash."""

from __future__ import annotations

import hashlib
import math
import weakref

import numpy as np
import numpy.typing as npt

from pumit.errors import PromptError
from pumit.geometry import window_of
from pumit.prompts import (
    AnswerPrompt,
    BoxPrompt,
    MaskPrompt,
    PointPrompt,
    Prompt,
    ScribblePrompt,
)

Mask = npt.NDArray[np.bool_]


class PackedMaskPrompt(MaskPrompt):
    """A `MaskPrompt` stored as the bits of its bounding box; equal masks are equal prompts.

    Args:
        mask: bool (D, H, W) with at least one true voxel.

    Raises:
        PromptError: If the mask is empty.
    """

    def __init__(self, mask: Mask) -> None:
        box = window_of(mask)
        if box is None:
            raise PromptError("The prior mask is empty; draw something first.")
        inside = mask[box]
        self.__dict__.update(
            _shape=mask.shape, _box=box, _extent=inside.shape, _bits=np.packbits(inside)
        )
        self.__dict__["_unpacked"] = None

    @property
    def mask(self) -> Mask:
        """The whole mask; unpacked on demand and shared while referenced."""
        held: weakref.ref[Mask] | None = self.__dict__["_unpacked"]
        mask = None if held is None else held()
        if mask is None:
            own = self.__dict__
            mask = np.zeros(own["_shape"], dtype=bool)
            bits = np.unpackbits(own["_bits"], count=math.prod(own["_extent"]))
            mask[own["_box"]] = bits.reshape(own["_extent"]).view(bool)
            own["_unpacked"] = weakref.ref(mask)
        return mask

    @property
    def sha256(self) -> str:
        """Hash of the grid, the box and the packed bits."""
        own = self.__dict__
        if "_sha256" not in own:
            bounds = [(axis.start, axis.stop) for axis in own["_box"]]
            place = repr((tuple(map(int, own["_shape"])), bounds)).encode()
            own["_sha256"] = hashlib.sha256(place + own["_bits"].tobytes()).hexdigest()
        return str(own["_sha256"])

    def __eq__(self, other: object) -> bool:
        """Return whether another prompt is the same mask on the same grid."""
        return self is other or (
            isinstance(other, PackedMaskPrompt) and self.sha256 == other.sha256
        )

    def __hash__(self) -> int:
        return hash(self.sha256)

    def to_dict(self) -> dict[str, str]:
        """Return the JSON form: the hash only, for a reader that has the mask."""
        return {"kind": "mask", "sha256": self.sha256}

    @property
    def nbytes(self) -> int:
        """Size of the packed bits, bytes."""
        bits: npt.NDArray[np.uint8] = self.__dict__["_bits"]
        return int(bits.nbytes)


KeptPrompt = PointPrompt | BoxPrompt | ScribblePrompt | PackedMaskPrompt | AnswerPrompt


def packed(prompt: Prompt) -> KeptPrompt:
    """Pack a mask prompt; other prompts stay as they are.

    Raises:
        PromptError: If the mask is empty.
    """
    if isinstance(prompt, PackedMaskPrompt):
        return prompt
    return PackedMaskPrompt(prompt.mask) if isinstance(prompt, MaskPrompt) else prompt
