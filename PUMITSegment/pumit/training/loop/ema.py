"""The running average of the weights: what is validated, kept and shipped."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pumit.training.loop.sharding import local_shard


class WeightAverage:
    """Exponential moving average of the floating-point entries of a network's state.

    Entries of other kinds, such as counters, are those of the present.

    Args:
        network: Network to average; where it is sharded over processes, so is the average.
        decay: Share of the past that is kept at every step.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self.state = {
            k: v.detach().clone().float() if v.is_floating_point() else v.detach().clone()
            for k, v in network.state_dict().items()
        }

    @torch.no_grad()
    def update(self, network: nn.Module, step: int) -> None:
        """Blend in the present weights; early on faster, so that the start is forgotten."""
        decay = min(self.decay, (1 + step) / (10 + step))
        past: list[Tensor] = []
        present: list[Tensor] = []
        for name, value in network.state_dict().items():
            mine, new = local_shard(self.state[name]), local_shard(value.detach())
            if mine.is_floating_point():
                past.append(mine)
                present.append(new.float())
            else:
                mine.copy_(new)
        torch._foreach_lerp_(past, present, 1 - decay)
