"""A prior mask that takes little memory while nobody looks at it."""

from __future__ import annotations

import math
import weakref

import numpy as np
import numpy.typing as npt

from pumit.prompts import MaskPrompt

Mask = npt.NDArray[np.bool_]


class PackedMaskPrompt(MaskPrompt):
    """A `MaskPrompt` kept as the bits of its bounding box.

    Args:
        mask: bool (D, H, W) with at least one true voxel.
    """

    def __init__(self, mask: Mask) -> None:
        box = []
        for axis in range(mask.ndim):
            others = tuple(a for a in range(mask.ndim) if a != axis)
            hits = np.flatnonzero(mask.any(axis=others))
            box.append(slice(int(hits[0]), int(hits[-1]) + 1))
        inside = mask[tuple(box)]
        self.__dict__.update(
            _shape=mask.shape, _box=tuple(box), _extent=inside.shape, _bits=np.packbits(inside)
        )
        self.__dict__["_unpacked"] = None

    @property
    def mask(self) -> Mask:
        """The whole mask, unpacked anew unless somebody still holds it."""
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
    def nbytes(self) -> int:
        """Bytes of the bits."""
        bits: npt.NDArray[np.uint8] = self.__dict__["_bits"]
        return int(bits.nbytes)
