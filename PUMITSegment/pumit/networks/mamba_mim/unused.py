"""Parameters that a published network holds and nothing reads."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

FIXED = "fixed"


class UnusedParameters(nn.Module):
    """Zeros, so that a network of the published sizes has the published number of parameters.

    What MambaMIM's code registers and never reads, such as the second direction of its Mamba
    layers, is inferred from the published counts alone.

    Args:
        numbers: Numbers of each kind. Kinds whose name begins with "fixed" are not
            trained; the others would be, if a gradient reached them.
    """

    def __init__(self, numbers: Mapping[str, int]) -> None:
        super().__init__()
        for kind, number in numbers.items():
            zeros = nn.Parameter(torch.zeros(number), requires_grad=not kind.startswith(FIXED))
            self.register_parameter(kind.replace(" ", "_"), zeros)
