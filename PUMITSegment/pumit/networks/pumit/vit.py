"""Universal vision transformer, with heads for classification and masked image modelling."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pumit.networks.pumit.anisotropy import Anisotropy, require_divisible, require_reducible
from pumit.networks.pumit.eva import LAYER_NORM_EPS, AdditiveRotaryEmbedding3D, EvaBlock
from pumit.networks.pumit.sac import SACDownsample, embed_patches

PREFIX = 1  # class token, without a position


def resample_positions(table: Tensor, grid: Sequence[int]) -> Tensor:
    """Resample a position table (1, C, d, h, w) to (1, C, *grid).

    Axes that shrink are area-averaged, then axes that grow are linearly interpolated.
    """
    shrunk = tuple(min(n, m) for n, m in zip(grid, table.shape[2:], strict=True))
    if shrunk != tuple(table.shape[2:]):
        table = F.interpolate(table, size=shrunk, mode="area")
    if shrunk != tuple(grid):
        table = F.interpolate(table, size=tuple(grid), mode="trilinear", align_corners=False)
    return table


class FixedPatchEmbedding(nn.Conv3d):
    """Patch embedding with a fixed patch size; ignores anisotropy."""

    def __init__(self, in_channels: int, dim: int, patch: tuple[int, int, int]) -> None:
        super().__init__(in_channels, dim, patch, stride=patch)

    def forward(self, x: Tensor, anisotropy: Anisotropy | None) -> Tensor:  # type: ignore[override]
        """Map (B, C, D, H, W) to (B, dim, D / d, H / h, W / w)."""
        return embed_patches(x, self.weight, self.bias)


@dataclass(frozen=True)
class VitFeatures:
    """Output of the transformer, after its final norm.

    Attributes:
        cls: Class token, (B, dim).
        tokens: Patch tokens in raster order, (B, N, dim).
        grid: Patches along (D, H, W); their product is N.
    """

    cls: Tensor
    tokens: Tensor
    grid: tuple[int, int, int]


class UniversalViT(nn.Module):
    """Plain vision transformer for images of any degree of anisotropy.

    Args:
        num_heads: Attention heads; dim / num_heads must be divisible by 4.
        position_table: Size of the learned position table in patches, (D, H, W).
        patch_halvings: log2 of the in-plane patch size of the adaptive patch embedding.
        fixed_patch: Patch size (D, H, W) in voxels of a plain patch embedding; None for the
            adaptive one.
        train_tokens: Tokens of a training image, class token included, for BA-SAM's scaling factor
            and distance bias; None for plain attention.

    Source:
        PUMIT, section "Universal ViT"; Fang et al., EVA-02, 2023.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        dim: int,
        depth: int,
        num_heads: int,
        hidden: int,
        position_table: Sequence[int],
        patch_halvings: int = 4,
        fixed_patch: Sequence[int] | None = None,
        train_tokens: int | None = None,
    ) -> None:
        super().__init__()
        self.dim = dim
        self.patch_halvings = patch_halvings
        self.fixed_patch: tuple[int, int, int] | None = None
        self.patch_embedding: FixedPatchEmbedding | SACDownsample
        if fixed_patch is None:
            self.patch_embedding = SACDownsample(in_channels, dim, patch_halvings)
        else:
            d, h, w = fixed_patch
            self.fixed_patch = (d, h, w)
            self.patch_embedding = FixedPatchEmbedding(in_channels, dim, self.fixed_patch)
        self.position_table = nn.Parameter(torch.empty(1, dim, *position_table))
        self.cls_token = nn.Parameter(torch.empty(1, PREFIX, dim))
        self.rope = AdditiveRotaryEmbedding3D(dim // num_heads)
        self.blocks = nn.ModuleList(
            EvaBlock(dim, num_heads, hidden, train_tokens) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(dim, eps=LAYER_NORM_EPS)
        self.apply(initialize_linear)
        nn.init.trunc_normal_(self.position_table, std=0.02)
        nn.init.trunc_normal_(self.cls_token, std=0.02)

    def embed(
        self, x: Tensor, anisotropy: Anisotropy | None
    ) -> tuple[Tensor, tuple[int, int, int]]:
        """Embed an image to patch tokens with absolute positions, (B, N, dim), and their grid.

        Raises:
            PumitError: If the size is not a multiple of the patch.
            ValueError: If the adaptive patch embedding gets no anisotropy.
        """
        if self.fixed_patch is not None:
            require_divisible(x, self.fixed_patch)
        elif anisotropy is None:
            raise ValueError("The adaptive patch embedding needs the image's anisotropy, got None.")
        else:
            require_reducible(x, anisotropy, self.patch_halvings)
        patches = self.patch_embedding(x, anisotropy)
        d, h, w = patches.shape[2:]
        patches = patches + resample_positions(self.position_table, (d, h, w))
        return patches.flatten(2).transpose(1, 2), (d, h, w)

    def transform(
        self, tokens: Tensor, grid: tuple[int, int, int], taps: Collection[int] = ()
    ) -> tuple[VitFeatures, list[Tensor]]:
        """Run the blocks.

        Args:
            tokens: Embedded patches (B, N, dim).
            grid: Patches along (D, H, W).
            taps: Blocks, counted from 1, whose outputs to return as well.

        Returns:
            The final features, and the taps' patch tokens (B, N, dim) in order; those of the last
            block are normalised.
        """
        rotations = self.rope.of_grid(grid, tokens, prefix=PREFIX)
        x = torch.cat((self.cls_token.expand(len(tokens), -1, -1), tokens), dim=1)
        tapped = []
        for number, block in enumerate(self.blocks, start=1):
            x = block(x, rotations, grid)
            if number == len(self.blocks):
                x = self.norm(x)
            if number in taps:
                tapped.append(x[:, PREFIX:])
        return VitFeatures(x[:, 0], x[:, PREFIX:], grid), tapped

    def forward(self, x: Tensor, anisotropy: Anisotropy | None = None) -> VitFeatures:
        """Encode an image.

        Args:
            x: Intensities, shape (B, in_channels, D, H, W); H and W divisible by the patch, D by
                `anisotropy.depth_stride(patch_halvings)` or the fixed patch's depth.
            anisotropy: State at full resolution; ignored by a fixed patch embedding.

        Raises:
            PumitError: If the size is not a multiple of the patch.
        """
        tokens, grid = self.embed(x, anisotropy)
        return self.transform(tokens, grid)[0]


def initialize_linear(module: nn.Module) -> None:
    """Initialise a linear layer with truncated normal weights (std 0.02) and zero biases."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


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


def random_mask(
    batch: int,
    num_patches: int,
    *,
    ratio: float,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw patches to mask uniformly; (1 - ratio) of each image's, rounded down, stay visible.

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
    return rank >= int((1 - ratio) * num_patches)


class MaskedImageModel(nn.Module):
    """Masked image model that predicts the soft visual tokens of masked patches.

    The mask token replaces both patch embedding and absolute position before the first block, so a
    masked patch has only its rotary position.

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
