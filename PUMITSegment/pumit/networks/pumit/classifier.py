"""Image classifier on the universal ViT."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from pumit.networks.pumit.vit import UniversalViT, initialize_linear


class VitClassifier(nn.Module):
    """Linear classifier on the class token of a universal ViT.

    Args:
        vit: Sizes of the `UniversalViT`, with a fixed patch embedding.

    Source:
        PUMIT, section "Classification Experiments".
    """

    def __init__(self, *, num_classes: int, **vit: Any) -> None:
        super().__init__()
        self.vit = UniversalViT(**vit)
        self.head = nn.Linear(self.vit.dim, num_classes)
        initialize_linear(self.head)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, in_channels, D, H, W) in [0, 1] to logits (B, num_classes)."""
        return self.head(self.vit(x).cls)
