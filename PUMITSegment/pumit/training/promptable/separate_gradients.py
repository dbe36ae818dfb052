"""Gradients of losses that share only their inputs, one after the other: memory holds one graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class SeparateGradients:
    """Sum of the gradients of several losses, each computed as soon as its loss is known.

    Args:
        inputs: Leaves, and tensors of a graph before the losses, of which the gradients are taken.
    """

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        self.inputs = [x for x in inputs if x.requires_grad]
        # In a graph of its own each loss ends at these; parameters are their own leaves.
        self._ends = {id(x): x.detach().requires_grad_() for x in self.inputs if not x.is_leaf}
        self._sums: list[Tensor | None] = [None] * len(self.inputs)

    def end(self, x: Tensor) -> Tensor:
        """Return an input as the losses must use it."""
        return self._ends.get(id(x), x)

    def add(self, loss: Tensor) -> Tensor:
        """Add the gradients of a loss, and return it without its graph."""
        with torch.autocast(loss.device.type, enabled=False):
            found = torch.autograd.grad(loss, [self.end(x) for x in self.inputs], allow_unused=True)
        for i, new in enumerate(found):
            total = self._sums[i]
            self._sums[i] = new if total is None else total if new is None else total + new
        return loss.detach()

    def attached_to(self, value: Tensor) -> Tensor:
        """Return the sum of the losses, whose backward pass gives the gradients that are known."""
        found: Tensor = _Known.apply(value, self._sums, *self.inputs)  # type: ignore[no-untyped-call]
        return found


class _Known(torch.autograd.Function):
    """A value with gradients that were computed before."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: Sequence[Tensor | None], *_: Tensor) -> Tensor:
        ctx.gradients = gradients
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:
        (factor,) = above
        return (None, None, *(None if g is None else factor * g for g in ctx.gradients))
