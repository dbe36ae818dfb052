"""SAM with BA-SAM's attention, built from its sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from transformers import SamConfig, SamModel

from pumit.networks.ba_sam_transformers import apply_ba_sam


class BaSam(nn.Module):
    """`SamModel` of the transformers package with BA-SAM's global attention.

    Args:
        image_size: Side of a training image, pixels.
        patch: Side of a token, pixels.
        global_blocks: Indices of the blocks with global attention; the others are windowed.

    Source:
        Kirillov et al., Segment Anything, ICCV 2023; Song et al., BA-SAM, CVPR 2024.
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
        config = SamConfig(
            vision_config=vision, prompt_encoder_config=prompts, mask_decoder_config=decoder
        )
        self.model = apply_ba_sam(SamModel(config), trainable=True)

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
        out = self.model(image_embeddings=embedding, **prompts)
        return out.pred_masks, out.iou_scores
