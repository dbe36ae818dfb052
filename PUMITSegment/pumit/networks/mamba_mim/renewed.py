"""HyMamba's weights of PUMIT 0.2 and before, in the layout of MambaMIM's code."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def renewed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Bring weights of before to the same answers in the network of now.

    Before, each MedNeXt block scaled its channels, which its last projection does now; the stem
    and the skips had no biases; and parameters were held that nothing read.

    Args:
        state: Weights by name, of `HyMamba` or `HyMambaMim`, of before or of now.
    """
    new = {k: v for k, v in state.items() if not k.startswith("unused.")}
    if "state_matrix" in new:  # the pre-training does not read the finest map
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
