"""Run callbacks of a computation outside torch's inference mode."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

Callback = TypeVar("Callback", bound=Callable[..., Any])


def outside_inference_mode(callback: Callback | None) -> Callback | None:
    """A callback that runs outside torch's inference mode.

    Args:
        callback: Function that a computation calls between its parts, perhaps in inference mode.
    """
    if callback is None:
        return None

    if "torch" not in sys.modules:  # nothing of it computes
        return callback
    import torch

    @functools.wraps(callback)
    def outside(*given: Any) -> Any:
        with torch.inference_mode(False):
            return callback(*given)

    return cast(Callback, outside)
