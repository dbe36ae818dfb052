"""A network moved over an image that is larger than what it sees at once.

MONAI's `SlidingWindowInferer` gives the same numbers; to import it takes longer than most scans.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from pumit.errors import CheckpointError, PumitError

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

    def starts(self, shape: Sequence[int]) -> list[list[int]]:
        """First voxels, along each axis, of the windows that cover a grid."""
        return [
            [*range(0, n - p, max(1, int(p * (1 - self.overlap)))), max(n - p, 0)]
            for n, p in zip(shape, self.patch, strict=True)
        ]

    def count(self, shape: Sequence[int]) -> int:
        """Windows that cover a grid."""
        return math.prod(map(len, self.starts(shape)))

    def depth_chunks(self, shape: Sequence[int], classes: int) -> list[DepthChunk]:
        """Divide a grid along its depth so that the scores of each part fit in memory.

        Each part is crossed by the very windows that cross it when all is done at once.
        """
        depth, patch = shape[0], self.patch[0]
        step = max(1, int(patch * (1 - self.overlap)))
        slice_bytes = 4 * (classes + 2) * shape[1] * shape[2]
        most = max(self.max_bytes // slice_bytes, patch + step)
        if depth <= most:
            return [DepthChunk(0, depth, 0, depth)]
        # First slices of all windows; the last window is moved back to end with the image.
        starts = self.starts(shape)[0]
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
                    f"The model cannot process windows of its patch size {window.patch} "
                    f"({error}); train or fetch it again."
                ) from error
            # Networks with deep supervision may answer at several scales, the finest first.
            logits: Tensor = answer[0] if isinstance(answer, (list, tuple)) else answer
            if logits.shape != (len(x), classes, *x.shape[2:]):
                raise CheckpointError(
                    f"The model's output for a window {tuple(x.shape)} has shape "
                    f"{tuple(logits.shape)}, but its recipe has {classes} classes; train or "
                    "fetch it again."
                )
            logits = logits.float() if activation is None else activation(logits.float())
            logits = logits.flip(turn) if turn else logits
            out = logits if out is None else out + logits
        assert out is not None
        return out / len(turns)

    # 3. Windows weighted by a Gaussian; of each chunk only the slices that no other one keeps.
    air = float(image.min())  # lies around a scan
    for part in chunks:
        with torch.inference_mode():
            scores = _blended(predict, image[:, part.start : part.stop], window, device, air)
        yield scores[:, part.kept_from - part.start : part.kept_to - part.start]
    step(1.0)


def _blended(
    predict: Predict, image: Tensor, window: SlidingWindow, device: torch.device, air: float
) -> Tensor:
    """Mean of the answers of all windows over an image (C, d, h, w), on the CPU."""
    # 1. An image as large as a window at least.
    shape = image.shape[1:]
    missing = [max(p - n, 0) for n, p in zip(shape, window.patch, strict=True)]
    before = [n // 2 for n in missing]
    rims = [rim for a, n in zip(before, missing, strict=True) for rim in (n - a, a)]
    padded = pad(image[None], rims[::-1], value=air) if any(missing) else image[None]
    # 2. Each window weighted: its middle, which has seen most around it, counts most.
    weight = _gaussian(window.patch)
    total, out = torch.zeros(padded.shape[2:]), torch.zeros(0)
    for start in itertools.product(*window.starts(padded.shape[2:])):
        d, h, w = (slice(a, a + p) for a, p in zip(start, window.patch, strict=True))
        answer = predict(padded[:, :, d, h, w].to(device))[0] * weight.to(device)
        if not len(out):
            out = torch.zeros(len(answer), *total.shape)
        out[:, d, h, w] += answer.cpu()
        total[d, h, w] += weight
    out /= total
    d, h, w = (slice(a, a + n) for a, n in zip(before, shape, strict=True))
    return out[:, d, h, w]


def _gaussian(patch: Sequence[int]) -> Tensor:
    """Weights (d, h, w) whose deviation is an eighth of a window, nowhere below a thousandth."""
    weight = torch.ones(())
    for n in patch:
        x = torch.arange(n) - (n - 1) / 2
        weight = weight[..., None] * torch.exp(x**2 / (-2 * (n * 0.125) ** 2))
    return weight.clamp(min=max(float(weight.min()), 1e-3))


def _reflections() -> Iterator[tuple[int, ...]]:
    """Axes of (B, C, D, H, W) to turn round, for each of the eight reflections."""
    for count in range(4):
        yield from itertools.combinations((2, 3, 4), count)
