"""Training task of the promptable network: answer prompts, then corrections of earlier answers."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pumit.networks.promptable.constants import NEGATIVE, NO_LABEL, POSITIVE
from pumit.networks.promptable.image_encoder import ImageEmbedding
from pumit.networks.promptable.network import PromptableNetwork
from pumit.networks.promptable.prompt_encoder import PromptBatch
from pumit.networks.pumit import Anisotropy
from pumit.training.loop.sharding import is_sharded
from pumit.training.loop.task import Draw, SourceTask
from pumit.training.promptable.class_loss import class_loss, region_loss
from pumit.training.promptable.fields import FieldBatch, FieldSource, spawn_generators
from pumit.training.promptable.simulated_prompts import PromptState, correct_all

DEGREES = (0, 1, 2, 3, 4, 5)
DEGREE_SHARES = (0.22, 0.24, 0.32, 0.10, 0.04, 0.08)
# (prompts, logits, IoU estimates, is ambiguous) -> (loss, index of the shown mask, IoU error).
Grade = Callable[[PromptBatch, Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
CLASS_WEIGHT, REGION_WEIGHT = 0.5, 0.25  # weights of the class loss and the region loss
SHARED = ("full", "half", "quarter", "tokens")  # parts of an embedding that all rounds use
LOST, COARSENED = 0.08, 0.12  # shares of priors that are dropped or coarsened
COMPILED_SHAPES = 64  # `torch.compile` cache size: compiled variants kept per function


class SeparateGradients:
    """Sum of the gradients of several losses, each computed as soon as its loss is added.

    Args:
        inputs: Tensors to differentiate by: leaves, and intermediate tensors shared by the losses.
    """

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        self.inputs = [x for x in inputs if x.requires_grad]
        # Detached copies cut the graph of each loss here; parameters are leaves already.
        self._ends = {id(x): x.detach().requires_grad_() for x in self.inputs if not x.is_leaf}
        self._sums: list[Tensor | None] = [None] * len(self.inputs)

    def end(self, x: Tensor) -> Tensor:
        """Return the detached copy of an input, which the losses must use instead."""
        return self._ends.get(id(x), x)

    def add(self, loss: Tensor) -> Tensor:
        """Add the gradients of a loss, and return the detached loss."""
        with torch.autocast(loss.device.type, enabled=False):
            found = torch.autograd.grad(loss, [self.end(x) for x in self.inputs], allow_unused=True)
        for i, new in enumerate(found):
            total = self._sums[i]
            self._sums[i] = new if total is None else total if new is None else total + new
        return loss.detach()

    def attached_to(self, value: Tensor) -> Tensor:
        """Return a copy of `value` whose backward pass yields the accumulated gradients."""
        found: Tensor = _Known.apply(value, self._sums, *self.inputs)  # type: ignore[no-untyped-call]
        return found


class _Known(torch.autograd.Function):
    """Identity with precomputed gradients."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: Sequence[Tensor | None], *_: Tensor) -> Tensor:
        ctx.gradients = gradients
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:
        (factor,) = above
        return (None, None, *(None if g is None else factor * g for g in ctx.gradients))


class PromptableTask(SourceTask):
    """Training by simulated interaction: draws fields, simulates a user, computes the losses.

    Args:
        network: Network to train; its device is used for all computation.
        compiler: Backend of `torch.compile` for the image encoder, such as `inductor`, or None.
        class_sets: Data set and label of each class of the network, for `class_loss`; see
            `RealScans.number_classes`.
    """

    def __init__(
        self,
        network: PromptableNetwork,
        source: FieldSource,
        *,
        compiler: str | None = None,
        stability_weight: float = 0.0,
        class_sets: Sequence[tuple[str, int]] = (),
    ) -> None:
        super().__init__(network, source)
        self.stability_weight = stability_weight
        names = sorted({name for name, _ in class_sets})
        self.class_sets = torch.tensor([names.index(name) for name, _ in class_sets])
        self._embed = network.embed
        if compiler is not None:
            from torch._dynamo import config  # takes seconds

            # Each degree of anisotropy compiles separately. The decoder is not compiled: it
            # branches on the prompts, so its graph would break into many small ones.
            config.cache_size_limit = COMPILED_SHAPES
            self._embed = torch.compile(network.embed, backend=compiler)

    def worker_draw(self) -> Draw:
        """Prepare the source, and return the function that draws batches in worker processes."""
        self.source.prepare()
        return self.source.draw

    def grader(self, batch: FieldBatch, embedding: ImageEmbedding) -> Grade:
        """Return the loss function of a batch's predictions; its embedding is one per target."""

        def grade(
            _: PromptBatch, logits: Tensor, iou: Tensor, ambiguous: Tensor
        ) -> tuple[Tensor, Tensor, Tensor]:
            return score(logits, iou, batch.target, ambiguous, batch.beyond)

        return grade

    def forward(self, batch: FieldBatch) -> dict[str, Tensor]:
        """Compute the loss over the first prediction and the corrections.

        Returns:
            `loss`, and for the log `region_loss`, `dice_first`, `dice_last`, `iou_error` and, with
            classes, `dice_classes`.
        """
        # 1. Embed the fields: image (B, C, D, H, W), prompts and targets of its B x T samples.
        batch = batch.to(next(self.network.parameters()).device)
        rngs = spawn_generators(batch.rng, len(batch.states))
        states = [replace(s, points=list(s.points)) for s in batch.states]
        embedding = self._embedded(batch.image, batch.da0)
        # 2. Class and region losses, which need no prompts.
        of_classes = self._class_losses(batch, embedding)
        loss_of_classes = of_classes.pop("loss")
        if batch.rounds == 0:
            return {"loss": loss_of_classes, **of_classes}
        of_regions = batch.image.new_zeros(())
        if embedding.classes is not None:
            with torch.autocast(batch.image.device.type, enabled=False):
                of_regions = region_loss(embedding.classes, batch.regions)
        # 3. Repeat the embedding for the T targets of a field. Rounds share nothing else, so each
        #    round's gradients are computed at once, and memory holds the graph of one round.
        gradients = self._separate_gradients(embedding)
        if gradients is not None:
            shared: Any = {key: gradients.end(getattr(embedding, key)) for key in SHARED}
            embedding = replace(embedding, **shared)
        embedding = embedding.repeat(self.source.targets_per_field)
        grade = self.grader(batch, embedding)
        prior: Tensor | None = None
        losses, first, last, iou_error = [], None, None, []
        for i in range(batch.rounds):
            # 4. Predict from the prompts so far and the previous prediction: logits
            #    (B x T, masks, D, H, W), expected IoU (B x T, masks).
            prompts = prompt_batch(states, batch.ratio, batch.target.shape[1:], prior)
            if prior is not None:
                prompts = damaged(prompts, rngs)
            ambiguous = torch.tensor([prior is None and s.is_ambiguous for s in states])
            logits, iou = self.network.decode(embedding, prompts)
            # 5. Loss; an ambiguous first prompt trains several masks.
            there = ambiguous.to(logits.device, non_blocking=True)
            loss, chosen, error = grade(prompts, logits, iou, there)
            if prior is not None and self.stability_weight:
                stability = stability_loss(logits[:, 0], batch.target, prior)
                loss = loss + self.stability_weight * stability.mean()
            losses.append(loss if gradients is None else gradients.add(loss))
            iou_error.append(error.detach())
            # 6. The mask shown to the user, (B x T, D, H, W).
            index = chosen[:, None, None, None, None].expand(-1, 1, *logits.shape[2:])
            answer = logits.detach().gather(1, index)[:, 0]
            dice = hard_dice(answer, batch.target)
            first, last = (dice if first is None else first), dice
            # 7. The simulated user corrects an error.
            if i + 1 < batch.rounds:
                prior = answer.sigmoid()
                correct_all(states, batch.target, prior, rngs, batch.da0)
        assert first is not None
        assert last is not None
        of_answers = torch.stack(losses).sum()
        if gradients is not None:
            of_answers = gradients.attached_to(of_answers)
        return {
            "loss": of_answers / batch.rounds
            + CLASS_WEIGHT * loss_of_classes
            + REGION_WEIGHT * of_regions,
            "region_loss": of_regions.detach(),
            "dice_first": first.mean(),
            "dice_last": last.mean(),
            "iou_error": torch.stack(iou_error).mean(),
            **of_classes,
        }

    def _separate_gradients(self, embedding: ImageEmbedding) -> SeparateGradients | None:
        """Set up per-round gradients; None without autograd or with sharded parameters."""
        parameters = list(self.network.parameters())
        if not torch.is_grad_enabled() or any(map(is_sharded, parameters)):
            return None
        return SeparateGradients([*(getattr(embedding, key) for key in SHARED), *parameters])

    def _embedded(self, image: Tensor, da0: int) -> ImageEmbedding:
        """Embed fields; on a GPU in channels-last layout, the fastest for convolutions."""
        if image.is_cuda:
            image = image.contiguous(memory_format=torch.channels_last_3d)
        return self._embed(image, Anisotropy(da0))

    def _class_losses(self, batch: FieldBatch, embedding: ImageEmbedding) -> dict[str, Tensor]:
        """Compute `loss` and, with classes, `dice_classes`, over fields with or without targets."""
        if embedding.classes is None or not len(self.class_sets):
            return {"loss": batch.image.new_zeros(())}
        sets = self.class_sets.to(batch.image.device)
        parts = [(embedding, batch.classes)]
        if len(batch.more):
            parts.append((self._embedded(batch.more, batch.da0), batch.more_classes))
        found = [self._class_loss(of, truth, sets) for of, truth in parts]
        weights = torch.stack([w for _, _, w in found])
        total = weights.sum().clamp_min(1)
        losses, dices = (torch.stack([f[i] for f in found]) for i in (0, 1))
        known = {"loss": (losses * weights).sum() / total}
        if weights.sum() > 0:
            known["dice_classes"] = (dices * weights).sum() / total
        return known

    def _class_loss(
        self, embedding: ImageEmbedding, truth: Tensor, sets: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute `class_loss` for the fields of one embedding."""
        vectors = embedding.classes
        assert vectors is not None

        def logits_of(fields: Tensor, classes: Tensor) -> Tensor:
            of = replace(embedding, classes=vectors[fields])
            return self.network.class_logits(of, classes)

        return class_loss(logits_of, truth, sets, tuple(vectors.shape[2:]))


def prompt_batch(
    states: list[PromptState], ratio: Tensor, shape: torch.Size, prior: Tensor | None = None
) -> PromptBatch:
    """Collate prompt states; see `PromptBatch` for the coordinates.

    Args:
        ratio: Slice ratios (B,), on the device of the result.
        shape: Field voxels (D, H, W).
        prior: Previous predictions of all samples, (B, D, H, W); None takes those of the states.
    """
    # 1. Points (B, N, 3), padded, and boxes (B, 2, 3) of all samples.
    count = max(1, max(len(s.points) for s in states))
    batch, device = len(states), ratio.device
    points = np.zeros((batch, count, 3), np.float32)
    labels = np.full((batch, count), NO_LABEL)
    boxes = np.zeros((batch, 2, 3), np.float32)
    for i, state in enumerate(states):
        for j, (d, h, w, is_positive) in enumerate(state.points):
            points[i, j] = d, h, w
            labels[i, j] = POSITIVE if is_positive else NEGATIVE
        if state.box is not None:
            boxes[i] = np.stack(state.box)
    # 2. Priors (B, D, H, W).
    has_prior = [prior is not None or s.prior is not None for s in states]
    if prior is None:
        prior = torch.zeros(batch, *shape, device=device)
        given = [i for i, state in enumerate(states) if state.prior is not None]
        if given:
            masks = torch.from_numpy(np.stack([s.prior for s in states if s.prior is not None]))
            prior[torch.tensor(given, device=device)] = masks.to(device, non_blocking=True)

    def on(tensor: Tensor) -> Tensor:
        return tensor.to(device, non_blocking=True)

    # 3. Scale depth to in-plane voxels, the unit of the network's coordinates.
    scale = torch.ones(batch, 1, 3, device=device)
    scale[:, 0, 0] = ratio
    return PromptBatch(
        on(torch.from_numpy(points)) * scale,
        on(torch.from_numpy(labels)),
        on(torch.from_numpy(boxes)) * scale,
        on(torch.tensor([s.box is not None for s in states])),
        on(prior)[:, None],
        on(torch.tensor(has_prior)),
        ratio,
    )


def damaged(prompts: PromptBatch, rngs: Sequence[np.random.Generator]) -> PromptBatch:
    """Drop or coarsen some priors, so that the network does not rely on them over the clicks."""
    draws = np.array([rng.random(2) for rng in rngs])
    is_lost = draws[:, 0] < LOST
    factors = np.where(draws[:, 0] < LOST + COARSENED, 2 + (3 * draws[:, 1]).astype(int), 1)
    factors[is_lost] = 1
    kept = torch.tensor(~is_lost).to(prompts.prior.device, non_blocking=True)
    prior = prompts.prior * kept[:, None, None, None, None]
    for factor in set(factors[factors > 1].tolist()):
        index = torch.tensor(np.flatnonzero(factors == factor)).to(prior.device)
        d, h, w = (max(n // factor, 1) for n in prior.shape[2:])
        small = F.adaptive_avg_pool3d(prior[index], (d, h, w))
        prior[index] = F.interpolate(small, prior.shape[2:], mode="trilinear")
    return replace(prompts, prior=prior, has_prior=prompts.has_prior & kept)


def hard_dice(logits: Tensor, target: Tensor) -> Tensor:
    """Compute Dice of logits > 0 with a bool target, per sample, (B,)."""
    mask = (logits > 0).flatten(1)
    truth = target.flatten(1)
    return 2 * (mask & truth).sum(1) / (mask.sum(1) + truth.sum(1)).clamp_min(1)


def mask_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Compute soft Dice plus cross-entropy, per sample and mask, (B, M)."""
    truth = target[:, None].expand_as(logits).to(logits.dtype).flatten(2)
    x = logits.flatten(2)
    p = x.sigmoid()
    smooth = 10.0
    dice = 1 - (2 * (p * truth).sum(-1) + smooth) / (p.sum(-1) + truth.sum(-1) + smooth)
    cross = F.binary_cross_entropy_with_logits(x, truth, reduction="none")
    return dice + per_size(cross, truth)


def stability_loss(logits: Tensor, target: Tensor, prior: Tensor) -> Tensor:
    """Compute cross-entropy over the voxels that were correct before a correction, (B,).

    Penalises a correction that breaks correct voxels elsewhere more than Dice does. `prior` are the
    previous probabilities, (B, D, H, W) like the others.
    """
    with torch.autocast(logits.device.type, enabled=False):
        truth = target.flatten(1).float()
        was_right = (prior.flatten(1) > 0.5) == target.flatten(1)
        x = logits.float().flatten(1)
        cross = F.binary_cross_entropy_with_logits(x, truth, reduction="none")
        return per_size(cross * was_right, truth)


def per_size(cross: Tensor, truth: Tensor) -> Tensor:
    """Average cross-entropy, weighted so that small targets count nearly as much as large ones."""
    return 0.5 * cross.mean(-1) / truth.mean(-1).clamp_min(0.01).sqrt()


def score(
    logits: Tensor,
    iou: Tensor,
    target: Tensor,
    ambiguous: Tensor,
    beyond: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the loss of the masks and of the IoU estimates.

    An ambiguous prompt (only one click, or only a box) trains the first mask and the best of the
    others. The remaining masks get a small weight, so that none stops learning. Any other prompt
    trains only the first mask.

    The IoU is that with the whole structure, including voxels outside the field. A field that
    shows only a part gets a low IoU even if the mask fits there, so fields can be compared by it.

    Args:
        logits: Predictions (B, M, D, H, W).
        iou: IoU estimates (B, M).
        target: Bool (B, D, H, W).
        ambiguous: Whether all masks count, (B,).
        beyond: Number of voxels of the structure outside the field, (B,). Samples with NaN
            (unknown) do not train the estimate.

    Returns:
        Loss, index of the mask shown to the user (B,), mean absolute error of the IoU estimates.
    """
    # CUDA autocast rejects binary cross-entropy.
    with torch.autocast(logits.device.type, enabled=False):
        logits, iou = logits.float(), iou.float()
        losses = mask_loss(logits, target)  # (B, M)
        single, others = losses[:, 0], losses[:, 1:]
        several = 0.5 * single + 0.45 * others.min(1).values + 0.05 * others.mean(1)
        mask = torch.where(ambiguous, several, single)
        hard = (logits.detach() > 0).flatten(2)
        truth = target[:, None].flatten(2)
        is_known = ~beyond.isnan()
        union = (hard | truth).sum(-1) + beyond.nan_to_num()[:, None]
        true_iou = (hard & truth).sum(-1) / union.clamp_min(1)
        counts = torch.ones_like(iou)
        counts[:, 1:] = ambiguous[:, None].to(iou.dtype)
        counts = counts * is_known[:, None]
        total = counts.sum().clamp_min(1)
        error = ((iou - true_iou).abs() * counts).sum() / total
        # Unlike squared error, cross-entropy keeps a gradient where the estimate saturates. It
        # rejects NaN, on CUDA by aborting the process; NaN is passed to the loss instead.
        likely = iou.nan_to_num().clamp(1e-4, 1 - 1e-4)
        cross = F.binary_cross_entropy(likely, true_iou, reduction="none")
        cross = torch.where(iou.isnan(), iou, cross)
        estimate = (cross * counts).sum() / total
        best = iou.detach().argmax(1)
        chosen = torch.where(ambiguous, best, torch.zeros_like(best))
        return mask.mean() + estimate, chosen, error
