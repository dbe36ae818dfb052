"""Swin UNETR: MONAI's network with sizes that checkpoints can store."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from pumit.networks.monai import SwinUNETR
from pumit.networks.padding import by_slices, padded, require_channels
from pumit.networks.swin_merging import merging_layer

STRIDE = 32  # factor 2 for the patches and for each of four stages
NAME = "Swin UNETR"


class SwinUnetr(nn.Module):
    """Swin transformer encoder with a convolutional decoder.

    Args:
        num_classes: Output channels, including the background if it is a class.
        feature_size: Width of the first stage, divisible by 12.
        num_heads: Attention heads of the four stages; each divides its stage's width.
        spatial_dims: 3, or 2 to process each slice as an image.
        merging: Order in which patches are merged: "current", or "before_2025" for weights trained
            with earlier MONAI; see `swin_merging`. Both are equal in 2D.

    Attributes:
        stride: Field sizes are padded to multiples of this, (d, h, w).

    Source:
        Hatamizadeh et al., Swin UNETR, BrainLes 2021; `monai.networks.nets.SwinUNETR`.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        num_classes: int,
        feature_size: int,
        depths: Sequence[int],
        num_heads: Sequence[int],
        window_size: int,
        drop_path: float,
        spatial_dims: int,
        merging: str,
    ) -> None:
        super().__init__()
        if num_classes < 1:
            raise ValueError(f"num_classes must be at least 1, got {num_classes}")
        check_stages(feature_size, depths, num_heads)
        self.in_channels = in_channels
        self.spatial_dims = spatial_dims
        self.merging = merging
        self.stride = (STRIDE if spatial_dims == 3 else 1, STRIDE, STRIDE)
        with NumbersOnCpu():
            self.network = SwinUNETR(
                in_channels=in_channels,
                out_channels=num_classes,
                feature_size=feature_size,
                depths=tuple(depths),
                num_heads=tuple(num_heads),
                window_size=window_size,
                dropout_path_rate=drop_path,
                spatial_dims=spatial_dims,
                downsample=merging_layer(merging),
            )

    def forward(self, x: Tensor) -> Tensor:
        """Map intensities (B, in_channels, D, H, W) to logits (B, num_classes, D, H, W)."""
        require_channels(x, self.in_channels, name=NAME)
        field, cropped = padded(x, self.stride, name=NAME)
        cells = [n // s for n, s in zip(field.shape[2:], self.stride, strict=True)]
        if math.prod(cells[-self.spatial_dims :]) == 1:
            # Instance norm needs more than one token at the bottleneck.
            field = F.pad(field, (0, STRIDE, 0, 0, 0, 0), mode="replicate")
        network = self.network if self.spatial_dims == 3 else by_slices(self.network)
        return cropped(network(field))[..., : x.shape[4]]


class NumbersOnCpu(TorchFunctionMode):
    """Context in which `torch.linspace` stays on the CPU, as MONAI reads its values as rates.

    Otherwise a network could not be built on the device "meta", whose tensors have no values.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call the function, with `device="cpu"` for `torch.linspace`."""
        kwargs = kwargs or {}
        return func(*args, **({"device": "cpu", **kwargs} if func is torch.linspace else kwargs))


def check_stages(feature_size: int, depths: Sequence[int], num_heads: Sequence[int]) -> None:
    """Raise ValueError unless there are four stages whose heads divide their widths.

    Args:
        feature_size: Width of the first stage; doubles with each stage.
    """
    if feature_size < 12 or feature_size % 12:
        raise ValueError(f"feature_size must be divisible by 12, got {feature_size}")
    if len(depths) != 4 or len(num_heads) != 4:
        raise ValueError(f"four stages need 4 depths and num_heads, got {depths} and {num_heads}")
    for stage, heads in enumerate(num_heads):
        if heads < 1 or (feature_size << stage) % heads:
            raise ValueError(
                f"{heads} heads do not divide the width {feature_size << stage} of stage {stage}"
            )
