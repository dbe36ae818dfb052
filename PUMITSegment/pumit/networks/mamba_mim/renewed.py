"""Conversion of HyMamba weights of PUMIT 0.2 and before to the layout of MambaMIM's code."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def renewed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert old weights to equivalent weights of the current network.

    Earlier, each MedNeXt block had a channel scale, which is now folded into its last projection;
    stem and skips had no biases; and there were unused parameters.

    Args:
        state: Weights by name of `HyMamba` or `HyMambaMim`, in the old or current layout.
    """
    new = {k: v for k, v in state.items() if not k.startswith("unused.")}
    if "state_matrix" in new:  # pre-training does not use the finest map
        new = {k: v for k, v in new.items() if not k.startswith("encoder.skips.0.")}
    for key in [k for k in new if k.endswith(".scale")]:
        block, scale = key.removesuffix(".scale"), new.pop(key).float()
        for kind in ("weight", "bias"):
            projection = new[f"{block}.contract.{kind}"]
            wide = scale[:, None] if kind == "weight" else scale
            new[f"{block}.contract.{kind}"] = (wide * projection.float()).to(projection.dtype)
    for key in [k for k in new if k.startswith(("encoder.stem.", "encoder.skips."))]:
        is_convolution = key.endswith(".weight") and new[key].ndim == 5
        bias = key.removesuffix("weight") + "bias"
        if is_convolution and bias not in new:
            new[bias] = torch.zeros_like(new[key][:, 0, 0, 0, 0])
    return new
