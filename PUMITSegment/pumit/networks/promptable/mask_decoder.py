"""Mask decoder: two-way transformer, then adaptive up-sampling with stem skips."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pumit.networks.promptable.image_encoder import ImageEmbedding
from pumit.networks.promptable.layers import ChannelNorm, ResidualBlock, pooled
from pumit.networks.promptable.prompt_encoder import PromptBatch, PromptEncoder
from pumit.networks.pumit import SACConv, SACDownsample, SACUpsample

FIRST_SCALE = 8.0  # initial scale of cosines between queries and keys


class CrossAttention(nn.Module):
    """Multi-head attention with a key padding mask.

    Args:
        qk_norm: Whether scores are cosines times a learned scale per head. Without it, queries and
            keys of this network grow in training until every softmax is one-hot.

    Source:
        Dehghani et al., Scaling vision transformers to 22 billion parameters, 2023, section 2:
        normalised queries and keys.
    """

    def __init__(self, dim: int, num_heads: int, *, qk_norm: bool = False) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.scale = nn.Parameter(torch.full((num_heads,), FIRST_SCALE)) if qk_norm else None
        self.q, self.k, self.v = (nn.Linear(dim, dim) for _ in range(3))
        self.proj = nn.Linear(dim, dim)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None = None) -> Tensor:
        """Attend from q (B, N, C) to k and v (B, M, C); padding (B, M) is True where ignored."""
        queries, keys, values = (
            layer(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (B, heads, N, d)
            for layer, x in ((self.q, q), (self.k, k), (self.v, v))
        )
        # Written out: for a few tokens against a few hundred, this is several times faster on a CPU
        # than a fused kernel, above all in the backward pass.
        # In float32: sharp attention has large scores, whose differences, and with them all
        # gradients, vanish in half precision.
        with torch.autocast(q.device.type, enabled=False):
            queries, keys = queries.float(), keys.float()
            if self.scale is None:
                queries = queries * keys.shape[-1] ** -0.5
            else:
                queries = F.normalize(queries, dim=-1) * self.scale[:, None, None]
                keys = F.normalize(keys, dim=-1)
            scores = queries @ keys.mT  # (B, heads, N, M)
            if padding is not None:
                scores = scores.masked_fill(padding[:, None, None], -torch.inf)
            out = scores.softmax(-1) @ values.float()
        return self.proj(out.to(values.dtype).transpose(1, 2).flatten(-2))


class TwoWayBlock(nn.Module):
    """Self-attention of prompt tokens, attention to the image, MLP, attention of the image back.

    Source:
        Kirillov et al., Segment Anything, 2023, "Mask decoder".
    """

    def __init__(self, dim: int, num_heads: int, *, qk_norm: bool = False) -> None:
        super().__init__()
        self.self_attention = CrossAttention(dim, num_heads, qk_norm=qk_norm)
        self.to_image = CrossAttention(dim, num_heads, qk_norm=qk_norm)
        self.to_tokens = CrossAttention(dim, num_heads, qk_norm=qk_norm)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(4))

    def forward(
        self, tokens: Tensor, image: Tensor, token_pe: Tensor, image_pe: Tensor, padding: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Update tokens (B, P, C) and image (B, N, C), given their position codes."""
        n1, n2, n3, n4 = self.norms
        q = n1(tokens) + token_pe
        tokens = tokens + self.self_attention(q, q, n1(tokens), padding)
        tokens = tokens + self.to_image(n2(tokens) + token_pe, image + image_pe, image)
        tokens = tokens + self.mlp(n3(tokens))
        keys = n4(tokens)
        image = image + self.to_tokens(image + image_pe, keys + token_pe, keys, padding)
        return tokens, image


class IoUHead(nn.Module):
    """Head that estimates the IoU of each mask from the tokens and the mask itself.

    Soft statistics of the mask tell more than the prompts: its certainty, and the features inside
    it and along its border, at 1/2 resolution. No gradient flows back into the masks.
    """

    def __init__(self, dim: int, channels: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(2 * dim + 2 * channels + 3, dim), nn.GELU(), nn.Linear(dim, 1)
        )

    def forward(
        self,
        iou_token: Tensor,
        mask_tokens: Tensor,
        x: Tensor,
        logits: Tensor,
        shape: tuple[int, int, int],
    ) -> Tensor:
        """Estimate the IoU of each mask.

        Args:
            iou_token: Shape (B, C).
            mask_tokens: Shape (B, M, C).
            x: Features (B, F, D, H, W).
            logits: Mask logits (B, M, D, H, W).
            shape: Grid (d, h, w) to which features and masks are pooled.

        Returns:
            Shape (B, M), 0 to 1.
        """
        features = pooled(x.detach(), shape).flatten(2).float()  # (B, F, V)
        p = pooled(logits.detach().sigmoid(), shape).flatten(2)  # (B, M, V)
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
        return self.mlp(torch.cat([q.to(x.dtype) for q in parts], dim=-1))[..., 0].float().sigmoid()


class MaskDecoder(nn.Module):
    """Decoder: image embedding and prompts in, mask logits and IoU estimates out.

    Args:
        num_masks: Output masks; the first serves several prompts, the rest one ambiguous prompt.
        shown_maps: Channels of the shown maps and the prior; see `PromptEncoder.shown`.
        qk_norm: See `CrossAttention`.
    """

    def __init__(
        self,
        widths: tuple[int, int, int],
        dim: int,
        prompt_channels: int,
        num_masks: int,
        num_blocks: int,
        num_heads: int,
        shown_maps: int = 0,
        *,
        qk_norm: bool = False,
    ) -> None:
        super().__init__()
        full, half, quarter = widths
        self.num_masks = num_masks
        self.shown_maps = shown_maps
        self.join_half = SACConv(half + prompt_channels, half)
        self.to_quarter = SACDownsample(half, quarter, 1)
        self.join_quarter = SACConv(2 * quarter, quarter)
        self.to_tokens = SACDownsample(quarter, dim, 1)
        self.mask_tokens = nn.Embedding(num_masks, dim)
        self.iou_token = nn.Embedding(1, dim)
        self.blocks = nn.ModuleList(
            TwoWayBlock(dim, num_heads, qk_norm=qk_norm) for _ in range(num_blocks)
        )
        self.norm = nn.LayerNorm(dim)
        self.up_quarter = SACUpsample(dim, quarter, 1)
        self.up_quarter_block = ResidualBlock(quarter)
        self.up_half = SACUpsample(quarter, half, 1)
        self.up_half_block = ResidualBlock(half)
        self.up_full = SACUpsample(half, full, 1)
        if shown_maps:
            self.show = nn.Conv3d(shown_maps, full, 1)
        self.last = SACConv(full, full)
        self.last_norm = ChannelNorm(full)
        self.hyper = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, full + shown_maps + 1))
            for _ in range(num_masks)
        )
        self.iou_head = IoUHead(dim, full)

    def forward(
        self, embedding: ImageEmbedding, prompts: PromptBatch, encoder: PromptEncoder
    ) -> tuple[Tensor, Tensor]:
        """Decode prompts.

        Returns:
            Mask logits (B, num_masks, D, H, W) and IoU estimates in [0, 1], (B, num_masks).
        """
        a = embedding.anisotropy
        # 1. Join prompt maps and image, from 1/2 resolution down to the tokens.
        dense = encoder.dense(prompts, embedding).to(embedding.half.dtype)
        half = self.join_half(torch.cat((embedding.half, dense), dim=1), a.down(1))
        quarter = torch.cat((self.to_quarter(half, a.down(1)), embedding.quarter), dim=1)
        quarter = self.join_quarter(quarter, a.down(2))
        grid = self.to_tokens(quarter, a.down(2)) + embedding.tokens
        # 2. Two-way attention between prompt tokens and image.
        tokens, grid = self._transform(grid, embedding, prompts, encoder)
        # 3. Up-sample to full resolution.
        x = self.up_quarter(grid, a.down(3)) + quarter
        x = self.up_quarter_block(x, a.down(2))
        x = self.up_half_block(self.up_half(x, a.down(2)) + half, a.down(1))
        x = self.up_full(x, a.down(1)) + embedding.full
        if self.shown_maps:
            maps, prior = encoder.shown(dense), encoder.signed_prior(prompts).to(x.dtype)
            shown = F.conv3d(maps, self.show.weight[:, :-1].to(maps.dtype), self.show.bias)
            x = x + F.interpolate(shown, x.shape[2:]) + self.show.weight[:, -1].to(x.dtype) * prior
        x = F.silu(self.last_norm(self.last(F.silu(x), a)))  # (B, full, D, H, W)
        # 4. Each mask token gives the weights of features, maps and prior. The maps are summed at
        #    1/2 resolution, so that only the logits have to be interpolated.
        weights = torch.stack([h(tokens[:, 1 + i]) for i, h in enumerate(self.hyper)], dim=1)
        of_x, offset = weights[..., : x.shape[1]], weights[..., -1].float()
        logits = torch.einsum("bmc,bcdhw->bmdhw", of_x.to(x.dtype), x).float()
        if self.shown_maps:
            of_maps, of_prior = weights[..., x.shape[1] : -2], weights[..., -2].float()
            coarse = torch.einsum("bmc,bcdhw->bmdhw", of_maps.to(maps.dtype), maps).float()
            logits = logits + F.interpolate(coarse, x.shape[2:], mode="trilinear")
            logits = torch.addcmul(logits, of_prior[..., None, None, None], prior.float())
        logits = logits + offset[..., None, None, None]
        d, h, w = half.shape[2:]
        masks = tokens[:, 1 : 1 + self.num_masks]
        return logits, self.iou_head(tokens[:, 0], masks, x, logits, (d, h, w))

    def _transform(
        self,
        grid: Tensor,
        embedding: ImageEmbedding,
        prompts: PromptBatch,
        encoder: PromptEncoder,
    ) -> tuple[Tensor, Tensor]:
        """Run the two-way transformer; return tokens (B, T, dim) and the image grid."""
        batch = grid.shape[0]
        sparse, padding = encoder.sparse(prompts, embedding)
        own = torch.cat((self.iou_token.weight, self.mask_tokens.weight))
        own = own[None].expand(batch, -1, -1)
        token_pe = torch.cat((own, sparse), dim=1)
        padding = torch.cat((padding.new_zeros(batch, own.shape[1]), padding), dim=1)
        positions = encoder.grid_positions(grid.shape[2:], embedding, prompts.slice_ratio)
        image_pe = encoder.positional(positions).flatten(1, 3)
        image, tokens = grid.flatten(2).transpose(1, 2), token_pe
        for block in self.blocks:
            tokens, image = block(tokens, image, token_pe, image_pe, padding)
        return self.norm(tokens), image.transpose(1, 2).reshape(grid.shape)
