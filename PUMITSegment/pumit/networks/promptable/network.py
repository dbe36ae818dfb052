"""The promptable network: image encoder, prompt encoder and mask decoder together."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pumit.networks.promptable.image_encoder import ImageEmbedding, ImageEncoder
from pumit.networks.promptable.mask_decoder import MaskDecoder
from pumit.networks.promptable.prompt_encoder import PromptBatch, PromptEncoder
from pumit.networks.pumit import Anisotropy

IMAGE_CHANNELS = 3  # intensity, equalised intensity, inside the volume
CLASS_SCALE = 12.0  # of cosines, so that a softmax over classes can be sure


class PromptableNetwork(nn.Module):
    """Segment what the prompts point at, in a field of any degree of anisotropy.

    Args:
        widths: Channels at full, 1/2 and 1/4 in-plane resolution.
        dim: Width of the ViT and of the prompt tokens.
        depth: EVA-02 blocks of the image encoder.
        field_size: In-plane voxels of a training field, divisible by 8.
        num_masks: Answers per prompt set.
        num_decoder_blocks: Two-way blocks of the mask decoder.
        geodesic: Whether prompts are also given as geodesic distances, and answers made from
            these maps directly.
        class_channels: Channels of the class vectors that tell voxels of one structure from those
            of another before anything is clicked; 0 for none.
        num_classes: Structures and backgrounds that these are trained on.
        qk_norm: Whether the decoder's attention compares only directions.

    Raises:
        ValueError: If the sizes do not fit together.
    """

    def __init__(
        self,
        *,
        widths: tuple[int, int, int],
        dim: int,
        depth: int,
        num_heads: int,
        field_size: int,
        num_masks: int,
        num_decoder_blocks: int,
        geodesic: bool = False,
        class_channels: int = 0,
        num_classes: int = 0,
        qk_norm: bool = False,
    ) -> None:
        super().__init__()
        if field_size < 8 or field_size % 8:
            raise ValueError(f"field_size must be a multiple of 8, got {field_size!r}.")
        if min(*widths, dim, depth, num_heads, num_masks, num_decoder_blocks) < 1:
            raise ValueError("Widths and counts must be positive.")
        self.field_size = field_size
        self.num_masks = num_masks
        self.image_encoder = ImageEncoder(
            IMAGE_CHANNELS,
            widths,
            dim,
            depth,
            num_heads,
            (field_size // 8) ** 3,
            class_channels,
        )
        self.prompt_encoder = PromptEncoder(
            dim,
            field_size,
            IMAGE_CHANNELS - 1,
            geodesic=geodesic,
            class_channels=class_channels,
        )
        self.prototypes = (
            nn.Embedding(num_classes, class_channels) if class_channels and num_classes else None
        )
        self.mask_decoder = MaskDecoder(
            widths,
            dim,
            self.prompt_encoder.dense_channels,
            num_masks,
            num_decoder_blocks,
            num_heads,
            self.prompt_encoder.shown_channels,
            qk_norm=qk_norm,
        )

    def embed(self, image: Tensor, anisotropy: Anisotropy) -> ImageEmbedding:
        """Embed a field (B, 3, D, H, W); done once, whatever the number of clicks."""
        return self.image_encoder(image, anisotropy)

    def decode(self, embedding: ImageEmbedding, prompts: PromptBatch) -> tuple[Tensor, Tensor]:
        """Mask logits (B, num_masks, D, H, W) and IoU estimates (B, num_masks)."""
        return self.mask_decoder(embedding, prompts, self.prompt_encoder)

    def class_logits(self, embedding: ImageEmbedding, classes: Tensor | None = None) -> Tensor:
        """Likeness of each voxel to classes that were trained, (B, n, d, h, w).

        Cosines with the prototypes, at the grid of `embedding.half`, times `CLASS_SCALE`.

        Args:
            classes: Numbers of the classes, (n,); None for all.

        Raises:
            ValueError: If the network has no classes.
        """
        if self.prototypes is None or embedding.classes is None:
            raise ValueError("The network has no classes.")
        weight = self.prototypes.weight if classes is None else self.prototypes.weight[classes]
        prototypes = F.normalize(weight.float(), dim=1)
        return CLASS_SCALE * torch.einsum("ne,bedhw->bndhw", prototypes, embedding.classes.float())

    def forward(
        self, image: Tensor, anisotropy: Anisotropy, prompts: PromptBatch
    ) -> tuple[Tensor, Tensor]:
        """Embed and decode."""
        return self.decode(self.embed(image, anisotropy), prompts)
