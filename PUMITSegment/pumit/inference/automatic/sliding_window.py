"""A network moved over an image that is larger than what it sees at once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pumit.errors import CheckpointError, PumitError
from pumit.networks.monai import SlidingWindowInferer

Predict = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class SlidingWindow:
    """Size and overlap of the windows that cover an image.

    Attributes:
        patch: Size of the network's patch (d, h, w), voxels.
        overlap: Part that neighbouring windows share along each axis, 0 to below 1.
        averages_flips: Whether each window is seen in its eight reflections.
        max_bytes: Most memory for scores; a longer image is done in several chunks.

    Raises:
        PumitError: If the overlap is out of range.
    """

    patch: tuple[int, int, int]
    overlap: float = 0.75
    averages_flips: bool = False
    max_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        if not 0 <= self.overlap < 1:
            raise PumitError(f"The overlap must be 0 to below 1, got {self.overlap}.")

    def interval(self, shape: Sequence[int]) -> tuple[int, int, int]:
        """Return steps from window to window, as MONAI has them."""
        d, h, w = (
            p if n <= p else max(1, int(p * (1 - self.overlap)))
            for n, p in zip(shape, self.patch, strict=True)
        )
        return (d, h, w)

    def count(self, shape: Sequence[int]) -> int:
        """Windows that cover a grid."""
        steps = zip(shape, self.patch, self.interval(shape), strict=True)
        return math.prod(1 + math.ceil(max(n - p, 0) / i) for n, p, i in steps)

    def depth_chunks(self, shape: Sequence[int], classes: int) -> list[DepthChunk]:
        """Divide a grid along its depth so that the scores of each part fit in memory.

        Each part is crossed by the very windows that cross it when all is done at once.
        """
        depth, patch, step = shape[0], self.patch[0], self.interval(shape)[0]
        slice_bytes = 4 * (classes + 2) * shape[1] * shape[2]
        most = max(self.max_bytes // slice_bytes, patch + step)
        if depth <= most:
            return [DepthChunk(0, depth, 0, depth)]
        # First slices of all windows; the last window is moved back to end with the image.
        starts = [*range(0, depth - patch, step), depth - patch]
        length = max((most - 2 * patch) // step, 1) * step
        out = []
        for begin in range(0, depth, length):
            end = min(begin + length, depth)
            crossing = [s for s in starts if s + patch > begin and s < end]
            out.append(DepthChunk(crossing[0], crossing[-1] + patch, begin, end))
        return out


@dataclass(frozen=True)
class DepthChunk:
    """Slices `start` to `stop` go through the network; `kept_from` to `kept_to` are kept."""

    start: int
    stop: int
    kept_from: int
    kept_to: int


def class_scores(
    network: Predict,
    image: Tensor,
    *,
    classes: int,
    window: SlidingWindow,
    device: torch.device,
    cast: Callable[[], AbstractContextManager[Any]],
    step: Callable[[float], None],
    activation: Predict | None = None,
) -> Iterator[Tensor]:
    """Logits of an image, chunk by chunk along the depth.

    Args:
        network: Maps (1, C, *patch) to (1, classes, *patch).
        image: Image as the network was trained on it, (C, d, h, w), on the CPU.
        device: Device of the network; the scores are put together on the CPU.
        cast: Precision of the arithmetic.
        step: Callback for the finished share before each window; may raise to stop.
        activation: Makes of logits what reflections and windows are averaged as; None for the
            logits themselves.

    Yields:
        (classes, n, h, w), float32, whose slices follow each other.

    Raises:
        CheckpointError: If the network answers with another shape.
    """
    # 1. Plan: chunks of slices, reflections of each window, and their number for the progress.
    shape = image.shape[1:]
    chunks = window.depth_chunks(shape, classes)
    turns = list(_reflections()) if window.averages_flips else [()]
    crops = [(s.stop - s.start, *shape[1:]) for s in chunks]
    total = sum(map(window.count, crops)) * len(turns)
    done = itertools.count()

    # 2. A window (1, C, *patch) in all its reflections -> mean (1, classes, *patch).
    def predict(x: Tensor) -> Tensor:
        out: Tensor | None = None
        for turn in turns:
            step(min(next(done) / total, 1.0))
            try:
                with cast():
                    answer: Any = network(x.flip(turn) if turn else x)
            except PumitError:
                raise
            except ValueError as error:  # what layers say to a window that is too small for them
                raise CheckpointError(
                    f"The model cannot see windows of its patch size {window.patch} ({error}); "
                    "train or fetch it again."
                ) from error
            # Networks with deep supervision may answer at several scales, the finest first.
            logits: Tensor = answer[0] if isinstance(answer, (list, tuple)) else answer
            if logits.shape != (len(x), classes, *x.shape[2:]):
                raise CheckpointError(
                    f"The model answers a window {tuple(x.shape)} with {tuple(logits.shape)}, "
                    f"its recipe calls for {classes} classes; train or fetch it again."
                )
            logits = logits.float() if activation is None else activation(logits.float())
            logits = logits.flip(turn) if turn else logits
            out = logits if out is None else out + logits
        assert out is not None
        return out / len(turns)

    # 3. Windows weighted by a Gaussian; of each chunk only the slices that no other one keeps.
    inferer = SlidingWindowInferer(
        window.patch,
        sw_batch_size=1,
        overlap=window.overlap,
        mode="gaussian",
        padding_mode="constant",
        cval=float(image.min()),  # air lies around a scan
        sw_device=device,
        device="cpu",
    )
    for part in chunks:
        with torch.inference_mode():
            scores: Any = inferer(image[None, :, part.start : part.stop], predict)
        yield scores[0, :, part.kept_from - part.start : part.kept_to - part.start]
    step(1.0)


def _reflections() -> Iterator[tuple[int, ...]]:
    """Axes of (B, C, D, H, W) to turn round, for each of the eight reflections."""
    for count in range(4):
        yield from itertools.combinations((2, 3, 4), count)
