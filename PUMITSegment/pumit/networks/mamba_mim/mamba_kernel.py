"""Optional CUDA kernel of the mamba_ssm package."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

DEVICE = "cuda"
MOST_STATES = 256  # states per channel that the kernel supports


def kernel_for(u: Tensor, states: int) -> Callable[..., Tensor] | None:
    """Return the kernel if it is installed and supports this input, else None.

    Args:
        u: Tokens; the kernel requires float32 on a GPU.
    """
    if u.device.type != DEVICE or u.dtype != torch.float32 or states > MOST_STATES:
        return None
    return _installed()


@cache
def _installed() -> Callable[..., Tensor] | None:
    try:
        from mamba_ssm.ops.selective_scan_interface import selective_scan_fn
    except (ImportError, OSError) as error:
        logger.warning(
            "The selective scan runs in plain PyTorch: mamba_ssm's kernel cannot be imported (%s).",
            error,
        )
        return None
    return selective_scan_fn
