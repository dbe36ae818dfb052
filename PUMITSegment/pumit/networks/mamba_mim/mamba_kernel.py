"""The CUDA kernel of the mamba_ssm package, for those who have installed it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

DEVICE = "cuda"
MOST_STATES = 256  # per channel, that the kernel is built for


def kernel_for(u: Tensor, states: int) -> Callable[..., Tensor] | None:
    """Return the kernel where it can take these tokens, else None.

    Args:
        u: Tokens as the scan computes with them: the kernel takes single precision on a GPU.
        states: States per channel.
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
