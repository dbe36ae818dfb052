"""BA-SAM on SAM itself, as in the paper: the `SamModel` of the transformers package.

Only the computation of the image encoder changes. Every weight keeps its name, so checkpoints of
SAM or MedSAM load as before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate
from transformers import SamModel
from transformers.models.sam.modeling_sam import SamVisionEncoderOutput

from pumit.networks.ba_attention import BiasModeSlopes, ba_attention
from pumit.networks.ba_sam import RasterDistance

# Relative position scores held at once for one group of heads: 64 MiB in float32.
_GROUP_ENTRIES = 1 << 24


def apply_ba_sam(
    model: SamModel,
    *,
    beta: Sequence[float] | float = 0.1,
    trainable: bool = False,
    bias_in_windows: bool = False,
) -> SamModel:
    """Replace the attention of a SAM image encoder by BA-SAM's, in place.

    Global blocks compute softmax(lambda (q k^T - beta distance) + r(q)) v. lambda depends on the
    actual token count, distance is that on the token grid, and r is SAM's decomposed relative
    positions, interpolated as in SAM. Absolute positions are interpolated, too. With slope 0 and
    the training size, the output equals SAM's.

    Windowed blocks always see 14 x 14 tokens, padding included, so lambda is 1. By default they
    have no bias, since all distances in a window occur in training. Windows at the lower and right
    border are padded with zero tokens, which are attended to as in SAM's training.

    Differs from the source: the sign and the 2D distance (see `bias_mode_mask`). The authors' code
    has no distance term and drops the pretrained relative and absolute positions.

    Args:
        model: A SAM or MedSAM model; changed in place.
        beta: Slope, or one per head. The paper found 0.1 best, and names 1 for zero-shot inference.
        trainable: Whether the slopes are parameters, for fine-tuning. They are then part of the
            state dictionary; a checkpoint without them still loads strictly and keeps them.

    Raises:
        ValueError: If the number of slopes is neither 1 nor the number of heads, or the model was
            already changed.

    Source:
        Song et al., BA-SAM, CVPR 2024, section 4.3.
    """
    if isinstance(model.vision_encoder, BiasModeSamEncoder):
        raise ValueError("This model has BA-SAM's attention already; load it again to change it.")
    config = model.config.vision_config
    slopes = [beta] if isinstance(beta, (int, float)) else list(beta)
    if len(slopes) not in (1, config.num_attention_heads):
        raise ValueError(
            f"{config.num_attention_heads} heads need as many slopes or one, got {len(slopes)}."
        )
    for layer in model.vision_encoder.layers:
        if layer.window_size == 0 or bias_in_windows:
            layer.attn = BiasModeSamAttention(
                layer.attn,
                grid_train=layer.window_size or config.image_size // config.patch_size,
                beta=slopes,
                is_trainable=trainable,
            )
    model.vision_encoder = BiasModeSamEncoder(model.vision_encoder)
    return model


@contextmanager
def image_size(model: SamModel, size: int) -> Iterator[None]:
    """Set the image size of a BA-SAM model within a context.

    The encoder accepts any size, but the prompt encoder and the positional embedding of the image
    need the size, since prompts are in image pixels.

    Args:
        size: Side of the square, padded image in pixels, a multiple of the patch size.

    Raises:
        ValueError: If the model lacks BA-SAM's encoder, or the size is not a multiple of the patch.
    """
    if not isinstance(model.vision_encoder, BiasModeSamEncoder):
        raise ValueError("Only a model from apply_ba_sam takes other image sizes.")
    prompts, config = model.prompt_encoder, model.config.prompt_encoder_config
    patch = model.config.vision_config.patch_size
    if size < patch or size % patch:
        raise ValueError(f"The image size must be a positive multiple of {patch}, got {size}.")
    before = (
        config.image_size,
        config.image_embedding_size,
        prompts.input_image_size,
        prompts.image_embedding_size,
    )
    tokens = size // patch
    config.image_size, config.image_embedding_size = size, tokens
    prompts.input_image_size, prompts.image_embedding_size = size, (tokens, tokens)
    try:
        yield
    finally:
        config.image_size, config.image_embedding_size = before[:2]
        prompts.input_image_size, prompts.image_embedding_size = before[2:]


class BiasModeSamEncoder(nn.Module):
    """SAM's image encoder for images of any size.

    Args:
        encoder: The `SamVisionEncoder` whose modules are reused under their names.
    """

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.config: Any = encoder.config
        self.patch_embed: Any = encoder.patch_embed
        self.pos_embed: Tensor | None = encoder.pos_embed
        self.layers: nn.ModuleList = encoder.layers
        self.neck: Any = encoder.neck

    def get_input_embeddings(self) -> nn.Module:
        """Return the patch embedding, as transformers models do."""
        return self.get_submodule("patch_embed")

    def forward(self, pixel_values: Tensor | None = None, **options: Any) -> SamVisionEncoderOutput:
        """Embed images.

        Args:
            pixel_values: Shape (B, 3, height, width), both multiples of the patch size.
            options: Options of transformers; attention weights and hidden states are not available.

        Returns:
            `last_hidden_state`, shape (B, channels, height / patch, width / patch).

        Raises:
            ValueError: If the size is not a multiple of the patch, or attention weights or hidden
                states are requested.
        """
        if options.get("output_attentions") or options.get("output_hidden_states"):
            raise ValueError("BA-SAM's encoder keeps no attention weights and no hidden states.")
        patch = self.config.patch_size
        if pixel_values is None or any(n % patch or not n for n in pixel_values.shape[-2:]):
            got = None if pixel_values is None else tuple(pixel_values.shape)
            raise ValueError(f"Image sides must be multiples of {patch} pixels, got {got}.")
        # Only the projection: the patch embedding module requires the training size.
        hidden = self.patch_embed.projection(pixel_values).permute(0, 2, 3, 1)  # (B, H, W, C)
        if self.pos_embed is not None:
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
        beta: One slope, or one per head.
    """

    def __init__(
        self,
        attention: Any,
        *,
        grid_train: int,
        beta: Sequence[float],
        is_trainable: bool,
    ) -> None:
        super().__init__()
        self.num_attention_heads = int(attention.num_attention_heads)
        self.grid_train = grid_train
        self.qkv: nn.Linear = attention.qkv
        self.proj: nn.Linear = attention.proj
        self.use_rel_pos = bool(attention.use_rel_pos)
        if self.use_rel_pos:
            self.rel_pos_h: Tensor = attention.rel_pos_h
            self.rel_pos_w: Tensor = attention.rel_pos_w
        self.slopes = BiasModeSlopes(self.num_attention_heads, is_trainable=is_trainable)
        with torch.no_grad():
            self.slopes.beta.copy_(torch.as_tensor(beta))
        self.slopes.to(self.proj.weight.device)

    def forward(
        self, hidden_states: Tensor, output_attentions: bool = False
    ) -> tuple[Tensor, None]:
        """Attend over a grid of tokens.

        Args:
            hidden_states: Shape (B, H, W, C).

        Returns:
            Shape (B, H, W, C), and None for the attention weights.
        """
        batch, height, width, channels = hidden_states.shape
        heads = self.num_attention_heads
        qkv = self.qkv(hidden_states).reshape(batch, height * width, 3, heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # (B, heads, N, d)
        distance = RasterDistance((height, width), (1.0, 1.0), device=q.device)
        tables = self._relative_tables(height, width)
        group = heads
        if tables is not None:
            group = max(1, _GROUP_ENTRIES // (batch * height * width * (height + width)))
        parts = []
        for first in range(0, heads, group):
            part = slice(first, first + group)
            scores = None if tables is None else _axis_scores(q[:, part], tables)
            out = ba_attention(
                q[:, part],
                k[:, part],
                v[:, part],
                distance,
                self.slopes()[part],
                n_train=self.grid_train**2,
                axis_scores=scores,
            )
            parts.append(out)
        out = torch.cat(parts, dim=1).transpose(1, 2).reshape(batch, height, width, channels)
        return self.proj(out), None

    def _relative_tables(self, height: int, width: int) -> tuple[Tensor, Tensor] | None:
        if not self.use_rel_pos:
            return None
        return (
            relative_position_table(self.rel_pos_h, height),
            relative_position_table(self.rel_pos_w, width),
        )

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        # SAM's own checkpoints have no slopes: keep the current ones.
        key = prefix + "slopes.beta"
        if isinstance(self.slopes.beta, nn.Parameter) and key not in state_dict:
            state_dict[key] = self.slopes.beta.detach().clone()
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def resize_absolute_positions(positions: Tensor, size: Sequence[int]) -> Tensor:
    """Resize an absolute position embedding, shape (1, H, W, C), to (1, *size, C), bicubic.

    Returned unchanged if the size is equal.
    """
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


def _axis_scores(q: Tensor, tables: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Compute the scores of unscaled queries and relative positions along each axis."""
    height, width = (len(table) for table in tables)
    grid = q.reshape(*q.shape[:2], height, width, q.shape[-1])
    scores_h = torch.einsum("bnhwc,hkc->bnhwk", grid, tables[0])
    scores_w = torch.einsum("bnhwc,wkc->bnhwk", grid, tables[1])
    return scores_h.flatten(2, 3), scores_w.flatten(2, 3)
