"""BA-SAM on SAM itself, as in the paper: the `SamModel` of the transformers package.

Only the computation of the image encoder changes. Every weight keeps its name, so checkpoints of
SAM or MedSAM load as before.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate
from transformers import SamConfig, SamModel
from transformers.models.sam.modeling_sam import SamVisionEncoderOutput

from pumit.networks.ba_sam import ba_attention

# Relative position scores held at once for one group of heads: 64 MiB in float32.
_GROUP_ENTRIES = 1 << 24
FIRST_SLOPE = 0.1  # of every head; the paper found it best


class BaSam(nn.Module):
    """SAM with BA-SAM's attention in the blocks with global attention.

    These compute softmax(lambda (q k^T - slope distance) + r(q)) v. lambda depends on the actual
    token count, distance is that on the token grid, and r is SAM's decomposed relative positions,
    interpolated as in SAM. Absolute positions are interpolated, too. With slope 0 and the training
    size, the output equals SAM's.

    Windowed blocks always see as many tokens, padding included, so lambda is 1; they have no bias,
    since all distances in a window occur in training. Windows at the lower and right border are
    padded with zero tokens, which are attended to as in SAM's training.

    Args:
        image_size: Side of a training image, pixels.
        patch: Side of a token, pixels.
        global_blocks: Indices of the blocks with global attention; the others are windowed.

    Source:
        Kirillov et al., Segment Anything, ICCV 2023; Song et al., BA-SAM, CVPR 2024, section 4.3.
        Differs from the source: the sign and the 2D distance (see `ba_attention`). The authors'
        code has no distance term and drops the pretrained relative and absolute positions.
    """

    def __init__(
        self,
        *,
        image_size: int,
        patch: int,
        dim: int,
        depth: int,
        num_heads: int,
        hidden: int,
        global_blocks: Sequence[int],
        window: int,
        width: int,
        decoder_hidden: int,
        decoder_heads: int,
    ) -> None:
        super().__init__()
        vision = {
            "hidden_size": dim,
            "num_hidden_layers": depth,
            "num_attention_heads": num_heads,
            "mlp_dim": hidden,
            "image_size": image_size,
            "patch_size": patch,
            "window_size": window,
            "global_attn_indexes": list(global_blocks),
            "output_channels": width,
            "num_pos_feats": width // 2,
        }
        prompts = {
            "hidden_size": width,
            "image_size": image_size,
            "patch_size": patch,
            "image_embedding_size": image_size // patch,
        }
        decoder = {
            "hidden_size": width,
            "mlp_dim": decoder_hidden,
            "num_attention_heads": decoder_heads,
            "iou_head_hidden_dim": width,
        }
        model = SamModel(
            SamConfig(
                vision_config=vision, prompt_encoder_config=prompts, mask_decoder_config=decoder
            )
        )
        for layer in model.vision_encoder.layers:
            if layer.window_size == 0:
                layer.attn = BiasModeSamAttention(layer.attn, grid_train=image_size // patch)
        model.vision_encoder = BiasModeSamEncoder(model.vision_encoder)
        self.model = model

    def embed(self, pixels: Tensor) -> Tensor:
        """Encode normalised images (B, 3, n, n) to (B, width, n / patch, n / patch)."""
        encoder: Any = self.model.vision_encoder
        features: Tensor = encoder(pixels).last_hidden_state
        return features

    def forward(self, embedding: Tensor, **prompts: Any) -> tuple[Tensor, Tensor]:
        """Decode prompts; see `SamModel.forward`.

        Args:
            prompts: `input_points`, `input_labels`, `input_boxes`, `multimask_output`.

        Returns:
            Logits (B, prompts, masks, n / 4, n / 4), and their IoU estimates.
        """
        # The prompt encoder and the image's positional embedding need the size of the image, since
        # prompts are in its pixels.
        encoder: Any = self.model.prompt_encoder
        config = self.model.config.prompt_encoder_config
        tokens = embedding.shape[-1]
        config.image_size = encoder.input_image_size = tokens * config.patch_size
        config.image_embedding_size = tokens
        encoder.image_embedding_size = (tokens, tokens)
        out = self.model(image_embeddings=embedding, **prompts)
        return out.pred_masks, out.iou_scores


class BiasModeSamEncoder(nn.Module):
    """SAM's image encoder for images of any size.

    Args:
        encoder: The `SamVisionEncoder` whose modules are reused under their names.
    """

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.config: Any = encoder.config
        self.patch_embed: Any = encoder.patch_embed
        self.pos_embed: Tensor = encoder.pos_embed
        self.layers: nn.ModuleList = encoder.layers
        self.neck: Any = encoder.neck

    def forward(self, pixel_values: Tensor) -> SamVisionEncoderOutput:
        """Embed images (B, 3, height, width) to (B, channels, height / patch, width / patch).

        Raises:
            ValueError: If the size is not a multiple of the patch.
        """
        patch = self.config.patch_size
        if any(n % patch or not n for n in pixel_values.shape[-2:]):
            raise ValueError(
                f"Image sides must be multiples of {patch} pixels, got {tuple(pixel_values.shape)}."
            )
        # Only the projection: the patch embedding module requires the training size.
        hidden = self.patch_embed.projection(pixel_values).permute(0, 2, 3, 1)  # (B, H, W, C)
        hidden = hidden + resize_absolute_positions(self.pos_embed, hidden.shape[1:3])
        for layer in self.layers:
            out = layer(hidden)
            # A tuple before transformers 4.54.
            hidden = out[0] if isinstance(out, tuple) else out
        return SamVisionEncoderOutput(last_hidden_state=self.neck(hidden))


class BiasModeSamAttention(nn.Module):
    """SAM's attention with BA-SAM's scale and bias, without storing the score matrix.

    Args:
        attention: The `SamVisionAttention` whose weights are reused under their names.
        grid_train: Side of the square token grid in training.
    """

    def __init__(self, attention: Any, *, grid_train: int) -> None:
        super().__init__()
        self.num_attention_heads = int(attention.num_attention_heads)
        self.grid_train = grid_train
        self.qkv: nn.Linear = attention.qkv
        self.proj: nn.Linear = attention.proj
        self.rel_pos_h: Tensor = attention.rel_pos_h
        self.rel_pos_w: Tensor = attention.rel_pos_w
        slopes = torch.full((self.num_attention_heads,), FIRST_SLOPE)
        self.slopes = nn.ParameterDict({"beta": nn.Parameter(slopes)})

    def forward(
        self, hidden_states: Tensor, output_attentions: bool = False
    ) -> tuple[Tensor, None]:
        """Attend over a grid of tokens (B, H, W, C); returns the same shape, and no weights."""
        batch, height, width, channels = hidden_states.shape
        heads = self.num_attention_heads
        qkv = self.qkv(hidden_states).reshape(batch, height * width, 3, heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # (B, heads, N, d)
        table_h = relative_position_table(self.rel_pos_h, height)
        table_w = relative_position_table(self.rel_pos_w, width)
        group = max(1, _GROUP_ENTRIES // (batch * height * width * (height + width)))
        parts = []
        for first in range(0, heads, group):
            part = slice(first, first + group)
            cells = q[:, part].unflatten(2, (height, width))
            scores_h = torch.einsum("bnhwc,hkc->bnhwk", cells, table_h).flatten(2, 3)
            scores_w = torch.einsum("bnhwc,wkc->bnhwk", cells, table_w).flatten(2, 3)
            out = ba_attention(
                q[:, part],
                k[:, part],
                v[:, part],
                (height, width),
                self.slopes["beta"][part],
                n_train=self.grid_train**2,
                axis_scores=(scores_h, scores_w),
            )
            parts.append(out)
        out = torch.cat(parts, dim=1).transpose(1, 2).reshape(batch, height, width, channels)
        return self.proj(out), None


def resize_absolute_positions(positions: Tensor, size: Sequence[int]) -> Tensor:
    """Resize an absolute position embedding, shape (1, H, W, C), to (1, *size, C), bicubic."""
    if tuple(positions.shape[1:3]) == tuple(size):
        return positions
    resized = interpolate(
        positions.permute(0, 3, 1, 2).float(),
        size=tuple(size),
        mode="bicubic",
        align_corners=False,
        antialias=True,
    )
    return resized.permute(0, 2, 3, 1).to(positions.dtype)


def relative_position_table(embedding: Tensor, size: int) -> Tensor:
    """Return relative position vectors for every pair of coordinates along one axis.

    Args:
        embedding: One vector per offset, shape (2 n - 1, d), trained for n coordinates; linearly
            resized if `size` differs, as in SAM.

    Returns:
        Shape (size, size, d): for the query at i and the key at j, the vector of offset i - j.
    """
    length = 2 * size - 1
    if len(embedding) != length:
        line = embedding.T[None].float()
        resized = interpolate(line, size=length, mode="linear", align_corners=False)
        embedding = resized[0].T.to(embedding.dtype)
    index = torch.arange(size, device=embedding.device)
    return embedding[index[:, None] - index[None, :] + size - 1]
