"""Which numbers a network is trained in."""

from __future__ import annotations

import torch


def is_half(device: torch.device, precision: str) -> bool:
    """Whether to compute in bfloat16 what bears it.

    Args:
        device: Where the network is.
        precision: `bf16`, `fp32`, or `auto`: bf16 but on a GPU that does not multiply it.
    """
    if precision != "auto":
        return precision == "bf16"
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= (8, 0)


def half_precision(device: torch.device, precision: str = "auto") -> torch.autocast:
    """Bfloat16 for what bears it, or float32 throughout; see `is_half`."""
    return torch.autocast(device.type, torch.bfloat16, enabled=is_half(device, precision))
