"""The promptable network: image encoder, prompt encoder and mask decoder."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pumit.networks.promptable.image_encoder import ImageEmbedding, ImageEncoder
from pumit.networks.promptable.mask_decoder import MaskDecoder
from pumit.networks.promptable.prompt_encoder import PromptBatch, PromptEncoder
from pumit.networks.pumit import Anisotropy

IMAGE_CHANNELS = 3  # intensity, equalised intensity, inside the volume
CLASS_SCALE = 12.0  # inverse temperature of cosines, so that a softmax over classes can be sharp


class PromptableNetwork(nn.Module):
    """Promptable segmentation network for fields of any degree of anisotropy.

    Args:
        widths: Channels at full, 1/2 and 1/4 in-plane resolution.
        dim: Width of the ViT and of the prompt tokens.
        field_size: In-plane voxels of a training field, divisible by 8.
        geodesic: Whether to add geodesic maps of the prompts, and feed them to the output directly.
        class_channels: Channels of the prompt-independent class vectors, which separate voxels of
            different structures; 0 for none.
        num_classes: Number of structures and backgrounds that the class vectors are trained on.

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
        """Embed a field (B, 3, D, H, W); needed once, whatever the number of clicks."""
        return self.image_encoder(image, anisotropy)

    def decode(self, embedding: ImageEmbedding, prompts: PromptBatch) -> tuple[Tensor, Tensor]:
        """Return mask logits (B, num_masks, D, H, W) and IoU estimates (B, num_masks)."""
        return self.mask_decoder(embedding, prompts, self.prompt_encoder)

    def class_logits(self, embedding: ImageEmbedding, classes: Tensor | None = None) -> Tensor:
        """Return class logits of each voxel, (B, n, d, h, w), on the grid of `embedding.half`.

        These are cosines with the class prototypes times `CLASS_SCALE`.

        Args:
            classes: Class indices, (n,); None for all.

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
