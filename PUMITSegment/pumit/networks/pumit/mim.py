"""Masked image modelling: universal ViT with a mask token and a head over visual tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from pumit.networks.pumit.anisotropy import Anisotropy
from pumit.networks.pumit.vit import UniversalViT, initialize_linear


def num_visible(num_patches: int, ratio: float) -> int:
    """Return the number of visible patches: (1 - ratio) of them, rounded down."""
    return int((1 - ratio) * num_patches)


def random_mask(
    batch: int,
    num_patches: int,
    *,
    ratio: float,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw patches to mask uniformly, the same number in each image.

    Returns:
        Boolean (batch, num_patches) on the generator's device, True where masked.

    Raises:
        ValueError: If the ratio is not within 0 to 1.
    """
    if not 0 <= ratio <= 1:
        raise ValueError(f"The mask ratio must be 0 to 1, got {ratio}.")
    device = "cpu" if generator is None else generator.device
    noise = torch.rand(batch, num_patches, generator=generator, device=device)
    rank = noise.argsort(dim=1).argsort(dim=1)
    return rank >= num_visible(num_patches, ratio)


class MaskedImageModel(nn.Module):
    """Masked image model that predicts the soft visual tokens of masked patches.

    The mask token replaces both patch embedding and absolute position before the first block, so a
    masked patch has only its rotary position.

    Args:
        vit: Sizes of the `UniversalViT`.

    Source:
        PUMIT, section "MIM Pre-training". The loss is eq. 6 with the missing minus sign:
        `torch.nn.functional.cross_entropy(logits, probabilities)`.
    """

    def __init__(self, *, num_tokens: int, **vit: Any) -> None:
        super().__init__()
        self.vit = UniversalViT(**vit)
        dim = self.vit.dim
        self.mask_token = nn.Parameter(torch.empty(1, 1, dim))
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, num_tokens))
        self.head.apply(initialize_linear)
        # Differs from the source, which leaves it uninitialised unless EVA-02 weights are loaded.
        nn.init.trunc_normal_(self.mask_token, std=0.02)

    def forward(self, x: Tensor, anisotropy: Anisotropy, is_masked: Tensor) -> Tensor:
        """Predict logits over the codebook for the masked patches.

        Args:
            x: ImageNet-normalised intensities, shape (B, in_channels, D, H, W).
            anisotropy: State at full resolution.
            is_masked: Boolean (B, N), N patches in raster order.

        Returns:
            Shape (M, num_tokens) for the M masked patches, in the order of
            `probabilities[is_masked]` for tokenizer probabilities of shape (B, N, num_tokens).

        Raises:
            ValueError: If the mask does not match the patches.
        """
        tokens, grid = self.vit.embed(x, anisotropy)
        if is_masked.shape != tokens.shape[:2]:
            raise ValueError(
                f"The mask must have shape {tuple(tokens.shape[:2])} for patches {grid}, "
                f"got {tuple(is_masked.shape)}."
            )
        tokens = torch.where(is_masked[..., None], self.mask_token.to(tokens.dtype), tokens)
        features, _ = self.vit.transform(tokens, grid)
        return self.head(features.tokens[is_masked])
