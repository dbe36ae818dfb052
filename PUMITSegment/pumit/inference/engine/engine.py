"""Engine interface of the promptable network: NumPy arrays in, NumPy arrays out.

A field is encoded once; each click costs only a decoding. The encoded features are opaque to
callers.
"""

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
    """Apply a function to items in the threads of a pool; results keep their order.

    Raises:
        Exception: The error of the first failed item, after all threads have finished.
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

    The unit of all three coordinates is one in-plane voxel; the origin is the centre of the field's
    first voxel. Neighbouring slices are `slice_ratio` apart.

    Attributes:
        points: (P, 3), (z, h, w); P may be 0.
        is_positive: (P,) bool.
        box: Lower and upper corner, (2, 3), or None.
        prior: (D, H, W) foreground probability of the previous answer, or None.
        slice_ratio: Slice spacing over in-plane spacing; 0 for a planar image, which ignores depth.
    """

    points: Floats
    is_positive: npt.NDArray[np.bool_]
    box: Floats | None
    prior: Floats | None
    slice_ratio: float


class Features(Protocol):
    """Encoded features of a field."""

    @property
    def nbytes(self) -> int:
        """Memory used, bytes."""

    @property
    def summary(self) -> Floats:
        """Mean of the transformer's features, (dim,); similar for similar scans."""


class Engine(Protocol):
    """Interface to run the encoder and the decoder of a promptable network."""

    @property
    def name(self) -> str:
        """Either "torch" or "openvino"."""

    @property
    def device(self) -> str:
        """Device as text, such as `cpu` or `cuda:0`."""

    @property
    def field_size(self) -> int:
        """In-plane voxels of a training field."""

    def map(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Apply a function that encodes and decodes to fields, in parallel if that is faster."""

    def prepare(self, grids: Iterable[tuple[int, Shape]]) -> None:
        """Prepare for fields, degree of anisotropy and shape of each, in the background."""

    def rest(self) -> None:
        """Release memory that is not needed until the next field, such as compiled graphs."""

    def encode(self, image: Floats, *, da0: int, slice_ratio: float) -> Any:
        """Encode a field for `decode` of the same engine.

        Args:
            image: Channels of the field, (3, D, H, W); H and W divisible by 8, D by the encoder's
                depth stride at this degree.
            da0: Degree of anisotropy.
            slice_ratio: See `FieldPrompts`.
        """

    def decode(self, features: Any, prompts: FieldPrompts) -> tuple[Floats, Floats]:
        """Return mask logits (M, D, H, W) and IoU estimates (M,)."""
