"""Light mask decoder: prompts join at 1/2 resolution, and full resolution sees no 3^3 kernel."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pumit.networks.promptable.image_encoder import ImageEmbedding
from pumit.networks.promptable.layers import ChannelNorm, ResidualBlock
from pumit.networks.promptable.mask_decoder import TwoWayBlock
from pumit.networks.promptable.prompt_encoder import PromptBatch, PromptEncoder
from pumit.networks.pumit import SACConv, SACDownsample, SACUpsample


class HalfIoUHead(nn.Module):
    """Estimate the IoU of each answer from the tokens and from the answer itself.

    The mask's own soft statistics tell more than the prompts: how decided it is, and what the
    features are inside it and along its border. Both are read at 1/2 resolution. No gradient
    flows back into the masks.

    Args:
        dim: Width of the tokens.
        channels: Channels of the features at 1/2 resolution.
    """

    def __init__(self, dim: int, channels: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(2 * dim + 2 * channels + 3, dim), nn.GELU(), nn.Linear(dim, 1)
        )

    def forward(
        self, iou_token: Tensor, mask_tokens: Tensor, half: Tensor, logits: Tensor
    ) -> Tensor:
        """Estimate.

        Args:
            iou_token: Shape (B, C).
            mask_tokens: Shape (B, M, C).
            half: Features (B, F, d, h, w).
            logits: Answers (B, M, D, H, W).

        Returns:
            Shape (B, M), 0 to 1.
        """
        features = half.detach().flatten(2).float()  # (B, F, V)
        d, h, w = half.shape[2:]
        p = F.adaptive_avg_pool3d(logits.detach().float().sigmoid(), (d, h, w)).flatten(2)
        hard = (p > 0.5).float()
        border = p * (1 - p)
        mass, edge_mass = p.sum(-1, keepdim=True), border.sum(-1, keepdim=True)
        agreement = 2 * (p * hard).sum(-1, keepdim=True)
        agreement = agreement / (mass + hard.sum(-1, keepdim=True)).clamp_min(1)
        doubt = edge_mass / mass.clamp_min(1)
        size = p.mean(-1, keepdim=True).clamp_min(1e-5).log() / 10
        inside = p @ features.mT / mass.clamp_min(1)  # (B, M, F)
        edge = border @ features.mT / edge_mass.clamp_min(1)
        iou = iou_token[:, None].expand_as(mask_tokens)
        parts = (iou, mask_tokens.detach(), inside, edge, agreement, doubt, size)
        return self.mlp(torch.cat([q.to(half.dtype) for q in parts], -1))[..., 0].float().sigmoid()


class LightMaskDecoder(nn.Module):
    """Turn an image embedding and prompts into masks and their estimated IoU.

    A click costs one pass of this, so that it is kept cheap: the prompt maps are mixed into the
    features at 1/2 resolution by a pointwise convolution, 3^3 kernels work at 1/4 and, one, at
    1/2 resolution, and at full resolution sub-pixel up-sampling meets the stem's own features in
    a pointwise convolution. An answer is a product of these with weights of its mask token, plus
    the earlier answer, which so need not be learnt by way of coarse features.

    Args:
        widths: Stem channels at full, 1/2 and 1/4 resolution.
        dim: Width of the tokens.
        prompt_channels: Channels of the prompt maps.
        num_masks: Answers; the first is for several prompts, the rest for one ambiguous prompt.
        num_blocks: Two-way blocks.
        num_heads: Attention heads.

    Source:
        Kirillov et al., Segment Anything, 2023, "Mask decoder". Differs from the source: in 3D by
        PUMIT's adaptive convolutions, with the prompts as maps too, and with skips from the stem.
    """

    def __init__(
        self,
        widths: tuple[int, int, int],
        dim: int,
        prompt_channels: int,
        num_masks: int,
        num_blocks: int,
        num_heads: int,
    ) -> None:
        super().__init__()
        full, half, quarter = widths
        self.num_masks = num_masks
        self.join_half = nn.Conv3d(half + prompt_channels, half, 1)
        self.to_quarter = SACDownsample(half, quarter, 1)
        self.to_tokens = SACDownsample(quarter, dim, 1)
        self.mask_tokens = nn.Embedding(num_masks, dim)
        self.iou_token = nn.Embedding(1, dim)
        self.blocks = nn.ModuleList(
            TwoWayBlock(dim, num_heads, dim // 2) for _ in range(num_blocks)
        )
        self.norm = nn.LayerNorm(dim)
        self.up_quarter = SACUpsample(dim, quarter, 1)
        self.up_quarter_block = ResidualBlock(quarter)
        self.up_half = SACUpsample(quarter, half, 1)
        self.half_norm, self.half_conv = ChannelNorm(half), SACConv(half, half)
        self.up_full = SACUpsample(half, full, 1)
        self.out_norm = ChannelNorm(half)
        self.last = nn.Linear(full, full)
        seen = half + prompt_channels
        self.hyper = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, seen + full + 2))
            for _ in range(num_masks)
        )
        self.iou_head = HalfIoUHead(dim, half)

    def forward(
        self, embedding: ImageEmbedding, prompts: PromptBatch, encoder: PromptEncoder
    ) -> tuple[Tensor, Tensor]:
        """Answer prompts.

        Returns:
            Mask logits (B, num_masks, D, H, W) and IoU estimates in [0, 1], (B, num_masks).
        """
        a = embedding.anisotropy
        # 1. Prompts meet the image.
        maps = encoder.dense(prompts, embedding).to(embedding.half.dtype)
        half = embedding.half + F.silu(self.join_half(torch.cat((embedding.half, maps), dim=1)))
        quarter = self.to_quarter(half, a.down(1)) + embedding.quarter
        grid = self.to_tokens(quarter, a.down(2)) + embedding.tokens
        # 2. Image and prompts attend to each other.
        tokens, grid = two_way(self, grid, embedding, prompts, encoder)
        # 3. Back to full resolution, with what lies beside at every step.
        x = self.up_quarter(grid, a.down(3)) + quarter
        x = self.up_quarter_block(x, a.down(2))
        x = self.up_half(x, a.down(2)) + half
        x = x + self.half_conv(F.silu(self.half_norm(x)), a.down(1))  # (B, half, d, h, w)
        x = F.silu(self.out_norm(x))
        fine = F.silu(self.up_full(x, a.down(1)) + embedding.full)
        # A pointwise convolution as one matrix product, (full, full) by (B, full, V).
        bias = self.last.bias[:, None].to(fine.dtype)
        features = F.silu(self.last.weight.to(fine.dtype) @ fine.flatten(2) + bias)
        # 4. Each mask's token weighs features and prompt maps at 1/2 resolution, then the
        #    features at full resolution and the earlier answer.
        weights = torch.stack([h(tokens[:, 1 + i]) for i, h in enumerate(self.hyper)], dim=1)
        n = x.shape[1] + maps.shape[1]
        coarse, fine_weights = weights[..., :n], weights[..., n:-2]
        prior_weight, offset = weights[..., -2:-1], weights[..., -1:]
        seen = torch.cat((x, maps), dim=1).flatten(2)  # (B, half + maps, v)
        answer = (coarse.to(seen.dtype) @ seen).view(-1, self.num_masks, *x.shape[2:])
        answer = F.interpolate(answer.float(), fine.shape[2:], mode="trilinear")
        logits = answer.flatten(2) + fine_weights.to(features.dtype) @ features
        before = (2 * prompts.prior - 1) * prompts.has_prior[:, None, None, None, None]
        logits = torch.baddbmm(logits, prior_weight.float(), before.flatten(2).float())
        logits = (logits + offset.float()).view(-1, self.num_masks, *fine.shape[2:])
        return logits, self.iou_head(tokens[:, 0], tokens[:, 1 : 1 + self.num_masks], x, logits)


def two_way(
    decoder: LightMaskDecoder,
    grid: Tensor,
    embedding: ImageEmbedding,
    prompts: PromptBatch,
    encoder: PromptEncoder,
) -> tuple[Tensor, Tensor]:
    """Two-way transformer over prompt tokens and the image grid (B, dim, d, h, w).

    Returns:
        Tokens (B, T, dim), first the IoU's and the masks', and the image grid.
    """
    batch = grid.shape[0]
    sparse, padding = encoder.sparse(prompts, embedding)
    own = torch.cat((decoder.iou_token.weight, decoder.mask_tokens.weight))
    token_pe = torch.cat((own[None].expand(batch, -1, -1), sparse), dim=1)
    padding = torch.cat((padding.new_zeros(batch, len(own)), padding), dim=1)
    positions = encoder.grid_positions(grid.shape[2:], embedding, prompts.slice_ratio)
    image_pe = encoder.positional(positions).flatten(1, 3)
    image, tokens = grid.flatten(2).transpose(1, 2), token_pe
    for block in decoder.blocks:
        tokens, image = block(tokens, image, token_pe, image_pe, padding)
    return decoder.norm(tokens), image.transpose(1, 2).reshape(grid.shape)
