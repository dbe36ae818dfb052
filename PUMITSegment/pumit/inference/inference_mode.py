"""Run callbacks of a computation outside torch's inference mode."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

Callback = TypeVar("Callback", bound=Callable[..., Any])


def outside_inference_mode(ask: Callback | None) -> Callback | None:
    """A callback that runs outside torch's inference mode.

    Args:
        ask: Called by a computation between its parts, perhaps in inference mode.
    """
    if ask is None:
        return None

    if "torch" not in sys.modules:  # nothing of it computes
        return ask
    import torch

    @functools.wraps(ask)
    def asked(*given: Any) -> Any:
        with torch.inference_mode(False):
            return ask(*given)

    return cast(Callback, asked)
