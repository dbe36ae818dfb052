"""Masked image modelling of the universal ViT: predict the soft visual tokens of masked patches."""

from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from pumit.errors import CheckpointError
from pumit.inference.loading import build_from, read_model
from pumit.models.index import find_model
from pumit.networks.pumit.anisotropy import Anisotropy
from pumit.networks.pumit.tokenizer import VisualTokenizer
from pumit.networks.pumit.vit import MaskedImageModel, random_mask
from pumit.training.loop.context import TrainingRun
from pumit.training.loop.task import Draw, SourceTask
from pumit.training.pretraining import image_recipe
from pumit.training.pretraining.image_source import ImageBatch, ImageSource
from pumit.training.pretraining.objective import Objective, begun_network, sizes_of
from pumit.training.pretraining.perceptual import IMAGENET_MEAN, IMAGENET_STD
from pumit.training.recipes.pretraining import MASK_RATIO, MimRecipe


def imagenet_normalised(image: Tensor) -> Tensor:
    """Normalise intensities in [0, 1], (B, 3, D, H, W), by ImageNet's mean and deviation."""
    mean, std = (
        torch.tensor(v, dtype=image.dtype, device=image.device).view(1, 3, 1, 1, 1)
        for v in (IMAGENET_MEAN, IMAGENET_STD)
    )
    return (image - mean) / std


def draw_masked(
    source: ImageSource,
    ratio: float,
    da0: int,
    generator: torch.Generator,
    shared: torch.Generator,
) -> ImageBatch:
    """Draw images, and mask patches at random."""
    batch = source.draw(da0, generator, shared)
    batch.is_masked = random_mask(len(batch), batch.patches, ratio=ratio, generator=generator)
    return batch


class MimTask(SourceTask):
    """Masked image modelling: mask patches and predict their soft tokens.

    Source:
        PUMIT, section "MIM Pre-training", eq. 6.
    """

    def __init__(
        self,
        network: MaskedImageModel,
        tokenizer: VisualTokenizer,
        source: ImageSource,
        *,
        mask_ratio: float = MASK_RATIO,
    ) -> None:
        super().__init__(network, source)
        # In a list, so that it is no submodule: neither trained nor saved.
        self._tokenizer = [tokenizer.eval().requires_grad_(False)]
        self.mask_ratio = mask_ratio

    def worker_draw(self) -> Draw:
        """Return the function that draws batches with masks in worker processes."""
        return partial(draw_masked, self.source, self.mask_ratio)

    def forward(self, batch: ImageBatch) -> dict[str, Tensor]:
        """Compute the cross-entropy of the predicted tokens.

        Returns:
            `loss`, and for the log `kl` (loss minus the entropy of the true tokens, nats),
            `kl_marginal` (the same for predicting the batch's mean token distribution) and `top1`
            (share of patches whose most likely token is correct).
        """
        assert batch.is_masked is not None
        device = next(self.network.parameters()).device
        batch = batch.to(device)
        tokenizer = self._tokenizer[0].to(device)
        anisotropy = Anisotropy(batch.da0)
        with torch.no_grad():
            soft = tokenizer.tokenize(batch.image * 2 - 1, anisotropy).probabilities.float()
        truth = soft.flatten(2).transpose(1, 2)[batch.is_masked]  # (M, K)
        logits = self.network(imagenet_normalised(batch.image), anisotropy, batch.is_masked)
        loss = F.cross_entropy(logits.float(), truth)
        own = -(truth * truth.clamp_min(1e-30).log()).sum(1).mean()
        mean = truth.mean(0)
        marginal = -(mean * mean.clamp_min(1e-30).log()).sum()
        right = (logits.argmax(1) == truth.argmax(1)).float().mean()
        return {
            "loss": loss,
            "kl": loss.detach() - own,
            "kl_marginal": marginal - own,
            "top1": right,
        }


def build(recipe: MimRecipe, run: TrainingRun) -> Objective:
    """Build network, tokenizer, data and task of a recipe."""
    network = begun_network(recipe, MaskedImageModel)
    if recipe.eva02 is not None:
        from pumit.models.eva02_file import load_eva02

        load_eva02(network, Path(recipe.eva02).expanduser())
    path = find_model(recipe.tokenizer)
    checkpoint = read_model(path, "tokenizer")
    tokenizer = build_from(checkpoint, path, run.device)
    assert isinstance(tokenizer, VisualTokenizer)
    tokens = tokenizer.quantizer.codebook.shape[0]
    predicted = sizes_of(recipe)["num_tokens"]
    if tokens != predicted:
        raise CheckpointError(
            f"The tokenizer {path.name} has {tokens} tokens, the network predicts "
            f"{predicted}; set num_tokens in network_sizes."
        )
    source = image_recipe.image_source(recipe, run.reporter)
    task = MimTask(network, tokenizer, source, mask_ratio=recipe.mask_ratio)
    origin = {"name": checkpoint.header.name, "sha256": checkpoint.sha256}
    return image_recipe.objective_of(recipe, task, kind="encoder", tokenizer=origin)
