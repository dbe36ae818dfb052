"""The layer in which a network's answer stops being finite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.utils._pytree import tree_leaves


class _NotFinite(ArithmeticError):
    """A layer's answer is not finite."""


def first_not_finite(network: nn.Module, forward: Callable[[], Any]) -> str | None:
    """Return the first layer of a network whose answer is not finite while something is computed.

    Args:
        forward: Computes it; may fail of itself.

    Returns:
        The layer's name, or None where every answer is finite.
    """
    names = {id(module): name for name, module in network.named_modules()}

    def record(module: nn.Module, _: Any, answer: Any) -> None:
        if id(module) in names and not all(_is_finite(leaf) for leaf in tree_leaves(answer)):
            raise _NotFinite(names[id(module)])

    handle = register_module_forward_hook(record)
    try:
        with torch.no_grad():
            forward()
    except _NotFinite as found:
        return str(found)
    except (RuntimeError, ValueError):
        return None
    finally:
        handle.remove()
    return None


def _is_finite(answer: Any) -> bool:
    if not isinstance(answer, Tensor) or not answer.is_floating_point():
        return True
    return bool(torch.isfinite(answer).all())
