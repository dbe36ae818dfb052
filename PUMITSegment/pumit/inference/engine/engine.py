"""The seam between prompts and what computes the network: arrays in, arrays out.

A field is encoded once, whatever the number of clicks; a click costs a decoding. What the encoding
leaves is the engine's own, and no one else looks into it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, wait
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Shape = tuple[int, int, int]
T = TypeVar("T")
R = TypeVar("R")


def map_in(pool: Executor, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Apply a function to items in the threads of a pool.

    Returns:
        Results, in the order of the items.

    Raises:
        Exception: What the first item that failed raised, once no thread works any more.
    """
    futures = [pool.submit(work, item) for item in items]
    try:
        return [future.result() for future in futures]
    finally:
        for future in futures:
            future.cancel()
        wait(futures)


@dataclass(frozen=True)
class FieldPrompts:
    """Prompts of one field, in field coordinates.

    Coordinates count in-plane voxels from the centre of the field's first voxel, depth included:
    a slice further is `slice_ratio` further. Physical units, but for the in-plane spacing.

    Attributes:
        points: (P, 3), (z, h, w); none is fine.
        is_positive: (P,) bool.
        box: Lower and upper corner, (2, 3), or None.
        prior: (D, H, W) foreground probability of an earlier answer, or None.
        slice_ratio: Slice spacing over in-plane spacing; 0 for a planar image, where depth does
            not count.
    """

    points: Floats
    is_positive: npt.NDArray[np.bool_]
    box: Floats | None
    prior: Floats | None
    slice_ratio: float


class Features(Protocol):
    """What an engine keeps of an encoded field."""

    @property
    def nbytes(self) -> int:
        """Memory that it takes, bytes."""

    @property
    def summary(self) -> Floats:
        """Mean of the transformer's features, (dim,), which tells scans of one kind from others."""


class Engine(Protocol):
    """Compute the two steps of a promptable network.

    Attributes:
        name: "torch" or "openvino".
        device: Device as text, such as `cpu` or `cuda:0`.
        field_size: In-plane voxels of a training field.
    """

    @property
    def name(self) -> str:
        """Name of the engine."""

    @property
    def device(self) -> str:
        """Where it computes."""

    @property
    def field_size(self) -> int:
        """Size of a training field."""

    def map(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Apply a function that encodes and decodes, to several fields at once where that pays.

        Args:
            work: May be called in several threads.

        Returns:
            Results, in the order of the items.
        """

    def prepare(self, grids: Iterable[tuple[int, Shape]]) -> None:
        """Get ready for fields to come, in the background.

        Args:
            grids: Degree of anisotropy and shape (D, H, W) of each, the next one first.
        """

    def rest(self) -> None:
        """Give back memory that no one needs until the next field, such as compiled graphs."""

    def encode(self, image: Floats, *, da0: int, slice_ratio: float) -> Any:
        """Encode a field.

        Args:
            image: Channels of the field, (3, D, H, W); H and W divisible by 8, D by what the
                degree halves.
            slice_ratio: Ratio as in `FieldPrompts`.

        Returns:
            Features, for `decode` of the same engine.
        """

    def decode(self, features: Any, prompts: FieldPrompts) -> tuple[Floats, Floats]:
        """Answer prompts.

        Returns:
            Mask logits (M, D, H, W) and estimates of their IoU (M,).
        """
