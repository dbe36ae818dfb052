"""Sliding-window inference with Gaussian weighting.

MONAI's `SlidingWindowInferer` gives the same numbers, but importing MONAI takes longer than
segmenting most scans.
"""

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
        overlap: Overlap of neighbouring windows along each axis, in [0, 1).
        averages_flips: Whether to average the eight reflections (test-time augmentation).
        max_bytes: Maximum memory for scores; larger images are processed in chunks along depth.

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
        """Return the windows' first voxels along each axis of a grid."""
        return [
            [*range(0, n - p, max(1, int(p * (1 - self.overlap)))), max(n - p, 0)]
            for n, p in zip(shape, self.patch, strict=True)
        ]

    def count(self, shape: Sequence[int]) -> int:
        """Return the number of windows that cover a grid."""
        return math.prod(map(len, self.starts(shape)))

    def depth_chunks(self, shape: Sequence[int], classes: int) -> list[tuple[slice, slice]]:
        """Divide a grid along its depth so that the scores of each chunk fit in memory.

        Each chunk uses the same windows as the undivided grid, so the results are equal.

        Returns:
            Slices to compute, and those of them to keep, for each chunk.
        """
        depth, patch = shape[0], self.patch[0]
        step = max(1, int(patch * (1 - self.overlap)))
        slice_bytes = 4 * (classes + 2) * shape[1] * shape[2]
        most = max(self.max_bytes // slice_bytes, patch + step)
        if depth <= most:
            return [(slice(0, depth), slice(0, depth))]
        # First slices of all windows; the last window ends with the image.
        starts = self.starts(shape)[0]
        length = max((most - 2 * patch) // step, 1) * step
        out = []
        for begin in range(0, depth, length):
            end = min(begin + length, depth)
            crossing = [s for s in starts if s + patch > begin and s < end]
            out.append((slice(crossing[0], crossing[-1] + patch), slice(begin, end)))
        return out


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
    """Yield class scores of an image, (classes, n, h, w) float32, of consecutive slices.

    Args:
        network: Maps (1, C, *patch) to (1, classes, *patch).
        image: Pre-processed image, (C, d, h, w), on the CPU, as are the scores.
        cast: Returns the context manager for the precision.
        step: Progress callback with the finished share, before each window; may raise to stop.
        activation: Applied to logits before averaging reflections and windows.

    Raises:
        CheckpointError: If the network's output has an unexpected shape.
    """
    # 1. Plan chunks and reflections, and count the windows for the progress.
    shape = image.shape[1:]
    chunks = window.depth_chunks(shape, classes)
    flips = range(4) if window.averages_flips else range(1)
    turns = [axes for count in flips for axes in itertools.combinations((2, 3, 4), count)]
    crops = [(seen.stop - seen.start, *shape[1:]) for seen, _ in chunks]
    total = sum(map(window.count, crops)) * len(turns)
    done = itertools.count()

    # 2. Window (1, C, *patch) -> mean over all reflections (1, classes, *patch).
    def predict(x: Tensor) -> Tensor:
        total_logits: Any = 0.0
        for turn in turns:
            step(min(next(done) / total, 1.0))
            try:
                with cast():
                    answer: Any = network(x.flip(turn) if turn else x)
            except PumitError:
                raise
            except ValueError as error:  # raised by layers if the window is too small
                raise CheckpointError(
                    f"The model cannot process windows of its patch size {window.patch} "
                    f"({error}); train or fetch it again."
                ) from error
            # Networks with deep supervision may return several scales, the finest first.
            logits: Tensor = answer[0] if isinstance(answer, (list, tuple)) else answer
            if logits.shape != (len(x), classes, *x.shape[2:]):
                raise CheckpointError(
                    f"The model's output for a window {tuple(x.shape)} has shape "
                    f"{tuple(logits.shape)}, but its recipe has {classes} classes; train or "
                    "fetch it again."
                )
            logits = logits.float() if activation is None else activation(logits.float())
            total_logits = total_logits + (logits.flip(turn) if turn else logits)
        mean: Tensor = total_logits / len(turns)
        return mean

    # 3. Blend the windows of each chunk, and keep only its own slices.
    air = float(image.min())  # padding value
    for seen, kept in chunks:
        with torch.inference_mode():
            scores = _blended(predict, image[:, seen], window, device, air)
        yield scores[:, kept.start - seen.start : kept.stop - seen.start]
    step(1.0)


def _blended(
    predict: Predict, image: Tensor, window: SlidingWindow, device: torch.device, air: float
) -> Tensor:
    """Return the weighted mean of all windows over an image (C, d, h, w), on the CPU."""
    # 1. Pad the image to at least one window.
    shape = image.shape[1:]
    missing = [max(p - n, 0) for n, p in zip(shape, window.patch, strict=True)]
    before = [n // 2 for n in missing]
    rims = [rim for a, n in zip(before, missing, strict=True) for rim in (n - a, a)]
    padded = pad(image[None], rims[::-1], value=air) if any(missing) else image[None]
    # 2. Accumulate windows with a Gaussian weight: the middle has most context.
    weight = _gaussian(window.patch)
    uploaded = weight.to(device)
    total, out = torch.zeros(padded.shape[2:]), torch.zeros(0)
    for start in itertools.product(*window.starts(padded.shape[2:])):
        d, h, w = (slice(a, a + p) for a, p in zip(start, window.patch, strict=True))
        answer = predict(padded[:, :, d, h, w].to(device))[0] * uploaded
        if not len(out):
            # After a window, which shows what the network needs. Fetching each would make it wait.
            home = device if _has_room(4 * len(answer) * total.numel(), device) else None
            out = torch.zeros(len(answer), *total.shape, device=home)
        out[:, d, h, w] += answer.to(out.device)
        total[d, h, w] += weight
    out /= total.to(out.device)
    d, h, w = (slice(a, a + n) for a, n in zip(before, shape, strict=True))
    return out[:, d, h, w].cpu()


def _has_room(count: int, device: torch.device) -> bool:
    """Return whether a CUDA GPU has twice this number of bytes free."""
    return device.type == "cuda" and torch.cuda.mem_get_info(device)[0] > 2 * count


def _gaussian(patch: Sequence[int]) -> Tensor:
    """Return Gaussian weights (d, h, w), sigma 1/8 of the window, at least 0.001."""
    weight = torch.ones(())
    for n in patch:
        x = torch.arange(n) - (n - 1) / 2
        weight = weight[..., None] * torch.exp(x**2 / (-2 * (n * 0.125) ** 2))
    return weight.clamp(min=max(float(weight.min()), 1e-3))
