"""Ranges of layers' inputs, for click models that multiply in eight bits on CPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

OUTSIDE = 0.0002  # share of values on either side of a range
MOST_VALUES = 1 << 14  # per call; sorting more would slow a validation down


@contextmanager
def measured_ranges(
    network: nn.Module, known: Mapping[str, Sequence[float]]
) -> Iterator[dict[str, list[float]]]:
    """Measure the inputs of a network's layers during a block.

    Args:
        known: Ranges of the initial weights, by the names of `GraphLayers`; they become wider only.

    Yields:
        The ranges, which grow with each call of the network.
    """
    modules = dict(network.named_modules())
    ranges = {name: [float(end) for end in ends] for name, ends in known.items()}
    # A convolution of joined channels has a range for each part, by its first channel.
    layers: dict[str, list[int]] = {}
    for name in ranges:
        layer, _, first = name.rpartition(".")
        if first.isdigit() and isinstance(modules.get(layer), nn.Conv3d):
            layers.setdefault(layer, []).append(int(first))
        else:
            layers[name] = []
    handles = [
        modules[layer].register_forward_pre_hook(_hook(ranges, layer, sorted(starts)))
        for layer, starts in layers.items()
        if layer in modules
    ]
    try:
        yield ranges
    finally:
        for handle in handles:
            handle.remove()


def _hook(ranges: dict[str, list[float]], layer: str, starts: Sequence[int]) -> Any:
    def note(_: nn.Module, given: tuple[Any, ...]) -> None:
        x: Tensor = given[0].detach()
        if not starts:
            _widen(ranges[layer], x)
        for start, stop in pairwise([*starts, None] if starts else []):
            _widen(ranges[f"{layer}.{start}"], x[:, start:stop])

    return note


def _widen(ends: list[float], x: Tensor) -> None:
    values = x.reshape(-1)
    # An odd step, so that all places of a grid are drawn.
    values = values[:: (len(values) // MOST_VALUES) | 1].float()
    both = torch.quantile(values, values.new_tensor([OUTSIDE, 1 - OUTSIDE]))
    least, most = (round(end, 4) for end in both.tolist())
    ends[:] = [min(ends[0], least), max(ends[1], most)]
