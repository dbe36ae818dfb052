"""Token usage of an image, accumulated over windows."""

from __future__ import annotations

import torch
from torch import Tensor

from pumit.inference.tokenizer.token_use import TokenUse

Grid = tuple[int, int, int]


class TokenCells:
    """Accumulator over the cells of an image; each cell counts once, however many windows see it.

    Args:
        real: Cells (d, h, w) of the image; the rest is padding.
    """

    def __init__(self, real: Grid) -> None:
        self.real = real
        self._expected = torch.zeros(real)
        self._shares: Tensor | None = None
        self._entropy = torch.zeros(real)

    def expect(self, start: Grid, weights: Tensor) -> None:
        """Register a window; all must be registered before the first `add`.

        Args:
            weights: Blending weight of each of its cells, (d, h, w).
        """
        place, inside = self._within(start, weights.shape)
        self._expected[place] += weights[inside]

    def add(self, start: Grid, weights: Tensor, probabilities: Tensor) -> None:
        """Add the token probabilities of a window, (K, d, h, w), of any precision and device."""
        place, inside = self._within(start, weights.shape)
        share = weights[inside] / self._expected[place]
        p = probabilities[(slice(None), *inside)].float()
        entropy = -(p * p.clamp_min(torch.finfo(p.dtype).tiny).log()).sum(0)
        self._entropy[place] += entropy.cpu() * share
        sums = (p * share.to(p.device)).flatten(1).sum(1).double().cpu()
        self._shares = sums if self._shares is None else self._shares + sums

    def use(self) -> TokenUse:
        """Return the usage of the codebook."""
        assert self._shares is not None
        count = self._entropy.numel()
        shares = self._shares.numpy() / count
        return TokenUse(shares / shares.sum(), float(self._entropy.double().mean()))

    def _within(
        self, start: Grid, shape: tuple[int, ...]
    ) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Return a window's slices in the image's cells, and the matching slices in the window."""
        stops = [max(s, min(s + n, m)) for s, n, m in zip(start, shape, self.real, strict=True)]
        place = tuple(slice(s, e) for s, e in zip(start, stops, strict=True))
        return place, tuple(slice(0, e - s) for s, e in zip(start, stops, strict=True))
