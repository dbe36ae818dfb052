"""Fine-tuning of the promptable network: learn new structures, and answer elsewhere as before."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from pumit.networks.promptable.image_encoder import ImageEmbedding
from pumit.networks.promptable.network import PromptableNetwork
from pumit.networks.promptable.prompt_encoder import PromptBatch
from pumit.networks.pumit import Anisotropy
from pumit.training.promptable.fields import FieldBatch, FieldSource
from pumit.training.promptable.own_scans import OwnScans
from pumit.training.promptable.task import Grade, PromptableTask, score

# A lab's first click counts most, and a step is the shorter the fewer clicks follow it.
ROUNDS = {1: 0.35, 2: 0.3, 3: 0.2, 5: 0.15}
ONE_CLICK = 0.6


class ClickTask(PromptableTask):
    """Fields of a lab's own scans are scored by their labels, generated ones by the original.

    What the network answered before on scans that are not the lab's is what it shall answer
    afterwards: not what the generated labels say, which it has never matched entirely.

    Args:
        network: Network to train, which begins as the original.
        original: The network as it was; never changed.
        real_share: Share of fields that come from them, by degree of anisotropy.
        distillation_weight: Weight of answering generated fields as the original does.

    Source:
        Li and Hoiem, Learning without Forgetting, ECCV 2016, the idea of the second term.
        Differs from the source: on generated fields instead of the new data, and soft Dice
        in addition to the cross-entropy, as answers are masks.
    """

    def __init__(
        self,
        network: PromptableNetwork,
        original: PromptableNetwork,
        scans: OwnScans,
        *,
        real_share: Mapping[int, float],
        distillation_weight: float = 1.0,
        batch_size: int = 1,
        targets_per_field: int = 2,
    ) -> None:
        super().__init__(
            network,
            FieldSource(
                network.field_size,
                scans=scans,
                real_share=real_share,
                batch_size=batch_size,
                targets_per_field=targets_per_field,
                rounds=ROUNDS,
                one_click=ONE_CLICK,
            ),
        )
        self.distillation_weight = distillation_weight
        self._original = (original.requires_grad_(False).eval(),)  # no part of what is trained
        self._shares_encoder = not any(p.requires_grad for p in network.image_encoder.parameters())

    def grader(self, batch: FieldBatch, embedding: ImageEmbedding) -> Grade:
        """Score the answers to real fields by their labels, to the others by the original's."""
        (original,) = self._original
        real, kept = batch.is_real, ~batch.is_real
        # 1. What the original network sees in the fields that are not the lab's.
        before: ImageEmbedding | None = None
        if bool(kept.any()):
            if self._shares_encoder:
                before = _some(embedding, kept)
            else:
                original.to(batch.image.device)
                images = kept[:: self.source.targets_per_field]
                with torch.no_grad():
                    before = original.embed(batch.image[images], Anisotropy(batch.da0))
                before = before.repeat(self.source.targets_per_field)

        def grade(
            prompts: PromptBatch, logits: Tensor, iou: Tensor, ambiguous: Tensor
        ) -> tuple[Tensor, Tensor, Tensor]:
            shown = torch.where(ambiguous, iou.detach().argmax(1), 0)
            # 2. Real fields: loss against their labels.
            loss, error = logits.new_zeros(()), iou.new_zeros(())
            share = real.float().mean()
            if bool(real.any()):
                learnt, _, error = score(
                    logits[real], iou[real], batch.target[real], ambiguous[real], batch.beyond[real]
                )
                loss = loss + share * learnt
            # 3. The others: distance to what the original answers to the same prompts.
            if before is not None:
                with torch.no_grad():
                    kept_prompts = PromptBatch(**{k: v[kept] for k, v in vars(prompts).items()})
                    original_logits, estimate = original.decode(before, kept_prompts)
                drift = difference(
                    logits[kept], iou[kept], original_logits, estimate, ambiguous[kept]
                )
                loss = loss + (1 - share) * self.distillation_weight * drift
            return loss, shown, error

        return grade


def difference(
    logits: Tensor, iou: Tensor, original_logits: Tensor, estimate: Tensor, ambiguous: Tensor
) -> Tensor:
    """How far answers are from those of another network.

    Args:
        logits: (B, M, D, H, W).
        iou: Estimates (B, M).
        original_logits: Logits of the other network.
        ambiguous: Whether all answers count, or only the first, (B,).

    Returns:
        A scalar, the smallest where they are alike.
    """
    with torch.autocast(logits.device.type, enabled=False):
        x, truth = (
            logits.float().flatten(2),
            original_logits.float().flatten(2).sigmoid(),
        )  # (B, M, V)
        p = x.sigmoid()
        # With squares, the optimum of soft answers is the answers themselves.
        both, each = (p * truth).sum(-1), (p.square() + truth.square()).sum(-1)
        dice = 1 - (2 * both + 10) / (each + 10)
        cross = F.binary_cross_entropy_with_logits(x, truth, reduction="none").mean(-1)
        cross = 0.5 * cross / truth.mean(-1).clamp_min(0.01).sqrt()
        wrong = (iou.float() - estimate.float()).abs()
        counts = torch.ones_like(dice)
        counts[:, 1:] = ambiguous[:, None].to(counts.dtype)
        return ((dice + cross + wrong) * counts).sum() / counts.sum()


def _some(embedding: ImageEmbedding, chosen: Tensor) -> ImageEmbedding:
    """Return the embeddings of some samples."""
    return ImageEmbedding(
        image=embedding.image[chosen],
        full=embedding.full[chosen],
        half=embedding.half[chosen],
        quarter=embedding.quarter[chosen],
        tokens=embedding.tokens[chosen],
        anisotropy=embedding.anisotropy,
        classes=None if embedding.classes is None else embedding.classes[chosen],
    )
